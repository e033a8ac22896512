// SPDX-License-Identifier: Apache-2.0
//! The table of matches: one hash table per combination of masks.

use std::cmp::Reverse;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::fields::{Fields, Pattern, WORDS, Words, and};
use super::ranges::{MAX_LAYERS, Ranges};
use super::{MAX_MATCHES, MAX_PAIRS, Match, MatchError, UnknownPair};
use crate::client::ClientName;

/// Maximum number of hash tables, and so of lookups per frame.
pub const MAX_TABLES: usize = 256;

/// Bits of a rank that are the same for all matches of a tuple: all but the priority.
pub(super) const SHAPE: u64 = 0xff_ffff;

/// Masked words, then the numbers of the port ranges.
pub(super) type Key = [u64; WORDS + 1];

/// The masks of some matches. For ports, the layer of their ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Masks {
    pub words: Words,
    pub layers: [Option<u8>; 2],
    /// Prefix lengths and number of fields. Equal masks of IPv4 and IPv6 prefixes are one.
    pub shape: u64,
}

impl Masks {
    #[inline]
    pub fn key(&self, words: &Words, ranges: [u16; 2]) -> Key {
        let [a, b, c, d, e, f] = and(words, &self.words);
        [a, b, c, d, e, f, u64::from(ranges[0]) << 16 | u64::from(ranges[1])]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry<T> {
    pub rank: u64,
    pub target: T,
    /// Index into [`Table::all`].
    pub index: u32,
}

/// Matches with the same masks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tuple<T: PartialEq> {
    pub masks: Masks,
    /// The highest rank of its entries.
    pub best: u64,
    pub entries: HashMap<Key, Entry<T>, FixedState>,
}

/// A match as it was inserted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Inserted<T> {
    pub rule: Match,
    pub pattern: Pattern,
    pub target: T,
}

/// Matches and their targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Table<T: PartialEq> {
    /// By their best ranks, the highest first.
    pub(super) tuples: Vec<Tuple<T>>,
    /// Port ranges of the client side and of the remote side.
    pub(super) ranges: [Ranges; 2],
    /// In the order of insertion. Lookups do not use it.
    pub(super) all: Vec<Inserted<T>>,
    /// Port pairs that the matches name. The first one has the number 1 in patterns.
    pairs: Vec<ClientName>,
    /// These numbers, by the box's number of the pair; 0 for a pair that no match names.
    numbers: [u8; MAX_PAIRS],
}

impl<T: PartialEq> Default for Table<T> {
    fn default() -> Self {
        Self {
            tuples: Vec::new(),
            ranges: Default::default(),
            all: Vec::new(),
            pairs: Vec::new(),
            numbers: [0; MAX_PAIRS],
        }
    }
}

impl<T: Copy + PartialEq> Table<T> {
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of hash tables: the maximum number of lookups per frame.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.tuples.len()
    }

    /// Adds a match. If there is one with the same fields, of any priority, that one stays, and its
    /// target is returned. [`Table::conflicts`] finds other contradictions.
    ///
    /// # Errors
    /// If the match is not valid, or the table is full. The table must not be used then.
    pub fn insert(&mut self, rule: Match, target: T) -> Result<Option<T>, MatchError> {
        rule.check()?;
        if self.all.len() == MAX_MATCHES {
            return Err(MatchError::Full);
        }
        if let Some(name) = rule.port_pair.filter(|name| !self.pairs.contains(name)) {
            if self.pairs.len() == MAX_PAIRS {
                return Err(MatchError::Pairs(name));
            }
            self.pairs.push(name);
        }
        let pattern = self.pattern(&rule);
        let (mut layers, mut numbers) = ([None; 2], [0; 2]);
        for (side, ports) in [rule.port, rule.remote_port].into_iter().enumerate() {
            if let Some(ports) = ports {
                let (layer, number) = self.ranges[side].add(ports)?;
                (layers[side], numbers[side]) = (Some(layer), number);
            }
        }
        let rank = rule.rank();
        let masks = Masks { words: pattern.mask, layers, shape: rank & SHAPE };
        let entry = Entry { rank, target, index: self.all.len() as u32 };
        let key = masks.key(&pattern.value, numbers);
        let mut is_sorted = false;
        if let Some(tuple) = self.tuples.iter_mut().find(|tuple| tuple.masks == masks) {
            if let Some(other) = tuple.entries.get(&key) {
                return Ok(Some(other.target));
            }
            is_sorted = rank <= tuple.best;
            tuple.best = tuple.best.max(rank);
            tuple.entries.insert(key, entry);
        } else if self.tuples.len() == MAX_TABLES {
            return Err(MatchError::Tables);
        } else {
            let entries = [(key, entry)].into_iter().collect();
            self.tuples.push(Tuple { masks, best: rank, entries });
        }
        if !is_sorted {
            self.tuples.sort_by_key(|tuple| Reverse(tuple.best));
        }
        self.all.push(Inserted { rule, pattern, target });
        Ok(None)
    }

    /// The pattern of a valid match. A pair that no match names has the number of none of them.
    pub(super) fn pattern(&self, rule: &Match) -> Pattern {
        Pattern::of(rule, rule.port_pair.map(|name| self.number(name)))
    }

    /// The number in patterns of a pair; 0 if no match names it.
    fn number(&self, name: ClientName) -> u8 {
        // There are at most MAX_PAIRS.
        self.pairs.iter().position(|pair| *pair == name).map_or(0, |place| place as u8 + 1)
    }

    /// Sets the names of the box's port pairs, by number. Without them, no frame meets a match with
    /// a pair.
    ///
    /// # Errors
    /// The first pair of a match that the box does not have; nothing has changed then.
    pub fn set_pairs(&mut self, names: &[ClientName]) -> Result<(), UnknownPair> {
        if let Some(name) = self.pairs.iter().find(|name| !names.contains(name)) {
            return Err(UnknownPair { name: *name, pairs: names.to_vec() });
        }
        let mut numbers = [0; MAX_PAIRS];
        for (number, name) in numbers.iter_mut().zip(names) {
            *number = self.number(*name);
        }
        self.numbers = numbers;
        Ok(())
    }

    /// The number of one of the box's port pairs for [`Fields::on_pair`].
    #[inline]
    pub(crate) fn pair(&self, pair: u8) -> u8 {
        self.numbers.get(usize::from(pair)).copied().unwrap_or(0)
    }

    /// The target of the match that applies to a frame.
    #[must_use]
    pub fn get(&self, fields: &Fields) -> Option<T> {
        let none = [[0; MAX_LAYERS]; 2];
        let numbers = fields.ports.map_or(none, |[client, remote]| {
            [self.ranges[0].numbers(client), self.ranges[1].numbers(remote)]
        });
        let mut found: Option<&Entry<T>> = None;
        for tuple in &self.tuples {
            if found.is_some_and(|found| found.rank >= tuple.best) {
                break;
            }
            let Some(ranges) = chosen(&numbers, tuple.masks.layers) else { continue };
            let entry = tuple.entries.get(&tuple.masks.key(&fields.words, ranges));
            if let Some(entry) = entry
                && found.is_none_or(|found| entry.rank > found.rank)
            {
                found = Some(entry);
            }
        }
        found.map(|found| found.target)
    }
}

/// The numbers of the ranges in these layers. None if a layer has no range for the port.
#[inline]
fn chosen(numbers: &[[u16; MAX_LAYERS]; 2], layers: [Option<u8>; 2]) -> Option<[u16; 2]> {
    let mut chosen = [0; 2];
    for side in 0..2 {
        if let Some(layer) = layers[side] {
            chosen[side] = numbers[side][usize::from(layer) % MAX_LAYERS];
            if chosen[side] == 0 {
                return None;
            }
        }
    }
    Some(chosen)
}
