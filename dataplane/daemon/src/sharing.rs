// SPDX-License-Identifier: Apache-2.0
//! Two links in sequence: packets of an *access link* also pass a *shared link*. Here are the roles of
//! links, and the clients and beams of a shared link's plan.
//!
//! The clients of a shared link are its access links. With deficit round robin, each access link is a
//! client of one beam, which has the rate of the profile. First in, first out, all access links are
//! one client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emu::beam::{BeamPlan, BeamsPlan, MAX_WEIGHT, Share};
use emu::client::{ClientKey, ClientName};
use emu::framing::Framing;
use emu::plan::Plan;
use emu::shaper::RatePlan;
use emu::units::{BitRate, ByDirection, Direction};
use profile::Violations;
use proto::linkemu::v1 as model;
use proto::linkemu::v1::Scheduler;
use proto::{link_id, link_name};
use thiserror::Error;

/// The client of a shared link that is served first in, first out.
const ALL: &str = "all";

/// Why a link cannot be in sequence with another one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SharingError {
    #[error(
        "{0} is not a scheduler: give fifo or drr, or none for a link that no other link passes"
    )]
    Scheduler(i32),
    #[error(
        "a link that others pass (scheduler) passes no other one itself (via {0}): leave one out"
    )]
    Both(String),
    #[error(
        "`{0}` is not shared: add it with a scheduler (`linkctl link add {0} --scheduler fifo`), or \
         name a link that is"
    )]
    NotShared(String),
    #[error("a weight of {0}: give 1 to {MAX_WEIGHT}")]
    Weight(u32),
    #[error(
        "a weight needs a link to pass that is scheduled by drr: add it with `--scheduler drr`, or \
         leave the weight out"
    )]
    NoWeight,
    #[error(
        "`{name}` has as many access links as --clients gives it, {clients}: add it with more, or remove one"
    )]
    Full { name: String, clients: u32 },
    #[error("`{name}` is passed by {by}: remove these first")]
    Passed { name: String, by: String },
    #[error(
        "`{0}` is passed by other links and has no traffic of its own: assign it to one of these"
    )]
    Rule(String),
}

/// Whether a link is in a sequence, and as which part.
#[derive(Debug, Default)]
pub(crate) enum Role {
    /// It is in no sequence.
    #[default]
    Alone,
    Shared(Arc<SharedLink>),
    /// It passes a shared link.
    Access {
        /// Without "links/".
        via: String,
        weight: u16,
    },
}

/// A link that others pass.
#[derive(Debug)]
pub(crate) struct SharedLink {
    scheduler: Scheduler,
    /// Weights of the access links.
    access: Mutex<BTreeMap<ClientName, u16>>,
}

impl Role {
    /// # Errors
    /// If the fields of a new link contradict each other.
    pub fn of(link: &model::NamedLink) -> Result<Self, SharingError> {
        let scheduler = Scheduler::try_from(link.scheduler)
            .map_err(|_| SharingError::Scheduler(link.scheduler))?;
        let via = link_id(&link.via).to_owned();
        let weight = match u16::try_from(link.weight) {
            Ok(0) => 1,
            Ok(weight) if weight <= MAX_WEIGHT => weight,
            _ => return Err(SharingError::Weight(link.weight)),
        };
        match (scheduler, via.is_empty()) {
            (Scheduler::Unspecified, false) => return Ok(Self::Access { via, weight }),
            (_, false) => return Err(SharingError::Both(via)),
            _ if link.weight > 0 => return Err(SharingError::NoWeight),
            (Scheduler::Unspecified, true) => return Ok(Self::Alone),
            _ => {}
        }
        Ok(Self::Shared(Arc::new(SharedLink { scheduler, access: Mutex::default() })))
    }

    pub fn shared(&self) -> Option<&Arc<SharedLink>> {
        match self {
            Self::Shared(shared) => Some(shared),
            Self::Alone | Self::Access { .. } => None,
        }
    }

    /// Describes it in a link.
    pub fn describe(&self, link: &mut model::NamedLink) {
        match self {
            Self::Alone => {}
            Self::Shared(shared) => link.scheduler = shared.scheduler.into(),
            Self::Access { via, weight } => {
                (link.via, link.weight) = (link_name(via), u32::from(*weight));
            }
        }
    }
}

impl SharedLink {
    fn access(&self) -> MutexGuard<'_, BTreeMap<ClientName, u16>> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_weighted(&self) -> bool {
        self.scheduler == Scheduler::Drr
    }

    /// The client of an access link.
    ///
    /// # Errors
    /// If there are `most` of them.
    pub fn join(
        &self,
        access: ClientName,
        weight: u16,
        (name, most): (&str, u32),
    ) -> Result<ClientName, SharingError> {
        let mut all = self.access();
        if all.len() >= most as usize {
            return Err(SharingError::Full { name: name.to_owned(), clients: most });
        }
        all.insert(access, weight);
        Ok(self.client(access))
    }

    pub fn leave(&self, access: ClientName) {
        self.access().remove(&access);
    }

    pub fn client(&self, access: ClientName) -> ClientName {
        if self.is_weighted() { access } else { ALL.parse().unwrap_or(access) }
    }

    /// The names of its access links; empty if there are none.
    pub fn names(&self) -> String {
        let all: Vec<_> = self.access().keys().map(ToString::to_string).collect();
        all.join(", ")
    }

    /// Completes the plan of this link: its clients are its access links.
    ///
    /// # Errors
    /// If the plan names clients. With deficit round robin also if it has a rate that is not constant,
    /// or cross traffic.
    pub fn complete(&self, plan: &mut Plan) -> Result<(), Violations> {
        let mut found = Violations::default();
        if !plan.rules.is_empty() || plan.rules.automatic.is_some() || !plan.beams.beams.is_empty()
        {
            found.push(
                "clients",
                "the clients of a link that others pass are these links: give clients to them",
            );
        }
        if self.is_weighted() {
            let mut rates = [BitRate::Unlimited; 2];
            for ((direction, path), rate) in
                Direction::BOTH.into_iter().zip(["forward", "return"]).zip(&mut rates)
            {
                match &plan.pipes[direction].rate {
                    RatePlan::Constant(constant) => *rate = *constant,
                    _ => found.push(
                        format!("{path}.rate"),
                        "drr divides a constant rate: give one, or add the link with the scheduler \
                         fifo",
                    ),
                }
                if plan.pipes[direction].cross.is_some() {
                    found.push(
                        format!("{path}.cross_traffic"),
                        "drr divides the rate among access links only: leave the cross traffic out, \
                         or add the link with the scheduler fifo",
                    );
                }
            }
            let [forward, back] = Direction::BOTH.map(|d| plan.pipes[d].framing);
            if forward != back {
                found.push(
                    "return.framing",
                    "drr counts both directions alike: give the same twice",
                );
            }
            let beam = BeamPlan { name: String::new(), rate: ByDirection(rates), framing: forward };
            let share = |(name, weight): (&ClientName, &u16)| {
                (ClientKey::Named(*name), Share { beam: 0, weight: *weight })
            };
            let shares = self.access().iter().map(share).collect();
            plan.beams = Arc::new(BeamsPlan { beams: vec![beam], shares, automatic: None });
            for pipe in &mut plan.pipes.0 {
                (pipe.rate, pipe.framing) = (BitRate::Unlimited.into(), Framing::default());
            }
        }
        found.into_result()
    }
}

#[cfg(test)]
mod tests {
    use emu::cross::{Arrivals, CrossPlan};

    use super::*;

    fn shared(scheduler: Scheduler) -> Arc<SharedLink> {
        let link = model::NamedLink { scheduler: scheduler.into(), ..Default::default() };
        Role::of(&link).unwrap().shared().unwrap().clone()
    }

    fn crossed() -> Plan {
        let mut plan = Plan::transparent();
        let pipe = &mut plan.pipes[Direction::Forward];
        pipe.rate = BitRate::bps(100_000_000).into();
        let (rate, frame, arrivals) = (30_000_000, 1_514, Arrivals::Constant);
        pipe.cross = Some(CrossPlan { rate, frame, arrivals });
        plan
    }

    #[test]
    fn cross_traffic_needs_fifo() {
        let fifo = shared(Scheduler::Fifo);
        let mut plan = crossed();
        fifo.complete(&mut plan).unwrap();
        assert_eq!(plan.pipes[Direction::Forward].cross, crossed().pipes[Direction::Forward].cross);
        // Before the first access link as well.
        let drr = shared(Scheduler::Drr);
        for access in ["", "one"] {
            if let Ok(name) = access.parse() {
                drr.join(name, 1, ("backbone", 2)).unwrap();
            }
            let error = drr.complete(&mut crossed()).unwrap_err().to_string();
            assert!(error.contains("forward.cross_traffic: drr divides"), "{access}: {error}");
            assert!(error.contains("or add the link with the scheduler fifo"), "{access}: {error}");
        }
        let mut without = crossed();
        without.pipes[Direction::Forward].cross = None;
        drr.complete(&mut without).unwrap();
    }
}
