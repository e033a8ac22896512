// SPDX-License-Identifier: Apache-2.0
//! linkd in-process with a fake dataplane, and the binary that talks to it.

use fake::{FakeDataplane, Running};
use linkd::{Security, Server, Settings};
use profile::Catalog;
use proto::linkemu::v1 as pb;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// linkd in a separate runtime, so that the test may block on linkctl.
pub struct Lab {
    pub directory: TempDir,
    pub fake: FakeDataplane,
    pub running: Option<Running>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Lab {
    pub fn new() -> Self {
        Self::with(|_| Security::default()).0
    }

    /// With other settings, which may need the lab's directory.
    pub fn with(security: impl FnOnce(&Path) -> Security) -> (Self, Option<SocketAddr>) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let fake = FakeDataplane::default();
        let running = Some(fake.serve(&at("dataplane.sock")).unwrap());
        let mut lab = Self { directory, fake, running, stop: None, thread: None };
        let address = lab.start_with(security);
        (lab, address)
    }

    pub fn start(&mut self) {
        self.start_with(|_| Security::default());
    }

    fn start_with(&mut self, security: impl FnOnce(&Path) -> Security) -> Option<SocketAddr> {
        let settings = Settings {
            socket: self.at("linkd.sock"),
            dataplane: self.at("dataplane.sock"),
            catalog: Catalog::built_in(),
            state: None,
            security: security(self.directory.path()),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(async { Server::bind(settings) }).unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let stopped = async {
                let _ = stopped.await;
            };
            runtime.block_on(server.serve(stopped)).unwrap();
        });
        (self.stop, self.thread) = (Some(stop), Some(thread));
        address
    }

    /// Ends linkd; the dataplane stays.
    pub fn stop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linkctl"));
        for name in ["LINKEMU_SERVER", "LINKEMU_CA", "LINKEMU_CERT", "LINKEMU_KEY"] {
            command.env_remove(name);
        }
        command.env("LINKEMU_SOCKET", self.at("linkd.sock")).current_dir(self.directory.path());
        command.args(line.split_whitespace());
        command
    }

    pub fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Standard output of a command that is done.
    pub fn done(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{line}");
        text(&output.stdout)
    }

    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.done(line)).unwrap()
    }

    /// Standard error of a command that ends with `code`.
    pub fn fails(&self, code: i32, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {}", text(&output.stderr));
        text(&output.stderr)
    }

    pub fn link(&self) -> pb::Profile {
        self.fake.state().plan.clone().unwrap().profile.unwrap()
    }

    pub fn forward(&self) -> pb::Pipe {
        self.link().forward_pipe.unwrap()
    }

    pub fn back(&self) -> pb::Pipe {
        self.link().return_pipe.unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
