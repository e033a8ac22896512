// SPDX-License-Identifier: Apache-2.0
//! The processor time of the calling thread, in nanoseconds.
//!
//! Machines are shared, so wall time says little. Under a hypervisor the kernel counts time that
//! the hypervisor took from it as the thread's own: the spread shows it.

use nix::time::{ClockId, clock_gettime};

/// Processor time that this thread has used.
#[must_use]
pub fn thread_ns() -> u64 {
    // It cannot fail on Linux for this clock.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(0, |t| {
        let seconds = u64::try_from(t.tv_sec()).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(t.tv_nsec()).unwrap_or(0)
    })
}
