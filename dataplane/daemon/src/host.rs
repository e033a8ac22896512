// SPDX-License-Identifier: Apache-2.0
//! Processor time of the workers, by the kernel's counters: evidence for the certificate of a run.
//!
//! Runs on the control thread. Times only ever grow, so those of a span are differences of two samples.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use procfs::process::Process;
use procfs::{CpuPressure, Current, CurrentSI, KernelStats, LoadAverage};
use proto::linkemu::v1 as model;

use crate::workers::Seat;

/// A sample serves for so long: statistics of a thousand links are read in turn.
const FRESH: Duration = Duration::from_millis(100);
/// Cores that the kernel gives to no thread that does not ask for them.
const ISOLATED: &str = "/sys/devices/system/cpu/isolated";

/// The workers' threads and cores.
#[derive(Debug, Default)]
pub struct Host {
    seats: Vec<Seat>,
    reserved: bool,
    hugepages: bool,
    last: Mutex<Option<(Instant, Sample)>>,
}

impl Clone for Host {
    fn clone(&self) -> Self {
        let Self { seats, reserved, hugepages, .. } = self;
        Self {
            seats: seats.clone(),
            reserved: *reserved,
            hugepages: *hugepages,
            last: Mutex::default(),
        }
    }
}

/// The figures at an instant, in nanoseconds; none where they cannot be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Time in a run queue, by worker.
    waited: Option<Vec<u64>>,
    /// Time that the hypervisor withheld, by worker's core.
    stolen: Option<Vec<u64>>,
    pressure: Option<u64>,
    /// Load average of the last minute.
    load: Option<f64>,
    /// Online; zero: unknown.
    processors: u32,
    /// Of the worker with the least priority.
    nice: i32,
}

impl Host {
    /// Workers that poll all the time, or sleep when they are idle.
    #[must_use]
    pub fn new(seats: Vec<Seat>, polls: bool, hugepages: bool) -> Self {
        let isolated = fs::read_to_string(Path::new(ISOLATED)).unwrap_or_default();
        let alone = !seats.is_empty() && seats.iter().all(|seat| lists(&isolated, seat.core));
        Self { seats, reserved: polls && alone, hugepages, last: Mutex::default() }
    }

    /// Each worker polls, on a core that runs nothing else.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.reserved
    }

    /// The figures now.
    #[must_use]
    pub fn sample(&self) -> Sample {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, sample)) if at.elapsed() < FRESH => sample.clone(),
            _ => last.insert((Instant::now(), self.read())).1.clone(),
        }
    }

    fn read(&self) -> Sample {
        let me = Process::myself().ok();
        let task = |seat: &Seat| me.as_ref()?.task_from_tid(seat.thread.as_raw()).ok();
        let nice = |seat: &Seat| i32::try_from(task(seat)?.stat().ok()?.nice).ok();
        let stats = KernelStats::current().ok();
        let stolen = |seat: &Seat| {
            let ms = stats.as_ref()?.cpu_time.get(seat.core)?.steal_ms()?;
            Some(ms.saturating_mul(1_000_000))
        };
        let pressure = CpuPressure::current().ok();
        Sample {
            waited: self
                .seats
                .iter()
                .map(|it| Some(task(it)?.schedstat().ok()?.run_delay))
                .collect(),
            stolen: self.seats.iter().map(stolen).collect(),
            pressure: pressure.map(|it| it.some.total.saturating_mul(1_000)),
            load: LoadAverage::current().ok().map(|it| it.one.into()),
            processors: stats
                .as_ref()
                .map_or(0, |it| u32::try_from(it.cpu_time.len()).unwrap_or(0)),
            nice: self.seats.iter().filter_map(nice).max().unwrap_or(0),
        }
    }

    /// What happened between two samples; none without workers.
    #[must_use]
    pub fn span(&self, before: &Sample, now: &Sample) -> Option<model::HostSpan> {
        (!self.seats.is_empty()).then(|| model::HostSpan {
            waited_ns: longest(before.waited.as_deref(), now.waited.as_deref()),
            stolen_ns: longest(before.stolen.as_deref(), now.stolen.as_deref()),
            pressure_ns: before.pressure.zip(now.pressure).map(|(b, n)| n.saturating_sub(b)),
            load: now.load,
            processors: now.processors,
            nice: now.nice,
            reserved: self.reserved,
            hugepages: self.hugepages,
        })
    }
}

/// The longest of the times that passed, by place.
fn longest(before: Option<&[u64]>, now: Option<&[u64]>) -> Option<u64> {
    let pairs = before?.iter().zip(now?);
    pairs.map(|(before, now)| now.saturating_sub(*before)).max()
}

/// Whether a list of the kernel, such as "2-5,8", has a core.
fn lists(list: &str, core: usize) -> bool {
    list.trim().split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        range.is_some_and(|(first, last)| (first..=last).contains(&core))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::Pid;

    fn host(cores: &[usize]) -> Host {
        let thread = nix::unistd::gettid();
        let seats = cores.iter().map(|core| Seat { thread, core: *core }).collect();
        Host { seats, ..Host::default() }
    }

    #[test]
    fn span_has_the_worst_worker() {
        let sample = |waited: &[u64], stolen: Option<&[u64]>, pressure| Sample {
            waited: Some(waited.to_vec()),
            stolen: stolen.map(<[u64]>::to_vec),
            pressure,
            ..Sample::default()
        };
        let before = sample(&[100, 7], Some(&[5, 5]), Some(1_000));
        let now = sample(&[110, 70], None, Some(4_000));
        let span = host(&[0, 1]).span(&before, &now).unwrap();
        assert_eq!((span.waited_ns, span.stolen_ns), (Some(63), None));
        assert_eq!(span.pressure_ns, Some(3_000));
        assert_eq!(host(&[]).span(&before, &now), None);
    }

    #[test]
    fn sample_of_a_running_thread_is_read() {
        let host = host(&[0]);
        let sample = host.sample();
        assert_eq!(sample.waited.as_ref().map(Vec::len), Some(1), "{sample:?}");
        assert!(sample.processors > 0, "{sample:?}");
        // A thread that has ended, or a core that does not exist, has none.
        let gone = Seat { thread: Pid::from_raw(i32::MAX), core: usize::MAX };
        let unknown = Host { seats: vec![gone], ..Host::default() }.sample();
        assert_eq!((unknown.waited, unknown.stolen), (None, None));
    }

    #[test]
    fn list_of_the_kernel_has_its_cores() {
        let has = |list, core| lists(list, core);
        assert!(has("2-5,8\n", 2) && has("2-5,8\n", 5) && has("2-5,8\n", 8));
        assert!(!has("2-5,8\n", 6) && !has("\n", 0) && !has("x-y", 0));
    }
}
