// SPDX-License-Identifier: Apache-2.0
//! A hierarchical timing wheel over pipes (G. Varghese, T. Lauck, "Hashed and
//! Hierarchical Timing Wheels", 1987).
//!
//! One entry per pipe, its next deadline, so that the cost per frame does not
//! depend on the number of pipes. A tick is 1024 ns; nine levels of 64 slots reach
//! to the end of 64-bit time. Entries keep their exact deadline: one that is due later within the tick stays
//! until then, so that nothing comes out early.
//!
//! Differs from the kernel's `kernel/time/timer.c` in that coarse entries are
//! cascaded and never fire late.

use crate::units::Instant;

const TICK_SHIFT: u32 = 10;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// 54 bits of ticks, all that a 64-bit nanosecond has.
const LEVELS: usize = 9;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline: Instant,
    previous: u32,
    next: u32,
    /// level × 64 + slot, or `NONE` when not scheduled.
    place: u32,
}

/// The deadlines of pipes `0..n`, one each.
#[derive(Debug)]
pub struct Wheel {
    now: u64,
    heads: [[u32; SLOTS]; LEVELS],
    occupied: [u64; LEVELS],
    entries: Vec<Entry>,
}

impl Default for Wheel {
    fn default() -> Self {
        Self { now: 0, heads: [[NONE; SLOTS]; LEVELS], occupied: [0; LEVELS], entries: Vec::new() }
    }
}

impl Wheel {
    /// Makes room for entries up to `n`. Allocates; not for the datapath.
    pub fn grow(&mut self, n: usize) {
        let blank = Entry { deadline: Instant::MAX, previous: NONE, next: NONE, place: NONE };
        self.entries.resize(self.entries.len().max(n), blank);
    }

    /// Sets the deadline of entry `id`, in place of the one that it had.
    pub fn schedule(&mut self, id: u32, deadline: Instant) {
        self.cancel(id);
        self.insert(id, deadline);
    }

    /// Takes entry `id` out.
    pub fn cancel(&mut self, id: u32) {
        let Entry { previous, next, place, .. } = self.entries[id as usize];
        if place == NONE {
            return;
        }
        let (level, slot) = (place as usize / SLOTS, place as usize % SLOTS);
        if previous == NONE {
            self.heads[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        } else {
            self.entries[previous as usize].next = next;
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        self.entries[id as usize].place = NONE;
    }

    fn insert(&mut self, id: u32, deadline: Instant) {
        let tick = (deadline.0 >> TICK_SHIFT).max(self.now);
        let differing = tick ^ self.now;
        let level = ((63 - (differing | 1).leading_zeros()) / SLOT_BITS) as usize;
        let slot = (tick >> (level as u32 * SLOT_BITS)) as usize % SLOTS;
        let next = self.heads[level][slot];
        if next != NONE {
            self.entries[next as usize].previous = id;
        }
        self.heads[level][slot] = id;
        self.occupied[level] |= 1 << slot;
        self.entries[id as usize] =
            Entry { deadline, previous: NONE, next, place: (level * SLOTS + slot) as u32 };
    }

    /// The first occupied slot: its level, index and first tick.
    fn first(&self) -> Option<(usize, usize, u64)> {
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let shift = level as u32 * SLOT_BITS;
            let here = (self.now >> shift) as usize % SLOTS;
            // Slots of a level lie in the level's present turn, from here on.
            let slot = (self.occupied[level].rotate_right(here as u32).trailing_zeros() as usize
                + here)
                % SLOTS;
            let turn = self.now >> shift >> SLOT_BITS << SLOT_BITS;
            let tick = (turn + slot as u64) << shift;
            return Some((level, slot, tick.max(self.now)));
        }
        None
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let (level, slot, _) = self.first()?;
        let mut id = self.heads[level][slot];
        let mut earliest = Instant::MAX;
        while id != NONE {
            let e = &self.entries[id as usize];
            earliest = earliest.min(e.deadline);
            id = e.next;
        }
        Some(earliest)
    }

    /// Takes out every entry whose deadline is `now` or earlier.
    pub fn expire(&mut self, now: Instant, mut due: impl FnMut(u32)) {
        let target = now.0 >> TICK_SHIFT;
        while let Some((level, slot, tick)) = self.first() {
            if tick > target {
                break;
            }
            self.now = tick;
            let mut id = std::mem::replace(&mut self.heads[level][slot], NONE);
            self.occupied[level] &= !(1 << slot);
            let mut later = NONE;
            while id != NONE {
                let Entry { deadline, next, .. } = self.entries[id as usize];
                self.entries[id as usize].place = NONE;
                if deadline <= now {
                    due(id);
                } else if level == 0 {
                    // Later within the tick of `now`, which is the last one.
                    self.entries[id as usize].next = later;
                    later = id;
                } else {
                    self.insert(id, deadline);
                }
                id = next;
            }
            if later != NONE {
                while later != NONE {
                    let Entry { deadline, next, .. } = self.entries[later as usize];
                    self.insert(later, deadline);
                    later = next;
                }
                break;
            }
        }
        self.now = self.now.max(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against a sorted map: the same entries come out, never early, none late.
        #[test]
        fn a_wheel_does_what_a_sorted_map_does(
            steps in prop::collection::vec(
                (0_u32..40, prop_oneof![0_u64..3_000, 0_u64..10_000_000, 0_u64..100_000_000_000, 0_u64..400_000_000_000_000], 0_u32..4, prop_oneof![0_u64..2_000, 0_u64..50_000_000, 0_u64..90_000_000_000_000]),
                1..300,
            )
        ) {
            let mut wheel = Wheel::default();
            wheel.grow(40);
            let mut model = BTreeMap::new();
            let mut now = 0;
            for (id, ahead, action, step) in steps {
                match action {
                    0 => {
                        wheel.cancel(id);
                        model.remove(&id);
                    }
                    1 => {
                        now += step;
                        let mut out = Vec::new();
                        wheel.expire(Instant(now), |id| out.push(id));
                        out.sort_unstable();
                        let expected: Vec<u32> =
                            model.iter().filter(|(_, d)| **d <= now).map(|(id, _)| *id).collect();
                        model.retain(|_, d| *d > now);
                        prop_assert_eq!(out, expected);
                    }
                    _ => {
                        // Also deadlines that have passed.
                        let deadline = (now + ahead).saturating_sub(500);
                        wheel.schedule(id, Instant(deadline));
                        model.insert(id, deadline);
                    }
                }
                let earliest = model.values().min().map(|d| Instant(*d));
                prop_assert_eq!(wheel.next_deadline(), earliest);
            }
        }
    }
}
