// SPDX-License-Identifier: Apache-2.0
//! The time of the run loop.

use std::cell::Cell;
use std::rc::Rc;

use emu::units::Instant;

/// A source of time. It need not be monotonic: the engine never goes back.
pub trait Clock {
    fn now(&mut self) -> Instant;
}

impl Clock for dpdk::TscClock {
    #[inline]
    fn now(&mut self) -> Instant {
        Instant(dpdk::TscClock::now(self))
    }
}

/// Time that stands until it is set; clones share it.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Rc<Cell<Instant>>);

impl VirtualClock {
    pub fn set(&self, now: Instant) {
        self.0.set(now);
    }
}

impl Clock for VirtualClock {
    fn now(&mut self) -> Instant {
        self.0.get()
    }
}
