// SPDX-License-Identifier: Apache-2.0
//! The largest round trip of the baseline, beside those that the profile's law predicts for as
//! long a span.
//!
//! A log has one largest round trip, and its chance is known from the law alone. The figure
//! passes within the interval that holds it with 95 %, and fails where it would be found with
//! a probability of less than the level of one figure among all. Otherwise it is undecided, as
//! it is if the log is too short to see an excursion for sure, or if the interval is so wide
//! that the log says little about it. This is the only tolerance that is the profile's.

use statrs::distribution::{ContinuousCDF, Normal};

use super::comparison::Group;
use super::decision::{Candidate, Error};
use crate::baseline::Baseline;
use crate::delay::largest::Probing;
use crate::delay::law::Law;
use crate::numeric::Z_95;
use crate::seconds;

/// An excursion is seen for sure if none is with less than this probability.
const UNSEEN: f64 = 0.025;
/// An interval is too wide to judge by if it reaches further above the predicted round trip than
/// this many times the distance from the log's median to the predicted round trip, or to the log's
/// largest.
const WIDEST: f64 = 2.0;

/// The figure, if the law has excursions; `median` and `largest` are the log's in ns.
pub fn candidate(
    law: Law,
    log: &Baseline,
    [median, largest]: [u64; 2],
) -> Option<Candidate<'static>> {
    if law.excursions.is_empty() {
        return None;
    }
    let interval = seconds(log.interval_ns);
    let probing = Probing { interval, span: interval * log.series.len() as f64 };
    let seen = seconds(largest);
    let predicted = law.largest(0.5, probing);
    let end = move |law: &Law, z: f64, probing: Probing| {
        law.largest(Normal::standard().cdf(if seen < predicted { -z } else { z }), probing)
    };
    let [low, high] = [-Z_95, Z_95].map(|z| law.largest(Normal::standard().cdf(z), probing));
    let reach = (end(&law, Z_95, probing) - predicted).abs();
    let wide = high - predicted > WIDEST * (predicted.max(seen) - seconds(median));
    let top = law.base + law.body.top();
    let error = move |z: f64, by: f64| {
        // Without an excursion in the span for sure, no largest one can be too small.
        if wide || law.largest_below(top, probing.over(probing.span * by)) > UNSEEN {
            return f64::INFINITY;
        }
        if z <= Z_95 {
            return 0.0;
        }
        // At this level the interval is so much longer, in ns.
        1e9 * ((end(&law, z, probing) - predicted).abs() - reach).max(0.0)
    };
    let none: Error<'static> = Box::new(|_, _| 0.0);
    Some(Candidate {
        group: Group::Quantiles,
        figure: "largest".into(),
        unit: "ms",
        scale: 1e-6,
        values: [largest as f64, 1e9 * predicted],
        tolerance: 1e9 * reach,
        because: format!(
            "95 % of spans of this length have a largest one of {:.0} to {:.0} ms",
            low * 1e3,
            high * 1e3
        ),
        errors: [Box::new(error), none],
        rare: false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::comparison::Verdict;
    use super::super::decision::{Lengths, decide};
    use super::*;
    use crate::baseline::{Probe, Series};
    use crate::delay::law::{Body, Excursions};

    /// A log of so many probes, five a second.
    fn log(probes: u64) -> Baseline {
        let mut series = Series::default();
        for i in 0..probes {
            series.push(Probe { sent_ns: i * 200_000_000, rtt_ns: Some(600_000_000) });
        }
        Baseline::regular("log", 200_000_000, series)
    }

    fn law(shape: f64) -> Law {
        let rare = Excursions {
            interval: 60.0,
            duration: 0.5,
            location: 0.0,
            scale: 0.05,
            shape,
            max: 20.0,
            regime: None,
        };
        let body = Body::Slot { period: 0.04, regular: true };
        Law { base: 0.575, body, excursions: vec![rare] }
    }

    fn verdict(law: Law, log: &Baseline, largest_s: f64) -> Verdict {
        let ends = [595_000_000, (largest_s * 1e9) as u64];
        let figure = candidate(law, log, ends).unwrap();
        decide(vec![figure], 0.95, Lengths { baseline_s: Some(86_400.0), link_s: None }).0[0]
            .verdict
    }

    #[test]
    fn largest_round_trip_is_judged_by_the_interval_of_its_span() {
        let day = log(432_000);
        let probing = Probing { interval: 0.2, span: Probing::DAY };
        let at = |p: f64| law(0.2).largest(p, probing);
        for (p, expected) in [
            (0.5, Verdict::Pass),
            (0.03, Verdict::Pass),
            (0.97, Verdict::Pass),
            (1e-4, Verdict::Fail),
            (1.0 - 1e-4, Verdict::Fail),
        ] {
            assert_eq!(verdict(law(0.2), &day, at(p)), expected, "{p}");
        }
    }

    #[test]
    fn short_log_or_vague_law_leaves_the_largest_round_trip_undecided() {
        // Two minutes have two episodes on average.
        assert_eq!(verdict(law(0.2), &log(600), 0.7), Verdict::Undecided);
        let mut heavy = law(0.5);
        heavy.excursions[0].max = 1e3;
        let probing = Probing { interval: 0.2, span: Probing::DAY };
        let typical = heavy.largest(0.5, probing);
        assert_eq!(verdict(heavy, &log(432_000), typical), Verdict::Undecided);
    }
}
