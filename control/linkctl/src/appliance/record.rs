// SPDX-License-Identifier: Apache-2.0
//! The record of apply and of the previous state: written before any change, so that undo knows
//! it after a crash too. It is below `/run`, which a boot empties, as a boot undoes all of it.
//!
//! Only root may write to the directory, because undo executes the record as root.

use crate::appliance::host::Host;
use crate::appliance::step::Step;
use crate::failure::Failure;
use boxfile::{Binding, RECORD};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    pub file: PathBuf,
    pub complete: bool,
    /// The ports that were taken; the dataplane reads these.
    pub ports: Vec<Binding>,
    /// In the order in which they are done.
    pub steps: Vec<Step>,
}

fn failed(path: &Path, what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::failed("io", format!("cannot {what} {}: {error}", path.display()))
}

fn folder(host: &Host) -> PathBuf {
    let record = host.roots.run.join(RECORD);
    record.parent().map(Path::to_owned).unwrap_or(record)
}

/// Keeps another apply or undo out while it is held.
pub fn lock(host: &Host) -> Result<Flock<File>, Failure> {
    let folder = folder(host);
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder);
    // Independent of the caller's umask.
    made.and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o755)))
        .map_err(|e| failed(&folder, "make", e))?;
    let path = folder.join("lock");
    let file = File::create(&path).map_err(|e| failed(&path, "open", e))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| {
        let message =
            format!("another `linkctl box` is at work: {} is locked ({error})", path.display());
        Failure::failed("aborted", message).hint("wait for it: lslocks | grep linkemu-box")
    })
}

impl Record {
    /// A new one, of an apply that has just begun.
    pub fn new(file: &Path, ports: Vec<Binding>, steps: Vec<Step>) -> Self {
        Self { version: VERSION, file: file.to_owned(), complete: false, ports, steps }
    }

    /// The machine's, if there is one.
    pub fn read(host: &Host) -> Result<Option<Self>, Failure> {
        let path = host.roots.run.join(RECORD);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|e| failed(&path, "read", e))?,
        };
        let odd = |why: String| {
            let remedy =
                format!("see what is bound (dpdk-devbind.py -s), then rm {}", path.display());
            Failure::failed("data_loss", format!("{} is no record: {why}", path.display()))
                .hint(remedy)
        };
        let record: Self = serde_json::from_str(&text).map_err(|e| odd(e.to_string()))?;
        if record.version != VERSION {
            return Err(odd(format!("version {}, this linkctl knows {VERSION}", record.version)));
        }
        Ok(Some(record))
    }

    /// Writes it, whole or not at all, and to the end of the disk's buffers.
    pub fn write(&self, host: &Host) -> Result<(), Failure> {
        let (folder, path) = (folder(host), host.roots.run.join(RECORD));
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| Failure::failed("internal", format!("cannot write JSON: {e}")))?;
        let write = || {
            let mut staged = tempfile::NamedTempFile::new_in(&folder)?;
            staged.write_all(text.as_bytes())?;
            // `linkctl doctor` reads it, and is not root.
            staged.as_file().set_permissions(Permissions::from_mode(0o644))?;
            staged.as_file().sync_all()?;
            staged.persist(&path).map_err(|e| e.error).map(drop)
        };
        write().map_err(|e: std::io::Error| failed(&path, "write", e))
    }

    pub fn remove(host: &Host) -> Result<(), Failure> {
        let path = host.roots.run.join(RECORD);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed(&path, "remove", error))
            }
            _ => Ok(()),
        }
    }
}
