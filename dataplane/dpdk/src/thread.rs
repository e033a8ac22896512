// SPDX-License-Identifier: Apache-2.0
//! Registers a thread that Rust spawned with EAL.
//!
//! Only threads with an lcore id use a mempool's per-lcore cache. Without one, each allocation uses
//! the shared ring. Held by the worker thread.

use std::fs;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::error::{Error, rte_reason};
use crate::instance::EalInner;

/// Keeps the calling thread registered with EAL.
#[derive(Debug)]
pub struct ThreadGuard {
    registered: bool,
    _eal: Arc<EalInner>,
    /// Not `Send`: must be dropped on the thread that created it.
    _thread: PhantomData<*const ()>,
}

impl ThreadGuard {
    pub(crate) fn new(eal: Arc<EalInner>) -> Result<Self, Error> {
        let _control = eal.control();
        // SAFETY: reads a per-thread variable.
        let known = unsafe { dpdk_sys::lke_thread_has_lcore() } != 0;
        if !known {
            // SAFETY: EAL is initialised and this thread is not registered.
            let ret = unsafe { dpdk_sys::rte_thread_register() };
            if ret != 0 {
                return Err(Error::ThreadRegister { reason: rte_reason() });
            }
        }
        drop(_control);
        Ok(Self { registered: !known, _eal: eal, _thread: PhantomData })
    }
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        if self.registered {
            // SAFETY: this thread (the guard is not Send) was registered by `new`, and EAL is
            // alive: the guard holds it.
            unsafe { dpdk_sys::rte_thread_unregister() };
        }
    }
}

/// Processor time that the calling thread has used.
#[must_use]
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// NUMA node of a core; `None` if the system does not report it.
#[must_use]
pub fn numa_node(core: usize) -> Option<u32> {
    let entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{core}")).ok()?;
    entries
        .flatten()
        .find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

/// Calls `allocate`. The kernel takes the memory that it touches first from NUMA node `node`, as long as
/// there is some. A control thread prepares memory for a worker on that node in this way. If the process
/// was started with a memory policy (`numactl`), that policy holds instead. Without a node, or without
/// support for policies by the kernel or the container, the memory is on the calling thread's node.
///
/// Reference: set_mempolicy(2). Not for threads that other threads' memory depends on: the policy is
/// the calling thread's.
pub fn with_memory_on<T>(node: Option<u32>, allocate: impl FnOnce() -> T) -> T {
    let _policy = node.and_then(Preferred::set);
    allocate()
}

/// The calling thread prefers a node. Drop restores the default policy.
struct Preferred(PhantomData<*const ()>);

impl Preferred {
    /// None if the thread has another policy, or cannot set one.
    fn set(node: u32) -> Option<Self> {
        let mask = 1_u64.checked_shl(node)?;
        if policy()? != libc::MPOL_DEFAULT {
            return None;
        }
        // SAFETY: the kernel reads one word of 64 bits at `mask`, as the last argument says; it
        // does not count the last bit.
        let ret = unsafe {
            libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_PREFERRED, &raw const mask, 65)
        };
        (ret == 0).then_some(Self(PhantomData))
    }
}

impl Drop for Preferred {
    fn drop(&mut self) {
        let none = std::ptr::null::<u64>();
        // SAFETY: the default policy has no nodes.
        unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_DEFAULT, none, 0) };
    }
}

/// The calling thread's memory policy.
fn policy() -> Option<libc::c_int> {
    let mut mode: libc::c_int = 0;
    let none = std::ptr::null_mut::<u64>();
    // SAFETY: without flags and nodes the kernel writes the mode only.
    let ret = unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, none, 0, none, 0) };
    (ret == 0).then_some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_policy_holds_while_memory_is_allocated() {
        // A kernel without NUMA, or a container that forbids policies.
        let Some(before) = policy() else { return };
        let inside = with_memory_on(Some(0), policy);
        let is_allowed = Preferred::set(0).is_some();
        if before == libc::MPOL_DEFAULT && is_allowed {
            assert_eq!(inside, Some(libc::MPOL_PREFERRED));
        }
        assert_eq!(policy(), Some(before));
        assert_eq!(with_memory_on(Some(u32::MAX), policy), Some(before));
        assert_eq!(with_memory_on(None, policy), Some(before));
    }

    #[test]
    fn missing_core_has_no_numa_node() {
        assert_eq!(numa_node(usize::MAX), None);
    }
}
