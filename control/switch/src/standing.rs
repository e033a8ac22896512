// SPDX-License-Identifier: Apache-2.0
//! Known entries of the switch, and the writes that change them to the desired ones.
//!
//! Only the task of the session writes. Changes by another controller are detected on the next
//! read: after a lost session or stream, and when the switch rejects a change.

use crate::names;
use p4runtime::entry::Key;
use p4runtime::session::DigestConfig;
use p4runtime::{Change, Entry, Error, Match, Session};
use std::collections::{BTreeMap, BTreeSet};

type Entries = BTreeMap<Key, Entry>;

/// Entries and groups of the switch.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    tables: BTreeMap<&'static str, Entries>,
    groups: BTreeMap<u32, BTreeSet<u32>>,
    digest: Option<DigestConfig>,
    /// Rejections by table, with the switch's message.
    refused: BTreeMap<&'static str, String>,
}

impl Standing {
    /// Reads all tables and groups.
    ///
    /// # Errors
    /// If the switch does not answer, or has entries of another program.
    pub async fn read(session: &Session) -> Result<Self, Error> {
        let mut standing = Self::default();
        for table in names::TABLES {
            standing.tables.insert(table, entries(session, table).await?);
        }
        standing.groups = session.groups().await?;
        let digest = names::digest(session.info())?.name.clone();
        standing.digest = session.digest(&digest).await?;
        Ok(standing)
    }

    pub fn table(&self, table: &str) -> &Entries {
        static NONE: Entries = Entries::new();
        self.tables.get(table).unwrap_or(&NONE)
    }

    pub fn entries(&self) -> u32 {
        u32::try_from(self.tables.values().map(BTreeMap::len).sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// The rejections as text; empty without rejections.
    pub fn refusals(&self) -> String {
        self.refused.values().cloned().collect::<Vec<_>>().join("; ")
    }

    /// Tables that differ from the desired state.
    pub fn wrong(&self) -> Vec<&'static str> {
        self.refused.keys().copied().collect()
    }

    /// Writes a table. If the switch rejects entries, its table is read again and the write is
    /// retried once. Entries that are still rejected are listed by [`Self::refusals`].
    ///
    /// # Errors
    /// If the switch does not answer, or another controller is the primary.
    pub async fn write(
        &mut self,
        session: &Session,
        table: &'static str,
        desired: &Entries,
    ) -> Result<(), Error> {
        self.refused.remove(table);
        let refused = self.attempt(session, table, desired).await?;
        if refused.is_some() {
            // Another controller changed the table: read it again.
            self.tables.insert(table, entries(session, table).await?);
            if let Some(refused) = self.attempt(session, table, desired).await? {
                tracing::warn!(table, "{refused}");
                self.refused.insert(table, refused.to_string());
                self.tables.insert(table, entries(session, table).await?);
            }
        }
        Ok(())
    }

    /// One attempt; returns the rejections. The known state of the table is then invalid.
    async fn attempt(
        &mut self,
        session: &Session,
        table: &'static str,
        desired: &Entries,
    ) -> Result<Option<Error>, Error> {
        let standing = self.tables.entry(table).or_default();
        let gone = standing.keys().filter(|key| !desired.contains_key(*key));
        let gone = gone.map(|key| (length(key), Change::Delete(key.clone())));
        let changed = desired.iter().filter_map(|(key, entry)| match standing.get(key) {
            None => Some((length(key), Change::Insert(entry.clone()))),
            Some(found) if found != entry => Some((length(key), Change::Modify(entry.clone()))),
            Some(_) => None,
        });
        let (gone, changed) = (by_length(gone), by_length(changed));
        // Deletions first: they make room in a full table.
        for changes in gone.into_values().chain(changed.into_values().rev()) {
            match session.write(&changes).await {
                Ok(()) => {}
                Err(refused @ Error::Rejected(_)) => return Ok(Some(refused)),
                Err(other) => return Err(other),
            }
        }
        standing.clone_from(desired);
        Ok(None)
    }

    /// Writes the multicast groups and enables the digest of hosts.
    ///
    /// # Errors
    /// If the switch does not answer or refuses.
    pub async fn write_groups(
        &mut self,
        session: &Session,
        desired: BTreeMap<u32, BTreeSet<u32>>,
        digest: DigestConfig,
    ) -> Result<(), Error> {
        let mut changes = Vec::new();
        for group in self.groups.keys().filter(|group| !desired.contains_key(group)) {
            changes.push(Change::DeleteGroup(*group));
        }
        for (group, ports) in &desired {
            let found = self.groups.get(group);
            if found != Some(ports) {
                let (exists, group, ports) = (found.is_some(), *group, ports.clone());
                changes.push(Change::Group { exists, group, ports });
            }
        }
        if self.digest != Some(digest) {
            let exists = self.digest.is_some();
            let name = names::digest(session.info())?.name.clone();
            changes.push(Change::Digest { exists, digest: name, config: digest });
        }
        session.write(&changes).await?;
        (self.groups, self.digest) = (desired, Some(digest));
        Ok(())
    }
}

/// Length of the prefix in a key.
fn length(key: &Key) -> u32 {
    let of = |field: &Match| if let Match::Lpm { length, .. } = field { *length } else { 0 };
    key.fields.values().map(of).max().unwrap_or(0)
}

/// Groups changes that may be in one message, by prefix length: a longer prefix must exist as long
/// as a wider one does, which would match instead.
fn by_length(changes: impl Iterator<Item = (u32, Change)>) -> BTreeMap<u32, Vec<Change>> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    changes.for_each(|(length, change)| all.entry(length).or_default().push(change));
    all
}

async fn entries(session: &Session, table: &str) -> Result<Entries, Error> {
    let entries = session.entries(table).await?;
    Ok(entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect())
}
