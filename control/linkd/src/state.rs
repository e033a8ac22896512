// SPDX-License-Identifier: Apache-2.0
//! linkd's state on disk: the last link, the lease, the stored profiles.
//!
//! The dataplane owns the current plan (docs/adr/0001). This state restores a dataplane that was
//! restarted. [`Saver::run`] writes it shortly after a change; a power cut can lose the last
//! [`PAUSE`]. A lease is written before it is answered, and so is its end: on a full disk too, because
//! the file that marks the lease is removed. A directory belongs to one linkd at a time.
//!
//! ```text
//! DIR/lock
//! DIR/state               SHA-256 of the rest, then linkd.v1.State
//! DIR/leases/HASH         empty; the lease in `state` runs while it is there
//! DIR/profiles/NAME.toml
//! DIR/links/NAME/         state and leases of another link than `main`
//! ```

use crate::disk::{self, FileSystem, NEW};
use data_encoding::HEXLOWER;
use nix::fcntl::{Flock, FlockArg};
use profile::Profile;
use prost::Message;
use proto::linkd::v1::State;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Changes within this time are written together.
const PAUSE: Duration = Duration::from_millis(50);
/// After the state could not be written.
const RETRY: Duration = Duration::from_secs(1);
const FILE: &str = "state";
const LEASES: &str = "leases";
const LINKS: &str = "links";
const HASH_BYTES: usize = 32;

/// Why a directory cannot hold the state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot keep the state in {}: {source}; give another --state, or none", path.display())]
    Io {
        /// The directory or the file.
        path: PathBuf,
        source: io::Error,
    },
    /// Another process has it.
    #[error("another linkd keeps its state in {}: stop it, or give another --state", .0.display())]
    Taken(PathBuf),
}

/// A directory that holds the state.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Of the whole directory; a link's part of it has none.
    _lock: Option<Flock<File>>,
}

#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub state: State,
    /// The files of the stored profiles, for [`read_profile`], by the names of the profiles.
    pub profiles: BTreeMap<String, PathBuf>,
    /// The state of each link but `main`, by its name without "links/".
    pub links: BTreeMap<String, State>,
    /// Unreadable files, and where they are now.
    pub damage: Vec<String>,
}

impl Directory {
    /// Takes a directory, creates it if necessary, and reads it except for the profiles: megabytes
    /// of TOML take long. Damaged files are set aside.
    pub fn open(path: &Path) -> Result<(Self, Kept), StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StateError::Io { path, source }
        };
        let profiles = path.join("profiles");
        fs::create_dir_all(&profiles).map_err(failed(&profiles))?;
        let lock = path.join("lock");
        let file =
            OpenOptions::new().create(true).append(true).open(&lock).map_err(failed(&lock))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|_| StateError::Taken(path.to_owned()))?;
        let mut kept = Kept::default();
        let file = path.join(FILE);
        match read(&file).map_err(failed(&file))? {
            Ok(state) => kept.state = without_ended_lease(path, state.unwrap_or_default()),
            Err(damage) => kept.damage.push(damage),
        }
        let links = path.join(LINKS);
        fs::create_dir_all(&links).map_err(failed(&links))?;
        for entry in fs::read_dir(&links).map_err(failed(&links))? {
            let entry = entry.map_err(failed(&links))?;
            let file = entry.path().join(FILE);
            match (read(&file).map_err(failed(&file))?, entry.file_name().into_string()) {
                (Ok(Some(state)), Ok(name)) => {
                    let state = without_ended_lease(&entry.path(), state);
                    kept.links.insert(name, state);
                }
                (Ok(_), _) => {}
                (Err(damage), _) => kept.damage.push(damage),
            }
        }
        kept.profiles = stored(&profiles).map_err(failed(&profiles))?;
        Ok((Self { path: path.to_owned(), _lock: Some(lock) }, kept))
    }

    /// The path of a link's part.
    ///
    /// # Errors
    /// If the name leads elsewhere, such as `..`: names come from another process.
    fn link_path(&self, name: &str) -> io::Result<PathBuf> {
        match Path::new(name).file_name() {
            Some(file) if file == name => Ok(self.path.join(LINKS).join(name)),
            _ => {
                let why = format!("{name:?} is not a name of a link");
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }

    /// The part of a link, which is made if it is not there.
    fn of_link(&self, name: &str) -> io::Result<Self> {
        let path = self.link_path(name)?;
        fs::create_dir_all(&path)?;
        Ok(Self { path, _lock: None })
    }

    /// Forgets a link.
    fn forget(&self, name: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.link_path(name)?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a state, after the file that marks its lease.
    fn write(&self, state: &State) -> io::Result<()> {
        let leases = self.path.join(LEASES);
        let lease = lease_file(&state.token);
        if let Some(lease) = &lease
            && !leases.join(lease).exists()
        {
            fs::create_dir_all(&leases)?;
            disk::replace(&mut FileSystem, &leases, lease, b"")?;
        }
        disk::replace(&mut FileSystem, &self.path, FILE, &encode(state))?;
        self.end_leases(lease.as_deref())
    }

    /// Removes the files that mark other leases than `kept`.
    fn end_leases(&self, kept: Option<&str>) -> io::Result<()> {
        let leases = self.path.join(LEASES);
        let entries = match fs::read_dir(&leases) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name();
            if let Some(name) = name.to_str()
                && Some(name) != kept
            {
                disk::remove(&mut FileSystem, &leases, name)?;
            }
        }
        Ok(())
    }

    fn profiles(&self) -> PathBuf {
        self.path.join("profiles")
    }

    /// Stores a profile under its name.
    pub fn put_profile(&self, profile: &Profile) -> io::Result<()> {
        let name = file_name(profile.name());
        let text = profile.to_toml();
        disk::replace(&mut FileSystem, &self.profiles(), &name, text.as_bytes())
    }

    pub fn delete_profile(&self, name: &str) -> io::Result<()> {
        disk::remove(&mut FileSystem, &self.profiles(), &file_name(name))
    }
}

/// A profile's name is made of letters, digits and `._-` and begins with one of the first
/// two (`profile::validate`).
fn file_name(name: &str) -> String {
    format!("{name}.toml")
}

/// The file that marks the lease with a token; none without a token.
fn lease_file(token: &str) -> Option<String> {
    let hash = Sha256::digest(token);
    (!token.is_empty()).then(|| HEXLOWER.encode(&hash[..16]))
}

/// The state without a lease that had ended before it could be written. An older linkd has marked none.
fn without_ended_lease(directory: &Path, mut state: State) -> State {
    let leases = directory.join(LEASES);
    if leases.exists() && lease_file(&state.token).is_some_and(|file| !leases.join(file).exists()) {
        state.lease = None;
        state.token.clear();
        state.lease_request.clear();
    }
    state
}

fn encode(state: &State) -> Vec<u8> {
    let body = state.encode_to_vec();
    [Sha256::digest(&body).as_slice(), &body].concat()
}

/// The state in a file, if there is one; a damaged file is set aside.
fn read(file: &Path) -> io::Result<Result<Option<State>, String>> {
    match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ok(None)),
        Err(error) => Err(error),
        Ok(bytes) => match decode(&bytes) {
            Some(state) => Ok(Ok(Some(state))),
            None => Ok(Err(put_aside(file)?)),
        },
    }
}

/// `None` if a byte has changed.
fn decode(bytes: &[u8]) -> Option<State> {
    let (hash, body) = bytes.split_at_checked(HASH_BYTES)?;
    (Sha256::digest(body).as_slice() == hash).then(|| State::decode(body).ok()).flatten()
}

/// Keeps a damaged file for who wants to look at it.
fn put_aside(path: &Path) -> io::Result<String> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    fs::rename(path, &aside)?;
    Ok(format!("{} is damaged: it is now {}", path.display(), Path::new(&aside).display()))
}

/// The files of stored profiles. What an interrupted replacement left is removed.
fn stored(directory: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(NEW) {
            fs::remove_file(&path)?;
        } else if let Some(name) = name.strip_suffix(".toml") {
            found.insert(name.to_owned(), path.clone());
        }
    }
    Ok(found)
}

/// Reads the file of a stored profile. A damaged one is set aside.
///
/// # Errors
/// In words, the damage and the new place of the file.
pub(crate) fn read_profile(path: &Path) -> Result<Profile, String> {
    let why = match Profile::from_file(path) {
        Ok(profile) if path.file_name() == Some(file_name(profile.name()).as_ref()) => {
            return Ok(profile);
        }
        Ok(profile) => format!("it has the name {:?}", profile.name()),
        Err(error) => error.to_string(),
    };
    tracing::warn!(path = %path.display(), why, "a stored profile");
    Err(put_aside(path).unwrap_or_else(|error| {
        format!("{} is damaged, and cannot be put aside: {error}", path.display())
    }))
}

/// The state, and how it is written; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Saver(Arc<Saved>);

#[derive(Debug)]
struct Saved {
    directory: Option<Directory>,
    state: watch::Sender<State>,
    /// One at a time writes the file, and what it writes is the state of that time.
    writing: Mutex<()>,
    /// Why the last attempt to write the file failed; none after a successful one.
    failure: watch::Sender<Option<String>>,
}

impl Saver {
    /// Begins with `state`; without a directory nothing is written.
    pub fn new(directory: Option<Directory>, state: State) -> Self {
        let state = watch::Sender::new(state);
        let (writing, failure) = (Mutex::new(()), watch::Sender::new(None));
        Self(Arc::new(Saved { directory, state, writing, failure }))
    }

    /// The saver of another link than `main`, in a part of the directory.
    ///
    /// # Errors
    /// If that part cannot be made.
    pub fn of_link(&self, name: &str, state: State) -> io::Result<Self> {
        let directory = self.0.directory.as_ref().map(|it| it.of_link(name)).transpose()?;
        Ok(Self::new(directory, state))
    }

    /// Forgets the state of another link.
    pub async fn forget(&self, name: String) -> io::Result<()> {
        self.on_disk(move |directory| directory.forget(&name)).await
    }

    /// Does something in the directory, if there is one, and waits for the disk.
    pub async fn on_disk(
        &self,
        work: impl FnOnce(&Directory) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let this = self.clone();
        let work = move || this.0.directory.as_ref().map_or(Ok(()), work);
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// As it is.
    pub fn state(&self) -> State {
        self.0.state.borrow().clone()
    }

    /// Changes it; it is written soon.
    pub fn update(&self, change: impl FnOnce(&mut State)) {
        self.0.state.send_modify(change);
    }

    /// The directory.
    pub fn directory(&self) -> Option<PathBuf> {
        self.0.directory.as_ref().map(|directory| directory.path.clone())
    }

    /// Whether there is a directory to write to.
    pub fn has_directory(&self) -> bool {
        self.0.directory.is_some()
    }

    /// Why the last attempt to write the state failed; none after a successful one. Its receiver
    /// is notified when writing begins to fail and when it succeeds again.
    pub fn failure(&self) -> watch::Receiver<Option<String>> {
        self.0.failure.subscribe()
    }

    /// Records that the lease has ended, which the state says already, and waits for the disk.
    pub async fn end_lease(&self) -> io::Result<()> {
        let this = self.clone();
        let end = move |directory: &Directory| {
            // A write that began before would mark it again.
            let _one_at_a_time = this.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
            directory.end_leases(None)
        };
        self.on_disk(end).await
    }

    /// Writes it as it is, and waits for the disk.
    pub async fn save(&self) -> io::Result<()> {
        let this = self.clone();
        let write = move |directory: &Directory| {
            let _one_at_a_time = this.0.writing.lock().unwrap_or_else(PoisonError::into_inner);
            directory.write(&this.state())
        };
        let saved = self.on_disk(write).await;
        let failure = saved.as_ref().err().map(ToString::to_string);
        self.0.failure.send_if_modified(|known| {
            let is_news = known.is_some() != failure.is_some();
            *known = failure;
            is_news
        });
        saved
    }

    /// Writes changes, until dropped. [`Self::failure`] reports errors.
    pub async fn run(&self) {
        let mut changes = self.0.state.subscribe();
        while changes.changed().await.is_ok() {
            tokio::time::sleep(PAUSE).await;
            changes.mark_unchanged();
            if self.save().await.is_err() {
                tokio::time::sleep(RETRY).await;
                changes.mark_changed();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::power::{Files, Noted};
    use proto::dataplane::v1::Plan;

    fn state(generation: u64) -> State {
        let plan = Some(Plan { seed: generation, ..Plan::default() });
        State { plan, generation, instance: 7, ..State::default() }
    }

    #[test]
    fn a_power_cut_at_any_write_leaves_the_old_or_the_new_state() {
        let file = Path::new("d").join(FILE);
        for old in [None, Some(state(1))] {
            let mut power = Noted::default();
            disk::replace(&mut power, Path::new("d"), FILE, &encode(&state(2))).unwrap();
            let before: Files = old.iter().map(|old| (file.clone(), encode(old))).collect();
            let left = power.left_behind(&before);
            let mut found = [false; 2];
            for files in &left {
                let kept = files.get(&file).map(|bytes| decode(bytes).unwrap());
                assert!(kept == old || kept == Some(state(2)), "{kept:?}");
                found[usize::from(kept != old)] = true;
            }
            // A prefix of the file beside it for each byte, and both ends.
            assert!(left.len() > encode(&state(2)).len(), "{}", left.len());
            assert_eq!(found, [true; 2]);
        }
    }

    #[test]
    fn no_changed_byte_is_taken_for_a_state() {
        let good = encode(&state(3));
        assert_eq!(decode(&good), Some(state(3)));
        for n in 0..good.len() {
            assert_eq!(decode(&good[..n]), None, "cut at {n}");
            let mut bad = good.clone();
            bad[n] ^= 0x10;
            assert_eq!(decode(&bad), None, "byte {n}");
        }
    }

    #[test]
    fn what_was_written_is_read_and_what_is_damaged_is_put_aside() {
        let at = tempfile::tempdir().unwrap();
        let profile = profile::Catalog::built_in().get("geo-600").unwrap().clone();
        {
            let (directory, kept) = Directory::open(at.path()).unwrap();
            assert_eq!((kept.state, kept.profiles.len()), (State::default(), 0));
            directory.write(&state(4)).unwrap();
            directory.put_profile(&profile).unwrap();
            assert!(matches!(Directory::open(at.path()), Err(StateError::Taken(_))));
        }
        fs::write(at.path().join("profiles/half.toml.new"), "name").unwrap();
        fs::write(at.path().join("profiles/bad.toml"), "name = 1").unwrap();
        let (directory, kept) = Directory::open(at.path()).unwrap();
        assert_eq!((kept.state, kept.damage.len()), (state(4), 0));
        let names: Vec<_> = kept.profiles.keys().collect();
        assert_eq!(names, ["bad", "geo-600"]);
        assert_eq!(read_profile(&kept.profiles["geo-600"]).unwrap(), profile);
        let damage = read_profile(&kept.profiles["bad"]).unwrap_err();
        assert!(damage.contains("bad.toml is damaged: it is now"), "{damage}");
        assert!(at.path().join("profiles/bad.toml.damaged").exists());
        assert!(!at.path().join("profiles/half.toml.new").exists());
        directory.delete_profile("geo-600").unwrap();
        drop(directory);
        fs::write(at.path().join(FILE), "not a state").unwrap();
        let (_, kept) = Directory::open(at.path()).unwrap();
        assert_eq!((kept.state, kept.profiles.len(), kept.damage.len()), (State::default(), 0, 1));
        assert!(at.path().join("state.damaged").exists());
    }

    #[test]
    fn lease_ends_with_its_file_and_not_with_that_of_another_one() {
        let at = tempfile::tempdir().unwrap();
        let lease = Some(proto::linkemu::v1::Lease::default());
        let leased = |token: &str| State { lease: lease.clone(), token: token.into(), ..state(1) };
        let reopened = |directory: Directory| {
            drop(directory);
            let (directory, kept) = Directory::open(at.path()).unwrap();
            (directory, kept.state)
        };
        let (directory, _) = Directory::open(at.path()).unwrap();
        // That of an older linkd.
        disk::replace(&mut FileSystem, at.path(), FILE, &encode(&leased("old"))).unwrap();
        let (directory, kept) = reopened(directory);
        assert_eq!(kept, leased("old"));
        directory.write(&leased("a")).unwrap();
        directory.write(&leased("b")).unwrap();
        let (directory, kept) = reopened(directory);
        assert_eq!(kept, leased("b"));
        // The disk is full: the state cannot be written.
        fs::create_dir(at.path().join("state.new")).unwrap();
        directory.write(&state(1)).unwrap_err();
        directory.end_leases(None).unwrap();
        assert_eq!(reopened(directory).1, state(1));
    }

    #[test]
    fn link_name_cannot_lead_out_of_its_directory() {
        let at = tempfile::tempdir().unwrap();
        let (directory, _) = Directory::open(at.path()).unwrap();
        directory.write(&state(5)).unwrap();
        directory.of_link("lab1").unwrap().write(&state(6)).unwrap();
        for name in ["", ".", "..", "/", "lab1/", "lab1/.", "../links", "a/b", "/tmp"] {
            let refused = directory.of_link(name).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{name}");
            assert!(directory.forget(name).is_err(), "{name}");
        }
        directory.forget("lab2").unwrap();
        drop(directory);
        let (directory, kept) = Directory::open(at.path()).unwrap();
        assert_eq!((kept.state, &kept.links["lab1"]), (state(5), &state(6)));
        directory.forget("lab1").unwrap();
        drop(directory);
        let (_, kept) = Directory::open(at.path()).unwrap();
        assert_eq!((kept.state, kept.links.len()), (state(5), 0));
    }
}
