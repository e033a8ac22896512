// SPDX-License-Identifier: Apache-2.0
//! Regimes of excursions: hours or days in which episodes of a class come more often.
//!
//! A class is estimated above a level that nearly only its episodes reach. Each rise above that
//! level is an event of a Poisson process. With a regime the rate of the process changes between
//! two values ([`crate::mmpp`]). Amounts do not depend on the regime, so it is the same above
//! each level.

use super::largest::Probing;
use super::law::{Body, Law};
use crate::baseline::Series;
use crate::mmpp::{BusyTimes, Events, LEAST_EVENTS, estimate};
use crate::seconds;

/// Share of the episodes above a level that have to be of the class.
const PURE: f64 = 0.9;
/// Other classes have at most this share of the episodes outside of a regime.
const MOST_OTHERS: f64 = 0.9;
/// At most so many events are looked at, by the choice of the level.
const MOST: f64 = 5_000.0;
/// Levels that are tried, and how much wider each is than the one before.
const LEVELS: usize = 60;
const WIDER: f64 = 1.15;
/// Without a scale of time on which counts scatter by more standard errors than this,
/// the rate is constant.
const SCATTERED: f64 = 3.0;
/// Fewest spans of time that scatter is judged by.
const LEAST_SPANS: usize = 8;

/// The regime of each class of a law, in its order; `None` if the log shows none.
#[must_use]
pub fn estimate_regimes(series: &Series, law: &Law, probing: Probing) -> Vec<Option<BusyTimes>> {
    let of = |class: usize| {
        let level = level(law, class, probing)?;
        let (begins_s, stretches_s) = episodes(series, level, level - spread(&law.body));
        let all = busy_times(&Events { begins_s: &begins_s, stretches_s: &stretches_s })?;
        let others = law.excursions.iter().enumerate().filter(|(c, _)| *c != class);
        let second = probing.over(1.0);
        Some(alone(all, others.map(|(_, e)| law.episodes_seen(e, level, second)).sum()))
    };
    (0..law.excursions.len()).map(of).collect()
}

/// Busy times, looked for only where counts scatter.
fn busy_times(events: &Events<'_>) -> Option<BusyTimes> {
    (scatter(events) > SCATTERED).then(|| estimate(events)).flatten()
}

/// The busy times of a class. `all` are those of all episodes above a level; other classes have
/// `others` of these episodes per second, at a constant rate.
fn alone(all: BusyTimes, others: f64) -> BusyTimes {
    let clear = all.clear_rate.value;
    let others = others.min(MOST_OTHERS * clear);
    let factor = all.factor.map(|f| ((f * clear - others) / (clear - others)).max(1.0));
    let clear_rate = all.clear_rate.map(|rate| (rate - others).max(0.0));
    BusyTimes { factor, clear_rate, ..all }
}

/// The lowest level above the body that nearly only episodes of the class reach, and not
/// too many.
fn level(law: &Law, class: usize, probing: Probing) -> Option<f64> {
    let top = law.body.top();
    let narrow = law.excursions.iter().map(|e| e.scale).fold(f64::MAX, f64::min);
    let mut above = 0.1 * narrow;
    for _ in 0..LEVELS {
        let y = law.base + top + above;
        let of = |e| law.episodes_seen(e, y, probing);
        let own = of(&law.excursions[class]);
        let all: f64 = law.excursions.iter().map(of).sum();
        if own < LEAST_EVENTS as f64 {
            return None;
        }
        if own >= PURE * all && all <= MOST {
            return Some(y);
        }
        above *= WIDER;
    }
    None
}

/// The range that most values of the body are in.
fn spread(body: &Body) -> f64 {
    match body {
        Body::Slot { period, .. } => *period,
        Body::Held { quantiles, .. } => {
            super::body::quantile(quantiles, 0.98) - super::body::quantile(quantiles, 0.02)
        }
    }
}

/// Instants at which round trips rise above `high`, each after one of at most `low`, and the
/// stretches of the log. All in seconds.
fn episodes(series: &Series, high: f64, low: f64) -> (Vec<f64>, Vec<(f64, f64)>) {
    let (mut begins, mut stretches) = (Vec::new(), Vec::new());
    for segment in series.segments() {
        let (mut raised, mut span) = (false, None::<(f64, f64)>);
        for probe in series.slice(segment) {
            let at = seconds(probe.sent_ns);
            span = Some((span.map_or(at, |(from, _)| from), at));
            let Some(rtt) = probe.rtt_ns.map(seconds) else { continue };
            if rtt > high && !raised {
                raised = true;
                begins.push(at);
            } else if rtt <= low {
                raised = false;
            }
        }
        stretches.extend(span.filter(|(from, to)| from < to));
    }
    (begins, stretches)
}

/// By how many standard errors counts of events scatter more than those of a constant rate
/// (the index of dispersion; D. R. Cox, P. A. W. Lewis, 1966), on the scale of time on which
/// they do most.
fn scatter(events: &Events<'_>) -> f64 {
    // The stretches, one after another.
    let mut length = 0.0;
    let mut at = Vec::with_capacity(events.begins_s.len());
    let mut begins = events.begins_s.iter().copied().peekable();
    for (from, to) in events.stretches_s {
        while let Some(t) = begins.next_if(|t| t <= to) {
            at.push(length + (t - from).max(0.0));
        }
        length += to - from;
    }
    let n = at.len();
    let mut most: f64 = 0.0;
    let mut spans = LEAST_SPANS;
    while spans <= 2 * n && length > 0.0 {
        let mut counts = vec![0.0; spans];
        for t in &at {
            counts[((t / length * spans as f64) as usize).min(spans - 1)] += 1.0;
        }
        let mean = n as f64 / spans as f64;
        let squares: f64 = counts.iter().map(|c| (c - mean).powi(2)).sum();
        let degrees = (spans - 1) as f64;
        // χ² with as many degrees of freedom has a variance of twice as many.
        most = most.max((squares / mean - degrees) / (2.0 * degrees).sqrt());
        spans *= 2;
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Probe;
    use emu::client::ClientKey;
    use emu::rng::{Stage, Stream, StreamKey};
    use emu::units::{Direction, Nanos};

    #[test]
    fn an_episode_ends_only_below_the_lower_level() {
        let mut series = Series::default();
        for (i, ms) in [5, 30, 22, 30, 5, 30, 30, 18, 25, 31].into_iter().enumerate() {
            series.push(Probe { sent_ns: i as u64 * 1_000_000_000, rtt_ns: Some(ms * 1_000_000) });
        }
        let (begins, stretches) = episodes(&series, 0.029, 0.020);
        assert_eq!(begins, [1.0, 5.0, 9.0]);
        assert_eq!(stretches, [(0.0, 9.0)]);
    }

    /// Instants of a Poisson process: `rate` per second over `span` seconds.
    fn poisson(rate: f64, span: f64, seed: u64) -> Vec<f64> {
        let (client, direction) = (ClientKey::Default, Direction::Forward);
        let key = StreamKey { seed, client, direction, epoch: 0 };
        let mut stream = Stream::new(key, Stage::Channel, 0);
        let mut at = 0.0;
        let gaps = std::iter::repeat_with(move || stream.exponential(Nanos((1e9 / rate) as u64)));
        gaps.map(|gap| {
            at += gap.0 as f64 / 1e9;
            at
        })
        .take_while(|t| *t < span)
        .collect()
    }

    #[test]
    fn a_quiet_log_stays_quiet() {
        // A day with one event a minute on average, over seeds.
        let stretches = [(0.0, 86_400.0)];
        let found = (0..300).filter(|seed| {
            let begins = poisson(1.0 / 60.0, 86_400.0, *seed);
            busy_times(&Events { begins_s: &begins, stretches_s: &stretches }).is_some()
        });
        let found = found.count();
        // BIC accepts less than one in a hundred.
        assert!(found <= 2, "{found} of 300");
    }

    #[test]
    fn evenly_random_events_do_not_scatter_and_bunched_ones_do() {
        // The additive recurrence of the golden ratio is more even than chance.
        let even: Vec<f64> = (0..500).map(|i| 2.0 * f64::from(i)).collect();
        let stretches = [(0.0, 1_000.0)];
        assert!(scatter(&Events { begins_s: &even, stretches_s: &stretches }) < 0.1);
        let bunched: Vec<f64> = (0..500).map(|i| 100.0 + 0.4 * f64::from(i)).collect();
        assert!(scatter(&Events { begins_s: &bunched, stretches_s: &stretches }) > 30.0);
    }
}
