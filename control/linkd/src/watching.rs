// SPDX-License-Identifier: Apache-2.0
//! Common rules of all streams: their number is limited, and they end with linkd and with the
//! watcher's certificate.

use crate::caller::Caller;
use crate::connection::Peer;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tonic::{Request, Status};

/// Streams at once, of either kind.
const WATCHERS: usize = 64;

/// Lets a bounded number watch; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Watching {
    /// Local and network streams have separate limits, so that the network cannot lock out local
    /// users.
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

    /// For a stream that answers a request.
    pub fn ending<T>(&self, request: &Request<T>) -> Stopping {
        let ended = request.extensions().get::<Peer>().and_then(Peer::ended);
        Stopping { stopping: self.stopping.clone(), ended }
    }
}

/// Says that linkd is about to end, or that the certificate of a caller has ended.
#[derive(Clone, Debug)]
pub(crate) struct Stopping {
    stopping: watch::Receiver<bool>,
    ended: Option<watch::Receiver<Option<String>>>,
}

impl Stopping {
    /// Waits for it.
    pub async fn stopped(&mut self) {
        // An error is the end as well.
        let stopping = self.stopping.wait_for(|stopping| *stopping);
        let Some(ended) = &mut self.ended else {
            let _ = stopping.await;
            return;
        };
        tokio::select! {
            _ = stopping => {}
            _ = ended.wait_for(Option::is_some) => {}
        }
    }

    /// The status with which such a stream ends.
    pub fn status(&self) -> Status {
        match self.ended.as_ref().and_then(|ended| ended.borrow().clone()) {
            Some(why) => Status::unauthenticated(why),
            None => Status::unavailable("linkd is shutting down"),
        }
    }
}
