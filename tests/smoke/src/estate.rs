// SPDX-License-Identifier: Apache-2.0
//! Child processes, network namespaces and directories that this process must remove.
//!
//! Owners clean up when they are dropped, also during a panic. A signal does not unwind, so
//! [`watch_signals`] has a thread that clears the same list. Processes are ended by id. An id is
//! removed from the list under the lock under which the process is reaped, so a reused id is never
//! signalled.

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

/// After a signal nothing new may be made: the caller waits for the end of the process.
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

/// Makes a child process and lists it in one step.
pub fn add_process<T>(make: impl FnOnce() -> Result<(T, u32)>) -> Result<T> {
    let mut guard = estate();
    let (made, pid) = make()?;
    guard.processes.push(pid);
    Ok(made)
}

/// Runs `reap`, and removes the process from the list if it was reaped.
pub fn reap_process<T>(pid: u32, reap: impl FnOnce() -> Option<T>) -> Option<T> {
    let mut guard = estate();
    let reaped = reap();
    if reaped.is_some() {
        guard.processes.retain(|&p| p != pid);
    }
    reaped
}

/// Makes a namespace and lists it in one step. It is listed even if `make` fails, because it may
/// exist in part.
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

/// Makes a directory and lists it in one step.
pub fn add_directory<T>(make: impl FnOnce() -> Result<(T, PathBuf)>) -> Result<T> {
    let mut guard = estate();
    let (made, path) = make()?;
    guard.directories.push(path);
    Ok(made)
}

/// Removes a directory from the list before its owner removes it from the disk.
pub fn forget_directory(path: &Path) {
    estate().directories.retain(|p| p != path);
}

/// Removes everything and exits at SIGINT, SIGTERM or SIGHUP. The signals are handled and not
/// blocked, because children would inherit a mask.
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

/// Whether a child has ended; its owner reaps it.
fn ended(pid: Pid) -> bool {
    use nix::sys::wait::WaitStatus::StillAlive;
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(pid), flags), Ok(StillAlive))
}

fn delete_namespace(name: &str) {
    let _ = Command::new("ip").args(["netns", "delete", name]).output();
}
