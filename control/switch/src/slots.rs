// SPDX-License-Identifier: Apache-2.0
//! Losses by number, as carried in shims.
//!
//! Equal losses have the same number, so that applying a plan again changes nothing. A number is
//! released when no plan has used it for longer than any frame stays in the box.
//! the box.

use crate::model::Loss;
use crate::names;
use p4runtime::Entry;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
struct Slot {
    loss: Loss,
    used: Instant,
}

/// All losses of the switch.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    first: u16,
    all: BTreeMap<u16, Slot>,
}

impl Slots {
    /// Starts empty. The box may still send numbers of a previous linkd, so each linkd starts at
    /// another number.
    pub fn beginning_at(first: u16) -> Self {
        Self { first, all: BTreeMap::new() }
    }

    /// The number of a loss, marked as used. Zero is no loss. `None` if the table of `size` is
    /// full.
    pub fn number(&mut self, loss: Loss, size: u64, now: Instant) -> Option<u16> {
        if loss == Loss::None {
            return Some(0);
        }
        let found = self.all.iter_mut().find(|(_, slot)| slot.loss == loss);
        if let Some((number, slot)) = found {
            slot.used = now;
            return Some(*number);
        }
        if self.all.len() as u64 >= size {
            return None;
        }
        let mut numbers = (0..=u16::MAX).map(|n| self.first.wrapping_add(n));
        let number = numbers.find(|n| *n != 0 && !self.all.contains_key(n))?;
        self.all.insert(number, Slot { loss, used: now });
        Some(number)
    }

    /// Marks these numbers as used by a plan.
    pub fn used(&mut self, numbers: [u16; 2], now: Instant) {
        for number in numbers {
            if let Some(slot) = self.all.get_mut(&number) {
                slot.used = now;
            }
        }
    }

    /// Adopts an entry of the switch if its number is free.
    pub fn adopt(&mut self, entry: &Entry, now: Instant) {
        let Some(p4runtime::Match::Exact(number)) = entry.key.fields.get("slot") else {
            return;
        };
        if let (Ok(number @ 1..), Some(loss)) = (u16::try_from(*number), loss(entry)) {
            self.all.entry(number).or_insert(Slot { loss, used: now });
        }
    }

    /// Releases numbers not used for `idle`. Returns true if there were any.
    pub fn collect(&mut self, idle: Duration, now: Instant) -> bool {
        let before = self.all.len();
        self.all.retain(|_, slot| now.saturating_duration_since(slot.used) < idle);
        self.all.len() != before
    }

    /// Entries for the switch.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.all.keys().filter_map(|number| self.entry(*number))
    }

    /// The switch's entry for a number.
    pub fn entry(&self, number: u16) -> Option<Entry> {
        let entry = Entry::new(names::LOSS).exact("slot", number);
        Some(match self.all.get(&number)?.loss {
            Loss::None => return None,
            Loss::Independent(p) => entry.does(names::INDEPENDENT).with("p", p),
            Loss::GilbertElliott { to_bad, to_good, loss_in_bad, loss_in_good } => entry
                .does(names::GILBERT_ELLIOTT)
                .with("to_bad", to_bad)
                .with("to_good", to_good)
                .with("loss_in_bad", loss_in_bad)
                .with("loss_in_good", loss_in_good),
        })
    }
}

fn loss(entry: &Entry) -> Option<Loss> {
    let param = |name: &str| u32::try_from(*entry.action.params.get(name)?).ok();
    match entry.action.name.as_str() {
        names::INDEPENDENT => Some(Loss::Independent(param("p")?)),
        names::GILBERT_ELLIOTT => Some(Loss::GilbertElliott {
            to_bad: param("to_bad")?,
            to_good: param("to_good")?,
            loss_in_bad: param("loss_in_bad")?,
            loss_in_good: param("loss_in_good")?,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GE: Loss =
        Loss::GilbertElliott { to_bad: 1, to_good: 2, loss_in_bad: u32::MAX, loss_in_good: 0 };

    #[test]
    fn equal_losses_share_a_number_and_no_loss_has_zero() {
        let (mut slots, now) = (Slots::default(), Instant::now());
        let mut number = |loss| slots.number(loss, 2, now);
        assert_eq!(number(Loss::None), Some(0));
        assert_eq!(number(Loss::Independent(7)), Some(1));
        assert_eq!(number(GE), Some(2));
        assert_eq!(number(Loss::Independent(7)), Some(1));
        assert_eq!(number(Loss::Independent(8)), None);
    }

    #[test]
    fn loss_numbers_wrap_without_zero() {
        let (mut slots, now) = (Slots::beginning_at(u16::MAX), Instant::now());
        let mut number = |p| slots.number(Loss::Independent(p), 9, now);
        assert_eq!([number(1), number(2), number(3)], [Some(u16::MAX), Some(1), Some(2)]);
    }

    #[test]
    fn unused_loss_number_expires() {
        let (mut slots, start) = (Slots::default(), Instant::now());
        let idle = Duration::from_secs(600);
        slots.number(Loss::Independent(7), 9, start);
        slots.number(GE, 9, start);
        slots.used([0, 2], start + idle / 2);
        assert!(!slots.collect(idle, start + idle / 2));
        assert!(slots.collect(idle, start + idle));
        assert_eq!(slots.entries().count(), 1);
        // The number is free again.
        assert_eq!(slots.number(Loss::Independent(9), 9, start), Some(1));
    }

    #[test]
    fn existing_losses_are_adopted() {
        let (mut before, now) = (Slots::default(), Instant::now());
        before.number(Loss::Independent(7), 9, now);
        before.number(GE, 9, now);
        let mut after = Slots::default();
        before.entries().for_each(|entry| after.adopt(&entry, now));
        assert!(after.entries().eq(before.entries()));
        // Our own number has priority.
        let mut ours = Slots::default();
        ours.number(Loss::Independent(1), 9, now);
        before.entries().for_each(|entry| ours.adopt(&entry, now));
        assert_eq!(ours.number(Loss::Independent(1), 9, now), Some(1));
        assert_eq!(ours.number(GE, 9, now), Some(2));
    }
}
