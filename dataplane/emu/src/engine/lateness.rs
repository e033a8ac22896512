// SPDX-License-Identifier: Apache-2.0
//! How late frames left: a histogram that costs a frame one addition.
//!
//! Most frames leave within microseconds. Those are counted to 4 ns in a plain array, and
//! go into the histogram (G. Tene's HDR, two digits) when it is asked; later ones do at once.

use hdrhistogram::{CreationError, Histogram};

use crate::stats::Lateness;
use crate::units::Nanos;

/// Lateness above this is counted as this.
const MAX: Nanos = Nanos::from_secs(3600);
/// Nanoseconds per element of the array, as a power of two.
const STEP_SHIFT: u32 = 2;
/// Places of the array: up to 8 µs.
const PLACES: usize = 2048;

#[derive(Debug)]
pub(super) struct Counted {
    soon: Box<[u64; PLACES]>,
    all: Histogram<u64>,
}

impl Counted {
    /// # Errors
    /// If the bounds are refused; they are fixed and valid.
    pub(super) fn new() -> Result<Self, CreationError> {
        Ok(Self { soon: Box::new([0; PLACES]), all: Histogram::new_with_max(MAX.0, 2)? })
    }

    /// Counts a frame that left so late.
    #[inline]
    pub(super) fn count(&mut self, late: Nanos) {
        match self.soon.get_mut((late.0 >> STEP_SHIFT) as usize) {
            Some(n) => *n += 1,
            None => self.all.saturating_record(late.0),
        }
    }

    /// The quantiles since the last reset.
    pub(super) fn quantiles(&mut self) -> Lateness {
        for (place, n) in self.soon.iter_mut().enumerate() {
            if *n > 0 {
                self.all.saturating_record_n((place as u64) << STEP_SHIFT, std::mem::take(n));
            }
        }
        Lateness::of(&self.all)
    }

    pub(super) fn reset(&mut self) {
        self.soon.fill(0);
        self.all.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let mut counted = Counted::new().unwrap();
        for late in 1..=1_000 {
            counted.count(Nanos(late));
        }
        (0..10).for_each(|_| counted.count(Nanos(1_000_000)));
        counted.count(Nanos(u64::MAX));
        for _ in 0..2 {
            let l = counted.quantiles();
            assert_eq!(l.count, 1_011);
            // Two digits of 505, 1 ms and the hour.
            assert!((497..=512).contains(&l.p50.0), "{l:?}");
            assert!((990_000..=1_010_000).contains(&l.p999.0), "{l:?}");
            assert!(l.max.0 >= MAX.0 / 100 * 99, "{l:?}");
        }
        counted.reset();
        assert_eq!(counted.quantiles().count, 0);
    }
}
