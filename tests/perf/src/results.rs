// SPDX-License-Identifier: Apache-2.0
//! All that a run gave: what `results.json` holds.

use serde::Serialize;

use crate::base::Against;
use crate::change::Pause;
use crate::cost::Cost;
use crate::handover::Handover;
use crate::keeping::Keeping;
use crate::lateness::Late;
use crate::machine::Machine;
use crate::memory::Footprint;
use crate::rules::Lookup;
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
    pub case: String,
    pub ceiling: f64,
    pub ours: f64,
}

/// The results of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    pub machine: Machine,
    /// Order of clients: random, or in turn.
    pub order: String,
    /// Frames longer than this kept their buffer.
    pub copy_break: u32,
    /// Cost of a packet, by case.
    pub costs: Vec<Cost>,
    /// Finding a frame's client, by rules.
    pub lookups: Vec<Lookup>,
    /// `dpdk-testpmd`, by frame size.
    pub testpmd: Vec<Driver>,
    /// Memory, by case.
    pub memory: Vec<Footprint>,
    /// Instructions, where they are not in `costs`.
    pub instructions: Vec<Instructions>,
    pub changes: Vec<Pause>,
    pub scaling: Option<Scaling>,
    /// Copying against keeping, by size.
    pub keeping: Vec<Keeping>,
    pub handover: Option<Handover>,
    pub lateness: Option<Late>,
    pub against: Option<Against>,
    /// Parts that were skipped, and why.
    pub notes: Vec<String>,
    pub goals: Vec<Goal>,
}

/// A goal and the measured value.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// Name of the measured value.
    pub name: String,
    /// The value, in the words of a table; empty if it was not measured.
    pub measured: String,
    /// The bound, in the same words.
    pub bound: String,
    /// Whether it holds; `None` if it was not measured.
    pub holds: Option<bool>,
}

impl Goal {
    pub(crate) fn at_most(name: &str, value: Option<f64>, bound: f64, unit: &str) -> Self {
        let text = |v: f64, digits| format!("{v:.digits$}{unit}");
        Self {
            name: name.to_owned(),
            measured: value.map_or_else(String::new, |v| text(v, 2)),
            bound: format!("≤ {bound}{unit}"),
            holds: value.map(|v| v <= bound),
        }
    }

    pub(crate) fn at_least(name: &str, value: Option<f64>, bound: f64, unit: &str) -> Self {
        let goal = Self::at_most(name, value, bound, unit);
        Self { bound: format!("≥ {bound}{unit}"), holds: value.map(|v| v >= bound), ..goal }
    }
}
