// SPDX-License-Identifier: Apache-2.0
//! How late packets may be before it shows on a link.
//!
//! The emulator may be late by so little that neither the link's own variation nor its length lets a host
//! tell. Two limits follow from the profile, each the largest of what these reasons allow:
//!
//! | reason | 99th percentile of lateness | stall, and lateness of one packet |
//! |---|---|---|
//! | any link: the strict limits | [`LATENESS`] | [`STALL`] |
//! | the shortest round trip | one part in [`ROUND_TRIP_PARTS`] | one part in [`HYSTART_PARTS`], at most [`HYSTART_MOST`] |
//! | the link delays each packet differently | one part in [`SPREAD_PARTS`] of the spread | the spread |
//!
//! The round trip is that of a short packet on an idle link: estimates of a sender over a round trip are wrong
//! by at most the same share. A rise of the round trip by more than HyStart's threshold (RFC 9406, section 4.2)
//! can end slow start. The spread is the wider of both directions, of what changes from packet to packet: the
//! time slot, and the body of the delay, from its 10th to its 90th percentile, if it changes within
//! [`FAST`]. Excursions, reconfigurations and traces are episodes that an experiment is about, not noise.
//!
//! A stall is never longer than [`STALL_MOST`], half of Linux' least retransmission timeout, and, where that
//! is more than [`STALL`], than half of what a queue can hold: what arrives in a stall arrives at once
//! after it. Times are in nanoseconds.

use crate::format_duration;
use proto::linkemu::v1 as pb;

const MS: u64 = 1_000_000;
/// Strict limit of the 99th percentile of lateness.
pub const LATENESS: u64 = MS;
/// Strict limit of a stall.
pub const STALL: u64 = 10 * MS;

const ROUND_TRIP_PARTS: u64 = 100;
const SPREAD_PARTS: u64 = 10;
/// RFC 9406, section 4.2: MIN_RTT_DIVISOR and MAX_RTT_THRESH. MIN_RTT_THRESH, 4 ms, is less than [`STALL`].
const HYSTART_PARTS: u64 = 8;
const HYSTART_MOST: u64 = 16 * MS;
/// Half of TCP_RTO_MIN (include/net/tcp.h of Linux).
const STALL_MOST: u64 = 100 * MS;
/// A delay that is kept for longer is constant for a flow.
const FAST: u64 = 1_000 * MS;
/// The shortest Ethernet frame, without FCS.
const SHORT_BITS: u64 = 60 * 8;

/// A limit in nanoseconds and its reason.
type Reasoned = (u64, String);

/// The limits of a run over this link.
#[must_use]
pub fn tolerance(profile: &pb::Profile) -> pb::Tolerance {
    let pipes = [("forward", &profile.forward_pipe), ("return", &profile.return_pipe)];
    let pipes = || pipes.iter().filter_map(|(name, pipe)| Some((*name, pipe.as_ref()?)));
    let round_trip = pipes().map(|(_, pipe)| least_delay(pipe)).fold(0, u64::saturating_add);
    let spread = pipes().filter_map(|(name, pipe)| spread(name, pipe)).max_by_key(|it| it.0);
    let strict = strict_tolerance("the strict limit: its delay is short and constant");

    let mut lateness = (strict.lateness_ns, strict.lateness_reason);
    let mut stall = (strict.stall_ns, strict.stall_reason);
    let told = rounded(round_trip);
    raise(&mut lateness, round_trip / ROUND_TRIP_PARTS, || {
        format!("{} % of its round trip of {told}", 100 / ROUND_TRIP_PARTS)
    });
    raise(&mut stall, (round_trip / HYSTART_PARTS).min(HYSTART_MOST), || {
        format!("more can end slow start on its round trip of {told} (HyStart, RFC 9406)")
    });
    if let Some((width, what)) = &spread {
        raise(&mut lateness, width / SPREAD_PARTS, || {
            format!("{} % of {what}", 100 / SPREAD_PARTS)
        });
        raise(&mut stall, *width, || format!("a packet can be delayed as much by {what}"));
    }
    lower(&mut stall, STALL_MOST, || "half of TCP's least retransmission timeout, 200 ms".into());
    for (name, held) in pipes().filter_map(|(name, pipe)| Some((name, queue_holds(pipe)?))) {
        lower(&mut stall, (held / 2).max(STALL), || {
            format!("half of what the {name} queue can hold, {}", rounded(held))
        });
    }
    lower(&mut lateness, stall.0, || stall.1.clone());
    // Links of several profiles can have been current in a run.
    let of_link = |reason: String| format!("{}: {reason}", profile.name);
    pb::Tolerance {
        lateness_ns: lateness.0,
        lateness_reason: of_link(lateness.1),
        stall_ns: stall.0,
        stall_reason: of_link(stall.1),
    }
}

/// The strict limits, for any link.
#[must_use]
pub fn strict_tolerance(reason: &str) -> pb::Tolerance {
    pb::Tolerance {
        lateness_ns: LATENESS,
        lateness_reason: reason.to_owned(),
        stall_ns: STALL,
        stall_reason: reason.to_owned(),
    }
}

/// The stricter one of each limit.
#[must_use]
pub fn strictest(a: pb::Tolerance, b: &pb::Tolerance) -> pb::Tolerance {
    let mut least = a;
    if b.lateness_ns < least.lateness_ns {
        (least.lateness_ns, least.lateness_reason) = (b.lateness_ns, b.lateness_reason.clone());
    }
    if b.stall_ns < least.stall_ns {
        (least.stall_ns, least.stall_reason) = (b.stall_ns, b.stall_reason.clone());
    }
    least
}

fn raise(limit: &mut Reasoned, to: u64, reason: impl FnOnce() -> String) {
    if to > limit.0 {
        *limit = (to, reason());
    }
}

fn lower(limit: &mut Reasoned, to: u64, reason: impl FnOnce() -> String) {
    if to < limit.0 {
        *limit = (to, reason());
    }
}

/// The least delay of a short packet in one direction.
fn least_delay(pipe: &pb::Pipe) -> u64 {
    let base = pipe.delay.as_ref().map_or(0, |delay| delay.base_ns);
    let serialization = highest_rate(pipe).map_or(0, |rate| SHORT_BITS * 1_000_000_000 / rate);
    base.saturating_add(serialization)
}

/// The highest rate of a pipe, bit/s. `None`: unlimited or unknown.
fn highest_rate(pipe: &pb::Pipe) -> Option<u64> {
    let trace = pipe.rate_trace.iter().flat_map(|trace| &trace.rates_bps).copied().max();
    pipe.rate_bps.or(trace).filter(|rate| *rate > 0)
}

/// The time in which the link sends a full queue; none without a rate.
fn queue_holds(pipe: &pb::Pipe) -> Option<u64> {
    let bits = u128::from(pipe.queue.as_ref()?.limit_bytes) * 8;
    let ns = bits * 1_000_000_000 / u128::from(highest_rate(pipe)?);
    Some(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// How much the delay differs from packet to packet in one direction, and by what.
fn spread(name: &str, pipe: &pb::Pipe) -> Option<Reasoned> {
    let delay = pipe.delay.as_ref()?;
    let slot = (delay.slot_ns, format!("the {name} time slot of {}", rounded(delay.slot_ns)));
    let body = delay.body.as_ref().filter(|body| body.correlation_ns <= FAST).map(|body| {
        let quantile = |tenths| quantile(&body.quantiles_ns, tenths);
        let width = quantile(9).saturating_sub(quantile(1));
        let what = format!(
            "the spread of the {name} delay, {} from its 10th to its 90th percentile",
            rounded(width)
        );
        (width, what)
    });
    let superframe = pipe.access.as_ref().map_or(0, |access| access.superframe_ns);
    let superframe = (superframe, format!("the {name} superframe of {}", rounded(superframe)));
    [Some(slot), Some(superframe), body]
        .into_iter()
        .flatten()
        .filter(|it| it.0 > 0)
        .max_by_key(|it| it.0)
}

/// A quantile in tenths, with linear interpolation, of values at equally spaced probabilities.
fn quantile(values: &[u64], tenths: u64) -> u64 {
    let Some(last) = values.len().checked_sub(1) else { return 0 };
    let at = last as u64 * tenths;
    let place = usize::try_from(at / 10).unwrap_or(last);
    let [low, high] = [place, (place + 1).min(last)].map(|at| values.get(at).copied().unwrap_or(0));
    low + high.saturating_sub(low) / 10 * (at % 10)
}

/// Three significant digits, for people.
fn rounded(ns: u64) -> String {
    let step = 10_u64.pow(ns.max(1).ilog10().saturating_sub(2));
    format_duration(ns.saturating_add(step / 2) / step * step)
}

#[cfg(test)]
mod tests;
