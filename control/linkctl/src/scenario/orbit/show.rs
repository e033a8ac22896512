// SPDX-License-Identifier: Apache-2.0
//! A track in numbers and as JSON.

use super::sky::{Sky, shown};
use ::orbit::{Interval, Track};
use ::scenario::Scenario;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// The track in numbers.
#[derive(Serialize)]
pub struct Figures {
    handovers: usize,
    satellites_used: usize,
    delay_min_ns: u64,
    delay_mean_ns: u64,
    delay_max_ns: u64,
    no_satellite_ns: u64,
}

impl Figures {
    pub fn of(track: &Track) -> Self {
        let delays = || track.samples().map(|(_, sample)| sample.delay_ns);
        let count = delays().count().max(1) as u128;
        let sum: u128 = delays().map(u128::from).sum();
        let used: BTreeSet<_> = track.samples().map(|(link, _)| link.satellite).collect();
        Self {
            handovers: track.handovers(),
            satellites_used: used.len(),
            delay_min_ns: delays().min().unwrap_or(0),
            delay_mean_ns: u64::try_from(sum / count).unwrap_or(u64::MAX),
            delay_max_ns: delays().max().unwrap_or(0),
            no_satellite_ns: track.unserved_ns(),
        }
    }

    pub fn text(&self) -> String {
        let ms = |ns: u64| ns as f64 / 1e6;
        format!(
            "satellites used: {}; handovers: {}; one-way delay: {:.3} to {:.3} ms, mean {:.3} ms; \
             no satellite: {:.1} s",
            self.satellites_used,
            self.handovers,
            ms(self.delay_min_ns),
            ms(self.delay_max_ns),
            ms(self.delay_mean_ns),
            self.no_satellite_ns as f64 / 1e9
        )
    }
}

#[derive(Serialize)]
pub struct View<'a> {
    name: &'a str,
    file: Option<String>,
    report: Option<String>,
    steps: Option<u64>,
    length_ns: Option<u64>,
    start: String,
    #[serde(flatten)]
    figures: &'a Figures,
    intervals: Vec<IntervalView<'a>>,
    samples: Vec<SampleView>,
    remarks: &'a [String],
    toml: &'a str,
}

/// Times are after the start.
#[derive(Serialize)]
struct IntervalView<'a> {
    from_ns: u64,
    to_ns: u64,
    satellite: Option<&'a str>,
    norad_id: Option<u64>,
    /// From 0, in the order of the options.
    gateway: Option<usize>,
}

#[derive(Serialize)]
struct SampleView {
    at_ns: u64,
    delay_ns: u64,
    elevation_deg: f64,
    gateway_elevation_deg: f64,
    range_m: f64,
    gateway_range_m: f64,
}

impl<'a> View<'a> {
    /// `files`: of the scenario and of the report.
    pub fn of(
        files: [Option<&Path>; 2],
        scenario: &'a Scenario,
        sky: &'a Sky,
        track: &Track,
        figures: &'a Figures,
    ) -> Self {
        let [file, report] = files.map(|path| path.map(|path| path.display().to_string()));
        let interval = |it: &Interval| {
            let link = it.link.as_ref();
            let satellite = link.and_then(|link| sky.satellites.get(link.satellite));
            IntervalView {
                from_ns: it.from_ns,
                to_ns: it.to_ns,
                satellite: satellite.map(|it| it.name.as_str()),
                norad_id: satellite.map(|it| it.norad_id),
                gateway: link.map(|link| link.gateway),
            }
        };
        let samples = track.samples().map(|(_, it)| SampleView {
            at_ns: it.at_ns,
            delay_ns: it.delay_ns,
            elevation_deg: it.elevation_deg,
            gateway_elevation_deg: it.gateway_elevation_deg,
            range_m: it.range_m,
            gateway_range_m: it.gateway_range_m,
        });
        Self {
            name: scenario.name(),
            file,
            report,
            steps: scenario.steps(),
            length_ns: scenario.length_ns(),
            start: shown(sky.start_ns),
            figures,
            intervals: track.intervals.iter().map(interval).collect(),
            samples: samples.collect(),
            remarks: &sky.remarks,
            toml: scenario.text(),
        }
    }
}
