// SPDX-License-Identifier: Apache-2.0
//! Ramps: a value that goes to another one over a time, in steps.
//!
//! Step k of n comes after k/n of the time (with `every`: after k times that, and the last
//! one at the end of the time) and has the value there: linear, `from + (to − from) k/n`,
//! exponential, `from (to / from)^(k/n)`. The last one is exactly `to`. Whole quantities
//! (nanoseconds, bit/s, bytes) lose their fraction.

use crate::parts::Parts;
use profile::{PIPE_RATE_BPS, Part, Rate, format_duration, format_probability, format_size};
use proto::linkemu::v1 as pb;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knob {
    Rate,
    Delay,
    Slot,
    Queue,
    Loss,
}

/// The knobs as they are written.
pub(crate) const KNOBS: [(&str, Knob); 5] = [
    ("rate", Knob::Rate),
    ("delay.base", Knob::Delay),
    ("delay.slot", Knob::Slot),
    ("queue.limit", Knob::Queue),
    ("packet_loss", Knob::Loss),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Law {
    Linear,
    Exponential,
}

/// A ramp of one value, in one direction or both.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ramp {
    pub knob: Knob,
    pub forward: bool,
    pub back: bool,
    /// Without it, the current value.
    pub from: Option<Quantity>,
    pub to: Quantity,
    pub over_ns: u64,
    /// Values after `from`.
    pub steps: u64,
    /// Between two of them; without it the time is divided evenly.
    pub every_ns: Option<u64>,
    pub law: Law,
}

/// A value of a knob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Quantity {
    Whole(u64),
    Share(f64),
}

/// Why a ramp cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RampError {
    /// The link has no such value.
    #[error(
        "the {direction} {knob} in force is {in_force}, which no ramp can begin at: say what it \
         begins at (from)"
    )]
    NoValue { direction: &'static str, knob: &'static str, in_force: &'static str },
    /// An exponential ramp from nothing.
    #[error(
        "the {direction} {knob} in force is zero, and an exponential ramp needs more: say what it \
         begins at (from), or make it linear"
    )]
    FromZero { direction: &'static str, knob: &'static str },
}

impl Knob {
    pub fn name(self) -> &'static str {
        KNOBS.iter().find(|(_, knob)| *knob == self).map_or("", |(name, _)| name)
    }

    pub fn show(self, value: Quantity) -> String {
        match (self, value) {
            (_, Quantity::Share(p)) => format_probability(p),
            (Self::Rate, Quantity::Whole(bps)) => Rate::from_bps(Some(bps)).to_string(),
            (Self::Queue, Quantity::Whole(bytes)) => format_size(bytes),
            (_, Quantity::Whole(ns)) => format_duration(ns),
        }
    }

    /// The value of a pipe, or what there is instead.
    pub fn of(self, pipe: Option<&pb::Pipe>) -> Result<Quantity, &'static str> {
        let pipe = pipe.ok_or("none")?;
        let delay =
            |of: fn(&pb::Delay) -> u64| Ok(Quantity::Whole(pipe.delay.as_ref().map_or(0, of)));
        match self {
            Self::Rate if pipe.rate_trace.is_some() => Err("a trace"),
            Self::Rate => pipe.rate_bps.map(Quantity::Whole).ok_or("unlimited"),
            Self::Delay => delay(|delay| delay.base_ns),
            Self::Slot => delay(|delay| delay.slot_ns),
            Self::Queue => Ok(Quantity::Whole(pipe.queue.unwrap_or_default().limit_bytes)),
            Self::Loss => Ok(Quantity::Share(pipe.packet_loss)),
        }
    }

    /// The part of a pipe with a value.
    pub fn part(self, value: Quantity) -> Part {
        let mut pipe = pb::Pipe::default();
        let whole = match value {
            Quantity::Whole(n) => n,
            Quantity::Share(_) => 0,
        };
        let path = match self {
            Self::Rate => {
                pipe.rate_bps = Some(whole);
                "rate_bps"
            }
            Self::Delay => {
                pipe.delay = Some(pb::Delay { base_ns: whole, ..Default::default() });
                "delay.base_ns"
            }
            Self::Slot => {
                pipe.delay = Some(pb::Delay { slot_ns: whole, ..Default::default() });
                "delay.slot_ns"
            }
            Self::Queue => {
                pipe.queue = Some(pb::Queue { limit_bytes: whole, ..Default::default() });
                "queue.limit_bytes"
            }
            Self::Loss => {
                if let Quantity::Share(p) = value {
                    pipe.packet_loss = p;
                }
                "packet_loss"
            }
        };
        Part { pipe, paths: vec![path] }
    }
}

impl Quantity {
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Whole(0)) || matches!(self, Self::Share(p) if p <= 0.0)
    }

    fn as_f64(self) -> f64 {
        match self {
            Self::Whole(n) => n as f64,
            Self::Share(p) => p,
        }
    }
}

/// A ramp with a known first value.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    forward: Option<Quantity>,
    back: Option<Quantity>,
}

impl Ramp {
    /// Steps of the timeline: a stated beginning is one of them.
    pub fn points(&self) -> u64 {
        self.steps + u64::from(self.from.is_some())
    }

    /// After the ramp's beginning, of its step `k` from 0 (the stated beginning).
    pub fn after_ns(&self, k: u64) -> u64 {
        if k >= self.steps {
            return self.over_ns;
        }
        match self.every_ns {
            Some(every) => every.saturating_mul(k).min(self.over_ns),
            // Less than `over_ns`, so it fits.
            None => (u128::from(self.over_ns) * u128::from(k) / u128::from(self.steps)) as u64,
        }
    }

    /// Begins at the current value, unless a first value is given.
    pub fn begin(
        &self,
        forward: Option<&pb::Pipe>,
        back: Option<&pb::Pipe>,
    ) -> Result<Begun, RampError> {
        let begin = |chosen: bool, direction, pipe: Option<&pb::Pipe>| {
            if !chosen {
                return Ok(None);
            }
            let knob = self.knob.name();
            let from = match self.from {
                Some(from) => from,
                None => self.knob.of(pipe).map_err(|in_force| RampError::NoValue {
                    direction,
                    knob,
                    in_force,
                })?,
            };
            if self.law == Law::Exponential && from.is_zero() {
                return Err(RampError::FromZero { direction, knob });
            }
            Ok(Some(from))
        };
        Ok(Begun {
            forward: begin(self.forward, "forward", forward)?,
            back: begin(self.back, "return", back)?,
        })
    }

    /// The values of step `k`.
    pub fn parts(&self, begun: &Begun, k: u64) -> Parts {
        let part = |from: Option<Quantity>| Some(self.knob.part(self.value(from?, k)));
        Parts { forward: part(begun.forward), back: part(begun.back) }
    }

    fn value(&self, from: Quantity, k: u64) -> Quantity {
        if k >= self.steps {
            return self.to;
        }
        // The share of the way, exact in time: the last part may be shorter.
        let (done, all) = (self.after_ns(k), self.over_ns.max(1));
        let share = done as f64 / all as f64;
        let value = match (self.law, from, self.to) {
            (Law::Linear, Quantity::Whole(from), Quantity::Whole(to)) => {
                let way = i128::from(to) - i128::from(from);
                let value = i128::from(from) + way * i128::from(done) / i128::from(all);
                Quantity::Whole(u64::try_from(value).unwrap_or(0))
            }
            (Law::Linear, from, to) => {
                let (from, to) = (from.as_f64(), to.as_f64());
                Quantity::Share((from + (to - from) * share).clamp(from.min(to), from.max(to)))
            }
            (Law::Exponential, from, to) => {
                let whole = matches!(from, Quantity::Whole(_));
                let (from, to) = (from.as_f64(), to.as_f64());
                let value = from * (to / from).powf(share);
                let value = value.clamp(from.min(to), from.max(to));
                if whole { Quantity::Whole(value as u64) } else { Quantity::Share(value) }
            }
        };
        match (self.knob, value) {
            // On the way from or to "down": there are no lower rates.
            (Knob::Rate, Quantity::Whole(bps)) if bps > 0 => {
                Quantity::Whole(bps.max(*PIPE_RATE_BPS.start()))
            }
            (_, value) => value,
        }
    }
}
