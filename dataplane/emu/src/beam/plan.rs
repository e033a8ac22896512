// SPDX-License-Identifier: Apache-2.0
//! The parameters of the beams, and which clients share them.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::client::ClientKey;
use crate::framing::Framing;
use crate::units::{BitRate, ByDirection, Direction};

use super::server::Terms;

pub const MAX_BEAMS: usize = 256;
pub const MAX_WEIGHT: u16 = 1_000;

/// The beams of a link, and the clients that share them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BeamsPlan {
    /// At most [`MAX_BEAMS`].
    pub beams: Vec<BeamPlan>,
    /// Shares of named clients.
    pub shares: BTreeMap<ClientKey, Share>,
    /// The share of all other clients except the bypass, which never has one.
    pub automatic: Option<Share>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BeamPlan {
    /// For display only; two beams may have the same name.
    pub name: String,
    /// A direction without a limit has no beam.
    pub rate: ByDirection<BitRate>,
    /// Bytes added to each frame when its time in the beam is computed. A carrier counts those of the pipe
    /// instead.
    pub framing: Framing,
}

/// A client's share of a beam.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub beam: u16,
    /// 1 to [`MAX_WEIGHT`].
    pub weight: u16,
}

/// Why the core refuses the beams of a plan.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BeamsError {
    #[error("{0} beams, at most {MAX_BEAMS}: merge some")]
    Beams(usize),
    /// A share of a beam that does not exist.
    #[error("a share of beam {0} of {1}: count from 0, or add the beam")]
    Unknown(u16, usize),
    #[error("a share of weight {0}: choose 1 to {MAX_WEIGHT}")]
    Weight(u16),
}

impl BeamsPlan {
    /// Checks what the core relies on.
    ///
    /// # Errors
    /// The first limit that is broken.
    pub fn check(&self) -> Result<(), BeamsError> {
        let n = self.beams.len();
        if n > MAX_BEAMS {
            return Err(BeamsError::Beams(n));
        }
        for share in self.shares.values().chain(&self.automatic) {
            if usize::from(share.beam) >= n {
                return Err(BeamsError::Unknown(share.beam, n));
            }
            if !(1..=MAX_WEIGHT).contains(&share.weight) {
                return Err(BeamsError::Weight(share.weight));
            }
        }
        Ok(())
    }

    #[must_use]
    pub fn share(&self, client: ClientKey, direction: Direction) -> Option<Share> {
        if self.beams.is_empty() || client == ClientKey::Bypass {
            return None;
        }
        let share = self.shares.get(&client).copied().or(self.automatic)?;
        self.limits(share.beam, direction).then_some(share)
    }

    /// Whether there is such a beam, and it limits the direction.
    #[must_use]
    pub fn limits(&self, beam: u16, direction: Direction) -> bool {
        let beam = self.beams.get(usize::from(beam));
        beam.is_some_and(|b| b.rate[direction] != BitRate::Unlimited)
    }

    /// Whether any client may wait for a beam in a direction.
    #[must_use]
    pub fn shares_in(&self, direction: Direction) -> bool {
        self.shares.values().chain(&self.automatic).any(|s| self.limits(s.beam, direction))
    }

    /// Whether all clients but the bypass wait for a beam in a direction.
    #[must_use]
    pub fn has_all_in(&self, direction: Direction) -> bool {
        let limits = |share: &Share| self.limits(share.beam, direction);
        self.automatic.as_ref().is_some_and(limits) && self.shares.values().all(limits)
    }

    /// The least weight in each beam, of clients that are there or not.
    fn lightest(&self) -> Vec<u16> {
        let mut least = vec![u16::MAX; self.beams.len()];
        for share in self.shares.values().chain(&self.automatic) {
            if let Some(least) = least.get_mut(usize::from(share.beam)) {
                *least = share.weight.clamp(1, *least);
            }
        }
        least
    }

    /// Whether members and weights are as in `other`, so that only rates differ.
    pub(crate) fn groups_as(&self, other: &Self) -> bool {
        let alike = |(a, b): (&BeamPlan, &BeamPlan)| {
            Direction::BOTH
                .into_iter()
                .all(|d| (a.rate[d] == BitRate::Unlimited) == (b.rate[d] == BitRate::Unlimited))
        };
        self.beams.len() == other.beams.len()
            && self.beams.iter().zip(&other.beams).all(alike)
            && self.automatic == other.automatic
            && self.shares == other.shares
    }
}

impl BeamsPlan {
    /// The rate of the beam with this number ([`number`](super::number)).
    pub(crate) fn rate(&self, number: u32) -> BitRate {
        let beam = self.beams.get(number as usize / 2);
        beam.map_or(BitRate::Unlimited, |b| b.rate.0[number as usize % 2])
    }

    /// The terms of each beam of the engine, in the order of [`number`](super::number); none where
    /// a direction has no limit. No frame is longer than `longest`.
    pub(crate) fn terms(&self, longest: u32) -> impl Iterator<Item = Option<Terms>> {
        self.beams.iter().zip(self.lightest()).flat_map(move |(beam, lightest)| {
            beam.rate.0.map(|rate| {
                let limited = rate != BitRate::Unlimited;
                limited.then(|| Terms::new(rate, beam.framing, lightest, longest))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(beams: usize, share: Share) -> BeamsPlan {
        let rate = ByDirection([BitRate::bps(1_000_000), BitRate::Unlimited]);
        let beam = BeamPlan { name: String::new(), rate, framing: Framing::default() };
        BeamsPlan { beams: vec![beam; beams], automatic: Some(share), ..BeamsPlan::default() }
    }

    #[test]
    fn invalid_beams_are_refused() {
        let share = Share { beam: 255, weight: 1_000 };
        assert_eq!(plan(256, share).check(), Ok(()));
        assert_eq!(plan(257, share).check(), Err(BeamsError::Beams(257)));
        assert_eq!(plan(255, share).check(), Err(BeamsError::Unknown(255, 255)));
        for weight in [0, 1_001, u16::MAX] {
            let mut plan = plan(1, Share { beam: 0, weight: 1 });
            plan.shares.insert(ClientKey::Default, Share { beam: 0, weight });
            assert_eq!(plan.check(), Err(BeamsError::Weight(weight)));
        }
    }

    #[test]
    fn client_has_own_or_default_share_and_bypass_none() {
        let mut plan = plan(2, Share { beam: 0, weight: 1 });
        let own = Share { beam: 1, weight: 7 };
        plan.shares.insert(ClientKey::Default, own);
        plan.shares.insert(ClientKey::Bypass, own);
        let share = |client| plan.share(client, Direction::Forward);
        assert_eq!(share(ClientKey::Default), Some(own));
        assert_eq!(share(ClientKey::Ip([10, 0, 0, 1].into())), plan.automatic);
        assert_eq!(share(ClientKey::Bypass), None);
        assert_eq!(plan.share(ClientKey::Default, Direction::Return), None, "not limited");
    }
}
