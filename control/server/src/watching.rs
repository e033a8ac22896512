// SPDX-License-Identifier: Apache-2.0
//! What all streams have in common: how many there are, and that they end with linkd.

use crate::caller::Caller;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::Status;

/// Streams at once, of either kind.
const WATCHERS: usize = 64;

/// Lets a bounded number watch; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Watching {
    /// At the machine, and over the network: nobody there can lock out who sits here.
    local: Arc<Semaphore>,
    remote: Arc<Semaphore>,
    stopping: watch::Receiver<bool>,
}

impl Watching {
    /// Until `stopping` is true.
    pub fn new(stopping: watch::Receiver<bool>) -> Self {
        let permits = || Arc::new(Semaphore::new(WATCHERS));
        Self { local: permits(), remote: permits(), stopping }
    }

    /// Held by a stream of a caller for as long as it lasts.
    pub fn permit(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, Status> {
        let permits = if caller.is_local() { &self.local } else { &self.remote };
        permits.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!("{WATCHERS} watch already: stop one of them"))
        })
    }

    /// For a stream to end by.
    pub fn stopping(&self) -> Stopping {
        Stopping(self.stopping.clone())
    }
}

/// Says that linkd is about to end.
#[derive(Clone, Debug)]
pub(crate) struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Waits for it.
    pub async fn stopped(&mut self) {
        // An error is the end as well.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }

    /// What a stream that is ended by it is told.
    pub fn status(&self) -> Status {
        Status::unavailable("linkd is shutting down")
    }
}
