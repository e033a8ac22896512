// SPDX-License-Identifier: Apache-2.0
//! Stops single threads of another process, as a tracer (ptrace(2)).

use std::fs;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// Stopped threads. They resume when this is dropped, on the thread that made it.
#[derive(Debug)]
pub struct Still(Vec<Pid>);

impl Still {
    /// Stops the threads of process `pid` with a name that satisfies `is_chosen`.
    pub fn stop(pid: u32, is_chosen: impl Fn(&str) -> bool) -> anyhow::Result<Self> {
        let mut still = Self(Vec::new());
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = thread?;
            let name = fs::read_to_string(thread.path().join("comm"))?;
            if !is_chosen(name.trim()) {
                continue;
            }
            let id = Pid::from_raw(thread.file_name().to_string_lossy().parse()?);
            ptrace::seize(id, ptrace::Options::empty())?;
            still.0.push(id);
            ptrace::interrupt(id)?;
            waitpid(id, Some(WaitPidFlag::__WALL))?;
        }
        anyhow::ensure!(!still.0.is_empty(), "process {pid} has no such thread");
        Ok(still)
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        for thread in &self.0 {
            // A thread that has ended is detached already.
            let _ = ptrace::detach(*thread, None);
        }
    }
}
