// SPDX-License-Identifier: Apache-2.0
//! Worker threads.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use dpdk::{Eal, TscClock};
use emu::engine::{Engine, Limits};
use emu::plan::Plan;
use emu::units::Instant;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use tokio::sync::mpsc;
use worker::command::{Handle, channel};
use worker::edge::{Edge, Tail};
use worker::io::PacketIo;
use worker::run::{Idle, Worker};

#[derive(Clone, Debug)]
pub struct Settings {
    pub idle: Idle,
    pub cores: Vec<usize>,
    /// Limits of each engine.
    pub limits: Limits,
    /// What the ports put into the tags of frames.
    pub tail: Tail,
}

/// The thread of a worker, and its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    pub thread: Pid,
    pub core: usize,
}

#[derive(Debug)]
pub struct Running {
    pub handles: Vec<Handle>,
    pub seats: Vec<Seat>,
    /// The first worker that ended, normally or not.
    pub ended: mpsc::Receiver<usize>,
    pub threads: Vec<JoinHandle<()>>,
}

/// Reports the end of a worker, also if its thread panics.
struct Ending {
    worker: usize,
    to: mpsc::Sender<usize>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.to.try_send(self.worker);
    }
}

/// A worker thread that is ready, and waits for each step to be allowed: to discard what came before,
/// and to run.
struct Started {
    handle: Handle,
    seat: Seat,
    thread: JoinHandle<()>,
    /// Without it, the thread ends.
    go: SyncSender<()>,
    discarded: Receiver<()>,
}

/// Starts each worker on its own thread and core. None runs before all are ready, and what came to
/// the ports before that is discarded.
///
/// # Errors
/// If there is no thread, core or memory for one of them.
pub fn spawn<I>(
    eal: &Eal,
    ports: Vec<I>,
    clock: TscClock,
    plan: &Plan,
    settings: &Settings,
) -> io::Result<Running>
where
    I: PacketIo + Send + 'static,
    I::Buffer: Send,
{
    let (ending, ended) = mpsc::channel(ports.len().max(1));
    // Their processes start at one instant.
    let at = Instant(clock.now());
    let workers = ports.into_iter().zip(&settings.cores).enumerate();
    let mut started = Vec::new();
    for (worker, (io, core)) in workers {
        let node = dpdk::numa_node(*core);
        let one = dpdk::with_memory_on(node, || Engine::new(settings.limits, plan.clone(), at))
            .map_err(io::Error::other)
            .and_then(|mut engine| {
                let tail = settings.tail.of(u16::try_from(worker).unwrap_or(u16::MAX));
                engine.set_observer(Edge::observer(tail, None));
                let (handle, inbox) = channel(settings.limits.clients as usize);
                let handle = handle.with_tail(tail).with_node(node);
                let run = Worker::new(engine, io, clock, inbox, settings.idle);
                let ending = Ending { worker, to: ending.clone() };
                start(eal, run, ending, (*core, settings.idle), handle)
            });
        match one {
            Ok(one) => started.push(one),
            Err(error) => return Err(abandon(started, error)),
        }
    }
    if let Err(error) = discard_early(&started) {
        return Err(abandon(started, error));
    }
    let mut running =
        Running { handles: Vec::new(), seats: Vec::new(), ended, threads: Vec::new() };
    for Started { handle, seat, thread, go, .. } in started {
        // One that does not take it has ended, and says so.
        let _ = go.send(());
        running.handles.push(handle);
        running.seats.push(seat);
        running.threads.push(thread);
    }
    Ok(running)
}

/// Lets each worker discard what came to its ports. None runs meanwhile: it would pass frames to one that
/// has yet to discard some.
fn discard_early(started: &[Started]) -> io::Result<()> {
    for worker in started {
        worker.go.send(()).map_err(io::Error::other)?;
    }
    started.iter().try_for_each(|worker| worker.discarded.recv().map_err(io::Error::other))
}

/// Ends the threads that wait, when another one could not start, with this error.
fn abandon(started: Vec<Started>, error: io::Error) -> io::Error {
    for Started { thread, go, .. } in started {
        drop(go);
        let _ = thread.join();
    }
    error
}

fn start<I>(
    eal: &Eal,
    run: Worker<I, TscClock>,
    ending: Ending,
    (core, idle): (usize, Idle),
    handle: Handle,
) -> io::Result<Started>
where
    I: PacketIo + Send + 'static,
    I::Buffer: Send,
{
    let (started, starting) = sync_channel(1);
    let (go, gone) = sync_channel(1);
    let (done, discarded) = sync_channel(1);
    let eal = eal.share();
    let name = format!("worker-{}", ending.worker);
    let thread = thread::Builder::new().name(name).spawn(move || {
        let _ending = ending;
        let prepared = prepare(&eal, core, idle);
        let failed = prepared.is_err();
        let _guard = prepared.map_err(|e| started.send(Err(e)));
        if failed {
            return;
        }
        let _ = started.send(Ok(gettid()));
        // Dropped before the registration with EAL, also on a panic.
        let mut run = run;
        if gone.recv().is_err() {
            return;
        }
        run.discard();
        let _ = done.send(());
        if gone.recv().is_ok() {
            run.run();
        }
    })?;
    let seat = Seat { thread: starting.recv().map_err(io::Error::other)??, core };
    Ok(Started { handle, seat, thread, go, discarded })
}

fn prepare(eal: &Eal, core: usize, idle: Idle) -> io::Result<dpdk::ThreadGuard> {
    let mut set = CpuSet::new();
    set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(|e| {
        io::Error::other(format!(
            "cannot run on core {core}: {e}; the machine's cores are listed by `lscpu -e`"
        ))
    })?;
    if idle == Idle::Adaptive
        && let Err(error) = dpdk::minimise_timer_slack()
    {
        tracing::warn!(%error, "sleeps may be 50 µs too long");
    }
    eal.register_thread().map_err(io::Error::other)
}
