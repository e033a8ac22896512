// SPDX-License-Identifier: Apache-2.0
//! Values that the user states in addition to a baseline.

use profile::{OUTAGE_DURATION_NS, OUTAGE_INTERVAL_NS, Profile, Rate, Violations};
use proto::linkemu::v1 as pb;
use std::path::Path;

/// Direction that measured losses or delays are attributed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    /// From the client.
    Return,
    /// Half to each direction.
    Both,
}

impl Direction {
    /// Beginning of the names of its parameters in a provenance.
    pub(super) const fn place(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Return => "return",
            Self::Both => "forward and return",
        }
    }
}

/// Returns the name of a file without its ending, in the characters of a profile's name.
#[must_use]
pub fn plain_name(path: &Path) -> String {
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let plain = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let name: String = plain.take(profile::NAME_CHARS).collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() { "fitted".into() } else { name }
}

/// Values that the user states because round trips do not determine them.
#[derive(Clone, Debug)]
pub struct Options {
    pub name: String,
    pub description: String,
    /// Rate, queue and framing towards the client: [`Capacity::pipe`].
    pub forward: pb::Pipe,
    /// Rate, queue and framing from the client.
    pub back: pb::Pipe,
    pub losses_in: Direction,
    /// Direction of the delay's body and excursions; [`Direction::Both`] counts as return.
    pub delay_in: Direction,
    /// Constant delay towards the client. Default: from the one-way delays if the log has them, else
    /// half of the base.
    pub forward_ns: Option<u64>,
    /// Duration of an isolated loss. Default: half of the probing interval.
    pub isolated_ns: Option<u64>,
    /// Duration of routine delay episodes, for published figures only: a log determines it. Default:
    /// half of the probing interval.
    pub routine_ns: Option<u64>,
    /// Duration of rare delay episodes, in nanoseconds. Default: from the largest round trips of
    /// spans, with a wide prior about half of the probing interval.
    pub rare_ns: Option<u64>,
}

impl Options {
    /// States nothing: no limit of the rate, losses in both directions, delay variation in the return
    /// direction.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            forward: Capacity::default().pipe(),
            back: Capacity::default().pipe(),
            losses_in: Direction::Both,
            delay_in: Direction::Return,
            forward_ns: None,
            isolated_ns: None,
            routine_ns: None,
            rare_ns: None,
        }
    }

    /// Checks the values against the rules of profiles, before a baseline is read.
    ///
    /// # Errors
    /// The broken rules. Their paths are those of a profile in which the isolated loss is
    /// `forward.outages[0]`, and the routine and the rare episodes are `forward.delay.excursions`.
    pub fn check(&self) -> Result<(), Violations> {
        let often = *OUTAGE_INTERVAL_NS.end();
        let law = pb::DurationLaw::Fixed as i32;
        let mut forward = self.forward.clone();
        let isolated = self.isolated_ns.into_iter();
        forward.outages = isolated
            .map(|duration_ns| pb::Outage { interval_ns: often, duration_ns, law })
            .collect();
        let excursions = [self.routine_ns, self.rare_ns].map(|duration_ns| pb::Excursion {
            interval_ns: often,
            duration_ns: duration_ns.unwrap_or(*OUTAGE_DURATION_NS.start()),
            ..pb::Excursion::default()
        });
        let (base_ns, excursions) = (self.forward_ns.unwrap_or(0), excursions.to_vec());
        forward.delay = Some(pb::Delay { base_ns, excursions, ..pb::Delay::default() });
        let stated = pb::Profile {
            name: self.name.clone(),
            description: self.description.clone(),
            forward_pipe: Some(forward),
            return_pipe: Some(self.back.clone()),
            ..pb::Profile::default()
        };
        Profile::try_from(stated).map(drop)
    }
}

/// Rate, queue and framing of one direction.
#[derive(Clone, Debug, Default)]
pub struct Capacity<'a> {
    /// Pipe of another profile to take them from. Default: no limit.
    pub like: Option<&'a pb::Pipe>,
    /// Rate in place of that pipe's.
    pub rate: Option<Rate>,
    /// Rate over time in place of both.
    pub trace: Option<pb::RateTrace>,
    /// Limit of the queue in bytes in place of that pipe's; other parameters of the queue stay.
    pub queue_bytes: Option<u64>,
}

impl Capacity<'_> {
    /// Returns a pipe with these parameters and without any that a baseline determines.
    #[must_use]
    pub fn pipe(self) -> pb::Pipe {
        let mut pipe = self.like.map_or_else(unlimited, capacity);
        if let Some(rate) = self.rate {
            (pipe.rate_bps, pipe.rate_trace) = (rate.bps(), None);
            if rate.bps().is_none() {
                pipe.access = None;
            }
        }
        if let Some(trace) = self.trace {
            (pipe.rate_bps, pipe.rate_trace, pipe.capacity) = (None, Some(trace), None);
            pipe.access = None;
        }
        if let Some(limit_bytes) = self.queue_bytes {
            pipe.queue.get_or_insert_default().limit_bytes = limit_bytes;
        }
        pipe
    }
}

/// Returns a pipe without a limit of the rate, in which no queue builds up.
fn unlimited() -> pb::Pipe {
    pb::Pipe {
        queue: Some(pb::Queue { limit_bytes: 1 << 20, ..Default::default() }),
        delay: Some(pb::Delay::default()),
        ..pb::Pipe::default()
    }
}

/// Copies the parameters that pings do not determine: rate, queue, framing, MTU, and how capacity is
/// requested.
fn capacity(pipe: &pb::Pipe) -> pb::Pipe {
    // All fields are named, so that a new one does not compile before it is decided upon.
    let pb::Pipe {
        rate_bps,
        rate_trace,
        capacity,
        overhead_bytes,
        min_frame_bytes,
        link_layer,
        mtu,
        queue,
        access,
        // Their effect on the delay of pings is estimated as delay.
        cross_traffic: _,
        packet_loss: _,
        gilbert_elliott: _,
        four_state_loss: _,
        duplicate: _,
        corrupt: _,
        reorder: _,
        drop_run: _,
        outages: _,
        fade: _,
        delay: _,
        reconfiguration: _,
        path_trace: _,
    } = pipe.clone();
    let framed = pb::Pipe { overhead_bytes, min_frame_bytes, link_layer, ..unlimited() };
    pb::Pipe { rate_bps, rate_trace, capacity, mtu, queue, access, ..framed }
}
