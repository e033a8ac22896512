// SPDX-License-Identifier: Apache-2.0
//! Room for the connections of a TCP listener.
//!
//! A connection is a stranger until its peer has shown a certificate or a session. A stranger is
//! never refused: if there are too many, the oldest one of the address that has the most is closed.
//! So idle connections and handshakes that hang keep no caller out, and no address another one.
//! Connections of callers have limits for each caller, each address and all ([`Shares`]).

use crate::limits::Limits;
use crate::shares::{Holder, Limit, Over, Share, Shares, network};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The connections; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    callers: Shares,
    strangers: Mutex<Strangers>,
    /// Most strangers.
    most: usize,
}

#[derive(Debug, Default)]
struct Strangers {
    /// Number of the last connection.
    last: u64,
    /// By the number of the connection.
    open: BTreeMap<u64, Stranger>,
}

#[derive(Debug)]
struct Stranger {
    address: IpAddr,
    closed: Arc<watch::Sender<bool>>,
}

/// The room of a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    number: u64,
    closed: Arc<watch::Sender<bool>>,
    /// Once the caller is known.
    share: Mutex<Option<Share>>,
}

impl Slots {
    pub fn new(limits: &Limits) -> Self {
        let Limits { connections: all, per_caller: caller, per_address: address, .. } = *limits;
        let callers = Shares::new(Limit { caller, address, all });
        let strangers = Mutex::default();
        Self(Arc::new(Shared { callers, strangers, most: limits.strangers }))
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.0.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a stranger. It may close another one.
    pub fn enter(&self, address: IpAddr) -> Slot {
        let closed = Arc::new(watch::Sender::new(false));
        let mut strangers = self.strangers();
        strangers.last += 1;
        let number = strangers.last;
        let stranger = Stranger { address: network(address), closed: closed.clone() };
        strangers.open.insert(number, stranger);
        if strangers.open.len() > self.0.most
            && let Some(oldest) = strangers.oldest_of_most()
            && let Some(stranger) = strangers.open.remove(&oldest)
        {
            stranger.closed.send_replace(true);
        }
        Slot { slots: self.clone(), number, closed, share: Mutex::default() }
    }
}

impl Strangers {
    /// The oldest one of the address that has the most.
    fn oldest_of_most(&self) -> Option<u64> {
        // The number of each address's connections, and the oldest of them.
        let mut addresses: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        for (number, stranger) in &self.open {
            addresses.entry(stranger.address).or_insert((0, *number)).0 += 1;
        }
        let most =
            addresses.into_values().max_by_key(|(count, oldest)| (*count, u64::MAX - oldest));
        most.map(|(_, oldest)| oldest)
    }
}

impl Slot {
    /// Turns the stranger into a caller's connection. The last caller counts: behind a proxy, callers
    /// share a connection.
    ///
    /// # Errors
    /// The limit that it would exceed. The connection stays as it was.
    pub fn identify(&self, holder: Holder) -> Result<(), Over> {
        let mut share = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        if share.as_ref().is_some_and(|share| *share.holder() == holder) {
            return Ok(());
        }
        *share = Some(self.slots.0.callers.take(holder, 1)?);
        self.slots.strangers().open.remove(&self.number);
        Ok(())
    }

    /// Waits until it has to make room for another stranger.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut closed = self.closed.subscribe();
        async move {
            if closed.wait_for(|closed| *closed).await.is_err() {
                // The slot is gone, and its connection with it.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.strangers().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::{Caller, Role};

    fn slots() -> Slots {
        let limits = Limits { strangers: 3, connections: 4, per_caller: 2, ..Limits::default() };
        Slots::new(&limits)
    }

    fn is_closed(slot: &Slot) -> bool {
        *slot.closed.borrow()
    }

    fn holder(name: &str, role: Role) -> Holder {
        Holder::from(&Caller { name: name.into(), role, ..Caller::linkd() })
    }

    #[test]
    fn newcomer_closes_the_oldest_stranger_of_the_address_with_the_most() {
        let slots = slots();
        let enter = |from: &str| slots.enter(from.parse().unwrap());
        let ann = enter("10.0.0.2");
        let flood = [enter("10.0.0.1"), enter("::ffff:10.0.0.1"), enter("10.0.0.1")];
        assert_eq!(flood.each_ref().map(is_closed), [true, false, false]);
        let bob = enter("10.0.0.3");
        assert_eq!(flood.each_ref().map(is_closed), [true, true, false]);
        assert!(!is_closed(&ann) && !is_closed(&bob));
        // Each address has one: the oldest of all.
        let _last = enter("10.0.0.4");
        assert!(is_closed(&ann) && !is_closed(&bob));
        drop((ann, flood, bob));
        assert_eq!(slots.strangers().open.len(), 1);
    }

    #[test]
    fn callers_connection_is_closed_for_no_stranger_and_has_limits() {
        let slots = slots();
        let enter = || slots.enter("127.0.0.1".parse().unwrap());
        let eve = [enter(), enter(), enter()];
        eve[0].identify(holder("eve", Role::Viewer)).unwrap();
        eve[0].identify(holder("eve", Role::Viewer)).unwrap();
        eve[1].identify(holder("eve", Role::Viewer)).unwrap();
        assert_eq!(eve[2].identify(holder("eve", Role::Viewer)), Err(Over::Caller(2)));
        let ann = enter();
        ann.identify(holder("ann", Role::Viewer)).unwrap();
        let bob = [enter(), enter()];
        assert_eq!(bob[0].identify(holder("bob", Role::Viewer)), Err(Over::All(3)));
        bob[0].identify(holder("bob", Role::Operator)).unwrap();
        let strangers: Vec<_> = (0..9).map(|_| enter()).collect();
        assert!(![&eve[0], &eve[1], &ann, &bob[0]].iter().any(|slot| is_closed(slot)));
        assert!(is_closed(&eve[2]) && is_closed(&bob[1]));
        assert_eq!(strangers.iter().filter(|slot| !is_closed(slot)).count(), 3);
    }

    #[tokio::test]
    async fn stranger_that_is_closed_is_told() {
        let slots = slots();
        let enter = || slots.enter("10.0.0.1".parse().unwrap());
        let first = enter();
        let closed = first.closed();
        let _others = [enter(), enter(), enter()];
        closed.await;
    }
}
