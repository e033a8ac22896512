// SPDX-License-Identifier: Apache-2.0
//! Turns of requests that take long to decode or to answer: up to a second of a core.
//!
//! A caller has one turn at a time, and all callers together [`AT_ONCE`]. Callers take turns in the
//! order in which they ask (`tokio::sync::Semaphore` is fair, and each caller has one place in the
//! queue). One turn is for operators and admins alone. Requests are decoded beside the event loop,
//! so that short ones, such as the renewal of a lease, wait for none of them.

use crate::caller::{Caller, Role};
use crate::methods;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tonic::Status;

/// Turns of all callers at a time.
const AT_ONCE: usize = 2;
/// Those of viewers.
const VIEWERS: usize = AT_ONCE - 1;
/// Bytes above which a request needs a turn.
const SHORT: usize = 4 << 10;

/// The queue; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    all: Arc<Semaphore>,
    viewers: Arc<Semaphore>,
    callers: Mutex<HashMap<Key, Arc<Semaphore>>>,
}

/// Whether they may change the link, and the name.
type Key = (bool, String);

/// The turn of a request; one of a short request needs no place in the queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn(Option<Arc<Place>>);

#[derive(Debug)]
struct Place {
    turns: Turns,
    key: Key,
    permits: Vec<OwnedSemaphorePermit>,
}

impl Default for Turns {
    fn default() -> Self {
        let of = |turns| Arc::new(Semaphore::new(turns));
        Self(Arc::new(Shared { all: of(AT_ONCE), viewers: of(VIEWERS), callers: Mutex::default() }))
    }
}

impl Turns {
    /// Waits for the turn of a request of `bytes`.
    ///
    /// # Errors
    /// If linkd shuts down.
    pub async fn turn(&self, caller: &Caller, method: &str, bytes: usize) -> Result<Turn, Status> {
        if bytes <= SHORT && !methods::find(method).is_some_and(|it| it.is_costly) {
            return Ok(Turn(None));
        }
        let key = (caller.role >= Role::Operator, caller.name.clone());
        let own = {
            let mut callers = self.0.callers.lock().unwrap_or_else(PoisonError::into_inner);
            callers.entry(key.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
        };
        // From here on it removes its entry.
        let mut place = Place { turns: self.clone(), key, permits: Vec::new() };
        let viewers = (caller.role < Role::Operator).then(|| self.0.viewers.clone());
        for semaphore in [Some(own), viewers, Some(self.0.all.clone())].into_iter().flatten() {
            let permit = semaphore.acquire_owned().await;
            place.permits.push(permit.map_err(|_| Status::unavailable("linkd is shutting down"))?);
        }
        Ok(Turn(Some(Arc::new(place))))
    }
}

impl Turn {
    /// Does `work`, of a long request beside the event loop.
    ///
    /// # Errors
    /// If it panics, or linkd shuts down.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        if self.0.is_none() {
            return Ok(work());
        }
        // The turn lasts until the work has ended, even if the caller leaves.
        let turn = self.clone();
        let work = move || {
            let _turn = turn;
            work()
        };
        spawn_blocking(work).await.map_err(|_| Status::internal("linkd failed: please report this"))
    }

    /// The output of a call, which decodes its request when it is polled first.
    pub async fn call<T: Send + 'static>(
        &self,
        mut call: Pin<Box<dyn Future<Output = T> + Send>>,
    ) -> Result<T, Status> {
        if self.0.is_none() {
            return Ok(call.await);
        }
        let first = move || {
            // It is polled again below, with a waker.
            let output = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            (call, output)
        };
        match self.run(first).await? {
            (_, Poll::Ready(output)) => Ok(output),
            (call, Poll::Pending) => Ok(call.await),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.permits.clear();
        let mut callers = self.turns.0.callers.lock().unwrap_or_else(PoisonError::into_inner);
        // The table has the only reference if nobody else waits.
        if callers.get(&self.key).is_some_and(|own| Arc::strong_count(own) == 1) {
            callers.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;
    use tokio::task::yield_now;

    fn caller(name: &str, role: Role) -> Caller {
        Caller { name: name.into(), role, ..Caller::linkd() }
    }

    #[tokio::test]
    async fn callers_take_turns_and_operator_waits_for_no_viewer() {
        let turns = Turns::default();
        let (taken, mut next) = mpsc::unbounded_channel();
        let callers = [
            caller("eve", Role::Viewer),
            caller("eve", Role::Viewer),
            caller("ann", Role::Viewer),
            caller("bob", Role::Operator),
        ];
        for caller in callers {
            let (turns, taken) = (turns.clone(), taken.clone());
            tokio::spawn(async move {
                let turn = turns.turn(&caller, "", SHORT + 1).await.unwrap();
                taken.send((caller.name, turn)).unwrap();
            });
            yield_now().await;
        }
        let (first, eve) = next.recv().await.unwrap();
        let (second, bob) = next.recv().await.unwrap();
        assert_eq!([&*first, &*second], ["eve", "bob"]);
        drop(bob);
        yield_now().await;
        assert!(next.try_recv().is_err());
        // Eve has asked twice before Ann.
        drop(eve);
        let (third, ann) = next.recv().await.unwrap();
        assert_eq!(third, "ann");
        drop(ann);
        let (last, eve) = next.recv().await.unwrap();
        assert_eq!(last, "eve");
        // A short request needs no turn.
        turns.turn(&caller("eve", Role::Viewer), "", SHORT).await.unwrap();
        drop(eve);
        assert!(turns.0.callers.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn long_request_is_decoded_beside_the_event_loop() {
        let turns = Turns::default();
        let here = std::thread::current().id();
        for (bytes, is_here) in [(SHORT, true), (SHORT + 1, false)] {
            let call = Box::pin(async move {
                let first = std::thread::current().id();
                yield_now().await;
                (first == here, std::thread::current().id() == here)
            });
            let turn = turns.turn(&caller("eve", Role::Viewer), "", bytes).await.unwrap();
            assert_eq!(turn.call(call).await.unwrap(), (is_here, true));
        }
    }
}
