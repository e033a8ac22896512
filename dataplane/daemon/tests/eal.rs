// SPDX-License-Identifier: Apache-2.0
//! The EAL of this test program: a process can start it once.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dataplane::pairs::PortPair;
use dataplane::ports;
use dpdk::{Eal, Memory};

/// Enough for the largest of the tests, see [`ports::memory`].
const MEGABYTES: u32 = 256;

/// EAL without hugepages. Tests that use it run one at a time.
pub fn eal() -> MutexGuard<'static, Eal> {
    static EAL: OnceLock<Mutex<Eal>> = OnceLock::new();
    let eal = EAL.get_or_init(|| {
        let ports = ["wan=net_null", "client=net_null"].map(|s| s.parse().unwrap());
        let memory = Memory::NoHuge { megabytes: MEGABYTES };
        Mutex::new(ports::start_eal(memory, &[PortPair { name: None, ports }]).unwrap())
    });
    // A test that failed leaves EAL usable.
    eal.lock().unwrap_or_else(PoisonError::into_inner)
}
