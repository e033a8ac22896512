// SPDX-License-Identifier: Apache-2.0
//! A Debian system that is booted by systemd-nspawn on a root of `scripts/setup.sh package`.
//!
//! The root is only read: what the system writes goes into a memory file system over it and is
//! gone with it. It has no network but what it makes itself. Its cgroups are in one of its own
//! in the unified hierarchy, also where the machine's own service manager does not run or uses
//! the older hierarchies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::unistd::Uid;
use smoke::binaries::Lack;
use smoke::process::{Outcome, Process, run, words};
use smoke::wait;

use crate::debs::{on_path, repository};

/// A boot takes seconds.
const BOOTED_WITHIN: Duration = Duration::from_secs(90);
/// What is run in it; installing packages takes longest.
const DONE_WITHIN: Duration = Duration::from_secs(180);

/// The releases that packages are for: of Debian, and by name.
pub const RELEASES: [(u32, &str); 2] = [(12, "bookworm"), (13, "trixie")];

/// The release of this machine, or the newest one where this machine has none of them: its tests
/// are the short form.
#[must_use]
pub fn own() -> &'static str {
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = system.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let [.., newest] = RELEASES;
    let found = RELEASES.iter().find(|(_, release)| Some(*release) == name);
    found.map_or(newest.1, |(_, release)| release)
}

/// A booted system; it is powered off when dropped.
#[derive(Debug)]
pub struct Machine {
    process: Process,
    leader: String,
    cgroup: PathBuf,
}

fn root(release: &str) -> PathBuf {
    repository().join("build/tools/roots").join(release)
}

/// Whether `release` can be booted here, with packages that are packed here.
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

/// Where cgroup2 is mounted, and the place of this process in it.
fn hierarchy() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let at = mounts.find(|m| m.get(2) == Some(&"cgroup2"))?.get(1).map(PathBuf::from)?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(at.join(own))
}

impl Machine {
    /// Boots `release`, which finds `share` at `/share`.
    pub fn boot(release: &str, share: &Path) -> anyhow::Result<Self> {
        let hierarchy = hierarchy().context("no cgroup2")?;
        let cgroup = hierarchy.join(format!("linkemu-{}-{release}", std::process::id()));
        fs::create_dir(&cgroup).with_context(|| format!("cannot make {}", cgroup.display()))?;
        let mut command = words(&["unshare", "--mount", "--propagation", "private", "sh", "-euc"]);
        // nspawn keeps its own state in /run.
        command.arg(
            "echo $$ >\"$1\"/cgroup.procs; mount -t tmpfs tmpfs /run; shift; exec systemd-nspawn \
             --quiet --boot --volatile=overlay --register=no --keep-unit --private-network \
             --capability=CAP_IPC_LOCK --console=pipe \"$@\"",
        );
        command.arg("boot").arg(&cgroup).arg("--directory").arg(root(release));
        command.arg(format!("--bind-ro={}:/share", share.display()));
        command.env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1").env("SYSTEMD_NSPAWN_LOCK", "0");
        // So that what is missing of /sys can be made.
        command.env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "1");
        let process = Process::spawn(command)?;
        let mut machine = Self { process, leader: String::new(), cgroup };
        let limit = BOOTED_WITHIN;
        machine.leader = wait::until("the system to boot", limit, || Ok(machine.booted()))
            .with_context(|| machine.process.stderr())?;
        // nspawn shows a part of /sys only, and EAL does not start where it cannot look for a
        // module.
        machine.sh("mkdir -p /sys/module")?;
        // There is no network to wait for: what is ordered after network-online.target would start
        // only when this service gives up after two minutes.
        machine.sh("systemctl mask --runtime --now systemd-networkd-wait-online.service")?;
        Ok(machine)
    }

    /// Its first process, once it has booted.
    fn booted(&mut self) -> Option<String> {
        let pid = self.process.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let leader = children.split_whitespace().next()?.to_owned();
        // On the way it has children that are no system.
        if fs::read_to_string(format!("/proc/{leader}/comm")).ok()?.trim() != "systemd" {
            return None;
        }
        let asked =
            run(entering(&leader, &["systemctl", "is-system-running"]), DONE_WITHIN).ok()?;
        matches!(asked.stdout.trim(), "running" | "degraded").then_some(leader)
    }

    /// Runs a command in it to its end, whatever its exit code.
    pub fn run(&self, argv: &[&str]) -> anyhow::Result<Outcome> {
        Ok(run(entering(&self.leader, argv), DONE_WITHIN)?)
    }

    /// What a shell script prints in it.
    pub fn sh(&self, script: &str) -> anyhow::Result<String> {
        let done = self.run(&["sh", "-euc", script])?;
        if done.status.success() {
            return Ok(done.stdout);
        }
        let journal = self.run(&["journalctl", "--no-pager", "--quiet", "--lines", "30"])?.stdout;
        bail!("`{script}` failed: {}{}\njournal:\n{journal}", done.stdout, done.stderr)
    }

    /// Waits until a script succeeds in it; what it prints.
    pub fn until(&self, what: &str, limit: Duration, script: &str) -> anyhow::Result<String> {
        let tried = wait::until(what, limit, || {
            let done = run(entering(&self.leader, &["sh", "-euc", script]), DONE_WITHIN)?;
            Ok(done.status.success().then_some(done.stdout))
        });
        match tried {
            Ok(printed) => Ok(printed),
            // For what it says; it may also have come true just now.
            Err(error) => self
                .sh(script)
                .map_err(|said| anyhow::Error::from(error).context(format!("{said:#}"))),
        }
    }
}

/// A command in the system whose first process is `leader`.
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
        // The kernel takes a moment to see that a group is empty.
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
