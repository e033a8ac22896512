// SPDX-License-Identifier: Apache-2.0
//! The words between the control plane and a switch's session.

use emu::units::ByDirection;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Number of what is not impaired.
pub const BYPASS: u16 = 1;
/// Number of what is nobody else's.
pub const DEFAULT: u16 = 2;
/// A client's number is less.
pub const MAX_CLIENTS: u16 = 4096;

/// Loss frame by frame, with chances in units of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// None, or none that the switch is to draw.
    #[default]
    None,
    Independent(u32),
    /// A chain of two states, of which the good one is the first.
    GilbertElliott {
        /// Of leaving the good state, per frame.
        to_bad: u32,
        /// Of leaving the bad state, per frame.
        to_good: u32,
        loss_in_bad: u32,
        loss_in_good: u32,
    },
}

/// What a switch does in the dataplane's place; all zero: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Of the client numbers in shims.
    pub epoch: u16,
    /// Number of the forward loss in the switch.
    pub forward_loss: u16,
    /// Number of the return loss in the switch.
    pub return_loss: u16,
    /// Whether it sets the ECN field of frames that the dataplane marks.
    pub marks: bool,
}

/// A client that the switch is to know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client {
    /// 1 the bypass, 2 the default, 3 and above the others; below [`MAX_CLIENTS`]. 0, or one that
    /// the switch's program does not count: whose these are the dataplane says.
    pub number: u16,
    pub matches: Vec<Match>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Match {
    Mac([u8; 6]),
    /// Its outermost tag, 1 to 4094.
    Vlan(u16),
    Prefix(IpAddr, u8),
}

/// What a session says by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The switch has its program and its tables.
    Ready {
        /// Since it was lost or taken, or since the start; since the first who asked in vain, if
        /// it was only slow.
        took: Duration,
        /// Whether it was given its program.
        pushed: bool,
        entries: u32,
    },
    Lost {
        why: String,
    },
    /// It takes orders from another.
    Taken {
        by: String,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    Lost,
    /// Another one is its primary controller.
    Taken,
    /// It is given its program and its tables.
    Restoring,
    /// It is as it should be.
    Ready,
}

/// How a switch is, and since when.
#[derive(Clone, Debug)]
pub struct Status {
    pub phase: Phase,
    pub since: Instant,
    /// Why, or what could not be written; may be empty.
    pub message: String,
    /// Entries of all its tables.
    pub entries: u32,
    pub clients: u32,
    /// How long the last restoration took.
    pub restored: Duration,
    /// Gates that are closed: of a client or of all, in a direction.
    pub gates: Vec<(Option<u16>, emu::units::Direction)>,
}

/// Frames and bytes. A byte counts as the switch's architecture counts it.
pub use p4runtime::Count;

/// Frames of one client and direction by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    pub received: Count,
    /// From the box: `delivered` + `lost` + `gated`.
    pub returned: Count,
    pub delivered: Count,
    pub lost: Count,
    pub gated: Count,
    /// With their ECN field set.
    pub marked: Count,
    /// Delivered, of another epoch: their time is not known.
    pub stale: Count,
    /// Delivered, with a loss that the switch does not know.
    pub unknown_loss: Count,
}

/// Frames of one port that belong to no client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortDrops {
    /// The port is none of the configuration's.
    pub unknown_port: Count,
    /// From the box, without a shim or with another version's.
    pub no_shim: Count,
    /// From the box, of the other direction.
    pub wrong_direction: Count,
    /// Without a whole Ethernet header.
    pub cut: Count,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Ascending upper bounds in ns, each of which belongs to its bucket.
    pub bounds: Vec<u64>,
    /// One more than bounds: the last has what is longer.
    pub counts: Vec<u64>,
}

/// What a switch has counted of one dataplane instance. All of it only ever grows, also when
/// the switch is restarted; what it counted between the last look and its end is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Whether the switch has answered, and for all clients: it was said which there are. Else
    /// these are the values of the last time, or some clients are missing.
    pub ready: bool,
    /// The dataplane's; zero: none is known.
    pub instance: u64,
    /// By client number: 0 what was not classified, 1 bypass, 2 default, and those of
    /// [`crate::Switch::set_clients`].
    pub clients: BTreeMap<u16, ByDirection<Fates>>,
    /// By the switch's port: those of the configuration, and where there was something else.
    pub ports: BTreeMap<u16, PortDrops>,
    /// From the arrival of a frame from its host until it came back from the box, of all
    /// clients together.
    pub transit: ByDirection<Histogram>,
    /// Of that, what is more than the box meant to keep it.
    pub lateness: ByDirection<Histogram>,
    /// Frames that came back sooner than the box meant to keep them.
    pub early: u64,
}

/// Why something is not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The switch is not ready.
    #[error("the switch is not ready ({0}): try again when it is, linkctl switch says so")]
    NotReady(String),
    /// There is no such client.
    #[error("client number {number}: 1 to {} can have a gate in the switch", MAX_CLIENTS - 1)]
    Client { number: u16 },
    #[error(transparent)]
    Switch(#[from] p4runtime::Error),
    #[error("the switch's session has ended")]
    Ended,
}
