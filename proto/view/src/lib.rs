// SPDX-License-Identifier: Apache-2.0
//! Statistics and instants as JSON with stable keys and as text. `linkctl` uses it, and the dataplane
//! when it ends.

mod grid;
pub mod instant;
mod pipe;
mod snapshot;
mod switch;
mod table;

pub use pipe::{Access, Count, Dropped, Histogram, Pipe};
pub use snapshot::{
    Client, Conservation, EXPIRED, HostSpan, Lateness, Link, Memory, Port, PortLoss, Snapshot,
    Span, SwitchSpan, Tolerance, Worker,
};
pub use switch::{Gate, Stage, Switch, SwitchCount, SwitchPort, Times, stages};
pub use table::{line, size, table, time};
