// SPDX-License-Identifier: Apache-2.0
//! Processors for the emulator and for the hosts.
//!
//! The emulator's worker polls on the last one. All else, including the network stacks of the hosts
//! (by RPS), uses the others if there are any. On a machine with one processor they share it.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Division of this machine's processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    all: Vec<usize>,
}

impl Cpus {
    /// Processors that this process may use. Call it before [`Cpus::keep_to_hosts`].
    #[must_use]
    pub fn available() -> Self {
        let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let all = (0..CpuSet::count()).filter(|&c| set.is_set(c).unwrap_or(false)).collect();
        Self { all }
    }

    #[must_use]
    pub fn all(&self) -> &[usize] {
        &self.all
    }

    /// Processor for the emulator's worker.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.all.last().copied().unwrap_or(0)
    }

    /// Processors for a number of workers, as `linkd-dataplane --core` takes them: the last ones.
    #[must_use]
    pub fn workers(&self, count: usize) -> String {
        list(&self.all[self.all.len().saturating_sub(count)..])
    }

    #[must_use]
    pub fn hosts(&self) -> &[usize] {
        match self.all.split_last() {
            Some((_, rest)) if !rest.is_empty() => rest,
            _ => &self.all,
        }
    }

    /// All processors, as `taskset -c` takes them.
    #[must_use]
    pub fn list(&self) -> String {
        list(&self.all)
    }

    /// Processors of the hosts, as `rps_cpus` takes them: hexadecimal words, highest first.
    #[must_use]
    pub fn rps_mask(&self) -> String {
        let words = self.hosts().iter().max().map_or(1, |&c| c / 32 + 1);
        let mut mask = vec![0u32; words];
        for &cpu in self.hosts() {
            mask[words - 1 - cpu / 32] |= 1 << (cpu % 32);
        }
        mask.iter().map(|w| format!("{w:08x}")).collect::<Vec<_>>().join(",")
    }

    /// Keeps this thread, and threads and children that it makes later, off the worker's processor.
    /// Best effort: without it, measurements are noisier but not wrong.
    pub fn keep_to_hosts(&self) {
        let mut set = CpuSet::new();
        if self.hosts().iter().all(|&c| set.set(c).is_ok()) {
            let _ = sched_setaffinity(Pid::from_raw(0), &set);
        }
    }
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::Cpus;

    #[test]
    fn worker_gets_last_processor_and_hosts_get_others() {
        let cpus = Cpus { all: vec![0, 1, 33] };
        assert_eq!((cpus.worker(), cpus.hosts()), (33, &[0, 1][..]));
        assert_eq!((cpus.workers(1), cpus.workers(2)), ("33".to_owned(), "1,33".to_owned()));
        assert_eq!(cpus.rps_mask(), "00000003");
        assert_eq!(Cpus { all: vec![0, 33, 34] }.rps_mask(), "00000002,00000001");
    }

    #[test]
    fn one_processor_serves_both() {
        let cpus = Cpus { all: vec![0] };
        assert_eq!((cpus.worker(), cpus.hosts()), (0, &[0][..]));
    }
}
