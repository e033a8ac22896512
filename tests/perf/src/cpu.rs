// SPDX-License-Identifier: Apache-2.0
//! The processor time of the calling thread, in nanoseconds.
//!
//! Machines are shared, so wall time says little. Under a hypervisor the kernel counts time that
//! the hypervisor took from it as the thread's own: the spread shows it.

/// Processor time that this thread has used.
#[must_use]
pub fn thread_ns() -> u64 {
    dpdk::thread_time().as_nanos() as u64
}
