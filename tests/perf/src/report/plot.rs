// SPDX-License-Identifier: Apache-2.0
//! Plots of a run, as SVG: bars of the cost of a packet stacked over the bare loop's, the same
//! over delay and over clients, and lateness beside the bare loop's.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use thiserror::Error as Derive;

use crate::cost::Cost;
use crate::lateness::Quantiles;
use crate::results::Results;
use crate::spread::Spread;

const GREY: RGBColor = RGBColor(170, 170, 170);
const BLUE: RGBColor = RGBColor(0, 114, 178);
const FONT: &str = "sans-serif";

/// A plot could not be drawn.
#[derive(Debug, Derive)]
#[error("cannot draw {file}: {reason}")]
pub struct PlotError {
    file: String,
    reason: String,
}

/// One bar: a grey part and a coloured one on top, with the range of the sum.
struct Bar {
    name: String,
    below: f64,
    above: f64,
    range: Option<(f64, f64)>,
}

impl From<&Cost> for Bar {
    fn from(c: &Cost) -> Self {
        let Spread { min, max, .. } = c.ours_ns;
        Self {
            name: c.case.clone(),
            below: c.ceiling_ns.median,
            above: (c.ours_ns.median - c.ceiling_ns.median).max(0.0),
            range: Some((min, max)),
        }
    }
}

/// Draws all that the results have; returns the names of the files.
///
/// # Errors
/// If a file cannot be written.
pub fn draw(results: &Results, folder: &Path) -> Result<Vec<String>, PlotError> {
    let full = |keep: &dyn Fn(&Cost) -> bool| -> Vec<Bar> {
        results.costs.iter().filter(|c| keep(c)).map(Bar::from).collect()
    };
    let title = "ns of CPU a packet: bare loop (grey) and what we add (blue)";
    let mut drawn = vec![
        ("cost.svg", title.to_owned(), full(&|_| true)),
        (
            "delay.svg",
            format!("{title}, by delay, 1 client"),
            full(&|c| c.profile == "full" && c.clients == 1 && !c.both),
        ),
        (
            "clients.svg",
            format!("{title}, by clients, 300 ms"),
            full(&|c| c.profile == "full" && c.delay_ms == 300.0 && !c.both),
        ),
    ];
    if let Some(late) = &results.lateness {
        let mut bars = Vec::new();
        for (name, of) in QUANTILES {
            for (who, runs) in [("bare", &late.bare), ("ours", &late.ours)] {
                let values: Vec<f64> = runs.iter().map(|q| of(q) as f64).collect();
                let s = Spread::of(&values);
                let (below, above) = if who == "bare" { (s.median, 0.0) } else { (0.0, s.median) };
                bars.push(Bar {
                    name: format!("{name} {who}"),
                    below,
                    above,
                    range: Some((s.min, s.max)),
                });
            }
        }
        drawn.push(("lateness.svg", "lateness, ns: bare loop (grey) and ours (blue)".into(), bars));
    }
    let mut names = Vec::new();
    for (file, title, bars) in drawn {
        if bars.is_empty() {
            continue;
        }
        let path = folder.join(file);
        let error = |reason: String| PlotError { file: path.display().to_string(), reason };
        let height = 90 + 22 * bars.len() as u32;
        let area = SVGBackend::new(&path, (960, height)).into_drawing_area();
        paint(&area, &title, &bars).map_err(|e| error(e.to_string()))?;
        area.present().map_err(|e| error(e.to_string()))?;
        names.push(file.to_owned());
    }
    Ok(names)
}

type Quantile = (&'static str, fn(&Quantiles) -> u64);
const QUANTILES: [Quantile; 3] = [("p50", |q| q.p50), ("p99", |q| q.p99), ("p99.9", |q| q.p999)];

/// Horizontal bars, the first on top.
fn paint(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    bars: &[Bar],
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let sums = bars.iter().map(|b| (b.below + b.above).max(b.range.map_or(0.0, |r| r.1)));
    // The extremes of noise may be cut off; typical values may not.
    let typical = bars.iter().map(|b| b.below + b.above).fold(1.0, f64::max);
    let most = sums.fold(1.0, f64::max).min(2.0 * typical) * 1.12;
    let count = bars.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 16))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(210)
        .build_cartesian_2d(0.0..most, 0.0..count)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.1))
        .x_label_formatter(&|x| format!("{x:.0}"))
        .label_style((FONT, 12))
        .draw()?;
    for (n, bar) in bars.iter().enumerate() {
        let (low, high) = (count - n as f64 - 0.85, count - n as f64 - 0.15);
        let middle = (low + high) / 2.0;
        let sum = bar.below + bar.above;
        let part = |from: f64, to: f64, colour: RGBColor| {
            Rectangle::new([(from.min(most), low), (to.min(most), high)], colour.filled())
        };
        chart.draw_series([part(0.0, bar.below, GREY), part(bar.below, sum, BLUE)])?;
        if let Some((min, max)) = bar.range {
            let line = [(min.min(most), middle), (max.min(most), middle)];
            chart.draw_series([PathElement::new(line, BLACK.stroke_width(1))])?;
        }
        let at = chart.backend_coord(&(0.0, middle));
        let label =
            (FONT, 12).into_font().color(&BLACK).pos(plotters::style::text_anchor::Pos::new(
                plotters::style::text_anchor::HPos::Right,
                plotters::style::text_anchor::VPos::Center,
            ));
        area.draw_text(&bar.name, &label, (at.0 - 8, at.1))?;
        let value =
            (FONT, 12).into_font().color(&BLACK).pos(plotters::style::text_anchor::Pos::new(
                plotters::style::text_anchor::HPos::Left,
                plotters::style::text_anchor::VPos::Center,
            ));
        let end = sum.max(bar.range.map_or(0.0, |r| r.1)).min(most);
        let at = chart.backend_coord(&(end, middle));
        area.draw_text(&format!("{sum:.1}"), &value, (at.0 + 5, at.1))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_bar_and_its_value() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::default();
        results.costs.push(Cost {
            case: "64B-full-300ms-1".to_owned(),
            profile: "full".to_owned(),
            clients: 1,
            ceiling_ns: Spread::of(&[13.0]),
            ours_ns: Spread::of(&[57.25]),
            ..Cost::default()
        });
        let names = draw(&results, folder.path()).unwrap();
        assert_eq!(names, ["cost.svg", "delay.svg"]);
        let svg = std::fs::read_to_string(folder.path().join("cost.svg")).unwrap();
        assert!(svg.contains("64B-full-300ms-1") && svg.contains("57.2"), "{svg}");
    }

    #[test]
    fn no_results_give_no_plot() {
        let folder = tempfile::tempdir().unwrap();
        assert!(draw(&Results::default(), folder.path()).unwrap().is_empty());
    }
}
