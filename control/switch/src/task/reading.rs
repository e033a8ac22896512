// SPDX-License-Identifier: Apache-2.0
//! Reads all counters while other requests are served: a reading of many clients takes a second, and a
//! client that moves between boxes waits for its entries.

use super::{End, Task};
use crate::accounts::Accounts;
use crate::model::Counts;
use p4runtime::{Error, Session};
use std::pin::Pin;
use tokio::sync::oneshot;

/// A reading, and the callers that wait for one.
#[derive(Default)]
pub(super) struct Readings {
    current: Option<Current>,
    /// Callers that asked after the current reading began. Their counts are not older than their request.
    next: Vec<oneshot::Sender<()>>,
}

struct Current {
    /// The dataplane that the switch counts for.
    instance: u64,
    accounts: Pin<Box<dyn Future<Output = Result<Accounts, Error>> + Send>>,
    callers: Vec<oneshot::Sender<()>>,
}

/// A reading that has ended.
pub(super) struct Read {
    instance: u64,
    accounts: Result<Accounts, Error>,
    callers: Vec<oneshot::Sender<()>>,
}

impl Readings {
    pub(super) fn ask(&mut self, caller: oneshot::Sender<()>) {
        self.next.push(caller);
    }

    /// Begins the next reading if there is none and somebody waits for one.
    pub(super) fn begin(&mut self, session: &Session, instance: u64, accounts: &Accounts) {
        // Callers that have timed out.
        self.next.retain(|caller| !caller.is_closed());
        if self.current.is_none() && !self.next.is_empty() {
            let callers = std::mem::take(&mut self.next);
            let (session, mut accounts) = (session.clone(), accounts.clone());
            let accounts = Box::pin(async move {
                accounts.read(&session).await?;
                Ok(accounts)
            });
            self.current = Some(Current { instance, accounts, callers });
        }
    }

    /// Waits for the end of the current reading; without one, never returns. Cancel safe.
    pub(super) async fn end(&mut self) -> Read {
        let Some(current) = &mut self.current else { return std::future::pending().await };
        let accounts = current.accounts.as_mut().await;
        let (instance, callers) = (current.instance, std::mem::take(&mut current.callers));
        self.current = None;
        Read { instance, accounts, callers }
    }
}

impl Task {
    /// Publishes a reading. One that began before another dataplane was there counts for nothing.
    pub(super) fn publish_counts(&mut self, read: Read) -> Result<(), End> {
        let Read { instance, accounts, callers } = read;
        let is_current = instance == self.desired.instance;
        let done = accounts.map_err(End::from).map(|accounts| {
            if is_current {
                self.accounts.replace(accounts);
            }
        });
        let is_ready = done.is_ok() && is_current && self.knows_clients;
        let tick = self.config.target.tick();
        let counts = self.accounts.counts(self.desired.instance, tick, is_ready);
        self.shared.set_counts(Counts { foreign: self.foreign, ..counts });
        for caller in callers {
            let _gone = caller.send(());
        }
        done
    }
}
