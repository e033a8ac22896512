// SPDX-License-Identifier: Apache-2.0
//! Many workers: does one slow the others?
//!
//! Each worker is a thread with its own ports, pool and engine, as in the dataplane. Rounds
//! with one, two, four and eight of them at work follow each other, so that noise hits all. A round's
//! cost is the mean of its workers' processor time a packet: more workers than cores only take
//! longer. The effect of shared resources, such as caches and memory bandwidth, shows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use serde::Serialize;

use crate::case::Case;
use crate::contender::Ours;
use crate::cost::{Effort, warm_up};
use crate::cpu;
use crate::error::Error;
use crate::spread::Spread;
use crate::stand::Bench;

/// Workers at work in a round.
const ACTIVE: [usize; 4] = [1, 2, 4, 8];
const MOST: usize = 8;
/// Of [`ACTIVE`], that of the goal.
const GOAL: usize = 2;

/// Results of many workers.
#[derive(Clone, Debug, Serialize)]
pub struct Scaling {
    /// The case that each worker has.
    pub case: String,
    /// Workers, and the mean of their ns of processor time a packet.
    pub cost_ns: Vec<(usize, Spread)>,
    /// Throughput of four workers in that of one, by processor time.
    pub four_to_one: Spread,
}

/// State that the threads share.
struct Rounds {
    barrier: Barrier,
    /// How many work in this round; none ends it.
    active: AtomicUsize,
    costs: Mutex<Vec<f64>>,
    failed: Mutex<Option<Error>>,
}

/// Measures.
///
/// # Errors
/// If a worker cannot be made.
pub fn measure(bench: &Bench, case: &Case, effort: Effort) -> Result<Scaling, Error> {
    let rounds = Rounds {
        barrier: Barrier::new(MOST + 1),
        active: AtomicUsize::new(0),
        costs: Mutex::new(Vec::new()),
        failed: Mutex::new(None),
    };
    let mut costs: [Vec<f64>; ACTIVE.len()] = Default::default();
    thread::scope(|scope| {
        for n in 0..MOST {
            let rounds = &rounds;
            scope.spawn(move || work(bench, case, effort, n, rounds));
        }
        // All are made.
        rounds.barrier.wait();
        let failed = rounds.failed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        for _ in 0..if failed { 0 } else { effort.repetitions } {
            for (active, costs) in ACTIVE.into_iter().zip(&mut costs) {
                rounds.active.store(active, Ordering::SeqCst);
                rounds.barrier.wait();
                rounds.barrier.wait();
                let mut of = rounds.costs.lock().unwrap_or_else(PoisonError::into_inner);
                costs.push(of.iter().sum::<f64>() / of.len().max(1) as f64);
                of.clear();
            }
        }
        rounds.active.store(0, Ordering::SeqCst);
        rounds.barrier.wait();
    });
    if let Some(error) = rounds.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let ratio = |(one, four): (&f64, &f64)| ACTIVE[GOAL] as f64 * one / four;
    let ratios: Vec<f64> = costs[0].iter().zip(&costs[GOAL]).map(ratio).collect();
    Ok(Scaling {
        case: case.to_string(),
        cost_ns: ACTIVE.into_iter().zip(costs.iter().map(|c| Spread::of(c))).collect(),
        four_to_one: Spread::of(&ratios),
    })
}

fn work(bench: &Bench, case: &Case, effort: Effort, n: usize, rounds: &Rounds) {
    let made = bench.eal.register_thread().map_err(Error::from).and_then(|guard| {
        let mut ours = Ours::open(bench, &format!("worker{n}"), case)?;
        warm_up(&mut ours, case);
        Ok((guard, ours))
    });
    let mut made = match made {
        Ok(made) => Some(made),
        Err(error) => {
            *rounds.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            None
        }
    };
    rounds.barrier.wait();
    loop {
        rounds.barrier.wait();
        let active = rounds.active.load(Ordering::SeqCst);
        if active == 0 {
            break;
        }
        if let Some((_, ours)) = made.as_mut().filter(|_| n < active) {
            let start = cpu::thread_ns();
            let frames = ours.run(effort.frames);
            let cost = (cpu::thread_ns() - start) as f64 / frames as f64;
            rounds.costs.lock().unwrap_or_else(PoisonError::into_inner).push(cost);
        }
        rounds.barrier.wait();
    }
    // Buffers go back before the thread leaves EAL.
    if let Some((guard, ours)) = made {
        drop(ours);
        drop(guard);
    }
}
