// SPDX-License-Identifier: Apache-2.0
//! The workers' I/O: the queues of each one, with the decorators that pairs, a switch and several
//! workers need ([`worker`]).

use std::io;
use std::sync::Arc;

use dpdk::{Eal, RxQueue, TscClock, Waiter};
use emu::plan::Plan;
use worker::distribute::{Distributed, Lending, Overflow, connect};
use worker::dpdk_io::DpdkIo;
use worker::edge::Tail;
use worker::paired::PairedIo;
use worker::shim::ShimIo;

use crate::ports::Share;
use crate::workers::{self, Running, Settings};

/// The I/O of one pair.
type Io = DpdkIo<Option<RxQueue>>;

/// Starts a worker for each share. Also returns what they cannot pass on to each other, by pair and
/// worker.
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
) -> io::Result<(Running, Vec<Vec<Arc<Overflow>>>)> {
    let mut workers: Vec<Vec<Io>> = shares.into_iter().map(io).collect::<io::Result<_>>()?;
    if let [only] = &mut *workers {
        let mut pairs = std::mem::take(only);
        let running = match (settings.tail, pairs.pop(), pairs.is_empty()) {
            (Tail::Shim(tick), Some(pair), true) => {
                workers::spawn(eal, vec![ShimIo::new(pair, tick)], clock, plan, settings)?
            }
            (_, Some(pair), true) => workers::spawn(eal, vec![pair], clock, plan, settings)?,
            (_, last, _) => {
                pairs.extend(last);
                workers::spawn(eal, vec![PairedIo::new(pairs)], clock, plan, settings)?
            }
        };
        return Ok((running, Vec::new()));
    }
    let mut overflow = Vec::new();
    let mut connected: Vec<Vec<Distributed<Io>>> = workers.iter().map(|_| Vec::new()).collect();
    for pair in by_pair(workers) {
        let pair = connect(pair, lending);
        overflow.push(pair.iter().map(Distributed::overflow).collect());
        connected.iter_mut().zip(pair).for_each(|(worker, io)| worker.push(io));
    }
    let running = if overflow.len() == 1 {
        let workers = connected.into_iter().flatten().collect();
        workers::spawn(eal, workers, clock, plan, settings)?
    } else {
        let workers = connected.into_iter().map(PairedIo::new).collect();
        workers::spawn(eal, workers, clock, plan, settings)?
    };
    Ok((running, overflow))
}

/// The I/O of a worker, by pair. The first one wakes on frames of all.
fn io(share: Share) -> io::Result<Vec<Io>> {
    let mut waiter = Waiter::new();
    for queue in share.pairs.iter().flatten().filter_map(|port| port.rx.as_ref()) {
        waiter = waiter.and(queue.waiter()?);
    }
    let pairs = share.pairs.into_iter().map(|[wan, client]| {
        DpdkIo::new(wan, client, share.pool.clone(), std::mem::take(&mut waiter))
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
