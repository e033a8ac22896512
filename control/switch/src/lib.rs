// SPDX-License-Identifier: Apache-2.0
//! The session with the P4 switch between the hosts and the box.
//!
//! Declarative: [`Switch`] holds the desired state. One task compares it with the state of the
//! switch and writes the differences after each restart of the switch, its program or linkd. A link
//! works without the switch: if it does not answer, it is not used.
//!
//! docs/p4.md has the tables, the shim and the numbers.

mod accounts;
mod bins;
mod cells;
mod config;
mod desired;
mod handle;
mod hosts;
mod model;
mod names;
mod shared;
mod slots;
mod standing;
mod target;
mod task;
mod timing;
mod tofino;

pub use cells::Cells;
pub use config::{Config, MAX_BOXES, Program, ProgramError, Sides, Stages};
pub use handle::Switch;
pub use hosts::Ageing;
pub use model::{
    BYPASS, Client, Count, Counts, DEFAULT, Egress, Error, Fates, Histogram, Loss, MAX_CLIENTS,
    Match, Mirror, Mirrored, News, Offload, Owners, Phase, Point, PortDrops, Stalls, Status,
    bucket,
};
pub use names::CheckError;
pub use p4runtime::Tls;
pub use target::Target;
pub use timing::Timing;
pub use tofino::{Format, TofinoError};
