// SPDX-License-Identifier: Apache-2.0
//! The service manager's side of sd_notify(3): a socket that receives the messages of a daemon.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use smoke::directory::Directory;
use smoke::error::Error;

/// A service manager with a watchdog.
#[derive(Debug)]
pub struct Manager {
    directory: Directory,
    socket: UnixDatagram,
}

impl Manager {
    pub fn new() -> anyhow::Result<Self> {
        let directory = Directory::new()?;
        let socket = UnixDatagram::bind(directory.path("notify"))?;
        Ok(Self { directory, socket })
    }

    /// Directory for the daemon's sockets.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Command of the daemon `program`, with the environment of this service manager.
    #[must_use]
    pub fn command(&self, program: &Path, watchdog: Duration) -> Command {
        let mut command = Command::new(program);
        command.env("NOTIFY_SOCKET", self.directory.path("notify"));
        command.env("WATCHDOG_USEC", watchdog.as_micros().to_string()).env_remove("WATCHDOG_PID");
        command
    }

    /// The next message, if one arrives within `limit`.
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

    /// Waits until `state` is reported, and returns the whole message.
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
