// SPDX-License-Identifier: Apache-2.0
//! Plots of the rows over time: the mean over all flows of each second.

use std::path::Path;

use anyhow::Context;
use smoke::report::plot::{Plot, Series};

use super::{Report, RowReport};
use crate::metrics;

/// Draws throughput and round-trip time of all rows into a directory, and returns the SVG of each.
///
/// # Errors
/// If a file cannot be written.
pub fn draw(report: &Report, directory: &Path) -> anyhow::Result<Vec<String>> {
    let mbps = |s: &metrics::Series, second: usize| s.mbps.get(second).copied();
    let rtt = |s: &metrics::Series, second: usize| s.rtt_ms.get(second).copied().flatten();
    let plots = [
        ("throughput", "throughput, Mbit/s", lines(report, mbps)),
        ("rtt", "round-trip time, ms", lines(report, rtt)),
    ];
    let mut drawn = Vec::new();
    for (name, unit, series) in plots {
        if series.is_empty() {
            continue;
        }
        let plot = Plot {
            title: format!("{}: {name}, mean over flows of each second", report.study),
            unit: unit.to_owned(),
            series,
            levels: Vec::new(),
        };
        let path = directory.join(format!("{name}.svg"));
        plot.draw(&path)?;
        drawn.push(std::fs::read_to_string(&path).with_context(|| path.display().to_string())?);
    }
    Ok(drawn)
}

fn lines(report: &Report, of: impl Fn(&metrics::Series, usize) -> Option<f64>) -> Vec<Series> {
    report
        .rows
        .iter()
        .map(|row| Series { name: row.name.clone(), points: points(row, &of) })
        .filter(|series| !series.points.is_empty())
        .collect()
}

/// The mean of each second in which at least half of the flows have a value.
fn points(row: &RowReport, of: impl Fn(&metrics::Series, usize) -> Option<f64>) -> Vec<(f64, f64)> {
    let all: Vec<&metrics::Series> =
        row.records.iter().flat_map(|r| r.attempt.series.values()).collect();
    let length = all.iter().map(|s| s.mbps.len()).max().unwrap_or_default();
    let mean = |second: usize| {
        let values: Vec<f64> = all.iter().filter_map(|s| of(s, second)).collect();
        (2 * values.len() >= all.len())
            .then(|| values.iter().sum::<f64>() / values.len() as f64)
            .map(|mean| (second as f64 + 0.5, mean))
    };
    (0..length).filter_map(mean).collect()
}
