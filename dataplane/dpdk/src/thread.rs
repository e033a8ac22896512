// SPDX-License-Identifier: Apache-2.0
//! Registers a thread that Rust spawned with EAL.
//!
//! Only threads with an lcore id use a mempool's per-lcore cache. Without one, each allocation uses
//! the shared ring. Held by the worker thread.

use std::fs;
use std::marker::PhantomData;
use std::sync::Arc;

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

/// NUMA node of a core; `None` if the system does not report it.
#[must_use]
pub fn numa_node(core: usize) -> Option<u32> {
    let entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{core}")).ok()?;
    entries
        .flatten()
        .find_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_core_has_no_numa_node() {
        assert_eq!(numa_node(usize::MAX), None);
    }
}
