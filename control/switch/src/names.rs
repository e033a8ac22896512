// SPDX-License-Identifier: Apache-2.0
//! Names of the P4 program's tables, actions and counters, and the numbering of cells (docs/p4.md;
//! sizes are in p4src/shared).

use crate::model::{MAX_CLIENTS, Point};
use crate::target::Target;
use emu::units::Direction;
use p4runtime::P4Info;
use p4runtime::info::{Counter, InfoError};

pub const PORTS: &str = "linkemu.ports";
pub const MACS: &str = "linkemu.macs";
pub const VLANS: &str = "linkemu.vlans";
pub const PREFIXES4: &str = "linkemu.prefixes4";
pub const PREFIXES6: &str = "linkemu.prefixes6";
pub const BUCKETS: &str = "linkemu.buckets";
pub const BOXES: &str = "linkemu.boxes";
pub const GATES: &str = "linkemu.gates";
pub const LOSS: &str = "linkemu.loss";
pub const MIRRORS: &str = "linkemu.mirrors";
pub const TRANSIT_BINS: &str = "linkemu.transit_bins";
pub const LATENESS_BINS: &str = "linkemu.lateness_bins";
pub const SOURCES: &str = "linkemu.sources";
pub const HOSTS: &str = "linkemu.hosts";
/// Notes about the entries of [`PORTS`]. No frame depends on them.
pub const NOTES: &str = "linkemu.notes";

pub const CLIENTS: [&str; 4] = [MACS, VLANS, PREFIXES4, PREFIXES6];
/// Tables that are written before those of clients.
pub const FIRST: [&str; 2] = [TRANSIT_BINS, LATENESS_BINS];
/// Tables that are written last. No frame passes before the last one, [`PORTS`], is written.
pub const LAST: [&str; 9] = [GATES, LOSS, MIRRORS, HOSTS, SOURCES, BUCKETS, BOXES, NOTES, PORTS];
pub const TABLES: [&str; 15] = [
    TRANSIT_BINS,
    LATENESS_BINS,
    MACS,
    VLANS,
    PREFIXES4,
    PREFIXES6,
    GATES,
    LOSS,
    MIRRORS,
    HOSTS,
    SOURCES,
    BUCKETS,
    BOXES,
    NOTES,
    PORTS,
];

/// Name of the program, and the version of its tables, counters and shim.
const PROGRAM: &str = "linkemu";
pub const VERSION: &str = "2";

pub const NO_ACTION: &str = "NoAction";
pub const FROM_HOST: &str = "linkemu.from_host";
pub const FROM_BOX: &str = "linkemu.from_box";
pub const SET_CLIENT: &str = "linkemu.set_client";
pub const SET_BOX: &str = "linkemu.set_box";
pub const TO_BOX: &str = "linkemu.to_box";
pub const CLOSE_GATE: &str = "linkemu.close_gate";
pub const MIRROR: &str = "linkemu.mirror";
pub const INDEPENDENT: &str = "linkemu.independent";
pub const GILBERT_ELLIOTT: &str = "linkemu.gilbert_elliott";
pub const SET_TRANSIT_BIN: &str = "linkemu.set_transit_bin";
pub const SET_LATENESS_BIN: &str = "linkemu.set_lateness_bin";
pub const KNOWN: &str = "linkemu.known";
pub const TO_HOST: &str = "linkemu.to_host";
const ACTIONS: [&str; 14] = [
    NO_ACTION,
    FROM_HOST,
    FROM_BOX,
    SET_CLIENT,
    SET_BOX,
    TO_BOX,
    CLOSE_GATE,
    MIRROR,
    INDEPENDENT,
    GILBERT_ELLIOTT,
    SET_TRANSIT_BIN,
    SET_LATENESS_BIN,
    KNOWN,
    TO_HOST,
];

pub const FATES: &str = "linkemu.fates";
pub const PORT_DROPS: &str = "linkemu.port_drops";
pub const TRANSIT: &str = "linkemu.transit";
pub const LATENESS: &str = "linkemu.lateness";
pub const GIVEN: &str = "linkemu.given";
pub const SENT: &str = "linkemu.sent";
pub const MIRRORED: &str = "linkemu.mirrored";
const COUNTERS: [&str; 7] = [FATES, PORT_DROPS, TRANSIT, LATENESS, GIVEN, SENT, MIRRORED];

/// Cells per client and direction.
pub const FATE_CELLS: u64 = 8;
pub const DROP_CELLS: u64 = 8;
pub const BINS: u64 = 32;

/// The direction in the program's encoding.
pub fn bit(direction: Direction) -> u128 {
    match direction {
        Direction::Forward => 0,
        Direction::Return => 1,
    }
}

/// The point of a copy in the program's encoding: whether the frame goes to hosts.
pub fn at(point: Point) -> u128 {
    match point {
        Point::Box => 0,
        Point::Hosts => 1,
    }
}

/// Counters of fates. A target that can count a frame only once per counter has further counters
/// beside [`FATES`]; the fates are their sum.
pub fn all_fates(info: &P4Info) -> Vec<&Counter> {
    let beside = |name: &str| name.strip_prefix(FATES).is_some_and(|rest| rest.starts_with('_'));
    info.counters().filter(|counter| counter.name == FATES || beside(&counter.name)).collect()
}

/// Number of cells that the program has for clients.
pub fn counted(info: &P4Info) -> u16 {
    let size = info.counter(FATES).map_or(0, |counter| counter.size);
    u16::try_from(size / (2 * FATE_CELLS)).unwrap_or(MAX_CLIENTS).min(MAX_CLIENTS)
}

/// First cell of a client's cell and direction in [`FATES`].
pub fn fates(client: u16, direction: Direction) -> u64 {
    (u64::from(client) << 1 | bit(direction) as u64) * FATE_CELLS
}

/// First cell of a port in [`PORT_DROPS`].
pub fn port_drops(port: u16) -> u64 {
    u64::from(port) * DROP_CELLS
}

/// Cell of the copies to all ports where frames of a direction leave, in [`GIVEN`]. Below are those of
/// single ports.
pub fn flood(direction: Direction) -> u64 {
    512 + bit(direction) as u64
}

/// Cell of the copies of frames that go to hosts or to a box, in a direction, in [`MIRRORED`].
pub fn mirrored(point: Point, direction: Direction) -> u64 {
    (at(point) << 1 | bit(direction)) as u64
}

/// First cell of a client's cell and direction in [`TRANSIT`].
pub fn transit(client: u16, direction: Direction) -> u64 {
    (u64::from(client) << 1 | bit(direction) as u64) * BINS
}

/// First cell of a direction in [`LATENESS`].
pub fn lateness(direction: Direction) -> u64 {
    bit(direction) as u64 * BINS
}

/// Multicast group of the ports where frames of a direction leave.
pub fn group(direction: Direction) -> u32 {
    match direction {
        Direction::Forward => 1,
        Direction::Return => 2,
    }
}

/// Multicast group of the port for copies, where a frame can have a group beside its port.
pub const MIRROR_GROUP: u32 = 3;

/// Multicast group of the ports of a cell of [`GIVEN`] and of the port for copies, where a frame has either
/// a port or a group.
pub fn mirrored_group(given: u64) -> u32 {
    16 + given as u32
}

/// The digest for learning hosts.
///
/// # Errors
/// If the program has none.
pub fn digest(info: &P4Info) -> Result<&p4runtime::info::Digest, InfoError> {
    let first = info.digests().min_by_key(|digest| digest.id);
    let missing = || InfoError::Missing { kind: "digest", name: "of a host".into() };
    first.ok_or_else(missing)
}

/// Why the program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Info(#[from] InfoError),
    #[error(
        "the P4 program says that it is {found:?}, and this linkd needs \"{PROGRAM} {VERSION} \
         ({arch})\": compile p4src of this linkd's release for the target, and name the directory as \
         `program` of [switch] in the box file"
    )]
    Package { found: String, arch: &'static str },
}

/// Checks that the program is ours, for the target, of our version, and has all objects used here.
///
/// # Errors
/// The first difference.
pub fn check(info: &P4Info, target: Target) -> Result<(), CheckError> {
    let (package, arch) = (info.package(), target.arch());
    if (&*package.name, &*package.version, &*package.arch) != (PROGRAM, VERSION, arch) {
        return Err(CheckError::Package { found: package.to_string(), arch });
    }
    TABLES.iter().try_for_each(|name| info.table(name).map(drop))?;
    ACTIONS.iter().try_for_each(|name| info.action(name).map(drop))?;
    COUNTERS.iter().try_for_each(|name| info.counter(name).map(drop))?;
    digest(info)?;
    Ok(())
}
