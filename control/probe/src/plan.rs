// SPDX-License-Identifier: Apache-2.0
//! Target, interval and duration of a run of the sender.

use crate::packet::{HEADER, LARGEST};
use crate::target::Target;
use profile::format_duration;
use std::net::IpAddr;
use std::time::Duration;

/// Shorter intervals would measure the sender itself.
const INTERVAL: (Duration, Duration) = (Duration::from_micros(10), Duration::from_secs(3_600));
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3_600));
/// Most probes in flight: about 200 MB, enough for 10 s at the shortest interval.
const OUTSTANDING: usize = 2_500_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    Constant,
    Poisson {
        /// Seed of the instants; random if `None`.
        seed: Option<u64>,
    },
}

impl Spacing {
    /// Its name in a log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Poisson { .. } => "poisson",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Until [`crate::Stop`] is requested.
    Open,
    /// Number of probes in the log, earlier runs included.
    Count(u64),
    /// Time since the start of the log.
    Duration(Duration),
}

/// Parameters of a run of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub target: Target,
    /// Send from this address.
    pub source: Option<IpAddr>,
    /// Time between probes, or its mean.
    pub interval: Duration,
    pub spacing: Spacing,
    /// Bytes of UDP payload.
    pub size: usize,
    /// Probes with a longer round trip count as lost.
    pub timeout: Duration,
    pub extent: Extent,
    /// Both hosts' clocks are synchronised, so that one-way delays mean something.
    pub synchronised: bool,
}

/// A plan that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Too short or too long a time.
    #[error("--{option} {}: give {} to {}", shown(*value), shown(*least), shown(*most))]
    Time { option: &'static str, value: Duration, least: Duration, most: Duration },
    /// A size that no probe has.
    #[error(
        "--size {0}: give {HEADER} (a probe's header) to {LARGEST} (what fits into an IPv4 packet of 1500 bytes)"
    )]
    Size(usize),
    #[error("--{0} 0: that is no probe; give more, or leave it out to probe until interrupted")]
    Nothing(&'static str),
    /// More probes in flight than [`OUTSTANDING`].
    #[error("--timeout {} at --interval {} can leave {outstanding} probes under way, more than {OUTSTANDING}: give a shorter --timeout, or a longer --interval", shown(*timeout), shown(*interval))]
    Outstanding { timeout: Duration, interval: Duration, outstanding: usize },
}

/// Formats a duration; longer ones than 584 years are cut to that.
pub(crate) fn shown(duration: Duration) -> String {
    format_duration(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl Plan {
    /// Defaults: 5 probes of 20 bytes a second, until stopped.
    #[must_use]
    pub const fn new(target: Target) -> Self {
        Self {
            target,
            source: None,
            interval: Duration::from_millis(200),
            spacing: Spacing::Constant,
            size: HEADER,
            timeout: Duration::from_secs(10),
            extent: Extent::Open,
            synchronised: false,
        }
    }

    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    /// The first parameter out of range.
    pub fn check(&self) -> Result<(), PlanError> {
        let times = [("interval", self.interval, INTERVAL), ("timeout", self.timeout, TIMEOUT)];
        for (option, value, (least, most)) in times {
            if !(least..=most).contains(&value) {
                return Err(PlanError::Time { option, value, least, most });
            }
        }
        if !(HEADER..=LARGEST).contains(&self.size) {
            return Err(PlanError::Size(self.size));
        }
        match self.extent {
            Extent::Count(0) => return Err(PlanError::Nothing("count")),
            Extent::Duration(Duration::ZERO) => return Err(PlanError::Nothing("duration")),
            _ => {}
        }
        let (timeout, interval) = (self.timeout, self.interval);
        match self.outstanding_limit() {
            outstanding if outstanding > OUTSTANDING => {
                Err(PlanError::Outstanding { timeout, interval, outstanding })
            }
            _ => Ok(()),
        }
    }

    /// Most probes in flight. With constant spacing there are timeout / interval. Poisson probes
    /// cluster: twice the mean plus 64 is at least 16 standard deviations above the mean.
    #[must_use]
    pub fn outstanding_limit(&self) -> usize {
        let mean = self.timeout.as_nanos() / self.interval.as_nanos().max(1);
        usize::try_from(2 * mean + 64).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new("host".parse().unwrap())
    }

    #[test]
    fn impossible_plan_is_refused_with_limit() {
        let (us, s) = (Duration::from_micros, Duration::from_secs);
        assert_eq!(plan().check(), Ok(()));
        assert_eq!(Plan { interval: us(10), ..plan() }.check(), Ok(()));
        for (bad, expected) in [
            (Plan { interval: us(0), ..plan() }, "--interval 0 ms: give 10 µs to 1 h"),
            (Plan { interval: us(9), ..plan() }, "--interval 9 µs: give 10 µs"),
            (Plan { interval: Duration::MAX, ..plan() }, "give 10 µs to 1 h"),
            (Plan { timeout: us(999), ..plan() }, "--timeout 999 µs: give 1 ms to 1 h"),
            (Plan { size: 19, ..plan() }, "--size 19: give 20"),
            (Plan { size: 1473, ..plan() }, "1472 (what fits into"),
            (Plan { extent: Extent::Count(0), ..plan() }, "--count 0"),
            (Plan { extent: Extent::Duration(us(0)), ..plan() }, "--duration 0"),
            (Plan { interval: us(10), timeout: s(13), ..plan() }, "a shorter --timeout"),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
