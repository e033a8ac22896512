// SPDX-License-Identifier: Apache-2.0
//! Types of the interface between the control plane and a switch's session.

use emu::units::ByDirection;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Client number of traffic that is not impaired.
pub const BYPASS: u16 = 1;
/// Client number of traffic without a client.
pub const DEFAULT: u16 = 2;
/// Client numbers of one box, and cells of all boxes, are below this.
pub const MAX_CLIENTS: u16 = 4096;

/// Per-packet loss. Probabilities are in units of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// No loss in the switch.
    #[default]
    None,
    Independent(u32),
    /// A two-state Markov chain that starts in the good state.
    GilbertElliott {
        /// Probability of leaving the good state, per frame.
        to_bad: u32,
        /// Probability of leaving the bad state, per frame.
        to_good: u32,
        loss_in_bad: u32,
        loss_in_good: u32,
    },
}

/// Stages that the switch runs instead of the dataplane; all zero: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Epoch of the client numbers in shims.
    pub epoch: u16,
    /// Number of the forward loss in the switch; zero: none.
    pub forward_loss: u16,
    /// Number of the return loss in the switch; zero: none.
    pub return_loss: u16,
    /// True if the switch sets the ECN field of frames that the dataplane marks.
    pub marks: bool,
}

/// A client that the switch classifies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client {
    /// Its cell ([`crate::Cells`]), which with one box is its number: 1 is the bypass, 2 the default
    /// client, 3 and above the others; below [`MAX_CLIENTS`]. For number 0 of a box, and for numbers that
    /// the switch's program does not count, that box classifies.
    pub number: u16,
    pub matches: Vec<Match>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Match {
    Mac([u8; 6]),
    /// Outermost VLAN tag, 1 to 4094.
    Vlan(u16),
    Prefix(IpAddr, u8),
}

/// Where in the switch frames are copied: as it gives them to a port, after all that it does to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Frames of hosts on their way to a box, with the shim.
    Box,
    /// Frames on their way to hosts, without the shim.
    Hosts,
}

impl Point {
    pub const BOTH: [Self; 2] = [Self::Box, Self::Hosts];
}

/// Frames whose copies go to the port for copies: of one client, by its cell, or of all.
pub type Mirror = (Option<u16>, emu::units::Direction, Point);

/// Boxes that own the clients without a rule in the switch. A client with a rule belongs to the box of
/// its cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Owner of IP frames without a client, by [`bucket`] of the address on the client's side.
    pub buckets: BTreeMap<u8, u8>,
    /// Owner of everything else: of other buckets, of traffic that a link needs, of unreadable frames, and of
    /// addresses that belong to no single host.
    pub default: u8,
}

/// The bucket of a client's address.
#[must_use]
pub fn bucket(address: IpAddr) -> u8 {
    let fold = |low: u8, high: u8| low ^ high;
    match address {
        IpAddr::V4(address) => {
            let [.., high, low] = address.octets();
            fold(low, high)
        }
        IpAddr::V6(address) => {
            let [.., high, low] = address.octets();
            fold(low, high)
        }
    }
}

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The switch has its program and its tables.
    Ready {
        /// Time since it answered and made us its primary. If it was only slow, time since the first
        /// request that timed out.
        took: Duration,
        /// True if the program was loaded.
        pushed: bool,
        entries: u32,
    },
    Lost {
        why: String,
    },
    /// Another controller is the primary.
    Taken {
        by: String,
    },
    /// What it cannot do has changed; empty: there is nothing.
    Limits {
        what: String,
    },
    /// Another controller had changed entries, and they were written again.
    Repaired {
        /// Number of them by table.
        what: String,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Lost,
    /// Another controller is the primary.
    Taken,
    /// Program and tables are being written.
    Restoring,
    /// Tables match the desired state.
    Ready,
}

/// State of a switch.
#[derive(Clone, Debug)]
pub struct Status {
    pub phase: Phase,
    pub since: Instant,
    /// Reason, or entries that could not be written; may be empty.
    pub message: String,
    /// Number of entries in all tables.
    pub entries: u32,
    pub clients: u32,
    /// Duration of the last restoration, without the time in which it was away.
    pub restored: Duration,
    /// Closed client gates: of one client, by its cell, or of all, in a direction.
    pub gates: Vec<(Option<u16>, emu::units::Direction)>,
    /// Frames that are copied.
    pub mirrors: Vec<Mirror>,
    /// Owners that the switch was last told, all of whose entries it has.
    pub owners: Owners,
    /// Name, version and architecture of the program; empty if it could not be read.
    pub program: String,
}

/// Frames and bytes. The switch's architecture defines the byte count of a frame.
pub use p4runtime::Count;
/// Number of stalls by the upper bound of their durations, ns.
pub use p4runtime::Stalls;

/// Frames of one client and direction by fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    pub received: Count,
    /// Received from the box: `delivered` + `lost` + `gated`.
    pub returned: Count,
    pub delivered: Count,
    pub lost: Count,
    pub gated: Count,
    /// ECN field set by the switch.
    pub marked: Count,
    /// Delivered with a shim of another epoch, so without a transit time.
    pub stale: Count,
    /// Delivered with a loss number that the switch does not know.
    pub unknown_loss: Count,
}

/// Frames of one port that belong to no client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortDrops {
    /// The port is not configured.
    pub unknown_port: Count,
    /// From the box, without a shim or with another shim version.
    pub no_shim: Count,
    /// From the box, at the port of the other direction.
    pub wrong_direction: Count,
    /// Shorter than an Ethernet header.
    pub cut: Count,
    /// From a host, for a box that has no port.
    pub no_box: Count,
}

/// Frames of one port from the pipeline on. The difference was lost between its decision and the port's
/// egress, or is on its way there. Of bytes, `given` counts those of the frames as received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// Given to this port, copies for all hosts of the side included.
    pub given: Count,
    /// Counted at its egress.
    pub sent: Count,
    /// The port leads to hosts, and not to a box.
    pub to_hosts: bool,
}

/// Copies of frames. Those that were made and not sent were lost at the port for copies, or are on their way
/// there; the frames themselves are not affected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mirrored {
    /// Frames that were copied on their way to a box. Of bytes, those of the frames as received.
    pub at_box: ByDirection<Count>,
    /// Frames that were copied on their way to hosts.
    pub at_hosts: ByDirection<Count>,
    /// Copies that the port for copies has sent.
    pub sent: Count,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Ascending upper bounds in ns. A bound belongs to its bucket.
    pub bounds: Vec<u64>,
    /// One more than bounds. The last bucket is unbounded.
    pub counts: Vec<u64>,
}

/// Counters of one dataplane instance. All of them only grow, also over a restart of the switch.
/// Frames counted between the last read and a restart are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// True if the switch answered and the client list is known. Otherwise these are the last
    /// values, or some clients are missing.
    pub ready: bool,
    /// Dataplane instance; zero if unknown.
    pub instance: u64,
    /// By cell: number 0 of a box not classified, 1 bypass, 2 default, and those of
    /// [`crate::Switch::set_clients`].
    pub clients: BTreeMap<u16, ByDirection<Fates>>,
    /// By port of the switch: configured ports, and others with dropped frames.
    pub ports: BTreeMap<u16, PortDrops>,
    /// By configured port of the switch.
    pub egress: BTreeMap<u16, Egress>,
    pub mirrored: Mirrored,
    /// Time from the arrival of a frame from its host until its return from the box, over all
    /// clients.
    pub transit: ByDirection<Histogram>,
    /// Transit time beyond the delay that the box intended.
    pub lateness: ByDirection<Histogram>,
    /// Frames that returned earlier than the box intended.
    pub early: u64,
    /// How often the switch stood still; `None` if it does not report it.
    pub stalls: Option<Stalls>,
    /// Entries that another controller changed, and that were repaired, since the session's start.
    pub foreign: u64,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("the switch is not ready ({0}): retry when `linkctl switch` shows it ready")]
    NotReady(String),
    #[error("client number {number}: 1 to {} can have a gate or copies in the switch", MAX_CLIENTS - 1)]
    Client { number: u16 },
    #[error("box {number} owns nothing: the switch has {boxes}, from 0 on")]
    Owner { number: u8, boxes: usize },
    #[error(
        "the switch has no port for copies: give a free port of it as `mirror` of [switch] in the box file"
    )]
    NoMirror,
    #[error(
        "{wanted} entries are needed for copies, one per client, direction and point, and the switch has \
         {size}: name fewer clients, or all"
    )]
    Mirrors { wanted: usize, size: u64 },
    #[error(transparent)]
    Switch(#[from] p4runtime::Error),
    #[error("the session with the switch has ended")]
    Ended,
}
