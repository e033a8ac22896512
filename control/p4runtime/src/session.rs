// SPDX-License-Identifier: Apache-2.0
//! A controller's session with one switch: the election of a primary, its program, writes,
//! reads, counters, multicast groups and digests.
//!
//! Every call has a deadline. Writes and reads of any length are cut into messages of a
//! bounded size. P4Runtime gives a write no order within a message: what must come first goes
//! into an earlier call of [`Session::write`].

mod change;
mod error;
mod stream;

pub use change::{Change, Count, DigestConfig};
pub use error::{Error, Failure};
pub use stream::{Stream, StreamEvent};

use crate::entry::Entry;
use crate::info::P4Info;
use crate::proto::p4::v1::{self as p4, p4_runtime_client::P4RuntimeClient};
use p4::entity::Entity as Kind;
use p4::get_forwarding_pipeline_config_request::ResponseType;
use p4::packet_replication_engine_entry::Type as Replication;
use p4::set_forwarding_pipeline_config_request::Action as Push;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// How long a switch may take to accept a connection and to say who the primary is.
const CONNECT: Duration = Duration::from_secs(3);
/// How long it may take for an answer, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to load a program.
const PUSH: Duration = Duration::from_secs(60);
/// Updates in a message, and cells asked for in one. gRPC tells the fate of each update in the
/// trailing headers of the answer: some 100 bytes, of the [`HEADERS`] that we take.
const UPDATES: usize = 500;
const CELLS: usize = 4096;
/// Bytes of headers.
const HEADERS: u32 = 256 << 10;
/// Bytes of a message: a switch may answer a read in one, and a counter is some 30 of them.
const MESSAGE: usize = 16 << 20;
/// Entities that a read may come to, whatever was asked.
const ENTITIES: usize = 1 << 20;

/// A switch, and who we are to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Of its P4Runtime service, such as `http://127.0.0.1:9559`.
    pub address: String,
    /// As P4Runtime counts devices.
    pub device: u64,
    /// The highest of all controllers' is the primary's.
    pub election: u64,
}

/// A session. Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Session {
    client: P4RuntimeClient<Channel>,
    target: Target,
    info: Arc<P4Info>,
    patience: Duration,
}

impl Session {
    /// Connects, and takes part in the election: the stream's first news say who the primary
    /// is. The session lasts as long as the stream is held.
    ///
    /// # Errors
    /// Nothing answers, or it does not want us: another controller has the same election
    /// number.
    pub async fn connect(target: &Target, info: Arc<P4Info>) -> Result<(Self, Stream), Error> {
        let address = &target.address;
        let wrong = |e: tonic::transport::Error| Error::unreachable(address, &e);
        let endpoint = Endpoint::from_shared(address.clone()).map_err(wrong)?;
        let endpoint = endpoint.connect_timeout(CONNECT).http2_max_header_list_size(HEADERS);
        let channel = within("a connection", CONNECT, async {
            endpoint.connect().await.map_err(|e| Error::unreachable(address, &e))
        });
        let client = P4RuntimeClient::new(channel.await?).max_decoding_message_size(MESSAGE);
        let session = Self { client, target: target.clone(), info, patience: PATIENCE };
        let stream = Stream::open(session.client.clone(), target, CONNECT).await?;
        Ok((session, stream))
    }

    /// The same session, waiting so long for each answer. A program may take longer.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The program that names are looked up in.
    #[must_use]
    pub fn info(&self) -> &Arc<P4Info> {
        &self.info
    }

    /// The cookie of the switch's program; none if it has no program, or one without a cookie.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn cookie(&self) -> Result<Option<u64>, Error> {
        let request = p4::GetForwardingPipelineConfigRequest {
            device_id: self.target.device,
            response_type: ResponseType::CookieOnly.into(),
        };
        let mut client = self.client.clone();
        let asked = async move { Ok(client.get_forwarding_pipeline_config(request).await?) };
        match within("the program's cookie", self.patience, asked).await {
            Ok(answer) => {
                let config = answer.into_inner().config;
                Ok(config.and_then(|config| config.cookie).map(|cookie| cookie.cookie))
            }
            Err(Error::NoProgram { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives the switch a program: `device` is what its compiler wrote for it, `p4info` the
    /// P4Info in binary form. All state of the switch is cleared.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn push(&self, device: &[u8], p4info: &[u8], cookie: u64) -> Result<(), Error> {
        let cookie = Some(p4::forwarding_pipeline_config::Cookie { cookie });
        let config = Some(p4::ForwardingPipelineConfig {
            p4info: p4info.to_vec(),
            p4_device_config: device.to_vec(),
            cookie,
        });
        let request = p4::SetForwardingPipelineConfigRequest {
            device_id: self.target.device,
            election_id: Some(election(self.target.election)),
            action: Push::VerifyAndCommit.into(),
            config,
        };
        let mut client = self.client.clone();
        let pushed = async move { Ok(client.set_forwarding_pipeline_config(request).await?) };
        within("a new program", PUSH, pushed).await.map(drop)
    }

    /// Makes changes, in any order. All are tried, whatever becomes of the others.
    ///
    /// # Errors
    /// [`Error::Rejected`] has those that the switch did not make, with its words; after any
    /// other error it is unknown which were made.
    pub async fn write(&self, changes: &[Change]) -> Result<(), Error> {
        let mut failures = Vec::new();
        for part in changes.chunks(UPDATES) {
            let updates = part.iter().map(|change| change.encode(&self.info));
            let request = p4::WriteRequest {
                device_id: self.target.device,
                election_id: Some(election(self.target.election)),
                updates: updates.collect::<Result<_, _>>()?,
            };
            let mut client = self.client.clone();
            let written = async move { Ok(client.write(request).await) };
            if let Err(status) = within("a write", self.patience, written).await? {
                failures.extend(error::failures(part, &status)?);
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(Error::Rejected(failures)) }
    }

    /// All entries of a table, but for its default.
    ///
    /// # Errors
    /// [`Error`]; also if one of them is none of our program.
    pub async fn entries(&self, table: &str) -> Result<Vec<Entry>, Error> {
        let table = self.info.table(table)?;
        let asked = p4::TableEntry { table_id: table.id, ..Default::default() };
        let answered = self.read(vec![Kind::TableEntry(asked)]).await?;
        let mut entries = Vec::with_capacity(answered.len());
        for entity in answered {
            let Kind::TableEntry(entry) = entity else {
                return Err(Error::strange("something else than the entries of a table"));
            };
            if entry.table_id != table.id {
                let what = format!("an entry of table {} for {}", entry.table_id, table.name);
                return Err(Error::strange(&what));
            }
            if !entry.is_default_action {
                entries.push(Entry::decode(&self.info, &entry)?);
            }
        }
        Ok(entries)
    }

    /// Counters by their indices, in the order of these.
    ///
    /// # Errors
    /// [`Error`]; also if one is not answered.
    pub async fn counts(&self, counter: &str, indices: &[u64]) -> Result<Vec<Count>, Error> {
        let counter = self.info.counter(counter)?;
        let mut counts = Vec::with_capacity(indices.len());
        for part in indices.chunks(CELLS) {
            let ask = |index: &u64| {
                let index = i64::try_from(*index).ok().filter(|_| *index < counter.size);
                let outside = Error::Index { counter: counter.name.clone(), size: counter.size };
                let index = Some(p4::Index { index: index.ok_or(outside)? });
                let (counter_id, data) = (counter.id, None);
                Ok(Kind::CounterEntry(p4::CounterEntry { counter_id, index, data }))
            };
            let asked = part.iter().map(ask).collect::<Result<Vec<_>, Error>>()?;
            let mut found = HashMap::with_capacity(part.len());
            for entity in self.read(asked).await? {
                let (index, count) = change::count(counter, &entity)?;
                found.insert(index, count);
            }
            for index in part {
                let count = found.get(index).copied().ok_or_else(|| {
                    Error::strange(&format!("no count for {}[{index}]", counter.name))
                })?;
                counts.push(count);
            }
        }
        Ok(counts)
    }

    /// All counters that are not zero, by their indices.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn all_counts(&self, counter: &str) -> Result<Vec<(u64, Count)>, Error> {
        let counter = self.info.counter(counter)?;
        let asked = p4::CounterEntry { counter_id: counter.id, index: None, data: None };
        let mut counts = BTreeMap::new();
        for entity in self.read(vec![Kind::CounterEntry(asked)]).await? {
            let (index, count) = change::count(counter, &entity)?;
            counts.insert(index, count);
        }
        let all = counts.len() as u64 == counter.size;
        if !all || counts.last_key_value().is_some_and(|(last, _)| *last >= counter.size) {
            let what =
                format!("{} of the {} counts of {}", counts.len(), counter.size, counter.name);
            return Err(Error::strange(&what));
        }
        counts.retain(|_, count| *count != Count::default());
        Ok(counts.into_iter().collect())
    }

    /// The multicast groups and the ports of each.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn groups(&self) -> Result<BTreeMap<u32, BTreeSet<u32>>, Error> {
        let group = p4::MulticastGroupEntry::default();
        let asked = p4::PacketReplicationEngineEntry {
            r#type: Some(Replication::MulticastGroupEntry(group)),
        };
        let answered = self.read(vec![Kind::PacketReplicationEngineEntry(asked)]).await?;
        answered.into_iter().map(change::group).collect()
    }

    /// How a digest is sent; none if it is not.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn digest(&self, digest: &str) -> Result<Option<DigestConfig>, Error> {
        let digest = self.info.digest(digest)?;
        let asked = p4::DigestEntry { digest_id: digest.id, config: None };
        let answered = match self.read(vec![Kind::DigestEntry(asked)]).await {
            Err(Error::Refused { code: tonic::Code::NotFound, .. }) => return Ok(None),
            answered => answered?,
        };
        Ok(answered.into_iter().find_map(|entity| change::digest(digest.id, &entity)))
    }

    async fn read(&self, asked: Vec<Kind>) -> Result<Vec<Kind>, Error> {
        let entities = asked.into_iter().map(|entity| p4::Entity { entity: Some(entity) });
        let request =
            p4::ReadRequest { device_id: self.target.device, entities: entities.collect() };
        let mut client = self.client.clone();
        let answered = async move {
            let mut stream = client.read(request).await?.into_inner();
            let mut answered = Vec::new();
            while let Some(message) = stream.message().await? {
                answered.extend(message.entities.into_iter().filter_map(|one| one.entity));
                if answered.len() > ENTITIES {
                    return Err(Error::strange(&format!("more than {ENTITIES} entities")));
                }
            }
            Ok(answered)
        };
        within("a read", self.patience, answered).await
    }
}

fn election(low: u64) -> p4::Uint128 {
    p4::Uint128 { high: 0, low }
}

async fn within<T>(
    what: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(Error::Deadline { what, limit }),
    }
}
