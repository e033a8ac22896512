// SPDX-License-Identifier: Apache-2.0
//! Worker threads.

use std::io;
use std::thread::{self, JoinHandle};

use dpdk::{Eal, TscClock};
use emu::engine::{Engine, Limits};
use emu::plan::Plan;
use emu::units::Instant;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use tokio::sync::oneshot;
use worker::command::{Handle, channel};
use worker::dpdk_io::DpdkIo;
use worker::run::{Idle, Worker};

/// How a worker runs.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What it does when idle.
    pub idle: Idle,
    /// The core that it runs on.
    pub core: Option<usize>,
    /// The limits of its engine.
    pub limits: Limits,
}

/// A running worker.
#[derive(Debug)]
pub struct Running {
    /// The way to it.
    pub handle: Handle,
    /// Resolves when its thread has ended, however it did.
    pub ended: oneshot::Receiver<()>,
    /// Its thread.
    pub thread: JoinHandle<()>,
}

/// Starts a worker on a thread of its own.
///
/// # Errors
/// If there is no thread, core or memory for it.
pub fn spawn(
    eal: &Eal,
    io: DpdkIo,
    clock: TscClock,
    plan: Plan,
    settings: Settings,
) -> io::Result<Running> {
    let (handle, inbox) = channel(settings.limits.clients as usize);
    let at = Instant(clock.now());
    let engine = Engine::new(settings.limits, plan, at).map_err(io::Error::other)?;
    let worker = Worker::new(engine, io, clock, inbox, settings.idle);
    let (started, starting) = std::sync::mpsc::sync_channel(1);
    let (ending, ended) = oneshot::channel();
    let eal = eal.share();
    let thread = thread::Builder::new().name("worker-0".to_owned()).spawn(move || {
        // Dropped, and so resolved, also if the thread panics.
        let _ending: oneshot::Sender<()> = ending;
        let prepared = prepare(&eal, settings);
        let failed = prepared.is_err();
        let _guard = prepared.map_err(|e| started.send(Err(e)));
        if failed {
            return;
        }
        let _ = started.send(Ok(()));
        // Dropped before the registration with EAL, also on a panic.
        let mut worker = worker;
        worker.run();
    })?;
    starting.recv().map_err(io::Error::other)??;
    Ok(Running { handle, ended, thread })
}

fn prepare(eal: &Eal, settings: Settings) -> io::Result<dpdk::ThreadGuard> {
    if let Some(core) = settings.core {
        let mut set = CpuSet::new();
        set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(|e| {
            io::Error::other(format!(
                "cannot run on core {core}: {e}; the machine's \
                 cores are listed by `lscpu -e`"
            ))
        })?;
    }
    if settings.idle == Idle::Adaptive
        && let Err(error) = dpdk::minimise_timer_slack()
    {
        tracing::warn!(%error, "sleeps may be 50 µs too long");
    }
    eal.register_thread().map_err(io::Error::other)
}
