// SPDX-License-Identifier: Apache-2.0
//! Tolerances and verdicts.
//!
//! A figure may differ by what chance makes of both samples, at a level of confidence
//! that holds for all figures together (C. E. Bonferroni, 1936), and by a margin, because
//! no model is the link itself. The chance part comes from blocks of the samples.

use profile::Profile;
use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

use super::comparison::{Comparison, Group, Pair, Plots, Row, Verdict};
use super::figures::{Figures, Ratio, envelope};
use super::play::{PlayError, play, regular};
use crate::baseline::{Baseline, Series, Summary};
use crate::delay::published::{above, inverse};
use crate::read::Input;
use crate::seconds;

/// Probabilities of a longer round trip that quantiles are compared at.
const EXCEEDED: [f64; 9] = [0.95, 0.75, 0.5, 0.25, 0.05, 0.01, 1e-3, 1e-4, 1e-5];
/// A figure needs so many counts behind it.
const LEAST_COUNT: f64 = 20.0;
/// A play has at least so many probes, so that its own chance is small.
const LEAST_PROBES: usize = 1_000_000;
/// Spans of the plotted time series.
const SPANS: usize = 400;
/// Standard errors do not come from fewer counts than this.
const FLOOR: f64 = 1.0;

/// How strict a verification is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Seed of the play.
    pub seed: u64,
    /// What the model may be off by, as a share of each figure.
    pub margin: f64,
    /// Probability that a true model passes.
    pub confidence: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { seed: 1, margin: 0.1, confidence: 0.99 }
    }
}

/// Plays a profile in virtual time, at the instants of the baseline's own probes, and
/// compares.
///
/// # Errors
/// If the profile cannot be played.
pub fn against_profile(
    input: &Input,
    profile: &Profile,
    settings: &Settings,
) -> Result<Comparison, PlayError> {
    let times = |seed: u64| -> Result<Series, PlayError> {
        match input {
            Input::Log(b) => {
                let first = b.series.get(0).map_or(0, |p| p.sent_ns);
                let sends = b.series.iter().map(|p| p.sent_ns - first + b.interval_ns);
                Ok(broken(play(profile, seed, sends)?, &b.series))
            }
            Input::Summary(s) => {
                play(profile, seed, regular(s.interval_ns, s.loss_samples.max(s.delay_samples)))
            }
        }
    };
    let mut link = times(settings.seed)?;
    let plays = LEAST_PROBES.div_ceil(link.len().max(1)).clamp(1, 200) as u64;
    for more in 1..plays {
        link.extend(&times(settings.seed.wrapping_add(more))?);
    }
    let played = format!(
        "in virtual time, seed {}, {} probes{}",
        settings.seed,
        link.len(),
        if plays > 1 { format!(" in {plays} plays") } else { String::new() }
    );
    Ok(compare(input, &link, profile.name(), played, settings))
}

/// A series with the breaks of another of the same length.
fn broken(whole: Series, like: &Series) -> Series {
    let starts: Vec<usize> = like.segments().into_iter().map(|s| s.start).collect();
    if starts.len() < 2 {
        return whole;
    }
    let mut starts = starts.into_iter().peekable();
    let mut series = Series::default();
    for (i, probe) in whole.iter().enumerate() {
        if starts.next_if_eq(&i).is_some() {
            series.interrupt();
        }
        series.push(probe);
    }
    series
}

/// Compares a log that was measured over the live link.
#[must_use]
pub fn against_log(
    input: &Input,
    live: &Baseline,
    profile: &str,
    settings: &Settings,
) -> Comparison {
    let played = format!("live, {} probes", live.series.len());
    let mut comparison = compare(input, &live.series, profile, played, settings);
    let remarks = live.remarks.iter().map(|r| format!("the live log: {r}"));
    comparison.remarks.extend(remarks);
    comparison
}

/// Makes rows.
struct Judge {
    z: f64,
    /// The probability that chance alone fails a figure.
    alpha: f64,
    margin: f64,
    rows: Vec<Row>,
}

/// A figure's place in the table; `scale` turns its value into the unit.
struct Named {
    group: Group,
    figure: String,
    unit: &'static str,
    scale: f64,
}

impl Named {
    fn new(group: Group, figure: impl Into<String>, unit: &'static str, scale: f64) -> Self {
        Self { group, figure: figure.into(), unit, scale }
    }
}

impl Judge {
    /// A figure of the baseline and of the link, what chance may make of their difference,
    /// and what the model may be off by.
    fn row(&mut self, named: Named, values: [f64; 2], chance: f64, margin: f64) {
        let Named { group, figure, unit, scale } = named;
        let [baseline, link] = values.map(|v| v * scale);
        let margin = margin * scale;
        // Where one of both has nothing to count, nothing is left to chance.
        let (chance, because) = match chance * scale {
            c if c.is_finite() => (c, format!("chance {} + model {}", short(c), short(margin))),
            _ => (0.0, "one of both has none of these".into()),
        };
        let tolerance = chance + margin;
        let within = (baseline - link).abs() <= tolerance;
        let verdict = if within { Verdict::Pass } else { Verdict::Fail };
        self.rows.push(Row { group, figure, unit, baseline, link, tolerance, because, verdict });
    }

    /// Two ratios, each with its standard error.
    fn ratio(&mut self, named: Named, baseline: (f64, f64), link: (f64, f64)) {
        let chance = self.z * baseline.1.hypot(link.1);
        let margin = self.margin * baseline.0;
        self.row(named, [baseline.0, link.0], chance, margin);
    }
}

fn short(x: f64) -> String {
    if x == 0.0 {
        "0".into()
    } else {
        format!("{x:.*}", (1 - x.abs().log10().floor() as i32).clamp(0, 9) as usize)
    }
}

/// What is known of the baseline, log or summary.
enum Side<'a> {
    Log { figures: Box<Figures>, baseline: &'a Baseline },
    Summary { summary: &'a Summary, points: Vec<(f64, f64)> },
}

impl Side<'_> {
    /// The round trip exceeded with probability `p`, in ns, if enough probes are beyond it.
    fn exceeded(&self, p: f64) -> Option<u64> {
        match self {
            Self::Log { figures, .. } => {
                let enough = p * figures.sorted.len() as f64 >= LEAST_COUNT;
                enough.then(|| figures.exceeded(p))
            }
            Self::Summary { summary, points } => {
                // A reader of a curve has no counts to fear; its points end where they end.
                let last = points.last().map_or(1.0, |(_, q)| *q);
                let enough = p * summary.delay_samples as f64 >= 3.0 && p > last;
                enough.then(|| (inverse(points, p) * 1e9).round() as u64)
            }
        }
    }
}

fn compare(
    input: &Input,
    link: &Series,
    profile: &str,
    played: String,
    settings: &Settings,
) -> Comparison {
    let side = match input {
        Input::Log(baseline) => {
            let figures = Box::new(Figures::of(&baseline.series, &[], &[], 0));
            Side::Log { figures, baseline }
        }
        Input::Summary(summary) => Side::Summary { summary, points: summary.points() },
    };
    let quantiles: Vec<(f64, u64)> =
        EXCEEDED.iter().filter_map(|p| Some((*p, side.exceeded(*p)?))).collect();
    let levels = levels(&side);
    let all: Vec<u64> = quantiles.iter().map(|(_, y)| *y).chain(levels.iter().copied()).collect();
    let cut = side.exceeded(0.01).or_else(|| side.exceeded(0.05)).unwrap_or(u64::MAX);
    let interval_ns = match input {
        Input::Log(b) => b.interval_ns,
        Input::Summary(s) => s.interval_ns,
    };
    let lags: Vec<usize> =
        [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|lag| lag * 100 < link.len()).collect();
    let of_link = Figures::of(link, &all, &lags, cut);
    let tests = match &side {
        Side::Log { .. } => quantiles.len() + 3 * levels.len() + lags.len() + 5,
        Side::Summary { .. } => quantiles.len() + levels.len() + 4,
    };
    let alpha = (1.0 - settings.confidence) / tests as f64;
    let z = Normal::standard().inverse_cdf(1.0 - alpha / 2.0);
    let mut judge = Judge { z, alpha, margin: settings.margin, rows: Vec::new() };
    let mut plots = Plots::default();
    plots.exceedance.link = of_link.curve();
    plots.time_series.link = envelope(link, SPANS);
    let days = |s: f64| s.max(1.0) / 86_400.0;
    let lengths = |f: &Figures| -> Vec<(f64, f64)> {
        let seconds = f.events.of.iter().sum::<f64>();
        f.lengths.iter().map(|(j, n)| (f64::from(*j), *n as f64 / days(seconds))).collect()
    };
    plots.run_lengths.link = lengths(&of_link);
    let curve = |f: &Figures| -> Vec<(f64, f64)> {
        let at = lags.iter().zip(&f.autocorrelation);
        at.map(|(lag, (rho, _))| (*lag as f64 * interval_ns as f64 / 1e9, *rho)).collect()
    };
    plots.autocorrelation.link = curve(&of_link);
    let mut remarks = Vec::new();
    let places = Places { quantiles, levels, lags: lags.clone() };
    let (source, sha256) = match &side {
        Side::Log { baseline, .. } => {
            let of_baseline = Figures::of(&baseline.series, &all, &lags, cut);
            log(&mut judge, baseline, &of_baseline, &of_link, &places);
            plots.exceedance.baseline = of_baseline.curve();
            plots.time_series.baseline = envelope(&baseline.series, SPANS);
            plots.run_lengths.baseline = lengths(&of_baseline);
            plots.autocorrelation.baseline = curve(&of_baseline);
            remarks.extend(baseline.remarks.iter().cloned());
            (&baseline.source.name, &baseline.source.sha256)
        }
        Side::Summary { summary, points } => {
            published(&mut judge, summary, points, &of_link, &places);
            plots.exceedance.baseline = points.iter().map(|(y, p)| (y * 1e3, *p)).collect();
            plots.time_series = Pair { baseline: Vec::new(), ..plots.time_series };
            remarks.push(
                "published figures have no time in them: episodes and the autocorrelation are not \
                 compared"
                    .into(),
            );
            (&summary.source.name, &summary.source.sha256)
        }
    };
    Comparison {
        baseline: source.clone(),
        sha256: sha256.clone(),
        profile: profile.to_owned(),
        played,
        rows: judge.rows,
        remarks,
        plots,
    }
}

/// Round levels above the median: its distance to the 95th percentile, doubled and doubled.
fn levels(side: &Side<'_>) -> Vec<u64> {
    let (Some(median), Some(high)) = (side.exceeded(0.5), side.exceeded(0.05)) else {
        return Vec::new();
    };
    let spread = (high.saturating_sub(median)).max(1) as f64;
    let step = 10_f64.powf(spread.log10().floor());
    let mut levels = Vec::new();
    for k in 0..12 {
        let level = ((median as f64 + 1.5 * spread * f64::from(1 << k)) / step).round() * step;
        let p = match side {
            Side::Log { figures, .. } => {
                let n = figures.sorted.len();
                let beyond = n - figures.sorted.partition_point(|y| (*y as f64) <= level);
                if (beyond as f64) < LEAST_COUNT { 0.0 } else { beyond as f64 / n as f64 }
            }
            Side::Summary { summary, points } => {
                let p = above(points, level / 1e9);
                if p * (summary.delay_samples as f64) < 3.0 { 0.0 } else { p }
            }
        };
        // One more than the baseline reaches, or the link could be above it unseen.
        let log = matches!(side, Side::Log { .. });
        if p > 0.0 || (log && !levels.is_empty()) {
            levels.push(level as u64);
        }
        if p <= 0.0 {
            break;
        }
    }
    levels
}

fn percentile(p: f64) -> String {
    let digits = (-p.log10()).ceil().max(2.0) as usize - 2;
    format!("p{:.*}", digits, 100.0 * (1.0 - p))
}

fn ms(ns: u64) -> String {
    format!("above {} ms", (ns as f64 / 1e6 * 1e3).round() / 1e3)
}

/// A quantile: chance is in the share above it, and the link's own quantiles turn that into
/// time.
fn quantile(
    judge: &mut Judge,
    link: &Figures,
    p: f64,
    baseline_ns: f64,
    share_error: f64,
    reading_ns: f64,
) {
    let chance = judge.z * share_error;
    let here = link.exceeded(p) as f64;
    let longer = link.exceeded((p - chance).max(0.0)) as f64 - here;
    let shorter = here - link.exceeded((p + chance).min(1.0)) as f64;
    let (median, body) =
        (link.exceeded(0.5) as f64, link.exceeded(0.05) as f64 - link.exceeded(0.95) as f64);
    let margin = judge.margin * (here - median).abs().max(body / 2.0) + reading_ns;
    let chance = if baseline_ns > here { longer } else { shorter }.max(0.0);
    let values = [baseline_ns, here];
    judge.row(Named::new(Group::Quantiles, percentile(p), "ms", 1e-6), values, chance, margin);
}

/// At which round trips and lags figures are compared.
struct Places {
    /// Probabilities of a longer round trip, and the baseline's round trip.
    quantiles: Vec<(f64, u64)>,
    /// Round trips.
    levels: Vec<u64>,
    /// Probes.
    lags: Vec<usize>,
}

fn log(judge: &mut Judge, log: &Baseline, baseline: &Figures, link: &Figures, places: &Places) {
    let Places { quantiles, levels, lags } = places;
    let (resolution_ns, interval_ns) = (log.resolution_ns as f64, log.interval_ns);
    let of = |r: &Ratio| (r.value(), r.error(FLOOR));
    for (i, (p, y)) in quantiles.iter().enumerate() {
        let error = of(&baseline.above[i]).1.hypot(of(&link.above[i]).1);
        quantile(judge, link, *p, *y as f64, error, resolution_ns);
    }
    for (i, y) in levels.iter().enumerate() {
        let k = quantiles.len() + i;
        let (b, l) = (of(&baseline.above[k]), of(&link.above[k]));
        judge.ratio(Named::new(Group::Exceedances, ms(*y), "%", 100.0), b, l);
        let (b, l) = (&baseline.episodes[k], &link.episodes[k]);
        judge.ratio(Named::new(Group::Episodes, ms(*y), "per hour", 3600.0), of(b), of(l));
        // Time above the level per episode.
        let lasting = |f: &Figures| {
            let (above, n) = (f.above[k].count(), f.episodes[k].count());
            let ratio =
                Ratio { counts: f.above[k].counts.clone(), of: f.episodes[k].counts.clone() };
            (above >= LEAST_COUNT && n >= LEAST_COUNT).then(|| of(&ratio))
        };
        if let (Some(b), Some(l)) = (lasting(baseline), lasting(link)) {
            let scale = interval_ns as f64 / 1e6;
            let name = format!("mean time {}", ms(*y));
            judge.ratio(Named::new(Group::Episodes, name, "ms", scale), b, l);
        }
    }
    let lost = Named::new(Group::Losses, "lost", "%", 100.0);
    judge.ratio(lost, of(&baseline.lost), of(&link.lost));
    let (b, l) = (of(&baseline.events), of(&link.events));
    judge.ratio(Named::new(Group::Losses, "loss events", "per hour", 3600.0), b, l);
    if baseline.single.of.iter().sum::<f64>() >= LEAST_COUNT {
        let (b, l) = (of(&baseline.single), of(&link.single));
        judge.ratio(Named::new(Group::Losses, "events of one probe", "%", 100.0), b, l);
    }
    if baseline.several.of.iter().sum::<f64>() >= LEAST_COUNT
        && link.several.of.iter().sum::<f64>() >= LEAST_COUNT
    {
        let (b, l) = (of(&baseline.several), of(&link.several));
        judge.ratio(Named::new(Group::Losses, "probes per longer event", "", 1.0), b, l);
    }
    run_lengths(judge, baseline, link);
    for (i, lag) in lags.iter().enumerate() {
        let (b, l) = (baseline.autocorrelation[i], link.autocorrelation[i]);
        let chance = judge.z * b.1.hypot(l.1);
        let margin = judge.margin / 2.0;
        let name = format!("at {}", short(*lag as f64 * interval_ns as f64 / 1e9) + " s");
        let named = Named::new(Group::Autocorrelation, name, "", 1.0);
        judge.row(named, [b.0, l.0], chance, margin);
    }
}

/// Are the lengths of both's runs from one law? χ² per degree of freedom, one if they are.
fn run_lengths(judge: &mut Judge, baseline: &Figures, link: &Figures) {
    let longest = baseline.lengths.keys().chain(link.lengths.keys()).max().copied().unwrap_or(0);
    let count = |f: &Figures, j: u32| f.lengths.get(&j).copied().unwrap_or(0) as f64;
    let mut cells: Vec<(f64, f64)> = Vec::new();
    let mut open = (0.0, 0.0);
    for j in (1..=longest).rev() {
        open = (open.0 + count(baseline, j), open.1 + count(link, j));
        if open.0 + open.1 >= 10.0 && open.0.min(open.1) >= 1.0 {
            cells.push(std::mem::take(&mut open));
        }
    }
    if let Some(last) = cells.last_mut() {
        *last = (last.0 + open.0, last.1 + open.1);
    }
    let dof = cells.len() as f64 - 1.0;
    let (n, m) = cells.iter().fold((0.0, 0.0), |s, c| (s.0 + c.0, s.1 + c.1));
    let Ok(law) = ChiSquared::new(dof) else { return };
    let (a, b) = ((m / n).sqrt(), (n / m).sqrt());
    let statistic: f64 = cells.iter().map(|c| (a * c.0 - b * c.1).powi(2) / (c.0 + c.1)).sum();
    // A difference of the margin in every cell adds so much.
    let margin = judge.margin * judge.margin * n * m / (n + m);
    let limit = (law.inverse_cdf(1.0 - judge.alpha) + margin) / dof;
    let (value, tolerance) = (statistic / dof, limit - 1.0);
    judge.rows.push(Row {
        group: Group::Losses,
        figure: "lengths of events, χ² per degree of freedom".into(),
        unit: "",
        baseline: 1.0,
        link: value,
        tolerance,
        because: format!("χ² with {dof} degrees of freedom + model; less is always well"),
        verdict: if value <= limit { Verdict::Pass } else { Verdict::Fail },
    });
}

fn published(
    judge: &mut Judge,
    summary: &Summary,
    points: &[(f64, f64)],
    link: &Figures,
    places: &Places,
) {
    let Places { quantiles, levels, .. } = places;
    let of = |r: &Ratio| (r.value(), r.error(FLOOR));
    // The study's own chance is the link's, over as many probes as the study had.
    let scaled =
        |error: f64, samples: u64| error * (link.probes as f64 / samples.max(1) as f64).sqrt();
    let delay = |error: f64| error.hypot(scaled(error, summary.delay_samples));
    let median = inverse(points, 0.5);
    let reading = |y: f64| summary.reading_error(y, median);
    for (i, (p, y)) in quantiles.iter().enumerate() {
        let error = delay(of(&link.above[i]).1);
        quantile(judge, link, *p, *y as f64, error, 2e9 * reading(seconds(*y)));
    }
    for (i, y) in levels.iter().enumerate() {
        let at = seconds(*y);
        let (share, error) = of(&link.above[quantiles.len() + i]);
        let read = reading(at);
        let slope = (above(points, at - read) - above(points, at + read)).abs();
        let stated = above(points, at);
        let chance = judge.z * delay(error);
        let margin = judge.margin * stated + slope;
        let named = Named::new(Group::Exceedances, ms(*y), "%", 100.0);
        judge.row(named, [stated, share], chance, margin);
    }
    let Some(losses) = &summary.losses else { return };
    let samples = summary.loss_samples.max(1) as f64;
    let seconds = samples * summary.interval_ns as f64 / 1e9;
    let loss = |error: f64| error.hypot(scaled(error, summary.loss_samples));
    let mut rate = |name: &str, unit, scale: f64, stated: f64, ratio: &Ratio| {
        let (value, error) = of(ratio);
        let chance = judge.z * loss(error);
        let margin = judge.margin * stated;
        judge.row(Named::new(Group::Losses, name, unit, scale), [stated, value], chance, margin);
    };
    let events = (losses.single + losses.runs) as f64;
    rate("lost", "%", 100.0, losses.lost as f64 / samples, &link.lost);
    rate("loss events", "per hour", 3600.0, events / seconds, &link.events);
    rate("events of one probe", "%", 100.0, losses.single as f64 / events.max(1.0), &link.single);
    if losses.runs > 0 {
        let each = (losses.lost - losses.single) as f64 / losses.runs as f64;
        rate("probes per longer event", "", 1.0, each, &link.several);
    }
}
