// SPDX-License-Identifier: Apache-2.0
//! The frames that a match fits, compared with those of another one. Control thread.

use super::Match;
use super::conflict::{ports_overlap, sides};
use super::fields::{Pattern, and};

/// The frames that a match fits.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    rule: Match,
    /// Without the port pair.
    pattern: Pattern,
}

impl Extent {
    /// Of a valid match.
    #[must_use]
    pub fn of(rule: Match) -> Self {
        Self { rule, pattern: Pattern::of(&rule, None) }
    }

    /// Whether a frame can fit both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let common = and(&self.pattern.mask, &other.pattern.mask);
        and(&self.pattern.value, &common) == and(&other.pattern.value, &common)
            && ports_overlap(&self.rule, &other.rule)
            && match (self.rule.port_pair, other.rule.port_pair) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            }
    }

    /// Whether all frames of `other` fit this one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let mask = &self.pattern.mask;
        and(mask, &other.pattern.mask) == *mask
            && and(&other.pattern.value, mask) == self.pattern.value
            && sides(&self.rule).into_iter().zip(sides(&other.rule)).all(|both| match both {
                (Some(a), Some(b)) => a.covers(b),
                (None, _) => true,
                (Some(_), None) => false,
            })
            && (self.rule.port_pair.is_none() || self.rule.port_pair == other.rule.port_pair)
    }
}
