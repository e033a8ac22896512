// SPDX-License-Identifier: Apache-2.0
//! Replaces files so that a power cut leaves the complete old or the complete new one.
//!
//! The new content goes to a file in the same directory, which is synced and then renamed; the
//! directory is synced last (POSIX rename(2), Linux fsync(2)). A file that ends in [`NEW`] is the
//! rest of an interrupted replacement and is ignored.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How a file is called until it is whole.
pub(crate) const NEW: &str = ".new";
/// Its owner writes, its group reads.
const MODE: u32 = 0o640;

/// The steps of a replacement. A power cut may leave any part of the steps that were not synced.
pub(crate) trait Disk {
    /// Writes a file, from its start.
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Waits until a file's content is kept.
    fn sync(&mut self, path: &Path) -> io::Result<()>;
    /// Renames a file, replacing the one with that name.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&mut self, path: &Path) -> io::Result<()>;
    /// Waits until the names in a directory are kept.
    fn sync_names(&mut self, directory: &Path) -> io::Result<()>;
}

pub(crate) struct FileSystem;

impl Disk for FileSystem {
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(MODE).open(path)?.write_all(bytes)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_names(&mut self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }
}

/// Puts `bytes` into the place of the file `name` in a directory.
pub(crate) fn replace(
    disk: &mut impl Disk,
    directory: &Path,
    name: &str,
    bytes: &[u8],
) -> io::Result<()> {
    let temporary: PathBuf = directory.join(format!("{name}{NEW}"));
    if let Err(error) = disk.write(&temporary, bytes).and_then(|()| disk.sync(&temporary)) {
        // On a full disk a partial file would take the room that the next attempt needs.
        let _ = disk.remove(&temporary);
        return Err(error);
    }
    disk.rename(&temporary, &directory.join(name))?;
    disk.sync_names(directory)
}

/// Removes the file `name` from a directory.
pub(crate) fn remove(disk: &mut impl Disk, directory: &Path, name: &str) -> io::Result<()> {
    disk.remove(&directory.join(name))?;
    disk.sync_names(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for a number of bytes.
    struct Full(usize);

    impl Disk for Full {
        fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
            FileSystem.write(path, &bytes[..self.0.min(bytes.len())])?;
            if bytes.len() > self.0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }
        fn sync(&mut self, path: &Path) -> io::Result<()> {
            FileSystem.sync(path)
        }
        fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
            FileSystem.rename(from, to)
        }
        fn remove(&mut self, path: &Path) -> io::Result<()> {
            FileSystem.remove(path)
        }
        fn sync_names(&mut self, directory: &Path) -> io::Result<()> {
            FileSystem.sync_names(directory)
        }
    }

    #[test]
    fn replacement_on_a_full_disk_leaves_the_old_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        replace(&mut Full(3), directory.path(), "f", b"old").unwrap();
        let error = replace(&mut Full(3), directory.path(), "f", b"longer").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(directory.path().join("f")).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

#[cfg(test)]
pub(crate) mod power {
    //! A disk that notes the steps, and what a power cut after each can leave behind.

    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Clone, Debug)]
    enum Step {
        Write(PathBuf, Vec<u8>),
        Sync(PathBuf),
        Rename(PathBuf, PathBuf),
        Remove(PathBuf),
        SyncNames,
    }

    /// The steps since a known content.
    #[derive(Debug, Default)]
    pub struct Noted(Vec<Step>);

    /// The files of a directory.
    pub type Files = BTreeMap<PathBuf, Vec<u8>>;

    impl Disk for Noted {
        fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
            self.0.push(Step::Write(path.into(), bytes.into()));
            Ok(())
        }
        fn sync(&mut self, path: &Path) -> io::Result<()> {
            self.0.push(Step::Sync(path.into()));
            Ok(())
        }
        fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
            self.0.push(Step::Rename(from.into(), to.into()));
            Ok(())
        }
        fn remove(&mut self, path: &Path) -> io::Result<()> {
            self.0.push(Step::Remove(path.into()));
            Ok(())
        }
        fn sync_names(&mut self, _: &Path) -> io::Result<()> {
            self.0.push(Step::SyncNames);
            Ok(())
        }
    }

    impl Noted {
        /// All that can be on the disk if the power is cut after each of the steps. A file's
        /// unsynced content may be there up to any byte; names that are not synced may be
        /// the old or the new ones, each for itself.
        pub fn left_behind(&self, before: &Files) -> BTreeSet<Files> {
            (0..=self.0.len()).flat_map(|cut| possible(&self.0[..cut], before)).collect()
        }
    }

    fn possible(steps: &[Step], before: &Files) -> BTreeSet<Files> {
        let names_kept = steps.iter().rposition(|s| matches!(s, Step::SyncNames));
        let mut worlds = BTreeSet::from([before.clone()]);
        for (i, step) in steps.iter().enumerate() {
            let may_be_lost = names_kept.is_none_or(|kept| i > kept);
            let mut next = BTreeSet::new();
            for world in worlds {
                match step {
                    Step::Write(path, bytes) => {
                        let synced =
                            steps[i..].iter().any(|s| matches!(s, Step::Sync(p) if p == path));
                        let least = if synced { bytes.len() } else { 0 };
                        for n in least..=bytes.len() {
                            let mut files = world.clone();
                            files.insert(path.clone(), bytes[..n].to_vec());
                            next.insert(files);
                        }
                    }
                    Step::Rename(from, to) => {
                        let mut files = world.clone();
                        if let Some(bytes) = files.remove(from) {
                            files.insert(to.clone(), bytes);
                        }
                        next.insert(files);
                        if may_be_lost {
                            next.insert(world);
                        }
                    }
                    Step::Remove(path) => {
                        let mut files = world.clone();
                        files.remove(path);
                        next.insert(files);
                        if may_be_lost {
                            next.insert(world);
                        }
                    }
                    Step::Sync(_) | Step::SyncNames => {
                        next.insert(world);
                    }
                }
            }
            worlds = next;
        }
        worlds
    }

    #[test]
    fn a_replacement_that_is_not_synced_leaves_a_third_thing() {
        // The model must find these, or the tests of correct replacements prove nothing.
        let mut disk = Noted::default();
        let (file, new) = (PathBuf::from("f"), PathBuf::from("f.new"));
        disk.write(&new, b"new").unwrap();
        disk.rename(&new, &file).unwrap();
        let before = Files::from([(file.clone(), b"old".to_vec())]);
        let left = disk.left_behind(&before);
        assert!(left.iter().any(|files| files[&file] == b"n"), "{left:?}");
    }
}
