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
use std::path::{Path, PathBuf};

/// Receive queues whose steering was changed, each with its mask from before. Dropping it restores them.
#[derive(Debug, Default)]
pub struct Steered(Vec<(PathBuf, String)>);

impl Drop for Steered {
    fn drop(&mut self) {
        for (path, mask) in &self.0 {
            // One of an interface that was removed is gone.
            let _ = fs::write(path, mask);
        }
    }
}

impl Steered {
    /// Steers what interface `iface` receives to `core`.
    ///
    /// # Errors
    /// If the interface has no such setting or it may not be written.
    pub fn steer(&mut self, iface: &str, core: usize) -> io::Result<()> {
        // A mask in hexadecimal, in groups of 32 bits, the highest first.
        let mut mask = format!("{:x}", 1_u32 << (core % 32));
        for _ in 0..core / 32 {
            mask.push_str(",00000000");
        }
        self.set(Path::new(&format!("/sys/class/net/{iface}/queues")), &mask)
    }

    fn set(&mut self, queues: &Path, mask: &str) -> io::Result<()> {
        for entry in fs::read_dir(queues)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("rx-") {
                let path = entry.path().join("rps_cpus");
                let before = fs::read_to_string(&path)?;
                fs::write(&path, mask)?;
                self.0.push((path, before));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_receive_queues_are_set_and_restored() {
        let root = tempfile::tempdir().unwrap();
        let at = |queue: &str| root.path().join(queue).join("rps_cpus");
        for queue in ["rx-0", "rx-1", "tx-0"] {
            fs::create_dir(root.path().join(queue)).unwrap();
            fs::write(at(queue), "f\n").unwrap();
        }
        let read = || ["rx-0", "rx-1", "tx-0"].map(|queue| fs::read_to_string(at(queue)).unwrap());
        let mut steered = Steered::default();
        steered.set(root.path(), "2").unwrap();
        assert_eq!(read(), ["2", "2", "f\n"]);
        drop(steered);
        assert_eq!(read(), ["f\n", "f\n", "f\n"]);
    }
}
