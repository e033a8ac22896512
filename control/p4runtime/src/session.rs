// SPDX-License-Identifier: Apache-2.0
//! A controller's session with one switch: election of the primary, program, writes, reads,
//! counters, multicast groups and digests.
//!
//! Every call has a deadline. Writes and reads of any length are split into messages of bounded
//! size. P4Runtime does not order the updates within a message, so a change that must precede
//! another goes into an earlier call of [`Session::write`].

mod change;
mod channel;
mod error;
mod stalls;
mod stream;

pub use change::{Change, Count, DigestConfig};
pub use channel::Tls;
pub use error::{Error, Failure};
pub use stalls::Stalls;
pub use stream::{Stream, StreamEvent};

use crate::entry::{Entry, Key};
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
use tonic::Code;
use tonic::transport::Channel;

/// Time limit for a connection and for the election result.
const CONNECT: Duration = Duration::from_secs(3);
/// Default time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for loading a program.
const PUSH: Duration = Duration::from_secs(60);
/// Maximum number of updates or requested cells per message. gRPC reports the result of each update
/// in the trailing headers: about 100 bytes of the [`HEADERS`] that we accept.
const UPDATES: usize = 500;
const CELLS: usize = 4096;
/// Maximum size of headers, bytes.
const HEADERS: u32 = 256 << 10;
/// Maximum size of a message, bytes. A switch may answer a read in one message; a counter cell has
/// about 30 bytes.
const MESSAGE: usize = 16 << 20;
/// Maximum number of entities in the answer to a read.
const ENTITIES: usize = 1 << 20;

/// The address of a switch and our election id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Of the P4Runtime service: `unix:` and a path, or a URL such as `http://127.0.0.1:9559`.
    pub address: String,
    /// For an address with `https`.
    pub tls: Option<Tls>,
    /// P4Runtime device id.
    pub device: u64,
    /// Election id. The controller with the highest one is the primary.
    pub election: u64,
}

/// A session. Clones share it.
#[derive(Clone, Debug)]
pub struct Session {
    client: P4RuntimeClient<Channel>,
    target: Target,
    info: Arc<P4Info>,
    patience: Duration,
}

impl Session {
    /// Connects and takes part in the election. The first event of the stream reports the primary.
    /// The session lasts until the stream is dropped.
    ///
    /// # Errors
    /// If nothing answers, a certificate is not valid, or the switch refuses us because another
    /// controller has the same election id.
    pub async fn connect(target: &Target, info: Arc<P4Info>) -> Result<(Self, Stream), Error> {
        let (channel, fault) = channel::open(target).await?;
        let client = P4RuntimeClient::new(channel).max_decoding_message_size(MESSAGE);
        let session = Self { client, target: target.clone(), info, patience: PATIENCE };
        let stream = Stream::open(session.client.clone(), target, CONNECT).await;
        // The switch judges our certificate after the handshake.
        let refused = |error| match fault.and_then(|fault| fault.words()) {
            Some(why) => Error::Tls { address: target.address.clone(), why },
            None if error::is_broken(&error) => {
                let why = "it ended the connection; if it serves TLS, write https".into();
                Error::Unreachable { address: target.address.clone(), why }
            }
            None => error,
        };
        let stream = stream.map_err(refused)?;
        Ok((session, stream))
    }

    /// Sets the time limit for each answer. Loading a program may take longer.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The program in which names are looked up.
    #[must_use]
    pub fn info(&self) -> &Arc<P4Info> {
        &self.info
    }

    /// Cookie of the switch's program. `None` if it has no program or no cookie.
    ///
    /// # Errors
    /// If the switch does not answer or refuses.
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
            Err(error) => Err(error.of_device(self.target.device)),
        }
    }

    /// Loads a program: `device` is the compiler's output for the target, `p4info` the P4Info in
    /// binary form. This clears all state of the switch.
    ///
    /// # Errors
    /// If the switch does not answer or refuses.
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
        let device = self.target.device;
        let pushed = within("a new program", PUSH, pushed).await;
        pushed.map(drop).map_err(|error| match error.of_device(device) {
            Error::Refused { code, message } => Error::NotLoaded { device, code, message },
            error => error,
        })
    }

    /// Applies changes, in any order. A failure does not stop the others.
    ///
    /// # Errors
    /// [`Error::Rejected`] lists the changes that the switch rejected, with its messages. After any
    /// other error it is unknown which changes were applied.
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

    /// All entries of a table except the default entry.
    ///
    /// # Errors
    /// [`Error`]; also if an entry does not belong to our program.
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

    /// Values of the cells at `indices`, in this order.
    ///
    /// # Errors
    /// [`Error`]; also if a cell is missing from the answer.
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

    /// All cells that are not zero, by index.
    ///
    /// # Errors
    /// If the switch does not answer or refuses.
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

    /// Values of a direct counter: one for each entry of its table.
    ///
    /// # Errors
    /// [`Error`]; also if a count does not belong to the table.
    pub async fn direct_counts(&self, counter: &str) -> Result<Vec<(Key, Count)>, Error> {
        let counter = self.info.direct_counter(counter)?;
        let table = self.info.table(&counter.table)?;
        let asked = p4::TableEntry { table_id: table.id, ..Default::default() };
        let asked = p4::DirectCounterEntry { table_entry: Some(asked), data: None };
        let answered = self.read(vec![Kind::DirectCounterEntry(asked)]).await?;
        let count = |entity: Kind| {
            let Kind::DirectCounterEntry(entry) = entity else {
                let what = format!("something else than a count of {}", counter.name);
                return Err(Error::strange(&what));
            };
            let of = entry.table_entry.unwrap_or_default();
            if of.table_id != table.id {
                let what = format!("a count of table {} for {}", of.table_id, counter.name);
                return Err(Error::strange(&what));
            }
            let count = change::data(&counter.name, entry.data.unwrap_or_default())?;
            Ok((Key::decode(&self.info, &of)?, count))
        };
        answered.into_iter().map(count).collect()
    }

    /// Multicast groups with their ports.
    ///
    /// # Errors
    /// If the switch does not answer or refuses.
    pub async fn groups(&self) -> Result<BTreeMap<u32, BTreeSet<u32>>, Error> {
        let group = p4::MulticastGroupEntry::default();
        let asked = p4::PacketReplicationEngineEntry {
            r#type: Some(Replication::MulticastGroupEntry(group)),
        };
        let answered = self.read(vec![Kind::PacketReplicationEngineEntry(asked)]).await?;
        answered.into_iter().map(change::group).collect()
    }

    /// Configuration of a digest; `None` if it is not enabled.
    ///
    /// # Errors
    /// If the switch does not answer or refuses.
    pub async fn digest(&self, digest: &str) -> Result<Option<DigestConfig>, Error> {
        let digest = self.info.digest(digest)?;
        let asked = p4::DigestEntry { digest_id: digest.id, config: None };
        let answered = match self.read(vec![Kind::DigestEntry(asked)]).await {
            Err(Error::Refused { code: Code::NotFound, .. }) => return Ok(None),
            answered => answered?,
        };
        Ok(answered.into_iter().find_map(|entity| change::digest(digest.id, &entity)))
    }

    /// How often the switch stood still since its program was loaded. `None` if it does not report it.
    ///
    /// # Errors
    /// If the switch does not answer, or answers something else.
    pub async fn stalls(&self) -> Result<Option<Stalls>, Error> {
        let answered = match self.read(vec![Stalls::asked()]).await {
            // Servers refuse an extern that they do not have with various codes.
            Err(Error::Refused { .. }) => return Ok(None),
            answered => answered?,
        };
        answered.first().map(Stalls::decode).transpose()
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
