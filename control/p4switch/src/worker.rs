// SPDX-License-Identifier: Apache-2.0
//! The thread that owns ports and pipeline.
//!
//! It receives a burst from each port, runs the pipeline until it is empty, and sends. Requests are
//! handled in between. Without a program, frames are dropped.
//!
//! The time between two turns of the loop, without its sleep, is a stall: frames that arrive meanwhile wait,
//! and the switch takes the time of their arrival only afterwards.

use std::collections::VecDeque;
use std::io::Read;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use dpdk::{Eal, Waiter};
use p4runtime::{Count, Stalls};
use swx::{Entry, Key, Pipeline};

use crate::ports::{Counts, Ports, Queues};

const NO_PROGRAM: &str = "no program is loaded";
/// Instructions of the pipeline between checks whether frames wait.
const STEP: u32 = 256;
/// Empty polls before the thread sleeps.
const EMPTY: u32 = 200;
/// Longest sleep.
const SLEEP: Duration = Duration::from_millis(1);
/// Shorter stalls are not counted.
const STALL: Duration = Duration::from_micros(100);

/// Where a counter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counter {
    /// In arrays of registers of the pipeline: of packets and of bytes.
    Registers { packets: Option<String>, bytes: Option<String> },
    /// [`crate::header::SENT`], which the ports count.
    Sent,
}

/// A change of the pipeline or of the ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Set {
        table: String,
        entry: Entry,
    },
    Remove {
        table: String,
        key: Key,
    },
    /// The ports of a group; none: the group is gone.
    Group {
        group: u16,
        ports: Option<Vec<u16>>,
    },
    Count {
        counter: Counter,
        index: u32,
        count: Count,
    },
}

/// What a request is answered with.
pub type Answer<T> = SyncSender<Result<T, String>>;

/// A request to the worker.
#[derive(Debug)]
pub enum Request {
    /// Replaces the program: the specification and its own entries.
    Load {
        spec: String,
        entries: Vec<(String, Entry)>,
        answer: Answer<Vec<swx::Table>>,
    },
    Apply {
        changes: Vec<Change>,
        answer: Answer<()>,
    },
    Counts {
        counter: Counter,
        cells: Range<u32>,
        answer: Answer<Vec<Count>>,
    },
    /// Stalls since the program was loaded.
    Stalls {
        answer: Answer<Stalls>,
    },
}

/// Whether an idle worker sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    Busy,
    Adaptive,
}

/// The state of the thread.
#[derive(Debug)]
pub struct Worker {
    eal: Eal,
    ports: Ports,
    pipeline: Option<Pipeline<Queues>>,
    requests: Receiver<Request>,
    /// Readable when there is a request.
    bell: UnixStream,
    watch: Watch,
}

/// Finds stalls of the loop.
#[derive(Debug)]
struct Watch {
    /// When the next turn should begin at the latest: now, or at the end of a sleep.
    expected: Instant,
    /// Since the program was loaded.
    stalls: Stalls,
}

impl Watch {
    fn starting(now: Instant) -> Self {
        Self { expected: now, stalls: Stalls::default() }
    }

    /// A turn begins. Its own work counts as well.
    fn turn(&mut self, now: Instant) {
        let stall = now.saturating_duration_since(self.expected);
        if stall >= STALL {
            self.stalls.add(u64::try_from(stall.as_nanos()).unwrap_or(u64::MAX));
        }
        self.expected = now;
    }
}

impl Worker {
    /// `bell` gets a byte for each request, so that it ends a sleep. It does not block.
    #[must_use]
    pub fn new(eal: Eal, ports: Ports, requests: Receiver<Request>, bell: UnixStream) -> Self {
        Self { eal, ports, pipeline: None, requests, bell, watch: Watch::starting(Instant::now()) }
    }

    /// Runs until all senders of requests are gone. Returns the counts of the ports.
    pub fn run(mut self, idle: Idle, mut waiter: Waiter) -> Counts {
        let mut empty = 0;
        self.watch.expected = Instant::now();
        loop {
            self.watch.turn(Instant::now());
            match self.requests.try_recv() {
                Ok(request) => {
                    self.handle(request);
                    // Of this request; more bytes only end a sleep.
                    let _ = self.bell.read(&mut [0]);
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return self.ports.counts,
            }
            if self.exchange() {
                empty = 0;
            } else if idle == Idle::Adaptive && empty >= EMPTY {
                self.watch.expected = Instant::now() + SLEEP;
                waiter.wait(SLEEP);
            } else {
                empty += 1;
                dpdk::pause();
            }
        }
    }

    /// Moves frames that have arrived through the pipeline. Returns false without frames.
    fn exchange(&mut self) -> bool {
        let Some(pipeline) = &mut self.pipeline else {
            let mut dropped = VecDeque::new();
            self.ports.poll(&mut dropped);
            return !dropped.is_empty();
        };
        self.ports.poll(&mut pipeline.wire().input);
        if pipeline.wire().input.is_empty() {
            return false;
        }
        while !pipeline.wire().input.is_empty() {
            pipeline.run(STEP);
        }
        pipeline.drain();
        // A frame with a shorter way through the program overtakes others.
        let output = &mut pipeline.wire().output;
        output.sort_by_key(|(order, _)| *order);
        for (_, packet) in output.drain(..) {
            self.ports.send(packet);
        }
        self.ports.flush();
        true
    }

    fn handle(&mut self, request: Request) {
        // Without a receiver nobody waits for the answer.
        match request {
            Request::Load { spec, entries, answer } => {
                let _ = answer.send(self.load(&spec, &entries));
            }
            Request::Apply { changes, answer } => {
                let _ = answer.send(self.apply(changes));
            }
            Request::Counts { counter, cells, answer } => {
                let _ = answer.send(self.counts(&counter, cells));
            }
            Request::Stalls { answer } => {
                let _ = answer.send(Ok(self.watch.stalls.clone()));
            }
        }
    }

    fn load(&mut self, spec: &str, entries: &[(String, Entry)]) -> Result<Vec<swx::Table>, String> {
        let mut pipeline =
            Pipeline::build(&self.eal, spec, Queues::default()).map_err(|e| e.to_string())?;
        for (table, entry) in entries {
            pipeline.set(table, entry).map_err(|e| e.to_string())?;
        }
        pipeline.commit().map_err(|e| e.to_string())?;
        let tables = pipeline.tables().cloned().collect();
        self.pipeline = Some(pipeline);
        self.ports.groups.clear();
        self.ports.clear_sent();
        self.watch.stalls = Stalls::default();
        Ok(tables)
    }

    fn apply(&mut self, changes: Vec<Change>) -> Result<(), String> {
        let pipeline = self.pipeline.as_mut().ok_or(NO_PROGRAM)?;
        let set = |pipeline: &mut Pipeline<Queues>, change: &Change| match change {
            Change::Set { table, entry } => pipeline.set(table, entry),
            Change::Remove { table, key } => pipeline.remove(table, key),
            Change::Group { .. } | Change::Count { .. } => Ok(()),
        };
        let done = changes.iter().try_for_each(|change| set(pipeline, change));
        if let Err(error) = done.and_then(|()| pipeline.commit()) {
            pipeline.abort();
            return Err(error.to_string());
        }
        for change in changes {
            match change {
                Change::Set { .. } | Change::Remove { .. } => {}
                Change::Group { group, ports: Some(ports) } => {
                    self.ports.groups.insert(group, ports);
                }
                Change::Group { group, ports: None } => {
                    self.ports.groups.remove(&group);
                }
                Change::Count { counter: Counter::Sent, index, count } => {
                    self.ports.set_sent(index, count);
                }
                Change::Count { counter: Counter::Registers { packets, bytes }, index, count } => {
                    for (array, value) in [(packets, count.packets), (bytes, count.bytes)] {
                        let set = array.map(|array| pipeline.set_register(&array, index, value));
                        set.transpose().map_err(|e| e.to_string())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn counts(&mut self, counter: &Counter, cells: Range<u32>) -> Result<Vec<Count>, String> {
        let pipeline = self.pipeline.as_mut().ok_or(NO_PROGRAM)?;
        let Counter::Registers { packets, bytes } = counter else {
            return Ok(cells.map(|port| self.ports.sent(port)).collect());
        };
        let mut read = |array: &Option<String>| match array {
            Some(array) => pipeline.registers(array, cells.clone()).map_err(|e| e.to_string()),
            None => Ok(vec![0; cells.len()]),
        };
        let (packets, bytes) = (read(packets)?, read(bytes)?);
        let count = |(packets, bytes)| Count { packets, bytes };
        Ok(packets.into_iter().zip(bytes).map(count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_is_the_time_between_turns_without_the_sleep() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut watch = Watch::starting(start);
        watch.turn(start + ms(300));
        // Woken early, and at its end.
        for woken in [350, 401] {
            watch.expected = start + ms(401);
            watch.turn(start + ms(woken));
        }
        watch.turn(start + ms(401) + STALL / 2);
        assert_eq!(watch.stalls.0.values().sum::<u64>(), 1);
        watch.expected = start + ms(500);
        watch.turn(start + ms(510));
        let bounds: Vec<_> = watch.stalls.0.keys().map(|ns| ns / 1_000_000).collect();
        assert_eq!(bounds, [10, 301]);
    }
}
