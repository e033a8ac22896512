// SPDX-License-Identifier: Apache-2.0
//! Finds a client by its key.

use std::net::IpAddr;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{BYPASS, DEFAULT};
use crate::client::{ClientKey, ClientName};

/// The clients by key. Each kind of key has its own table, so that an entry is
/// small: with many clients each look is one into cold memory.
#[derive(Debug)]
pub(super) struct Index {
    v4: HashMap<u32, u32, FixedState>,
    v6: HashMap<u128, u32, FixedState>,
    /// By the bits of the name, which hash faster than its bytes.
    named: HashMap<u128, u32, FixedState>,
}

impl Index {
    /// A table of `seed`, with room for so many clients that it does not allocate.
    pub(super) fn new(seed: u64, room: usize) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            v4: HashMap::with_capacity_and_hasher(room, hasher.clone()),
            v6: HashMap::with_capacity_and_hasher(room, hasher.clone()),
            named: HashMap::with_capacity_and_hasher(room, hasher),
        }
    }

    #[inline]
    pub(super) fn get(&self, key: ClientKey) -> Option<u32> {
        match key {
            ClientKey::Bypass => Some(BYPASS),
            ClientKey::Default | ClientKey::Expired => Some(DEFAULT),
            ClientKey::Ip(IpAddr::V4(a)) => self.get_v4(a.to_bits()),
            ClientKey::Ip(IpAddr::V6(a)) => self.v6.get(&a.to_bits()).copied(),
            ClientKey::Named(name) => self.get_named(name),
        }
    }

    #[inline(always)]
    pub(super) fn get_named(&self, name: ClientName) -> Option<u32> {
        self.named.get(&name.bits()).copied()
    }

    /// The client of an IPv4 address.
    #[inline]
    pub(super) fn get_v4(&self, address: u32) -> Option<u32> {
        self.v4.get(&address).copied()
    }

    pub(super) fn insert(&mut self, key: ClientKey, id: u32) {
        match key {
            ClientKey::Ip(IpAddr::V4(a)) => _ = self.v4.insert(a.to_bits(), id),
            ClientKey::Ip(IpAddr::V6(a)) => _ = self.v6.insert(a.to_bits(), id),
            ClientKey::Named(name) => _ = self.named.insert(name.bits(), id),
            ClientKey::Bypass | ClientKey::Default | ClientKey::Expired => {}
        }
    }

    /// Forgets the client of an address.
    pub(super) fn remove(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(a) => _ = self.v4.remove(&a.to_bits()),
            IpAddr::V6(a) => _ = self.v6.remove(&a.to_bits()),
        }
    }
}
