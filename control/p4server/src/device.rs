// SPDX-License-Identifier: Apache-2.0
//! State of the switch for its controllers, and its changes.
//!
//! Invariant: entries and groups are those that the target has.

use p4::entity::Entity as Kind;
use p4::p4_data::Data;
use p4::packet_replication_engine_entry::Type as Replication;
use p4::replica::PortKind;
use p4::stream_message_response::Update as Response;
use p4::update::Type;
use p4runtime::entry::Key;
use p4runtime::proto::google::rpc;
use p4runtime::proto::p4::v1 as p4;
use p4runtime::{Change, Count, Entry, P4Info, Stalls, bits};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::mpsc;
use tonic::{Code, Status};

use crate::connection::Number;
use crate::target::Target;

/// Maximum number of queued messages to a controller.
pub const WAITING: usize = 64;

/// An invalid answer to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Entries of a table that the program does not have.
    UnknownTable,
    /// Entries without the bytes of their key.
    CutBytes,
    /// Negative counters.
    Negative,
    /// Fewer counters than requested.
    Missing,
    Endless,
}

type Sender = mpsc::Sender<Result<p4::StreamMessageResponse, Status>>;

#[derive(Debug)]
struct Controller {
    election: u128,
    /// Of its stream.
    connection: Number,
    sender: Sender,
}

/// How a server misbehaves.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Calls do not return.
    pub hangs: bool,
    /// Reads do not return.
    pub reads_hang: bool,
    /// Calls fail as if there was no server.
    pub is_down: bool,
    /// Changes of this table are refused.
    pub refuses: Option<String>,
    /// Entries of this table are returned with another first parameter.
    pub alters: Option<String>,
    /// Writes of the primary are refused.
    pub denies: bool,
    pub answers: Option<Wrong>,
    /// Entries are read without the controller's metadata, as from Stratum.
    pub drops_metadata: bool,
}

/// A switch as its controllers see it.
#[derive(Debug)]
pub struct Device<T> {
    number: u64,
    info: Option<P4Info>,
    cookie: Option<p4::forwarding_pipeline_config::Cookie>,
    pub(crate) entries: BTreeMap<Key, Entry>,
    pub(crate) groups: BTreeMap<u32, BTreeSet<u32>>,
    digests: Option<p4::DigestEntry>,
    lists: u64,
    pub(crate) acknowledged: u64,
    pub(crate) pushes: u64,
    /// By stream.
    controllers: BTreeMap<u64, Controller>,
    streams: u64,
    pub faults: Faults,
    pub target: T,
}

/// What was before a change.
enum Undo {
    Entry(Key, Option<Entry>),
    Group(u32, Option<BTreeSet<u32>>),
}

fn number(id: Option<p4::Uint128>) -> u128 {
    let id = id.unwrap_or_default();
    u128::from(id.high) << 64 | u128::from(id.low)
}

impl<T: Target> Device<T> {
    /// `number`: the P4Runtime device id.
    pub const fn new(number: u64, target: T) -> Self {
        Self {
            number,
            info: None,
            cookie: None,
            entries: BTreeMap::new(),
            groups: BTreeMap::new(),
            digests: None,
            lists: 0,
            acknowledged: 0,
            pushes: 0,
            controllers: BTreeMap::new(),
            streams: 0,
            faults: Faults {
                hangs: false,
                reads_hang: false,
                is_down: false,
                refuses: None,
                alters: None,
                denies: false,
                answers: None,
                drops_metadata: false,
            },
            target,
        }
    }

    /// Forgets the program and all controllers, as a new process does.
    pub(crate) fn restart(&mut self, target: T) {
        let Self { number, pushes, streams, .. } = *self;
        let Faults { is_down, hangs, drops_metadata, .. } = self.faults;
        let faults = Faults { is_down, hangs, drops_metadata, ..Faults::default() };
        *self = Self { pushes, streams, faults, ..Self::new(number, target) };
    }

    pub(crate) fn down(&mut self, down: bool) {
        self.faults.is_down = down;
        self.controllers.clear();
    }

    /// Fails unless the device id is this one.
    pub(crate) fn at(&mut self, number: u64) -> Result<&mut Self, Status> {
        if self.faults.is_down {
            return Err(Status::unavailable("down"));
        }
        if self.number == number { Ok(self) } else { Err(Status::not_found("no such device")) }
    }

    fn program(&self) -> Result<&P4Info, Status> {
        let none = || Status::failed_precondition("No forwarding pipeline config set");
        self.info.as_ref().ok_or_else(none)
    }

    fn primary(&self) -> Option<&Controller> {
        self.controllers.values().max_by_key(|controller| controller.election)
    }

    /// Only the primary may write, by the connection of its stream.
    fn permit(&self, connection: Number, election: Option<p4::Uint128>) -> Result<(), Status> {
        let primary = self.primary().filter(|one| one.election == number(election));
        match primary {
            Some(one) if one.connection == connection && !self.faults.denies => Ok(()),
            Some(_) if !self.faults.denies => Err(Status::permission_denied(
                "Not primary: writes are accepted by the connection of the primary's stream alone",
            )),
            _ => Err(Status::permission_denied("Not primary")),
        }
    }

    /// A controller takes part in the election. Returns the number of its stream.
    pub(crate) fn join(
        &mut self,
        connection: Number,
        update: &p4::MasterArbitrationUpdate,
        sender: Sender,
    ) -> Result<u64, Status> {
        let election = number(update.election_id);
        if self.controllers.values().any(|controller| controller.election == election) {
            return Err(Status::invalid_argument("Election id already exists"));
        }
        self.streams += 1;
        self.controllers.insert(self.streams, Controller { election, connection, sender });
        let first = self.primary().is_some_and(|one| one.election == election);
        self.notify(if first { None } else { Some(self.streams) });
        Ok(self.streams)
    }

    pub(crate) fn controllers(&self) -> usize {
        self.controllers.len()
    }

    pub(crate) fn leave(&mut self, stream: u64) {
        let before = self.primary().map(|one| one.election);
        self.controllers.remove(&stream);
        if self.primary().map(|one| one.election) != before {
            self.notify(None);
        }
    }

    fn notify(&self, only: Option<u64>) {
        let Some(primary) = self.primary().map(|one| one.election) else {
            return;
        };
        for (stream, one) in &self.controllers {
            if only.is_none_or(|only| only == *stream) {
                let (code, message) = if one.election == primary {
                    (Code::Ok, "Is primary")
                } else {
                    (Code::AlreadyExists, "Is backup")
                };
                let status =
                    rpc::Status { code: code.into(), message: message.into(), details: Vec::new() };
                let election_id = p4::Uint128 { high: (primary >> 64) as u64, low: primary as u64 };
                let update = p4::MasterArbitrationUpdate {
                    device_id: self.number,
                    election_id: Some(election_id),
                    status: Some(status),
                };
                one.say(Response::Arbitration(update));
            }
        }
    }

    /// Sends a digest to the primary. Returns false if there is none, or digests are not enabled.
    pub fn digest(&mut self, row: &[u128]) -> bool {
        self.lists += 1;
        let (Some(primary), Some(config)) = (self.primary(), &self.digests) else {
            return false;
        };
        let data = |data| p4::P4Data { data: Some(data) };
        let members = row.iter().map(|value| data(Data::Bitstring(bits::encode(*value))));
        let members = p4::P4StructLike { members: members.collect() };
        primary.say(Response::Digest(p4::DigestList {
            digest_id: config.digest_id,
            list_id: self.lists,
            data: vec![data(Data::Struct(members))],
        }));
        true
    }

    /// # Errors
    /// If the program is invalid, or the caller is not the primary.
    pub(crate) fn push(
        &mut self,
        connection: Number,
        request: p4::SetForwardingPipelineConfigRequest,
    ) -> Result<(), Status> {
        self.permit(connection, request.election_id)?;
        let config = request.config.unwrap_or_default();
        let info = P4Info::decode(&config.p4info);
        let info = info.map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.target.load(&config.p4_device_config, &info)?;
        (self.info, self.cookie) = (Some(info), config.cookie);
        self.entries.clear();
        self.groups.clear();
        self.digests = None;
        self.pushes += 1;
        Ok(())
    }

    /// # Errors
    /// If there is no program.
    pub(crate) fn config(&self) -> Result<p4::ForwardingPipelineConfig, Status> {
        self.program()?;
        Ok(p4::ForwardingPipelineConfig { cookie: self.cookie, ..Default::default() })
    }

    /// The result of each update, in order.
    ///
    /// # Errors
    /// If no update was tried.
    pub(crate) fn write(
        &mut self,
        connection: Number,
        request: p4::WriteRequest,
    ) -> Result<Vec<p4::Error>, Status> {
        self.permit(connection, request.election_id)?;
        let info = self.program()?.clone();
        let (mut changes, mut undo) = (Vec::new(), Vec::new());
        let updates = request.updates.into_iter();
        let mut results: Vec<_> = updates
            .map(|update| {
                let change = self.update(&info, update, &mut undo)?;
                changes.extend(change);
                Ok(())
            })
            .collect();
        if let Err(status) = self.target.apply(&changes) {
            while let Some(undo) = undo.pop() {
                self.undo(undo);
            }
            results.iter_mut().filter(|r| r.is_ok()).for_each(|r| *r = Err(status.clone()));
        }
        let error = |result: Result<(), Status>| {
            let (code, message) = match result {
                Ok(()) => (Code::Ok, String::new()),
                Err(status) => (status.code(), status.message().into()),
            };
            p4::Error { canonical_code: code.into(), message, ..Default::default() }
        };
        Ok(results.into_iter().map(error).collect())
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Entry(key, Some(entry)) => drop(self.entries.insert(key, entry)),
            Undo::Entry(key, None) => drop(self.entries.remove(&key)),
            Undo::Group(group, Some(ports)) => drop(self.groups.insert(group, ports)),
            Undo::Group(group, None) => drop(self.groups.remove(&group)),
        }
    }

    /// Checks an update and makes it here. Returns the target's part of it.
    fn update(
        &mut self,
        info: &P4Info,
        update: p4::Update,
        undo: &mut Vec<Undo>,
    ) -> Result<Option<Change>, Status> {
        let r#type = update.r#type();
        match update.entity.and_then(|entity| entity.entity) {
            Some(Kind::TableEntry(entry)) => self.entry(info, r#type, &entry, undo).map(Some),
            Some(Kind::CounterEntry(entry)) => {
                let counter = self.counter(entry.counter_id)?;
                let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
                let index = entry.index.ok_or_else(|| Status::unimplemented("wildcard write"))?;
                let index = unsigned(index.index);
                if index >= info.counter(&counter).map_err(|e| invalid(&e))?.size {
                    return Err(Status::out_of_range("no such cell"));
                }
                let data = entry.data.unwrap_or_default();
                let count = Count {
                    packets: unsigned(data.packet_count),
                    bytes: unsigned(data.byte_count),
                };
                Ok(Some(Change::Count { counter, index, count }))
            }
            Some(Kind::PacketReplicationEngineEntry(entry)) => {
                let Some(Replication::MulticastGroupEntry(group)) = entry.r#type else {
                    return Err(Status::unimplemented("no such replication"));
                };
                self.group(r#type, group, undo).map(Some)
            }
            Some(Kind::DigestEntry(entry)) => {
                match (r#type, self.digests.is_some()) {
                    (Type::Insert, true) => return Err(Status::already_exists("configured")),
                    (Type::Modify, false) => return Err(Status::not_found("not configured")),
                    _ => {}
                }
                self.digests = Some(entry);
                Ok(None)
            }
            Some(Kind::DirectCounterEntry(_)) => Err(Status::unimplemented("direct counters")),
            Some(Kind::ExternEntry(_)) => Err(Status::unimplemented("externs")),
            None => Err(Status::invalid_argument("no entity")),
        }
    }

    fn entry(
        &mut self,
        info: &P4Info,
        r#type: Type,
        entry: &p4::TableEntry,
        undo: &mut Vec<Undo>,
    ) -> Result<Change, Status> {
        let key = Key::decode(info, entry).map_err(|e| invalid(&e))?;
        if self.faults.refuses.as_ref() == Some(&key.table) {
            return Err(Status::resource_exhausted("Table is full"));
        }
        if r#type == Type::Delete {
            let gone = self.entries.remove(&key);
            let gone = gone.ok_or_else(|| Status::not_found("Cannot find match entry"))?;
            undo.push(Undo::Entry(key.clone(), Some(gone)));
            return Ok(Change::Delete(key));
        }
        let entry = Entry::decode(info, entry).map_err(|e| invalid(&e))?;
        let change = match (r#type, self.entries.contains_key(&key)) {
            (Type::Insert, false) => {
                let table = info.table(&key.table).map_err(|e| invalid(&e))?;
                let there = self.entries.keys().filter(|other| other.table == key.table).count();
                if there as u64 >= table.size {
                    return Err(Status::resource_exhausted("Table is full"));
                }
                Change::Insert(entry.clone())
            }
            (Type::Modify, true) => Change::Modify(entry.clone()),
            (Type::Insert, true) => return Err(Status::already_exists("Match entry exists")),
            _ => return Err(Status::not_found("Cannot find match entry")),
        };
        let before = self.entries.insert(key.clone(), entry);
        undo.push(Undo::Entry(key, before));
        Ok(change)
    }

    fn group(
        &mut self,
        r#type: Type,
        entry: p4::MulticastGroupEntry,
        undo: &mut Vec<Undo>,
    ) -> Result<Change, Status> {
        let group = entry.multicast_group_id;
        let exists = self.groups.contains_key(&group);
        match (r#type, exists) {
            (Type::Insert, true) => return Err(Status::already_exists("group exists")),
            (Type::Modify | Type::Delete, false) => {
                return Err(Status::not_found("no such group"));
            }
            _ => {}
        }
        if r#type == Type::Delete {
            undo.push(Undo::Group(group, self.groups.remove(&group)));
            return Ok(Change::DeleteGroup(group));
        }
        let port = |replica: p4::Replica| match replica.port_kind {
            Some(PortKind::EgressPort(port)) => port,
            _ => 0,
        };
        let ports: BTreeSet<u32> = entry.replicas.into_iter().map(port).collect();
        undo.push(Undo::Group(group, self.groups.insert(group, ports.clone())));
        Ok(Change::Group { exists, group, ports })
    }

    fn counter(&self, id: u32) -> Result<String, Status> {
        let found = self.program()?.counters().find(|counter| counter.id == id);
        let name = found.map(|counter| counter.name.clone());
        name.ok_or_else(|| Status::invalid_argument("no such counter"))
    }

    /// # Errors
    /// If the object does not exist.
    pub(crate) fn read(&mut self, request: &p4::ReadRequest) -> Result<Vec<p4::Entity>, Status> {
        let info = self.program()?.clone();
        let mut answer = Vec::new();
        let asked: Vec<_> = request.entities.iter().filter_map(|it| it.entity.as_ref()).collect();
        for run in asked.chunk_by(|one, next| is_next_cell(one, next)) {
            let Some(first) = run.first() else { continue };
            self.read_run(&info, first, run.len() as u64, &mut answer)?;
        }
        self.spoil(&mut answer);
        Ok(answer.into_iter().map(|kind| p4::Entity { entity: Some(kind) }).collect())
    }

    /// Reads `asked`, and as cells of a counter the following ones, `run` in all, at once.
    fn read_run(
        &mut self,
        info: &P4Info,
        asked: &Kind,
        run: u64,
        answer: &mut Vec<Kind>,
    ) -> Result<(), Status> {
        match asked {
            Kind::TableEntry(asked) => {
                let name = &info.table_of(asked.table_id).map_err(|e| invalid(&e))?.name;
                for entry in self.entries.values().filter(|entry| entry.key.table == *name) {
                    let mut entry = entry.encode(info).map_err(|e| invalid(&e))?;
                    if self.faults.drops_metadata {
                        entry.metadata.clear();
                    }
                    if self.faults.alters.as_ref() == Some(name) {
                        alter(&mut entry);
                    }
                    answer.push(Kind::TableEntry(entry));
                }
            }
            Kind::CounterEntry(asked) => {
                let name = self.counter(asked.counter_id)?;
                let size = info.counter(&name).map_err(|e| invalid(&e))?.size;
                let cells = match asked.index.as_ref().map(|first| u64::try_from(first.index)) {
                    Some(Ok(first)) if run <= size && first <= size - run => first..first + run,
                    Some(_) => return Err(Status::out_of_range("no such cell")),
                    None => 0..size,
                };
                for (index, count) in cells.clone().zip(self.target.counts(&name, cells)?) {
                    let data = data(count);
                    answer.push(Kind::CounterEntry(p4::CounterEntry {
                        counter_id: asked.counter_id,
                        index: Some(p4::Index { index: signed(index) }),
                        data: Some(data),
                    }));
                }
            }
            Kind::DirectCounterEntry(asked) => {
                let asked = asked.table_entry.clone().unwrap_or_default();
                let name = info.table_of(asked.table_id).map_err(|e| invalid(&e))?.name.clone();
                let keys = self.entries.keys().filter(|key| key.table == name);
                for key in keys {
                    let count = self.target.direct_count(key)?;
                    let entry = key.encode(info).map_err(|e| invalid(&e))?;
                    answer.push(Kind::DirectCounterEntry(p4::DirectCounterEntry {
                        table_entry: Some(entry),
                        data: Some(data(count)),
                    }));
                }
            }
            Kind::PacketReplicationEngineEntry(_) => {
                for (group, ports) in &self.groups {
                    let replica = |port: &u32| p4::Replica {
                        port_kind: Some(PortKind::EgressPort(*port)),
                        instance: 0,
                    };
                    let group = p4::MulticastGroupEntry {
                        multicast_group_id: *group,
                        replicas: ports.iter().map(replica).collect(),
                    };
                    let r#type = Some(Replication::MulticastGroupEntry(group));
                    let entry = p4::PacketReplicationEngineEntry { r#type };
                    answer.push(Kind::PacketReplicationEngineEntry(entry));
                }
            }
            Kind::ExternEntry(asked) if Stalls::is_asked_by(asked) => {
                answer.push(Kind::ExternEntry(self.target.stalls()?.encode()));
            }
            Kind::ExternEntry(_) => return Err(Status::unimplemented("no such extern")),
            Kind::DigestEntry(_) => {
                let config = self.digests.ok_or_else(|| Status::not_found("not configured"))?;
                answer.push(Kind::DigestEntry(config));
            }
        }
        Ok(())
    }

    /// Replaces the answer by an invalid one.
    fn spoil(&self, answer: &mut Vec<Kind>) {
        if self.faults.answers == Some(Wrong::Missing) {
            answer.pop();
        }
        for kind in answer {
            match (self.faults.answers, kind) {
                (Some(Wrong::UnknownTable), Kind::TableEntry(entry)) => entry.table_id = 1,
                (Some(Wrong::CutBytes), Kind::TableEntry(entry)) => entry.r#match.clear(),
                (Some(Wrong::Negative), Kind::CounterEntry(entry)) => {
                    entry.data = Some(p4::CounterData { byte_count: -1, packet_count: -1 });
                }
                _ => {}
            }
        }
    }
}

/// Changes the first parameter of an entry's action.
fn alter(entry: &mut p4::TableEntry) {
    let action = entry.action.as_mut().and_then(|action| action.r#type.as_mut());
    let Some(p4::table_action::Type::Action(action)) = action else { return };
    if let Some(first) = action.params.first_mut() {
        first.value = vec![0x55];
    }
}

/// Whether `next` is the cell of a counter after the cell `one`.
fn is_next_cell(one: &Kind, next: &Kind) -> bool {
    let (Kind::CounterEntry(one), Kind::CounterEntry(next)) = (one, next) else { return false };
    let (Some(cell), Some(following)) = (&one.index, &next.index) else { return false };
    one.counter_id == next.counter_id && cell.index.checked_add(1) == Some(following.index)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn data(count: Count) -> p4::CounterData {
    p4::CounterData { byte_count: signed(count.bytes), packet_count: signed(count.packets) }
}

fn invalid(what: &dyn std::fmt::Display) -> Status {
    Status::invalid_argument(what.to_string())
}

impl Controller {
    /// Sends a message if the controller listens.
    fn say(&self, update: Response) {
        let message = p4::StreamMessageResponse { update: Some(update) };
        if self.sender.try_send(Ok(message)).is_err() {
            tracing::warn!("a controller does not listen");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// A target that may refuse changes.
    #[derive(Debug, Default)]
    struct Stubborn {
        refuses: bool,
        applied: usize,
        /// Cells that were read, by the request for them.
        read: Vec<Range<u64>>,
    }

    impl Target for Stubborn {
        fn load(&mut self, _: &[u8], _: &P4Info) -> Result<(), Status> {
            Ok(())
        }

        fn apply(&mut self, changes: &[Change]) -> Result<(), Status> {
            if self.refuses {
                return Err(Status::resource_exhausted("full"));
            }
            self.applied += changes.len();
            Ok(())
        }

        fn counts(&mut self, _: &str, cells: Range<u64>) -> Result<Vec<Count>, Status> {
            self.read.push(cells.clone());
            Ok(cells.map(|cell| Count { packets: cell, bytes: 0 }).collect())
        }
    }

    const CONNECTION: Number = Number(7);
    const PRIMARY: Option<p4::Uint128> = Some(p4::Uint128 { high: 0, low: 1 });

    fn write(device: &mut Device<Stubborn>, updates: Vec<(Type, Kind)>) -> Vec<i32> {
        let update = |(r#type, entity): (Type, Kind)| p4::Update {
            r#type: r#type.into(),
            entity: Some(p4::Entity { entity: Some(entity) }),
        };
        let updates = updates.into_iter().map(update).collect();
        let request = p4::WriteRequest { election_id: PRIMARY, updates, ..Default::default() };
        device
            .write(CONNECTION, request)
            .unwrap()
            .into_iter()
            .map(|error| error.canonical_code)
            .collect()
    }

    fn group(ports: Range<u32>) -> Kind {
        let replica =
            |port| p4::Replica { port_kind: Some(PortKind::EgressPort(port)), instance: 0 };
        let replicas = ports.map(replica).collect();
        let group = p4::MulticastGroupEntry { multicast_group_id: 1, replicas };
        let r#type = Some(Replication::MulticastGroupEntry(group));
        Kind::PacketReplicationEngineEntry(p4::PacketReplicationEngineEntry { r#type })
    }

    /// A device with a program and a primary.
    fn ready() -> Device<Stubborn> {
        let mut device = Device::new(1, Stubborn::default());
        let (sender, _answers) = mpsc::channel(WAITING);
        let join = p4::MasterArbitrationUpdate { election_id: PRIMARY, ..Default::default() };
        device.join(CONNECTION, &join, sender).unwrap();
        let config = p4::ForwardingPipelineConfig {
            p4info: p4src::BMV2_P4INFO.to_vec(),
            ..Default::default()
        };
        let request = p4::SetForwardingPipelineConfigRequest {
            election_id: PRIMARY,
            config: Some(config),
            ..Default::default()
        };
        device.push(CONNECTION, request).unwrap();
        device
    }

    #[test]
    fn cells_are_read_in_runs_and_answered_in_the_order_asked() {
        let mut device = ready();
        let info = P4Info::decode(p4src::BMV2_P4INFO).unwrap();
        let [transit, lateness] =
            ["linkemu.transit", "linkemu.lateness"].map(|name| info.counter(name).unwrap().clone());
        let cell = |counter_id: u32, index: u64| p4::CounterEntry {
            counter_id,
            index: Some(p4::Index { index: signed(index) }),
            data: None,
        };
        let read = |device: &mut Device<Stubborn>, asked: &[p4::CounterEntry]| {
            device.target.read.clear();
            let entity = |it: &p4::CounterEntry| Kind::CounterEntry(*it);
            let entities = asked.iter().map(|it| p4::Entity { entity: Some(entity(it)) });
            let request = p4::ReadRequest { entities: entities.collect(), ..Default::default() };
            device.read(&request)
        };
        let asked = [(&transit, 3), (&transit, 4), (&lateness, 5), (&lateness, 5), (&lateness, 4)];
        let asked = asked.map(|(counter, index)| cell(counter.id, index));
        let answered = read(&mut device, &asked).unwrap().into_iter().map(|it| it.entity.unwrap());
        let expected = asked.iter().map(|asked| {
            let packet_count = asked.index.as_ref().unwrap().index;
            let data = Some(p4::CounterData { packet_count, byte_count: 0 });
            Kind::CounterEntry(p4::CounterEntry { data, ..*asked })
        });
        assert_eq!(answered.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        assert_eq!(device.target.read, [3..5, 5..6, 5..6, 4..5]);
        // A run that leaves the counter is refused as a whole, as its last cell alone is.
        let beyond = [transit.size - 1, transit.size].map(|index| cell(transit.id, index));
        assert_eq!(read(&mut device, &beyond).unwrap_err().code(), Code::OutOfRange);
        let largest = [i64::MAX, i64::MIN].map(|index| p4::CounterEntry {
            index: Some(p4::Index { index }),
            ..cell(transit.id, 0)
        });
        assert_eq!(read(&mut device, &largest).unwrap_err().code(), Code::OutOfRange);
        assert!(device.target.read.is_empty());
    }

    #[test]
    fn batch_that_the_target_refuses_changes_nothing() {
        let mut device = ready();
        let info = P4Info::decode(p4src::BMV2_P4INFO).unwrap();
        let known = |port: u32, mac: u32| {
            let entry = Entry::new("linkemu.sources").exact("port", port).exact("mac", mac);
            Kind::TableEntry(entry.does("linkemu.known").encode(&info).unwrap())
        };
        let first = vec![(Type::Insert, known(1, 1)), (Type::Insert, group(1..3))];
        assert_eq!(write(&mut device, first), [0, 0]);
        // One invalid update does not affect the others.
        let twice = vec![(Type::Insert, known(1, 1)), (Type::Insert, known(1, 2))];
        assert_eq!(write(&mut device, twice), [Code::AlreadyExists as i32, 0]);
        assert_eq!(device.target.applied, 3);
        let (entries, groups) = (device.entries.clone(), device.groups.clone());
        device.target.refuses = true;
        let refused = vec![
            (Type::Insert, known(2, 2)),
            (Type::Delete, known(1, 1)),
            (Type::Insert, known(1, 1)),
            (Type::Modify, group(1..9)),
            (Type::Delete, known(9, 9)),
            (Type::Delete, known(1, 2)),
        ];
        let (full, missing) = (Code::ResourceExhausted as i32, Code::NotFound as i32);
        assert_eq!(write(&mut device, refused), [full, full, full, full, missing, full]);
        assert_eq!((&device.entries, &device.groups), (&entries, &groups));
    }

    #[test]
    fn only_the_connection_of_the_primary_writes() {
        let mut device = ready();
        let request = |low| {
            let election_id = Some(p4::Uint128 { high: 0, low });
            p4::WriteRequest { election_id, ..Default::default() }
        };
        assert_eq!(device.write(CONNECTION, request(1)).unwrap(), []);
        let other = Number(8);
        // Another id; the primary's by another connection; and that without a stream.
        for (connection, election) in [(CONNECTION, 2), (other, 1), (other, 2)] {
            let refused = device.write(connection, request(election)).unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{connection:?} {election}");
        }
        let push =
            p4::SetForwardingPipelineConfigRequest { election_id: PRIMARY, ..Default::default() };
        assert_eq!(device.push(other, push).unwrap_err().code(), Code::PermissionDenied);
        device.leave(1);
        assert!(device.write(CONNECTION, request(1)).is_err(), "the stream has ended");
    }
}
