// SPDX-License-Identifier: Apache-2.0
//! Provenance of a fitted profile while it is assembled, and the limits of the schema. Estimates are
//! in seconds.

use crate::digits::four_digits;
use crate::goodness::Goodness;
use crate::interval::Interval;
use crate::seconds;
use profile::{BODY_CORRELATION_NS, OUTAGE_DURATION_NS, OUTAGE_INTERVAL_NS, format_duration};
use proto::linkemu::v1 as pb;

pub(super) const LEAST_INTERVAL: f64 = seconds(*OUTAGE_INTERVAL_NS.start());
pub(super) const LONGEST_INTERVAL: f64 = seconds(*OUTAGE_INTERVAL_NS.end());
pub(super) const LONGEST_EPISODE: f64 = seconds(*OUTAGE_DURATION_NS.end());
pub(super) const LEAST_CORRELATION: f64 = seconds(*BODY_CORRELATION_NS.start());
pub(super) const LONGEST_CORRELATION: f64 = seconds(*BODY_CORRELATION_NS.end());

pub(super) const LIKELIHOOD: &str = "maximum likelihood";
pub(super) const MOMENTS: &str = "generalized method of moments";
pub(super) const PREDICTED: &str = "predicted by the law and its errors, 95 %";
pub(super) const STATED: &str = "stated";

pub(super) fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

pub(super) fn rounded(seconds: f64) -> u64 {
    four_digits(nanos(seconds))
}

/// The profile's provenance as it grows.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) estimates: Vec<pb::Estimate>,
    pub(super) goodness: Vec<pb::Goodness>,
    pub(super) unidentified: Vec<String>,
}

impl Notes {
    pub(super) fn time(&mut self, parameter: String, estimate: Interval, method: &str) {
        let end = |x: f64| {
            if x.is_finite() && x < LONGEST_INTERVAL * 1e3 {
                format_duration(rounded(x))
            } else {
                "unbounded".into()
            }
        };
        self.estimates.push(pb::Estimate {
            parameter,
            value: end(estimate.value),
            low: end(estimate.low.max(0.0)),
            high: end(estimate.high),
            method: method.into(),
        });
    }

    pub(super) fn number(&mut self, parameter: String, estimate: Interval, method: &str) {
        let end = |x: f64| if x.is_finite() { format!("{x:.3}") } else { "unbounded".into() };
        self.estimates.push(pb::Estimate {
            parameter,
            value: end(estimate.value),
            low: end(estimate.low),
            high: end(estimate.high),
            method: method.into(),
        });
    }

    pub(super) fn test(&mut self, goodness: Option<&Goodness>) {
        self.goodness.extend(goodness.map(|g| pb::Goodness {
            test: g.test.clone(),
            statistic: (g.statistic * 1e3).round() / 1e3,
            degrees_of_freedom: g.degrees_of_freedom,
            p_value: (g.p_value * 1e6).round() / 1e6,
        }));
    }
}

/// Limits an estimate to the range of a profile, and notes it.
pub(super) fn within(what: &str, time: &mut Interval, most: f64, told: &mut Vec<String>) {
    if time.value > most {
        told.push(format!(
            "{what}: {} was estimated; a profile can say {} at most",
            format_duration(rounded(time.value)),
            format_duration(nanos(most))
        ));
        time.value = most;
    }
}
