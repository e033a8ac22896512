// SPDX-License-Identifier: Apache-2.0
//! Kernel network interfaces in the calling thread's network namespace: MTU, flags, offloads and use.
//!
//! `dpdk` uses it for the interfaces under its ports, and `linkctl run` for those of its hosts.
#![allow(unsafe_code, reason = "ioctls of interfaces have no safe wrapper")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod iface;
mod offload;
mod used;

pub use iface::{Interface, interface_ioctl, may_open_packet_socket, request, socket_ioctl};
pub use offload::{Disabled, Offload, disable_offloads, offloads};
pub use used::Used;

use std::io;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum Error {
    /// No interface has this name in the calling thread's network namespace.
    #[error("there is no network interface `{iface}`; existing: {}", existing.join(", "))]
    NoInterface { iface: String, existing: Vec<String> },

    /// An interface cannot be read.
    #[error("interface `{iface}`: cannot {action}: {source}")]
    Io {
        iface: String,
        action: &'static str,
        #[source]
        source: io::Error,
    },

    /// Offloads cannot be read or changed.
    #[error("interface `{iface}`: cannot {action} offloads: {source}; {remedy}")]
    Offload {
        iface: String,
        /// `read`, `disable` or `enable`.
        action: &'static str,
        #[source]
        source: io::Error,
        remedy: &'static str,
    },
}
