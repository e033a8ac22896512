// SPDX-License-Identifier: Apache-2.0
//! The cost of a packet in a case: ours and the bare loop in turns, on one thread.
//!
//! Both see the same noise. The delay line is full before the first turn: 1.2 delays of virtual
//! time have passed. The conditions of each case are checked after that and at the end.

use std::collections::BTreeMap;

use emu::stats::{DropReason, PipeStats, Snapshot};
use emu::units::{Instant, NANOS_PER_SEC, Nanos};
use serde::Serialize;

use crate::case::{Case, Profile};
use crate::contender::{Ceiling, Ours};
use crate::cpu;
use crate::error::Error;
use crate::instructions::Counter;
use crate::spread::Spread;
use crate::stand::{Bench, buffer};

/// Relative tolerance of the held frames against rate × delay: outages drop frames.
const HELD_WITHIN: f64 = 0.04;

/// The least warm-up: caches, and the clients' first frames.
const WARM: Nanos = Nanos::from_millis(2);

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Repetitions of each contender.
    pub repetitions: usize,
    /// Frames in each.
    pub frames: u64,
}

/// Results of a case.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cost {
    pub case: String,
    pub sizes: String,
    pub profile: String,
    /// Delay, ms.
    pub delay_ms: f64,
    pub clients: u32,
    /// Whether both directions are loaded.
    pub both: bool,
    /// The bare loop, ns of processor time a packet.
    pub ceiling_ns: Spread,
    /// Ours, ns of processor time a packet.
    pub ours_ns: Spread,
    /// The difference of neighbouring repetitions.
    pub over_ns: Spread,
    /// Ours, million packets a second of processor time.
    pub mpps: f64,
    /// Instructions a packet, the bare loop's and ours, where the processor counts them.
    pub instructions: Option<[f64; 2]>,
    /// Frames held at the end of the warm-up, queues included.
    pub held: u64,
    /// Part of them in queues.
    pub queued: u64,
    /// Frames that rate × delay gives.
    pub expected: f64,
    /// Bytes of store and of kept buffers for each byte of frame held.
    pub bytes_per_byte: f64,
    /// Frames dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Deviations from the conditions of the case; empty if there are none.
    pub faults: Vec<String>,
}

/// Measures a case.
///
/// # Errors
/// If ports, pool or engine cannot be made.
pub fn measure(bench: &Bench, case: &Case, effort: Effort) -> Result<Cost, Error> {
    let mut ceiling = Ceiling::new(bench.open("bare", case, 0)?);
    let mut ours = Ours::open(bench, "ours", case)?;
    warm_up(&mut ours, case);
    ceiling.run(effort.frames / 10);
    let mut counter = Counter::open();
    let filled = ours.report().snapshot.clone();
    let mut faults = check_held(case, &filled);
    let (mut bare, mut own, mut over) = (Vec::new(), Vec::new(), Vec::new());
    let mut instructions = [Vec::new(), Vec::new()];
    for _ in 0..effort.repetitions {
        let mut one = |run: &mut dyn FnMut(u64) -> u64, counts: &mut Vec<f64>| {
            let (counted, start) = (counter.as_mut().and_then(Counter::read), cpu::thread_ns());
            let frames = run(effort.frames) as f64;
            let ns = (cpu::thread_ns() - start) as f64;
            if let (Some(from), Some(to)) = (counted, counter.as_mut().and_then(Counter::read)) {
                counts.push((to - from) as f64 / frames);
            }
            ns / frames
        };
        let a = one(&mut |n| ceiling.run(n), &mut instructions[0]);
        let b = one(&mut |n| ours.run(n), &mut instructions[1]);
        bare.push(a);
        own.push(b);
        over.push(b - a);
    }
    let report = ours.report();
    let last = report.snapshot.total();
    faults.extend(check_accounts(&last, &report.snapshot));
    let lost: u64 = report.egress[0].0.iter().map(|e| e.dropped).sum();
    if lost > 0 {
        faults.push(format!("the driver refused {lost} frames"));
    }
    let held = filled.total().held;
    let ours_ns = Spread::of(&own);
    Ok(Cost {
        case: case.to_string(),
        sizes: case.sizes.to_string(),
        profile: case.profile.to_string(),
        delay_ms: case.delay.0 as f64 / 1e6,
        clients: case.clients,
        both: case.both,
        ceiling_ns: Spread::of(&bare),
        ours_ns,
        over_ns: Spread::of(&over),
        mpps: 1e3 / ours_ns.median.max(f64::MIN_POSITIVE),
        instructions: (!instructions[0].is_empty())
            .then(|| instructions.map(|i| Spread::of(&i).median)),
        held: held.packets,
        queued: filled.total().queue.packets,
        expected: case.held(),
        bytes_per_byte: bytes(&filled, case) / held.bytes.max(1) as f64,
        dropped: dropped(&last),
        faults,
    })
}

/// Fills the delay line, gives every client some frames and queues some time to build up.
pub fn warm_up(ours: &mut Ours, case: &Case) {
    let queues = match case.profile {
        Profile::Viasat2 => NANOS_PER_SEC / 10,
        // What waited for the first grant has left.
        Profile::Access | Profile::Carrier => NANOS_PER_SEC / 50,
        Profile::Transparent | Profile::DelayOnly | Profile::Full => 0,
    };
    let clients = 15.0 * f64::from(case.clients) / case.pps() * NANOS_PER_SEC as f64;
    let delays = case.delay.0 * 12 / 10;
    ours.run_until(Instant((delays + queues).max(clients as u64) + WARM.0));
}

/// Bytes of store in use, and of buffers kept.
#[must_use]
pub fn bytes(snapshot: &Snapshot, case: &Case) -> f64 {
    snapshot.store_used as f64 + f64::from(snapshot.buffers) * buffer(case) as f64
}

pub(crate) fn check_held(case: &Case, filled: &Snapshot) -> Vec<String> {
    let mut faults = Vec::new();
    let total = filled.total();
    let (queued, expected) = (total.queue.packets as f64, case.held());
    let delayed = total.held.packets as f64 - queued;
    // Frames of the last delay are in the delay line or still in a queue. A burst more
    // or less is what a turn is.
    let slack = HELD_WITHIN * expected + 128.0;
    if delayed > expected + slack || delayed + queued < expected - slack {
        faults.push(format!("{delayed} frames in the delay line, and not {expected:.0}"));
    }
    let clients = filled.clients.iter().filter(|c| c.pipes.0[0].received.packets > 0).count();
    let missing = (case.clients as usize).saturating_sub(clients);
    if missing * 100 > case.clients as usize {
        faults.push(format!("only {clients} clients had frames"));
    }
    faults
}

pub(crate) fn check_accounts(total: &PipeStats, snapshot: &Snapshot) -> Vec<String> {
    let mut faults = Vec::new();
    for reason in [DropReason::Overload, DropReason::Limit, DropReason::Oversize] {
        let n = total.dropped[reason as usize].packets;
        if n > 0 {
            faults.push(format!("{n} frames dropped: {}", name(reason)));
        }
    }
    if !snapshot.is_conserved() {
        faults.push("the accounts do not add up".to_owned());
    }
    faults
}

/// Frames dropped, by reason, without those of none.
#[must_use]
pub fn dropped(total: &PipeStats) -> BTreeMap<String, u64> {
    let count = |r: DropReason| (name(r), total.dropped[r as usize].packets);
    DropReason::ALL.into_iter().map(count).filter(|(_, n)| *n > 0).collect()
}

fn name(reason: DropReason) -> String {
    format!("{reason:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::Sizes;

    #[test]
    fn partly_filled_delay_line_is_a_fault() {
        let case = Case::new(Sizes::Fixed(64), Profile::Full, 300, 1);
        let faults = check_held(&case, &Snapshot::default());
        assert!(faults[0].contains("0 frames in the delay line, and not 4464286"), "{faults:?}");
    }

    #[test]
    fn overload_is_a_fault_and_outage_is_not() {
        let mut total = PipeStats::default();
        total.dropped[DropReason::Outage as usize].packets = 5;
        assert_eq!(check_accounts(&total, &Snapshot::default()), Vec::<String>::new());
        total.dropped[DropReason::Overload as usize].packets = 1;
        assert_eq!(check_accounts(&total, &Snapshot::default()), ["1 frames dropped: overload"]);
        assert_eq!(dropped(&total).len(), 2);
    }
}
