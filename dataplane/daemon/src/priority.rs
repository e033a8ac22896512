// SPDX-License-Identifier: Apache-2.0
//! The scheduling priority of the dataplane.
//!
//! A worker that shares its core with other programs is late by their time slices. Two values of the kernel
//! decide (`man 7 sched`): the nice value of a thread counts among the threads of its session, and where
//! the kernel groups threads by session (autogroup), the value of the group counts among sessions. The
//! second one is set only if the process leads its session: otherwise a shell and its other jobs would get
//! the priority too. A service manager and `linkctl run` start it as a leader.

use std::fs;
use std::io;

use nix::unistd::{getpid, getsid};
use rustix::process::{getpriority_process, setpriority_process};

/// A worker that polls on a shared core leaves a tenth of it to other programs.
const DEFAULT: i8 = -10;
const AUTOGROUP: &str = "/proc/self/autogroup";
const ENABLED: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// Which part of a priority is in force.
#[derive(Debug)]
pub enum Priority {
    Set,
    /// The system does not permit it.
    Refused(io::Error),
    /// Other sessions have an equal share of the processors all the same.
    InSession,
}

/// The value to set: `given`, or else [`DEFAULT`], unless the process was started with a higher priority.
#[must_use]
pub fn choose(given: Option<i8>) -> i8 {
    let own = getpriority_process(None).ok().and_then(|nice| i8::try_from(nice).ok());
    given.unwrap_or(own.unwrap_or(0).min(DEFAULT))
}

/// Sets the nice value of the calling thread, which new threads inherit, and of its session's group.
#[must_use]
pub fn set(nice: i8) -> Priority {
    let is_grouped = fs::read_to_string(ENABLED).is_ok_and(|text| text.trim() == "1");
    // The session is 0 if it was made outside of the process namespace, as in a container.
    let leads = getsid(None).is_ok_and(|session| session == getpid());
    let mut result = setpriority_process(None, nice.into()).map_err(io::Error::from);
    if is_grouped && leads {
        result = result.and_then(|()| fs::write(AUTOGROUP, nice.to_string()));
    }
    match result {
        Err(error) => Priority::Refused(error),
        Ok(()) if is_grouped && !leads => Priority::InSession,
        Ok(()) => Priority::Set,
    }
}

impl Priority {
    /// Logs the remedy where `nice` is not in force.
    pub fn log(&self, nice: i8) {
        match self {
            Self::Set => {}
            Self::Refused(error) => tracing::info!(
                nice,
                %error,
                "the system does not permit this priority: packets are late while other programs use the \
                 cores of workers; start it as root or with CAP_SYS_NICE, or give --nice 0"
            ),
            Self::InSession => tracing::info!(
                nice,
                "the priority counts only among programs of this session: start it as a service or with \
                 `setsid`"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// The nice value of the calling thread (`man 5 proc_pid_stat`, field 19).
    fn own() -> String {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().to_owned()
    }

    #[test]
    fn new_threads_inherit_the_nice_value() {
        // A thread of its own: without privileges it cannot be undone.
        let (set, value) =
            thread::spawn(|| (set(7), thread::spawn(own).join().unwrap())).join().unwrap();
        assert!(matches!(set, Priority::Set | Priority::InSession), "{set:?}");
        assert_eq!(value, "7");
    }

    #[test]
    fn default_lowers_no_priority() {
        let chosen = [choose(None), choose(Some(3))];
        assert_eq!(chosen, [DEFAULT.min(own().parse().unwrap()), 3]);
    }

    #[test]
    fn nice_value_beyond_the_permission_is_refused() {
        let outcome = thread::spawn(|| {
            for set in [caps::CapSet::Effective, caps::CapSet::Permitted] {
                caps::drop(None, set, caps::Capability::CAP_SYS_NICE).unwrap();
            }
            (set(-20), own())
        });
        let (outcome, value) = outcome.join().unwrap();
        assert!(matches!(outcome, Priority::Refused(_)), "{outcome:?}");
        assert_eq!(value, own());
    }
}
