// SPDX-License-Identifier: Apache-2.0
//! The emulator's own statistics, as `linkctl stats -o json` writes them, and a
//! watcher that samples them over time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::linkctl::Linkctl;
use crate::process::Process;

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of Ethernet frame without FCS.
    pub bytes: u64,
}

impl Count {
    /// The sum of two counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

/// One client's accounts in one direction.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pipe {
    /// Arrived.
    pub received: Count,
    /// Made beside what arrived.
    pub duplicated: Count,
    /// Handed to the egress port.
    pub sent: Count,
    /// Dropped, by reason.
    pub dropped: BTreeMap<String, Count>,
    /// In the queue and the delay line.
    pub held: Count,
    /// Of these, in the queue.
    pub queue: Count,
    /// High-water mark of the queue.
    pub queue_max_bytes: u64,
}

impl Pipe {
    /// What was dropped for this reason.
    #[must_use]
    pub fn dropped_for(&self, reason: &str) -> Count {
        self.dropped.get(reason).copied().unwrap_or_default()
    }

    /// What was dropped, whatever the reason.
    #[must_use]
    pub fn dropped_all(&self) -> Count {
        self.dropped.values().fold(Count::default(), |sum, &c| sum.plus(c))
    }

    /// The reasons for which something was dropped.
    #[must_use]
    pub fn reasons(&self) -> Vec<&str> {
        self.dropped.iter().filter(|(_, c)| c.packets > 0).map(|(r, _)| r.as_str()).collect()
    }

    /// Whether received + duplicated = sent + dropped + held, in packets and in bytes.
    #[must_use]
    pub fn conserved(&self) -> bool {
        self.received.plus(self.duplicated) == self.sent.plus(self.dropped_all()).plus(self.held)
    }
}

/// One client's accounts.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Client {
    /// An address, `default` or `bypass`.
    pub client: String,
    /// Towards the client.
    #[serde(default)]
    pub forward: Pipe,
    /// From the client.
    #[serde(default, rename = "return")]
    pub back: Pipe,
}

/// One port's accounts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Port {
    /// `wan` or `client`.
    pub name: String,
    /// Frames that came in.
    pub received: Count,
    /// Frames that left.
    pub sent: Count,
    /// Lost before the emulator saw them.
    pub missed: u64,
    /// Lost after the emulator sent them.
    pub transmit_dropped: u64,
    /// On their way to the driver.
    pub staged: u64,
    /// With a damaged or cut IP header.
    pub malformed: u64,
    /// `up` or `down`, if the port tells.
    pub link: Option<String>,
}

/// How late packets left.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lateness {
    /// Packets.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Greatest.
    pub max: u64,
}

/// The emulator's own word on conservation, over all clients and directions.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Conservation {
    /// Whether it holds in every pipe.
    pub exact: bool,
}

/// A snapshot.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// The instant of the snapshot, since the dataplane's start.
    pub time_ns: u64,
    /// Of the configuration in force.
    pub generation: u64,
    /// By client.
    pub clients: Vec<Client>,
    /// By port.
    pub ports: Vec<Port>,
    /// Since the last mark.
    pub lateness_ns: Lateness,
    /// The longest time between two turns of the worker since the last mark.
    pub stall_max_ns: u64,
    /// Lost by the emulator's own fault.
    pub emulator_drops: u64,
    /// The emulator's own sum.
    pub conservation: Conservation,
}

/// Sums over all clients and directions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Arrived.
    pub received: Count,
    /// Made beside what arrived.
    pub duplicated: Count,
    /// Handed on.
    pub sent: Count,
    /// Dropped.
    pub dropped: Count,
    /// Held.
    pub held: Count,
    /// Whether received + duplicated = sent + dropped + held in every single pipe.
    pub exact: bool,
}

impl Stats {
    /// Reads a snapshot.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(json: &str) -> Result<Self> {
        serde_json::from_str(json)
            .map_err(|e| Error::parse("the statistics", format!("{e}: {json}")))
    }

    /// A client's accounts.
    ///
    /// # Errors
    /// If the client has none.
    pub fn client(&self, name: &str) -> Result<&Client> {
        self.clients.iter().find(|c| c.client == name).ok_or_else(|| {
            let known: Vec<_> = self.clients.iter().map(|c| c.client.as_str()).collect();
            Error::parse("the statistics", format!("no client {name} among {known:?}"))
        })
    }

    /// A port's accounts.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn port(&self, name: &str) -> Result<&Port> {
        self.ports
            .iter()
            .find(|p| p.name == name)
            .ok_or_else(|| Error::parse("the statistics", format!("no port {name}")))
    }

    /// Both pipes of all clients.
    pub fn pipes(&self) -> impl Iterator<Item = (&str, &str, &Pipe)> {
        self.clients.iter().flat_map(|c| {
            [(c.client.as_str(), "forward", &c.forward), (c.client.as_str(), "return", &c.back)]
        })
    }

    /// The sums, made here and not by the emulator.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let start = Totals { exact: true, ..Totals::default() };
        self.pipes().fold(start, |sum, (_, _, pipe)| Totals {
            received: sum.received.plus(pipe.received),
            duplicated: sum.duplicated.plus(pipe.duplicated),
            sent: sum.sent.plus(pipe.sent),
            dropped: sum.dropped.plus(pipe.dropped_all()),
            held: sum.held.plus(pipe.held),
            exact: sum.exact && pipe.conserved(),
        })
    }

    /// The pipes whose accounts do not add up, in words.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.pipes()
            .filter(|(_, _, pipe)| !pipe.conserved())
            .map(|(client, direction, pipe)| {
                format!("t={} ns {client} {direction}: {pipe:?}", self.time_ns)
            })
            .collect()
    }

    /// What the emulator says of itself: to be read before its measurements are.
    #[must_use]
    pub fn verdict(&self) -> String {
        let late = self.lateness_ns;
        let ports: Vec<String> = self
            .ports
            .iter()
            .map(|p| {
                format!("{} missed {} transmit_dropped {}", p.name, p.missed, p.transmit_dropped)
            })
            .collect();
        let overload: u64 = self.pipes().map(|(_, _, p)| p.dropped_for("overload").packets).sum();
        let blame = if self.emulator_drops > 0 {
            "THE EMULATOR ITSELF LOST PACKETS, its measurements do not count: "
        } else {
            ""
        };
        format!(
            "{blame}emulator_drops {}, overload {overload}, {}; lateness of {} packets: p50 {} µs, \
             p99 {} µs, p99.9 {} µs, max {} µs",
            self.emulator_drops,
            ports.join(", "),
            late.count,
            late.p50 / 1000,
            late.p99 / 1000,
            late.p999 / 1000,
            late.max / 1000
        )
    }
}

/// A snapshot and when this process read it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When it was read.
    pub read_at: Instant,
    /// The snapshot.
    pub stats: Stats,
}

#[derive(Debug, Default)]
struct Collected {
    samples: Vec<Sample>,
    unreadable: Option<String>,
}

/// `linkctl stats --watch` in the background.
#[derive(Debug)]
pub struct Watch {
    process: Process,
    collected: Arc<Mutex<Collected>>,
}

impl Watch {
    /// Starts it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(linkctl: &Linkctl, interval: Duration) -> Result<Self> {
        let collected = Arc::<Mutex<Collected>>::default();
        let sink = Arc::clone(&collected);
        let interval = format!("{}ms", interval.as_millis());
        let process = Process::spawn_reading(
            linkctl.command(&["stats", "--watch", &interval]),
            Box::new(move |line| {
                let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                match Stats::read(line) {
                    Ok(stats) => sink.samples.push(Sample { read_at: Instant::now(), stats }),
                    Err(e) => sink.unreadable = Some(e.to_string()),
                }
            }),
        )?;
        Ok(Self { process, collected })
    }

    /// The newest snapshot, if there is one.
    #[must_use]
    pub fn latest(&self) -> Option<Sample> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner).samples.last().cloned()
    }

    /// Ends it and takes its samples.
    ///
    /// # Errors
    /// If there are none, or a line that is none.
    pub fn finish(mut self) -> Result<Vec<Sample>> {
        let died = self.process.ended();
        self.process.stop()?;
        let collected =
            std::mem::take(&mut *self.collected.lock().unwrap_or_else(PoisonError::into_inner));
        match (collected.unreadable, died) {
            (Some(e), _) => Err(Error::parse("`linkctl stats --watch`", e)),
            (None, Some(status)) => Err(Error::Command {
                command: "linkctl stats --watch".to_owned(),
                outcome: format!("{status} before it was stopped"),
                stderr: self.process.stderr(),
            }),
            (None, None) if collected.samples.is_empty() => {
                Err(Error::parse("`linkctl stats --watch`", "no samples"))
            }
            (None, None) => Ok(collected.samples),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Stats;

    const JSON: &str = r#"{"time_ns":5,"utc":"2026-01-01T00:00:00Z","generation":2,"clients":[
        {"client":"10.77.0.10","forward":{"received":{"packets":3,"bytes":300},
        "sent":{"packets":1,"bytes":100},"dropped":{"aqm":{"packets":1,"bytes":100}},
        "held":{"packets":1,"bytes":100},"queue":{"packets":1,"bytes":100},"queue_max_bytes":200},
        "return":{"received":{"packets":1,"bytes":60},"sent":{"packets":0,"bytes":0},"dropped":{},
        "held":{"packets":0,"bytes":0},"queue":{"packets":0,"bytes":0},"queue_max_bytes":0}}],
        "ports":[],"lateness_ns":{"count":1,"p50":1,"p99":2,"p999":3,"max":4},
        "memory":{},"emulator_drops":0,"conservation":{"exact":false}}"#;

    #[test]
    fn a_packet_that_no_account_holds_is_found() {
        let stats = Stats::read(JSON).expect("this is a snapshot");
        let client = stats.client("10.77.0.10").expect("it is there");
        assert!(client.forward.conserved());
        assert_eq!(client.forward.reasons(), ["aqm"]);
        assert!(!client.back.conserved());
        assert!(!stats.totals().exact);
        assert_eq!(stats.violations().len(), 1);
        // One that is made beside it and held nowhere is as well.
        let made = JSON.replace(
            "\"dropped\":{},",
            "\"duplicated\":{\"packets\":1,\"bytes\":60},\"dropped\":{},",
        );
        let stats = Stats::read(&made).expect("this is a snapshot");
        assert_eq!(stats.totals().duplicated.packets, 1);
        assert!(!stats.client("10.77.0.10").expect("it is there").back.conserved());
        let made = made.replace(
            "\"sent\":{\"packets\":0,\"bytes\":0}",
            "\"sent\":{\"packets\":2,\"bytes\":120}",
        );
        let stats = Stats::read(&made).expect("this is a snapshot");
        assert!(stats.client("10.77.0.10").expect("it is there").back.conserved());
        assert!(stats.totals().exact);
        assert!(stats.violations().is_empty());
    }
}
