// SPDX-License-Identifier: Apache-2.0
//! The workers' I/O: the queues of each one, with the decorators that pairs, a switch and several
//! workers need ([`worker`]).

use std::io;

use dpdk::{Eal, RxQueue, TscClock, Waiter};
use emu::plan::Plan;
use shim::Numbers;
use worker::distribute::{Distributed, Lending, connect};
use worker::dpdk_io::DpdkIo;
use worker::edge::Tail;
use worker::hairpin::{HairpinIo, PairIo};
use worker::io::PacketIo;
use worker::paired::PairedIo;
use worker::shim::ShimIo;

use crate::ports::{PairCounters, PairQueues, Share};
use crate::workers::{self, Running, Settings};

/// The I/O of a pair with two ports, and of any.
type Two = DpdkIo<Option<RxQueue>>;
type Io = PairIo<Option<RxQueue>>;

/// Starts one worker for each share of the ports. Returns the workers and the counters of each pair.
///
/// # Errors
/// As [`workers::spawn`].
pub fn spawn(
    eal: &Eal,
    shares: Vec<Share>,
    lending: Lending,
    clock: TscClock,
    plan: &Plan,
    settings: &Settings,
) -> io::Result<(Running, Vec<PairCounters>)> {
    let workers: Vec<Vec<Io>> = shares.into_iter().map(io).collect::<io::Result<_>>()?;
    // The usual case has neither a decorator nor a choice between pairs.
    let two = |workers: &[Vec<Io>]| workers.iter().all(|it| matches!(**it, [PairIo::Two(_)]));
    if two(&workers) {
        let workers = workers.into_iter().flatten().filter_map(PairIo::into_two).collect();
        return spawn_two(eal, workers, lending, clock, plan, settings);
    }
    let mut counters: Vec<_> =
        workers.first().into_iter().flatten().map(|_| PairCounters::default()).collect();
    for worker in &workers {
        for (pair, io) in counters.iter_mut().zip(worker) {
            pair.sides.extend(io.sides());
        }
    }
    let running = if workers.len() == 1 {
        let workers = workers.into_iter().map(PairedIo::new).collect();
        workers::spawn(eal, workers, clock, plan, settings)?
    } else {
        let mut connected: Vec<Vec<_>> = workers.iter().map(|_| Vec::new()).collect();
        for (pair, counters) in by_pair(workers).into_iter().zip(&mut counters) {
            let pair = connect(pair, lending);
            counters.overflow = pair.iter().map(Distributed::overflow).collect();
            connected.iter_mut().zip(pair).for_each(|(worker, io)| worker.push(io));
        }
        let workers = connected.into_iter().map(PairedIo::new).collect();
        workers::spawn(eal, workers, clock, plan, settings)?
    };
    Ok((running, counters))
}

/// As [`spawn`], for one pair of two ports.
fn spawn_two(
    eal: &Eal,
    mut workers: Vec<Two>,
    lending: Lending,
    clock: TscClock,
    plan: &Plan,
    settings: &Settings,
) -> io::Result<(Running, Vec<PairCounters>)> {
    let mut counters = PairCounters::default();
    let running = match (settings.tail, workers.pop(), workers.is_empty()) {
        (Tail::Shim(numbers), Some(only), true) => {
            workers::spawn(eal, shimmed(vec![only], numbers), clock, plan, settings)?
        }
        (_, Some(only), true) => workers::spawn(eal, vec![only], clock, plan, settings)?,
        (_, last, _) => {
            workers.extend(last);
            let workers = connect(workers, lending);
            counters.overflow = workers.iter().map(Distributed::overflow).collect();
            match settings.tail {
                Tail::Shim(numbers) => {
                    workers::spawn(eal, shimmed(workers, numbers), clock, plan, settings)?
                }
                _ => workers::spawn(eal, workers, clock, plan, settings)?,
            }
        }
    };
    Ok((running, vec![counters]))
}

/// The I/O of each worker, with a switch behind it.
fn shimmed<I: PacketIo>(workers: Vec<I>, numbers: Numbers) -> Vec<ShimIo<I>> {
    workers.into_iter().zip(0..).map(|(io, worker)| ShimIo::new(io, numbers.of(worker))).collect()
}

/// The I/O of a worker, by pair. The first one wakes on frames of all.
fn io(share: Share) -> io::Result<Vec<Io>> {
    let Share { pairs, pool } = share;
    let ports = pairs.iter().flat_map(|pair| match pair {
        PairQueues::Two(ports) => &ports[..],
        PairQueues::Hairpin(port, _) => std::slice::from_ref(port),
    });
    let mut waiter = Waiter::new();
    for queue in ports.filter_map(|port| port.rx.as_ref()) {
        waiter = waiter.and(queue.waiter()?);
    }
    let pairs = pairs.into_iter().map(|queues| {
        let waiter = std::mem::take(&mut waiter);
        match queues {
            PairQueues::Two([wan, client]) => {
                PairIo::Two(DpdkIo::new(wan, client, pool.clone(), waiter))
            }
            PairQueues::Hairpin(port, vlans) => {
                PairIo::Hairpin(HairpinIo::new(port, vlans, pool.clone(), waiter))
            }
        }
    });
    Ok(pairs.collect())
}

/// Of each worker's I/O by pair, each pair's by worker.
fn by_pair<I>(workers: Vec<Vec<I>>) -> Vec<Vec<I>> {
    let mut pairs: Vec<Vec<I>> = Vec::new();
    for worker in workers {
        for (pair, io) in worker.into_iter().enumerate() {
            if pairs.len() == pair {
                pairs.push(Vec::new());
            }
            pairs[pair].push(io);
        }
    }
    pairs
}
