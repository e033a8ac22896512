// SPDX-License-Identifier: Apache-2.0
//! A hierarchical timing wheel of events (G. Varghese, T. Lauck, "Hashed and
//! Hierarchical Timing Wheels", 1987).
//!
//! A tick is 1024 ns. The lowest level has a slot for each tick of the second to come, so
//! that the events of most links come out of the slot that they went into; higher levels of
//! 64 slots reach to the end of 64-bit time, and what they hold comes down a slot at a time.
//! An event is a word in an array, not a node of a list: with thousands of pipes every step
//! along a list would wait for memory. Events keep their exact deadline: one that is due
//! later within the tick stays until then, so that nothing comes out early.
//!
//! An event cannot be taken back. Who has no more use for one lets it come out and looks
//! for himself: the engine has about two for each pipe, and more where changes follow each
//! other within a delay.
//!
//! Differs from the kernel's `kernel/time/timer.c` in that coarse events are
//! cascaded and never fire late.

use crate::memory::advise_large_pages;
use crate::units::Instant;

const TICK_SHIFT: u32 = 10;
/// Ticks of the lowest level, as a power of two: 1.07 s, in 4 MiB,
const LONG: u32 = 20;
/// or 17 ms, in 64 KiB. Later events are inserted once more.
const SHORT: u32 = 14;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// For the other 40 bits, with [`SHORT`], of the 54 bits of ticks that a 64-bit nanosecond has.
const LEVELS: usize = 7;
/// Events in a chunk, which fills a line of the cache.
const CHUNK: usize = 14;
/// Numbers of pipes, beside the part of a deadline within its tick, in a word.
const ID_BITS: u32 = 32 - TICK_SHIFT;
const NONE: u32 = 0;

/// The most events' numbers: events are for `0..MAX_ID`.
pub const MAX_ID: u32 = 1 << ID_BITS;

/// Events of one tick.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Chunk {
    next: u32,
    len: u32,
    /// Each a number, and nanoseconds into the tick.
    events: [u32; CHUNK],
}

impl Chunk {
    const EMPTY: Self = Self { next: NONE, len: 0, events: [0; CHUNK] };
    /// Stands for no chunk.
    const FULL: Self = Self { len: CHUNK as u32, ..Self::EMPTY };

    /// Adds an event. Returns whether there was room.
    #[inline]
    fn add(&mut self, event: u32) -> bool {
        let Some(place) = self.events.get_mut(self.len as usize) else { return false };
        *place = event;
        self.len += 1;
        true
    }
}

/// Events that are due at an instant, each with a number.
#[derive(Debug)]
pub struct Wheel {
    /// In ticks.
    now: u64,
    /// Ticks of the lowest level, as a power of two.
    low_bits: u32,
    /// The chunk that was begun last, for each tick.
    low: Vec<u32>,
    occupied: Bitmap,
    /// The first is always full: it stands for none.
    chunks: Vec<Chunk>,
    free: u32,
    high: [[Vec<(Instant, u32)>; SLOTS]; LEVELS],
    high_occupied: [u64; LEVELS],
    /// Levels with an occupied slot, a bit for each.
    occupied_levels: u32,
}

impl Default for Wheel {
    fn default() -> Self {
        Self::with_low_bits(LONG)
    }
}

impl Wheel {
    /// A wheel that needs little memory, for one of many links.
    #[must_use]
    pub fn small() -> Self {
        Self::with_low_bits(SHORT)
    }

    fn with_low_bits(low_bits: u32) -> Self {
        Self {
            now: 0,
            low_bits,
            low: vec![NONE; 1 << low_bits],
            occupied: Bitmap::of(1 << low_bits),
            chunks: vec![Chunk::FULL],
            free: NONE,
            high: std::array::from_fn(|_| std::array::from_fn(|_| Vec::new())),
            high_occupied: [0; LEVELS],
            occupied_levels: 0,
        }
    }

    /// Where a tick is in the lowest level.
    #[inline]
    fn low_slot(&self, tick: u64) -> usize {
        tick as usize & (self.low.len() - 1)
    }

    /// Makes room for `n` events. Allocates; not for the datapath.
    pub fn grow(&mut self, n: usize) {
        // Each may begin a chunk.
        self.chunks.reserve(n);
        advise_large_pages(&mut self.chunks);
    }

    /// Adds an event of number `id`, below [`MAX_ID`].
    #[inline]
    pub fn insert(&mut self, id: u32, deadline: Instant) {
        debug_assert!(id < MAX_ID);
        let tick = deadline.0 >> TICK_SHIFT;
        // Large if it has passed.
        if tick.wrapping_sub(self.now) < self.low.len() as u64 {
            self.insert_low(tick, (id << TICK_SHIFT) | (deadline.0 as u32 % (1 << TICK_SHIFT)));
        } else if tick < self.now {
            // It is due at the start of this tick.
            self.insert_passed(id);
        } else {
            self.insert_high(tick, id, deadline);
        }
    }

    /// Adds an event that is due at once.
    #[inline(never)]
    fn insert_passed(&mut self, id: u32) {
        self.insert_low(self.now, id << TICK_SHIFT);
    }

    /// Adds an event beyond the lowest level.
    #[inline(never)]
    fn insert_high(&mut self, tick: u64, id: u32, deadline: Instant) {
        let differing = (tick ^ self.now) >> self.low_bits;
        let level = (63 - differing.leading_zeros()) / SLOT_BITS;
        let slot = (tick >> (self.low_bits + level * SLOT_BITS)) as usize % SLOTS;
        self.high[level as usize][slot].push((deadline, id));
        self.high_occupied[level as usize] |= 1 << slot;
        self.occupied_levels |= 1 << level;
    }

    #[inline]
    fn insert_low(&mut self, tick: u64, event: u32) {
        let slot = self.low_slot(tick);
        if !self.chunks[self.low[slot] as usize].add(event) {
            self.insert_in_new(slot, event);
        }
    }

    /// Adds an event to a slot without room.
    #[inline(never)]
    fn insert_in_new(&mut self, slot: usize, event: u32) {
        let full = self.low[slot];
        if full == NONE {
            self.occupied.set(slot);
        }
        let begun = self.begin(full);
        self.low[slot] = begun;
        self.chunks[begun as usize].add(event);
    }

    /// An empty chunk before `next`.
    fn begin(&mut self, next: u32) -> u32 {
        let empty = Chunk { next, ..Chunk::EMPTY };
        if self.free == NONE {
            self.chunks.push(empty);
            return self.chunks.len() as u32 - 1;
        }
        let at = self.free;
        self.free = self.chunks[at as usize].next;
        self.chunks[at as usize] = empty;
        at
    }

    /// The first occupied tick of the lowest level.
    #[inline]
    fn first_low(&self) -> Option<u64> {
        let here = self.low_slot(self.now);
        let slot = self.occupied.first_from(here).or_else(|| self.occupied.first_from(0))?;
        Some(self.now + (slot.wrapping_sub(here) & (self.low.len() - 1)) as u64)
    }

    /// The first occupied slot of the higher levels: its level, index and first tick.
    #[inline]
    fn first_high(&self) -> Option<(usize, usize, u64)> {
        if self.occupied_levels == 0 {
            return None;
        }
        let level = self.occupied_levels.trailing_zeros() as usize;
        let shift = self.low_bits + level as u32 * SLOT_BITS;
        let here = (self.now >> shift) as usize;
        // Slots of a level lie in the level's present turn, from here on.
        let ahead = self.high_occupied[level].rotate_right(here as u32).trailing_zeros();
        let tick = ((self.now >> shift) + u64::from(ahead)) << shift;
        Some((level, (here + ahead as usize) % SLOTS, tick.max(self.now)))
    }

    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let low = self.first_low().map(|tick| {
            let mut at = self.low[self.low_slot(tick)];
            let mut earliest = u32::MAX;
            while at != NONE {
                let chunk = &self.chunks[at as usize];
                for event in &chunk.events[..chunk.len as usize] {
                    earliest = earliest.min(event % (1 << TICK_SHIFT));
                }
                at = chunk.next;
            }
            Instant((tick << TICK_SHIFT) | u64::from(earliest))
        });
        let high = self.first_high().and_then(|(level, slot, _)| {
            self.high[level][slot].iter().map(|(deadline, _)| *deadline).min()
        });
        low.into_iter().chain(high).min()
    }

    /// Takes out every event whose deadline is `now` or earlier, in the order of ticks.
    pub fn expire(&mut self, now: Instant, mut due: impl FnMut(u32)) {
        let target = now.0 >> TICK_SHIFT;
        loop {
            let low = self.first_low().filter(|tick| *tick <= target);
            match self.first_high() {
                Some((level, slot, tick)) if tick <= low.unwrap_or(target) => {
                    self.now = tick;
                    self.come_down(level, slot);
                    continue;
                }
                _ => {}
            }
            let Some(tick) = low else { break };
            self.now = tick;
            self.empty(tick, now, &mut due);
            if tick == target {
                break;
            }
        }
        self.now = self.now.max(target);
    }

    /// Takes out the events of a tick that are due at `now`.
    #[inline]
    fn empty(&mut self, tick: u64, now: Instant, due: &mut impl FnMut(u32)) {
        let slot = self.low_slot(tick);
        let mut at = std::mem::replace(&mut self.low[slot], NONE);
        self.occupied.clear(slot);
        while at != NONE {
            let Chunk { next, len, events } = self.chunks[at as usize];
            self.chunks[at as usize].next = self.free;
            self.free = at;
            for &event in &events[..CHUNK.min(len as usize)] {
                let deadline = (tick << TICK_SHIFT) | u64::from(event % (1 << TICK_SHIFT));
                if deadline <= now.0 {
                    due(event >> TICK_SHIFT);
                } else {
                    // Later within the tick of `now`, which is the last one.
                    self.insert_low(tick, event);
                }
            }
            at = next;
        }
    }

    /// Moves the events of a slot of a higher level to where they belong by now.
    fn come_down(&mut self, level: usize, slot: usize) {
        self.high_occupied[level] &= !(1 << slot);
        if self.high_occupied[level] == 0 {
            self.occupied_levels &= !(1 << level);
        }
        let mut events = std::mem::take(&mut self.high[level][slot]);
        for (deadline, id) in events.drain(..) {
            self.insert(id, deadline);
        }
        // Its memory is used again.
        self.high[level][slot] = events;
    }
}

/// The occupied slots of the lowest level, with two summaries above.
#[derive(Debug)]
struct Bitmap([Vec<u64>; 4]);

impl Bitmap {
    fn of(slots: usize) -> Self {
        let words = |level: u32| slots.div_ceil(64_usize.pow(level + 1));
        Self([0, 1, 2, 3].map(|level| vec![0; words(level)]))
    }

    fn set(&mut self, mut bit: usize) {
        for words in &mut self.0 {
            let before = words[bit / 64];
            words[bit / 64] |= 1 << (bit % 64);
            if before != 0 {
                return;
            }
            bit /= 64;
        }
    }

    fn clear(&mut self, mut bit: usize) {
        for words in &mut self.0 {
            words[bit / 64] &= !(1 << (bit % 64));
            if words[bit / 64] != 0 {
                return;
            }
            bit /= 64;
        }
    }

    /// The first bit that is set, from `bit` on.
    #[inline]
    fn first_from(&self, mut bit: usize) -> Option<usize> {
        for (level, words) in self.0.iter().enumerate() {
            let rest = words.get(bit / 64)? & (u64::MAX << (bit % 64));
            if rest != 0 {
                // Down again, to the first of each level.
                let mut found = bit / 64 * 64 + rest.trailing_zeros() as usize;
                for words in self.0[..level].iter().rev() {
                    found = found * 64 + words[found].trailing_zeros() as usize;
                }
                return Some(found);
            }
            bit = bit / 64 + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spans() -> impl Strategy<Value = u64> {
        prop_oneof![
            0_u64..3_000,
            0_u64..10_000_000,
            500_000_000_u64..600_000_000,
            1_000_000_000_u64..3_000_000_000,
            0_u64..100_000_000_000,
            0_u64..400_000_000_000_000
        ]
    }

    proptest! {
        /// Against a list: the same events come out, never early, none late.
        #[test]
        fn wheel_equals_sorted_list(
            small in any::<bool>(),
            steps in prop::collection::vec((0_u32..40, spans(), any::<bool>(), spans()), 1..300)
        ) {
            let mut wheel = if small { Wheel::small() } else { Wheel::default() };
            let mut model = Vec::new();
            let mut now = 0;
            for (id, ahead, expire, step) in steps {
                if expire {
                    now += step;
                    let mut out = Vec::new();
                    wheel.expire(Instant(now), |id| out.push(id));
                    out.sort_unstable();
                    let due = |(_, d): &(u32, u64)| *d <= now;
                    let mut expected: Vec<u32> =
                        model.iter().copied().filter(due).map(|(id, _)| id).collect();
                    expected.sort_unstable();
                    model.retain(|e| !due(e));
                    prop_assert_eq!(out, expected);
                } else {
                    // Also deadlines that have passed.
                    let deadline = (now + ahead).saturating_sub(500);
                    for _ in 0..id % 20 {
                        wheel.insert(id, Instant(deadline));
                        model.push((id, deadline));
                    }
                }
                let earliest = model.iter().map(|(_, d)| *d).min();
                let told = wheel.next_deadline().map(|d| d.0);
                // One that has passed may be told as the start of its tick.
                prop_assert!(told == earliest || told.max(Some(now)) == earliest.max(Some(now)),
                    "{told:?} {earliest:?} {now}");
            }
            // All memory is used again.
            wheel.expire(Instant::MAX, |_| ());
            prop_assert!(wheel.next_deadline().is_none());
        }
    }

    #[test]
    fn chunks_of_expired_events_are_reused() {
        let mut wheel = Wheel::default();
        for turn in 0..1_000_u64 {
            // Three chunks of a tick, the last of which stays for the later part of the tick.
            let begins = turn << TICK_SHIFT;
            for id in 0..3 * CHUNK as u32 {
                wheel.insert(id, Instant(begins + u64::from(id)));
            }
            let mut count = 0;
            wheel.expire(Instant(begins + 2 * CHUNK as u64), |_| count += 1);
            wheel.expire(Instant(begins + 3 * CHUNK as u64), |_| count += 1);
            assert_eq!(count, 3 * CHUNK);
        }
        // The first one is not used; two that are being emptied are not free yet.
        assert!(wheel.chunks.len() <= 1 + 3 + 2, "{} chunks", wheel.chunks.len());
    }

    #[test]
    fn grown_wheel_has_a_chunk_for_each_event() {
        let mut wheel = Wheel::default();
        wheel.grow(1_000);
        let capacity = wheel.chunks.capacity();
        assert!(capacity > 1_000, "{capacity}");
        for id in 0..1_000 {
            wheel.insert(id, Instant(u64::from(id) << TICK_SHIFT));
        }
        assert_eq!(wheel.chunks.capacity(), capacity);
    }

    #[test]
    fn event_a_whole_turn_of_ticks_ahead_is_not_early() {
        let mut wheel = Wheel::default();
        let at = (1_u64 << LONG) << TICK_SHIFT;
        wheel.insert(7, Instant(at));
        assert_eq!(wheel.next_deadline(), Some(Instant(at)));
        let mut out = Vec::new();
        wheel.expire(Instant(at - 1), |id| out.push(id));
        assert!(out.is_empty(), "{out:?}");
        wheel.expire(Instant(at), |id| out.push(id));
        assert_eq!(out, [7]);
    }

    #[test]
    fn events_expire_in_the_order_of_their_ticks() {
        let mut wheel = Wheel::default();
        // On both sides of each level's reach, the latest first.
        let mut deadlines: Vec<u64> = (0..50).map(|power| 3_u64 << power).collect();
        deadlines.extend((0..50).map(|power| (3_u64 << power) - 1));
        for (id, deadline) in deadlines.iter().enumerate().rev() {
            wheel.insert(id as u32, Instant(*deadline));
        }
        let mut ticks = Vec::new();
        wheel.expire(Instant::MAX, |id| ticks.push(deadlines[id as usize] >> TICK_SHIFT));
        assert_eq!(ticks.len(), deadlines.len());
        assert!(ticks.is_sorted(), "{ticks:?}");
    }

    #[test]
    fn expiry_late_in_64_bit_time_takes_out_all_that_is_due() {
        let mut wheel = Wheel::default();
        let late = u64::MAX - 5_000_000_000;
        for (id, deadline) in [(0, late), (1, late + 2_000_000_000), (2, u64::MAX)] {
            wheel.insert(id, Instant(deadline));
        }
        let mut out = Vec::new();
        wheel.expire(Instant(late - 1), |id| out.push(id));
        assert!(out.is_empty());
        assert_eq!(wheel.next_deadline(), Some(Instant(late)));
        wheel.expire(Instant(u64::MAX - 1), |id| out.push(id));
        assert_eq!(out, [0, 1]);
        wheel.expire(Instant::MAX, |id| out.push(id));
        assert_eq!(out, [0, 1, 2]);
    }
}
