// SPDX-License-Identifier: Apache-2.0
//! Compares the entries of the switch with those that were written, while other requests are served.
//!
//! Whoever reaches the P4Runtime service of some switches may write without being the primary (bmv2 asks for
//! no more than the primary's election id). A difference is repaired, counted and reported.

use super::{End, Task};
use crate::model::News;
use crate::standing::{Standing, Writes};
use p4runtime::{Error, Session};
use std::pin::Pin;
use std::time::Instant;
use tokio::sync::oneshot;

/// The current comparison, and the callers that wait for one.
pub(super) struct Checks {
    current: Option<Current>,
    /// Callers that asked after the current one began.
    next: Vec<oneshot::Sender<()>>,
    /// When the last one began.
    begun: Instant,
}

struct Current {
    /// Before the reading.
    writes: Writes,
    found: Pin<Box<dyn Future<Output = Result<Standing, Error>> + Send>>,
    callers: Vec<oneshot::Sender<()>>,
}

/// A reading that has ended.
pub(super) struct Checked {
    writes: Writes,
    found: Result<Standing, Error>,
    callers: Vec<oneshot::Sender<()>>,
}

impl Checks {
    pub(super) fn new(now: Instant) -> Self {
        Self { current: None, next: Vec::new(), begun: now }
    }

    pub(super) fn ask(&mut self, caller: oneshot::Sender<()>) {
        self.next.push(caller);
    }

    /// Begins the next comparison if there is none, and it is `due` or somebody waits for one.
    pub(super) fn begin(&mut self, session: &Session, standing: &Standing, due: bool) {
        self.next.retain(|caller| !caller.is_closed());
        if self.current.is_none() && (due || !self.next.is_empty()) {
            let session = session.clone();
            self.begun = Instant::now();
            self.current = Some(Current {
                writes: standing.writes(),
                found: Box::pin(async move { Standing::read(&session).await }),
                callers: std::mem::take(&mut self.next),
            });
        }
    }

    /// When the last comparison began.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// Waits for the end of the current reading; without one, never returns. Cancel safe.
    pub(super) async fn end(&mut self) -> Checked {
        let Some(current) = &mut self.current else { return std::future::pending().await };
        let found = current.found.as_mut().await;
        let (writes, callers) =
            (std::mem::take(&mut current.writes), std::mem::take(&mut current.callers));
        self.current = None;
        Checked { writes, found, callers }
    }
}

impl Task {
    /// Repairs what differs, and then answers.
    pub(super) async fn compare(&mut self, session: &Session, it: Checked) -> Result<(), End> {
        let Checked { writes, found, callers } = it;
        self.repair(session, found?, &writes).await?;
        for caller in callers {
            let _gone = caller.send(());
        }
        Ok(())
    }

    async fn repair(
        &mut self,
        session: &Session,
        found: Standing,
        writes: &Writes,
    ) -> Result<(), End> {
        let foreign = self.standing.foreign(&found, writes);
        if foreign.count() == 0 {
            return Ok(());
        }
        // Counted first: the repair may fail, or end the session.
        self.foreign = self.foreign.saturating_add(foreign.count());
        tracing::warn!(%foreign, "another one has changed entries of the switch");
        self.standing.take(found, &foreign);
        self.write_all(session).await?;
        self.standing.verify(session, &foreign).await?;
        (self.report)(News::Repaired { what: foreign.to_string() });
        Ok(())
    }
}
