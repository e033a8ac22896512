// SPDX-License-Identifier: Apache-2.0
//! The two that are compared, each a loop over bursts on the calling thread.
//!
//! Ours is the dataplane's own worker on its own ports; all that is not its own is where frames
//! come from and the clock that they move.

use std::sync::Arc;

use dpdk::{MbufBurst, RX_BURST, StartedPort, TxQueue, Waiter};
use emu::client::ClientName;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::Label;
use emu::links::{Board, MAIN};
use emu::rules::Rule;
use emu::units::{ByDirection, Direction, Instant};
use worker::capture::copies::{Copies, rings};
use worker::capture::{Capture, Selection};
use worker::clock::{Clock, VirtualClock};
use worker::command::{Handle, Report, channel};
use worker::dpdk_io::{DpdkIo, PortQueues, Source};
use worker::run::{Idle, Worker};
use worker::sim;

use crate::case::Case;
use crate::error::Error;
use crate::generator::{Feed, clients, resolve};
use crate::stand::{Bench, Stand};

/// Bytes of a frame that are captured.
const SNAPLEN: usize = 128;
/// Frames between two readings of the copies; each has two, and some more are dropped or marked.
const CAPTURED: u64 = 1 << 16;
const COPIES: usize = 4 * CAPTURED as usize;

/// The bare loop: receive, generate, send.
#[derive(Debug)]
pub struct Ceiling {
    /// Where frames come from and where they leave, by direction.
    ways: Vec<(Feed, TxQueue)>,
    burst: MbufBurst,
    _ports: Vec<StartedPort>,
}

impl Ceiling {
    /// On its own ports.
    #[must_use]
    pub fn new(stand: Stand) -> Self {
        let Stand { generator, from_clients, client, wan, ports, .. } = stand;
        let mut ways = vec![(Feed::Wire(Box::new(generator)), client)];
        if matches!(from_clients, Feed::Wire(_)) {
            ways.push((from_clients, wan));
        }
        Self { ways, burst: MbufBurst::new(), _ports: ports }
    }

    /// Forwards at least `frames` frames; returns how many.
    pub fn run(&mut self, frames: u64) -> u64 {
        let mut n = 0;
        while n < frames {
            for (feed, tx) in &mut self.ways {
                n += feed.burst(&mut self.burst, RX_BURST) as u64;
                tx.burst(&mut self.burst);
            }
        }
        n
    }
}

#[derive(Debug)]
pub struct Ours {
    worker: Worker<DpdkIo<Feed>, VirtualClock>,
    /// To command it.
    pub handle: Handle,
    clock: VirtualClock,
    links: usize,
    /// The reader of the capture, if there is one.
    copies: Option<Copies>,
    report: Report,
    _ports: Vec<StartedPort>,
}

impl Ours {
    /// On ports that it opens, with an empty delay line.
    ///
    /// # Errors
    /// If ports, plan or engine cannot be made.
    pub fn open(bench: &Bench, name: &str, case: &Case) -> Result<Self, Error> {
        let limits = bench.limits(case);
        Self::new(bench.open(name, case, limits.buffers)?, case, limits)
    }

    /// On ports that are open.
    ///
    /// # Errors
    /// If plan or engine cannot be made.
    pub fn new(stand: Stand, case: &Case, limits: Limits) -> Result<Self, Error> {
        let Stand { generator, from_clients, client, wan, pool, ports, clock } = stand;
        let io = DpdkIo::new(
            PortQueues { rx: Feed::Wire(Box::new(generator)), tx: wan },
            PortQueues { rx: from_clients, tx: client },
            pool,
            Waiter::new(),
        );
        let mut engine = Engine::new(limits, case.plan()?, Instant::ZERO)?;
        if case.links == 1 {
            resolve(&mut engine, case, Instant::ZERO);
        }
        let (handle, inbox) = channel(case.clients as usize);
        let worker = Worker::new(engine, io, clock.clone(), inbox, Idle::Busy);
        let links = case.links as usize;
        let mut ours = Self {
            worker,
            handle,
            clock,
            links,
            copies: None,
            report: Report::default(),
            _ports: ports,
        };
        if links > 1 {
            ours.add_links(case, limits)?;
        }
        if case.captured {
            ours.capture()?;
        }
        Ok(ours)
    }

    /// Gives each link its part of the memory, and of the clients.
    fn add_links(&mut self, case: &Case, limits: Limits) -> Result<(), Error> {
        let memory = limits.memory / self.links;
        let each = Limits { memory, clients: case.clients.div_ceil(case.links), ..limits };
        let mut board = Board::default();
        for (n, address) in clients(case).enumerate() {
            let link = n % self.links;
            let name = format!("link{link}").parse::<ClientName>()?;
            board.insert(Rule::Prefix(address.into(), 32), name, link)?;
        }
        drop(self.handle.set_memory(memory)?);
        for link in 1..self.links {
            let handle = self.handle.of_link(link, each.clients as usize);
            drop(handle.add_link(handle.make(each, case.plan()?, Instant::ZERO)?, None)?);
            if link % 32 == 0 {
                self.worker.turn();
            }
        }
        drop(self.handle.set_board(Instant::ZERO, Arc::new(board))?);
        self.worker.turn();
        // Turns move the clock, and frames from before the board are those of the first link.
        let now = self.clock.now();
        let links = self.worker.links_mut();
        for address in clients(case) {
            let frame = sim::resolving(address);
            links.arrive(now, Direction::Return, None, &frame, Label::NONE);
        }
        links.release(now, usize::MAX, &mut |_: Departure<'_, _>| true);
        Ok(())
    }

    /// Captures the first bytes of all frames.
    fn capture(&mut self) -> Result<(), Error> {
        let (sink, copies) = rings(COPIES, COPIES * SNAPLEN);
        let all = Selection::new(Vec::new(), ByDirection([true; 2]));
        let capture = Capture::new(all, Instant::ZERO, SNAPLEN, Box::new(sink));
        drop(self.handle.capture(Some(capture))?);
        self.worker.turn();
        self.copies = Some(copies);
        Ok(())
    }

    /// Reads all copies, as the capture's own thread would.
    fn read_copies(&mut self) {
        let Some(copies) = &mut self.copies else { return };
        let mut bytes = Vec::new();
        while copies.next(&mut bytes).is_some() {
            bytes.clear();
        }
    }

    /// Receives at least `frames` frames; returns how many. Copies of more than [`CAPTURED`] frames
    /// are read in between.
    pub fn run(&mut self, frames: u64) -> u64 {
        let mut n = 0;
        while n < frames {
            self.read_copies();
            let until = frames.min(n + CAPTURED);
            while n < until {
                n += self.worker.turn().received as u64;
            }
        }
        n
    }

    /// Runs until the virtual time is `until`.
    pub fn run_until(&mut self, until: Instant) {
        while self.clock.now() < until {
            self.worker.turn();
            self.read_copies();
        }
    }

    pub fn turn(&mut self) {
        self.worker.turn();
    }

    pub fn now(&mut self) -> Instant {
        self.clock.now()
    }

    pub fn report(&mut self) -> &Report {
        let now = self.clock.now();
        self.worker.report(MAIN, now, false, &mut self.report);
        let mut one = Report::default();
        for link in 1..self.links {
            self.worker.report(link, now, false, &mut one);
            let (sum, one) = (&mut self.report.snapshot, &mut one.snapshot);
            sum.clients.append(&mut one.clients);
            sum.store_used += one.store_used;
            sum.buffers += one.buffers;
        }
        &self.report
    }
}

/// One of the two, for callgrind: `run` alone is counted.
#[inline(never)]
pub fn counted_run(run: &mut dyn FnMut(u64) -> u64, frames: u64) -> u64 {
    run(frames)
}
