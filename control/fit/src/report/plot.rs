// SPDX-License-Identifier: Apache-2.0
//! The plots as SVG.
//!
//! They are drawn at twice the size of the page, because the plotting library rounds to whole
//! pixels, and without a background: the page's style turns black into its own ink. The colours
//! are those of Okabe and Ito (2008), which red-green colour-blind readers can distinguish;
//! the baseline is solid with circles, the link dashed with triangles.

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ReportError;
use super::axis::{Axis, Kind};
use crate::verify::{Curve, Pair, Plots};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;
type Path = Vec<(f64, f64)>;

const FULL: (u32, u32) = (1440, 600);
const TALL: (u32, u32) = (1440, 840);
const HALF: (u32, u32) = (710, 540);
const FONT: u32 = 25;
/// Curves of fewer points have markers.
const MARKED: usize = 60;
/// Points nearer than this share of the axes are drawn as one.
const FINE: f64 = 1.0 / 3000.0;
/// The body of a distribution ends where the share above, in percent, is less.
const BODY_PERCENT: f64 = 1.0;

/// A plot of the page.
#[derive(Clone, Debug)]
pub struct Figure {
    pub title: &'static str,
    pub caption: &'static str,
    /// Whether it needs the page's width.
    pub wide: bool,
    pub svg: String,
}

/// All of them, in the page's order.
pub fn figures(plots: &Plots) -> Result<[Figure; 4], ReportError> {
    let draw = |title, caption, size: (u32, u32), down, panels: Vec<Panel>| {
        let mut svg = String::new();
        match render(&mut svg, size, down, &panels) {
            Ok(()) => Ok(Figure { title, caption, wide: size != HALF, svg }),
            Err(source) => Err(ReportError::Plot { plot: title, source }),
        }
    };
    Ok([
        draw(
            "Exceedance of the round trip",
            "The share of round trips above a level: the body on a linear scale, the tail on a \
             logarithmic one.",
            FULL,
            false,
            exceedance(&plots.exceedance),
        )?,
        draw(
            "Round trips over time",
            "From the least to the largest round trip of each span, on the same scales.",
            TALL,
            true,
            time_series(&plots.time_series),
        )?,
        draw(
            "Runs of lost probes",
            "How often that many probes in a row are lost.",
            HALF,
            false,
            run_lengths(&plots.run_lengths),
        )?,
        draw(
            "Autocorrelation of the round trip",
            "How much round trips that far apart have in common.",
            HALF,
            false,
            autocorrelation(&plots.autocorrelation),
        )?,
    ])
}

/// One of the two that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Baseline,
    Link,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Baseline, Self::Link];

    const fn of(self, pair: &Pair) -> &Curve {
        match self {
            Self::Baseline => &pair.baseline,
            Self::Link => &pair.link,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Link => "link",
        }
    }

    const fn colour(self) -> RGBColor {
        match self {
            Self::Baseline => RGBColor(0, 114, 178),
            Self::Link => RGBColor(213, 94, 0),
        }
    }
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Line,
    /// Points on stems, those of the two beside each other.
    Stems,
    Band,
}

#[derive(Debug)]
struct Panel {
    title: &'static str,
    below: &'static str,
    x: Axis,
    y: Axis,
    mark: Mark,
    curves: Vec<(Side, Curve)>,
}

fn exceedance(pair: &Pair) -> Vec<Panel> {
    let percent = |side: Side| side.of(pair).iter().map(|p| (p.0, 100.0 * p.1)).collect();
    let curves = Side::BOTH.map(|side| (side, by_x(percent(side))));
    let points = || curves.iter().flat_map(|c| &c.1);
    let end = |curve: &Curve| curve.iter().find(|p| p.1 <= BODY_PERCENT).map(|p| p.0);
    let end = curves.iter().filter_map(|c| end(&c.1)).reduce(f64::max).unwrap_or(f64::INFINITY);
    let body = points().map(|p| p.0).filter(|x| *x <= end);
    let panel = |title, x, y| {
        let below = "round trip, ms";
        Panel { title, below, x, y, mark: Mark::Line, curves: curves.clone().into() }
    };
    let percent = Axis::between(0.0, 100.0, Kind::Real);
    vec![
        panel("body: share above, %", Axis::linear(body, Kind::Real), percent),
        panel(
            "tail: share above, %",
            Axis::linear(points().map(|p| p.0), Kind::Real),
            Axis::decades(points().map(|p| p.1)),
        ),
    ]
}

fn time_series(pair: &Pair) -> Vec<Panel> {
    let x = Axis::linear(points(pair).map(|p| p.0), Kind::Hours);
    let y = Axis::linear(points(pair).map(|p| p.1), Kind::Real);
    let panel = |(side, title): (Side, _)| {
        let (below, curves) = ("hours since the start", vec![(side, side.of(pair).clone())]);
        Panel { title, below, x: x.clone(), y: y.clone(), mark: Mark::Band, curves }
    };
    [(Side::Baseline, "baseline: round trip, ms"), (Side::Link, "link: round trip, ms")]
        .map(panel)
        .into()
}

fn run_lengths(pair: &Pair) -> Vec<Panel> {
    vec![Panel {
        title: "runs per day",
        below: "lost probes in a run",
        x: Axis::fitting(points(pair).map(|p| p.0), Kind::Whole),
        y: Axis::decades(points(pair).map(|p| p.1)),
        mark: Mark::Stems,
        curves: both(pair),
    }]
}

fn autocorrelation(pair: &Pair) -> Vec<Panel> {
    vec![Panel {
        title: "autocorrelation",
        below: "lag, s",
        x: Axis::fitting(points(pair).map(|p| p.0), Kind::Real),
        y: Axis::linear(points(pair).map(|p| p.1).chain([0.0]), Kind::Real),
        mark: Mark::Line,
        curves: both(pair),
    }]
}

fn both(pair: &Pair) -> Vec<(Side, Curve)> {
    Side::BOTH.map(|side| (side, by_x(side.of(pair).clone()))).into()
}

fn by_x(mut curve: Curve) -> Curve {
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    curve
}

fn points(pair: &Pair) -> impl Iterator<Item = &(f64, f64)> {
    pair.baseline.iter().chain(&pair.link)
}

fn render(svg: &mut String, size: (u32, u32), down: bool, panels: &[Panel]) -> Drawn {
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    let (legend, plots) = area.split_vertically(2 * FONT);
    draw_legend(&legend)?;
    let (rows, columns) = if down { (panels.len(), 1) } else { (1, panels.len()) };
    for (panel, area) in panels.iter().zip(plots.split_evenly((rows, columns))) {
        panel.draw(&area)?;
    }
    area.present()
}

/// Above the panels, where it hides no curve.
fn draw_legend(area: &Area<'_>) -> Drawn {
    let middle = FONT as i32;
    for (side, x) in Side::BOTH.into_iter().zip([20, 240]) {
        let line = [(x, middle), (x + 70, middle)];
        match side {
            Side::Baseline => area.draw(&PathElement::new(line, stroke(side)))?,
            Side::Link => area.draw(&DashedPathElement::new(line, 14, 9, stroke(side)))?,
        }
        draw_marker(area, side, (x + 35, middle))?;
        area.draw(&Text::new(side.name(), (x + 82, middle), font(HPos::Left)))?;
    }
    Ok(())
}

fn draw_marker<C: CoordTranslate>(
    area: &DrawingArea<SVGBackend<'_>, C>,
    side: Side,
    at: C::From,
) -> Drawn
where
    C::From: Clone,
{
    match side {
        Side::Baseline => area.draw(&Circle::new(at, 6, side.colour().filled())),
        Side::Link => area.draw(&TriangleMarker::new(at, 9, side.colour().filled())),
    }
}

fn stroke(side: Side) -> ShapeStyle {
    side.colour().stroke_width(3)
}

fn font(h: HPos) -> TextStyle<'static> {
    ("sans-serif", FONT).into_font().color(&BLACK).pos(Pos::new(h, VPos::Center))
}

impl Panel {
    fn draw(&self, area: &Area<'_>) -> Drawn {
        let curves: Vec<_> = self.curves.iter().map(|(s, c)| (*s, self.paths(*s, c))).collect();
        let (title, plot) = area.split_vertically(FONT + 10);
        let middle = FONT as i32 / 2;
        title.draw(&Text::new(self.title, (20, middle), font(HPos::Left)))?;
        let right = title.dim_in_pixel().0 as i32 - 30;
        title.draw(&Text::new(self.missing(&curves), (right, middle), font(HPos::Right)))?;
        let mut chart = ChartBuilder::on(&plot)
            .margin_right(30)
            .margin_top(8)
            .x_label_area_size(76)
            .y_label_area_size(100)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        chart
            .configure_mesh()
            .bold_line_style(BLACK.mix(0.15))
            .axis_style(BLACK.mix(0.6))
            .x_desc(self.below)
            .axis_desc_style(("sans-serif", FONT))
            .label_style(("sans-serif", FONT - 2))
            .draw()?;
        let chart = chart.plotting_area();
        for (side, paths) in curves {
            for path in paths {
                let marked = self.mark != Mark::Band && path.len() < MARKED;
                match (self.mark, side) {
                    (Mark::Stems, _) => {
                        for point in &path {
                            let stem = [(point.0, self.y.ends().0), *point];
                            chart.draw(&PathElement::new(stem, stroke(side)))?;
                        }
                    }
                    (Mark::Band, _) => {
                        chart.draw(&Polygon::new(path.clone(), side.colour().mix(0.35)))?;
                        chart.draw(&PathElement::new(path.clone(), side.colour()))?;
                    }
                    (Mark::Line, Side::Baseline) => {
                        chart.draw(&PathElement::new(path.clone(), stroke(side)))?;
                    }
                    (Mark::Line, Side::Link) => {
                        let path = path.iter().copied();
                        chart.draw(&DashedPathElement::new(path, 14, 9, stroke(side)))?;
                    }
                }
                for at in path.into_iter().filter(|_| marked) {
                    draw_marker(chart, side, at)?;
                }
            }
        }
        Ok(())
    }

    /// Names the sides that have no points.
    fn missing(&self, curves: &[(Side, Vec<Path>)]) -> String {
        let missing: Vec<Side> = curves.iter().filter(|c| c.1.is_empty()).map(|c| c.0).collect();
        let given = |side| self.curves.iter().any(|(s, c)| *s == side && !c.is_empty());
        let shown = if missing.iter().any(|s| given(*s)) { " that can be shown" } else { "" };
        match *missing.as_slice() {
            [] => String::new(),
            [side] => format!("the {} has no points{shown}", side.name()),
            _ => format!("neither has points{shown}"),
        }
    }

    /// The paths of a curve on the axes, none of them empty.
    fn paths(&self, side: Side, curve: &Curve) -> Vec<Path> {
        let place = |p: &(f64, f64)| Some((self.x.place(p.0)?, self.y.place(p.1)?));
        let mut path = match self.mark {
            Mark::Band => return bands(curve, place),
            Mark::Line => self.thinned(curve.iter().filter_map(place)),
            Mark::Stems => curve.iter().filter_map(place).collect::<Path>(),
        };
        if self.mark == Mark::Stems {
            let (from, to) = self.x.ends();
            let aside = 0.009 * (to - from) * if side == Side::Link { 1.0 } else { -1.0 };
            path.iter_mut().for_each(|p| p.0 += aside);
        }
        if path.is_empty() { Vec::new() } else { vec![path] }
    }

    /// Without points that would be drawn over each other.
    fn thinned(&self, points: impl Iterator<Item = (f64, f64)>) -> Path {
        let (x, y) = (self.x.ends(), self.y.ends());
        let (dx, dy) = (FINE * (x.1 - x.0), FINE * (y.1 - y.0));
        let mut path = Path::new();
        for p in points {
            if path.last().is_none_or(|l| (p.0 - l.0).abs() >= dx || (p.1 - l.1).abs() >= dy) {
                path.push(p);
            }
        }
        path
    }
}

/// Outlines around the spans of a time series, one for each stretch without a gap.
fn bands(curve: &Curve, place: impl Fn(&(f64, f64)) -> Option<(f64, f64)>) -> Vec<Path> {
    let spans: Vec<_> = curve
        .chunks_exact(2)
        .map(|span| Some((place(span.first()?)?, place(span.last()?)?)))
        .collect();
    let stretches = spans.split(Option::is_none).filter(|stretch| !stretch.is_empty());
    let outline = |stretch: &[Option<_>]| {
        let there = stretch.iter().flatten().map(|(one, _)| *one);
        let back = stretch.iter().rev().flatten().map(|(_, other)| *other);
        let start = there.clone().next();
        there.chain(back).chain(start).collect()
    };
    stretches.map(outline).collect()
}
