// SPDX-License-Identifier: Apache-2.0
//! The unix socket that a process serves, and its claim to the path.
//!
//! The claim is a lock on a file beside the socket, `PATH.lock`, held for the life of the process.
//! The kernel releases it when the process ends for any reason, so a socket without a held lock is
//! stale and may be removed.

pub mod errors;
pub mod files;
pub mod log;
pub mod session;
pub mod supervisor;

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Group;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Owner and group may connect.
const MODE: u32 = 0o660;
/// Valid bits of a socket's mode. Write permission is permission to connect.
const MODES: u32 = 0o777;
/// `sun_path` minus the terminating zero and the suffix used while the socket is created.
const PATH_BYTES: usize = 107 - NEW.len();
const NEW: &str = ".new";

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another process holds the lock.
    #[error("another {program}{} serves {}: stop it, or give another --socket", pid.map_or(String::new(), |pid| format!(" (pid {pid})")), path.display())]
    Taken {
        program: &'static str,
        path: PathBuf,
        /// Process id of the other process, if known.
        pid: Option<u32>,
    },
    /// A program without a lock answers at the path.
    #[error("{} is served by another program: stop it, or give another --socket", .0.display())]
    Served(PathBuf),
    /// The path is not a socket.
    #[error("{} exists and is not a socket: move it away, or give another --socket", .0.display())]
    NotASocket(PathBuf),
    /// The path is too long.
    #[error("the path {} has {} bytes, more than the {PATH_BYTES} of a socket path: give a shorter --socket", .0.display(), .0.as_os_str().len())]
    TooLong(PathBuf),
    /// The group does not exist.
    #[error("there is no group {0:?}: make it (groupadd), or give another --socket-group")]
    NoGroup(String),
    #[error("cannot {what} {}: {source}; give a --socket in a directory of yours, such as ./link.sock", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

fn failed<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> SocketError + 'a {
    move |source| SocketError::Io { what, path: path.into(), source }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    pub mode: u32,
    /// Group name. Without one, the group of the process.
    pub group: Option<String>,
}

impl Default for Permissions {
    fn default() -> Self {
        Self { mode: MODE, group: None }
    }
}

/// A socket owned by this process. Drop removes the socket and the lock.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    lock_path: PathBuf,
    /// Device and inode of the socket, so that drop removes no other socket.
    identity: (u64, u64),
    _lock: Flock<File>,
}

impl Claim {
    /// Locks the path and listens on it. `program` appears in error messages.
    ///
    /// # Errors
    /// [`SocketError`]. The directory may have been created.
    pub fn new(path: &Path, program: &'static str) -> Result<(Self, UnixListener), SocketError> {
        Self::with(path, program, &Permissions::default())
    }

    /// As [`Claim::new`], with other permissions.
    ///
    /// # Errors
    /// [`SocketError`]. The directory may have been created.
    pub fn with(
        path: &Path,
        program: &'static str,
        permissions: &Permissions,
    ) -> Result<(Self, UnixListener), SocketError> {
        let group = permissions.group.as_deref().map(gid).transpose()?;
        if path.as_os_str().len() > PATH_BYTES {
            return Err(SocketError::TooLong(path.into()));
        }
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(failed("create the directory", parent))?;
        }
        let lock_path = with_suffix(path, ".lock");
        let lock = lock(path, &lock_path, program)?;
        let (listener, identity) = listen(path, permissions.mode & MODES, group)?;
        Ok((Self { path: path.into(), lock_path, identity, _lock: lock }, listener))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let ours = |m: fs::Metadata| (m.dev(), m.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            let _ = fs::remove_file(&self.path);
        }
        // Still locked: a process that opened it meanwhile finds another inode.
        let _ = fs::remove_file(&self.lock_path);
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn lock(path: &Path, lock_path: &Path, program: &'static str) -> Result<Flock<File>, SocketError> {
    let io = || failed("lock", lock_path);
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o640)
            .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
            .open(lock_path)
            .map_err(io())?;
        let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                let pid = text.trim().parse().ok();
                return Err(SocketError::Taken { program, path: path.into(), pid });
            }
            Err((_, errno)) => return Err(io()(errno.into())),
        };
        // The previous holder may have removed the file that we opened.
        let held = lock.metadata().map_err(io())?;
        match fs::symlink_metadata(lock_path) {
            Ok(there) if (there.dev(), there.ino()) == (held.dev(), held.ino()) => {}
            _ => continue,
        }
        let pid = std::process::id();
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{pid}"))
            .map_err(io())?;
        return Ok(lock);
    }
}

fn gid(name: &str) -> Result<u32, SocketError> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        _ => Err(SocketError::NoGroup(name.to_owned())),
    }
}

fn listen(
    path: &Path,
    mode: u32,
    group: Option<u32>,
) -> Result<(UnixListener, (u64, u64)), SocketError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("look at", path)(error)),
        Ok(there) if !there.file_type().is_socket() => {
            return Err(SocketError::NotASocket(path.into()));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(SocketError::Served(path.into())),
        Ok(_) => {}
    }
    // Created under a temporary name and renamed, so that it never has other permissions. The
    // rename replaces a stale socket.
    let new = with_suffix(path, NEW);
    let io = || failed("listen on", path);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io()(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&new).map_err(io())?;
    if group.is_some() {
        chown(&new, None, group).map_err(failed("change the group of", path))?;
    }
    fs::set_permissions(&new, fs::Permissions::from_mode(mode)).map_err(io())?;
    listener.set_nonblocking(true).map_err(io())?;
    fs::rename(&new, path).map_err(io())?;
    let there = fs::symlink_metadata(path).map_err(io())?;
    Ok((listener, (there.dev(), there.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_is_exclusive_and_leaves_no_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made/linkd.sock");
        let (claim, _listener) = Claim::new(&path, "linkd").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        let error = Claim::new(&path, "linkd").unwrap_err();
        assert!(
            matches!(error, SocketError::Taken { pid: Some(pid), .. } if pid == std::process::id())
        );
        assert!(error.to_string().contains("another linkd (pid "), "{error}");
        drop(claim);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
        Claim::new(&path, "linkd").unwrap();
    }

    #[test]
    fn socket_has_the_given_mode_and_group() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("linkd.sock");
        let own = Group::from_gid(nix::unistd::getegid()).unwrap().unwrap();
        let permissions = Permissions { mode: 0o600, group: Some(own.name) };
        let (_claim, _listener) = Claim::with(&path, "linkd", &permissions).unwrap();
        let there = fs::metadata(&path).unwrap();
        assert_eq!(there.permissions().mode() & 0o777, 0o600);
        assert_eq!(there.gid(), own.gid.as_raw());
        let nobody = Permissions { group: Some("no such group".into()), ..Permissions::default() };
        let error = Claim::with(&path, "linkd", &nobody).unwrap_err();
        assert!(error.to_string().contains("--socket-group"), "{error}");
    }

    #[test]
    fn stale_socket_is_replaced_and_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("linkd.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Claim::new(&path, "linkd").unwrap());
        let _other = UnixListener::bind(&path).unwrap();
        assert!(matches!(Claim::new(&path, "linkd"), Err(SocketError::Served(_))));
        assert!(path.exists());
    }

    #[test]
    fn file_that_is_not_a_socket_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("precious");
        fs::write(&path, "text").unwrap();
        assert!(matches!(Claim::new(&path, "linkd"), Err(SocketError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        let long = directory.path().join("x".repeat(200));
        assert!(matches!(Claim::new(&long, "linkd"), Err(SocketError::TooLong(_))));
    }
}
