// SPDX-License-Identifier: Apache-2.0
//! Directories of runs of which all processes were killed at once.
//!
//! The processes of a run outside of its namespaces hold a shared lock on its directory, and one of
//! them removes it. If both were killed, nothing holds the lock, and the next run removes it.

use super::message::FILES;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

pub const PREFIX: &str = "linkemu-";
/// A younger directory may be one that is not locked yet.
const AGE: Duration = Duration::from_secs(10);

/// A lock that lasts as long as this value.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "its drop unlocks")] Flock<File>);

/// Locks the directory of this process's run.
///
/// # Errors
/// If the file system has no locks, or the directory is gone.
pub fn hold(directory: &Path) -> io::Result<Held> {
    let lock = Flock::lock(File::open(directory)?, FlockArg::LockSharedNonblock);
    lock.map(Held).map_err(|(_, errno)| errno.into())
}

/// Removes the directories in `folder` that no run holds. What is not of a run stays.
pub fn remove(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(is_of_run) {
        let path = entry.path();
        let Ok(directory) = File::open(&path) else { continue };
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(_lock) => discard(&path),
            Err((_, Errno::EWOULDBLOCK)) => {}
            Err((_, errno)) => eprintln!("linkctl run: cannot lock {}: {errno}", path.display()),
        }
    }
}

/// Whether it is a directory of this user with the name of a run's, and old enough.
fn is_of_run(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let is_named = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(|rest| {
        rest.len() == 6 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    // Links are not followed.
    let Some(it) = is_named.then(|| entry.metadata().ok()).flatten() else { return false };
    let old = it.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    it.is_dir() && it.uid() == geteuid().as_raw() && old.is_some_and(|age| age >= AGE)
}

/// Removes the files of a run, and the directory if it is empty then.
fn discard(directory: &Path) {
    for file in FILES {
        let _ = fs::remove_file(directory.join(file));
    }
    let _ = fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory of a run that was last changed before a minute.
    fn old(folder: &Path, name: &str, file: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join(file), "").unwrap();
        let before = SystemTime::now() - Duration::from_secs(60);
        File::open(&path).unwrap().set_modified(before).unwrap();
        path
    }

    #[test]
    fn directory_without_owner_is_removed_and_all_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let dead = old(folder.path(), "linkemu-a1B2c3", FILES[0]);
        let held = old(folder.path(), "linkemu-a1B2c4", FILES[0]);
        let _lock = hold(&held).unwrap();
        let foreign = old(folder.path(), "linkemu-a1B2c5", "thesis.tex");
        let other = old(folder.path(), "linkemu-demonstration", FILES[0]);
        let young = old(folder.path(), "linkemu-a1B2c6", FILES[0]);
        File::open(&young).unwrap().set_modified(SystemTime::now()).unwrap();
        remove(folder.path());
        assert!(!dead.exists());
        assert!(held.join(FILES[0]).exists() && young.join(FILES[0]).exists());
        assert!(foreign.join("thesis.tex").exists() && other.join(FILES[0]).exists());
    }
}
