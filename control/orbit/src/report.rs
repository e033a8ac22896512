// SPDX-License-Identifier: Apache-2.0
//! A track as one page of HTML: figures, the delay and the elevation over time, and its intervals.
//!
//! The page has no scripts and no external resources, and is well-formed XML. The same track gives
//! the same bytes. Satellites that follow each other have two colours in turn (Okabe and Ito, 2008).

use maud::{DOCTYPE, PreEscaped, html};
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use profile::format_duration;

use crate::elements::Satellite;
use crate::track::{Sample, Track};

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

const SIZE: (u32, u32) = (1440, 480);
const FONT: u32 = 24;
const COLOURS: [RGBColor; 2] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0)];
/// Points of a curve, at most: more than one per pixel cannot be seen.
const POINTS: usize = 4_000;
/// Rows of the table of intervals.
const ROWS: usize = 500;

const HEAD: PreEscaped<&str> = PreEscaped(
    "<meta charset=\"utf-8\"/>\
     <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
     <meta http-equiv=\"Content-Security-Policy\" \
     content=\"default-src 'none'; style-src 'unsafe-inline'\"/>",
);

const STYLE: PreEscaped<&str> = PreEscaped(
    "
body { margin: 0 auto; padding: 1.5rem; max-width: 66rem; background: #fff; color: #1a1a1a;
  font: 1rem/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; }
dt { color: #595959; } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; text-align: left; border-bottom: 1px solid #ccc; }
svg { width: 100%; height: auto; display: block; }
",
);

/// A plot could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the plot of the {what} cannot be drawn: {source}; the JSON form has its values")]
pub struct ReportError {
    what: &'static str,
    source: DrawingAreaErrorKind<std::io::Error>,
}

/// A curve: its values of a sample, and the range of its axis.
struct Curve {
    what: &'static str,
    value: fn(&Sample) -> f64,
    from: f64,
    to: f64,
}

/// The page. `facts` are shown above the plots, each with its name.
///
/// # Errors
/// If a plot cannot be drawn.
pub fn html(
    title: &str,
    facts: &[(&str, String)],
    track: &Track,
    satellites: &[Satellite],
) -> Result<String, ReportError> {
    let delay = |sample: &Sample| sample.delay_ns as f64 / 1e6;
    let delays = || track.samples().map(|(_, sample)| delay(sample));
    let (least, most) = (delays().fold(f64::INFINITY, f64::min), delays().fold(0.0, f64::max));
    let (least, most) = if least <= most { (least, most) } else { (0.0, 1.0) };
    let margin = (0.05 * (most - least)).max(0.05);
    let (from, to) = ((least - margin).max(0.0), most + margin);
    let elevation = |sample: &Sample| sample.elevation_deg;
    let curves = [
        Curve { what: "one-way delay, ms", value: delay, from, to },
        Curve { what: "elevation, degrees", value: elevation, from: 0.0, to: 90.0 },
    ];
    let mut plots = Vec::new();
    for curve in &curves {
        let mut svg = String::new();
        let failed = |source| ReportError { what: curve.what, source };
        draw(&mut svg, curve, track).map_err(failed)?;
        plots.push((curve.what, svg));
    }
    let rest = track.intervals.len().saturating_sub(ROWS);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head { (HEAD) title { (title) } style { (STYLE) } }
            body {
                h1 { (title) }
                dl { @for (name, fact) in facts { dt { (name) } dd { (fact) } } }
                @for (what, svg) in &plots { h2 { (what) } (PreEscaped(svg)) }
                h2 { "satellites" }
                table {
                    thead { tr { @for name in ["from", "for", "satellite", "gateway", "delay, ms",
                        "elevation, degrees"] { th { (name) } } } }
                    tbody { @for row in rows(track, satellites) {
                        tr { @for cell in row { td { (cell) } } }
                    } }
                }
                @if rest > 0 { p { "and " (rest) " more" } }
            }
        }
    };
    Ok(page.into_string())
}

fn rows<'a>(
    track: &'a Track,
    satellites: &'a [Satellite],
) -> impl Iterator<Item = [String; 6]> + 'a {
    track.intervals.iter().take(ROWS).map(|interval| {
        let from = format_duration(interval.from_ns);
        let length = format_duration(interval.to_ns - interval.from_ns);
        let Some(link) = &interval.link else {
            return [from, length, "none".into(), String::new(), String::new(), String::new()];
        };
        let name = satellites.get(link.satellite).map_or("", |it| it.name.as_str());
        let span = |value: fn(&Sample) -> f64, digits: usize| {
            let (first, last) = (link.samples.first(), link.samples.last());
            let [first, last] = [first, last].map(|sample| sample.map_or(0.0, value));
            format!("{first:.digits$} to {last:.digits$}")
        };
        let delay = span(|sample| sample.delay_ns as f64 / 1e6, 3);
        let elevation = span(|sample| sample.elevation_deg, 1);
        [from, length, name.to_owned(), (link.gateway + 1).to_string(), delay, elevation]
    })
}

fn draw(svg: &mut String, curve: &Curve, track: &Track) -> Drawn {
    let end_ns = track.intervals.last().map_or(1, |last| last.to_ns).max(1);
    let minutes = |ns: u64| ns as f64 / 60e9;
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(70)
        .y_label_area_size(90)
        .build_cartesian_2d(0.0..minutes(end_ns), curve.from..curve.to)?;
    chart
        .configure_mesh()
        .bold_line_style(BLACK.mix(0.15))
        .light_line_style(BLACK.mix(0.0))
        .x_desc("minutes since the start")
        .axis_desc_style(("sans-serif", FONT))
        .label_style(("sans-serif", FONT - 2))
        .draw()?;
    let every = track.samples().count().div_ceil(POINTS).max(1);
    let links = track.intervals.iter().filter_map(|interval| interval.link.as_ref());
    for (n, link) in links.enumerate() {
        let last = link.samples.len().saturating_sub(1);
        let shown = link.samples.iter().enumerate();
        let shown = shown.filter(|(i, _)| i % every == 0 || *i == last);
        let points = shown.map(|(_, sample)| (minutes(sample.at_ns), (curve.value)(sample)));
        let colour = COLOURS[n % COLOURS.len()];
        chart.draw_series(LineSeries::new(points, colour.stroke_width(3)))?;
    }
    area.present()
}
