// SPDX-License-Identifier: Apache-2.0
//! A link beside others: its engines in the workers, and its part of the memory.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use compile::compile;
use emu::engine::Limits;
use emu::links::{ACCESS_TAG, Board, MAIN, MAX_LINKS, Via};
use emu::plan::{Plan, Room};
use emu::si::{self, Round};
use emu::units::Instant;
use owner::{Changes, Link};
use profile::{Violations, counted, format_size};
use proto::MAIN_LINK;
use proto::dataplane::v1 as pb;
use thiserror::Error;
use tonic::Status;
use worker::command::CommandError;

use super::{Dataplane, DataplaneError, Identity, LEAD, utc};
use crate::names::ClientsError;
use crate::sharing::{Role, SharingError};

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
        "{} for `{name}`, and at most {} are free{}: `main` has {}, and its profile needs {}; ask \
         for less (--memory), set a smaller profile on `main`, or start the dataplane with more \
         --memory",
        format_size(*asked), si::bytes(*free, Round::Down), on_one_of(*workers),
        si::bytes(*main, Round::Down), si::bytes(*needed, Round::Up)
    )]
    Memory { name: String, asked: u64, free: u64, workers: usize, main: u64, needed: u64 },
    #[error("{} is less than {}, the least memory of a link: give more", format_size(*.0), si::bytes(*.1, Round::Up))]
    Small(u64, u64),
    #[error(
        "{0} clients are more than the {1} of this box: give fewer, or start the dataplane with more --max-clients"
    )]
    Clients(u32, u32),
    #[error(
        "`{name}` holds {}: stop its traffic, or set the profile `transparent` on it, and try again",
        counted(*packets, "packet", "packets")
    )]
    Holds { name: String, packets: u64 },
    #[error(
        "a scenario runs on `{0}`: stop it (`linkctl --link {0} scenario stop`), and try again"
    )]
    Runs(String),
    #[error(
        "the scenario that runs on `{by}` changes `{name}`: stop it (`linkctl --link {by} scenario \
         stop`), and try again"
    )]
    Changed { name: String, by: String },
    #[error("the rules are refused: {0}")]
    Rules(Violations),
    #[error("{}: somebody else changed the rules; look at them, then decide",
            owner::stale_message(*expected, *current))]
    Stale { expected: u64, current: u64 },
    #[error("{0}")]
    Sharing(#[from] SharingError),
    #[error("no room for the link: {0}")]
    Make(#[from] worker::command::MakeError),
    #[error("{0}")]
    Dataplane(#[from] DataplaneError),
}

fn on_one_of(workers: usize) -> String {
    if workers == 1 { String::new() } else { format!(" on one of {workers} workers") }
}

impl From<LinksError> for Status {
    fn from(error: LinksError) -> Self {
        match error {
            LinksError::Sharing(
                ref error @ (SharingError::NotShared(_)
                | SharingError::Full { .. }
                | SharingError::Passed { .. }),
            ) => Self::failed_precondition(error.to_string()),
            LinksError::Sharing(_)
            | LinksError::Name(_)
            | LinksError::Small(..)
            | LinksError::Clients(..) => Self::invalid_argument(error.to_string()),
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
            | LinksError::Changed { .. }
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

    /// Packets that the link holds, or those of one client.
    ///
    /// # Errors
    /// If a worker has stalled.
    pub async fn held(&self, client: Option<&str>) -> Result<u64, DataplaneError> {
        let stats = self.stats(false).await?;
        let its = stats.clients.iter().filter(|c| client.is_none_or(|client| client == c.client));
        let pipes = its.flat_map(|c| [&c.forward_pipe, &c.return_pipe]);
        Ok(pipes.flatten().filter_map(|pipe| pipe.held).map(|held| held.packets).sum())
    }

    /// The worker that has all clients of the link; none if all workers have some.
    #[must_use]
    pub fn home(&self) -> Option<usize> {
        self.0.home.get().copied()
    }

    /// Reserves so many bytes of the memory of one worker, `home` if there is one, for the link
    /// `name`. Returns the worker.
    ///
    /// # Errors
    /// If this link's profile needs them, unless it was accepted as lossy, or packets are in them.
    pub(crate) async fn lend(
        &self,
        name: &str,
        bytes: u64,
        home: Option<usize>,
    ) -> Result<usize, LinksError> {
        let name = name.to_owned();
        self.done(move |this| async move {
            let plans = this.settled().await;
            let current = &plans.current;
            let needed = match compile(&current.plan) {
                Ok(plan) if !current.applied.lossy => plan.memory(this.room()),
                _ => 0,
            };
            let reports = this.answers(|worker| worker.report(false)).await?;
            let used = reports.iter().map(|report| report.snapshot.store_used.max(needed));
            let free = this.0.machine.free().clone();
            // The worker with the most that can be given away.
            let spare = free.iter().zip(used).map(|(free, used)| free.saturating_sub(used));
            let spare = spare.enumerate().filter(|(n, _)| home.is_none_or(|home| home == *n));
            let Some((worker, spare)) = spare.max_by_key(|(n, spare)| (*spare, !n)) else {
                return Err(DataplaneError::from(CommandError::Gone).into());
            };
            let (main, workers) = (free[worker], free.len());
            if bytes > spare {
                let needed = main - spare;
                return Err(LinksError::Memory {
                    name,
                    asked: bytes,
                    free: spare,
                    workers,
                    main,
                    needed,
                });
            }
            this.set_free(worker, main - bytes).await?;
            Ok(worker)
        })
        .await
    }

    /// Gives `bytes` that a link had reserved of a worker's memory to this link again.
    ///
    /// # Errors
    /// If a worker has stalled.
    pub(crate) async fn take_back_memory(
        &self,
        worker: usize,
        bytes: u64,
    ) -> Result<(), DataplaneError> {
        self.done(move |this| async move {
            let _plans = this.settled().await;
            let free = this.0.machine.free().get(worker).map_or(0, |free| free + bytes);
            this.set_free(worker, free).await
        })
        .await
    }

    /// Gives this link so much of the memory of a worker.
    async fn set_free(&self, worker: usize, bytes: u64) -> Result<(), DataplaneError> {
        let each = usize::try_from(bytes).unwrap_or(usize::MAX);
        if let Some(handle) = self.0.workers.get(worker) {
            handle.set_memory(each)?.await.map_err(|_| CommandError::Gone)?;
        }
        let mut free = self.0.machine.free();
        free[worker] = bytes;
        // All that comes may be for one worker.
        let least = free.iter().copied().min().unwrap_or_default();
        self.0.room.lock().unwrap_or_else(PoisonError::into_inner).capacity = least;
        Ok(())
    }

    /// Adds a link to a worker, with the memory `bytes` and up to `clients` clients. It has no profile
    /// yet, and passes each packet at once. With `via` its packets also pass a shared link on the same
    /// worker.
    ///
    /// # Errors
    /// If there is no memory for its engine, or a worker has stalled.
    pub(crate) async fn add_beside(
        &self,
        name: String,
        number: usize,
        home: usize,
        (bytes, clients): (u64, u32),
        (role, via): (Role, Option<Via>),
    ) -> Result<Self, LinksError> {
        self.done(move |this| async move {
            let _plans = this.settled().await;
            let machine = &this.0.machine;
            let worker =
                this.0.workers.get(home).ok_or(DataplaneError::from(CommandError::Gone))?;
            let mut worker = worker.of_link(number, clients as usize);
            let mut room = Room { clients, capacity: bytes, workers: 1, ..this.room() };
            if role.shared().is_some() {
                worker = worker.shared();
                room.tag += ACCESS_TAG;
            }
            let memory = usize::try_from(bytes).unwrap_or(usize::MAX);
            let limits = Limits { memory, clients, ..machine.fixed.limits };
            let profile = profile::Catalog::built_in();
            let profile = profile.get("transparent").map(|it| it.as_proto().clone());
            let plan = pb::Plan { profile, seed: 1, ..Default::default() };
            let compiled = compile(&plan).unwrap_or_else(|_| Plan::transparent());
            let at = Instant(machine.clock.now());
            let engine = worker.make(limits, compiled, at)?;
            worker
                .add_link(engine, via)
                .map_err(DataplaneError::from)?
                .await
                .map_err(|_| DataplaneError::from(CommandError::Gone))?;
            let start = utc(&machine.clock, at);
            let identity = Identity { name, number, home: Some(home), role };
            let machine = machine.clone();
            Ok(Self::of(machine, identity, vec![worker], room, plan, start))
        })
        .await
    }

    /// Removes this link, which holds no packet, from the workers.
    ///
    /// # Errors
    /// If a worker has stalled.
    pub(crate) async fn remove(&self) -> Result<(), DataplaneError> {
        self.done(|this| async move {
            let _plans = this.settled().await;
            this.0.removed.store(true, Ordering::Relaxed);
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
            let _plans = this.settled().await;
            let at = this.send_board(&mut *this.0.machine.board.lock().await, board).await?;
            Ok(utc(&this.0.machine.clock, at))
        })
        .await
    }

    async fn send_board(
        &self,
        current: &mut Board,
        mut board: Board,
    ) -> Result<Instant, DataplaneError> {
        if let Some(home) = self.home() {
            board.set_home(MAIN, home);
        }
        let at = Instant(self.0.machine.clock.now()) + LEAD;
        let shared = Arc::new(board.clone());
        let boards = self.answers(|worker| worker.set_board(at, shared.clone())).await?;
        *current = board;
        Ok(boards.iter().map(|(at, _)| *at).max().unwrap_or(at))
    }

    /// Lets one worker have all clients of this link from now on. Returns the number of packets that
    /// came to other workers meanwhile: later ones of the same clients may overtake them.
    ///
    /// # Errors
    /// If other workers hold packets, which later ones of the same clients would overtake; then
    /// nothing has changed.
    pub(super) async fn settle_on_one_worker(&self) -> Result<u64, DataplaneError> {
        let held = self.held_elsewhere().await?;
        if held > 0 {
            return Err(ClientsError::Held { workers: self.0.workers.len(), held }.into());
        }
        let _ = self.0.home.set(0);
        let mut current = self.0.machine.board.lock().await;
        let board = current.clone();
        let at = self.send_board(&mut current, board).await?;
        let rest = at.since(Instant(self.0.machine.clock.now()));
        tokio::time::sleep(Duration::from_nanos(rest.0)).await;
        self.held_elsewhere().await
    }

    /// Packets that all workers but the first one hold.
    async fn held_elsewhere(&self) -> Result<u64, DataplaneError> {
        let reports = self.answers(|worker| worker.report(false)).await?;
        Ok(reports.iter().skip(1).map(|report| report.snapshot.total().held.packets).sum())
    }
}
