// SPDX-License-Identifier: Apache-2.0
//! The box file: ports, cores of the workers, memory, and the P4 switch in front of the box, in
//! TOML. The dataplane is configured by it. linkctl checks it and binds the ports.
//!
//! Three steps, each with its own errors:
//!
//! | step | function | reports |
//! |---|---|---|
//! | parse | [`BoxFile::read`] | invalid TOML, unknown keys, values of the wrong type |
//! | check | [`BoxFile::problems`] | inconsistencies within the file |
//! | find | [`Port::find`] | missing devices |
//!
//! Only the last step looks at the machine, below root directories that are parameters. This crate
//! changes nothing. Sizes are bytes.

mod find;
mod hugepages;
mod judge;
mod pairs;
mod pci;
mod port;
mod problem;
mod schema;
mod switch;

pub use find::{Binding, Device, FindError, Found, RECORD, Roots, named};
pub use hugepages::{Hugepages, PageSize};
pub use judge::{DPDK_BYTES, MAX_FRAME, MIN_MAX_FRAME, MOST_CLIENTS, MOST_WORKERS};
pub use pairs::{MAX_PAIRS, PORT_NAMES, PairsError, pairs, port_name};
pub use pci::{Address, Nic, nics, of_interface};
pub use port::{Driver, NicId, Port, PortTable, Select, Side, beside_kernel};
pub use problem::Problem;
pub use schema::{BoxFile, BoxFileError, Clock, Huge, Idle, Memory, Ports, Workers};
pub use switch::{Format, Stage, Switch, SwitchError, SwitchFile, SwitchTls, Target};
