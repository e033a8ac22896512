// SPDX-License-Identifier: Apache-2.0
//! The compared figures of the baseline and of the link, each with its tolerance and its
//! errors.
//!
//! A tolerance is a share, the margin, of the baseline's figure, or of a floor where that figure is
//! near zero. It does not depend on the link. docs/modelling.md ("Verification") lists both.

mod periods;

use super::comparison::Group;
use super::decision::{Candidate, Error};
use super::figures::{Figures, LONGER, Ratio, exceeded};
use crate::baseline::{Baseline, Summary};
use crate::delay::published::{above, inverse};
use crate::seconds;

/// Shares of probes are not compared more finely than if the baseline had this one.
const SHARE: f64 = 1e-4;
/// Shares of loss events and correlations are not compared more finely than if they were this.
const HALF: f64 = 0.5;
/// Round trips are not compared more finely than if they were this far from the median, in ns: a
/// prober's host alone varies them by a tenth of it.
const APART_NS: f64 = 1e6;
/// A rare figure needs so many counts behind it.
pub const LEAST_COUNT: f64 = 20.0;
/// Quantiles that fewer probes exceed are rare.
const COMMON: f64 = 0.01;

/// At which round trips and lags figures are compared.
pub struct Places {
    /// Probabilities of a longer round trip, and the baseline's round trip in ns.
    pub quantiles: Vec<(f64, u64)>,
    /// Round trips in ns, ascending.
    pub levels: Vec<u64>,
    pub lags: Vec<usize>,
}

pub struct Compared<'a> {
    margin: f64,
    candidates: Vec<Candidate<'a>>,
}

/// A figure's place in the table; `scale` turns its value into the unit.
struct Named {
    group: Group,
    figure: String,
    unit: &'static str,
    scale: f64,
    rare: bool,
}

impl Named {
    fn new(group: Group, figure: impl Into<String>, unit: &'static str, scale: f64) -> Self {
        Self { group, figure: figure.into(), unit, scale, rare: false }
    }

    fn rare_if(self, rare: bool) -> Self {
        Self { rare, ..self }
    }
}

impl<'a> Compared<'a> {
    /// With a margin, a share.
    pub const fn new(margin: f64) -> Self {
        Self { margin, candidates: Vec::new() }
    }

    pub fn candidates(self) -> Vec<Candidate<'a>> {
        self.candidates
    }

    fn push(
        &mut self,
        named: Named,
        values: [f64; 2],
        (tolerance, because): (f64, String),
        errors: [Error<'a>; 2],
    ) {
        let Named { group, figure, unit, scale, rare } = named;
        self.candidates.push(Candidate {
            group,
            figure,
            unit,
            scale,
            values,
            tolerance,
            because,
            errors,
            rare,
        });
    }

    /// The tolerance of a figure of the baseline, and its words.
    fn tolerance(&self, named: &Named, baseline: f64, floor: f64) -> (f64, String) {
        let percent = short(100.0 * self.margin);
        let because = if baseline.abs() >= floor {
            format!("{percent} % of the baseline's figure")
        } else {
            let (floor, unit) = (short(floor * named.scale), named.unit);
            let space = if unit.is_empty() { "" } else { " " };
            format!("{percent} % of {floor}{space}{unit}, the floor of a figure near zero")
        };
        (self.margin * baseline.abs().max(floor), because)
    }

    fn ratio(&mut self, named: Named, floor: f64, baseline: &'a Ratio, link: &'a Ratio) {
        let values = [baseline.value(), link.value()];
        let tolerance = self.tolerance(&named, values[0], floor);
        let errors =
            [baseline, link].map(|ratio| Box::new(move |z, by| ratio.error(z, by)) as Error<'a>);
        self.push(named, values, tolerance, errors);
    }

    /// The tolerance, in ns, of a quantile at this distance from the median, in a distribution with
    /// a distance `spread` from p5 to p95.
    fn of_quantile(&self, apart: f64, spread: f64, step: f64) -> (f64, String) {
        let percent = short(100.0 * self.margin);
        let floor = (spread / 2.0).max(APART_NS);
        let of = if apart >= floor {
            "its distance from the median"
        } else if spread / 2.0 >= APART_NS {
            "half of the distance from p5 to p95"
        } else {
            "1 ms, the floor of a distance"
        };
        let step_too = match step * 1e-6 {
            ms if ms >= 1e-3 => format!(" + the log's step of {} ms", short(ms)),
            _ => String::new(),
        };
        (self.margin * apart.max(floor) + step, format!("{percent} % of {of}{step_too}"))
    }

    /// The figures of a log. Those of the link are at its own quantiles, then at the baseline's
    /// levels.
    pub fn log(
        &mut self,
        log: &Baseline,
        baseline: &'a Figures,
        link: &'a Figures,
        places: &Places,
    ) {
        let Places { quantiles, levels, lags } = places;
        let interval = seconds(log.interval_ns);
        let (median, body) = (baseline.exceeded(0.5), [0.05, 0.95].map(|p| baseline.exceeded(p)));
        let spread = body[0].abs_diff(body[1]) as f64;
        for (i, (p, y)) in quantiles.iter().copied().enumerate() {
            let named = Named::new(Group::Quantiles, percentile(p), "ms", 1e-6).rare_if(p < COMMON);
            let apart = y.abs_diff(median) as f64;
            let tolerance = self.of_quantile(apart, spread, log.resolution_ns as f64);
            let errors = [baseline, link].map(|figures| {
                let share = &figures.above[i];
                let error = move |z, by| figures.quantile_error(p, share.error(z, by));
                Box::new(error) as Error<'a>
            });
            self.push(named, [y as f64, link.exceeded(p) as f64], tolerance, errors);
        }
        for (i, y) in levels.iter().enumerate() {
            let k = quantiles.len() + i;
            let (b, l) = (&baseline.above[k], &link.above[k]);
            let named = Named::new(Group::Exceedances, ms(*y), "%", 100.0).rare_if(i > 0);
            self.ratio(named, SHARE, b, l);
            let (of_b, of_l) = (&baseline.episodes[k], &link.episodes[k]);
            let named = Named::new(Group::Episodes, ms(*y), "per hour", 3600.0).rare_if(i > 0);
            self.ratio(named, SHARE / interval, of_b, of_l);
            if of_b.count() >= LEAST_COUNT {
                let name = format!("mean time {}", ms(*y));
                let scale = log.interval_ns as f64 / 1e6;
                self.lasting(Named::new(Group::Episodes, name, "ms", scale), [b, of_b], [l, of_l]);
            }
        }
        self.losses(interval, baseline, link);
        for (i, lag) in lags.iter().enumerate() {
            let (b, l) = (baseline.autocorrelation[i], link.autocorrelation[i]);
            let name = format!("at {}", short(*lag as f64 * interval) + " s");
            let named = Named::new(Group::Autocorrelation, name, "", 1.0);
            let tolerance = self.tolerance(&named, b.0, HALF);
            let errors = [b.1, l.1]
                .map(|error| Box::new(move |z: f64, by: f64| z * error / by.sqrt()) as Error<'a>);
            self.push(named, [b.0, l.0], tolerance, errors);
        }
    }

    /// Time above a level per episode: probes above it, and episodes, of both.
    fn lasting(&mut self, named: Named, baseline: [&Ratio; 2], link: [&Ratio; 2]) {
        let both = [baseline, link].map(|[above, episodes]| Ratio {
            counts: above.counts.clone(),
            of: episodes.counts.clone(),
            share: false,
        });
        let values = [both[0].value(), both[1].value()];
        let named = named.rare_if(true);
        let tolerance = self.tolerance(&named, values[0], 0.0);
        let errors = both.map(|ratio| Box::new(move |z, by| ratio.error(z, by)) as Error<'a>);
        self.push(named, values, tolerance, errors);
    }

    fn losses(&mut self, interval: f64, baseline: &'a Figures, link: &'a Figures) {
        let losses = |name: &str, unit, scale| Named::new(Group::Losses, name, unit, scale);
        self.ratio(losses("lost", "%", 100.0), SHARE, &baseline.lost, &link.lost);
        let per_hour = losses("loss events", "per hour", 3600.0);
        self.ratio(per_hour, SHARE / interval, &baseline.events, &link.events);
        let enough = |ratio: &Ratio| ratio.of.iter().sum::<f64>() >= LEAST_COUNT;
        if enough(&baseline.single) {
            let named = losses("events of one probe", "%", 100.0).rare_if(true);
            self.ratio(named, HALF, &baseline.single, &link.single);
        }
        if enough(&baseline.several) {
            let named = losses("probes per longer event", "", 1.0).rare_if(true);
            self.ratio(named, 0.0, &baseline.several, &link.several);
        }
        let longer = LONGER.iter().zip(baseline.longer.iter().zip(&link.longer));
        for (length, (b, l)) in longer.filter(|(_, (b, l))| b.count() + l.count() > 0.0) {
            if enough(b) {
                let named = losses(&format!("events of more than {length} probes"), "%", 100.0);
                self.ratio(named.rare_if(true), HALF, b, l);
            }
        }
    }

    /// Published figures. The study's own chance is the link's, over as many probes as the study
    /// had, and that of reading its plots.
    pub fn published(
        &mut self,
        summary: &Summary,
        points: &'a [(f64, f64)],
        link: &'a Figures,
        places: &Places,
    ) {
        let Places { quantiles, levels, .. } = places;
        let probes = link.probes as f64;
        let (delays, losses) = (summary.delay_samples as f64, summary.loss_samples as f64);
        // The study cannot be made longer.
        let of_study = move |ratio: &'a Ratio, samples: f64| {
            move |z: f64| ratio.error(z, samples.max(1.0) / probes.max(1.0))
        };
        let of_link = |ratio: &'a Ratio| Box::new(move |z, by| ratio.error(z, by)) as Error<'a>;
        let [median, p5, p95] = [0.5, 0.95, 0.05].map(|p| inverse(points, p));
        let reading = |y: f64| summary.reading_error(y, median);
        for (i, (p, y)) in quantiles.iter().copied().enumerate() {
            let named = Named::new(Group::Quantiles, percentile(p), "ms", 1e-6).rare_if(p < COMMON);
            let (at, share) = (seconds(y), &link.above[i]);
            let apart = 1e9 * (at - median).abs();
            let tolerance = self.of_quantile(apart, 1e9 * (p95 - p5), 0.0);
            let (read, study) = (1e9 * reading(at), of_study(share, delays));
            let errors: [Error<'a>; 2] = [
                Box::new(move |z, _| link.quantile_error(p, study(z)).hypot(z * read)),
                Box::new(move |z, by| link.quantile_error(p, share.error(z, by))),
            ];
            self.push(named, [y as f64, link.exceeded(p) as f64], tolerance, errors);
        }
        for (i, y) in levels.iter().enumerate() {
            let (at, ratio) = (seconds(*y), &link.above[quantiles.len() + i]);
            let (read, study) = (reading(at), of_study(ratio, delays));
            let slope = (above(points, at - read) - above(points, at + read)).abs() / 2.0;
            let named = Named::new(Group::Exceedances, ms(*y), "%", 100.0).rare_if(i > 0);
            let values = [above(points, at), ratio.value()];
            let tolerance = self.tolerance(&named, values[0], SHARE);
            let errors: [Error<'a>; 2] =
                [Box::new(move |z, _| study(z).hypot(z * slope)), of_link(ratio)];
            self.push(named, values, tolerance, errors);
        }
        let Some(counts) = &summary.losses else { return };
        let samples = losses.max(1.0);
        let interval = seconds(summary.interval_ns);
        let events = (counts.single + counts.runs) as f64;
        let mut rate = |name: &str, unit, scale, floor, stated: f64, ratio: &'a Ratio, rare| {
            let named = Named::new(Group::Losses, name, unit, scale).rare_if(rare);
            let tolerance = self.tolerance(&named, stated, floor);
            let study = of_study(ratio, losses);
            let errors: [Error<'a>; 2] = [Box::new(move |z, _| study(z)), of_link(ratio)];
            self.push(named, [stated, ratio.value()], tolerance, errors);
        };
        rate("lost", "%", 100.0, SHARE, counts.lost as f64 / samples, &link.lost, false);
        let per_second = events / (samples * interval);
        let floor = SHARE / interval;
        rate("loss events", "per hour", 3600.0, floor, per_second, &link.events, false);
        if events >= LEAST_COUNT {
            let single = counts.single as f64 / events;
            rate("events of one probe", "%", 100.0, HALF, single, &link.single, true);
        }
        if counts.runs as f64 >= LEAST_COUNT {
            let each = (counts.lost - counts.single) as f64 / counts.runs as f64;
            rate("probes per longer event", "", 1.0, 0.0, each, &link.several, true);
        }
    }
}

/// The ascending round trips that are exceeded with the probabilities of `places`, then the
/// levels.
pub fn own_levels(sorted: &[u64], places: &Places) -> Vec<u64> {
    let own = places.quantiles.iter().map(|(p, _)| exceeded(sorted, *p));
    own.chain(places.levels.iter().copied()).collect()
}

fn percentile(p: f64) -> String {
    let digits = (-p.log10()).ceil().max(2.0) as usize - 2;
    format!("p{:.*}", digits, 100.0 * (1.0 - p))
}

fn ms(ns: u64) -> String {
    format!("above {} ms", (ns as f64 / 1e6 * 1e3).round() / 1e3)
}

/// With two significant digits, if it is below a hundred.
fn short(x: f64) -> String {
    if x == 0.0 {
        return "0".into();
    }
    let text = format!("{x:.*}", (1 - x.abs().log10().floor() as i32).clamp(0, 9) as usize);
    match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text,
    }
}
