// SPDX-License-Identifier: Apache-2.0
//! What the emulation core says beforehand: its random processes, run in virtual time
//! with the seed that the dataplane is given. They hang on the seed, the client's
//! address and the direction alone, so they are those that the dataplane will run.
//!
//! Times count from the instant at which the profile is set. A client must be known to
//! the dataplane by then: the processes of one that comes later begin with it.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use anyhow::{Context, anyhow};
use emu::channel::Channel;
use emu::client::ClientKey;
use emu::rng::StreamKey;
use emu::units::{Direction, Instant};
use profile::{Catalog, Profile};
use proto::dataplane::v1::Plan;

/// How exactly an outage's ends are found.
pub const GRAIN_NS: u64 = 1_000_000;

/// A profile that every build has.
pub fn built_in(name: &str) -> anyhow::Result<Profile> {
    Catalog::built_in().get(name).cloned().with_context(|| format!("no built-in profile {name}"))
}

/// The channel that a client will meet.
pub fn channel(
    profile: &Profile,
    seed: u64,
    client: Ipv4Addr,
    direction: Direction,
) -> anyhow::Result<Channel> {
    let plan = Plan { profile: Some(profile.as_proto().clone()), seed, ..Plan::default() };
    let plan = compile::compile(&plan).map_err(|e| anyhow!("{}: {e}", profile.name()))?;
    let key = StreamKey { seed, client: ClientKey::Ip(IpAddr::V4(client)), direction, epoch: 0 };
    Ok(Channel::new(&plan.pipes[direction].channel(true), key, Instant::ZERO))
}

/// The first outage that begins within `span`, in nanoseconds.
pub fn outage_in(mut channel: Channel, span: Range<u64>) -> Option<Range<u64>> {
    let mut at = |t| channel.is_out(Instant(t));
    let grains = || (span.start..).step_by(usize::try_from(GRAIN_NS).unwrap_or(usize::MAX));
    let begins = grains().take_while(|t| span.contains(t)).find(|&t| at(t))?;
    let ends = grains().skip_while(|t| *t < begins).find(|&t| !at(t))?;
    Some(begins..ends)
}

/// How many of this many packets the channel loses each for itself.
pub fn lost_of(mut channel: Channel, packets: u64) -> u64 {
    (0..packets).map(|_| u64::from(channel.lose(Instant::ZERO).is_some())).sum()
}
