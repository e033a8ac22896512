// SPDX-License-Identifier: Apache-2.0
//! Losses that the switch draws, compared with their laws.

use anyhow::ensure;
use p4::bench::{Bench, WAYS, Way, on_bench};
use p4::chi::{Finding, repeated};
use p4::frame::Frame;
use p4::law::{Bursts, geometric, runs, units};
use p4::shim::Shim;
use p4runtime::Entry;
use smoke::cpus::Cpus;

const A: u16 = 5;
const B: u16 = 6;
const PACKETS: usize = 100_000;
const SLOT: u16 = 7;
const OTHER_SLOT: u16 = 65_535;
const NOBODY_S_SLOT: u16 = 8;

fn independent(slot: u16, p: u32) -> Entry {
    let entry = Entry::new("linkemu.loss").exact("slot", slot);
    entry.does("linkemu.independent").with("p", p)
}

fn gilbert_elliott(slot: u16, bursts: Bursts, loss_in_good: u32) -> Entry {
    Entry::new("linkemu.loss")
        .exact("slot", slot)
        .does("linkemu.gilbert_elliott")
        .with("to_bad", units(bursts.to_bad))
        .with("to_good", units(bursts.to_good))
        .with("loss_in_bad", units(bursts.loss_in_bad))
        .with("loss_in_good", loss_in_good)
}

/// Returns numbered frames as the box does, each with the client and slot of `of`. Reports for each
/// whether it was lost. The counters of the switch must match, by client.
fn lost(
    bench: &mut Bench,
    way: Way,
    packets: usize,
    of: impl Fn(usize) -> (u16, u16),
) -> anyhow::Result<Vec<bool>> {
    let clients = [A, B];
    let before = clients.map(|client| bench.control.fates(client, way.direction));
    let mut lost = vec![true; packets];
    let frames = (0..packets).map(|number| {
        let (client, loss) = of(number);
        // The sender's address contains the number.
        let from = std::net::Ipv4Addr::from(number as u32);
        let frame = Frame::v4(from, [10, 77, 0, 9].into()).bytes();
        Shim { loss, ..way.shim(client) }.wrap(&frame)
    });
    let mut strange = 0;
    bench.stream(way, frames, |frame| {
        let number =
            frame.get(26..30).and_then(|n| n.first_chunk()).map(|n| u32::from_be_bytes(*n));
        match number.and_then(|n| lost.get_mut(n as usize)) {
            Some(lost) if *lost => *lost = false,
            _ => strange += 1,
        }
    })?;
    ensure!(strange == 0, "{strange} frames are duplicate or unknown");
    for (client, before) in clients.into_iter().zip(before) {
        let fates = bench.control.fates(client, way.direction)?.since(&before?);
        let own = (0..packets).filter(|n| of(*n).0 == client);
        let gone = own.clone().filter(|n| lost[*n]).count() as u64;
        let all = own.count() as u64;
        ensure!(
            fates.returned() == all && fates.lost() == gone && fates.add_up(),
            "client {client}: {fates:?}, of {all} sent {gone} did not come"
        );
    }
    Ok(lost)
}

fn count(lost: &[bool]) -> u64 {
    lost.iter().filter(|lost| **lost).count() as u64
}

pub fn independent_losses_have_probability_and_no_memory(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let [way, _] = WAYS;
        let p = 0.05;
        bench.control.insert(&[independent(SLOT, units(p))])?;
        repeated(|| {
            let lost = lost(bench, way, PACKETS, |_| (A, SLOT))?;
            let (n, k) = (PACKETS as f64, count(&lost));
            println!("    {k} of {PACKETS} were lost, expected a share of {p}");
            let deviation = (n * p * (1.0 - p)).sqrt();
            let runs = runs(&lost, true);
            let grow = geometric(runs.iter().sum(), p);
            Ok(vec![
                Finding::of_normal("packets lost", k as f64, n * p, deviation),
                Finding::of_fit("lengths of runs", &runs, &grow),
            ])
        })
    })
}

pub fn probability_is_exact_at_0_and_1(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let packets = 2_000;
        for way in WAYS {
            // Losses with probability 0, with 1 - 2^-32, and without an entry.
            bench.control.insert(&[independent(SLOT, 0), independent(OTHER_SLOT, u32::MAX)])?;
            let none = lost(bench, way, packets, |_| (A, SLOT))?;
            ensure!(count(&none) == 0, "{} lost at 0", count(&none));
            let all = lost(bench, way, packets, |_| (A, OTHER_SLOT))?;
            // One frame can pass, with a probability of 2000 / 2^32.
            ensure!(count(&all) >= packets as u64 - 1, "{} lost at 1", count(&all));
            let (unknown, fates) =
                bench.fates(way, A, |bench| lost(bench, way, packets, |_| (A, NOBODY_S_SLOT)))?;
            ensure!(count(&unknown) == 0, "{} lost by nothing", count(&unknown));
            ensure!(fates.unknown_loss() == packets as u64, "{fates:?}");
            // Modified in place, then deleted.
            bench.control.modify(&[independent(SLOT, u32::MAX)])?;
            let changed = lost(bench, way, packets, |_| (A, SLOT))?;
            ensure!(count(&changed) >= packets as u64 - 1, "{} lost", count(&changed));
            bench.control.delete(&[independent(SLOT, 0), independent(OTHER_SLOT, 0)])?;
            let gone = lost(bench, way, packets, |_| (A, SLOT))?;
            ensure!(count(&gone) == 0, "{} lost", count(&gone));
        }
        Ok(())
    })
}

pub fn burst_losses_have_geometric_runs_and_gaps(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let [way, _] = WAYS;
        let bursts = Bursts { to_bad: 0.02, to_good: 0.25, loss_in_bad: 1.0 };
        bench.control.insert(&[gilbert_elliott(SLOT, bursts, 0)])?;
        repeated(|| {
            let lost = lost(bench, way, PACKETS, |_| (A, SLOT))?;
            let mut found = burst_findings(&lost, bursts);
            // If all are lost in the bad state, the gaps are the good state.
            let gaps = runs(&lost, false);
            let expected = geometric(gaps.iter().sum(), 1.0 - bursts.to_bad);
            found.push(Finding::of_fit("lengths of gaps", &gaps, &expected));
            Ok(found)
        })
    })
}

fn burst_findings(lost: &[bool], bursts: Bursts) -> Vec<Finding> {
    let (n, k) = (lost.len() as f64, count(lost));
    println!("    {k} of {n} were lost, expected a share of {:.4}", bursts.share());
    let runs = runs(lost, true);
    let expected = geometric(runs.iter().sum(), bursts.grows());
    let deviation = bursts.variance(n).sqrt();
    vec![
        Finding::of_normal("packets lost", k as f64, n * bursts.share(), deviation),
        Finding::of_fit("lengths of runs", &runs, &expected),
    ]
}

/// One client that enters the bad state permanently stays there, while the other one is in the good
/// state.
pub fn clients_and_directions_have_separate_loss_states(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let never = Bursts { to_bad: 0.0, to_good: 0.0, loss_in_bad: 1.0 };
        let worse = Bursts { to_bad: 1.0, ..never };
        // Certain except for 2^-32: the first packet finds the good state and moves to the bad one.
        bench.control.insert(&[gilbert_elliott(OTHER_SLOT, worse, 0)])?;
        bench.control.insert(&[gilbert_elliott(SLOT, never, 0)])?;
        let [forward, back] = WAYS;
        let first = lost(bench, forward, 1, |_| (A, OTHER_SLOT))?;
        ensure!(first == [false], "the state before the first packet was not the good one");
        let kept = lost(bench, forward, 100, |n| (if n % 2 == 0 { A } else { B }, SLOT))?;
        let by_turns = Vec::from_iter((0..100).map(|n| n % 2 == 0));
        // Each is lost with a probability of 1 - 2^-32.
        ensure!(kept == by_turns, "expected to lose all of A and none of B: {kept:?}");
        let other = lost(bench, back, 100, |_| (A, SLOT))?;
        ensure!(count(&other) == 0, "the other direction has the state of this one");
        // It stays in the bad state under another entry, and a third entry returns it to the good
        // state.
        let better = Bursts { to_good: 1.0, ..never };
        bench.control.modify(&[gilbert_elliott(SLOT, better, 0)])?;
        let healed = lost(bench, forward, 10, |_| (A, SLOT))?;
        ensure!(healed[0] && count(&healed) == 1, "{healed:?}");
        Ok(())
    })
}

/// Two clients in turn, with one entry and a bad state that passes some packets: each has the runs
/// of a separate chain.
pub fn clients_with_equal_parameters_lose_independently(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let [_, way] = WAYS;
        let bursts = Bursts { to_bad: 0.05, to_good: 0.1, loss_in_bad: 0.6 };
        bench.control.insert(&[gilbert_elliott(SLOT, bursts, 0)])?;
        repeated(|| by_turns(bench, way, bursts))
    })
}

fn by_turns(bench: &mut Bench, way: Way, bursts: Bursts) -> anyhow::Result<Vec<Finding>> {
    let lost = lost(bench, way, PACKETS, |n| (if n % 2 == 0 { A } else { B }, SLOT))?;
    let own = |odd: usize| Vec::from_iter(lost.iter().skip(odd).step_by(2).copied());
    let (a, b) = (own(0), own(1));
    // Pairs of a packet of A and the next packet of B: their losses are independent.
    let mut pairs = [[0; 2]; 2];
    for (a, b) in a.iter().zip(&b) {
        pairs[usize::from(*a)][usize::from(*b)] += 1;
    }
    let mut found = burst_findings(&a, bursts);
    found.extend(burst_findings(&b, bursts));
    let together = Finding::of_normal(
        "lost of both clients at once",
        pairs[1][1] as f64,
        a.len() as f64 * bursts.share() * bursts.share(),
        both_deviation(bursts, a.len() as f64),
    );
    found.push(together);
    Ok(found)
}

/// Deviation of the number of pairs in which both packets of two independent chains are lost. With
/// s the share of losses, losses of a chain k packets apart have the covariance c = h² π (1 - π)
/// λ^k ([`p4::law`]), and products of two have c² + 2 c s².
fn both_deviation(bursts: Bursts, pairs: f64) -> f64 {
    let (square, spread) = (bursts.share() * bursts.share(), bursts.spread());
    let sum = |ratio: f64| ratio / (1.0 - ratio);
    let together = spread * spread * sum(bursts.memory() * bursts.memory())
        + 2.0 * spread * square * sum(bursts.memory());
    (pairs * (square * (1.0 - square) + 2.0 * together)).sqrt()
}
