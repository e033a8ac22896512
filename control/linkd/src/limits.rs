// SPDX-License-Identifier: Apache-2.0
//! Limits the number of connections, and the time to establish one.
//!
//! A slot is taken before the first byte is read and freed when the connection is gone, so
//! handshakes count. TCP and the unix socket have separate slots: the network cannot lock out local
//! users, and other users cannot lock out the owner.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Over TCP. The unix socket has the same limit, with some slots reserved for the owner.
    pub connections: usize,
    /// Over TCP from one IPv4 address or one IPv6 /64, which is one subscriber's.
    pub per_address: usize,
    /// On the unix socket, for each user other than its owner.
    pub per_user: usize,
    /// From the connection to the end of the handshakes of TLS and of HTTP/2.
    pub handshake: Duration,
    /// Silence after which a peer is sent an HTTP/2 PING.
    pub quiet: Duration,
    /// Time without an answer to the PING after which the connection is closed.
    pub dead: Duration,
    /// From the creation of a login link of the web page to its end.
    pub web_link: Duration,
    /// From a login to the end of the session.
    pub web_session: Duration,
    /// For the head of a request to the web page.
    pub web_head: Duration,
    /// How long a browser may leave an answer unread before its connection is closed.
    pub web_unread: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            per_address: 16,
            per_user: 32,
            handshake: Duration::from_secs(5),
            quiet: Duration::from_secs(20),
            dead: Duration::from_secs(10),
            web_link: Duration::from_secs(120),
            web_session: Duration::from_secs(12 * 3600),
            web_head: Duration::from_secs(5),
            web_unread: Duration::from_secs(30),
        }
    }
}

/// The slots that are taken; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<Shared>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    Address(IpAddr),
    User(u32),
    /// The superuser, or the user of linkd: limited by the number of slots only.
    Owner,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(_) => f.write_str("from this address"),
            Self::User(uid) => write!(f, "of user {uid}"),
            Self::Owner => f.write_str("of the socket's owner"),
        }
    }
}

#[derive(Debug)]
struct Shared {
    all: usize,
    each: usize,
    /// Slots reserved for the owner.
    kept: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<Peer, usize>,
}

/// A slot that is taken; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    peer: Peer,
}

impl Slots {
    /// `all` slots, of these `each` for one peer that is not the owner, and `kept` for the owner
    /// alone.
    pub fn new(all: usize, each: usize, kept: usize) -> Self {
        Self(Arc::new(Shared { all, each, kept, taken: Mutex::default() }))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot, or returns the reason why there is none.
    pub fn take(&self, peer: Peer) -> Result<Slot, String> {
        let peer = match peer {
            Peer::Address(address) => Peer::Address(network(address)),
            other => other,
        };
        let Shared { all, each, kept, .. } = *self.0;
        let (all, each) = match peer {
            Peer::Owner => (all, all),
            _ => (all.saturating_sub(kept), each),
        };
        let mut taken = self.taken();
        if taken.all >= all {
            return Err(format!(
                "there are {all} connections, as many as there may be: end some, or try again later"
            ));
        }
        let by = taken.by.entry(peer).or_default();
        if *by >= each {
            return Err(format!(
                "there are {each} connections {peer}, as many as there may be: end some, or try \
                 again later"
            ));
        }
        *by += 1;
        taken.all += 1;
        Ok(Slot { slots: self.clone(), peer })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        taken.all -= 1;
        if let Some(by) = taken.by.get_mut(&self.peer) {
            *by -= 1;
            if *by == 0 {
                taken.by.remove(&self.peer);
            }
        }
    }
}

/// The prefix that counts as one address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => Ipv6Addr::from(u128::from(six) & !u128::from(u64::MAX)).into(),
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_for_each_address_and_for_all_and_come_back() {
        let slots = Slots::new(3, 2, 0);
        let take = |from: &str| slots.take(Peer::Address(from.parse().unwrap()));
        let first = take("10.0.0.1").unwrap();
        let _second = take("::ffff:10.0.0.1").unwrap();
        assert!(take("10.0.0.1").unwrap_err().contains("2 connections from this address"));
        let six = take("2001:db8::1").unwrap();
        assert!(take("10.0.0.2").unwrap_err().contains("there are 3 connections"));
        drop(first);
        let _again = take("2001:db8::2").unwrap();
        drop(six);
        let _other = take("2001:db8::3").unwrap();
        assert!(take("2001:db8:0:1::1").is_err());
        assert_eq!(slots.taken().by.len(), 2);
    }

    #[test]
    fn users_are_bounded_each_and_leave_slots_to_the_owner() {
        let slots = Slots::new(4, 2, 1);
        let taken: Vec<_> = [7, 7, 8].map(|uid| slots.take(Peer::User(uid)).unwrap()).into();
        assert!(slots.take(Peer::User(7)).unwrap_err().contains("there are 3 connections"));
        let owners = slots.take(Peer::Owner).unwrap();
        assert!(slots.take(Peer::Owner).unwrap_err().contains("there are 4 connections"));
        drop((taken, owners));
        let taken = [(); 2].map(|()| slots.take(Peer::User(7)).unwrap());
        assert!(slots.take(Peer::User(7)).unwrap_err().contains("2 connections of user 7"));
        drop(taken);
    }
}
