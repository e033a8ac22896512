// SPDX-License-Identifier: Apache-2.0
//! A change of profile under full load: the worst turn, and that nothing is lost by it.
//!
//! A worker with a full delay line is given another plan through its queue of commands, and the
//! processor time of each turn is taken for longer than the delay. Timer interrupts and the
//! hypervisor count as the thread's own time, so a single worst turn says little: the change is
//! repeated, to and fro, and of each stretch of `STRETCH` turns after it the least of the
//! repetitions' worst turns counts, to and fro apart. A pause that the change makes comes each
//! time at the same place and remains; noise does not. The same measure without a change, and
//! plain worst turns, are given beside it.

use emu::plan::Plan;
use emu::stats::{DropReason, Snapshot};
use emu::units::{BitRate, Nanos};
use serde::Serialize;
use worker::command::Change;

use crate::case::{Case, LOADED};
use crate::contender::Ours;
use crate::cost::warm_up;
use crate::cpu;
use crate::error::Error;
use crate::spread::Spread;
use crate::stand::Bench;

/// Turns that share one maximum: a pause may occur in a different turn each time.
const STRETCH: usize = 64;
/// The change takes effect this long after it is asked for.
const AHEAD: Nanos = Nanos::from_micros(50);

/// Results of changes under load.
#[derive(Clone, Debug, Serialize)]
pub struct Pause {
    pub case: String,
    pub clients: u32,
    /// How many changes were made.
    pub changes: usize,
    /// The worst turn that comes with each change, µs of processor time.
    pub worst_us: f64,
    /// How many turns after the change was asked for that is, to within `STRETCH`.
    pub worst_after: usize,
    /// The same measure of as many turns without a change, µs.
    pub quiet_us: f64,
    /// The worst turn after each change, noise included, µs.
    pub with_noise_us: Spread,
    /// The worst turn of as many turns without a change, noise included, µs.
    pub quiet_with_noise_us: Spread,
    /// Turns until all clients have taken a change,
    pub settled_turns: Spread,
    /// and their processor time, µs.
    pub settled_us: Spread,
    /// Frames lost otherwise than by the link's outages.
    pub lost: u64,
    /// Whether the accounts add up.
    pub conserved: bool,
}

/// Measures with `clients` clients.
///
/// # Errors
/// If ports, pool or engine cannot be made, or the worker does not answer.
pub fn measure(bench: &Bench, case: &Case, changes: usize) -> Result<Pause, Error> {
    let mut ours = Ours::open(bench, "change", case)?;
    warm_up(&mut ours, case);
    let plans = [other(case)?, case.plan()?];
    // 1.2 delays, in turns of a burst.
    let turns = (1.2 * case.held() / dpdk::RX_BURST as f64) as usize;
    let lost_before = lost(&ours.report().snapshot);
    let (mut quiet, mut worst) = (Vec::new(), Vec::new());
    let (mut settled_turns, mut settled_us) = (Vec::new(), Vec::new());
    // To and fro.
    let mut least: [_; 2] = Default::default();
    let mut least_quiet: [_; 2] = Default::default();
    for n in 0..changes {
        let seen = stretches(&mut ours, turns, |_| ());
        quiet.push(most(&seen));
        fold(&mut least_quiet[n % 2], &seen);
        let plan = plans[n % 2].clone();
        let change =
            Change { at: ours.now() + AHEAD, plan, generation: n as u64 + 1, restart: false };
        let mut answer = ours.handle.apply(change)?;
        let (mut is_settled, mut needed, mut us) = (false, 0_u32, 0.0);
        let seen = stretches(&mut ours, turns, |took| {
            if !is_settled {
                (needed, us) = (needed + 1, us + took);
                is_settled = answer.try_recv().is_ok();
            }
        });
        if !is_settled {
            return Err(Error::Unanswered);
        }
        settled_turns.push(f64::from(needed));
        settled_us.push(us);
        worst.push(most(&seen));
        fold(&mut least[n % 2], &seen);
    }
    let snapshot = &ours.report().snapshot;
    Ok(Pause {
        case: case.to_string(),
        clients: case.clients,
        changes,
        worst_us: least.iter().map(|l| most(l)).fold(0.0, f64::max),
        worst_after: least
            .iter()
            .map(|l| place(l))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(0, |p| p.1),
        quiet_us: least_quiet.iter().map(|l| most(l)).fold(0.0, f64::max),
        with_noise_us: Spread::of(&worst),
        quiet_with_noise_us: Spread::of(&quiet),
        settled_turns: Spread::of(&settled_turns),
        settled_us: Spread::of(&settled_us),
        lost: lost(snapshot) - lost_before,
        conserved: snapshot.is_conserved(),
    })
}

/// Another plan that carries the same load: each stage's parameters differ.
fn other(case: &Case) -> Result<Plan, Error> {
    let mut plan = case.plan()?;
    let pipe = &mut plan.pipes[LOADED];
    pipe.rate = BitRate::bps(case.share() * 9 / 10).into();
    pipe.queue.limit = 30_000_000;
    pipe.delay.base = case.delay + Nanos::from_millis(10);
    for outage in &mut pipe.outages {
        outage.interval = outage.interval + Nanos::from_secs(60);
    }
    Ok(plan)
}

/// The worst turn of each stretch, µs of processor time; `after` gets that of each turn.
fn stretches(ours: &mut Ours, turns: usize, mut after: impl FnMut(f64)) -> Vec<f64> {
    let stretch = |_| {
        let turn = |_| {
            let start = cpu::thread_ns();
            ours.turn();
            let took = (cpu::thread_ns() - start) as f64 / 1e3;
            after(took);
            took
        };
        (0..STRETCH).map(turn).fold(0.0, f64::max)
    };
    (0..turns.div_ceil(STRETCH)).map(stretch).collect()
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The largest value, and at which turn its stretch begins.
fn place(values: &[f64]) -> (f64, usize) {
    let all = values.iter().copied().zip((0..).step_by(STRETCH));
    all.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
}

/// Keeps the lesser of each two; the first time all of them.
fn fold(least: &mut Vec<f64>, seen: &[f64]) {
    if least.is_empty() {
        least.extend(seen);
    }
    for (a, b) in least.iter_mut().zip(seen) {
        *a = a.min(*b);
    }
}

fn lost(snapshot: &Snapshot) -> u64 {
    let total = snapshot.total();
    let outages = total.dropped[DropReason::Outage as usize].packets;
    total.dropped_total().packets - outages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_removed_and_pauses_stay() {
        let first = [3.0, 60.0, 3.0, 900.0];
        let second = [500.0, 62.0, 3.0, 3.0];
        let mut least = Vec::new();
        fold(&mut least, &first);
        fold(&mut least, &second);
        assert_eq!(least, [3.0, 60.0, 3.0, 3.0]);
        assert_eq!(most(&least), 60.0);
        assert_eq!(place(&least), (60.0, STRETCH));
    }
}
