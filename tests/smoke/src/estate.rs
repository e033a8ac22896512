// SPDX-License-Identifier: Apache-2.0
//! What this process has made outside of itself and must not leave behind:
//! child processes, network namespaces and directories.
//!
//! Their owners clean up when they are dropped, also while a panic unwinds. A
//! signal unwinds nothing, so [`watch_signals`] has a thread of its own that takes
//! the same list and clears it. Processes are ended by their own id, and an id is
//! struck off the list under the same lock under which it is reaped, so that a
//! reused id is never hit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{Result, Trying};

#[derive(Debug)]
struct Estate {
    closing: bool,
    processes: Vec<u32>,
    namespaces: Vec<String>,
    directories: Vec<PathBuf>,
}

static ESTATE: Mutex<Estate> = Mutex::new(Estate {
    closing: false,
    processes: Vec::new(),
    namespaces: Vec::new(),
    directories: Vec::new(),
});

/// Once a signal has come nobody may make anything new: the caller waits for the
/// end of the process.
fn estate() -> MutexGuard<'static, Estate> {
    loop {
        let guard = ESTATE.lock().unwrap_or_else(PoisonError::into_inner);
        if !guard.closing {
            return guard;
        }
        drop(guard);
        thread::park();
    }
}

/// Makes a child process and lists it, as one step.
pub fn add_process<T>(make: impl FnOnce() -> Result<(T, u32)>) -> Result<T> {
    let mut guard = estate();
    let (made, pid) = make()?;
    guard.processes.push(pid);
    Ok(made)
}

/// Runs `reap`, and strikes the process off the list if it says that it reaped it.
pub fn reap_process<T>(pid: u32, reap: impl FnOnce() -> Option<T>) -> Option<T> {
    let mut guard = estate();
    let reaped = reap();
    if reaped.is_some() {
        guard.processes.retain(|&p| p != pid);
    }
    reaped
}

/// Makes a namespace and lists it, as one step. It is listed even if `make` fails,
/// since it may have got half of the way.
pub fn add_namespace(name: &str, make: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut guard = estate();
    guard.namespaces.push(name.to_owned());
    make()
}

pub fn remove_namespace(name: &str) {
    let mut guard = estate();
    delete_namespace(name);
    guard.namespaces.retain(|n| n != name);
}

/// Makes a directory and lists it, as one step.
pub fn add_directory<T>(make: impl FnOnce() -> Result<(T, PathBuf)>) -> Result<T> {
    let mut guard = estate();
    let (made, path) = make()?;
    guard.directories.push(path);
    Ok(made)
}

/// Strikes off a directory that its owner is about to remove.
pub fn forget_directory(path: &Path) {
    estate().directories.retain(|p| p != path);
}

/// Clears everything up and exits when SIGINT, SIGTERM or SIGHUP comes. The signals
/// are handled, not blocked: children would inherit a mask.
pub fn watch_signals() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .trying(|| "handle the signals that end the run".to_owned())?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            eprintln!("\nsignal {signal}: removing processes and namespaces");
            clear();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

fn clear() {
    let mut guard = ESTATE.lock().unwrap_or_else(PoisonError::into_inner);
    guard.closing = true;
    let pids: Vec<Pid> = guard.processes.iter().map(|&p| Pid::from_raw(p.cast_signed())).collect();
    for &pid in &pids {
        let _ = kill(pid, Signal::SIGTERM);
    }
    let deadline = Instant::now() + Duration::from_secs(3);
    while Instant::now() < deadline && !pids.iter().all(|&p| ended(p)) {
        thread::sleep(Duration::from_millis(20));
    }
    for &pid in &pids {
        if !ended(pid) {
            let _ = kill(pid, Signal::SIGKILL);
        }
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED);
    }
    for name in guard.namespaces.drain(..) {
        delete_namespace(&name);
    }
    for path in guard.directories.drain(..) {
        let _ = std::fs::remove_dir_all(path);
    }
}

/// Whether a child has ended; leaves it to its owner to reap.
fn ended(pid: Pid) -> bool {
    use nix::sys::wait::WaitStatus::StillAlive;
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(pid), flags), Ok(StillAlive))
}

fn delete_namespace(name: &str) {
    let _ = Command::new("ip").args(["netns", "delete", name]).output();
}
