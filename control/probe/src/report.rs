// SPDX-License-Identifier: Apache-2.0
//! Counters and round trips of a run.

use hdrhistogram::Histogram;
use std::io;
use std::time::Duration;

/// Counters of a run. Each sent probe is received, lost or outstanding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    /// In flight. At the end of a run they are abandoned and not in the log.
    pub outstanding: u64,
    /// Replies beyond the first of a probe.
    pub duplicates: u64,
    /// Replies after the timeout: their probes are lost.
    pub late: u64,
    /// Instants at which nothing was sent because the sender was late.
    pub skipped: u64,
    /// Datagrams that are no reply to a probe of this run.
    pub foreign: u64,
    /// ICMP port-unreachable messages from the target.
    pub refused: u64,
    /// Probes that this host could not send, for example without a route; they count as lost.
    pub unsendable: u64,
    /// Datagrams dropped because the receive buffer of the socket was full. If they were replies, their
    /// probes count as lost, although the link did not lose them.
    pub overflowed: u64,
}

impl Counts {
    /// Lost probes as a share of received and lost ones.
    #[must_use]
    pub fn loss_ratio(&self) -> Option<f64> {
        let settled = self.received + self.lost;
        (settled > 0).then(|| self.lost as f64 / settled as f64)
    }
}

/// The round trips: the extremes exact, the quantiles to 0.1 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    pub min: Duration,
    pub p50: Duration,
    /// Exceeded by one in a hundred.
    pub p99: Duration,
    pub max: Duration,
}

/// Progress or result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Number of the first probe of the run: zero unless the log was resumed.
    pub first_sequence: u64,
    /// Counters of the run.
    pub counts: Counts,
    /// Their round trips, if any came back.
    pub rtt: Option<Rtt>,
    /// Since the run's start.
    pub elapsed: Duration,
    /// Time until the last probe is sent, if known.
    pub remaining: Option<Duration>,
    /// Latest error of sending.
    pub trouble: Option<io::ErrorKind>,
}

/// Records round trips in constant memory.
#[derive(Debug)]
pub(crate) struct Recorder {
    histogram: Histogram<u64>,
    extremes: Option<(Duration, Duration)>,
}

impl Recorder {
    /// For round trips up to `most`.
    pub(crate) fn new(most: Duration) -> Option<Self> {
        let most = u64::try_from(most.as_nanos()).ok()?.max(2);
        let histogram = Histogram::new_with_bounds(1, most, 3).ok()?;
        Some(Self { histogram, extremes: None })
    }

    pub(crate) fn record(&mut self, rtt: Duration) {
        let (min, max) = self.extremes.unwrap_or((rtt, rtt));
        self.extremes = Some((min.min(rtt), max.max(rtt)));
        self.histogram.saturating_record(u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn rtt(&self) -> Option<Rtt> {
        let (min, max) = self.extremes?;
        let at = |q| Duration::from_nanos(self.histogram.value_at_quantile(q)).clamp(min, max);
        Some(Rtt { min, p50: at(0.5), p99: at(0.99), max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_thousandth_and_extremes_exact() {
        let mut recorder = Recorder::new(Duration::from_secs(10)).unwrap();
        assert_eq!(recorder.rtt(), None);
        for us in (1..=10_000).rev() {
            recorder.record(Duration::from_micros(us * 100) + Duration::from_nanos(1));
        }
        let rtt = recorder.rtt().unwrap();
        assert_eq!(
            (rtt.min, rtt.max),
            (Duration::from_nanos(100_001), Duration::from_nanos(1_000_000_001))
        );
        for (is, s) in [(rtt.p50, 0.5), (rtt.p99, 0.99)] {
            assert!((is.as_secs_f64() / s - 1.0).abs() < 1.5e-3, "{is:?}");
        }
    }

    #[test]
    fn loss_ratio_counts_probes_with_known_fate() {
        assert_eq!(Counts::default().loss_ratio(), None);
        let counts =
            Counts { sent: 100, received: 3, lost: 1, outstanding: 96, ..Counts::default() };
        assert_eq!(counts.loss_ratio(), Some(0.25));
    }
}
