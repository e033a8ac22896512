// SPDX-License-Identifier: Apache-2.0
//! A week of pings through the built-in `viasat2` in virtual time: one every 200 ms,
//! as SAT20 probed the real link. The losses and the round-trip times are those that
//! the profile states; and their quantiles are the published ones.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::VecDeque;

use compile::compile;
use emu::delay::ExcursionPlan;
use emu::engine::{Departure, Engine, Limits};
use emu::episode::DurationLaw;
use emu::plan::Plan;
use emu::stats::{DropReason, Snapshot};
use emu::units::{Direction, Instant, Nanos};
use nix::sys::resource::{UsageWho, getrusage};
use proto::dataplane::v1 as pb;

const INTERVAL: Nanos = Nanos::from_millis(200);
const PINGS: u64 = 7 * 24 * 3600 * 5;
const LIMITS: Limits = Limits { memory: 8 << 20, clients: 1, frame: 1514 };

fn viasat2(seed: u64) -> Plan {
    let profile = profile::Catalog::built_in().get("viasat2").unwrap().as_proto().clone();
    compile(&pb::Plan { profile: Some(profile), seed }).unwrap()
}

/// A UDP datagram of 20 bytes; it carries its number.
fn ping(number: u64) -> [u8; 62] {
    let mut f = [0; 62];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&48_u16.to_be_bytes());
    // The client's address at both ends: it is the client's in either direction.
    f[26..30].copy_from_slice(&[10, 0, 0, 1]);
    f[30..34].copy_from_slice(&[10, 0, 0, 1]);
    f[42..50].copy_from_slice(&number.to_be_bytes());
    f
}

/// Round-trip times by ping; `None` for the lost ones.
fn week(plan: &Plan) -> Vec<Option<Nanos>> {
    let mut engine = Engine::new(LIMITS, plan.clone(), Instant::ZERO).unwrap();
    let mut rtt = vec![None; PINGS as usize];
    let mut echoes = VecDeque::new();
    let mut next = 0;
    loop {
        let sending = (next < PINGS).then(|| Instant(next * INTERVAL.0));
        let Some(now) = [sending, engine.next_deadline()].into_iter().flatten().min() else {
            break;
        };
        if sending == Some(now) {
            engine.arrive(now, Direction::Forward, &ping(next));
            next += 1;
        }
        engine.release(now, usize::MAX, &mut |d: Departure<'_>| {
            let number = u64::from_be_bytes(d.frame[42..50].try_into().unwrap());
            match d.direction {
                Direction::Forward => echoes.push_back(number),
                Direction::Return => {
                    rtt[number as usize] = Some(d.due.since(Instant(number * INTERVAL.0)));
                }
            }
            true
        });
        for number in echoes.drain(..) {
            engine.arrive(now, Direction::Return, &ping(number));
        }
        if next % 1000 == 0 {
            engine.keep_up(now);
        }
    }
    let mut snapshot = Snapshot::default();
    engine.snapshot(Instant::MAX, false, &mut snapshot);
    assert!(snapshot.is_conserved());
    let total = snapshot.total();
    let lost = rtt.iter().filter(|r| r.is_none()).count() as u64;
    assert_eq!(total.dropped[DropReason::Outage as usize].packets, lost);
    assert_eq!(total.dropped_total().packets, lost);
    rtt
}

/// Lost pings that the plan states, with the variance of their number: a compound
/// Poisson sum over episodes. An episode of length d holds K pings, E K = d / δ; for a
/// fixed d ≤ δ, K is 0 or 1; for an exponential one E K² ≤ m + 2 m².
fn stated_losses(plan: &Plan) -> (f64, f64) {
    let (mut mean, mut variance) = (0.0, 0.0);
    for o in plan.pipes.0.iter().flat_map(|p| &p.outages) {
        let (interval, duration) = (o.interval.0 as f64, o.duration.0 as f64);
        let episodes = (PINGS * INTERVAL.0) as f64 / (interval + duration);
        let m = duration / INTERVAL.0 as f64;
        mean += episodes * m;
        variance += episodes
            * match o.law {
                DurationLaw::Fixed => m,
                DurationLaw::Exponential => m + 2.0 * m * m,
            };
    }
    (mean, variance)
}

/// P(amplitude > a) of a class of excursions, `max` aside.
fn survival(e: &ExcursionPlan, a: f64) -> f64 {
    let x = (a - e.location.0 as f64) / e.scale.0 as f64;
    if x <= 0.0 {
        1.0
    } else if e.shape.abs() < 1e-9 {
        (-x).exp()
    } else {
        (1.0 + e.shape * x).max(0.0).powf(-1.0 / e.shape)
    }
}

/// The share of time in which a class adds more than `x`, and how many episodes do: an
/// episode of length D and amplitude A > x does for D, and then for A − x more while
/// the extra delay falls.
fn raised(e: &ExcursionPlan, x: f64) -> (f64, f64) {
    let max = e.max.0 as f64;
    if x >= max {
        return (0.0, 0.0);
    }
    const STEPS: u32 = 2000;
    let step = (max - x) / f64::from(STEPS);
    let catching_up: f64 =
        (0..STEPS).map(|i| survival(e, x + (f64::from(i) + 0.5) * step) * step).sum();
    let episodes = (PINGS * INTERVAL.0) as f64 / (e.interval.0 + e.duration.0) as f64;
    let time = e.duration.0 as f64 * survival(e, x) + catching_up;
    (time / (e.interval.0 + e.duration.0) as f64, episodes * survival(e, x))
}

/// P(RTT > y) that the plan states, and the episodes that it comes from.
fn stated_exceedance(plan: &Plan, y: f64) -> (f64, f64) {
    let [forward, back] = &plan.pipes.0;
    let base = (forward.delay.base + back.delay.base).0 as f64;
    let slot = back.delay.slot.0 as f64;
    const PHASES: u32 = 200;
    let (mut p, mut episodes) = (0.0, 0.0);
    for i in 0..PHASES {
        let x = y - base - slot * (f64::from(i) + 0.5) / f64::from(PHASES);
        if x < 0.0 {
            p += 1.0;
            continue;
        }
        let mut quiet = 1.0;
        for e in &back.delay.excursions {
            let (share, n) = raised(e, x);
            quiet *= 1.0 - share;
            episodes += n;
        }
        p += 1.0 - quiet;
    }
    (p / f64::from(PHASES), episodes / f64::from(PHASES))
}

#[test]
fn a_week_of_pings_is_what_the_profile_states_and_what_was_measured() {
    let plan = viasat2(1);
    assert!(plan.pipes[Direction::Forward].delay.excursions.is_empty(), "the theory below");
    let before = getrusage(UsageWho::RUSAGE_THREAD).unwrap().user_time();
    let rtt = week(&plan);
    let cpu = getrusage(UsageWho::RUSAGE_THREAD).unwrap().user_time() - before;
    println!("a week of pings took {cpu} of CPU time");

    let lost = rtt.iter().filter(|r| r.is_none()).count() as f64;
    let (mean, variance) = stated_losses(&plan);
    println!("lost {lost}, stated {mean:.0} ± {:.0}; SAT20: 604", variance.sqrt());
    assert!((lost - mean).abs() < 4.0 * variance.sqrt());
    // The profile states what was measured.
    assert!((mean - 604.0).abs() < 0.02 * 604.0, "{mean}");
    let mut runs = Vec::new();
    for group in rtt.chunk_by(|a, b| a.is_none() == b.is_none()) {
        if group[0].is_none() {
            runs.push(group.len());
        }
    }
    let multiple = runs.iter().filter(|r| **r > 1).count() as f64;
    println!("{} loss events, {multiple} of several pings; SAT20: 509, 44", runs.len());
    assert!((multiple - 44.0).abs() < 4.0 * 44_f64.sqrt());
    assert!((runs.len() as f64 - 509.0).abs() < 4.0 * 509_f64.sqrt());

    let mut ms: Vec<f64> = rtt.iter().flatten().map(|r| r.0 as f64 / 1e6).collect();
    ms.sort_by(f64::total_cmp);
    let quantile = |p: f64| ms[((ms.len() - 1) as f64 * p) as usize];
    // As digitised from SAT20, ±1 ms in the body; the body of the profile is flat.
    for (p, published) in [(0.05, 576.0), (0.25, 587.0), (0.5, 597.3), (0.75, 607.0), (0.95, 616.0)]
    {
        let q = quantile(p);
        println!("p{:<4} {q:.1} ms; SAT20: {published}", p * 100.0);
        assert!((q - published).abs() < 2.0);
    }
    for y in [620.0, 625.0, 632.0, 650.0, 700.0, 766.0, 850.0] {
        let share = ms.iter().filter(|r| **r > y).count() as f64 / ms.len() as f64;
        let (stated, episodes) = stated_exceedance(&plan, y * 1e6);
        // Episodes come as a Poisson process, and the time that each adds has a
        // coefficient of variation of about one: relative variance 2 / episodes.
        let tolerance = 4.0 * stated * (2.0 / episodes).sqrt();
        println!("P(> {y} ms) {share:.2e}, stated {stated:.2e} ± {:.0e}", tolerance / 4.0);
        assert!((share - stated).abs() < tolerance, "{y}");
    }
}
