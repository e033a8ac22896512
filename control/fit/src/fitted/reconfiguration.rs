// SPDX-License-Identifier: Apache-2.0
//! The reconfigurations of both pipes: the levels in the direction that varies, outages at boundaries
//! in the direction of the losses.

use super::Measured;
use super::notes::{LIKELIHOOD, Notes, nanos, rounded};
use super::options::{Direction, Options};
use crate::delay::body::quantile;
use crate::interval::Interval;
use crate::loss::AtBoundaries;
use crate::numeric::Z_95;
use crate::period::{Levels, Period};
use profile::{OUTAGE_DURATION_NS, format_duration};
use proto::linkemu::v1 as pb;

const LOCATED: &str = "scan statistic, line through the boundaries";
const ORDER: &str = "order statistics";
/// Periods that divide a minute count from full minutes.
const MINUTE_NS: u64 = 60_000_000_000;

/// A periodic reconfiguration of a link.
#[derive(Clone, Debug)]
pub struct Reconfigured {
    pub period: Period,
    /// The levels of its periods; `None` if they are too few.
    pub levels: Option<Levels>,
    /// Outages at its boundaries; `None` if losses are not more frequent there.
    pub at_boundaries: Option<AtBoundaries>,
}

/// Adds the reconfiguration to the pipes.
pub(super) fn reconfigure(
    found: &Reconfigured,
    measured: &Measured<'_>,
    options: &Options,
    forward: &mut pb::Pipe,
    back: &mut pb::Pipe,
    notes: &mut Notes,
) {
    let Reconfigured { period, levels, at_boundaries } = found;
    let (clock, phase) = clock(period, measured.first_utc_ns);
    notes.time("reconfiguration.period".into(), period.length, LOCATED);
    let of = match clock {
        pb::PeriodClock::Utc => "from full minutes of UTC",
        _ => "from the first probe",
    };
    notes.time(format!("reconfiguration.phase, {of}"), phase, LOCATED);
    if clock == pb::PeriodClock::Start {
        notes.unidentified.push(
            "reconfiguration: the phase counts from the first probe, for the log has no wall-clock \
             time or the period does not divide a minute"
                .into(),
        );
    }
    let empty = pb::Reconfiguration {
        period_ns: rounded(period.length.value),
        phase_ns: rounded(phase.value),
        clock: clock as i32,
        values: pb::ValueOrder::Drawn as i32,
        ..pb::Reconfiguration::default()
    };
    if let Some(levels) = levels {
        let varying = match options.delay_in {
            Direction::Forward => &mut *forward,
            Direction::Return | Direction::Both => &mut *back,
        };
        let mut of = empty.clone();
        if levels.listed.is_some() {
            of.values = pb::ValueOrder::Listed as i32;
        }
        let delays = levels.listed.as_ref().unwrap_or(&levels.delays);
        of.delays_ns = delays.iter().map(|delay| rounded(*delay)).collect();
        varying.reconfiguration = Some(of);
        for (name, p) in [("median", 0.5), ("p90", 0.9)] {
            let value = of_levels(&levels.delays, levels.periods, p);
            notes.time(format!("reconfiguration.delays, {name}"), value, ORDER);
        }
        notes.unidentified.push(format!(
            "reconfiguration: the levels are those of {} periods{}; how the faster variation depends \
             on them is not in the profile",
            levels.periods,
            if levels.listed.is_some() { ", listed, for each depends on the one before" } else { "" }
        ));
    } else {
        notes.unidentified.push("reconfiguration: too few periods for a table of levels".into());
    }
    if let Some(losses) = at_boundaries {
        outages(losses, &empty, options.losses_in, forward, back, notes);
    }
}

/// The clock of the phase, and the phase.
fn clock(period: &Period, first_utc_ns: Option<u64>) -> (pb::PeriodClock, Interval) {
    let length_ns = nanos(period.length.value);
    let divides = length_ns > 0 && MINUTE_NS.is_multiple_of(length_ns);
    match first_utc_ns.filter(|_| divides) {
        Some(first) => {
            let first = (first % length_ns) as f64 / 1e9;
            let at = (first + period.phase.value).rem_euclid(period.length.value);
            let off = at - period.phase.value;
            (pb::PeriodClock::Utc, period.phase.map(|t| t + off))
        }
        None => (pb::PeriodClock::Start, period.phase),
    }
}

/// A quantile of the levels, with the interval that order statistics give.
fn of_levels(delays: &[f64], periods: usize, p: f64) -> Interval {
    let half = Z_95 * (p * (1.0 - p) / periods as f64).sqrt();
    let at = |p: f64| quantile(delays, p);
    Interval { value: at(p), low: at(p - half), high: at(p + half) }
}

/// Outages at the boundaries of the pipes that lose probes.
fn outages(
    losses: &AtBoundaries,
    empty: &pb::Reconfiguration,
    losses_in: Direction,
    forward: &mut pb::Pipe,
    back: &mut pb::Pipe,
    notes: &mut Notes,
) {
    // Two independent directions have one outage or more with the estimated probability.
    let each = match losses_in {
        Direction::Both => losses.probability.map(|p| 1.0 - (1.0 - p).sqrt()),
        Direction::Forward | Direction::Return => losses.probability,
    };
    let place = losses_in.place();
    notes.number(format!("{place}: reconfiguration.outage_probability"), each, LIKELIHOOD);
    notes.time(format!("{place}: reconfiguration.outage"), losses.duration, LIKELIHOOD);
    notes.unidentified.push(format!(
        "reconfiguration: losses within {} of a boundary, at {} of {} boundaries, are taken to be \
         outages that are centred there",
        format_duration(rounded(losses.near)),
        losses.with_losses,
        losses.boundaries
    ));
    for (pipe, direction) in [(forward, Direction::Forward), (back, Direction::Return)] {
        if losses_in == direction || losses_in == Direction::Both {
            let of = pipe.reconfiguration.get_or_insert_with(|| empty.clone());
            of.outage_probability = (each.value * 1e4).round() / 1e4;
            of.outage_ns = rounded(losses.duration.value).max(*OUTAGE_DURATION_NS.start());
            of.outage_law = pb::DurationLaw::Exponential as i32;
        }
    }
}
