// SPDX-License-Identifier: Apache-2.0
//! The initialised EAL that all other objects share. It serialises calls into DPDK's control
//! functions and records which port uses which device.
//!
//! Only [`Eal::init`](crate::Eal::init) creates one, after `rte_eal_init` succeeded. Control thread.

use std::collections::HashMap;
use std::ffi::CStr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Unique key of a device → port that uses it.
pub(crate) type Taken = HashMap<String, String>;

/// Every object that uses EAL holds it. EAL is cleaned up when the last holder is dropped.
#[derive(Debug, Default)]
pub(crate) struct EalInner {
    /// DPDK's device and memory calls are not thread safe; they hold this lock.
    control: Mutex<Taken>,
}

impl EalInner {
    /// Serialises calls into DPDK's control functions.
    pub(crate) fn control(&self) -> MutexGuard<'_, Taken> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EalInner {
    fn drop(&mut self) {
        // SAFETY: this is the last holder: no port, queue, pool or registered thread is left, and
        // a pool with buffers out would have leaked its handle on EAL.
        let ret = unsafe { dpdk_sys::rte_eal_cleanup() };
        if ret != 0 {
            tracing::warn!(code = ret, "EAL cleanup failed");
        }
        remove_runtime_folder();
    }
}

/// Removes the directory that EAL creates for files shared between processes, and its parent (`/tmp/dpdk`, or
/// `dpdk` in a runtime directory) unless another process has one there. With the options used here they stay
/// empty, and EAL never removes them.
pub(crate) fn remove_runtime_folder() {
    // SAFETY: returns a pointer to a static buffer, which only `rte_eal_init` writes.
    let path = unsafe { dpdk_sys::rte_eal_get_runtime_dir() };
    if path.is_null() {
        return;
    }
    // SAFETY: not null, and a zero-terminated string for the life of the process.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned();
    let path = Path::new(&path);
    // They may be non-empty or missing.
    let _ = std::fs::remove_dir(path);
    if let Some(parent) = path.parent().filter(|parent| parent.ends_with("dpdk")) {
        let _ = std::fs::remove_dir(parent);
    }
}
