// SPDX-License-Identifier: Apache-2.0
//! Streams to watchers. Their number is limited, and they end with linkd and with the watcher's
//! certificate.

use crate::caller::Caller;
use crate::connection::Peer;
use crate::shares::{Holder, Limit, Share, Shares};
use futures_util::{Stream, StreamExt};
use std::pin::pin;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

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

    /// A place for a stream that answers a request.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED.
    pub fn begin<T>(&self, request: &Request<T>) -> Result<Watch, Status> {
        let _place = self.permit(&Caller::of(request))?;
        let ended = request.extensions().get::<Peer>().and_then(Peer::ended);
        Ok(Watch { _place, stopping: self.stopping.clone(), ended })
    }

    /// Held by a stream of a caller for as long as it lasts.
    fn permit(&self, caller: &Caller) -> Result<Share, Status> {
        let streams = if caller.is_local() { &self.local } else { &self.remote };
        let share = streams.take(Holder::from(caller), 1);
        share.map_err(|over| Status::resource_exhausted(over.told("streams")))
    }
}

/// An answer of messages.
pub(crate) type Messages<T> = ReceiverStream<Result<T, Status>>;

/// A stream to a watcher that begins.
pub(crate) struct Watch {
    _place: Share,
    /// True: linkd is about to end.
    stopping: watch::Receiver<bool>,
    /// Says why, when the caller's certificate has ended.
    ended: Option<watch::Receiver<Option<String>>>,
}

impl Watch {
    /// Sends the messages of a source. The stream ends when the source ends or fails, when linkd stops,
    /// or when the caller's certificate expires.
    ///
    /// A separate task polls the source, one message ahead of the connection. The connection itself does
    /// not poll while the watcher does not read. A source that waits for a tokio mutex could then be given
    /// the lock and keep it.
    pub fn answer<T: Send + 'static>(
        mut self,
        source: impl Stream<Item = Result<T, Status>> + Send + 'static,
    ) -> Response<Messages<T>> {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut source = pin!(source);
            loop {
                let message = tokio::select! {
                    message = source.next() => message,
                    () = sender.closed() => return,
                    () = self.stopped() => {
                        let _ = sender.try_send(Err(self.status()));
                        return;
                    }
                };
                let Some(message) = message else { return };
                let is_last = message.is_err();
                tokio::select! {
                    sent = sender.send(message) => if sent.is_err() || is_last { return },
                    () = self.stopped() => return,
                }
            }
        });
        Response::new(ReceiverStream::new(receiver))
    }

    /// Waits until linkd stops or the caller's certificate expires.
    async fn stopped(&mut self) {
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

    fn status(&self) -> Status {
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
    use futures_util::FutureExt;
    use futures_util::stream::unfold;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::Mutex;
    use tokio::time::timeout;

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

    #[tokio::test]
    async fn watcher_that_does_not_read_holds_no_lock() {
        let (_stop, stopping) = watch::channel(false);
        let watching = Watching::new(stopping);
        let lock = Arc::new(Mutex::new(()));
        let held = lock.clone().lock_owned().await;
        let mut streams = Vec::new();
        for _ in 0..2 {
            let source = unfold(lock.clone(), |lock| async move {
                drop(lock.lock().await);
                Some((Ok(()), lock))
            });
            let watch = watching.begin(&Request::new(())).unwrap();
            let mut stream = watch.answer(source).into_inner();
            assert!(stream.next().now_or_never().is_none());
            streams.push(stream);
        }
        tokio::task::yield_now().await;
        drop(held);
        for _ in 0..3 {
            drop(timeout(Duration::from_secs(20), lock.lock()).await.unwrap());
            tokio::task::yield_now().await;
        }
    }
}
