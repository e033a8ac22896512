// SPDX-License-Identifier: Apache-2.0
//! Plots over time as SVG.

use std::path::Path;

use plotters::prelude::*;

use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    /// Seconds and values.
    pub points: Vec<(f64, f64)>,
}

#[derive(Clone, Debug)]
pub struct Level {
    pub name: String,
    pub value: f64,
}

/// A plot of values over seconds.
#[derive(Clone, Debug)]
pub struct Plot {
    pub title: String,
    /// Quantity and unit of the values.
    pub unit: String,
    pub series: Vec<Series>,
    pub levels: Vec<Level>,
}

const SIZE: (u32, u32) = (960, 480);
/// Distinguishable in print and with red-green blindness.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];
const GREY: RGBColor = RGBColor(110, 110, 110);

impl Plot {
    pub fn draw(&self, path: &Path) -> Result<()> {
        self.render(path).map_err(|e| Error::parse(path.display().to_string(), e))
    }

    fn render(&self, path: &Path) -> std::result::Result<(), Box<dyn std::error::Error + '_>> {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let end = points().map(|p| p.0).fold(1.0, f64::max);
        let highest = points().map(|p| p.1).chain(self.levels.iter().map(|l| l.value));
        // Room for the legend.
        let top = 1.3 * highest.fold(1e-3, f64::max);
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 20))
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(BLACK.mix(0.1))
            .x_desc("time, s")
            .y_desc(&self.unit)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| if top < 10.0 { format!("{y:.1}") } else { format!("{y:.0}") })
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .draw()?;
        for level in &self.levels {
            let line = [(0.0, level.value), (end, level.value)];
            chart.draw_series(DashedLineSeries::new(line, 6, 4, GREY.stroke_width(1)))?;
            let style = ("sans-serif", 13).into_font().color(&GREY);
            let place = (0.008 * end, level.value + 0.04 * top);
            chart.draw_series([Text::new(level.name.clone(), place, style)])?;
        }
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(series.points.iter().copied(), style))?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(GREY.mix(0.4))
            .label_font(("sans-serif", 14))
            .draw()?;
        area.present()?;
        Ok(())
    }
}
