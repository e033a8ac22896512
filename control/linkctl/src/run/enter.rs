// SPDX-License-Identifier: Apache-2.0
//! The process between the outside and the namespaces: it makes the namespaces, starts the first
//! process in them, waits for its end and removes the run's directory.
//!
//! It survives a SIGKILL of `linkctl run`. Single-threaded, as the kernel requires.

use super::message::{Report, Setup};
use super::stale;
use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_name;
use nix::sys::signal::SigSet;
use nix::unistd::{Pid, setpgid};
use std::ffi::{CString, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Names of this program in the process list: of this process, and of the first one inside.
pub const ENTER: &str = "linkemu-enter";
pub const INIT: &str = "linkemu-init";

/// Arguments: the [`Setup`] in JSON, and the command.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    prepare(ENTER);
    let Some(text) = arguments.next() else { return ExitCode::FAILURE };
    let Ok(setup) = serde_json::from_str::<Setup>(&text.to_string_lossy()) else {
        return ExitCode::FAILURE;
    };
    // The other lock ends with `linkctl run`.
    let _held = stale::hold(&setup.directory);
    let entered = enter(&setup, text, arguments);
    if let Err(message) = &entered {
        tell(&setup, message);
    }
    // The files are gone if they are removed by the outside first.
    let _ = fs::remove_dir_all(&setup.directory);
    if entered.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Gives this process a name, so that a signal to all of a name ends the outside only, and removes
/// the signal mask of the outside.
pub fn prepare(name: &str) {
    let name = CString::new(name).unwrap_or_default();
    // Without either, the run still works.
    let _ = set_name(&name);
    let _ = SigSet::empty().thread_set_mask();
}

fn enter(
    setup: &Setup,
    text: OsString,
    command: impl Iterator<Item = OsString>,
) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID;
    if setup.unprivileged {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).map_err(|e| refused(setup, "make namespaces", e))?;
    if setup.unprivileged {
        map_ids(setup)?;
        keep(&caps::read(None, CapSet::Permitted).map_err(|e| e.to_string())?)?;
    }
    // Mounts of the namespaces stay in them.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>)
        .map_err(|e| refused(setup, "change mounts in a namespace", e))?;
    let mut init = Command::new(program)
        .arg0(INIT)
        .arg(text)
        .args(command)
        .spawn()
        .map_err(|e| format!("cannot start a process in the namespaces: {e}"))?;
    // Signals of the terminal and of the caller to their process group do not reach this process.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    init.wait().map_err(|e| format!("cannot wait for the end of the namespaces: {e}"))?;
    Ok(())
}

/// Maps the caller's user and group to themselves, or to root.
fn map_ids(setup: &Setup) -> Result<(), String> {
    let map = |id: u32| format!("{} {id} 1", if setup.root { 0 } else { id });
    for (file, text) in
        [("setgroups", "deny".to_owned()), ("uid_map", map(setup.uid)), ("gid_map", map(setup.gid))]
    {
        fs::write(format!("/proc/self/{file}"), text).map_err(|e| {
            let errno = Errno::from_raw(e.raw_os_error().unwrap_or(0));
            refused(setup, &format!("write /proc/self/{file}"), errno)
        })?;
    }
    Ok(())
}

/// Lets programs that are started have these capabilities, and no others that files do not give.
pub fn keep(capabilities: &CapsHashSet) -> Result<(), String> {
    let failed = |e| format!("cannot keep capabilities in the namespaces: {e}");
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    caps::set(None, CapSet::Inheritable, capabilities).map_err(failed)?;
    caps::set(None, CapSet::Ambient, capabilities).map_err(failed)
}

/// Capabilities of the command, within its namespaces: it may change its network.
pub fn of_command() -> CapsHashSet {
    [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_NET_BIND_SERVICE]
        .into_iter()
        .collect()
}

/// Why the kernel refuses namespaces, with the remedy.
fn refused(setup: &Setup, what: &str, errno: Errno) -> String {
    let setting = |key: &str| fs::read_to_string(format!("/proc/sys/{key}")).unwrap_or_default();
    let is = |key: &str, value: &str| setting(key).trim() == value;
    let failed = format!("cannot {what}: {}", errno.desc());
    let why = if is("user/max_user_namespaces", "0") {
        "user namespaces are switched off: as root, `sysctl user.max_user_namespaces=10000`"
    } else if is("kernel/unprivileged_userns_clone", "0") {
        "user namespaces are only for root: as root, `sysctl kernel.unprivileged_userns_clone=1`"
    } else if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor restricts user namespaces (Ubuntu 23.10 and later): as root, \
         `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
    } else if errno == Errno::ENOSPC || errno == Errno::EUSERS {
        "there are too many namespaces (user.max_user_namespaces, user.max_net_namespaces), or they \
         are nested too deeply: end some"
    } else if errno == Errno::EINVAL || errno == Errno::ENOSYS {
        "this kernel has no user, network or PID namespaces (CONFIG_USER_NS, CONFIG_NET_NS, \
         CONFIG_PID_NS)"
    } else if setup.unprivileged {
        "a container or another sandbox may forbid it: for Docker and Podman, give \
         `--security-opt seccomp=unconfined --security-opt apparmor=unconfined \
         --security-opt systempaths=unconfined`"
    } else {
        "a container or another sandbox may forbid it: for Docker and Podman, give \
         `--privileged`"
    };
    format!("{failed}: {why}")
}

/// Reports an error to the outside.
fn tell(setup: &Setup, message: &str) {
    let Ok(mut stream) = UnixStream::connect(setup.socket()) else { return };
    if let Ok(line) = serde_json::to_string(&Report::Failed(message.to_owned())) {
        let _ = writeln!(stream, "{line}");
    }
}
