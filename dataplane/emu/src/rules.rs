// SPDX-License-Identifier: Apache-2.0
//! Rules: which frames are which named client's.
//!
//! A simple rule names one thing, and the client that it belongs to: a MAC address, the id of a
//! VLAN, or an IPv4 or IPv6 prefix. Of the simple rules that fit a frame, one of a MAC goes
//! before one of a VLAN, that before one of a prefix, and of prefixes the longest: there is
//! no order to keep, and a switch's tables can do the same. A rule with several conditions is a
//! match ([`crate::matches`]); all matches go before the simple rules.
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

mod taken;

use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use thiserror::Error;

pub use crate::classify::VLAN_IDS;
use crate::classify::{ETHERNET, VLAN_TYPES, be16, is_host_v4};
use crate::client::{ClientKey, ClientName};
use crate::matches::fields::mac_bits;
use crate::matches::{
    self, Conflict, Fields, Mac, Match, MatchError, UnknownPair, check_prefix, mask,
};
use crate::units::Direction;
pub use taken::taken;

/// Maximum number of rules, matches included.
pub const MAX_RULES: usize = matches::MAX_MATCHES;

type Exact<K, V = ClientName> = HashMap<K, V, FixedState>;

/// The match of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// MAC address of the client.
    Mac([u8; 6]),
    /// The id of the outermost VLAN tag.
    Vlan(u16),
    /// The client's address begins with so many bits of this one.
    Prefix(IpAddr, u8),
    Match(Match),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => write!(f, "MAC {}", Mac(*mac)),
            Self::Vlan(id) => write!(f, "VLAN {id}"),
            Self::Prefix(address, length) => write!(f, "prefix {address}/{length}"),
            Self::Match(rule) => rule.fmt(f),
        }
    }
}

impl Rule {
    /// The match of the same frames.
    fn as_match(self) -> Match {
        match self {
            Self::Mac(mac) => Match { mac: Some(mac), ..Match::default() },
            Self::Vlan(id) => Match { vlan: Some(id), ..Match::default() },
            Self::Prefix(address, length) => {
                Match { prefix: Some((address, length)), ..Match::default() }
            }
            Self::Match(rule) => rule,
        }
    }
}

/// Why a rule is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RulesError {
    #[error("more than {MAX_RULES} rules: merge prefixes, or leave some to automatic clients")]
    Full,
    /// Two rules for the same thing.
    #[error("{} is named twice, for {} and for {}: leave one of them out", .0.0, .0.1, .0.2)]
    Twice(Box<(Rule, ClientName, ClientName)>),
    #[error(transparent)]
    Invalid(#[from] MatchError),
    /// A rule and its client, and a match before it that covers it, with its client.
    #[error(
        "{} of {} is never reached: {} of {} goes before it and matches all of its frames; leave \
         one out, or give the first a match with a priority above {}", .0.0, .0.1, .0.2, .0.3,
        .0.2.priority
    )]
    Shadowed(Box<(Rule, ClientName, Match, ClientName)>),
    #[error(
        "{} of {} and {} of {} match some of the same frames with the same precedence: give one \
         of them a higher priority", .0.0, .0.1, .0.2, .0.3
    )]
    Tie(Box<(Match, ClientName, Match, ClientName)>),
}

impl RulesError {
    /// The rule that has to be changed; none if there are too many.
    #[must_use]
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Twice(of) => Some(of.0),
            Self::Shadowed(of) => Some(of.0),
            Self::Tie(of) => Some(Rule::Match(of.0)),
            Self::Full | Self::Invalid(_) => None,
        }
    }
}

/// Prefixes of one length.
#[derive(Clone, Debug, PartialEq)]
struct Level<K: Eq + Hash, V> {
    length: u8,
    mask: K,
    table: Exact<K, V>,
}

/// Prefixes of one family, the longest first.
type Levels<K, V> = Vec<Level<K, V>>;

/// The names that IPv4 prefixes have, each with a number.
#[derive(Clone, Debug, Default, PartialEq)]
struct Targets {
    names: Vec<ClientName>,
    numbers: Exact<ClientName, u32>,
}

impl Targets {
    fn number(&mut self, name: ClientName) -> u32 {
        let Self { names, numbers } = self;
        *numbers.entry(name).or_insert_with(|| {
            names.push(name);
            // There are at most MAX_RULES.
            names.len() as u32 - 1
        })
    }

    fn name(&self, number: u32) -> Option<ClientName> {
        self.names.get(number as usize).copied()
    }
}

/// The rules of a plan; by default none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    macs: Exact<u64>,
    vlans: Exact<u16>,
    v4: Levels<u32, u32>,
    /// Of the numbers in `v4`.
    targets: Targets,
    v6: Levels<u128, ClientName>,
    matches: matches::Table<ClientName>,
    /// Number of all rules.
    len: usize,
    /// Clients that are made for addresses, at most; without it, as many as there is room
    /// for.
    pub automatic: Option<u32>,
    /// Clients that have been named, by these rules or by earlier ones; their places are not
    /// given to automatic ones.
    pub reserved: u32,
}

impl Rules {
    /// Adds a rule. What a rule alone does not show is found by [`Rules::conflicts`].
    ///
    /// # Errors
    /// If the rule is not valid or already taken, or there are too many rules; the rules
    /// must not be used then.
    pub fn insert(&mut self, rule: Rule, name: ClientName) -> Result<(), RulesError> {
        if self.len == MAX_RULES {
            return Err(RulesError::Full);
        }
        let before = match rule {
            Rule::Mac(mac) => self.macs.insert(mac_bits(mac), name),
            Rule::Vlan(id) if !VLAN_IDS.contains(&id) => return Err(MatchError::Vlan(id).into()),
            Rule::Vlan(id) => self.vlans.insert(id, name),
            Rule::Prefix(address, length) => {
                check_prefix(address, length)?;
                match address {
                    IpAddr::V4(a) => {
                        let mask = mask(length, 32).unwrap_or_default() as u32;
                        let target = self.targets.number(name);
                        let other = level(&mut self.v4, length, mask).insert(a.to_bits(), target);
                        other.and_then(|target| self.targets.name(target))
                    }
                    IpAddr::V6(a) => {
                        let mask = mask(length, 128).unwrap_or_default();
                        level(&mut self.v6, length, mask).insert(a.to_bits(), name)
                    }
                }
            }
            Rule::Match(rule) => self.matches.insert(rule, name)?,
        };
        if let Some(other) = before {
            return Err(RulesError::Twice(Box::new((rule, other, name))));
        }
        self.len += 1;
        Ok(())
    }

    /// Up to `most` rules that a match with a higher precedence covers, or that tie with another
    /// one. Rules without matches have none.
    #[must_use]
    pub fn conflicts(&self, most: usize) -> Vec<RulesError> {
        if self.matches.is_empty() {
            return Vec::new();
        }
        let of_match = |conflict| match conflict {
            Conflict::Shadowed { rule, target, by, by_target } => {
                RulesError::Shadowed(Box::new((Rule::Match(rule), target, by, by_target)))
            }
            Conflict::Tie { rule, target, other, other_target } => {
                RulesError::Tie(Box::new((rule, target, other, other_target)))
            }
        };
        let mut found: Vec<_> = self.matches.conflicts(most).into_iter().map(of_match).collect();
        for (rule, name) in self.simple() {
            if found.len() >= most {
                break;
            }
            if let Some((by, by_name)) = self.matches.covers(&rule.as_match()) {
                found.push(RulesError::Shadowed(Box::new((rule, name, by, by_name))));
            }
        }
        found
    }

    /// Rules that are not matches, in their order.
    fn simple(&self) -> Vec<(Rule, ClientName)> {
        let mac = |bits: u64| {
            let [_, _, mac @ ..] = bits.to_be_bytes();
            Rule::Mac(mac)
        };
        let v4 = self.v4.iter().flat_map(|l| l.table.iter().map(|(a, n)| (l.length, *a, n)));
        let v6 = self.v6.iter().flat_map(|l| l.table.iter().map(|(a, n)| (l.length, *a, n)));
        let v4 = v4.filter_map(|(length, a, target)| {
            Some((Rule::Prefix(IpAddr::V4(a.into()), length), self.targets.name(*target)?))
        });
        let v6 = v6.map(|(length, a, name)| (Rule::Prefix(IpAddr::V6(a.into()), length), *name));
        let macs = self.macs.iter().map(|(bits, name)| (mac(*bits), *name));
        let vlans = self.vlans.iter().map(|(id, name)| (Rule::Vlan(*id), *name));
        let mut all: Vec<_> = macs.chain(vlans).chain(v4).chain(v6).collect();
        all.sort_unstable();
        all
    }

    /// As [`matches::Table::set_pairs`].
    ///
    /// # Errors
    /// A name that no pair has.
    pub fn set_pairs(&mut self, names: &[ClientName]) -> Result<(), UnknownPair> {
        self.matches.set_pairs(names)
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

    /// Whether nothing but the client's address decides, as of prefixes.
    #[inline]
    #[must_use]
    pub fn by_address(&self) -> bool {
        self.macs.is_empty() && self.vlans.is_empty() && self.matches.is_empty()
    }

    /// The names that IPv4 prefixes have. Their numbers are places in this list.
    #[must_use]
    pub fn targets(&self) -> &[ClientName] {
        &self.targets.names
    }

    /// The number of a name, if an IPv4 prefix has it.
    #[must_use]
    pub fn target(&self, name: ClientName) -> Option<u32> {
        self.targets.numbers.get(&name).copied()
    }

    /// The number of the client of an IPv4 address, if a prefix names it and it can be that of one host.
    #[inline]
    #[must_use]
    pub fn target_v4(&self, address: u32) -> Option<u32> {
        longest(&self.v4, address).filter(|_| is_host_v4(address.into()))
    }

    /// The client of a frame that came in by a port pair and would belong to `key` without rules: a
    /// named client, or `key`.
    #[inline]
    #[must_use]
    pub fn owner(&self, key: ClientKey, frame: &[u8], direction: Direction, pair: u8) -> ClientKey {
        if key == ClientKey::Bypass || self.is_empty() {
            return key;
        }
        if !self.matches.is_empty()
            && let Some(name) = self.by_match(frame, direction, pair)
        {
            return ClientKey::Named(name);
        }
        let named = self.by_link(frame, direction).or_else(|| match key {
            ClientKey::Ip(IpAddr::V4(a)) => {
                longest(&self.v4, a.to_bits()).and_then(|target| self.targets.name(target))
            }
            ClientKey::Ip(IpAddr::V6(a)) => longest(&self.v6, a.to_bits()),
            _ => None,
        });
        named.map_or(key, ClientKey::Named)
    }

    /// Not inlined: frames of plans without matches do not pay for its registers.
    #[inline(never)]
    fn by_match(&self, frame: &[u8], direction: Direction, pair: u8) -> Option<ClientName> {
        self.matches.get(&Fields::of(frame, direction).on_pair(self.matches.pair(pair)))
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

fn level<K: Eq + Hash, V>(levels: &mut Levels<K, V>, length: u8, mask: K) -> &mut Exact<K, V> {
    let at = levels.partition_point(|l| l.length > length);
    if levels.get(at).is_none_or(|l| l.length != length) {
        levels.insert(at, Level { length, mask, table: Exact::default() });
    }
    &mut levels[at].table
}

#[inline]
fn longest<K, V: Copy>(levels: &[Level<K, V>], address: K) -> Option<V>
where
    K: Copy + Eq + Hash + std::ops::BitAnd<Output = K>,
{
    levels.iter().find_map(|l| l.table.get(&(address & l.mask)).copied())
}

#[cfg(test)]
mod tests;
