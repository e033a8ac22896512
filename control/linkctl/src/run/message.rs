// SPDX-License-Identifier: Apache-2.0
//! What the processes of `linkctl run` tell each other: lines of JSON over a unix socket in the
//! run's directory. The end of the connection is the end of the run.

use super::address::Place;
use super::buffers::Sizes;
use super::ready::Ready;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Arguments of the processes inside the namespaces.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Directory of sockets and logs.
    pub directory: PathBuf,
    pub dataplane: PathBuf,
    pub linkd: PathBuf,
    /// Options of the dataplane besides ports and socket.
    pub options: Vec<String>,
    /// Terminal that the server writes to; without it, standard error.
    pub server_output: Option<PathBuf>,
    /// Whether a user namespace is needed: the caller may not make the others itself.
    pub unprivileged: bool,
    /// Whether the command is root in its user namespace.
    pub root: bool,
    pub uid: u32,
    pub gid: u32,
}

impl Setup {
    /// The caller's group in the user namespace.
    pub fn inner_gid(&self) -> u32 {
        if self.root { 0 } else { self.gid }
    }

    pub fn socket(&self) -> PathBuf {
        socket(&self.directory)
    }

    pub fn linkd_socket(&self) -> PathBuf {
        self.directory.join("linkd.sock")
    }

    pub fn dataplane_socket(&self) -> PathBuf {
        self.directory.join("dataplane.sock")
    }

    pub fn log(&self, program: &str) -> PathBuf {
        self.directory.join(format!("{program}.log"))
    }
}

/// Names of all files in a run's directory.
pub const FILES: [&str; 7] = [
    "run.sock",
    "linkd.sock",
    "linkd.sock.lock",
    "dataplane.sock",
    "dataplane.sock.lock",
    "linkd-dataplane.log",
    "linkd.log",
];

/// The socket of these messages in a run's directory.
pub fn socket(directory: &Path) -> PathBuf {
    directory.join("run.sock")
}

/// The server of the far host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    /// For a shell.
    pub command: String,
    pub ready: Ready,
}

/// From outside to the init process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Set up the hosts and start the programs.
    Begin(Place),
    /// Set the largest TCP buffers of both hosts.
    Buffers(Sizes),
    /// Start the server, and report when it is ready.
    Serve(Server),
    /// Start the command.
    Start,
    /// Send the command a signal.
    Signal(i32),
}

/// From the namespaces to the outside.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The namespaces have been made.
    Entered,
    /// The programs have been started.
    Begun,
    /// The server is ready.
    Serves,
    /// The command has ended with this status, as a shell gives it.
    Exited(u8),
    /// The command could not be started, with this status.
    NotStarted(u8, String),
    /// A program of linkemu has ended by itself: the link is gone.
    Ended(String),
    /// The server has ended by itself with this status.
    ServerEnded(u8),
    Failed(String),
}
