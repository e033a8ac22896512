// SPDX-License-Identifier: Apache-2.0
//! Rules: which frames are which named client's.
//!
//! A rule names one thing, and the client that it belongs to: a MAC address, the id of a
//! VLAN, or an IPv4 or IPv6 prefix. Of the rules that match a frame, one of a MAC goes
//! before one of a VLAN, that before one of a prefix, and of prefixes the longest: there is
//! no order to keep, and a switch's tables can do the same.
//!
//! - The MAC is the client's: the destination of a forward frame, the source of a return
//!   frame.
//! - The VLAN is that of the outermost tag. A tag with id 0 carries a priority and no VLAN.
//! - The address is the one of a potential automatic client. Multicast and other
//!   addresses that are not of one host match no prefix; a MAC or a VLAN may name their frames.
//! - What the link needs bypasses, and damaged headers are the default client's, whatever
//!   the rules say ([`crate::classify`]).
//!
//! Prefixes are looked up by tuple space search (Srinivasan, Suri, Varghese 1999): a table
//! for each length that occurs, the longest first. A frame costs one look for MACs, one for
//! VLANs and one for each length of its family, however many rules there are.
//!
//! Built on the control thread; the workers only look.

use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use thiserror::Error;

use crate::classify::{ETHERNET, VLAN_TYPES, be16};
use crate::client::{ClientKey, ClientName};
use crate::units::Direction;

pub const MAX_RULES: usize = 16_384;
/// The ids that a VLAN can have (IEEE 802.1Q): 0 is none, 4095 is reserved.
pub const VLAN_IDS: std::ops::RangeInclusive<u16> = 1..=4094;

type Table<K> = HashMap<K, ClientName, FixedState>;

/// The match of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// MAC address of the client.
    Mac([u8; 6]),
    /// The id of the outermost VLAN tag.
    Vlan(u16),
    /// The client's address begins with so many bits of this one.
    Prefix(IpAddr, u8),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac([a, b, c, d, e, g]) => {
                write!(f, "MAC {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Self::Vlan(id) => write!(f, "VLAN {id}"),
            Self::Prefix(address, length) => write!(f, "prefix {address}/{length}"),
        }
    }
}

/// Why a rule is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RulesError {
    #[error("more than {MAX_RULES} rules: merge prefixes, or leave some to automatic clients")]
    Full,
    /// Two rules for the same thing.
    #[error("{0} is named twice, for {1} and for {2}: leave one of them out")]
    Twice(Rule, ClientName, ClientName),
    #[error("VLAN {0} cannot be: the ids are 1 to 4094")]
    Vlan(u16),
    #[error("prefix {0}/{1} is longer than its address")]
    Length(IpAddr, u8),
    /// Bits are set behind the prefix.
    #[error("prefix {0}/{1} has bits set behind the first {1}: write {2}/{1}")]
    HostBits(IpAddr, u8, IpAddr),
}

/// Prefixes of one length.
#[derive(Clone, Debug, PartialEq)]
struct Level<K: Eq + Hash> {
    length: u8,
    mask: K,
    table: Table<K>,
}

/// Prefixes of one family, the longest first.
type Levels<K> = Vec<Level<K>>;

/// The rules of a plan; by default none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    macs: Table<u64>,
    vlans: Table<u16>,
    v4: Levels<u32>,
    v6: Levels<u128>,
    len: usize,
    /// Clients that are made for addresses, at most; without it, as many as there is room
    /// for.
    pub automatic: Option<u32>,
    /// Clients that have been named, by these rules or by earlier ones; their places are not
    /// given to automatic ones.
    pub reserved: u32,
}

impl Rules {
    /// Adds a rule.
    ///
    /// # Errors
    /// If the match is not valid or already taken, or there are too many rules; the rules
    /// must not be used then.
    pub fn insert(&mut self, rule: Rule, name: ClientName) -> Result<(), RulesError> {
        if self.len == MAX_RULES {
            return Err(RulesError::Full);
        }
        let before = match rule {
            Rule::Mac(mac) => self.macs.insert(mac_bits(mac), name),
            Rule::Vlan(id) if !VLAN_IDS.contains(&id) => return Err(RulesError::Vlan(id)),
            Rule::Vlan(id) => self.vlans.insert(id, name),
            Rule::Prefix(IpAddr::V4(a), length) => {
                let mask = mask(length, 32).ok_or(RulesError::Length(a.into(), length))? as u32;
                let network = Ipv4Addr::from_bits(a.to_bits() & mask);
                if network != a {
                    return Err(RulesError::HostBits(a.into(), length, network.into()));
                }
                level(&mut self.v4, length, mask).insert(a.to_bits(), name)
            }
            Rule::Prefix(IpAddr::V6(a), length) => {
                let mask = mask(length, 128).ok_or(RulesError::Length(a.into(), length))?;
                let network = Ipv6Addr::from_bits(a.to_bits() & mask);
                if network != a {
                    return Err(RulesError::HostBits(a.into(), length, network.into()));
                }
                level(&mut self.v6, length, mask).insert(a.to_bits(), name)
            }
        };
        if let Some(other) = before {
            return Err(RulesError::Twice(rule, other, name));
        }
        self.len += 1;
        Ok(())
    }

    /// Number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The client of a frame that would belong to `key` without rules: a named client, or `key`.
    #[inline]
    #[must_use]
    pub fn owner(&self, key: ClientKey, frame: &[u8], direction: Direction) -> ClientKey {
        if key == ClientKey::Bypass || self.is_empty() {
            return key;
        }
        let named = self.by_link(frame, direction).or_else(|| match key {
            ClientKey::Ip(IpAddr::V4(a)) => longest(&self.v4, a.to_bits()),
            ClientKey::Ip(IpAddr::V6(a)) => longest(&self.v6, a.to_bits()),
            _ => None,
        });
        named.map_or(key, ClientKey::Named)
    }

    /// By the frame's Ethernet header.
    #[inline]
    fn by_link(&self, frame: &[u8], direction: Direction) -> Option<ClientName> {
        if !self.macs.is_empty() {
            let at = match direction {
                Direction::Forward => 0,
                Direction::Return => 6,
            };
            let mac = frame.get(at..).and_then(|f| f.first_chunk::<6>())?;
            if let Some(name) = self.macs.get(&mac_bits(*mac)) {
                return Some(*name);
            }
        }
        if !self.vlans.is_empty() && VLAN_TYPES.contains(&be16(frame, ETHERNET - 2)?) {
            return self.vlans.get(&(be16(frame, ETHERNET)? & 0xfff)).copied();
        }
        None
    }
}

fn mac_bits([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The first `length` of `bits` bits.
fn mask(length: u8, bits: u8) -> Option<u128> {
    let behind = u32::from(bits.checked_sub(length)?);
    let all = u128::MAX >> (128 - u32::from(bits));
    Some(all.checked_shl(behind).unwrap_or(0) & all)
}

fn level<K: Eq + Hash>(levels: &mut Levels<K>, length: u8, mask: K) -> &mut Table<K> {
    let at = levels.partition_point(|l| l.length > length);
    if levels.get(at).is_none_or(|l| l.length != length) {
        levels.insert(at, Level { length, mask, table: Table::default() });
    }
    &mut levels[at].table
}

#[inline]
fn longest<K>(levels: &[Level<K>], address: K) -> Option<ClientName>
where
    K: Copy + Eq + Hash + std::ops::BitAnd<Output = K>,
{
    levels.iter().find_map(|l| l.table.get(&(address & l.mask)).copied())
}

#[cfg(test)]
mod tests;
