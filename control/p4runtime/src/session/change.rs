// SPDX-License-Identifier: Apache-2.0
//! Changes to a switch, and the objects other than entries that can be read back.

use super::Error;
use crate::bits;
use crate::entry::{Entry, EntryError, Key};
use crate::info::{Counter, P4Info};
use crate::proto::p4::v1 as p4;
use p4::entity::Entity as Kind;
use p4::packet_replication_engine_entry::Type as Replication;
use p4::replica::PortKind;
use p4::update::Type;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds an entry; it must not exist.
    Insert(Entry),
    /// Changes the action of an existing entry.
    Modify(Entry),
    /// Deletes an existing entry.
    Delete(Key),
    /// Sets a counter cell.
    Count {
        counter: String,
        index: u64,
        count: Count,
    },
    Group {
        exists: bool,
        /// Positive.
        group: u32,
        /// Ports that each get one copy of a frame.
        ports: BTreeSet<u32>,
    },
    DeleteGroup(u32),
    /// Enables or reconfigures a digest.
    Digest {
        /// True if it is enabled already.
        exists: bool,
        digest: String,
        config: DigestConfig,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Insert(entry) => write!(f, "insert {entry}"),
            Self::Modify(entry) => write!(f, "modify {entry}"),
            Self::Delete(key) => write!(f, "delete {key}"),
            Self::Count { counter, index, .. } => write!(f, "set {counter}[{index}]"),
            Self::Group { group, ports, .. } => write!(f, "multicast group {group} to {ports:?}"),
            Self::DeleteGroup(group) => write!(f, "delete multicast group {group}"),
            Self::Digest { digest, .. } => write!(f, "digest {digest}"),
        }
    }
}

/// Batching of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestConfig {
    /// Maximum time that the first message waits for others.
    pub wait: Duration,
    /// Maximum number of messages per list.
    pub list: u32,
    /// Time before an unacknowledged message is sent again.
    pub repeat: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub packets: u64,
    /// Bytes, as counted by the architecture.
    pub bytes: u64,
}

impl Count {
    /// Saturating sum.
    #[must_use]
    pub fn plus(self, o: Self) -> Self {
        let bytes = self.bytes.saturating_add(o.bytes);
        Self { packets: self.packets.saturating_add(o.packets), bytes }
    }
}

impl Change {
    pub(super) fn encode(&self, info: &P4Info) -> Result<p4::Update, EntryError> {
        let known = |exists: bool| if exists { Type::Modify } else { Type::Insert };
        let (r#type, entity) = match self {
            Self::Insert(entry) => (Type::Insert, Kind::TableEntry(entry.encode(info)?)),
            Self::Modify(entry) => (Type::Modify, Kind::TableEntry(entry.encode(info)?)),
            Self::Delete(key) => (Type::Delete, Kind::TableEntry(key.encode(info)?)),
            Self::Count { counter, index, count } => {
                let counter = info.counter(counter)?;
                (
                    Type::Modify,
                    Kind::CounterEntry(p4::CounterEntry {
                        counter_id: counter.id,
                        index: Some(p4::Index { index: signed(*index) }),
                        data: Some(p4::CounterData {
                            byte_count: signed(count.bytes),
                            packet_count: signed(count.packets),
                        }),
                    }),
                )
            }
            Self::Group { exists, group, ports } => (known(*exists), replication(*group, ports)),
            Self::DeleteGroup(group) => (Type::Delete, replication(*group, &BTreeSet::new())),
            Self::Digest { exists, digest, config } => {
                let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
                let config = p4::digest_entry::Config {
                    max_timeout_ns: nanos(config.wait),
                    max_list_size: i32::try_from(config.list).unwrap_or(i32::MAX),
                    ack_timeout_ns: nanos(config.repeat),
                };
                let digest_id = info.digest(digest)?.id;
                let entry = p4::DigestEntry { digest_id, config: Some(config) };
                (known(*exists), Kind::DigestEntry(entry))
            }
        };
        let entity = Some(p4::Entity { entity: Some(entity) });
        Ok(p4::Update { r#type: r#type.into(), entity })
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn replication(group: u32, ports: &BTreeSet<u32>) -> Kind {
    let replica =
        |port: &u32| p4::Replica { port_kind: Some(PortKind::EgressPort(*port)), instance: 0 };
    let group = p4::MulticastGroupEntry {
        multicast_group_id: group,
        replicas: ports.iter().map(replica).collect(),
    };
    let r#type = Some(Replication::MulticastGroupEntry(group));
    Kind::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry { r#type })
}

pub(super) fn group(entity: Kind) -> Result<(u32, BTreeSet<u32>), Error> {
    let Kind::PacketReplicationEngineEntry(entry) = entity else {
        return Err(Error::strange("something else than multicast groups"));
    };
    let Some(Replication::MulticastGroupEntry(group)) = entry.r#type else {
        return Err(Error::strange("something else than a multicast group"));
    };
    let port = |replica: p4::Replica| match replica.port_kind {
        Some(PortKind::EgressPort(port)) => Ok(port),
        Some(PortKind::Port(port)) => bits::decode(&port, 32)
            .and_then(|port| u32::try_from(port).ok())
            .ok_or_else(|| Error::strange("a multicast port that is no number")),
        None => Err(Error::strange("a multicast group with no port")),
    };
    let ports = group.replicas.into_iter().map(port).collect::<Result<_, _>>()?;
    Ok((group.multicast_group_id, ports))
}

pub(super) fn digest(id: u32, entity: &Kind) -> Option<DigestConfig> {
    let Kind::DigestEntry(p4::DigestEntry { digest_id, config: Some(config) }) = entity else {
        return None;
    };
    let nanos = |time: i64| Duration::from_nanos(u64::try_from(time).unwrap_or(0));
    let config = DigestConfig {
        wait: nanos(config.max_timeout_ns),
        list: u32::try_from(config.max_list_size).unwrap_or(0),
        repeat: nanos(config.ack_timeout_ns),
    };
    (*digest_id == id).then_some(config)
}

pub(super) fn count(counter: &Counter, entity: &Kind) -> Result<(u64, Count), Error> {
    let strange = || Error::strange(&format!("something else than a count of {}", counter.name));
    let Kind::CounterEntry(entry) = entity else {
        return Err(strange());
    };
    let index = entry.index.ok_or_else(strange)?.index;
    let index = u64::try_from(index).map_err(|_| strange())?;
    if entry.counter_id != counter.id {
        return Err(strange());
    }
    // A count of zero may be absent.
    Ok((index, data(&counter.name, entry.data.unwrap_or_default())?))
}

/// A count without its place.
pub(super) fn data(counter: &str, data: p4::CounterData) -> Result<Count, Error> {
    let number = |value: i64| {
        let what = format!("something else than a count of {counter}");
        u64::try_from(value).map_err(|_| Error::strange(&what))
    };
    Ok(Count { packets: number(data.packet_count)?, bytes: number(data.byte_count)? })
}
