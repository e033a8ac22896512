// SPDX-License-Identifier: Apache-2.0
//! The offloads of kernel interfaces under ports: off while the ports use them, and on again afterwards.
//!
//! A process that is killed leaves them off. Control thread.

use interface::{Disabled, disable_offloads, offloads};

/// Interfaces whose offloads were turned off. Dropping it turns them on again.
#[derive(Debug, Default)]
pub struct OffloadsOff(Vec<Disabled>);

impl OffloadsOff {
    /// Turns off those of an interface in the calling thread's network namespace: superframes and unfinished
    /// checksums must not reach a port, nor leave. Logs those that stay on.
    pub fn turn_off(&mut self, iface: &str) {
        match disable_offloads(iface) {
            Ok(off) => {
                if !off.kinds().is_empty() {
                    tracing::info!(iface, "turned off {}", listed(off.kinds()));
                }
                self.0.push(off);
            }
            Err(error) => tracing::warn!(iface, %error, "offloads may be on"),
        }
        match offloads(iface) {
            Ok(on) if !on.is_empty() => tracing::warn!(
                iface,
                "still on: {}; frames above the MTU or with open checksums may arrive: run \
                 `ethtool -K {iface} tx off gso off gro off`",
                listed(&on)
            ),
            _ => {}
        }
    }
}

impl Drop for OffloadsOff {
    fn drop(&mut self) {
        for off in &self.0 {
            let (iface, kinds) = (off.iface(), listed(off.kinds()));
            match off.enable() {
                Ok(()) if off.kinds().is_empty() => {}
                Ok(()) => tracing::info!(iface, "turned on again: {kinds}"),
                Err(error) => tracing::warn!(iface, %error, "{kinds} stay off"),
            }
        }
    }
}

fn listed(kinds: &[interface::Offload]) -> String {
    kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
