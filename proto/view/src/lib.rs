// SPDX-License-Identifier: Apache-2.0
//! Statistics and instants as text. `linkctl` uses it, and the dataplane when it ends.

mod grid;
pub mod instant;
mod switch;
mod table;

pub use switch::{direction, stages, switch};
pub use table::{line, size, table, time};
