// SPDX-License-Identifier: Apache-2.0
//! Common rules of all streams: their number is limited, and they end with linkd and with the
//! watcher's certificate.

use crate::caller::Caller;
use crate::connection::Peer;
use crate::shares::{Holder, Limit, Share, Shares};
use tokio::sync::watch;
use tonic::{Request, Status};

/// Streams at once of local callers, and of network callers.
const STREAMS: Limit = Limit { caller: 32, address: 128, all: 128 };

/// Lets a bounded number watch; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Watching {
    /// Local and network streams have separate limits, so that the network cannot lock out local
    /// users.
    local: Shares,
    remote: Shares,
    stopping: watch::Receiver<bool>,
}

impl Watching {
    /// Until `stopping` is true.
    pub fn new(stopping: watch::Receiver<bool>) -> Self {
        Self { local: Shares::new(STREAMS), remote: Shares::new(STREAMS), stopping }
    }

    /// Held by a stream of a caller for as long as it lasts.
    pub fn permit(&self, caller: &Caller) -> Result<Share, Status> {
        let streams = if caller.is_local() { &self.local } else { &self.remote };
        let share = streams.take(Holder::from(caller), 1);
        share.map_err(|over| Status::resource_exhausted(over.told("streams")))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Role;

    #[test]
    fn viewer_with_all_its_streams_leaves_some_to_others() {
        let (_stop, stopping) = watch::channel(false);
        let watching = Watching::new(stopping);
        let caller = |name: &str, role, from: &str| Caller {
            name: name.into(),
            role,
            from: from.into(),
            ..Caller::linkd()
        };
        let eve = caller("eve", Role::Viewer, "127.0.0.1:5");
        let _streams: Vec<_> = (0..32).map(|_| watching.permit(&eve).unwrap()).collect();
        let status = watching.permit(&eve).unwrap_err();
        assert!(status.message().starts_with("32 streams of one caller are open"), "{status:?}");
        watching.permit(&caller("ann", Role::Viewer, "web 127.0.0.1:6")).unwrap();
        watching.permit(&caller("eve", Role::Operator, "web 127.0.0.1:7")).unwrap();
        watching.permit(&caller("eve", Role::Viewer, "unix")).unwrap();
    }
}
