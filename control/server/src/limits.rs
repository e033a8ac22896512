// SPDX-License-Identifier: Apache-2.0
//! How many connections there may be, and how long each may take to become one.
//!
//! A slot is taken before the first byte is read and given back when the connection is
//! gone, so handshakes count. TCP and the unix socket have slots of their own: no
//! network locks out who sits at the machine.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What connections may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Over TCP, and again as many on the unix socket.
    pub connections: usize,
    /// Over TCP from one address; of IPv6 from one /64, which is one subscriber's.
    pub per_address: usize,
    /// From the connection to the first byte after the handshake.
    pub handshake: Duration,
    /// A peer that said nothing for so long is asked whether it lives (HTTP/2 PING).
    pub quiet: Duration,
    /// And is taken for dead after so long without an answer.
    pub dead: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            per_address: 16,
            handshake: Duration::from_secs(5),
            quiet: Duration::from_secs(20),
            dead: Duration::from_secs(10),
        }
    }
}

/// The slots that are taken; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    all: usize,
    each: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<Option<IpAddr>, usize>,
}

/// A slot that is taken; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Slots,
    key: Option<IpAddr>,
}

impl Slots {
    /// `all` slots, and of these `each` for one address.
    pub fn new(all: usize, each: usize) -> Self {
        Self(Arc::new(Shared { all, each, taken: Mutex::default() }))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one, for an address if there is one, or says why there is none.
    pub fn take(&self, from: Option<IpAddr>) -> Result<Slot, String> {
        let Shared { all, each, .. } = *self.0;
        let key = from.map(network);
        let mut taken = self.taken();
        if taken.all >= all {
            return Err(format!("there are {all} connections, as many as there may be"));
        }
        let by = taken.by.entry(key).or_default();
        if *by >= each {
            return Err(format!(
                "there are {each} connections from this address, as many as there may be"
            ));
        }
        *by += 1;
        taken.all += 1;
        Ok(Slot { slots: self.clone(), key })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        taken.all -= 1;
        if let Some(by) = taken.by.get_mut(&self.key) {
            *by -= 1;
            if *by == 0 {
                taken.by.remove(&self.key);
            }
        }
    }
}

/// What counts as one address.
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
        let slots = Slots::new(3, 2);
        let take = |from: &str| slots.take(Some(from.parse().unwrap()));
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
}
