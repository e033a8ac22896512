// SPDX-License-Identifier: Apache-2.0
//! Lateness in real time, beside that of a loop that does nothing but wait.
//!
//! Frames come every 5 µs by the time stamp counter and leave after a delay; how late each one
//! is handed to the driver is recorded there, by a separate reading of the counter. The bare
//! loop waits for a schedule of the same spacing. Both run on the same core, in turns of
//! `WINDOW`.
//!
//! The goal is for a dedicated core, and machines are shared: a window in which the core was
//! taken away, by the kernel for another thread or for an interrupt, is not counted. Nor is a
//! group of windows in which the bare loop was late all the same: what a hypervisor takes would
//! be all that is compared. Quantiles are those of groups of windows.
//! Units: ns. Histograms have three significant digits.

use std::cell::{Cell, RefCell};
use std::fs;
use std::rc::Rc;
use std::time::Duration;

use dpdk::{Mbuf, StartedPort, TscClock, Waiter};
use emu::engine::{Departure, Engine, Limits};
use emu::units::{Direction, Instant};
use hdrhistogram::Histogram;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;
use serde::Serialize;
use worker::clock::Clock;
use worker::command::{Handle, channel};
use worker::dpdk_io::{DpdkIo, PortQueues};
use worker::io::{Arrivals, EgressCounters, PacketIo};
use worker::run::{Idle, Worker};

use crate::case::{Case, Profile};
use crate::error::Error;
use crate::generator::{Feed, Timed, resolve};
use crate::sizes::Sizes;
use crate::spread::Spread;
use crate::stand::{Bench, Stand};

/// Spacing of the frames: 200,000 a second.
const INTERVAL: u64 = 5_000;
const DELAY_MS: u64 = 1;
/// One turn of either; 200 frames. Short enough to fit between two ticks of the kernel's clock.
const WINDOW: Duration = Duration::from_millis(1);
/// After the other's turn, until frames that arrived meanwhile are sent; again if the core was taken
/// away, but not for ever.
const LEAD_IN: Duration = Duration::from_millis(3);
const LEAD_INS: usize = 10;
/// Before a window, longer than the delay: frames that arrived during its preparations, which take a part of
/// a millisecond, all at once, have left by then.
const SETTLED_IN: Duration = Duration::from_micros(1_200);
const _: () =
    assert!(SETTLED_IN.as_micros() > 1_000 * DELAY_MS as u128, "a window of other frames");
/// Windows that count and make a group: 100 frames are beyond 99 % of them.
const ENOUGH: usize = 50;
/// Windows that are tried for a group.
const TRIED: usize = 200;
/// A bare loop that is later than this at 99 % has no dedicated core, whatever the kernel reports.
const QUIET: u64 = 1_000;
/// Lateness above this counts as this.
const MOST: u64 = 3_600_000_000_000;

/// Quantiles of a group of windows, ns.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Quantiles {
    /// Frames in the windows that count.
    pub frames: u64,
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    pub max: u64,
}

/// Results of all windows.
#[derive(Clone, Debug, Serialize)]
pub struct Late {
    /// The core that both ran on.
    pub core: Option<usize>,
    /// Groups of windows that were tried.
    pub groups: usize,
    /// The bare loop's, of the groups that were quiet.
    pub bare: Vec<Quantiles>,
    pub ours: Vec<Quantiles>,
    /// Difference of the 99 % quantiles by group, ns; `None` if no group counts.
    pub p99_over_ns: Option<Spread>,
}

/// The windows of a group that count.
#[derive(Debug)]
struct Group {
    late: Histogram<u64>,
    windows: usize,
    core: Option<usize>,
}

impl Group {
    /// From windows on a core, if the thread is pinned to one.
    fn on(core: Option<usize>) -> Result<Self, Error> {
        Ok(Self { late: histogram()?, windows: 0, core })
    }

    /// Adds a window, if it had the core for itself.
    fn add(&mut self, window: impl FnOnce(&mut Histogram<u64>)) -> Result<(), Error> {
        let mut late = histogram()?;
        let disturbed = || (taken_away(), self.core.map(interrupts));
        let before = disturbed();
        window(&mut late);
        if disturbed() == before {
            self.windows += 1;
            // The bounds are the same.
            let _ = self.late.add(&late);
        }
        Ok(())
    }

    fn quantiles(&self) -> Quantiles {
        Quantiles {
            frames: self.late.len(),
            p50: self.late.value_at_quantile(0.5),
            p99: self.late.value_at_quantile(0.99),
            p999: self.late.value_at_quantile(0.999),
            max: self.late.max(),
        }
    }
}

fn histogram() -> Result<Histogram<u64>, Error> {
    Histogram::new_with_max(MOST, 3).map_err(|_| Error::Histogram)
}

/// Interrupts that a core has served.
fn interrupts(core: usize) -> u64 {
    served(&fs::read_to_string("/proc/interrupts").unwrap_or_default(), core)
}

/// The sum of a core's column.
fn served(table: &str, core: usize) -> u64 {
    let mut lines = table.lines();
    let name = format!("CPU{core}");
    let Some(column) = lines.next().and_then(|l| l.split_whitespace().position(|c| c == name))
    else {
        return 0;
    };
    // Each line begins with the interrupt's name; some have one count for all cores.
    let count = |l: &str| l.split_whitespace().nth(1 + column).and_then(|n| n.parse::<u64>().ok());
    lines.filter_map(count).sum()
}

/// How often the kernel has taken the core from this thread.
fn taken_away() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |u| u.involuntary_context_switches())
}

/// Measures `groups` of windows.
///
/// # Errors
/// If ports or engine cannot be made.
pub fn measure(bench: &Bench, groups: usize) -> Result<Late, Error> {
    let clock = TscClock::calibrate(Duration::from_millis(500));
    let pin = Pin::last_core();
    let mut emulated = Emulated::new(bench, clock)?;
    let (mut bare, mut ours, mut over) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..groups {
        let (mut waiting, mut emulating) = (Group::on(pin.core)?, Group::on(pin.core)?);
        for _ in 0..TRIED {
            if waiting.windows.min(emulating.windows) >= ENOUGH {
                break;
            }
            waiting.add(|late| wait(clock, WINDOW, late))?;
            emulated.lead_in();
            emulating.add(|late| emulated.window(late))?;
        }
        let (a, b) = (waiting.quantiles(), emulating.quantiles());
        if waiting.windows.min(emulating.windows) >= ENOUGH && a.p99 <= QUIET {
            over.push(b.p99 as f64 - a.p99 as f64);
            bare.push(a);
            ours.push(b);
        }
    }
    let p99_over_ns = (!over.is_empty()).then(|| Spread::of(&over));
    Ok(Late { core: pin.core, groups, bare, ours, p99_over_ns })
}

fn wait(clock: TscClock, length: Duration, late: &mut Histogram<u64>) {
    let mut next = clock.now() + INTERVAL;
    let end = next + length.as_nanos() as u64;
    while next < end {
        let now = clock.now();
        while next <= now {
            late.saturating_record(now - next);
            next += INTERVAL;
        }
    }
}

/// Ports that record how late each frame is handed to them.
#[derive(Debug)]
struct Stamped {
    ports: DpdkIo<Feed>,
    clock: TscClock,
    late: Rc<RefCell<Histogram<u64>>>,
    recording: Rc<Cell<bool>>,
}

impl PacketIo for Stamped {
    type Buffer = Mbuf;

    fn receive(
        &mut self,
        clock: &mut impl Clock,
        arrivals: &mut impl Arrivals<Mbuf>,
        most: usize,
    ) -> usize {
        self.ports.receive(clock, arrivals, most)
    }

    fn transmit(&mut self, departure: Departure<'_, Mbuf>) -> bool {
        let late = self.clock.now().saturating_sub(departure.due.0);
        let taken = self.ports.transmit(departure);
        if taken && self.recording.get() {
            self.late.borrow_mut().saturating_record(late);
        }
        taken
    }

    fn flush(&mut self, now: Instant) {
        self.ports.flush(now);
    }

    fn egress(&self, pair: usize, direction: Direction) -> EgressCounters {
        self.ports.egress(pair, direction)
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        self.ports.wait(timeout)
    }
}

/// The emulator in real time.
struct Emulated {
    worker: Worker<Stamped, TscClock>,
    clock: TscClock,
    late: Rc<RefCell<Histogram<u64>>>,
    recording: Rc<Cell<bool>>,
    _handle: Handle,
    _ports: Vec<StartedPort>,
}

impl Emulated {
    fn new(bench: &Bench, clock: TscClock) -> Result<Self, Error> {
        let case = Case::new(Sizes::Fixed(64), Profile::DelayOnly, DELAY_MS, 1);
        let Stand { generator, from_clients, client, wan, pool, ports, .. } =
            bench.open("late", &case, 0)?;
        let queue =
            generator.into_queue().ok_or_else(|| Error::NoQueue { port: "late".to_owned() })?;
        let (start, len) = (clock.now(), case.sizes.lengths()[0]);
        let timed = Timed::new(queue, len, clock, start + INTERVAL, INTERVAL);
        let both = DpdkIo::new(
            PortQueues { rx: Feed::Timed(Box::new(timed)), tx: wan },
            PortQueues { rx: from_clients, tx: client },
            pool,
            Waiter::new(),
        );
        let late = Rc::new(RefCell::new(histogram()?));
        let recording = Rc::new(Cell::new(false));
        let (late_too, recording_too) = (Rc::clone(&late), Rc::clone(&recording));
        let io = Stamped { ports: both, clock, late: late_too, recording: recording_too };
        let limits = Limits::copying(64 << 20, 1, len);
        let mut engine = Engine::new(limits, case.plan()?, Instant(start))?;
        resolve(&mut engine, &case, Instant(start));
        let (handle, inbox) = channel(1);
        let worker = Worker::new(engine, io, clock, inbox, Idle::Busy);
        Ok(Self { worker, clock, late, recording, _handle: handle, _ports: ports })
    }

    fn run(&mut self, length: Duration) {
        let until = self.clock.now() + length.as_nanos() as u64;
        while self.worker.turn().now.0 < until {}
    }

    /// Runs until the frames that arrived while it did not run are sent.
    fn lead_in(&mut self) {
        for _ in 0..LEAD_INS {
            let before = taken_away();
            self.run(LEAD_IN);
            if taken_away() == before {
                return;
            }
        }
    }

    fn window(&mut self, late: &mut Histogram<u64>) {
        self.late.borrow_mut().reset();
        self.run(SETTLED_IN);
        self.recording.set(true);
        self.run(WINDOW);
        self.recording.set(false);
        // The bounds are the same.
        let _ = late.add(&*self.late.borrow());
    }
}

/// Keeps this thread on one core while it lives.
struct Pin {
    before: Option<CpuSet>,
    core: Option<usize>,
}

impl Pin {
    /// The last core that this thread may use: the first ones have most interrupts.
    fn last_core() -> Self {
        let me = Pid::from_raw(0);
        let before = sched_getaffinity(me).ok();
        let last = before
            .and_then(|set| (0..CpuSet::count()).rev().find(|c| set.is_set(*c).unwrap_or(false)));
        let core = last.filter(|core| {
            let mut set = CpuSet::new();
            set.set(*core).and_then(|()| sched_setaffinity(me, &set)).is_ok()
        });
        Self { before, core }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(set) = &self.before {
            let _ = sched_setaffinity(Pid::from_raw(0), set);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_may_use_its_cores_again_afterwards() {
        let me = Pid::from_raw(0);
        let before = sched_getaffinity(me).unwrap();
        let pin = Pin::last_core();
        assert!(pin.core.is_some());
        drop(pin);
        assert_eq!(sched_getaffinity(me).unwrap(), before);
    }

    #[test]
    fn sleeping_is_not_having_the_core_taken_away() {
        // A busy machine may take it away as well, though not each time.
        let mut group = Group::on(None).unwrap();
        for _ in 0..100 {
            group.add(|_| std::thread::sleep(Duration::from_millis(1))).unwrap();
        }
        assert!(group.windows > 0);
    }

    #[test]
    fn interrupts_are_those_of_the_core() {
        let table = "           CPU0       CPU2\n  1:   5   7  IO-APIC  i8042\n\
                     LOC:  100  2000  Local timer\nERR:  0\n";
        assert_eq!((served(table, 0), served(table, 2)), (105, 2007));
        assert_eq!((served(table, 1), served("", 0)), (0, 0));
    }

    #[test]
    fn quantiles_are_those_of_the_windows_that_count() {
        let mut group = Group { late: histogram().unwrap(), windows: 1, core: None };
        for n in 1..=1000 {
            group.late.record(n).unwrap();
        }
        let q = group.quantiles();
        assert_eq!((q.frames, q.p50, q.p99, q.p999, q.max), (1000, 500, 990, 999, 1000));
    }

    #[test]
    fn the_bare_loop_sees_its_whole_schedule() {
        let clock = TscClock::calibrate(Duration::from_millis(1));
        let mut late = histogram().unwrap();
        wait(clock, Duration::from_millis(2), &mut late);
        assert!(late.len() >= 2_000_000 / INTERVAL, "{}", late.len());
    }
}
