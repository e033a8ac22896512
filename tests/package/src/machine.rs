// SPDX-License-Identifier: Apache-2.0
//! A Debian system, booted by systemd-nspawn on a root of `scripts/setup.sh package`.
//!
//! The root is read-only: writes go to a memory file system over it and are lost at the end. The
//! system has no external network. Its cgroups are in a separate one in the unified hierarchy, also
//! on machines without a running service manager or with the older hierarchies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::unistd::Uid;
use smoke::binaries::Lack;
use smoke::process::{Outcome, Process, run, words};
use smoke::wait;

use crate::debs::{on_path, repository};

/// A boot takes seconds.
const BOOTED_WITHIN: Duration = Duration::from_secs(90);
/// Longest command in it: the installation of packages.
const DONE_WITHIN: Duration = Duration::from_secs(180);

/// Debian releases with packages, by number and name.
pub const RELEASES: [(u32, &str); 2] = [(12, "bookworm"), (13, "trixie")];

/// Release of this machine, or the newest one if this machine has another system. Its tests are the
/// short form.
#[must_use]
pub fn own() -> &'static str {
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = system.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let [.., newest] = RELEASES;
    let found = RELEASES.iter().find(|(_, release)| Some(*release) == name);
    found.map_or(newest.1, |(_, release)| release)
}

/// A booted system. It is powered off when dropped.
#[derive(Debug)]
pub struct Machine {
    process: Process,
    leader: String,
    cgroup: PathBuf,
}

fn root(release: &str) -> PathBuf {
    repository().join("build/tools/roots").join(release)
}

/// Whether `release` can be booted here, with packages built here.
pub fn check(release: &str) -> Result<(), Lack> {
    if !Uid::effective().is_root() {
        return Err(Lack::Permission(
            "booting a Debian system needs root: run it with sudo".into(),
        ));
    }
    if !on_path("systemd-nspawn") {
        return Err(Lack::Part(
            "there is no `systemd-nspawn`: apt-get install systemd-container, or run \
             scripts/setup.sh package"
                .into(),
        ));
    }
    if !root(release).join(".complete").is_file() {
        return Err(Lack::Part(format!(
            "there is no {}: run scripts/setup.sh {}",
            root(release).display(),
            if release == own() { "package" } else { "package-all" }
        )));
    }
    hierarchy().map(drop).ok_or_else(|| {
        Lack::Permission("no cgroup2 is mounted here: a booted system needs it".to_owned())
    })
}

/// Mount point of cgroup2, and the cgroup of this process.
fn hierarchy() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let at = mounts.find(|m| m.get(2) == Some(&"cgroup2"))?.get(1).map(PathBuf::from)?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(at.join(own))
}

impl Machine {
    /// Boots `release`, with `share` mounted at `/share`.
    pub fn boot(release: &str, share: &Path) -> anyhow::Result<Self> {
        let hierarchy = hierarchy().context("no cgroup2")?;
        // The one of an attempt before may not be empty yet.
        static BOOTED: AtomicU64 = AtomicU64::new(0);
        let number = BOOTED.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("linkemu-{}-{release}-{number}", std::process::id());
        let cgroup = hierarchy.join(cgroup);
        fs::create_dir(&cgroup).with_context(|| format!("cannot make {}", cgroup.display()))?;
        let mut command = words(&["unshare", "--mount", "--propagation", "private", "sh", "-euc"]);
        // nspawn keeps its state in /run.
        command.arg(
            "echo $$ >\"$1\"/cgroup.procs; mount -t tmpfs tmpfs /run; shift; exec systemd-nspawn \
             --quiet --boot --volatile=overlay --register=no --keep-unit --private-network \
             --capability=CAP_IPC_LOCK --console=pipe \"$@\"",
        );
        command.arg("boot").arg(&cgroup).arg("--directory").arg(root(release));
        command.arg(format!("--bind-ro={}:/share", share.display()));
        command.env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1").env("SYSTEMD_NSPAWN_LOCK", "0");
        // So that missing parts of /sys can be made.
        command.env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "1");
        let process = Process::spawn(command)?;
        let mut machine = Self { process, leader: String::new(), cgroup };
        let limit = BOOTED_WITHIN;
        machine.leader = wait::until("the system to boot", limit, || Ok(machine.booted()))
            .with_context(|| machine.process.stderr())?;
        // nspawn shows only a part of /sys, and EAL does not start if it cannot look for a module.
        machine.sh("mkdir -p /sys/module")?;
        // There is no network: units after network-online.target would start after the timeout of
        // this service, two minutes.
        machine.sh("systemctl mask --runtime --now systemd-networkd-wait-online.service")?;
        Ok(machine)
    }

    /// Its init process, after the boot.
    fn booted(&mut self) -> Option<String> {
        let pid = self.process.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let leader = children.split_whitespace().next()?.to_owned();
        // During the start it has other children.
        if fs::read_to_string(format!("/proc/{leader}/comm")).ok()?.trim() != "systemd" {
            return None;
        }
        let asked =
            run(entering(&leader, &["systemctl", "is-system-running"]), DONE_WITHIN).ok()?;
        matches!(asked.stdout.trim(), "running" | "degraded").then_some(leader)
    }

    /// Runs a command in it, and returns its output regardless of the exit code.
    pub fn run(&self, argv: &[&str]) -> anyhow::Result<Outcome> {
        Ok(run(entering(&self.leader, argv), DONE_WITHIN)?)
    }

    /// Output of a shell script in it.
    pub fn sh(&self, script: &str) -> anyhow::Result<String> {
        let done = self.run(&["sh", "-euc", script])?;
        if done.status.success() {
            return Ok(done.stdout);
        }
        let journal = self.run(&["journalctl", "--no-pager", "--quiet", "--lines", "30"])?.stdout;
        bail!("`{script}` failed: {}{}\njournal:\n{journal}", done.stdout, done.stderr)
    }

    /// Waits until a script succeeds in it, and returns its output.
    pub fn until(&self, what: &str, limit: Duration, script: &str) -> anyhow::Result<String> {
        let tried = wait::until(what, limit, || {
            let done = run(entering(&self.leader, &["sh", "-euc", script]), DONE_WITHIN)?;
            Ok(done.status.success().then_some(done.stdout))
        });
        match tried {
            Ok(printed) => Ok(printed),
            // Run again for its output; it can also have become true now.
            Err(error) => self
                .sh(script)
                .map_err(|said| anyhow::Error::from(error).context(format!("{said:#}"))),
        }
    }
}

/// A command in the system with the init process `leader`.
fn entering(leader: &str, argv: &[&str]) -> Command {
    let mut command = words(&["nsenter", "--target", leader]);
    command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]);
    command.args([
        "env",
        "--chdir=/",
        "-i",
        "HOME=/root",
        "LANG=C.UTF-8",
        "DEBIAN_FRONTEND=noninteractive",
    ]);
    command.args(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]).args(argv);
    command
}

impl Drop for Machine {
    fn drop(&mut self) {
        if !self.leader.is_empty() {
            let off = ["systemctl", "poweroff", "--force"];
            drop(run(entering(&self.leader, &off), DONE_WITHIN));
            drop(self.process.wait(BOOTED_WITHIN));
        }
        drop(self.process.kill());
        // On a starved machine its init outlives systemd-nspawn.
        drop(fs::write(self.cgroup.join("cgroup.kill"), "1"));
        // The kernel needs a moment to notice that a cgroup is empty.
        let removed = wait::until("the cgroups to be empty", DONE_WITHIN, || {
            Ok(remove(&self.cgroup).is_ok().then_some(()))
        });
        if let Err(error) = removed {
            eprintln!("cannot remove {}: {error}", self.cgroup.display());
        }
    }
}

/// Removes a cgroup and those below it.
fn remove(cgroup: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(cgroup)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(cgroup)
}
