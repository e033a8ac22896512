// SPDX-License-Identifier: Apache-2.0
//! Readiness and watchdog: the real daemons, and a socket as service manager.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use nix::sys::signal::Signal;
use package::manager::Manager;
use smoke::binaries::{Binaries, Lack};
use smoke::process::Process;
use smoke::still::Still;

/// Longest start or notification on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// Timeout of the watchdog. Notifications are due twice as often.
const WATCHDOG: Duration = Duration::from_millis(400);
/// Several times the silence that ends in a kill. A slow machine makes it no shorter.
const SILENCE: Duration = Duration::from_secs(2);
const ALIVE: &str = "WATCHDOG=1";

fn programs() -> anyhow::Result<Binaries> {
    Binaries::find()
        .map_err(|(Lack::Part(reason) | Lack::Permission(reason))| anyhow::anyhow!("{reason}"))
}

struct Daemon {
    manager: Manager,
    process: Process,
    socket: PathBuf,
}

impl Daemon {
    fn start(program: &Path, options: impl FnOnce(&Manager, &mut Command)) -> anyhow::Result<Self> {
        let manager = Manager::new()?;
        let socket = manager.directory().path("daemon.sock");
        let mut command = manager.command(program, WATCHDOG);
        command.arg("--socket").arg(&socket);
        for variable in ["LINKEMU_SOCKET", "LINKEMU_DATAPLANE", "LINKEMU_STATE", "LINKEMU_METRICS"]
        {
            command.env_remove(variable);
        }
        options(&manager, &mut command);
        let process = Process::spawn(command)?;
        Ok(Self { manager, process, socket })
    }

    /// Two ports without traffic, and one worker.
    fn dataplane() -> anyhow::Result<Self> {
        Self::start(&programs()?.dataplane, |_, command| {
            command.args(["--port", "wan=net_null0,no-rx=1", "--port", "client=net_null1,no-rx=1"]);
            command.args(["--huge", "off", "--memory", "64 MiB", "--idle", "adaptive"]);
        })
    }

    fn linkd() -> anyhow::Result<Self> {
        Self::start(&programs()?.linkd, |manager, command| {
            command.arg("--dataplane").arg(manager.directory().path("none.sock"));
        })
    }

    /// Reports ready with a status, then the watchdog regularly, then stopping.
    fn lives(mut self, words: &str) -> anyhow::Result<()> {
        let told = self.manager.hears("READY=1", SOON).map_err(|e| e.context(self.stderr()))?;
        ensure!(UnixStream::connect(&self.socket).is_ok(), "ready, and nobody listens");
        let status = told.lines().find_map(|line| line.strip_prefix("STATUS="));
        ensure!(status.is_some_and(|status| status.contains(words)), "{told}");
        for _ in 0..3 {
            self.manager.hears(ALIVE, SOON)?;
        }
        self.process.signal(Signal::SIGTERM);
        self.manager.hears("STOPPING=1", SOON)?;
        let ended = self.process.wait(SOON)?;
        ensure!(ended.success(), "{ended}: {}", self.stderr());
        Ok(())
    }

    /// No watchdog notification while the chosen threads are stopped, and notifications again
    /// afterwards.
    fn falls_silent(self, is_chosen: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        self.manager.hears(ALIVE, SOON).map_err(|e| e.context(self.stderr()))?;
        let still = Still::stop(self.process.pid(), is_chosen)?;
        // Notifications from before the stop can still arrive.
        while self.manager.heard(WATCHDOG * 2)?.is_some() {}
        let told = self.manager.heard(SILENCE)?;
        ensure!(told.is_none(), "threads are stopped, and it notifies {told:?}");
        drop(still);
        self.manager.hears(ALIVE, SOON)?;
        Ok(())
    }

    fn stderr(&self) -> String {
        self.process.stderr()
    }
}

pub fn dataplane_notifies_ready_and_stopping() -> anyhow::Result<()> {
    Daemon::dataplane()?.lives("wan net_null0,no-rx=1")
}

pub fn stalled_worker_stops_watchdog_of_dataplane() -> anyhow::Result<()> {
    Daemon::dataplane()?.falls_silent(|name| name == "worker-0")
}

pub fn linkd_notifies_ready_and_stopping() -> anyhow::Result<()> {
    Daemon::linkd()?.lives("daemon.sock")
}

pub fn stalled_runtime_stops_watchdog_of_linkd() -> anyhow::Result<()> {
    // All threads except the first, which has the name of the program.
    Daemon::linkd()?.falls_silent(|name| name.starts_with("tokio-"))
}

pub fn missing_manager_stops_no_daemon() -> anyhow::Result<()> {
    for mut daemon in [Daemon::dataplane()?, Daemon::linkd()?] {
        daemon.manager.hears("READY=1", SOON).map_err(|e| e.context(daemon.stderr()))?;
        std::fs::remove_file(daemon.manager.directory().path("notify"))?;
        smoke::wait::until("a word about it", SOON, || {
            Ok(daemon.process.stderr().contains("NOTIFY_SOCKET").then_some(()))
        })?;
        ensure!(daemon.process.ended().is_none(), "{}", daemon.stderr());
        ensure!(UnixStream::connect(&daemon.socket).is_ok(), "it does not serve");
        daemon.process.signal(Signal::SIGTERM);
        ensure!(daemon.process.wait(SOON)?.success(), "{}", daemon.stderr());
    }
    Ok(())
}
