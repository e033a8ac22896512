// SPDX-License-Identifier: Apache-2.0
//! What stands in the switch, as far as is known, and how it is made to be what should.
//!
//! One writes at a time: the session's task. What another controller changes is seen when it
//! is read again, which is after each loss of the session or of the switch's ear, and when the
//! switch refuses a change.

use crate::names;
use p4runtime::entry::Key;
use p4runtime::session::DigestConfig;
use p4runtime::{Change, Entry, Error, Match, Session};
use std::collections::{BTreeMap, BTreeSet};

type Entries = BTreeMap<Key, Entry>;

/// What stands in the switch.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    tables: BTreeMap<&'static str, Entries>,
    groups: BTreeMap<u32, BTreeSet<u32>>,
    digest: Option<DigestConfig>,
    /// What the switch refuses, by table, in its words.
    refused: BTreeMap<&'static str, String>,
}

impl Standing {
    /// Reads all of it.
    ///
    /// # Errors
    /// The switch does not answer, or has what is none of our program.
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

    /// The entries of a table.
    pub fn table(&self, table: &str) -> &Entries {
        static NONE: Entries = Entries::new();
        self.tables.get(table).unwrap_or(&NONE)
    }

    pub fn entries(&self) -> u32 {
        u32::try_from(self.tables.values().map(BTreeMap::len).sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// What the switch refuses; empty: nothing.
    pub fn refusals(&self) -> String {
        self.refused.values().cloned().collect::<Vec<_>>().join("; ")
    }

    /// Tables that are not as they should be.
    pub fn wrong(&self) -> Vec<&'static str> {
        self.refused.keys().copied().collect()
    }

    /// Makes a table be as it should. Entries that the switch refuses, also when its table was
    /// read again, are left out, and said by [`Self::refusals`].
    ///
    /// # Errors
    /// The switch does not answer, or another one is its primary.
    pub async fn write(
        &mut self,
        session: &Session,
        table: &'static str,
        desired: &Entries,
    ) -> Result<(), Error> {
        self.refused.remove(table);
        let refused = self.attempt(session, table, desired).await?;
        if refused.is_some() {
            // Somebody else has changed it: look at what is there.
            self.tables.insert(table, entries(session, table).await?);
            if let Some(refused) = self.attempt(session, table, desired).await? {
                tracing::warn!(table, "{refused}");
                self.refused.insert(table, refused.to_string());
                self.tables.insert(table, entries(session, table).await?);
            }
        }
        Ok(())
    }

    /// One try; says what was refused. What stands is then known no more.
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
        // What goes makes room in a full table.
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

    /// Makes the multicast groups be so, and lets hosts be told.
    ///
    /// # Errors
    /// [`Error`].
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

/// Of the prefix in a key.
fn length(key: &Key) -> u32 {
    let of = |field: &Match| if let Match::Lpm { length, .. } = field { *length } else { 0 };
    key.fields.values().map(of).max().unwrap_or(0)
}

/// Changes that may be made together: a prefix is there as long as a wider one is, which would
/// answer in its place.
fn by_length(changes: impl Iterator<Item = (u32, Change)>) -> BTreeMap<u32, Vec<Change>> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    changes.for_each(|(length, change)| all.entry(length).or_default().push(change));
    all
}

async fn entries(session: &Session, table: &str) -> Result<Entries, Error> {
    let entries = session.entries(table).await?;
    Ok(entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect())
}
