// SPDX-License-Identifier: Apache-2.0
//! Predictions of the emulation core: its random processes, run in virtual time with the seed of
//! the dataplane. They depend on the seed, the client's address and the direction only, so the
//! dataplane draws the same.
//!
//! Times count from the instant at which the profile is set. The dataplane must know the client
//! before: the processes of a later client begin at its first packet.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use anyhow::{Context, anyhow};
use emu::channel::Channel;
use emu::client::ClientKey;
use emu::rng::StreamKey;
use emu::units::{Direction, Instant};
use profile::{Catalog, Profile};
use proto::dataplane::v1::Plan;

/// Resolution of the ends of an outage.
pub const GRAIN_NS: u64 = 1_000_000;

/// A built-in profile.
pub fn built_in(name: &str) -> anyhow::Result<Profile> {
    Catalog::built_in().get(name).cloned().with_context(|| format!("no built-in profile {name}"))
}

/// The channel of a client.
pub fn channel(
    profile: &Profile,
    seed: u64,
    client: Ipv4Addr,
    direction: Direction,
) -> anyhow::Result<Channel> {
    let plan = Plan { profile: Some(profile.as_proto().clone()), seed, ..Plan::default() };
    let plan = compile::compile(&plan).map_err(|e| anyhow!("{}: {e}", profile.name()))?;
    let key = StreamKey { seed, client: ClientKey::Ip(IpAddr::V4(client)), direction, epoch: 0 };
    Ok(Channel::new(&plan.pipes[direction].channel(true), key, Instant::ZERO, Instant::ZERO))
}

/// The first outage that begins within `span`, in nanoseconds.
pub fn outage_in(mut channel: Channel, span: Range<u64>) -> Option<Range<u64>> {
    let mut at = |t| channel.is_out(Instant(t));
    let grains = || (span.start..).step_by(usize::try_from(GRAIN_NS).unwrap_or(usize::MAX));
    let begins = grains().take_while(|t| span.contains(t)).find(|&t| at(t))?;
    let ends = grains().skip_while(|t| *t < begins).find(|&t| !at(t))?;
    Some(begins..ends)
}

/// Number of independent losses among this many packets.
pub fn lost_of(mut channel: Channel, packets: u64) -> u64 {
    (0..packets).map(|_| u64::from(channel.lose(Instant::ZERO).is_some())).sum()
}
