// SPDX-License-Identifier: Apache-2.0
//! Results on disk: a directory for each study, a JSON file for each flow.
//!
//! `ROW-0007.json` is the valid flow of round 7; `void/ROW-0007-1.json` is its first void attempt.
//! A result counts only for the identity that it was measured with: hosts, link, transfers,
//! definitions and kernel. Results of another identity are moved to `stale/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::bed::Attempt;
use crate::link::{self, Resolved};
use crate::machine::Machine;
use crate::study::{Row, Study};

/// One attempt, with everything that is needed to judge it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    pub study: String,
    pub row: String,
    /// Round, from 1 on. All rows have the same seed in a round.
    pub round: u32,
    pub seed: u64,
    /// RFC 3339.
    pub started: String,
    /// Hash of hosts, link, transfers, definitions and kernel.
    pub identity: String,
    pub profile: link::Identity,
    pub machine: Machine,
    /// Kernel of the sender.
    pub kernel: String,
    #[serde(flatten)]
    pub attempt: Attempt,
}

#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

/// The identity of a row's results.
///
/// # Errors
/// If a part cannot be written as JSON.
pub fn identity(study: &Study, row: &Row, link: &Resolved, kernel: &str) -> anyhow::Result<String> {
    let parts = serde_json::to_vec(&(
        &study.hosts.sysctl,
        study.hosts.mtu,
        &study.hosts.qdisc,
        &study.metrics,
        &row.transfer,
        row.server,
        &link.identity.sha256,
        kernel,
    ))?;
    Ok(link::hex(&Sha256::digest(parts)))
}

impl Store {
    /// # Errors
    /// If the directory cannot be made.
    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(directory.join("void"))
            .with_context(|| format!("make the directory {}", directory.display()))?;
        Ok(Self { directory: directory.to_owned() })
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, row: &str, round: u32) -> PathBuf {
        self.directory.join(format!("{row}-{round:04}.json"))
    }

    /// The valid flow of a round with this identity. One with another identity, or that is not
    /// readable, is moved to `stale/`.
    ///
    /// # Errors
    /// If it cannot be moved.
    pub fn take(&self, row: &str, round: u32, identity: &str) -> anyhow::Result<Option<Record>> {
        let path = self.path(row, round);
        let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
        match serde_json::from_str::<Record>(&text) {
            Ok(record) if record.identity == identity => Ok(Some(record)),
            _ => self.retire(&path).map(|()| None),
        }
    }

    fn retire(&self, path: &Path) -> anyhow::Result<()> {
        let stale = self.directory.join("stale");
        fs::create_dir_all(&stale).with_context(|| format!("make {}", stale.display()))?;
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("result");
        let place = (1..).map(|n| stale.join(format!("{n}-{name}"))).find(|p| !p.exists());
        let place = place.context("a name for a stale result")?;
        fs::rename(path, &place).with_context(|| format!("move {} away", path.display()))
    }

    /// Writes a valid flow, or a void attempt under the next free number.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn put(&self, record: &Record) -> anyhow::Result<PathBuf> {
        let Record { row, round, attempt, .. } = record;
        let path = match attempt.void {
            None => self.path(row, *round),
            Some(_) => (1..)
                .map(|n| self.directory.join(format!("void/{row}-{round:04}-{n}.json")))
                .find(|p| !p.exists())
                .context("a name for a void result")?,
        };
        // A run that ends in between leaves no half file.
        let half = path.with_extension("part");
        let text = serde_json::to_string(record)? + "\n";
        fs::write(&half, text).with_context(|| format!("write {}", half.display()))?;
        fs::rename(&half, &path).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// All valid flows of a row that have this identity, by round.
    ///
    /// # Errors
    /// If the directory or a file cannot be read.
    pub fn valid(&self, row: &str, identity: Option<&str>) -> anyhow::Result<Vec<Record>> {
        let mut records = self.read(&self.directory)?;
        let same = |r: &Record| identity.is_none_or(|identity| r.identity == identity);
        records.retain(|r| r.row == row && r.attempt.void.is_none() && same(r));
        records.sort_by_key(|r| r.round);
        Ok(records)
    }

    /// All void attempts of a row.
    ///
    /// # Errors
    /// As [`Store::valid`].
    pub fn void(&self, row: &str) -> anyhow::Result<Vec<Record>> {
        let mut records = self.read(&self.directory.join("void"))?;
        records.retain(|r| r.row == row);
        records.sort_by_key(|r| r.round);
        Ok(records)
    }

    fn read(&self, directory: &Path) -> anyhow::Result<Vec<Record>> {
        let mut records = Vec::new();
        let list = fs::read_dir(directory).with_context(|| format!("{}", directory.display()))?;
        for entry in list {
            let path = entry?.path();
            let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or_default();
            let numbered = name.rsplit('-').next().is_some_and(|n| n.parse::<u32>().is_ok());
            if numbered && path.extension().is_some_and(|e| e == "json") {
                let text = fs::read_to_string(&path)?;
                let record = serde_json::from_str(&text)
                    .with_context(|| format!("{} is no result of a flow", path.display()))?;
                records.push(record);
            }
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(round: u32, identity: &str, void: Option<&str>) -> Record {
        Record {
            study: "s".to_owned(),
            row: "bbr".to_owned(),
            round,
            seed: 1,
            started: String::new(),
            identity: identity.to_owned(),
            profile: link::Identity { name: String::new(), sha256: String::new() },
            machine: Machine::default(),
            kernel: String::new(),
            attempt: Attempt { void: void.map(str::to_owned), ..Attempt::default() },
        }
    }

    #[test]
    fn valid_flow_is_found_again_and_void_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.put(&record(1, "a", None)).unwrap();
        store.put(&record(2, "a", Some("late"))).unwrap();
        store.put(&record(2, "a", Some("late"))).unwrap();
        assert_eq!(store.take("bbr", 1, "a").unwrap().unwrap().round, 1);
        assert!(store.take("bbr", 2, "a").unwrap().is_none());
        assert!(store.take("cubic", 1, "a").unwrap().is_none());
        assert_eq!(store.void("bbr").unwrap().len(), 2);
        assert_eq!(store.valid("bbr", None).unwrap().len(), 1);
    }

    #[test]
    fn flow_of_another_identity_is_moved_away_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        for _ in 0..2 {
            store.put(&record(1, "a", None)).unwrap();
            assert!(store.take("bbr", 1, "b").unwrap().is_none());
        }
        assert!(store.valid("bbr", None).unwrap().is_empty());
        assert_eq!(fs::read_dir(folder.path().join("stale")).unwrap().count(), 2);
    }

    #[test]
    fn half_written_flow_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let path = store.put(&record(1, "a", None)).unwrap();
        fs::write(path, "{\"study\":").unwrap();
        assert!(store.take("bbr", 1, "a").unwrap().is_none());
    }
}
