// SPDX-License-Identifier: Apache-2.0
//! A link beside its baseline: plays or takes its series, and has the figures of both compared.

use profile::Profile;

use super::bursts;
use super::compared::{Compared, LEAST_COUNT, Places, own_levels};
use super::comparison::{Comparison, Curve, Pair, Plots};
use super::decision::{Lengths, decide};
use super::figures::{Figures, envelope, exceeded, sorted, thinned};
use super::largest;
use super::periodic::Periodic;
use super::play::{PlayError, play, play_waiting, regular};
use super::subject::{VerifyError, check_baseline, check_log};
use crate::baseline::{Baseline, Series, Summary};
use crate::delay::law::Law;
use crate::delay::published::{above, inverse};
use crate::delay::stated;
use crate::emulator::UNKNOWN;
use crate::read::Input;
use crate::seconds;
use crate::work::{self, Cancelled, Step, ongoing};

/// Probabilities of a longer round trip that quantiles are compared at.
const EXCEEDED: [f64; 9] = [0.95, 0.75, 0.5, 0.25, 0.05, 0.01, 1e-3, 1e-4, 1e-5];
/// Quantiles that are compared however short the baseline is.
const ALWAYS: f64 = 0.01;
/// A play is so many times as long as the baseline, so that most of the chance is the baseline's.
const TIMES: usize = 2;
/// Least probes of a play.
const LEAST_PROBES: usize = 1_000_000;
/// Least probes of a play that is plotted only.
const LEAST_PLOTTED: u64 = 100_000;
/// Most probes of a play that is longer than the baseline; they take 160 MB.
const MOST_PROBES: usize = 10_000_000;
/// Most repetitions of a short baseline.
const MOST_PLAYS: usize = 200;
/// Share of the work that playing is; the rest is the comparison.
const PLAYING: f64 = 0.75;
/// Spans of the plotted time series.
const SPANS: usize = 400;
/// Probes of the baseline for each one of a lag.
const PER_LAG: usize = 100;

/// How strict a verification is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub seed: u64,
    /// Largest allowed difference of a link, as a share of each figure of the baseline.
    pub margin: f64,
    /// One minus the largest probability that a link outside of the margin in some figure passes,
    /// and that a link within it in all figures fails. Above 0.5.
    pub confidence: f64,
}

impl Default for Settings {
    fn default() -> Self {
        // As for the equivalence of drugs: 80 % to 125 %, at 5 % (Schuirmann, 1987).
        Self { seed: 1, margin: 0.2, confidence: 0.95 }
    }
}

/// Plays a profile in virtual time, at the instants of the baseline's own probes, and
/// compares.
///
/// # Errors
/// If the baseline is too short, or the profile cannot be played.
pub fn against_profile(
    input: &Input,
    profile: &Profile,
    settings: &Settings,
) -> Result<Comparison, VerifyError> {
    check_baseline(input)?;
    let times = |seed: u64| -> Result<Series, PlayError> {
        match input {
            Input::Log(Baseline { waiting: Some(waiting), interval_ns, series, .. }) => {
                play_waiting(profile, seed, *interval_ns, *waiting, series.len())
            }
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
    work::step(Step::Playing, 0.0, PLAYING);
    let mut periodic = match input {
        Input::Log(baseline) => Periodic::of_profile(baseline, profile),
        Input::Summary(_) => None,
    };
    // A play has as many probes as the baseline.
    let length = match input {
        Input::Log(baseline) => baseline.series.len(),
        Input::Summary(s) => {
            usize::try_from(s.loss_samples.max(s.delay_samples)).unwrap_or(usize::MAX)
        }
    };
    let length = length.max(1);
    let probes = length.saturating_mul(TIMES).clamp(LEAST_PROBES, MOST_PROBES);
    let plays = probes.div_ceil(length).min(MOST_PLAYS) as u64;
    let mut link = Series::default();
    for number in 0..plays {
        let part = PLAYING / plays as f64;
        work::step(Step::Playing, part * number as f64, part * (number + 1) as f64);
        let played = times(settings.seed.wrapping_add(number))?;
        periodic.iter_mut().for_each(|periodic| periodic.add(&played));
        if link.is_empty() {
            link = played;
        } else {
            link.extend(&played);
        }
    }
    let played = format!(
        "in virtual time, seed {}, {} probes{}",
        settings.seed,
        link.len(),
        if plays > 1 { format!(" in {plays} plays") } else { String::new() }
    );
    let law = stated::law(profile.as_proto());
    let link = Link { series: &link, interval_ns: None, law, periodic };
    Ok(compare(input, &link, profile.name(), played, settings)?)
}

/// The distribution of a baseline's round trips and that of a profile, which is played in virtual time
/// for about as many probes: (round trip in ms, share of longer ones).
///
/// # Errors
/// If the profile cannot be played.
pub fn distributions(input: &Input, profile: &Profile, seed: u64) -> Result<Pair, VerifyError> {
    work::step(Step::Playing, 0.0, 1.0);
    let (interval_ns, probes, baseline) = match input {
        Input::Log(b) => (b.interval_ns, b.series.len() as u64, thinned(&sorted(&b.series))),
        Input::Summary(s) => {
            let points = s.points().into_iter().map(|(y, p)| (y * 1e3, p));
            (s.interval_ns, s.loss_samples.max(s.delay_samples), points.collect())
        }
    };
    let probes = probes.clamp(LEAST_PLOTTED, LEAST_PROBES as u64);
    let link = play(profile, seed, regular(interval_ns, probes))?;
    Ok(Pair { baseline, link: thinned(&sorted(&link)) })
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

/// Compares a log that was measured over a live link; `name` replaces the name of a profile.
///
/// # Errors
/// If one of both is too short, or the log was not probed like the baseline.
pub fn against_log(
    input: &Input,
    live: &Baseline,
    name: &str,
    settings: &Settings,
) -> Result<Comparison, VerifyError> {
    check_baseline(input)?;
    check_log(input, live)?;
    let played = format!("live, {} probes", live.series.len());
    let mut periodic = match input {
        Input::Log(baseline) => Periodic::of_log(baseline, live),
        Input::Summary(_) => None,
    };
    periodic.iter_mut().for_each(|periodic| periodic.add(&live.series));
    let interval_ns = Some(live.interval_ns);
    let link = Link { series: &live.series, interval_ns, law: None, periodic };
    let mut comparison = compare(input, &link, name, played, settings)?;
    let remarks = live.remarks.iter().map(|r| format!("the live log: {r}"));
    comparison.remarks.extend(remarks);
    comparison.remarks.push(emulator("the live log", live));
    if let Input::Log(Baseline { waiting: Some(_), .. }) = input
        && live.waiting.is_none()
    {
        comparison.remarks.push(
            "the baseline's prober waits after a loss, and that of the live log does not: shares and \
             lengths of losses differ for that alone"
                .into(),
        );
    }
    Ok(comparison)
}

/// Remark on the emulator in the path of a log.
fn emulator(log: &str, baseline: &Baseline) -> String {
    format!("{log}: {}", baseline.emulator.as_deref().unwrap_or(UNKNOWN))
}

/// The baseline: a sorted log or a summary.
enum Side<'a> {
    Log { sorted: Vec<u64>, baseline: &'a Baseline },
    Summary { summary: &'a Summary, points: Vec<(f64, f64)> },
}

impl Side<'_> {
    /// The round trip exceeded with probability `p`, in ns, if enough probes are beyond it.
    fn exceeded(&self, p: f64) -> Option<u64> {
        match self {
            Self::Log { sorted, .. } => {
                let enough = p >= ALWAYS || p * sorted.len() as f64 >= LEAST_COUNT;
                enough.then(|| exceeded(sorted, p))
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

/// The link that is compared.
struct Link<'a> {
    series: &'a Series,
    /// The probing interval of a link that was measured.
    interval_ns: Option<u64>,
    /// The law of a profile's delays.
    law: Option<Law>,
    /// The period by which it is compared, if there is one.
    periodic: Option<Periodic>,
}

fn compare(
    input: &Input,
    link: &Link<'_>,
    profile: &str,
    played: String,
    settings: &Settings,
) -> Result<Comparison, Cancelled> {
    work::step(Step::Comparing, PLAYING, 1.0);
    let Link { series: link, interval_ns, law, periodic } = link;
    let side = match input {
        Input::Log(baseline) => Side::Log { sorted: sorted(&baseline.series), baseline },
        Input::Summary(summary) => Side::Summary { summary, points: summary.points() },
    };
    let quantiles: Vec<(f64, u64)> =
        EXCEEDED.iter().filter_map(|p| Some((*p, side.exceeded(*p)?))).collect();
    let cut = side.exceeded(0.01).or_else(|| side.exceeded(0.05)).unwrap_or(u64::MAX);
    let levels = levels(&side);
    let (probes, probe_ns) = match input {
        Input::Log(b) => (b.series.len(), b.interval_ns),
        Input::Summary(s) => (link.len(), s.interval_ns),
    };
    let lags = [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|lag| lag * PER_LAG < probes);
    let places = Places { quantiles, levels, lags: lags.collect() };
    let of_series = |series: &Series, sorted: Vec<u64>| {
        let levels = own_levels(&sorted, &places);
        Figures::of(series, sorted, &levels, &places.lags, cut)
    };
    ongoing()?;
    let of_link = of_series(link, sorted(link));
    ongoing()?;
    work::done(0.5);
    let curves = |f: &Figures| {
        let days = f.events.of.iter().sum::<f64>().max(1.0) / 86_400.0;
        let runs = f.lengths.iter().map(|(j, n)| (f64::from(*j), *n as f64 / days));
        let at = places.lags.iter().map(|lag| *lag as f64 * seconds(probe_ns));
        let rho = at.zip(&f.autocorrelation).map(|(at, (rho, _))| (at, *rho));
        (f.curve(), runs.collect::<Curve>(), rho.collect::<Curve>())
    };
    let mut plots = Plots::default();
    (plots.exceedance.link, plots.run_lengths.link, plots.autocorrelation.link) = curves(&of_link);
    plots.time_series.link = envelope(link, SPANS);
    let length = |series: &Series, ns: u64| series.len() as f64 * seconds(ns);
    let mut lengths = Lengths { baseline_s: None, link_s: interval_ns.map(|ns| length(link, ns)) };
    let (of_baseline, of_periods);
    let mut compared = Compared::new(settings.margin);
    let mut remarks = Vec::new();
    let source = match &side {
        Side::Log { sorted, baseline } => {
            lengths.baseline_s = Some(length(&baseline.series, baseline.interval_ns));
            of_baseline = of_series(&baseline.series, sorted.clone());
            ongoing()?;
            compared.log(baseline, &of_baseline, &of_link, &places);
            if of_baseline.lost.count() >= LEAST_COUNT {
                let windows = bursts::windows(baseline.interval_ns, span(&baseline.series));
                let [own, of_link] = [&baseline.series, *link].map(|series| {
                    let each = windows.iter().map(|w| (*w, bursts::dispersion(series, *w)));
                    each.collect::<Vec<_>>()
                });
                compared.bursts(&own, &of_link);
                ongoing()?;
            }
            if let Some(periodic) = periodic {
                of_periods = periodic.figures(baseline);
                compared.periods(periodic.period, &of_periods[0], &of_periods[1]);
            }
            let Plots { exceedance, run_lengths, autocorrelation, .. } = &mut plots;
            (exceedance.baseline, run_lengths.baseline, autocorrelation.baseline) =
                curves(&of_baseline);
            plots.time_series.baseline = envelope(&baseline.series, SPANS);
            remarks.extend(baseline.remarks.iter().cloned());
            remarks.push(emulator("the baseline", baseline));
            &baseline.source
        }
        Side::Summary { summary, points } => {
            compared.published(summary, points, &of_link, &places);
            plots.exceedance.baseline = points.iter().map(|(y, p)| (y * 1e3, *p)).collect();
            plots.time_series = Pair { baseline: Vec::new(), ..plots.time_series };
            remarks.push(
                "published figures have no time in them: episodes and the autocorrelation are not \
                 compared"
                    .into(),
            );
            &summary.source
        }
    };
    let mut candidates = compared.candidates();
    if let (Side::Log { sorted, baseline }, Some(law)) = (&side, law)
        && let Some(largest) = sorted.last()
    {
        let ends = [exceeded(sorted, 0.5), *largest];
        candidates.extend(largest::candidate(law.clone(), baseline, ends));
    }
    let (rows, left_out) = decide(candidates, settings.confidence, lengths);
    remarks.extend(left_out);
    ongoing()?;
    Ok(Comparison {
        baseline: source.name.clone(),
        sha256: source.sha256.clone(),
        profile: profile.to_owned(),
        played,
        rows,
        remarks,
        plots,
    })
}

/// From the first to the last probe, in ns.
fn span(series: &Series) -> u64 {
    let ends = [series.get(0), series.len().checked_sub(1).and_then(|last| series.get(last))];
    let [first, last] = ends.map(|probe| probe.map_or(0, |p| p.sent_ns));
    last.saturating_sub(first)
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
            Side::Log { sorted, .. } => {
                let n = sorted.len();
                let beyond = n - sorted.partition_point(|y| (*y as f64) <= level);
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
