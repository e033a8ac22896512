// SPDX-License-Identifier: Apache-2.0
//! Evidence that the machine, and not the programs under test, made a real-time test late.
//!
//! A failure is excused only if this module has measured that the machine withheld processor time
//! while the test ran. Lateness that the emulator reports is a claim of the program under test and
//! no evidence: an emulator that is slow on an idle machine must fail.
//!
//! While a test runs, [`Watch`] divides its time into windows of a second ([`Window`]). A window
//! is starved if one of these conditions holds:
//!
//! * A thread of the test (this process or a descendant) waited in a run queue for at least
//!   [`WAITED`] of the window (`/proc/PID/task/TID/schedstat`, second figure) while other
//!   processes used at least [`FOREIGN`] processors (`/proc/stat` less the test's own processes
//!   and the kernel's threads). Neither alone is evidence: the hosts of a test compete with each
//!   other for a processor, and other processes can be on processors that the test does not use.
//! * The hypervisor withheld at least [`STOLEN`] processors (`steal` in `/proc/stat`).
//! * A timer of an idle thread on one of the processors was late by at least [`STOOD_STILL`]
//!   more than the thread waited in a run queue: the virtual machine was suspended, which not
//!   every hypervisor reports as steal.
//!
//! The kernel's pressure figure (`/proc/pressure/cpu`) is quoted in the reason but decides
//! nothing, because the test's own load raises it as well.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::cpus::Cpus;

/// Processors that other processes use in a starved window. Processor times have ticks of 10 ms, so
/// `/proc/stat` and the times of a process differ by some per cent of the load.
pub const FOREIGN: f64 = 0.3;
/// Share of a starved window in which a thread of the test waited in a run queue.
pub const WAITED: f64 = 0.05;
/// Processors that the hypervisor withheld in a starved window.
pub const STOLEN: f64 = 0.05;
/// Lateness of an idle thread's timer if the machine was suspended.
pub const STOOD_STILL: Duration = Duration::from_millis(20);

const WINDOW: Duration = Duration::from_secs(1);
/// A shorter remainder is merged into the window before.
const LEAST_WINDOW: Duration = Duration::from_millis(250);
/// Period of the timers. They cost the emulator's processor a few microseconds each.
const BEAT: Duration = Duration::from_millis(20);
/// `USER_HZ`: Linux reports hundredths of a second to all programs.
const TICKS_PER_S: f64 = 100.0;
/// `PF_KTHREAD` of include/linux/sched.h.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A part of a test's time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    pub span: Duration,
    /// Processors used by other processes, on average.
    pub foreign: f64,
    /// Processors withheld by the hypervisor, on average.
    pub stolen: f64,
    /// Longest time of a thread of the test in a run queue, as a share of the window.
    pub waited: f64,
    pub thread: String,
    /// Longest suspension of the machine.
    pub stood: Duration,
}

impl Window {
    /// Reason why the window is starved, if it is.
    #[must_use]
    pub fn starved(&self) -> Option<String> {
        let Self { span, foreign, stolen, waited, thread, stood } = self;
        if *foreign >= FOREIGN && *waited >= WAITED {
            return Some(format!(
                "`{thread}` waited for a processor for {:.0} ms of {:.1} s while other processes \
                 used {foreign:.1} processors",
                waited * span.as_secs_f64() * 1e3,
                span.as_secs_f64()
            ));
        }
        if *stolen >= STOLEN {
            return Some(format!("the hypervisor kept {stolen:.2} processors"));
        }
        (*stood >= STOOD_STILL).then(|| format!("the machine was suspended for {stood:?}"))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub windows: Vec<Window>,
    /// Share of the time in which a task of the machine waited for a processor, if the kernel
    /// reports it.
    pub pressure: Option<f64>,
}

impl Evidence {
    /// The worst starved window and the number of starved windows. None if the machine gave the
    /// test all processor time that it needed.
    #[must_use]
    pub fn starvation(&self) -> Option<String> {
        let starved: Vec<&Window> = self.windows.iter().filter(|w| w.starved().is_some()).collect();
        let worst = starved.iter().max_by(|a, b| a.waited.total_cmp(&b.waited))?;
        let pressure = self.pressure.map_or_else(String::new, |share| {
            format!("; CPU pressure (some) {:.0} %", 100.0 * share)
        });
        Some(format!(
            "{} of {} windows starved; {}{pressure}",
            starved.len(),
            self.windows.len(),
            worst.starved().unwrap_or_default()
        ))
    }
}

/// Collects evidence from its start to its end, on separate threads.
#[derive(Debug)]
pub struct Watch {
    begin: Instant,
    pressure: Option<u64>,
    beating: Arc<AtomicBool>,
    /// Dropped to end the sampler.
    stop: Option<Sender<()>>,
    sampler: Option<JoinHandle<Vec<Window>>>,
}

impl Watch {
    /// `cpus` are the processors that the test may use.
    #[must_use]
    pub fn start(cpus: &Cpus) -> Self {
        let beating = Arc::new(AtomicBool::new(true));
        let stood = Arc::new(AtomicU64::new(0));
        for &cpu in cpus.all() {
            let (beating, stood) = (Arc::clone(&beating), Arc::clone(&stood));
            std::thread::spawn(move || beat(cpu, &beating, &stood));
        }
        let (stop, stopped) = channel::<()>();
        let sampler = std::thread::spawn(move || {
            let mut samples = vec![(Sample::take(), Duration::ZERO)];
            loop {
                let ended = stopped.recv_timeout(WINDOW) != Err(RecvTimeoutError::Timeout);
                let stood = Duration::from_nanos(stood.swap(0, Ordering::Relaxed));
                samples.push((Sample::take(), stood));
                if ended {
                    return windows(samples);
                }
            }
        });
        Self {
            begin: Instant::now(),
            pressure: pressure(),
            beating,
            stop: Some(stop),
            sampler: Some(sampler),
        }
    }

    #[must_use]
    pub fn finish(mut self) -> Evidence {
        drop(self.stop.take());
        let windows = self.sampler.take().and_then(|s| s.join().ok()).unwrap_or_default();
        let span = self.begin.elapsed().as_micros() as f64;
        let pressure = self.pressure.zip(pressure());
        let pressure = pressure.map(|(from, to)| to.saturating_sub(from) as f64 / span);
        Evidence { windows, pressure }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.beating.store(false, Ordering::Relaxed);
    }
}

fn windows(mut samples: Vec<(Sample, Duration)>) -> Vec<Window> {
    if let [.., (before, earlier), (last, later)] = &mut samples[..]
        && last.at.duration_since(before.at) < LEAST_WINDOW
    {
        *later = (*earlier).max(*later);
        if samples.len() > 2 {
            samples.remove(samples.len() - 2);
        }
    }
    samples.windows(2).map(|pair| pair[1].0.since(&pair[0].0, pair[1].1)).collect()
}

/// Accumulated processor times in seconds, and waits in nanoseconds.
#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    /// All programs on all processors.
    busy: f64,
    stolen: f64,
    /// Processes of the test and threads of the kernel.
    own: f64,
    /// Time in run queues, by thread of the test, with its name.
    waits: HashMap<u64, (u64, String)>,
}

impl Sample {
    fn take() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let [busy, stolen] = machine(&stat);
        let processes = processes();
        let tests = descendants(&processes, u64::from(std::process::id()));
        let is_own = |p: &&Process| p.kernel || tests.contains(&p.pid);
        let own = processes.iter().filter(is_own).map(|p| p.used).sum();
        let waits = tests.iter().flat_map(|pid| threads(*pid)).collect();
        Self { at: Instant::now(), busy, stolen, own, waits }
    }

    fn since(&self, before: &Self, stood: Duration) -> Window {
        let span = self.at.duration_since(before.at);
        let seconds = span.as_secs_f64().max(1e-3);
        let own = (self.own - before.own).max(0.0);
        let waited = |tid: &u64, now: u64| {
            let then = before.waits.get(tid).map_or(0, |(then, _)| *then);
            now.saturating_sub(then)
        };
        let longest = self.waits.iter().map(|(tid, (now, name))| (waited(tid, *now), name)).max();
        let (waited, thread) = longest.map_or((0, String::new()), |(w, name)| (w, name.clone()));
        Window {
            span,
            foreign: (self.busy - before.busy - own).max(0.0) / seconds,
            stolen: (self.stolen - before.stolen).max(0.0) / seconds,
            waited: waited as f64 / 1e9 / seconds,
            thread,
            stood,
        }
    }
}

/// A line of /proc/PID/stat (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq)]
struct Process {
    pid: u64,
    parent: u64,
    kernel: bool,
    /// Seconds, including those of children that have ended.
    used: f64,
}

impl Process {
    fn read(stat: &str) -> Option<Self> {
        // The name in brackets can contain any character. The state follows it.
        let (head, rest) = stat.rsplit_once(')')?;
        let pid = head.split(' ').next()?.parse().ok()?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok());
        let kernel = number(6)? & KERNEL_THREAD != 0;
        let ticks = (11..15).filter_map(number).sum::<u64>();
        Some(Self { pid, parent: number(1)?, kernel, used: ticks as f64 / TICKS_PER_S })
    }
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stat = |e: fs::DirEntry| {
        let number = e.file_name().to_str()?.parse::<u64>().ok()?;
        Process::read(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
    };
    entries.filter_map(stat).collect()
}

/// A process and its descendants.
fn descendants(processes: &[Process], root: u64) -> HashSet<u64> {
    let mut found = HashSet::from([root]);
    loop {
        let before = found.len();
        let more = processes.iter().filter(|p| found.contains(&p.parent)).map(|p| p.pid);
        let more: Vec<u64> = more.collect();
        found.extend(more);
        if found.len() == before {
            return found;
        }
    }
}

/// Seconds in /proc/stat: of all programs (user, nice, system), and withheld by the hypervisor
/// (steal).
fn machine(stat: &str) -> [f64; 2] {
    let all = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = all.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    let busy: f64 = ticks.iter().take(3).sum();
    [busy / TICKS_PER_S, ticks.get(7).copied().unwrap_or_default() / TICKS_PER_S]
}

/// Waits and names of a process's threads.
fn threads(pid: u64) -> Vec<(u64, (u64, String))> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let wait = |e: fs::DirEntry| {
        let tid = e.file_name().to_str()?.parse().ok()?;
        let waited = waited(&fs::read_to_string(e.path().join("schedstat")).ok()?)?;
        let name = fs::read_to_string(e.path().join("comm")).ok()?;
        Some((tid, (waited, name.trim().to_owned())))
    };
    entries.filter_map(wait).collect()
}

/// The second figure of a schedstat: nanoseconds in run queues.
fn waited(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// Accumulated microseconds in which some task waited for a processor.
fn pressure() -> Option<u64> {
    let text = fs::read_to_string("/proc/pressure/cpu").ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

/// Sleeps on one processor, and records the lateness of its timer beyond its own wait in the run
/// queue.
fn beat(cpu: usize, beating: &AtomicBool, stood: &AtomicU64) {
    let mut set = CpuSet::new();
    if set.set(cpu).is_err() || sched_setaffinity(Pid::from_raw(0), &set).is_err() {
        return;
    }
    let queued = || {
        let own = fs::read_to_string("/proc/thread-self/schedstat").ok();
        Duration::from_nanos(own.as_deref().and_then(waited).unwrap_or_default())
    };
    let mut before = queued();
    while beating.load(Ordering::Relaxed) {
        let due = Instant::now() + BEAT;
        std::thread::sleep(BEAT);
        let late = due.elapsed();
        let now = queued();
        let unexplained = late.saturating_sub(now.saturating_sub(before));
        before = now;
        stood.fetch_max(
            u64::try_from(unexplained.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        Window { span: WINDOW, thread: "worker-0".to_owned(), ..Window::default() }
    }

    fn sample(at: Instant, busy: f64, own: f64, waited: u64) -> Sample {
        let waits = HashMap::from([(7, (waited, "worker-0".to_owned()))]);
        Sample { at, busy, stolen: 0.0, own, waits }
    }

    #[test]
    fn window_of_own_contention_is_not_starved() {
        assert_eq!(Window { waited: 0.9, foreign: 0.29, ..window() }.starved(), None);
    }

    #[test]
    fn window_of_foreign_load_elsewhere_is_not_starved() {
        assert_eq!(Window { waited: 0.04, foreign: 1.5, ..window() }.starved(), None);
    }

    #[test]
    fn window_of_foreign_load_that_delayed_the_test_is_starved() {
        let starved = Window { waited: 0.06, foreign: 0.3, ..window() }.starved();
        assert!(
            starved.is_some_and(|why| why.contains("`worker-0` waited") && why.contains("60 ms"))
        );
    }

    #[test]
    fn window_with_steal_or_suspended_machine_is_starved() {
        assert!(Window { stolen: 0.05, ..window() }.starved().is_some());
        assert!(Window { stood: STOOD_STILL, ..window() }.starved().is_some());
        assert_eq!(Window { stood: STOOD_STILL / 2, ..window() }.starved(), None);
    }

    #[test]
    fn sample_pair_gives_shares_of_its_window() {
        let begin = Instant::now();
        let before = sample(begin, 10.0, 4.0, 1_000_000_000);
        let after = sample(begin + 2 * WINDOW, 13.0, 5.0, 1_500_000_000);
        let window = after.since(&before, Duration::ZERO);
        assert!((window.foreign - 1.0).abs() < 1e-9, "{window:?}");
        assert!((window.waited - 0.25).abs() < 1e-9, "{window:?}");
        assert_eq!(window.thread, "worker-0");
    }

    #[test]
    fn short_remainder_is_joined_to_the_window_before() {
        let begin = Instant::now();
        let at = |ms| sample(begin + Duration::from_millis(ms), 0.0, 0.0, 0);
        let still = Duration::from_millis(30);
        let samples = vec![(at(0), Duration::ZERO), (at(1000), still), (at(1100), Duration::ZERO)];
        let joined = windows(samples);
        assert_eq!(joined.len(), 1);
        assert_eq!((joined[0].span, joined[0].stood), (Duration::from_millis(1100), still));
    }

    #[test]
    fn proc_files_are_read_by_their_fields() {
        let stat = "12 (a) b) S 3 12 12 0 -1 2097216 0 0 0 0 100 50 20 30 20 0 1";
        let expected = Process { pid: 12, parent: 3, kernel: true, used: 2.0 };
        assert_eq!(Process::read(stat), Some(expected));
        assert_eq!(machine("cpu  100 50 50 900 0 7 9 25 0 0\ncpu0 1"), [2.0, 0.25]);
        assert_eq!(waited("1308966 154046 4\n"), Some(154_046));
    }

    #[test]
    fn descendants_are_followed_over_generations() {
        let process = |pid, parent| Process { pid, parent, kernel: false, used: 0.0 };
        // A child may have a lower number than its parent.
        let all = [process(5, 9), process(9, 4), process(4, 1), process(8, 1)];
        assert_eq!(descendants(&all, 4), HashSet::from([4, 9, 5]));
    }

    #[test]
    fn evidence_names_the_worst_window() {
        let idle = window();
        let busy = |waited| Window { waited, foreign: 1.0, ..window() };
        let evidence =
            Evidence { windows: vec![idle.clone(), busy(0.1), busy(0.4)], pressure: None };
        let why = evidence.starvation().unwrap_or_default();
        assert!(why.starts_with("2 of 3 windows starved") && why.contains("400 ms"), "{why}");
        assert_eq!(Evidence { windows: vec![idle], pressure: Some(0.9) }.starvation(), None);
    }

    #[test]
    fn watch_sees_this_process() {
        let watch = Watch::start(&Cpus::available());
        std::thread::sleep(LEAST_WINDOW);
        let evidence = watch.finish();
        assert!(evidence.windows.iter().any(|w| !w.thread.is_empty()), "{evidence:?}");
    }
}
