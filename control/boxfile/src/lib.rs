// SPDX-License-Identifier: Apache-2.0
//! The description of a box: its ports, its workers' cores, its memory, the switch that it is
//! behind, in TOML. The dataplane starts by it; linkctl checks it and takes the ports by it.
//!
//! Three steps, each with errors of its own:
//!
//! | step | by | says |
//! |---|---|---|
//! | read | [`BoxFile::read`] | what is no TOML, no key, no value of its kind |
//! | judge | [`BoxFile::problems`] | what does not agree within the file |
//! | find | [`Port::find`] | which device a selector means on this machine |
//!
//! Only the last one looks at a machine, below roots that are parameters. Nothing here changes
//! anything. Sizes are bytes.

mod find;
mod hugepages;
mod judge;
mod pci;
mod port;
mod problem;
mod schema;
mod switch;

pub use find::{Binding, Device, FindError, Found, RECORD, Roots, named};
pub use hugepages::{Hugepages, PageSize};
pub use judge::{DPDK_BYTES, MAX_FRAME, MIN_MAX_FRAME, MOST_CLIENTS, MOST_WORKERS};
pub use pci::{Address, Nic, nics, of_interface};
pub use port::{Driver, NicId, Port, PortTable, Select, beside_kernel};
pub use problem::Problem;
pub use schema::{BoxFile, BoxFileError, Clock, Huge, Idle, Memory, Ports, Workers};
pub use switch::{Stage, Switch, SwitchError, SwitchFile, Target};

/// Names of the two ports: `wan` faces the servers, `client` the clients.
pub const PORT_NAMES: [&str; 2] = ["wan", "client"];
