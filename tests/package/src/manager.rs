// SPDX-License-Identifier: Apache-2.0
//! The service manager's side of sd_notify(3): a socket that hears what a daemon tells, and a
//! way to make one thread of it stand still.

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use smoke::directory::Directory;
use smoke::error::Error;

/// A service manager with a watchdog.
#[derive(Debug)]
pub struct Manager {
    directory: Directory,
    socket: UnixDatagram,
}

impl Manager {
    /// One that listens.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn new() -> anyhow::Result<Self> {
        let directory = Directory::new()?;
        let socket = UnixDatagram::bind(directory.path("notify"))?;
        Ok(Self { directory, socket })
    }

    /// A directory for the daemon's sockets.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The daemon `program`, as this service manager starts it.
    #[must_use]
    pub fn command(&self, program: &Path, watchdog: Duration) -> Command {
        let mut command = Command::new(program);
        command.env("NOTIFY_SOCKET", self.directory.path("notify"));
        command.env("WATCHDOG_USEC", watchdog.as_micros().to_string()).env_remove("WATCHDOG_PID");
        command
    }

    /// What is told next, if anything is within `limit`.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn heard(&self, limit: Duration) -> io::Result<Option<String>> {
        let mut told = [0; 4096];
        self.socket.set_read_timeout(Some(limit))?;
        match self.socket.recv(&mut told) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&told[..bytes]).into_owned())),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until `state` is told; the whole message.
    ///
    /// # Errors
    /// If it is not within `limit`.
    pub fn hears(&self, state: &str, limit: Duration) -> anyhow::Result<String> {
        let deadline = Instant::now() + limit;
        while let Some(told) = self.heard(
            deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)),
        )? {
            if told.lines().any(|line| line == state) {
                return Ok(told);
            }
        }
        Err(Error::Timeout { what: format!("notification {state}"), limit }.into())
    }
}

/// Threads of another process that stand still, one by one, and not the process: as its tracer
/// stops them. They move on when this is dropped, on the thread that made it.
#[derive(Debug)]
pub struct Still(Vec<Pid>);

impl Still {
    /// Stops the threads of process `pid` whose names `is_chosen`.
    ///
    /// # Errors
    /// If there is none, or the kernel refuses it.
    pub fn stop(pid: u32, is_chosen: impl Fn(&str) -> bool) -> anyhow::Result<Self> {
        let mut still = Self(Vec::new());
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = thread?;
            let name = fs::read_to_string(thread.path().join("comm"))?;
            if !is_chosen(name.trim()) {
                continue;
            }
            let id = Pid::from_raw(thread.file_name().to_string_lossy().parse()?);
            ptrace::seize(id, ptrace::Options::empty())?;
            still.0.push(id);
            ptrace::interrupt(id)?;
            waitpid(id, Some(WaitPidFlag::__WALL))?;
        }
        anyhow::ensure!(!still.0.is_empty(), "process {pid} has no such thread");
        Ok(still)
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        for thread in &self.0 {
            // One that has ended is let go already.
            let _ = ptrace::detach(*thread, None);
        }
    }
}
