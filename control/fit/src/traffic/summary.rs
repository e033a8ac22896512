// SPDX-License-Identifier: Apache-2.0
//! Published figures of bulk flows, in TOML. Quantities are text with their units. `spread` is the
//! standard deviation over the flows; without it, the error of the mean is taken from the model.
//!
//! ```toml
//! source = "SAT20: S. Claypool et al., CCNC 2021"
//! receive_window = "30 MB"            # if left out
//! [[flows]]
//! congestion_control = "cubic"        # or "bbr"
//! count = 80
//! throughput = [{ from = "500 MB", to = "1 GB", mean = "123.3 Mbit/s", spread = "17 Mbit/s" }]
//! round_trip = [{ from = "30 s", least = "400 ms", mean = "821 ms", spread = "206 ms" }]
//! time = [{ bytes = "50 MB", mean = "24 s" }]
//! ```

use profile::{UnitError, parse_duration, parse_rate, parse_size};
use serde::Deserialize;

use super::flow::{Algorithm, Setup};
use super::observation::{Figure, Observation, Origin, Quantity, Statistic};
use super::read::TrafficError;

/// Largest flow, in bytes.
const LARGEST: u64 = 10_000_000_000;
const MOST_FLOWS: u64 = 1_000_000;
/// Bytes of a flow, where its figures do not determine them.
const LONG_FLOW: u64 = 1_000_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    source: String,
    receive_window: Option<String>,
    flows: Vec<Flows>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Flows {
    congestion_control: String,
    count: u64,
    #[serde(default)]
    throughput: Vec<Throughput>,
    #[serde(default)]
    round_trip: Vec<RoundTrip>,
    #[serde(default)]
    time: Vec<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Throughput {
    from: Option<String>,
    to: String,
    mean: String,
    spread: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoundTrip {
    from: Option<String>,
    to: Option<String>,
    least: Option<String>,
    mean: String,
    spread: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Time {
    bytes: String,
    mean: String,
    spread: Option<String>,
}

/// Reads published figures.
///
/// # Errors
/// All faults of the figures, each with its value.
pub(super) fn read(
    text: &str,
    name: &str,
    sha256: String,
) -> Result<Vec<Observation>, TrafficError> {
    let malformed = |problem: String| TrafficError::Malformed {
        name: name.to_owned(),
        format: "published figures of flows",
        problem,
    };
    let file: File =
        toml::from_str(text).map_err(|e| malformed(e.to_string().trim_end().to_owned()))?;
    let mut faults = Faults::default();
    if file.source.trim().is_empty() {
        faults.0.push("source is empty: name the study".into());
    }
    if file.flows.is_empty() {
        faults.0.push("there is no [[flows]]".into());
    }
    let default = Setup::default().receive_window;
    let receive_window = match &file.receive_window {
        Some(text) => faults.quantity("receive_window", text, parse_size).unwrap_or(default),
        None => default,
    };
    if receive_window < 10_000 {
        faults.0.push(format!("receive_window is {receive_window} bytes; at least 10 kB"));
    }
    let origin = Origin { name: file.source, format: "summary", sha256 };
    let mut observations = Vec::new();
    for flows in &file.flows {
        let figures = faults.figures(flows);
        let algorithm = flows.congestion_control.parse::<Algorithm>();
        let algorithm = algorithm.map_err(|problem| faults.0.push(problem));
        let needs = || figures.iter().map(|f| needs(&f.quantity));
        let enough = (
            needs().map(|(bytes, _)| bytes).max().unwrap_or(0),
            needs().map(|(_, ns)| ns).max().unwrap_or(0),
        );
        let setup = Setup {
            algorithm: algorithm.unwrap_or(Algorithm::Cubic),
            bytes: if enough.1 > 0 { enough.0.max(LONG_FLOW) } else { enough.0 },
            enough,
            receive_window,
            ..Setup::default()
        };
        let origins = vec![origin.clone()];
        observations.push(Observation { origins, setup, count: flows.count, figures });
    }
    match faults.0.is_empty() {
        true => Ok(observations),
        false => Err(malformed(faults.0.join("; "))),
    }
}

/// Bytes that a flow needs for a quantity, and nanoseconds. A round trip to the end is of 1 GB.
fn needs(quantity: &Quantity) -> (u64, u64) {
    match *quantity {
        Quantity::Throughput { to, .. } => (to, 0),
        Quantity::Time { bytes } => (bytes, 0),
        Quantity::RoundTrip { to_s, .. } if to_s == f64::MAX => (LONG_FLOW, 0),
        Quantity::RoundTrip { to_s, .. }
        | Quantity::EarlyRoundTrip { to_s, .. }
        | Quantity::EarlyAcknowledgements { to_s } => (0, (to_s * 1e9) as u64),
    }
}

#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn quantity<T>(
        &mut self,
        key: &str,
        text: &str,
        parse: impl Fn(&str) -> Result<T, UnitError>,
    ) -> Option<T> {
        parse(text).map_err(|e| self.0.push(format!("{key} = {text:?}: {e}"))).ok()
    }

    fn mbps(&mut self, key: &str, text: &str) -> Option<f64> {
        let rate = self.quantity(key, text, parse_rate)?;
        let mbps = rate.bps().map(|bps| bps as f64 / 1e6);
        if mbps.is_none() {
            self.0.push(format!("{key} = {text:?}: a throughput has a limit"));
        }
        mbps
    }

    fn ms(&mut self, key: &str, text: &str) -> Option<f64> {
        Some(self.quantity(key, text, parse_duration)? as f64 / 1e6)
    }

    fn size(&mut self, key: &str, text: &str) -> Option<u64> {
        let size = self.quantity(key, text, parse_size)?;
        if size > LARGEST {
            self.0.push(format!("{key} = {text:?} is more than 10 GB"));
        }
        Some(size)
    }

    fn figures(&mut self, flows: &Flows) -> Vec<Figure> {
        if !(1..=MOST_FLOWS).contains(&flows.count) {
            self.0.push(format!("count = {} is not 1 to {MOST_FLOWS}", flows.count));
        }
        let mut figures = Vec::new();
        for t in &flows.throughput {
            let from = t.from.as_ref().map_or(Some(0), |from| self.size("from", from));
            let ends = from.zip(self.size("to", &t.to));
            let mean = self.mbps("mean", &t.mean);
            let spread = t.spread.as_ref().map(|spread| self.mbps("spread", spread));
            let Some((from, to)) = ends else { continue };
            if from >= to {
                self.0.push(format!("throughput: from {from} to {to} bytes is no span"));
            }
            let quantity = Quantity::Throughput { from, to };
            figures.extend(self.pair(quantity, mean, spread, flows.count));
        }
        for r in &flows.round_trip {
            let s = |ms: f64| ms / 1e3;
            let from = r.from.as_ref().map_or(Some(0.0), |from| self.ms("from", from).map(s));
            let to = r.to.as_ref().map_or(Some(f64::MAX), |to| self.ms("to", to).map(s));
            let least = r.least.as_ref().map_or(Some(0.0), |least| self.ms("least", least));
            let mean = self.ms("mean", &r.mean);
            let spread = r.spread.as_ref().map(|spread| self.ms("spread", spread));
            let (Some(from_s), Some(to_s), Some(least_ms)) = (from, to, least) else { continue };
            if from_s >= to_s {
                self.0.push(format!("round_trip: from {from_s} s to {to_s} s is no span"));
            }
            let quantity = Quantity::RoundTrip { from_s, to_s, least_ms };
            figures.extend(self.pair(quantity, mean, spread, flows.count));
        }
        for t in &flows.time {
            let bytes = self.size("bytes", &t.bytes);
            let mean = self.ms("mean", &t.mean).map(|ms| ms / 1e3);
            let spread = t.spread.as_ref().map(|s| self.ms("spread", s).map(|ms| ms / 1e3));
            let Some(bytes) = bytes else { continue };
            if bytes == 0 {
                self.0.push("time: bytes is zero".into());
            }
            figures.extend(self.pair(Quantity::Time { bytes }, mean, spread, flows.count));
        }
        if figures.is_empty() {
            self.0.push(format!("the flows of {} have no figure", flows.congestion_control));
        }
        figures
    }

    fn pair(
        &mut self,
        quantity: Quantity,
        mean: Option<f64>,
        spread: Option<Option<f64>>,
        count: u64,
    ) -> Vec<Figure> {
        let (Some(mean), spread) = (mean, spread.flatten()) else { return Vec::new() };
        if mean <= 0.0 {
            self.0.push("a mean is zero".into());
        }
        let spread = spread.filter(|s| *s > 0.0);
        let n = count as f64;
        let mut figures = Vec::new();
        for (statistic, value) in [(Statistic::Mean, Some(mean)), (Statistic::Spread, spread)] {
            let error = spread.map(|spread| statistic.error(spread, n));
            let figure = |value| Figure { quantity, statistic, value, error };
            figures.extend(value.filter(|_| statistic == Statistic::Mean || count > 1).map(figure));
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAT20: &str = include_str!("../../baselines/viasat2-flows.toml");

    fn refused(text: &str) -> String {
        read(text, "flows.toml", String::new()).unwrap_err().to_string()
    }

    #[test]
    fn published_figures_have_the_errors_of_their_number_of_flows() {
        let read = read(SAT20, "viasat2-flows.toml", "ab".into()).unwrap();
        let [cubic, bbr] = &read[..] else { panic!("{read:?}") };
        assert_eq!((cubic.algorithm(), bbr.algorithm()), (Algorithm::Cubic, Algorithm::Bbr));
        assert_eq!((cubic.count, cubic.setup.receive_window), (80, 30_000_000));
        assert_eq!(cubic.setup.bytes, 1_000_000_000);
        let [throughput, spread, start, _, rtt, ..] = &cubic.figures[..] else {
            panic!("{cubic:?}")
        };
        assert_eq!((throughput.value, spread.value, rtt.value), (123.3, 17.0, 821.0));
        assert_eq!((start.value, start.quantity.is_of_start()), (16.6, true));
        assert!((throughput.error.unwrap() - 17.0 / 80.0_f64.sqrt()).abs() < 1e-9);
        assert!((spread.error.unwrap() - 17.0 / 158.0_f64.sqrt()).abs() < 1e-9);
        let quantity = Quantity::RoundTrip { from_s: 30.0, to_s: f64::MAX, least_ms: 400.0 };
        assert_eq!(rtt.quantity, quantity);
    }

    #[test]
    fn mean_without_spread_has_no_error() {
        let text = "source = \"a study\"\n[[flows]]\ncongestion_control = \"bbr\"\ncount = 5\n\
                    time = [{ bytes = \"50 MB\", mean = \"17 s\" }]";
        let read = read(text, "flows.toml", String::new()).unwrap();
        let figure = read[0].figures[0];
        assert_eq!((figure.value, figure.error), (17.0, None));
        assert_eq!(read[0].setup.bytes, 50_000_000);
    }

    #[test]
    fn each_fault_is_told_with_its_value() {
        let said = refused(
            "source = \" \"\nreceive_window = \"1 B\"\n[[flows]]\ncongestion_control = \"reno\"\n\
             count = 0\nthroughput = [{ from = \"2 MB\", to = \"1 MB\", mean = \"5 ms\" }]\n\
             round_trip = [{ from = \"5 s\", to = \"4 s\", mean = \"0 ms\" }]\n\
             time = [{ bytes = \"11 GB\", mean = \"1 s\" }]",
        );
        for fault in [
            "source is empty",
            "receive_window is 1 bytes",
            "\"reno\" is no modelled congestion control",
            "count = 0",
            "from 2000000 to 1000000 bytes is no span",
            "mean = \"5 ms\"",
            "from 5 s to 4 s is no span",
            "a mean is zero",
            "\"11 GB\" is more than 10 GB",
        ] {
            assert!(said.contains(fault), "{fault} is not in {said}");
        }
        assert!(refused("source = \"a\"\nflows = []").contains("no [[flows]]"));
        assert!(refused("source = \"a\"\ncolour = 1\nflows = []").contains("colour"));
        let none = "source = \"a\"\n[[flows]]\ncongestion_control = \"bbr\"\ncount = 5";
        assert!(refused(none).contains("have no figure"));
    }
}
