// SPDX-License-Identifier: Apache-2.0
//! Clients on hold, and what clients have, for a group of boxes that moves clients between them.

use std::collections::{BTreeMap, HashSet};
use std::sync::{MutexGuard, PoisonError};

use emu::engine::Hold;
use emu::pipe::{Look, MAX_HOLD};
use emu::place::worker_of;
use emu::units::{ByDirection, Direction, Instant, Nanos};
use proto::dataplane::v1 as pb;
use worker::command::{CommandError, Handle, Visit};

use super::capture::key;
use super::{Dataplane, DataplaneError, gather};

/// Clients of a request.
const CLIENTS: usize = 4096;

fn invalid(message: String) -> DataplaneError {
    DataplaneError::Hold(message)
}

fn hold(client: &pb::HoldClient) -> Result<Hold, DataplaneError> {
    let due = [client.forward_due_ns, client.return_due_ns];
    match client.hold_ns {
        None => Ok(Hold::End(ByDirection(due.map(Instant)))),
        Some(_) if due != [0, 0] => Err(invalid(format!(
            "clients: a due time for `{}`, which begins a hold: give it when the hold ends",
            client.client
        ))),
        Some(ns) if (1..=MAX_HOLD.0).contains(&ns) => Ok(Hold::Begin(Nanos(ns))),
        Some(ns) => Err(invalid(format!(
            "hold_ns: {ns} is not within 1 and {} (60 s): begin it again for a longer hold",
            MAX_HOLD.0
        ))),
    }
}

/// As the protos have it.
fn look(found: ByDirection<Look>) -> pb::ClientLook {
    let [forward, back] = found.0.map(|look| pb::PipeLook {
        received: look.received,
        queued: look.queued,
        held: look.held,
        last_due_ns: look.last_due.0,
    });
    pb::ClientLook { forward_pipe: Some(forward), return_pipe: Some(back) }
}

impl Dataplane {
    /// Begins or ends holds of clients. If a hold cannot begin, those of the request that did are ended.
    ///
    /// # Errors
    /// If the request is not valid, a client cannot be on hold, or a worker does not answer.
    pub async fn hold_clients(&self, clients: &[pb::HoldClient]) -> Result<(), DataplaneError> {
        let visits =
            clients.iter().map(|client| Ok(Visit::new(key(&client.client)?, hold(client)?)));
        let visits = visits.collect::<Result<Vec<_>, DataplaneError>>()?;
        let (begin, end): (Vec<_>, Vec<_>) = clients.iter().partition(|it| it.hold_ns.is_some());
        let now = Instant(self.time().0);
        // Before they begin, since a stalled worker begins them later.
        self.holds().extend(
            begin.iter().map(|it| (it.client.clone(), [now, now + Nanos(it.hold_ns.unwrap_or(0))])),
        );
        let made = self.visit(visits).await?;
        let forget = |clients: &[&pb::HoldClient]| {
            let mut holds = self.holds();
            holds.retain(|name, _| !clients.iter().any(|it| it.client == *name));
        };
        forget(&end);
        let Some(error) = made.iter().find_map(|visit| visit.found.err()) else { return Ok(()) };
        forget(&begin);
        let begun = made.iter().filter(|it| matches!(it.hold, Hold::Begin(_)) && it.found.is_ok());
        let end = Hold::End(ByDirection([Instant::ZERO; Direction::BOTH.len()]));
        self.visit(begun.map(|visit| Visit::new(visit.key, end)).collect()).await?;
        Err(invalid(error.to_string()))
    }

    fn holds(&self) -> MutexGuard<'_, BTreeMap<String, [Instant; 2]>> {
        self.0.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clients on hold.
    #[must_use]
    pub fn on_hold(&self) -> Vec<pb::HeldClient> {
        let now = Instant(self.time().0);
        let mut holds = self.holds();
        holds.retain(|_, [_, until]| now < *until);
        let held = |(client, [since, _]): (&String, &[Instant; 2])| pb::HeldClient {
            client: client.clone(),
            since_ns: since.0,
        };
        holds.iter().map(held).collect()
    }

    /// What clients have now, in the order of their names.
    ///
    /// # Errors
    /// If a name is not valid, or a worker does not answer.
    pub async fn look_at_clients(
        &self,
        clients: &[String],
    ) -> Result<Vec<pb::ClientLook>, DataplaneError> {
        let visits = clients.iter().map(|name| Ok(Visit::new(key(name)?, Hold::Keep)));
        let made = self.visit(visits.collect::<Result<_, DataplaneError>>()?).await?;
        Ok(made.into_iter().map(|visit| look(visit.found.unwrap_or_default())).collect())
    }

    /// Visits each client on its worker; the answers are in the order of the visits.
    async fn visit(&self, visits: Vec<Visit>) -> Result<Vec<Visit>, DataplaneError> {
        if visits.len() > CLIENTS {
            let n = visits.len();
            return Err(invalid(format!("clients: {n} are more than {CLIENTS}: ask in parts")));
        }
        let mut named = HashSet::new();
        if let Some(twice) = visits.iter().find(|visit| !named.insert(visit.key)) {
            return Err(invalid(format!("clients: `{}` is named twice", twice.key)));
        }
        self.done(|this| async move {
            let workers = &this.0.workers;
            let home = this.home();
            let of = |key| home.unwrap_or_else(|| worker_of(key, workers.len()));
            let places: Vec<usize> = visits.iter().map(|visit| of(visit.key)).collect();
            if !workers.iter().all(Handle::has_room) {
                return Err(CommandError::Busy.into());
            }
            let mut asked = Vec::with_capacity(workers.len());
            for (number, worker) in workers.iter().enumerate() {
                let own = visits.iter().zip(&places).filter(|(_, place)| **place == number);
                asked.push(worker.visit(own.map(|(visit, _)| *visit).collect())?);
            }
            let mut made: Vec<_> = gather(asked).await?.into_iter().map(Vec::into_iter).collect();
            let next = |place: &usize| made.get_mut(*place).and_then(Iterator::next);
            Ok(places.iter().filter_map(next).collect())
        })
        .await
    }
}
