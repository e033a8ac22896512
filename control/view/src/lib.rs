// SPDX-License-Identifier: Apache-2.0
//! How statistics and instants are shown, by `linkctl` and by the dataplane when it
//! ends: JSON with keys that stay, and text for people.

pub mod instant;
mod snapshot;
mod switch;
mod table;

pub use snapshot::{
    Client, Conservation, Count, Dropped, EXPIRED, Histogram, Lateness, Link, Memory, Pipe, Port,
    Snapshot, Span, Worker,
};
pub use switch::{Gate, Stage, Switch, SwitchCount, Times, stages};
pub use table::{line, size, table, time};
