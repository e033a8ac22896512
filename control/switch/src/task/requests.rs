// SPDX-License-Identifier: Apache-2.0
//! Serves the requests of the handles while the switch is ready.

use super::checking::Checks;
use super::reading::Readings;
use super::{End, Task, epoch};
use crate::accounts::{self, Accounts};
use crate::model::{Client, DEFAULT, Error, Loss, Offload, Phase};
use crate::names;
use crate::shared::{Clients, Request};
use emu::units::Direction;
use p4runtime::Session;
use std::time::Instant;

impl Task {
    pub(super) async fn answer(
        &mut self,
        session: &Session,
        readings: &mut Readings,
        checks: &mut Checks,
        request: Request,
    ) -> Result<(), End> {
        match request {
            // The caller has timed out.
            Request::Offload { reply, .. } if reply.is_closed() => Ok(()),
            Request::Gate { reply, .. } if reply.is_closed() => Ok(()),
            Request::Mirrors { reply, .. } if reply.is_closed() => Ok(()),
            Request::Written { reply } => {
                self.take(session).await?;
                let wrong = self.standing.wrong();
                let lacks = |table: &&str| wrong.contains(table);
                let steering = names::CLIENTS.iter().chain([&names::BUCKETS, &names::PORTS]);
                let said = match (&self.desired.withheld, steering.copied().any(|it| lacks(&it))) {
                    (Some(why), _) => Err(Error::NotReady(why.clone())),
                    (None, true) => Err(Error::NotReady(self.standing.refusals())),
                    (None, false) => Ok(()),
                };
                let _gone = reply.send(said);
                Ok(())
            }
            Request::Offload { instance, rules, forward, return_, reply } => {
                let losses = [forward, return_];
                let offload = self.offload(session, (instance, rules), losses).await?;
                // If the caller timed out, its losses expire like all others.
                let _gone = reply.send(offload);
                Ok(())
            }
            Request::Gate { client, direction, closed, reply } => {
                let before = self.desired.gates.clone();
                let done = self.gate(session, client, direction, closed).await;
                let said = said(&done);
                let failed = said.is_err();
                if reply.send(said).is_err() || failed {
                    // The caller does not know of the change, so a later write must not apply it.
                    self.desired.gates = before;
                    done?;
                    return self.write(session, &[names::GATES]).await;
                }
                Ok(())
            }
            Request::Mirrors { mirrors, reply } => {
                let (wanted, size) = (mirrors.len(), self.size(names::MIRRORS));
                if wanted as u64 > size {
                    let _gone = reply.send(Err(Error::Mirrors { wanted, size }));
                    return Ok(());
                }
                let before = std::mem::replace(&mut self.desired.mirrors, mirrors);
                let done = self.mirrors(session).await;
                let said = said(&done);
                let failed = said.is_err();
                if reply.send(said).is_err() || failed {
                    self.desired.mirrors = before;
                    done?;
                    return self.mirrors(session).await.map(drop);
                }
                Ok(())
            }
            Request::Counts { reply } => {
                readings.ask(reply);
                Ok(())
            }
            Request::Check { reply } => {
                checks.ask(reply);
                Ok(())
            }
        }
    }

    async fn offload(
        &mut self,
        session: &Session,
        (instance, rules): (u64, u64),
        losses: [Loss; 2],
    ) -> Result<Offload, End> {
        if (self.desired.instance, self.desired.rules) != (instance, rules) {
            self.begin(session, instance, rules).await?;
        }
        let stages = self.config.stages;
        let mut numbers = [0; 2];
        if stages.loses {
            let (size, now) = (self.size(names::LOSS), Instant::now());
            for (number, loss) in numbers.iter_mut().zip(losses) {
                *number = self.desired.slots.number(loss, size, now).unwrap_or(0);
            }
            self.write(session, &[names::LOSS]).await?;
            let standing = self.standing.table(names::LOSS);
            for number in &mut numbers {
                // The switch may have rejected the write and hold another loss under this number.
                let stands = self.desired.slots.entry(*number);
                if stands.is_none_or(|entry| standing.get(&entry.key) != Some(&entry)) {
                    *number = 0;
                }
            }
        }
        let [forward_loss, return_loss] = numbers;
        let epoch = self.desired.epoch;
        Ok(Offload { epoch, forward_loss, return_loss, marks: stages.marks })
    }

    /// Starts an epoch for another dataplane, which numbers its clients differently, or for other
    /// rules of the same dataplane. Numbers of clients are deleted before the epoch changes: with one
    /// box their entries, with several ones not, so that each client's frames still go to its owner.
    /// Counters are cleared only for another dataplane.
    async fn begin(&mut self, session: &Session, instance: u64, rules: u64) -> Result<(), End> {
        let renumbered = self.desired.instance != instance;
        (self.desired.instance, self.desired.rules) = (instance, rules);
        if renumbered {
            // Clearing all counters takes time.
            self.shared.set_phase(Phase::Restoring, String::new());
            self.knows_clients = false;
            // Set before the first await, in case the switch is lost.
            (self.accounts, self.uncleared) =
                (Accounts::new(&self.config, self.desired.cells), true);
            // Higher numbers belong to other clients now; their gates have to be set again by name.
            let gates = &mut self.desired.gates;
            let cells = self.desired.cells;
            let stays =
                |client: Option<u16>| client.is_none_or(|cell| cells.place(cell).1 <= DEFAULT);
            gates.retain(|(client, _)| stays(*client));
            self.desired.mirrors.retain(|(client, ..)| stays(*client));
        }
        let cells = self.desired.cells;
        if self.config.boxes.len() > 1 {
            let unnumbered = |client: Client| {
                let (owner, _) = cells.place(client.number);
                Client { number: cells.cell(owner, 0), ..client }
            };
            let clients = self.desired.clients.take().unwrap_or_default();
            self.desired.clients = Some(clients.into_iter().map(unnumbered).collect());
            self.write_clients(session).await?;
        } else {
            self.desired.clients = Some(Vec::new());
            self.desired.withheld = None;
            self.empty_clients(session).await?;
        }
        // After the ports are written, a new linkd attributes counts to that dataplane.
        self.clear(session).await?;
        self.desired.epoch = epoch(self.desired.epoch);
        let tables = [names::GATES, names::MIRRORS, names::NOTES, names::PORTS];
        self.write(session, &tables).await?;
        // Set before the answer, so that the caller sees the switch as ready.
        self.shared.set_phase(Phase::Ready, self.standing.refusals());
        Ok(())
    }

    /// Resets the counters of the switch if necessary.
    pub(super) async fn clear(&mut self, session: &Session) -> Result<(), End> {
        if self.uncleared {
            accounts::clear(session, &self.accounts).await?;
            self.uncleared = false;
        }
        Ok(())
    }

    async fn gate(
        &mut self,
        session: &Session,
        client: Option<u16>,
        direction: Option<Direction>,
        closed: bool,
    ) -> Result<String, End> {
        for one in Direction::BOTH.into_iter().filter(|one| direction.is_none_or(|d| d == *one)) {
            let gate = (client, one);
            if closed {
                self.desired.gates.insert(gate);
            } else {
                self.desired.gates.remove(&gate);
            }
        }
        self.write(session, &[names::GATES]).await?;
        let wrong = self.standing.wrong().contains(&names::GATES);
        Ok(if wrong { self.standing.refusals() } else { String::new() })
    }

    /// Writes what is copied. Returns the switch's refusals.
    async fn mirrors(&mut self, session: &Session) -> Result<String, End> {
        // Ports say whether there are entries.
        self.write(session, &[names::MIRRORS, names::PORTS]).await?;
        let wrong = self.standing.wrong().contains(&names::MIRRORS);
        Ok(if wrong { self.standing.refusals() } else { String::new() })
    }

    /// Takes the values that need no answer.
    pub(super) async fn take(&mut self, session: &Session) -> Result<(), End> {
        let (clients, in_use) = self.shared.take();
        if let Some(offload) = in_use {
            self.in_use = offload;
            self.use_slots();
        }
        self.owners(session).await?;
        match clients {
            Some(Clients { instance, rules, clients })
                if (instance, rules) == (self.desired.instance, self.desired.rules) =>
            {
                self.clients(session, clients).await
            }
            _ => Ok(()),
        }
    }

    /// Takes the owners set last. Returns true if they differ.
    pub(super) fn take_owners(&mut self) -> bool {
        let Some(owners) = self.shared.take_owners() else { return false };
        self.knows_owners = true;
        std::mem::replace(&mut self.desired.owners, owners) != self.desired.owners
    }

    /// Writes new owners: buckets first, then the default owner, which most entries have.
    async fn owners(&mut self, session: &Session) -> Result<(), End> {
        let default = self.desired.owners.default;
        if !self.take_owners() {
            return Ok(());
        }
        self.write(session, &[names::BUCKETS]).await?;
        if self.desired.owners.default != default {
            self.write(session, &[names::PORTS]).await?;
            self.write_clients(session).await?;
        }
        Ok(())
    }

    async fn clients(&mut self, session: &Session, mut clients: Vec<Client>) -> Result<(), End> {
        let counted = names::counted(&self.info);
        for client in clients.iter_mut().filter(|client| client.number >= counted) {
            // The switch would not count it separately.
            client.number = 0;
        }
        self.accounts.know(clients.iter().map(|client| client.number));
        self.knows_clients = true;
        let clients = Some(clients);
        if self.desired.clients == clients {
            return Ok(());
        }
        self.desired.clients = clients;
        self.write_clients(session).await
    }
}

/// What the caller of a request is told, by what the switch refused or how the session ended.
fn said(done: &Result<String, End>) -> Result<(), Error> {
    match done {
        Ok(refused) if refused.is_empty() => Ok(()),
        Ok(refused) => Err(Error::NotReady(refused.clone())),
        Err(End::Lost(error)) => Err(Error::Switch(error.clone())),
        Err(End::Taken(by) | End::Denied(by)) => Err(Error::NotReady(by.clone())),
        Err(End::Closed) => Err(Error::Ended),
    }
}
