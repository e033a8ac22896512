// SPDX-License-Identifier: Apache-2.0
//! The owners of links in virtual time: random histories, and what must hold of each.
//!
//! One number, the seed, gives the requests of a history ([`script`]), and the delays and faults of all
//! that executes them. All tasks run in one thread on a paused clock, so that the same seed always has
//! the same history. Afterwards the plans that were executed, the answers, the events and the scenarios
//! are compared.
//!
//! | world | simulated | code of the product |
//! |---|---|---|
//! | [`links`] | workers, which are late and stand still | `owner` |
//! | [`linkd`] | a dataplane that crashes, a disk that is full, wall clocks that jump, callers who compete | linkd, `owner` |
//! | [`group`] | boxes that crash and refuse, and the network between them and the group | `linkd-group`, `owner` |

#![expect(clippy::expect_used, reason = "without a bed there is no history")]

mod group;
mod linkd;
mod links;
mod network;
mod node;
mod requests;
mod script;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub use script::{Script, World};

/// How often histories reached something, by name.
pub type Coverage = BTreeMap<&'static str, u64>;

/// What came of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What did not hold, in words.
    pub faults: Vec<String>,
    pub coverage: Coverage,
    /// Of answers and executed plans: equal for equal histories.
    pub trace: String,
}

/// What was found out about a history.
#[derive(Default)]
struct Findings {
    faults: Vec<String>,
    coverage: Coverage,
}

impl Findings {
    /// Adds a fault, unless something holds.
    fn fault(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(what());
        }
    }

    fn reached(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    fn report(self, trace: String) -> Report {
        let Self { faults, coverage } = self;
        Report { faults, coverage, trace }
    }
}

/// Runs a script, and checks what must hold.
#[must_use]
pub fn run(script: &Script) -> Report {
    match script.world {
        World::Links => links::run(script),
        World::Group => group::run(script),
        World::Linkd => linkd::run(script),
    }
}

/// Runs all tasks of a history in this thread, on a clock that stands still while one of them can go on.
///
/// # Panics
/// If there is no memory for a runtime.
fn in_virtual_time<T>(history: impl Future<Output = T>) -> T {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(history)
}

/// Runs the histories of seeds on all processors. Says each one that has ended.
///
/// # Errors
/// The smallest seed of those that ran whose history has a fault.
pub fn simulate_all(
    world: World,
    seeds: Range<u64>,
    ended: impl Fn() + Sync,
) -> Result<Coverage, u64> {
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicU64::new(u64::MAX);
    let all = Mutex::new(Coverage::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || failed.load(Ordering::Relaxed) < seed {
                break;
            }
            let Report { faults, coverage, .. } = run(&Script::of(world, seed));
            if !faults.is_empty() {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            coverage.into_iter().for_each(|(what, n)| *all.entry(what).or_default() += n);
            ended();
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    match failed.into_inner() {
        u64::MAX => Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner)),
        seed => Err(seed),
    }
}

/// The least part of a script that still fails: requests are left out as long as it does.
#[must_use]
pub fn minimise(script: &Script) -> Script {
    let mut least = script.clone();
    let mut step = least.ops.len().div_ceil(2);
    while step > 0 {
        let mut from = 0;
        while from < least.ops.len() {
            let mut fewer = least.clone();
            fewer.ops.drain(from..(from + step).min(fewer.ops.len()));
            match run(&fewer).faults.is_empty() {
                true => from += step,
                false => least = fewer,
            }
        }
        step /= 2;
    }
    least
}

/// What the history of a seed lacks, with the least part of it and the command that runs that, in words.
pub struct Failure(String);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The failure of a seed.
#[must_use]
pub fn failure(world: World, seed: u64) -> Failure {
    let script = Script::of(world, seed);
    let faults = run(&script).faults.join("\n  ");
    let least = minimise(&script);
    let left = run(&least).faults.join("\n  ");
    let numbers: Vec<_> = least.ops.iter().map(|it| it.number.to_string()).collect();
    Failure(format!(
        "seed {seed}:\n  {faults}\nThe least part of it that has a fault: {:#?}\n  {left}\nRun it: \
         cargo run -p simulation -- {} --seed {seed} --ops {}",
        least.ops,
        format!("{world:?}").to_lowercase(),
        numbers.join(",")
    ))
}
