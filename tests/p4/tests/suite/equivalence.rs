// SPDX-License-Identifier: Apache-2.0
//! A link with the switch and the same link without it.

use anyhow::ensure;
use p4::bed::on_bed;
use p4::chi::{Finding, repeated};
use p4::law::{Bursts, runs};
use p4::numbered::Numbered;
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::stats::{Count, DropReason, Pipe, Stats};
use smoke::testbed::{Options, SAT_INTERFACE, SERVER, Testbed};

use super::SEED;
use super::path::{
    IN_BURSTS, INDEPENDENT, VOID, drained, interface, link, median, pinged, placed, silent,
};

/// Clients of a run, in turn.
const CLIENTS: usize = 2;
/// Packets of a run in the short form, at least; the last window is complete. The bounds of the comparison
/// follow from their number.
const FEW: usize = 20_000;
/// In the long form.
const MANY: usize = 100_000;
/// The switch accepts no probability of 1.
const BURSTS: Bursts = Bursts { to_bad: 0.02, to_good: 0.25, loss_in_bad: 0.75 };
/// Delay of both links.
const DELAY: &str = "45 ms";
const PINGS: u32 = 50;
/// Resolution of ping, in ms.
const PING_MS: f64 = 0.1;

/// Median round trips of a link without and with a delay.
struct Seen {
    idle_ms: f64,
    delayed_ms: f64,
}

fn delays(hosts: &Testbed, linkctl: &Linkctl) -> anyhow::Result<Seen> {
    let path = hosts.directory().write("delay.toml", &link("delay", "", "", DELAY))?;
    linkctl.set_profile("transparent", SEED)?;
    // The first ping resolves the MAC.
    pinged(hosts, 2)?;
    let idle_ms = median(&pinged(hosts, PINGS)?);
    linkctl.set_profile(&path.display().to_string(), SEED)?;
    let delayed_ms = median(&pinged(hosts, PINGS)?);
    Ok(Seen { idle_ms, delayed_ms })
}

/// Fates of each client's forward frames. The counters of linkd must match the hosts' view.
/// Measurements with drops in bmv2's own queue are repeated.
fn losses(hosts: &Testbed, linkctl: &Linkctl, packets: usize) -> anyhow::Result<Vec<Vec<bool>>> {
    for _ in 0..VOID {
        let before = drained(linkctl)?;
        let [left, _] = interface(hosts.emulator(), SAT_INTERFACE)?;
        let mut frames = Numbered::new(hosts, true, CLIENTS)?;
        while frames.lost.len() < packets {
            frames.window()?;
        }
        drained(linkctl)?;
        frames.sentinel()?;
        let after = drained(linkctl)?;
        let (spoiled, _) = silent(hosts, (&before, left), &after)?;
        if spoiled > 0 {
            println!("    VOID, once more: the switch's own queue dropped {spoiled} frames");
            continue;
        }
        for client in 0..CLIENTS {
            let name = hosts.client_address(client).to_string();
            let pipe = |stats: &Stats, of: fn(&Pipe) -> Count| {
                stats.client(&name).map_or(0, |c| of(c.forward()).packets)
            };
            let during = |of: fn(&Pipe) -> Count| pipe(&after, of) - pipe(&before, of);
            let lost = frames.lost_of(client);
            let gone = lost.iter().filter(|lost| **lost).count() as u64;
            let (came, sent) = (during(|p| p.received()), during(|p| p.sent()));
            let counted = during(|p| p.dropped_for(DropReason::Loss));
            let all = lost.len() as u64;
            ensure!(came == all, "{name}: {came} of {all} frames reached the box");
            ensure!(counted == gone, "{name}: {gone} lost, {counted} counted");
            ensure!(sent == all - gone, "{name}: {sent} sent of {all}, {gone} lost");
        }
        return Ok((0..CLIENTS).map(|client| frames.lost_of(client)).collect());
    }
    anyhow::bail!("the switch's own queue dropped frames in each of {VOID} runs")
}

/// Counts of a client's lost and received frames.
fn halves(lost: &[bool]) -> [u64; 2] {
    let gone = lost.iter().filter(|lost| **lost).count() as u64;
    [gone, lost.len() as u64 - gone]
}

/// Sends a packet of each client, which exists from then on, over a link without loss.
fn introduce(hosts: &Testbed) -> anyhow::Result<()> {
    for client in 0..CLIENTS {
        let [own, other] = [hosts.client_address(client), SERVER].map(|it| it.to_string());
        hosts.client().run(&["ping", "-c", "1", "-W", "5", "-I", &own, &other])?;
    }
    Ok(())
}

/// Sets a link with a loss in TOML.
fn set(hosts: &Testbed, words: &str, seed: u64) -> anyhow::Result<()> {
    let text = link("lossy", words, "", "0 ms");
    let path = hosts.directory().write("lossy.toml", &text)?;
    hosts.linkctl()?.set_profile(&path.display().to_string(), seed)?;
    Ok(())
}

/// Runs on a bed without a switch, with another seed.
fn alone<T>(
    cpus: &Cpus,
    seed: u64,
    work: impl FnOnce(&Testbed, &Linkctl) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let options = Options { clients: CLIENTS as u8, seed, ..Options::default() };
    let hosts = Testbed::new(options, cpus)?;
    let linkctl = hosts.linkctl()?;
    work(&hosts, &linkctl)
}

pub fn link_with_switch_equals_link_without(cpus: &Cpus) -> anyhow::Result<()> {
    equals(cpus, FEW, &[("bursts", IN_BURSTS)])
}

pub fn many_packets_are_lost_alike_with_switch_and_without(cpus: &Cpus) -> anyhow::Result<()> {
    equals(cpus, MANY, &[("even", INDEPENDENT), ("bursts", IN_BURSTS)])
}

/// `links`: name and loss of each link.
fn equals(cpus: &Cpus, packets: usize, links: &'static [(&str, &str)]) -> anyhow::Result<()> {
    let plain = alone(cpus, SEED, delays)?;
    on_bed(cpus, CLIENTS as u8, SEED, move |bed| {
        let linkctl = bed.linkctl()?;
        introduce(&bed.hosts)?;
        // A stall of the machine during one measurement spoils the comparison.
        let mut agreed = Ok(());
        for _ in 0..3 {
            agreed = agree(&plain, &delays(&bed.hosts, &linkctl)?);
            if agreed.is_ok() {
                break;
            }
        }
        agreed?;
        for &(name, words) in links {
            println!("    {name}: with the switch and without");
            set(&bed.hosts, words, SEED)?;
            placed(bed, "loss")?;
            let mut seed = SEED;
            repeated(|| {
                let (before, _) = bed.shown()?.fate("lost");
                let with = losses(&bed.hosts, &linkctl, packets)?;
                let (after, _) = bed.shown()?.fate("lost");
                // The switch lost at least these frames; repeated measurements add to them.
                let all = with.iter().map(|l| halves(l)[0]).sum::<u64>();
                ensure!(after - before >= all, "the switch lost {} of {all}", after - before);
                // Each attempt compares with other draws of the dataplane.
                seed += 1;
                let without = alone(cpus, seed, |hosts, linkctl| {
                    introduce(hosts)?;
                    set(hosts, words, seed)?;
                    losses(hosts, linkctl, packets)
                })?;
                Ok(compared(words == INDEPENDENT, &with, &without))
            })?;
        }
        Ok(())
    })
}

fn compared(even: bool, with: &[Vec<bool>], without: &[Vec<bool>]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (client, (with, without)) in with.iter().zip(without).enumerate() {
        let [with_runs, without_runs] = [with, without].map(|l| runs(l, true));
        let what = format!("client {client}, lengths of runs");
        found.push(Finding::of_two(&what, &with_runs, &without_runs));
        let what = format!("client {client}, packets lost");
        let (one, other) = (halves(with), halves(without));
        println!("    client {client}: {one:?} lost and come, {other:?} without");
        found.push(if even {
            Finding::of_two(&what, &one, &other)
        } else {
            let [n, m] = [with, without].map(|l| BURSTS.variance(l.len() as f64));
            Finding::of_normal(&what, one[0] as f64, other[0] as f64, (n + m).sqrt())
        });
    }
    found
}

/// The latency of the switch is the round trip of an idle link. With the same delay in the box,
/// round trips differ by at most that latency.
fn agree(plain: &Seen, switched: &Seen) -> anyhow::Result<()> {
    let latency = switched.idle_ms;
    println!(
        "    round trips without the switch {:.2} ms idle, {:.2} with {DELAY} each way; with it \
         {latency:.2} and {:.2}",
        plain.idle_ms, plain.delayed_ms, switched.delayed_ms
    );
    let more = switched.delayed_ms - plain.delayed_ms;
    ensure!(
        more > -plain.idle_ms - PING_MS && more < latency + PING_MS,
        "the same delay is {more} ms longer through the switch, which takes {latency} ms itself"
    );
    Ok(())
}
