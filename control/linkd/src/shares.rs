// SPDX-License-Identifier: Apache-2.0
//! Divides a limited amount among callers: connections, streams, calls, or bytes of requests.
//!
//! Limits apply to one caller, to one address, and to all, in this order. A quarter of the last two
//! is reserved for operators and admins, so that viewers cannot lock them out.

use crate::caller::{Caller, Role};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One part in so many of the limits for an address and for all is reserved.
const RESERVED: usize = 4;

/// Limits of an amount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub caller: usize,
    pub address: usize,
    pub all: usize,
}

/// The owner of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Name and role: a session with a lower role than its user's takes nothing from the user.
    caller: Option<Arc<str>>,
    /// `None` for callers on this machine, which have one address in common.
    address: Option<IpAddr>,
    is_viewer: bool,
}

impl Holder {
    /// A user of the unix socket.
    pub fn user(uid: u32) -> Self {
        Self { caller: Some(format!("user {uid}").into()), address: None, is_viewer: true }
    }

    /// The owner of the unix socket, who has no limit but that for all.
    pub fn owner() -> Self {
        Self { caller: None, address: None, is_viewer: false }
    }

    /// A peer that is no caller, such as one with a certificate without a role; from where, as
    /// [`Caller::from`].
    pub fn peer(from: &str) -> Self {
        Self { caller: Some(format!("peer {from}").into()), address: remote(from), is_viewer: true }
    }
}

impl From<&Caller> for Holder {
    fn from(caller: &Caller) -> Self {
        let name = format!("{} {}", caller.role, caller.name);
        let (address, is_viewer) = (remote(&caller.from), caller.role < Role::Operator);
        Self { caller: Some(name.into()), address, is_viewer }
    }
}

/// The prefix that counts as one address, from where a caller is; `None` for this machine.
fn remote(from: &str) -> Option<IpAddr> {
    let address: SocketAddr = from.rsplit(' ').next()?.parse().ok()?;
    Some(network(address.ip())).filter(|address| !address.is_loopback())
}

/// An IPv4 address, or the /64 of an IPv6 address, which is one subscriber's.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) if !six.is_loopback() => {
            Ipv6Addr::from(u128::from(six) & !u128::from(u64::MAX)).into()
        }
        other => other,
    }
}

/// The limit that refused a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Caller(usize),
    Address(usize),
    All(usize),
}

impl Over {
    /// The reason of a refusal; `what` is counted, such as "streams".
    pub fn told(self, what: &str) -> String {
        let (limit, whose) = match self {
            Self::Caller(limit) => (limit, "of one caller"),
            Self::Address(limit) => (limit, "from one address"),
            Self::All(limit) => (limit, "of all callers"),
        };
        format!("{limit} {what} {whose} are open, the most: end some, or try again later")
    }
}

/// The amounts that are taken; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Shares(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: Limit,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    callers: HashMap<Arc<str>, usize>,
    addresses: HashMap<IpAddr, usize>,
}

/// An amount that is taken; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Shares,
    holder: Holder,
    amount: usize,
}

impl Shares {
    pub fn new(limit: Limit) -> Self {
        Self(Arc::new(Shared { limit, taken: Mutex::default() }))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an amount.
    ///
    /// # Errors
    /// The limit that it would exceed.
    pub fn take(&self, holder: Holder, amount: usize) -> Result<Share, Over> {
        let mut share = Share { shares: self.clone(), holder, amount: 0 };
        share.grow(amount)?;
        Ok(share)
    }
}

impl Share {
    /// Takes more. After an error the share has its earlier amount.
    pub fn grow(&mut self, amount: usize) -> Result<(), Over> {
        let Limit { caller, mut address, mut all } = self.shares.0.limit;
        if self.holder.is_viewer {
            (address, all) = (address - address / RESERVED, all - all / RESERVED);
        }
        let mut taken = self.shares.taken();
        if let Some(name) = &self.holder.caller
            && taken.callers.get(name).copied().unwrap_or(0) + amount > caller
        {
            return Err(Over::Caller(caller));
        }
        if let Some(from) = &self.holder.address
            && taken.addresses.get(from).copied().unwrap_or(0) + amount > address
        {
            return Err(Over::Address(address));
        }
        if taken.all + amount > all {
            return Err(Over::All(all));
        }
        taken.all += amount;
        if let Some(name) = &self.holder.caller {
            *taken.callers.entry(name.clone()).or_default() += amount;
        }
        if let Some(from) = self.holder.address {
            *taken.addresses.entry(from).or_default() += amount;
        }
        self.amount += amount;
        Ok(())
    }

    pub fn holder(&self) -> &Holder {
        &self.holder
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken();
        taken.all -= self.amount;
        if let Some(name) = &self.holder.caller {
            give_back(&mut taken.callers, name, self.amount);
        }
        if let Some(from) = &self.holder.address {
            give_back(&mut taken.addresses, from, self.amount);
        }
    }
}

fn give_back<K: Eq + std::hash::Hash>(taken: &mut HashMap<K, usize>, key: &K, amount: usize) {
    if let Some(own) = taken.get_mut(key) {
        *own -= amount;
        if *own == 0 {
            taken.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str, role: Role, from: &str) -> Holder {
        let caller = Caller { name: name.into(), role, from: from.into(), ..Caller::linkd() };
        Holder::from(&caller)
    }

    #[test]
    fn caller_reaches_its_own_limit_and_leaves_room_to_others() {
        let shares = Shares::new(Limit { caller: 3, address: 100, all: 100 });
        let eve = caller("eve", Role::Viewer, "10.0.0.1:5");
        let mut taken = shares.take(eve.clone(), 2).unwrap();
        taken.grow(1).unwrap();
        assert_eq!(taken.grow(1), Err(Over::Caller(3)));
        // The same name with another role, as in a session of the page.
        let _own = shares.take(caller("eve", Role::Operator, "10.0.0.1:6"), 3).unwrap();
        let _bob = shares.take(caller("bob", Role::Viewer, "web 10.0.0.1:7"), 3).unwrap();
        drop(taken);
        let _again = shares.take(eve, 3).unwrap();
    }

    #[test]
    fn viewers_leave_a_quarter_to_operators() {
        let shares = Shares::new(Limit { caller: 100, address: 8, all: 16 });
        let viewer = |n: u32| caller("eve", Role::Viewer, &format!("10.0.0.{n}:1"));
        let operator = |n: u32| caller("bob", Role::Operator, &format!("10.0.0.{n}:1"));
        let _first = shares.take(viewer(1), 6).unwrap();
        assert_eq!(shares.take(viewer(1), 1).unwrap_err(), Over::Address(6));
        let _second = shares.take(viewer(2), 6).unwrap();
        assert_eq!(shares.take(viewer(3), 1).unwrap_err(), Over::All(12));
        let _third = shares.take(operator(1), 2).unwrap();
        assert_eq!(shares.take(operator(1), 1).unwrap_err(), Over::Address(8));
        let _fourth = shares.take(operator(3), 2).unwrap();
        assert_eq!(shares.take(operator(4), 1).unwrap_err(), Over::All(16));
    }

    #[test]
    fn address_is_a_network_and_loopback_is_none() {
        let shares = Shares::new(Limit { caller: 100, address: 4, all: 100 });
        let take = |from: &str| shares.take(caller(from, Role::Viewer, from), 3);
        let _four = take("10.0.0.1:1").unwrap();
        assert_eq!(take("web [::ffff:10.0.0.1]:1").unwrap_err(), Over::Address(3));
        let _six = take("[2001:db8::1]:1").unwrap();
        assert_eq!(take("[2001:db8::2]:1").unwrap_err(), Over::Address(3));
        let _other = take("[2001:db8:0:1::1]:1").unwrap();
        let local = ["127.0.0.1:1", "web 127.0.0.2:1", "[::1]:1"];
        let _local = local.map(|from| take(from).unwrap());
    }

    #[test]
    fn dropped_shares_leave_no_entry() {
        let shares = Shares::new(Limit { caller: 9, address: 9, all: 9 });
        drop(shares.take(caller("eve", Role::Viewer, "10.0.0.1:1"), 2));
        drop(shares.take(Holder::user(7), 2));
        let taken = shares.taken();
        assert_eq!((taken.all, taken.callers.len(), taken.addresses.len()), (0, 0, 0));
    }

    #[test]
    fn owner_of_the_socket_has_the_limit_for_all_only() {
        let shares = Shares::new(Limit { caller: 2, address: 0, all: 4 });
        let _one = shares.take(Holder::user(7), 2).unwrap();
        let over = shares.take(Holder::user(7), 1).unwrap_err();
        assert_eq!(over, Over::Caller(2));
        assert!(over.told("connections").starts_with("2 connections of one caller are open"));
        let _two = shares.take(Holder::user(8), 1).unwrap();
        assert_eq!(shares.take(Holder::user(9), 1).unwrap_err(), Over::All(3));
        let _owner = shares.take(Holder::owner(), 1).unwrap();
        assert_eq!(shares.take(Holder::owner(), 1).unwrap_err(), Over::All(4));
    }
}
