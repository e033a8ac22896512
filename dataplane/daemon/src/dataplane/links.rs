// SPDX-License-Identifier: Apache-2.0
//! A link beside others: its engines in the workers, and its part of the memory.

use std::sync::{Arc, PoisonError};

use compile::compile;
use emu::engine::Limits;
use emu::links::{Board, MAX_LINKS};
use emu::plan::{Plan, Room};
use emu::units::Instant;
use profile::{Violations, format_size};
use proto::MAIN_LINK;
use proto::dataplane::v1 as pb;
use thiserror::Error;
use tonic::Status;
use worker::command::{CommandError, MakeError};

use super::{Dataplane, DataplaneError, LEAD, utc};

/// Why links or rules cannot be as requested.
#[derive(Debug, Error)]
pub enum LinksError {
    #[error("{0}")]
    Name(String),
    #[error("there is a link `{0}` already: choose another name, or use that one")]
    Exists(String),
    #[error("there is no link `{name}`: the links are {known}")]
    Unknown { name: String, known: String },
    #[error("`{MAIN_LINK}` always exists: other links can be removed")]
    Main,
    #[error("there are {MAX_LINKS} links, the most that a box has: remove one")]
    Full,
    #[error(
        "a P4 switch is before this box, and its client numbers are those of one link: add links \
         to a box without a switch"
    )]
    Switch,
    #[error(
        "{} for `{name}`, and at most {} are free: `main` has {}, and its profile needs {}; ask for \
         less (--memory), set a smaller profile on `main`, or start the dataplane with more \
         --memory",
        format_size(*asked), format_size(*free), format_size(*main), format_size(*needed)
    )]
    Memory { name: String, asked: u64, free: u64, main: u64, needed: u64 },
    #[error("{} is less than {}, the least memory of a link: give more", format_size(*.0), format_size(*.1))]
    Small(u64, u64),
    #[error(
        "{0} clients are more than the {1} of this box: give fewer, or start the dataplane with more --max-clients"
    )]
    Clients(u32, u32),
    #[error(
        "`{name}` holds {packets} packets: stop its traffic, or set the profile `transparent` on it, and try again"
    )]
    Holds { name: String, packets: u64 },
    #[error(
        "a scenario runs on `{0}`: stop it (`linkctl --link {0} scenario stop`), and try again"
    )]
    Runs(String),
    #[error("the rules are refused: {0}")]
    Rules(Violations),
    #[error("{}: somebody else changed the rules; look at them, then decide",
            owner::stale_message(*expected, *current))]
    Stale { expected: u64, current: u64 },
    #[error("no room for the link: {0}")]
    Make(#[from] worker::command::MakeError),
    #[error("{0}")]
    Dataplane(#[from] DataplaneError),
}

impl From<LinksError> for Status {
    fn from(error: LinksError) -> Self {
        match error {
            LinksError::Name(_) | LinksError::Small(..) | LinksError::Clients(..) => {
                Self::invalid_argument(error.to_string())
            }
            LinksError::Exists(_) => Self::already_exists(error.to_string()),
            LinksError::Unknown { .. } => Self::not_found(error.to_string()),
            LinksError::Full | LinksError::Make(_) => Self::resource_exhausted(error.to_string()),
            LinksError::Rules(violations) => owner::invalid("the list of rules", &violations),
            LinksError::Stale { .. } => Self::aborted(error.to_string()),
            LinksError::Dataplane(error) => error.into(),
            LinksError::Main
            | LinksError::Switch
            | LinksError::Memory { .. }
            | LinksError::Holds { .. }
            | LinksError::Runs(_) => Self::failed_precondition(error.to_string()),
        }
    }
}

impl Dataplane {
    #[must_use]
    pub fn number(&self) -> usize {
        self.0.number
    }

    /// Number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.0.workers.len()
    }

    /// Packets that the link holds.
    ///
    /// # Errors
    /// If a worker has stalled.
    pub async fn held(&self) -> Result<u64, DataplaneError> {
        let stats = self.stats(false).await?;
        let pipes = stats.clients.iter().flat_map(|c| [&c.forward_pipe, &c.return_pipe]);
        Ok(pipes.flatten().filter_map(|pipe| pipe.held).map(|held| held.packets).sum())
    }

    /// Gives so many bytes of each worker's memory away, for the link `name`.
    ///
    /// # Errors
    /// If this link's profile needs them, unless it was accepted as lossy, or packets are in them.
    pub(crate) async fn lend(&self, name: &str, each: u64) -> Result<(), LinksError> {
        let name = name.to_owned();
        self.done(move |this| async move {
            let history = this.history().await;
            let room = this.room();
            let current = &history.current;
            let needed = match compile(&current.plan) {
                Ok(plan) if !current.applied.lossy => plan.memory(room),
                _ => 0,
            };
            let used = this.answers(|worker| worker.report(false)).await?;
            let used = used.iter().map(|report| report.snapshot.store_used).max().unwrap_or(0);
            let left = room.capacity.saturating_sub(each);
            if left < needed.max(used) || each > room.capacity {
                let workers = this.workers() as u64;
                let needed = needed.max(used);
                return Err(LinksError::Memory {
                    name,
                    asked: each * workers,
                    free: room.capacity.saturating_sub(needed) * workers,
                    main: room.capacity * workers,
                    needed: needed * workers,
                });
            }
            this.set_capacity(left).await?;
            Ok(())
        })
        .await
    }

    /// Takes bytes of each worker's memory back.
    ///
    /// # Errors
    /// If a worker has stalled.
    pub(crate) async fn take_back_memory(&self, each: u64) -> Result<(), DataplaneError> {
        self.done(move |this| async move {
            let _history = this.history().await;
            this.set_capacity(this.room().capacity + each).await
        })
        .await
    }

    async fn set_capacity(&self, bytes: u64) -> Result<(), DataplaneError> {
        let each = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.answers(|worker| worker.set_memory(each)).await?;
        self.0.room.lock().unwrap_or_else(PoisonError::into_inner).capacity = bytes;
        Ok(())
    }

    /// Adds a link that passes everything at once to the workers. Each has `each` bytes for it,
    /// and up to `clients` clients.
    ///
    /// # Errors
    /// If there is no memory for its engines, or a worker has stalled.
    pub(crate) async fn add_beside(
        &self,
        name: String,
        number: usize,
        each: u64,
        clients: u32,
    ) -> Result<Self, LinksError> {
        self.done(move |this| async move {
            let _history = this.history().await;
            let machine = &this.0.machine;
            let workers: Vec<_> =
                this.0.workers.iter().map(|it| it.of_link(number, clients as usize)).collect();
            let memory = usize::try_from(each).unwrap_or(usize::MAX);
            let limits = Limits { memory, clients, ..machine.fixed.limits };
            let profile = profile::Catalog::built_in();
            let profile = profile.get("transparent").map(|it| it.as_proto().clone());
            let plan = pb::Plan { profile, seed: 1, ..Default::default() };
            let compiled = compile(&plan).unwrap_or_else(|_| Plan::transparent());
            // Their processes start at one instant.
            let at = Instant(machine.clock.now());
            let made = workers.iter().map(|worker| worker.make(limits, compiled.clone(), at));
            let made: Vec<_> = made.collect::<Result<_, MakeError>>()?;
            for (worker, engine) in workers.iter().zip(made) {
                worker
                    .add_link(engine)
                    .map_err(DataplaneError::from)?
                    .await
                    .map_err(|_| DataplaneError::from(CommandError::Gone))?;
            }
            let room = Room { clients, capacity: each, ..this.room() };
            Ok(this.beside(name, number, workers, room, plan, at))
        })
        .await
    }

    /// Removes this link, which holds no packet, from the workers.
    ///
    /// # Errors
    /// If a worker has stalled.
    pub(crate) async fn remove(&self) -> Result<(), DataplaneError> {
        self.done(|this| async move {
            let _history = this.history().await;
            let engines = this.answers(|worker| worker.remove_link()).await?;
            if engines.iter().any(Option::is_none) {
                tracing::error!(link = this.name(), "a worker did not remove it");
            }
            this.0.machine.jumps().remove(&this.0.number);
            Ok(())
        })
        .await
    }

    /// Assigns frames to links by a board from one instant on. Returns it.
    ///
    /// # Errors
    /// If a worker has stalled.
    pub(crate) async fn set_board(
        &self,
        board: Board,
    ) -> Result<prost_types::Timestamp, DataplaneError> {
        self.done(|this| async move {
            let _history = this.history().await;
            let clock = &this.0.machine.clock;
            let (at, board) = (Instant(clock.now()) + LEAD, Arc::new(board));
            let boards = this.answers(|worker| worker.set_board(at, board.clone())).await?;
            let at = boards.iter().map(|(at, _)| *at).max().unwrap_or(at);
            Ok(utc(clock, at))
        })
        .await
    }
}
