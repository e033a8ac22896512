// SPDX-License-Identifier: Apache-2.0
//! All that a run gave: what `results.json` holds.

use serde::Serialize;

use crate::base::Against;
use crate::change::Pause;
use crate::cost::Cost;
use crate::goals::Goal;
use crate::lateness::Late;
use crate::machine::Machine;
use crate::memory::Footprint;
use crate::spread::Spread;
use crate::workers::Scaling;

/// The driver's own forwarder on frames of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Driver {
    /// Bytes with FCS.
    pub size: u32,
    /// ns of processor time a packet.
    pub testpmd_ns: Spread,
}

/// Instructions a packet, as callgrind counts them.
#[derive(Clone, Debug, Serialize)]
pub struct Instructions {
    /// The case.
    pub case: String,
    /// The bare loop's.
    pub ceiling: f64,
    /// Ours.
    pub ours: f64,
}

/// The results of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// What it ran on.
    pub machine: Machine,
    /// Whose frame came next: drawn anew, or in turn.
    pub order: String,
    /// Frames longer than this kept their buffer.
    pub copy_break: u32,
    /// Cost of a packet, by case.
    pub costs: Vec<Cost>,
    /// `dpdk-testpmd`, by frame size.
    pub testpmd: Vec<Driver>,
    /// Memory, by case.
    pub memory: Vec<Footprint>,
    /// Instructions, where they are not in `costs`.
    pub instructions: Vec<Instructions>,
    /// Changes under load.
    pub changes: Vec<Pause>,
    /// Many workers.
    pub scaling: Option<Scaling>,
    /// Lateness in real time.
    pub lateness: Option<Late>,
    /// This commit against another.
    pub against: Option<Against>,
    /// What was left out, and why.
    pub notes: Vec<String>,
    /// The goals.
    pub goals: Vec<Goal>,
}
