// SPDX-License-Identifier: Apache-2.0
//! The EAL of this test program: a process can start it once.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dpdk::{Eal, EalOptions, Memory};

/// EAL without hugepages. Tests that use it run one at a time: they count the buffers of a pool.
pub fn eal() -> MutexGuard<'static, Eal> {
    static EAL: OnceLock<Mutex<Eal>> = OnceLock::new();
    let eal = EAL.get_or_init(|| {
        let options = EalOptions::new(Memory::NoHuge { megabytes: 128 });
        Mutex::new(Eal::init(&options).unwrap())
    });
    // A test that failed leaves EAL usable.
    eal.lock().unwrap_or_else(PoisonError::into_inner)
}
