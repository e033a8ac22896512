// SPDX-License-Identifier: Apache-2.0
//! Network namespaces. Each is one machine of the test bed.

use std::fs::{self, File};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

use crate::error::{Error, Result, Trying};
use crate::estate;
use crate::process::{run, words};

static COUNT: AtomicU32 = AtomicU32::new(0);

const LIMIT: Duration = Duration::from_secs(30);

/// A network namespace, removed when dropped or when a signal ends the run. Its name starts with
/// `lemu-` and the process id.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one with its loopback up and IPv6 disabled, so that no host sends unsolicited packets.
    pub fn new(role: &str) -> Result<Self> {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lemu-{}-{count}-{role}", std::process::id());
        let namespace = Self { name };
        // Not through `run`, because the estate is locked.
        estate::add_namespace(&namespace.name, || {
            let made = Command::new("ip")
                .args(["netns", "add", &namespace.name])
                .output()
                .trying(|| "start `ip`".to_owned())?;
            if made.status.success() {
                return Ok(());
            }
            Err(Error::Command {
                command: format!("ip netns add {}", namespace.name),
                outcome: made.status.to_string(),
                stderr: String::from_utf8_lossy(&made.stderr).trim().to_owned(),
            })
        })?;
        namespace.run(&["ip", "link", "set", "lo", "up"])?;
        for key in ["all", "default"] {
            namespace.sysctl(&format!("net/ipv6/conf/{key}/disable_ipv6"), "1").or_else(|e| {
                // A kernel without IPv6 sends none either.
                if fs::exists("/proc/sys/net/ipv6").unwrap_or(false) { Err(e) } else { Ok(()) }
            })?;
        }
        Ok(namespace)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs in it. `ip netns exec` becomes the program, so the child's id is the id
    /// of the program.
    #[must_use]
    pub fn command(&self, argv: &[&str]) -> Command {
        let mut command = words(&["ip", "netns", "exec", &self.name]);
        command.args(argv);
        command
    }

    /// Runs a short command in it, with the `/sys` of this process: `ip netns exec`, which mounts another one,
    /// takes several times as long as what `ip` or `ethtool` then does.
    pub fn run(&self, argv: &[&str]) -> Result<String> {
        let command = words(argv);
        self.enter(move || run(command, LIMIT)?.success())
    }

    /// As [`Namespace::run`], with a `/sys` that has the namespace's interfaces.
    pub fn run_with_sys(&self, argv: &[&str]) -> Result<String> {
        run(self.command(argv), LIMIT)?.success()
    }

    /// Runs a function in it, on a new thread.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> JoinHandle<Result<T>> {
        let name = self.name.clone();
        thread::spawn(move || {
            let path = format!("/run/netns/{name}");
            let file = File::open(&path).trying(|| format!("open {path}"))?;
            setns(file, CloneFlags::CLONE_NEWNET).trying(|| format!("enter {name}"))?;
            work()
        })
    }

    /// Runs a function in it and returns its result.
    pub fn enter<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        joined(self.spawn(work))
    }

    /// Sets a kernel parameter below `/proc/sys`.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let (path, value) = (format!("/proc/sys/{key}"), value.to_owned());
        self.enter(move || fs::write(&path, &value).trying(|| format!("write {value} to {path}")))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        estate::remove_namespace(&self.name);
    }
}

/// Result of a thread of [`Namespace::spawn`].
pub fn joined<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Error::parse("a thread of the test bed", "it panicked")))
}
