// SPDX-License-Identifier: Apache-2.0
//! State of the simulated switch, and its changes.

use p4::entity::Entity as Kind;
use p4::p4_data::Data;
use p4::packet_replication_engine_entry::Type as Replication;
use p4::replica::PortKind;
use p4::stream_message_response::Update as Response;
use p4::update::Type;
use p4runtime::entry::Key;
use p4runtime::proto::google::rpc;
use p4runtime::proto::p4::v1 as p4;
use p4runtime::{Count, Entry, P4Info, bits};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tokio::sync::mpsc;
use tonic::{Code, Status};

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
    sender: Sender,
}

#[derive(Debug, Default)]
pub struct Device {
    number: u64,
    info: Option<P4Info>,
    cookie: Option<p4::forwarding_pipeline_config::Cookie>,
    pub entries: BTreeMap<Key, Entry>,
    pub counters: HashMap<(String, u64), Count>,
    pub groups: BTreeMap<u32, BTreeSet<u32>>,
    digests: Option<p4::DigestEntry>,
    lists: u64,
    pub acknowledged: u64,
    pub pushes: u64,
    controllers: BTreeMap<u64, Controller>,
    connections: u64,
    pub log: Vec<String>,
    pub hang: bool,
    is_down: bool,
    pub refuse: Option<String>,
    pub deny: bool,
    pub wrong: Option<Wrong>,
}

fn number(id: Option<p4::Uint128>) -> u128 {
    let id = id.unwrap_or_default();
    u128::from(id.high) << 64 | u128::from(id.low)
}

impl Device {
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    pub fn restart(&mut self) {
        let Self { number, is_down, hang, pushes, connections, .. } = *self;
        *self = Self { number, is_down, hang, pushes, connections, ..Self::default() };
    }

    pub fn down(&mut self, down: bool) {
        self.is_down = down;
        self.controllers.clear();
    }

    /// Fails unless the device id is this one.
    pub fn at(&mut self, number: u64) -> Result<&mut Self, Status> {
        if self.is_down {
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

    fn permit(&self, election: Option<p4::Uint128>) -> Result<(), Status> {
        let primary = self.primary().is_some_and(|one| one.election == number(election));
        let primary = primary && !self.deny;
        if primary { Ok(()) } else { Err(Status::permission_denied("Not primary")) }
    }

    /// A controller takes part in the election. Returns its connection id.
    pub fn join(
        &mut self,
        update: &p4::MasterArbitrationUpdate,
        sender: Sender,
    ) -> Result<u64, Status> {
        let election = number(update.election_id);
        if self.controllers.values().any(|controller| controller.election == election) {
            return Err(Status::invalid_argument("Election id already exists"));
        }
        self.connections += 1;
        self.controllers.insert(self.connections, Controller { election, sender });
        let first = self.primary().is_some_and(|one| one.election == election);
        self.notify(if first { None } else { Some(self.connections) });
        Ok(self.connections)
    }

    pub fn controllers(&self) -> usize {
        self.controllers.len()
    }

    pub fn leave(&mut self, connection: u64) {
        let before = self.primary().map(|one| one.election);
        self.controllers.remove(&connection);
        if self.primary().map(|one| one.election) != before {
            self.notify(None);
        }
    }

    fn notify(&self, only: Option<u64>) {
        let Some(primary) = self.primary().map(|one| one.election) else {
            return;
        };
        for (connection, one) in &self.controllers {
            if only.is_none_or(|only| only == *connection) {
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

    pub fn count(&mut self, counter: &str, index: u64, count: Count) {
        let cell = self.counters.entry((counter.into(), index)).or_default();
        cell.packets += count.packets;
        cell.bytes += count.bytes;
    }

    /// # Errors
    /// If the program is invalid, or the caller is not the primary.
    pub fn push(&mut self, request: p4::SetForwardingPipelineConfigRequest) -> Result<(), Status> {
        self.permit(request.election_id)?;
        let config = request.config.unwrap_or_default();
        let info = P4Info::decode(&config.p4info);
        let info = info.map_err(|error| Status::invalid_argument(error.to_string()))?;
        (self.info, self.cookie) = (Some(info), config.cookie);
        self.entries.clear();
        self.counters.clear();
        self.groups.clear();
        self.digests = None;
        self.pushes += 1;
        self.log.push("push".into());
        Ok(())
    }

    /// # Errors
    /// If there is no program.
    pub fn config(&self) -> Result<p4::ForwardingPipelineConfig, Status> {
        self.program()?;
        Ok(p4::ForwardingPipelineConfig { cookie: self.cookie, ..Default::default() })
    }

    /// The result of each update, in order.
    ///
    /// # Errors
    /// If no update was tried.
    pub fn write(&mut self, request: p4::WriteRequest) -> Result<Vec<p4::Error>, Status> {
        self.permit(request.election_id)?;
        let info = self.program()?.clone();
        let done = request.updates.into_iter().map(|update| {
            let (code, message) = match self.update(&info, update) {
                Ok(()) => (Code::Ok, String::new()),
                Err(status) => (status.code(), status.message().into()),
            };
            p4::Error { canonical_code: code.into(), message, ..Default::default() }
        });
        Ok(done.collect())
    }

    fn update(&mut self, info: &P4Info, update: p4::Update) -> Result<(), Status> {
        let invalid = |what: &dyn std::fmt::Display| Status::invalid_argument(what.to_string());
        let r#type = update.r#type();
        match update.entity.and_then(|entity| entity.entity) {
            Some(Kind::TableEntry(entry)) => {
                let key = Key::decode(info, &entry).map_err(|e| invalid(&e))?;
                if self.refuse.as_ref() == Some(&key.table) {
                    return Err(Status::resource_exhausted("Table is full"));
                }
                if r#type == Type::Delete {
                    self.log.push(format!("delete {key}"));
                    let gone = self.entries.remove(&key).map(drop);
                    return gone.ok_or_else(|| Status::not_found("Cannot find match entry"));
                }
                let entry = Entry::decode(info, &entry).map_err(|e| invalid(&e))?;
                let exists = self.entries.contains_key(&key);
                let word = match (r#type, exists) {
                    (Type::Insert, false) => "insert",
                    (Type::Modify, true) => "modify",
                    (Type::Insert, true) => {
                        return Err(Status::already_exists("Match entry exists"));
                    }
                    _ => return Err(Status::not_found("Cannot find match entry")),
                };
                let table = info.table(&key.table).map_err(|e| invalid(&e))?;
                let there = self.entries.keys().filter(|other| other.table == key.table).count();
                if !exists && there as u64 >= table.size {
                    return Err(Status::resource_exhausted("Table is full"));
                }
                self.log.push(format!("{word} {entry}"));
                self.entries.insert(key, entry);
                Ok(())
            }
            Some(Kind::CounterEntry(entry)) => {
                let name = self.counter(entry.counter_id)?;
                let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
                let index = entry.index.ok_or_else(|| Status::unimplemented("wildcard write"))?;
                let data = entry.data.unwrap_or_default();
                let count = Count {
                    packets: unsigned(data.packet_count),
                    bytes: unsigned(data.byte_count),
                };
                self.log.push(format!("set {name}[{}]", index.index));
                self.counters.insert((name, unsigned(index.index)), count);
                Ok(())
            }
            Some(Kind::PacketReplicationEngineEntry(entry)) => {
                let Some(Replication::MulticastGroupEntry(group)) = entry.r#type else {
                    return Err(Status::unimplemented("no such replication"));
                };
                let id = group.multicast_group_id;
                match (r#type, self.groups.contains_key(&id)) {
                    (Type::Insert, true) => return Err(Status::already_exists("group exists")),
                    (Type::Modify | Type::Delete, false) => {
                        return Err(Status::not_found("no such group"));
                    }
                    _ => {}
                }
                let port = |replica: p4::Replica| match replica.port_kind {
                    Some(PortKind::EgressPort(port)) => port,
                    _ => 0,
                };
                self.log.push(format!("group {id}"));
                if r#type == Type::Delete {
                    self.groups.remove(&id);
                } else {
                    self.groups.insert(id, group.replicas.into_iter().map(port).collect());
                }
                Ok(())
            }
            Some(Kind::DigestEntry(entry)) => {
                match (r#type, self.digests.is_some()) {
                    (Type::Insert, true) => return Err(Status::already_exists("configured")),
                    (Type::Modify, false) => return Err(Status::not_found("not configured")),
                    _ => {}
                }
                self.digests = Some(entry);
                Ok(())
            }
            None => Err(Status::invalid_argument("no entity")),
        }
    }

    fn counter(&self, id: u32) -> Result<String, Status> {
        let found = self.program()?.counters().find(|counter| counter.id == id);
        let name = found.map(|counter| counter.name.clone());
        name.ok_or_else(|| Status::invalid_argument("no such counter"))
    }

    /// # Errors
    /// If the object does not exist.
    pub fn read(&self, request: &p4::ReadRequest) -> Result<Vec<p4::Entity>, Status> {
        let info = self.program()?;
        let mut answer = Vec::new();
        for entity in request.entities.iter().filter_map(|entity| entity.entity.as_ref()) {
            self.read_one(info, entity, &mut answer)?;
        }
        self.spoil(&mut answer);
        Ok(answer.into_iter().map(|kind| p4::Entity { entity: Some(kind) }).collect())
    }

    fn read_one(&self, info: &P4Info, asked: &Kind, answer: &mut Vec<Kind>) -> Result<(), Status> {
        let invalid = |what: &dyn std::fmt::Display| Status::invalid_argument(what.to_string());
        match asked {
            Kind::TableEntry(asked) => {
                let name = &info.table_of(asked.table_id).map_err(|e| invalid(&e))?.name;
                for entry in self.entries.values().filter(|entry| entry.key.table == *name) {
                    answer.push(Kind::TableEntry(entry.encode(info).map_err(|e| invalid(&e))?));
                }
            }
            Kind::CounterEntry(asked) => {
                let name = self.counter(asked.counter_id)?;
                let size = info.counter(&name).map_err(|e| invalid(&e))?.size as i64;
                let cells = match asked.index {
                    Some(p4::Index { index }) if (0..size).contains(&index) => index..index + 1,
                    Some(_) => return Err(Status::out_of_range("no such cell")),
                    None => 0..size,
                };
                for index in cells {
                    let cell = (name.clone(), u64::try_from(index).unwrap_or(0));
                    let count = self.counters.get(&cell).copied().unwrap_or_default();
                    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
                    let data = p4::CounterData {
                        byte_count: signed(count.bytes),
                        packet_count: signed(count.packets),
                    };
                    answer.push(Kind::CounterEntry(p4::CounterEntry {
                        counter_id: asked.counter_id,
                        index: Some(p4::Index { index }),
                        data: Some(data),
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
            Kind::DigestEntry(_) => {
                let config = self.digests.ok_or_else(|| Status::not_found("not configured"))?;
                answer.push(Kind::DigestEntry(config));
            }
        }
        Ok(())
    }

    /// Replaces the answer by an invalid one.
    fn spoil(&self, answer: &mut Vec<Kind>) {
        if self.wrong == Some(Wrong::Missing) {
            answer.pop();
        }
        for kind in answer {
            match (self.wrong, kind) {
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

impl Controller {
    /// Sends a message if the controller listens.
    fn say(&self, update: Response) {
        let message = p4::StreamMessageResponse { update: Some(update) };
        if self.sender.try_send(Ok(message)).is_err() {
            tracing::warn!("a controller does not listen");
        }
    }
}
