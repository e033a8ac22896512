// SPDX-License-Identifier: Apache-2.0
//! The certificate of a run: was the emulator itself ever the bottleneck?
//!
//! A run is what happened since the last mark. Each criterion compares a figure of it with a
//! limit; the verdict is that all of them hold. Pure: from a snapshot of the statistics and
//! limits, nothing else. Times are in nanoseconds, sizes in bytes.

mod limits;
mod remedy;

pub use limits::Limits;

use limits::Chosen;
use serde::Serialize;
use std::fmt;
use units::counted;
use view::{Conservation, Lateness, Memory, PortLoss, Snapshot, Span, Worker, size, time};

/// There is no run to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the dataplane does not say since when its figures are: it is an older one")]
pub struct NoSpan;

/// The criterion of a run without packets.
const PACKETS: &str = "packets";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The emulator was not the bottleneck.
    Pass,
    /// It was, or may have been.
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Packets,
    Ns,
    Bytes,
    /// One client and direction each.
    Pipes,
    Changes,
    Faults,
}

impl Unit {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Ns => "ns",
            Self::Bytes => "bytes",
            Self::Pipes => "pipes",
            Self::Changes => "changes",
            Self::Faults => "faults",
        }
    }

    /// A figure in it, for people.
    #[must_use]
    pub fn figure(self, value: u64) -> String {
        match self {
            Self::Packets => counted(value, "packet", "packets"),
            Self::Ns => time(value),
            Self::Bytes => size(value),
            Self::Pipes => counted(value, "pipe off", "pipes off"),
            Self::Changes => counted(value, "change", "changes"),
            Self::Faults => counted(value, "fault", "faults"),
        }
    }
}

/// On which side of the limit a figure has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    AtLeast,
    AtMost,
}

/// A figure and its limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Criterion {
    pub name: &'static str,
    pub value: u64,
    /// On which side of the limit it has to be.
    pub bound: Bound,
    pub limit: u64,
    /// Unit of value and limit.
    pub unit: Unit,
    pub holds: bool,
    /// Reason for the limit.
    pub reason: String,
    /// Ports of the switch at whose egress packets were lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PortLoss>,
}

impl Criterion {
    /// "at most 0 packets".
    #[must_use]
    pub fn bound(&self) -> String {
        let bound = match self.bound {
            Bound::AtLeast => "at least",
            Bound::AtMost => "at most",
        };
        format!("{bound} {}", self.unit.figure(self.limit))
    }
}

/// "emulator_drops 3 packets, at most 0 packets"; with places "switch_to_hosts 7 packets, at most 0 packets
/// (lost at the switch's egress: 7 at port 3)".
impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, {}", self.name, self.unit.figure(self.value), self.bound())?;
        if !self.places.is_empty() {
            let place = |of: &PortLoss| format!("{} at port {}", of.packets, of.port);
            let places: Vec<_> = self.places.iter().map(place).collect();
            write!(f, " (lost at the switch's egress: {})", places.join(", "))?;
        }
        Ok(())
    }
}

/// A run, judged. Its JSON is a contract: keys stay.
#[derive(Clone, Debug, Serialize)]
pub struct Certificate {
    pub verdict: Verdict,
    /// The verdict as a sentence.
    pub summary: &'static str,
    /// Start of the run, and counters since.
    pub span: Span,
    /// The end of the run, on the dataplane's clock.
    pub until_ns: u64,
    /// The same by the wall clock.
    pub until_utc: Option<String>,
    /// Generation at the end of the run.
    pub generation: u64,
    /// Changes of the link during the run.
    pub changes: u64,
    pub criteria: Vec<Criterion>,
    /// Worst value of any worker, for each figure.
    pub lateness_ns: Lateness,
    /// The longest of all workers, and of the clock.
    pub stall_max_ns: u64,
    /// Over all workers.
    pub memory: Memory,
    pub workers: Vec<Worker>,
    pub conservation: Conservation,
    pub remarks: Vec<String>,
    /// What to change before the run is repeated; none if it passes.
    pub remedies: Vec<String>,
}

impl Certificate {
    /// Judges the run of a snapshot.
    ///
    /// # Errors
    /// If the snapshot does not say since when it is.
    pub fn new(snapshot: &Snapshot, limits: &Limits) -> Result<Self, NoSpan> {
        let span = snapshot.span.clone().ok_or(NoSpan)?;
        let changes = snapshot.generation.saturating_sub(span.generation);
        let chosen = Chosen::new(limits, span.tolerance.as_ref());
        let criteria = criteria(snapshot, &span, changes, &chosen);
        let verdict = if criteria.iter().all(|c| c.holds) { Verdict::Pass } else { Verdict::Fail };
        Ok(Self {
            verdict,
            summary: summary(&criteria),
            until_ns: snapshot.time_ns,
            until_utc: snapshot.utc.clone(),
            generation: snapshot.generation,
            changes,
            remedies: remedy::all(&criteria, &span, snapshot.time_ns),
            criteria,
            lateness_ns: snapshot.lateness_ns,
            stall_max_ns: snapshot.stall_max_ns,
            memory: snapshot.memory,
            workers: snapshot.workers.clone(),
            conservation: snapshot.conservation,
            remarks: remarks(&span),
            span,
        })
    }

    /// Criteria that do not hold.
    pub fn failed(&self) -> impl Iterator<Item = &Criterion> {
        self.criteria.iter().filter(|c| !c.holds)
    }
}

/// "the emulator was not the bottleneck".
fn summary(criteria: &[Criterion]) -> &'static str {
    let mut failed = criteria.iter().filter(|c| !c.holds);
    match (failed.next(), failed.next()) {
        (None, _) => "the emulator was not the bottleneck",
        (Some(only), None) if only.name == PACKETS && only.value == 0 => {
            "no packets were sent over the link, so that there is nothing to judge"
        }
        (Some(only), None) if only.name == PACKETS => {
            "too few packets were sent over the link for a verdict"
        }
        _ => "the emulator may have been the bottleneck",
    }
}

fn criteria(snapshot: &Snapshot, span: &Span, changes: u64, limits: &Chosen) -> Vec<Criterion> {
    let drops = [span.overload, span.missed, span.transmit_dropped, span.unconfirmed];
    let drops = drops.into_iter().fold(0, u64::saturating_add);
    let pipes = snapshot.clients.iter().flat_map(|client| [&client.forward, &client.r#return]);
    let off = pipes.filter(|pipe| !pipe.balances()).count() as u64;
    let memory = fullest(snapshot);
    let percent = u128::from(limits.memory_percent);
    let room = u64::try_from(u128::from(memory.capacity_bytes) * percent / 100).unwrap_or(u64::MAX);
    let mut criteria = vec![
        at_least(PACKETS, span.sent.packets, limits.packets, Unit::Packets),
        at_most("emulator_drops", drops, limits.emulator_drops, Unit::Packets),
        at_most("lateness_p99", snapshot.lateness_ns.p99, limits.lateness_p99_ns, Unit::Ns),
        at_most("stall", snapshot.stall_max_ns, limits.stall_ns, Unit::Ns),
        at_most("lateness_max", snapshot.lateness_ns.max, limits.stall_ns, Unit::Ns),
        at_most("memory", memory.used_max_bytes, room, Unit::Bytes),
        at_most("conservation", off, 0, Unit::Pipes),
        at_most("port_faults", span.port_faults, 0, Unit::Faults),
        at_most("unplaced", span.unplaced, 0, Unit::Packets),
    ];
    if let Some(switch) = &span.switch {
        let gaps = u64::from(!switch.is_whole);
        let at = |to_hosts: bool| {
            let here = switch.lost_at_egress.iter().filter(|loss| loss.to_hosts == to_hosts);
            here.copied().collect::<Vec<_>>()
        };
        let lost = |name, packets, places| Criterion {
            places,
            ..at_most(name, packets, 0, Unit::Packets)
        };
        criteria.extend([
            at_most("switch_gaps", gaps, 0, Unit::Faults),
            lost("switch_to_box", switch.lost_to_box, at(false)),
            at_most("switch_from_box", switch.lost_from_box, 0, Unit::Packets),
            lost("switch_to_hosts", switch.lost_to_hosts, at(true)),
            at_most("switch_excess_p99", switch.excess_p99_ns, limits.lateness_p99_ns, Unit::Ns),
            // A stall of a worker makes a frame late by as much.
            at_most("switch_excess_max", switch.excess_max_ns, limits.stall_ns, Unit::Ns),
            at_most("switch_early", switch.early, 0, Unit::Packets),
            at_most("switch_drops", switch.dropped, 0, Unit::Packets),
            at_most("switch_entries", switch.foreign_changes, 0, Unit::Changes),
        ]);
        let stall = switch.stall_max_ns;
        criteria.extend(stall.map(|ns| at_most("switch_stall", ns, limits.stall_ns, Unit::Ns)));
    }
    if let Some(boxes) = &span.boxes {
        let gaps = boxes.gaps.len() as u64;
        criteria.push(at_most("boxes", gaps, 0, Unit::Faults));
    }
    criteria.extend(limits.changes.map(|most| at_most("changes", changes, most, Unit::Changes)));
    for criterion in &mut criteria {
        criterion.reason = limits.reason(criterion.name).to_owned();
    }
    criteria
}

/// The memory of the worker that had the least left, in proportion.
fn fullest(snapshot: &Snapshot) -> Memory {
    let share = |m: &Memory| m.used_max_bytes as f64 / m.capacity_bytes.max(1) as f64;
    let workers = snapshot.workers.iter().map(|worker| worker.memory);
    workers.max_by(|a, b| share(a).total_cmp(&share(b))).unwrap_or(snapshot.memory)
}

fn remarks(span: &Span) -> Vec<String> {
    let mut remarks: Vec<&str> = Vec::new();
    if !span.marked {
        remarks.push(
            "no mark was set: this is all since the dataplane started; if there was one, the \
             dataplane has been started anew",
        );
    }
    if span.switch.as_ref().is_some_and(|switch| !switch.is_whole) {
        remarks.push(
            "the P4 switch did not answer during the whole run, or began to count after the box (linkd or \
             linkd-group was restarted, or the dataplane during the run): frames may have been lost between \
             hosts and box without a count",
        );
    }
    if span.switch.as_ref().is_some_and(|switch| switch.foreign_changes > 0) {
        remarks.push(
            "another one changed entries of the P4 switch: packets of that time may have been lost or impaired \
             otherwise; keep others from its P4Runtime service (a unix socket, or TLS)",
        );
    }
    if span.switch.as_ref().is_some_and(|switch| switch.is_whole && switch.stall_max_ns.is_none()) {
        remarks.push(
            "the P4 switch does not report for how long it stood still: frames that waited before it are not \
             known to be late",
        );
    }
    if span.lossy {
        remarks.push("a lossy link was in force: one that there is too little memory or time for");
    }
    let mut remarks: Vec<_> = remarks.into_iter().map(str::to_owned).collect();
    let gaps = span.boxes.iter().flat_map(|boxes| &boxes.gaps);
    remarks.extend(gaps.map(|name| {
        format!(
            "box {name} did not answer for a part of the run, or its dataplane ended: its clients were \
             down, and counts may be missing"
        )
    }));
    remarks
}

fn at_most(name: &'static str, value: u64, limit: u64, unit: Unit) -> Criterion {
    let (bound, holds) = (Bound::AtMost, value <= limit);
    Criterion { name, value, bound, limit, unit, holds, reason: String::new(), places: Vec::new() }
}

fn at_least(name: &'static str, value: u64, limit: u64, unit: Unit) -> Criterion {
    let (bound, holds) = (Bound::AtLeast, value >= limit);
    Criterion { name, value, bound, limit, unit, holds, reason: String::new(), places: Vec::new() }
}

#[cfg(test)]
mod tests;
