// SPDX-License-Identifier: Apache-2.0
//! Remarks on a change from the answers of the boxes.

use crate::group::Group;

/// Differences of instants and bounds of clocks above this are remarked, beyond the errors.
const INSTANT_NS: u64 = 1_000;
const CLOCKS_NS: u64 = 100_000;

impl Group {
    /// Remarks on the instants at which the boxes made a change: place, instant, bound of its error.
    pub(super) fn of_instants(&self, instants: &[(usize, u64, u64)]) -> Vec<String> {
        let mut remarks = Vec::new();
        let first = instants.iter().min_by_key(|it| it.1);
        let last = instants.iter().max_by_key(|it| it.1);
        let (Some(first), Some(last)) = (first, last) else { return remarks };
        let name = |it: &(usize, u64, u64)| &self.0.members[it.0].name;
        let (apart_ns, errors_ns) = (last.1 - first.1, last.2 + first.2);
        if apart_ns > errors_ns + INSTANT_NS {
            remarks.push(format!(
                "box {} made the change {} after box {}",
                name(last),
                micros(apart_ns),
                name(first)
            ));
        }
        let mut errors: Vec<_> = instants.iter().map(|it| it.2).collect();
        errors.sort_unstable_by(|a, b| b.cmp(a));
        let worst_ns: u64 = errors.iter().take(2).sum();
        if instants.len() > 1 && worst_ns > CLOCKS_NS {
            remarks.push(format!(
                "the boxes' clocks are known to {}: they made the change within that time of each \
                 other",
                micros(worst_ns)
            ));
        }
        remarks
    }

    /// The remarks of all boxes: those that all made without a name.
    pub(super) fn of_boxes(&self, told: Vec<(usize, Vec<String>)>) -> Vec<String> {
        let mut remarks: Vec<String> = Vec::new();
        for (place, own) in &told {
            for remark in own {
                let is_common = told.iter().all(|(_, others)| others.contains(remark));
                let remark = match is_common {
                    true => remark.clone(),
                    false => format!("box {}: {remark}", self.0.members[*place].name),
                };
                if !remarks.contains(&remark) {
                    remarks.push(remark);
                }
            }
        }
        remarks
    }
}

fn micros(ns: u64) -> String {
    format!("{}.{} µs", ns / 1_000, ns % 1_000 / 100)
}
