// SPDX-License-Identifier: Apache-2.0
//! Keeps the kernel interfaces under our ports from reordering.
//!
//! A kernel interface without hardware queues (veth, tap) hands a frame on from the
//! core that it was sent on. If a flow's sender moves to another core, the flow goes
//! through two backlogs at once, and arrives out of order before we see it. Receive
//! packet steering to one core makes it one backlog (kernel:
//! Documentation/networking/scaling.rst). The far ends of such pairs need the same,
//! by their owners: our worker is pinned, but the peers' senders are not.

use std::fs;
use std::io;

/// Steers what interface `iface` receives to `core`.
///
/// # Errors
/// If the interface has no such setting or it may not be written.
pub fn steer(iface: &str, core: usize) -> io::Result<()> {
    // A mask in hexadecimal, in groups of 32 bits, the highest first.
    let mut mask = format!("{:x}", 1_u32 << (core % 32));
    for _ in 0..core / 32 {
        mask.push_str(",00000000");
    }
    let queues = format!("/sys/class/net/{iface}/queues");
    for entry in fs::read_dir(&queues)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("rx-") {
            fs::write(entry.path().join("rps_cpus"), &mask)?;
        }
    }
    Ok(())
}
