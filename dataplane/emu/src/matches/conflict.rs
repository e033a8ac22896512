// SPDX-License-Identifier: Apache-2.0
//! Matches that contradict others: ties, and matches that are never reached.
//!
//! Both are found through the tables instead of pair by pair, so a check of 16,384 matches takes
//! milliseconds unless most of them overlap. Control thread.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::fields::{Pattern, Words, and};
use super::table::{Inserted, Table, Tuple};
use super::{Match, Ports};

/// Two matches that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict<T> {
    /// `by` has precedence and matches all frames of `rule`.
    Shadowed { rule: Match, target: T, by: Match, by_target: T },
    /// Both match some frames, have the same precedence, and have different targets.
    Tie { rule: Match, target: T, other: Match, other_target: T },
}

impl<T: Copy + PartialEq> Table<T> {
    /// Up to `most` conflicts: shadowed matches in the order of insertion, then ties by the later
    /// of both. Only a match that a single other one covers is found to be shadowed.
    #[must_use]
    pub fn conflicts(&self, most: usize) -> Vec<Conflict<T>> {
        let shadowed = self.all.iter().filter_map(|Inserted { rule, pattern, target }| {
            let by = self.covering(rule, pattern, rule.rank())?;
            let (rule, target) = (*rule, *target);
            Some(Conflict::Shadowed { rule, target, by: by.rule, by_target: by.target })
        });
        let mut found: Vec<_> = shadowed.take(most).collect();
        let mut ties = Vec::new();
        let members: Vec<Vec<usize>> = self.tuples.iter().map(members).collect();
        for (n, tuple) in self.tuples.iter().enumerate() {
            for (other, theirs) in self.tuples.iter().zip(&members).skip(n + 1) {
                if tuple.masks.shape == other.masks.shape && ties.len() + found.len() < most {
                    let room = most - found.len();
                    self.ties([(tuple, &members[n]), (other, theirs)], room, &mut ties);
                }
            }
        }
        ties.sort_unstable();
        found.extend(ties.into_iter().map(|(later, earlier)| {
            let (a, b) = (&self.all[later], &self.all[earlier]);
            Conflict::Tie { rule: a.rule, target: a.target, other: b.rule, other_target: b.target }
        }));
        found
    }

    /// A match of this table, of any priority, that matches all frames of `rule`.
    #[must_use]
    pub fn covers(&self, rule: &Match) -> Option<(Match, T)> {
        rule.check().ok()?;
        self.covering(rule, &self.pattern(rule), 0).map(|by| (by.rule, by.target))
    }

    /// A match with a higher rank that matches all frames of `rule`.
    fn covering(&self, rule: &Match, pattern: &Pattern, rank: u64) -> Option<&Inserted<T>> {
        for tuple in &self.tuples {
            if tuple.best <= rank {
                break;
            }
            let masks = &tuple.masks;
            if and(&masks.words, &pattern.mask) != masks.words {
                continue;
            }
            let mut numbers = [Some(0); 2];
            for (side, ports) in [rule.port, rule.remote_port].into_iter().enumerate() {
                if let Some(layer) = masks.layers[side] {
                    numbers[side] = ports.and_then(|p| self.ranges[side].covering(layer, p));
                }
            }
            let [Some(client), Some(remote)] = numbers else { continue };
            let entry = tuple.entries.get(&masks.key(&pattern.value, [client, remote]));
            if let Some(entry) = entry.filter(|entry| entry.rank > rank) {
                return self.all.get(entry.index as usize);
            }
        }
        None
    }

    /// Adds the ties between two tuples with the same shape, by indices, the higher one first. They
    /// are joined by their common fields; if both have a range of the same side, the ranges of a
    /// layer are disjoint or equal, so those that overlap are consecutive.
    fn ties(
        &self,
        [(a, ours), (b, theirs)]: [(&Tuple<T>, &Vec<usize>); 2],
        most: usize,
        ties: &mut Vec<(usize, usize)>,
    ) {
        let common = and(&a.masks.words, &b.masks.words);
        let ranged = |side: &usize| [a, b].iter().all(|t| t.masks.layers[*side].is_some());
        let side = (0..2).find(ranged);
        let ports = |n: usize| side.and_then(|side| sides(&self.all[n].rule)[side]);
        let mut by_fields: HashMap<Words, Vec<usize>, FixedState> = HashMap::default();
        for n in theirs {
            by_fields.entry(and(&self.all[*n].pattern.value, &common)).or_default().push(*n);
        }
        for bucket in by_fields.values_mut() {
            bucket.sort_by_key(|n| ports(*n));
        }
        for n in ours {
            let one = &self.all[*n];
            let Some(bucket) = by_fields.get(&and(&one.pattern.value, &common)) else { continue };
            let from = ports(*n).map_or(0, |mine| {
                bucket.partition_point(|m| ports(*m).is_some_and(|p| p.last < mine.first))
            });
            for m in &bucket[from..] {
                if let (Some(mine), Some(other)) = (ports(*n), ports(*m))
                    && mine.last < other.first
                {
                    break;
                }
                if ties.len() == most {
                    return;
                }
                let other = &self.all[*m];
                if one.target != other.target
                    && one.rule.priority == other.rule.priority
                    && ports_overlap(&one.rule, &other.rule)
                {
                    ties.push(((*n).max(*m), (*n).min(*m)));
                }
            }
        }
    }
}

pub(super) fn sides(rule: &Match) -> [Option<Ports>; 2] {
    [rule.port, rule.remote_port]
}

pub(super) fn ports_overlap(a: &Match, b: &Match) -> bool {
    sides(a).into_iter().zip(sides(b)).all(|both| match both {
        (Some(a), Some(b)) => a.overlaps(b),
        _ => true,
    })
}

/// The indices of a tuple's matches, ascending.
fn members<T: PartialEq>(tuple: &Tuple<T>) -> Vec<usize> {
    let mut members: Vec<_> = tuple.entries.values().map(|e| e.index as usize).collect();
    members.sort_unstable();
    members
}
