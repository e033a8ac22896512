// SPDX-License-Identifier: Apache-2.0
//! What was observed of bulk flows: figures over several flows, each with its error.
//!
//! The same definitions apply to measured and to modelled flows.

use statrs::statistics::Statistics;

use super::flow::{Algorithm, Flow, Setup};
use super::tcp::INITIAL_WINDOW;

/// A quantity of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// Mbit/s of payload between two counts of received bytes, over whole seconds.
    Throughput { from: u64, to: u64 },
    /// Mean of the round trips of acknowledgements, in ms.
    RoundTrip {
        /// When the acknowledgements arrive, in seconds since the flow began.
        from_s: f64,
        to_s: f64,
        /// Shorter ones are left out.
        least_ms: f64,
    },
    /// Whole seconds until so many bytes were received.
    Time { bytes: u64 },
    /// Mean of the round trips of acknowledgements within a span since the first segment was sent, in ms.
    EarlyRoundTrip { from_s: f64, to_s: f64 },
    /// Number of acknowledgements until then.
    EarlyAcknowledgements { to_s: f64 },
}

impl Quantity {
    /// None if the flow does not reach it.
    #[must_use]
    pub fn of(&self, flow: &Flow) -> Option<f64> {
        match *self {
            Self::Throughput { from, to } => flow.throughput(from, to),
            Self::RoundTrip { from_s, to_s, least_ms } => {
                let mean = flow.rtts_ms(from_s..to_s, least_ms).mean();
                mean.is_finite().then_some(mean)
            }
            Self::Time { bytes } => flow.seconds_to(bytes).map(|s| s as f64),
            Self::EarlyRoundTrip { from_s, to_s } => {
                let begun = flow.begun_s()?;
                let mean = flow.rtts_ms(begun + from_s..begun + to_s, 0.0).mean();
                mean.is_finite().then_some(mean)
            }
            Self::EarlyAcknowledgements { to_s } => {
                let begun = flow.begun_s()?;
                Some(flow.rtts_ms(begun..begun + to_s, 0.0).count() as f64)
            }
        }
    }

    /// Whether it is of the first seconds of a flow, in which the requests of a terminal show.
    #[must_use]
    pub fn is_of_start(&self) -> bool {
        match *self {
            Self::Throughput { from, .. } => from == 0,
            Self::RoundTrip { to_s, .. } => to_s <= START_S,
            Self::Time { .. }
            | Self::EarlyRoundTrip { .. }
            | Self::EarlyAcknowledgements { .. } => true,
        }
    }

    /// Whether only a link with capacity on demand can have this figure.
    pub(super) fn is_of_access(&self) -> bool {
        matches!(self, Self::EarlyRoundTrip { .. } | Self::EarlyAcknowledgements { .. })
    }

    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Throughput { .. } => "Mbit/s",
            Self::RoundTrip { .. } | Self::EarlyRoundTrip { .. } => "ms",
            Self::Time { .. } => "s",
            Self::EarlyAcknowledgements { .. } => "",
        }
    }

    fn name(&self) -> String {
        match *self {
            Self::Throughput { from, to } => {
                format!("throughput from {} to {} MB", from / MB, to / MB)
            }
            Self::RoundTrip { from_s, to_s, .. } if to_s >= 1e9 => {
                format!("round trip after {from_s} s")
            }
            Self::RoundTrip { from_s, to_s, .. } => {
                format!("round trip from {from_s} to {to_s} s")
            }
            Self::Time { bytes } => format!("time to {} MB", bytes as f64 / MB as f64),
            Self::EarlyRoundTrip { from_s, to_s } => {
                format!("round trip from {from_s} to {to_s} s after the first segment")
            }
            Self::EarlyAcknowledgements { to_s } => {
                format!("acknowledgements within {to_s} s of the first segment")
            }
        }
    }
}

const MB: u64 = 1_000_000;
/// Figures until then are of the start of a flow, in s.
const START_S: f64 = 60.0;
/// Requests of a terminal are estimated from the round trips of so many first seconds of a flow, and its
/// constant bursts from the number of acknowledgements in so many.
const EARLY_S: u32 = 12;
const CONSTANT_S: f64 = 2.0;

/// A statistic over flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    Mean,
    /// Standard deviation.
    Spread,
}

impl Statistic {
    /// Of at least one value, or two for a spread.
    #[must_use]
    pub fn of(self, values: &[f64]) -> Option<f64> {
        let statistic = match self {
            Self::Mean => values.mean(),
            Self::Spread => values.std_dev(),
        };
        statistic.is_finite().then_some(statistic)
    }

    /// Standard error of the statistic over `n` values with this standard deviation; for a spread,
    /// of normal values.
    #[must_use]
    pub fn error(self, spread: f64, n: f64) -> f64 {
        match self {
            Self::Mean => spread / n.sqrt(),
            Self::Spread => spread / (2.0 * (n - 1.0).max(1.0)).sqrt(),
        }
    }
}

/// An observed figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub quantity: Quantity,
    pub statistic: Statistic,
    pub value: f64,
    /// Standard error; none if nothing tells how much flows differ.
    pub error: Option<f64>,
}

impl Figure {
    #[must_use]
    pub fn name(&self) -> String {
        match self.statistic {
            Statistic::Mean => self.quantity.name(),
            Statistic::Spread => format!("spread of the {}", self.quantity.name()),
        }
    }

    /// The same figure of other flows.
    #[must_use]
    pub fn of(&self, flows: &[Flow]) -> Option<f64> {
        let values: Vec<f64> = flows.iter().filter_map(|f| self.quantity.of(f)).collect();
        self.statistic.of(&values)
    }
}

/// Where an observation is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// A study or a file.
    pub name: String,
    /// "summary", "iperf3", "pcap" or "csv".
    pub format: &'static str,
    /// In hexadecimal.
    pub sha256: String,
}

/// Flows of one congestion control towards the client.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    pub origins: Vec<Origin>,
    pub setup: Setup,
    /// Number of flows.
    pub count: u64,
    pub figures: Vec<Figure>,
}

impl Observation {
    /// Figures of measured flows: throughput of the second half of the bytes, and mean round trip
    /// from half of the time on, if the flows have round trips.
    #[must_use]
    pub fn of_flows(origins: Vec<Origin>, algorithm: Algorithm, flows: &[Flow]) -> Self {
        let least = |f: &dyn Fn(&Flow) -> u64| flows.iter().map(f).min().unwrap_or(0);
        let bytes = least(&|flow| flow.received.last().copied().unwrap_or(0));
        let half_s = least(&|flow| flow.received.len() as u64) as f64 / 2.0;
        let throughput = Quantity::Throughput { from: bytes / 2, to: bytes };
        let round_trip =
            Quantity::RoundTrip { from_s: half_s.floor(), to_s: f64::MAX, least_ms: 0.0 };
        let time = Quantity::Time { bytes: bytes / 20 };
        let mut figures = Vec::new();
        let with_bytes = [throughput, round_trip, time].into_iter().filter(|_| bytes > 0);
        for quantity in with_bytes.chain(early()) {
            let values: Vec<f64> = flows.iter().filter_map(|f| quantity.of(f)).collect();
            figures.extend(pair(quantity, &values));
        }
        let windows: Vec<u32> = flows.iter().filter_map(Flow::first_window).collect();
        let initial_window =
            windows.iter().min().map_or(INITIAL_WINDOW, |w| (*w).max(INITIAL_WINDOW));
        let mut setup = Setup { algorithm, bytes, initial_window, ..Setup::default() };
        if bytes == 0 {
            // The flow is a table of round trips, which does not state its bytes.
            (setup.bytes, setup.limit_ns) = (Setup::default().bytes, EARLY_LIMIT_NS);
        }
        Self { origins, setup, count: flows.len() as u64, figures }
    }

    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.setup.algorithm
    }
}

/// A flow has been played until its early figures are complete: with two lost handshakes before it.
const EARLY_LIMIT_NS: u64 = (EARLY_S as u64 + 8) * 1_000_000_000;

/// The quantities from which the requests of a terminal are estimated.
fn early() -> impl Iterator<Item = Quantity> {
    let seconds = (0..EARLY_S).map(f64::from);
    seconds
        .map(|s| Quantity::EarlyRoundTrip { from_s: s, to_s: s + 1.0 })
        .chain([Quantity::EarlyAcknowledgements { to_s: CONSTANT_S }])
}

/// Fewest values that tell a spread.
const SPREAD: usize = 4;

/// The mean, and the spread of enough values.
fn pair(quantity: Quantity, values: &[f64]) -> Vec<Figure> {
    let n = values.len() as f64;
    let spread = Statistic::Spread.of(values).filter(|_| values.len() >= SPREAD);
    [Statistic::Mean, Statistic::Spread]
        .into_iter()
        .filter(|s| *s == Statistic::Mean || spread.is_some_and(|s| s > 0.0))
        .filter_map(|statistic| {
            let value = statistic.of(values)?;
            let error = spread.map(|spread| statistic.error(spread, n)).filter(|e| *e > 0.0);
            Some(Figure { quantity, statistic, value, error })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(rate: u64, rtt_us: u32) -> Flow {
        let received = (1..=20).map(|s| s * rate).collect();
        let rtts = (0..40).map(|i| (i * 500_000, rtt_us)).collect();
        Flow { received, rtts, ..Flow::default() }
    }

    #[test]
    fn figures_of_flows_have_the_errors_of_their_number() {
        let flows = [10, 11, 12, 13].map(|n| flow(n * MB, 100_000 + n as u32 * 1000));
        let o = Observation::of_flows(Vec::new(), Algorithm::Bbr, &flows);
        assert_eq!((o.count, o.setup.bytes), (4, 200 * MB));
        let value = |q: &dyn Fn(&Quantity) -> bool, s| {
            o.figures.iter().find(|f| q(&f.quantity) && f.statistic == s).copied().unwrap()
        };
        let rtt = |q: &Quantity| matches!(q, Quantity::RoundTrip { .. });
        let mean = value(&rtt, Statistic::Mean);
        assert!((mean.value - 111.5).abs() < 1e-9, "{mean:?}");
        // The spread of 110, 111, 112 and 113 is 1.29.
        assert!((mean.error.unwrap() - 1.291 / 2.0).abs() < 1e-3, "{mean:?}");
        let spread = value(&rtt, Statistic::Spread);
        assert!((spread.value - 1.291).abs() < 1e-3, "{spread:?}");
        assert!((spread.error.unwrap() - 1.291 / 6.0_f64.sqrt()).abs() < 1e-3, "{spread:?}");
    }

    #[test]
    fn single_flow_has_no_spread_and_no_error() {
        let o = Observation::of_flows(Vec::new(), Algorithm::Cubic, &[flow(MB, 100_000)]);
        assert!(o.figures.iter().all(|f| f.statistic == Statistic::Mean && f.error.is_none()));
        assert_eq!(o.figures.iter().filter(|f| !f.quantity.is_of_access()).count(), 3);
    }

    #[test]
    fn quantity_that_a_flow_does_not_reach_is_absent() {
        let flow = flow(MB, 100_000);
        assert_eq!(Quantity::Time { bytes: 21 * MB }.of(&flow), None);
        assert_eq!(Quantity::Throughput { from: 0, to: 21 * MB }.of(&flow), None);
        let late = Quantity::RoundTrip { from_s: 30.0, to_s: f64::MAX, least_ms: 0.0 };
        assert_eq!(late.of(&flow), None);
        let long = Quantity::RoundTrip { from_s: 0.0, to_s: f64::MAX, least_ms: 400.0 };
        assert_eq!(long.of(&flow), None);
        assert_eq!(Quantity::Time { bytes: 2 * MB }.of(&flow), Some(2.0));
    }
}
