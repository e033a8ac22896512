// SPDX-License-Identifier: Apache-2.0
//! Statistics of the emulator, as `linkctl stats -o json` prints them, and a watcher that samples
//! them over time.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::linkctl::Linkctl;
use crate::pb;
pub use crate::pb::{
    ClientStats as Client, Conservation, Count, DropReason, Lateness, LinkState, PipeStats as Pipe,
    PortStats as Port,
};
use crate::process::Process;
use crate::suite::Certain;

#[derive(Clone, Debug)]
pub struct Stats(pb::Stats);

impl Deref for Stats {
    type Target = pb::Stats;

    fn deref(&self) -> &pb::Stats {
        &self.0
    }
}

impl Stats {
    pub fn read(json: &str) -> Result<Self> {
        let stats = proto::from_json(json.as_bytes());
        stats.map(Self).map_err(|e| Error::parse("the statistics", format!("{e}: {json}")))
    }

    /// Fails if there is no such client.
    pub fn client(&self, name: &str) -> Result<&Client> {
        self.clients.iter().find(|c| c.client == name).ok_or_else(|| {
            let known: Vec<_> = self.clients.iter().map(|c| c.client.as_str()).collect();
            Error::parse("the statistics", format!("no client {name} among {known:?}"))
        })
    }

    /// Fails if there is no such port.
    pub fn port(&self, name: &str) -> Result<&Port> {
        self.ports
            .iter()
            .find(|p| p.name == name)
            .ok_or_else(|| Error::parse("the statistics", format!("no port {name}")))
    }

    /// Packets of all pipes, of one counter.
    pub fn packets(&self, counter: impl Fn(&Pipe) -> Count) -> u64 {
        self.pipes().map(|(_, _, pipe)| counter(pipe).packets).sum()
    }

    /// Fails if a pipe violates conservation, or if the emulator reports that one does.
    pub fn conserved(&self) -> std::result::Result<(), Certain> {
        let violations = self.violations();
        if !violations.is_empty() {
            return Err(Certain(format!("packets are not conserved: {violations:#?}")));
        }
        if !self.conservation().exact {
            return Err(Certain("the emulator reports that packets are not conserved".to_owned()));
        }
        Ok(())
    }

    /// The pipes that do not satisfy received + duplicated + generated = sent + dropped + held.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.pipes()
            .filter(|(_, _, pipe)| !pipe.balances())
            .map(|(client, direction, pipe)| {
                format!("t={} ns {client} {direction}: {pipe:?}", self.time_ns)
            })
            .collect()
    }

    /// Losses and lateness of the emulator itself. If it lost packets, measurements do not count.
    #[must_use]
    pub fn verdict(&self) -> String {
        let late = self.lateness();
        let ports: Vec<String> = self
            .ports
            .iter()
            .map(|p| {
                format!("{} missed {} transmit_dropped {}", p.name, p.missed, p.transmit_dropped)
            })
            .collect();
        let overload = self.packets(|p| p.dropped_for(DropReason::Overload));
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
            late.p50_ns / 1000,
            late.p99_ns / 1000,
            late.p999_ns / 1000,
            late.max_ns / 1000
        )
    }
}

/// Reasons for which a pipe dropped packets.
pub fn drops(pipe: &Pipe) -> impl Iterator<Item = (&'static str, Count)> {
    let all = DropReason::ALL.map(|reason| (reason.word(), pipe.dropped_for(reason)));
    all.into_iter().filter(|(_, count)| count.packets > 0)
}

/// A snapshot and when this process read it.
#[derive(Clone, Debug)]
pub struct Sample {
    pub read_at: Instant,
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

    /// Ends it and returns its samples.
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
