// SPDX-License-Identifier: Apache-2.0
//! Which targets new rules take frames from. Control thread.

use std::collections::{BTreeMap, BTreeSet};

use super::Rule;
use crate::matches::Extent;

impl Rule {
    /// Precedence among the rules that fit a frame; the highest applies.
    fn rank(&self) -> (u8, u64) {
        match self {
            Self::Prefix(_, length) => (0, (*length).into()),
            Self::Vlan(_) => (1, 0),
            Self::Mac(_) => (2, 0),
            Self::Match(rule) => (3, rule.rank()),
        }
    }
}

/// The targets among `of` that lose frames if the rules `new` of the target `to` are added to `rules`, each
/// with the first of the new rules that takes some. Frames that no rule fits are those of the target `rest`.
/// All rules are valid.
///
/// A target that loses frames is always found. One that loses none is found only if no single rule shows it:
/// several rules that together cover a new one do not count as covering it.
#[must_use]
pub fn taken<T: Copy + Ord>(
    (to, new): (T, &[Rule]),
    rules: &[(Rule, T)],
    rest: T,
    of: &BTreeSet<T>,
) -> BTreeMap<T, Rule> {
    let extents: Vec<_> =
        rules.iter().map(|(rule, target)| (Extent::of(rule.as_match()), rule, *target)).collect();
    let mut losing = BTreeMap::new();
    for rule in new {
        let extent = Extent::of(rule.as_match());
        let open = |target: &T| *target != to && of.contains(target);
        for (other, by, target) in &extents {
            let takes = || rule.rank() >= by.rank() && extent.overlaps(other);
            if open(target) && !losing.contains_key(target) && takes() {
                losing.insert(*target, *rule);
            }
        }
        let is_covered = || extents.iter().any(|(other, ..)| other.covers(&extent));
        if open(&rest) && !losing.contains_key(&rest) && !is_covered() {
            losing.insert(rest, *rule);
        }
    }
    losing
}
