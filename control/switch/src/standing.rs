// SPDX-License-Identifier: Apache-2.0
//! Known entries of the switch, and the writes that change them to the desired ones.
//!
//! Only the task of the session writes. Changes by another controller are detected on the next
//! read: after a lost session or stream, when the switch rejects a change, and by [`Standing::foreign`].

use crate::names;
use p4runtime::entry::Key;
use p4runtime::session::DigestConfig;
use p4runtime::{Change, Entry, Error, Match, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

type Entries = BTreeMap<Key, Entry>;

/// Entries and groups of the switch.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    tables: BTreeMap<&'static str, Entries>,
    groups: BTreeMap<u32, BTreeSet<u32>>,
    digest: Option<DigestConfig>,
    /// Rejections by table, with the switch's message.
    refused: BTreeMap<&'static str, String>,
    /// Number of writes of each table.
    writes: Writes,
    /// Tables of which the switch does not return what was written.
    unchecked: BTreeSet<&'static str>,
}

/// Number of writes of each table, so that a reading from before a write is told from one after it.
pub type Writes = BTreeMap<&'static str, u64>;

/// What differs in the switch from what was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Number of differing entries of each table; [`GROUPS`] for groups and the digest.
    pub changes: BTreeMap<&'static str, u64>,
}

/// Multicast groups and the digest, in [`Foreign`].
const GROUPS: &str = "multicast groups";

impl Foreign {
    pub fn count(&self) -> u64 {
        self.changes.values().sum()
    }
}

/// As in "linkemu.ports: 4, linkemu.hosts: 1".
impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.changes.iter().map(|(table, count)| format!("{table}: {count}"));
        write!(f, "{}", all.collect::<Vec<_>>().join(", "))
    }
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

    pub fn writes(&self) -> Writes {
        self.writes.clone()
    }

    /// Tables that cannot be checked, as text; empty without any.
    pub fn unchecked(&self) -> String {
        match self.unchecked.is_empty() {
            true => String::new(),
            false => format!(
                "{} cannot be checked: it returns other entries than were written",
                self.unchecked.iter().copied().collect::<Vec<_>>().join(", ")
            ),
        }
    }

    /// Differences of `found`, which was read since these `writes`. Tables that were written since then are
    /// left out.
    pub fn foreign(&self, found: &Self, writes: &Writes) -> Foreign {
        let mut changes = BTreeMap::new();
        let unwritten = |table: &&str| self.writes.get(table) == writes.get(table);
        let checked = names::TABLES.into_iter().filter(unwritten);
        for table in checked.filter(|table| !self.unchecked.contains(table)) {
            let (ours, theirs) = (self.table(table), found.table(table));
            let differs = ours.iter().filter(|(key, entry)| theirs.get(*key) != Some(*entry));
            let more = theirs.keys().filter(|key| !ours.contains_key(*key));
            let count = differs.count() + more.count();
            if count > 0 {
                changes.insert(table, count as u64);
            }
        }
        if (&self.groups, self.digest) != (&found.groups, found.digest) {
            changes.insert(GROUPS, 1);
        }
        Foreign { changes }
    }

    /// Takes what was found where it differs, so that the next writes repair it.
    pub fn take(&mut self, found: Self, foreign: &Foreign) {
        for (table, entries) in found.tables {
            if foreign.changes.contains_key(table) {
                self.tables.insert(table, entries);
            }
        }
        if foreign.changes.contains_key(GROUPS) {
            (self.groups, self.digest) = (found.groups, found.digest);
        }
    }

    /// Reads repaired tables again. Those that still differ are not checked any more: the switch does not
    /// return what was written, and would seem to be changed for ever.
    ///
    /// # Errors
    /// If the switch does not answer.
    pub async fn verify(&mut self, session: &Session, repaired: &Foreign) -> Result<(), Error> {
        for table in names::TABLES.into_iter().filter(|it| repaired.changes.contains_key(it)) {
            if entries(session, table).await? != *self.table(table) {
                self.unchecked.insert(table);
            }
        }
        Ok(())
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
        *self.writes.entry(table).or_default() += 1;
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
