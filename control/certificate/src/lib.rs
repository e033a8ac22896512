// SPDX-License-Identifier: Apache-2.0
//! The certificate of a run: was the emulator itself ever the bottleneck?
//!
//! A run is what happened since the last mark. Each criterion compares a figure of it with a
//! limit; the verdict is that all of them hold. Pure: from a snapshot of the statistics and
//! limits, nothing else. Times are in nanoseconds, sizes in bytes.

mod limits;
mod remedy;

pub use limits::{EMULATOR_DROPS, MEMORY_PERCENT, PACKETS_SENT};

use limits::Chosen;
use proto::linkemu::v1::{
    Certificate, Criterion, GetCertificateRequest, Memory, Span, Stats, SwitchPortLoss,
};
use units::counted;
use view::{size, time};

/// There is no run to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the dataplane does not say since when its figures are: it is an older one")]
pub struct NoSpan;

/// The criterion of a run without packets.
const PACKETS: &str = "packets";
/// Unit of times.
pub const NS: &str = "ns";

/// A figure in the unit of a criterion, for people.
#[must_use]
pub fn figure(unit: &str, value: u64) -> String {
    match unit {
        "packets" => counted(value, "packet", "packets"),
        NS => time(value),
        "bytes" => size(value),
        "pipes" => counted(value, "pipe off", "pipes off"),
        "changes" => counted(value, "change", "changes"),
        "faults" => counted(value, "fault", "faults"),
        unit => format!("{value} {unit}"),
    }
}

/// "at most 0 packets".
#[must_use]
pub fn bound(of: &Criterion) -> String {
    let bound = if of.at_least { "at least" } else { "at most" };
    format!("{bound} {}", figure(&of.unit, of.limit))
}

/// "emulator_drops 3 packets, at most 0 packets"; with places "switch_to_hosts 7 packets, at most 0 packets
/// (lost at the switch's egress: 7 at port 3)".
fn text(of: &Criterion) -> String {
    let text = format!("{} {}, {}", of.name, figure(&of.unit, of.value), bound(of));
    if of.places.is_empty() {
        return text;
    }
    let place = |of: &SwitchPortLoss| format!("{} at port {}", of.packets, of.port);
    let places: Vec<_> = of.places.iter().map(place).collect();
    format!("{text} (lost at the switch's egress: {})", places.join(", "))
}

/// Criteria that do not hold.
pub fn failed(certificate: &Certificate) -> impl Iterator<Item = &Criterion> {
    certificate.criteria.iter().filter(|c| !c.holds)
}

/// Judges the run of a snapshot by the limits of a request.
///
/// # Errors
/// If the snapshot does not say since when it is.
pub fn judge(stats: &Stats, limits: &GetCertificateRequest) -> Result<Certificate, NoSpan> {
    let span = stats.span.clone().ok_or(NoSpan)?;
    let changes = stats.generation.saturating_sub(span.generation);
    let chosen = Chosen::new(limits, span.tolerance.as_ref());
    let criteria = criteria(stats, &span, changes, &chosen);
    Ok(Certificate {
        holds: criteria.iter().all(|c| c.holds),
        summary: summary(&criteria).to_owned(),
        until_ns: stats.time_ns,
        until_utc: stats.utc,
        generation: stats.generation,
        changes,
        remedies: remedy::all(&criteria, &span, stats.time_ns),
        criteria,
        lateness: stats.lateness,
        stall_max_ns: stats.stall_max_ns,
        memory: stats.memory,
        workers: stats.workers.clone(),
        conservation: stats.conservation,
        remarks: remarks(&span),
        span: Some(span),
    })
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

fn criteria(stats: &Stats, span: &Span, changes: u64, limits: &Chosen) -> Vec<Criterion> {
    let drops = [span.overload, span.missed, span.transmit_dropped, span.unconfirmed];
    let drops = drops.into_iter().fold(0, u64::saturating_add);
    let off = stats.unbalanced() as u64;
    let (lateness, memory) = (stats.lateness(), fullest(stats));
    let percent = u128::from(limits.memory_percent);
    let room = u64::try_from(u128::from(memory.capacity_bytes) * percent / 100).unwrap_or(u64::MAX);
    let mut criteria = vec![
        at_least(PACKETS, span.sent().packets, limits.packets, PACKETS),
        at_most("emulator_drops", drops, limits.emulator_drops, "packets"),
        at_most("lateness_p99", lateness.p99_ns, limits.lateness_p99_ns, NS),
        at_most("stall", stats.stall_max_ns, limits.stall_ns, NS),
        at_most("lateness_max", lateness.max_ns, limits.stall_ns, NS),
        at_most("memory", memory.used_max_bytes, room, "bytes"),
        at_most("conservation", off, 0, "pipes"),
        at_most("port_faults", span.port_faults, 0, "faults"),
        at_most("unplaced", span.unplaced, 0, "packets"),
    ];
    if let Some(switch) = &span.switch {
        let gaps = u64::from(!switch.is_whole);
        let at = |to_hosts: bool| {
            let here = switch.lost_at_egress.iter().filter(|loss| loss.to_hosts == to_hosts);
            here.copied().collect::<Vec<_>>()
        };
        let lost =
            |name, packets, places| Criterion { places, ..at_most(name, packets, 0, "packets") };
        criteria.extend([
            at_most("switch_gaps", gaps, 0, "faults"),
            lost("switch_to_box", switch.lost_to_box, at(false)),
            at_most("switch_from_box", switch.lost_from_box, 0, "packets"),
            lost("switch_to_hosts", switch.lost_to_hosts, at(true)),
            at_most("switch_excess_p99", switch.excess_p99_ns, limits.lateness_p99_ns, NS),
            // A stall of a worker makes a frame late by as much.
            at_most("switch_excess_max", switch.excess_max_ns, limits.stall_ns, NS),
            at_most("switch_early", switch.early, 0, "packets"),
            at_most("switch_drops", switch.dropped, 0, "packets"),
            at_most("switch_entries", switch.foreign_changes, 0, "changes"),
        ]);
        let stall = switch.stall_max_ns;
        criteria.extend(stall.map(|ns| at_most("switch_stall", ns, limits.stall_ns, NS)));
    }
    if let Some(boxes) = &span.boxes {
        let gaps = boxes.gaps.len() as u64;
        criteria.push(at_most("boxes", gaps, 0, "faults"));
    }
    criteria.extend(limits.changes.map(|most| at_most("changes", changes, most, "changes")));
    for criterion in &mut criteria {
        criterion.reason = limits.reason(&criterion.name).to_owned();
        criterion.text = text(criterion);
    }
    criteria
}

/// The memory of the worker that had the least left, in proportion.
fn fullest(stats: &Stats) -> Memory {
    let share = |m: &Memory| m.used_max_bytes as f64 / m.capacity_bytes.max(1) as f64;
    let workers = stats.workers.iter().map(|worker| worker.memory());
    workers.max_by(|a, b| share(a).total_cmp(&share(b))).unwrap_or(stats.memory())
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

fn at_most(name: &str, value: u64, limit: u64, unit: &str) -> Criterion {
    let (name, unit) = (name.to_owned(), unit.to_owned());
    Criterion { name, value, limit, unit, holds: value <= limit, ..Default::default() }
}

fn at_least(name: &str, value: u64, limit: u64, unit: &str) -> Criterion {
    Criterion { at_least: true, holds: value >= limit, ..at_most(name, value, limit, unit) }
}

#[cfg(test)]
mod tests;
