// SPDX-License-Identifier: Apache-2.0
//! Several clients with separate queues.

use anyhow::{Context, ensure};
use smoke::cpus::Cpus;
use smoke::ping::{Pings, Survey};
use smoke::testbed::{SERVER, Testbed};
use smoke::udp::Sender;

use super::{
    Form, Overload, SEED, drained, dropped_only_for, emulator, flows_to, had_room, on_bed,
    receivers, within,
};

const OVERLOADED: usize = 4;

/// Parameters of the four overloaded clients.
struct Case {
    rate: &'static str,
    rate_bps: f64,
    offered_bps: u64,
    seconds: u64,
    /// From this time on, a sender that is late by up to `full_after_s` x (1 - rate / offered)
    /// leaves no queue empty.
    full_after_s: f64,
    /// Pings in each series of the survey. They end before the overloads do.
    pings: u32,
    /// Share of pings that excursions of the delay do not affect. An excursion affects at most two.
    share: f64,
}

const fn case(form: Form) -> Case {
    match form {
        Form::Long => Case {
            rate: "144 Mbit/s",
            rate_bps: 144e6,
            offered_bps: 160_000_000,
            seconds: 16,
            full_after_s: 4.0,
            pings: 13,
            share: 0.95,
        },
        Form::Short => Case {
            rate: "36 Mbit/s",
            rate_bps: 36e6,
            offered_bps: 48_000_000,
            seconds: 7,
            full_after_s: 2.0,
            pings: 5,
            share: 0.93,
        },
    }
}

/// The slot of 43 ms spreads round-trip times uniformly, with a standard deviation of 12.4 ms. The
/// median of n independent samples has a deviation of 12.4 x 1.73 / sqrt(n) (1.73: median versus
/// mean of a uniform distribution). The difference of two medians has sqrt(2) times that. The
/// tolerance is three of these deviations: 5.7 ms for 260.
fn median_tolerance_ms(pings: u32) -> f64 {
    3.0 * 12.4 * 1.73 * 2_f64.sqrt() / f64::from(pings * Survey::SERIES).sqrt()
}
/// Frame of ping: Ethernet, IPv4, ICMP and 56 bytes.
const PING_BYTES: u64 = 14 + 20 + 8 + 56;

pub fn four_overloaded_clients_do_not_disturb_fifth(cpus: &Cpus, form: Form) -> anyhow::Result<()> {
    let Case { rate, rate_bps, offered_bps, seconds, full_after_s, pings, share } = case(form);
    let window = [full_after_s, seconds as f64];
    let overload = Overload { rate_bps, offered_bps: offered_bps as f64, window };
    on_bed(cpus, emulator(5), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2-pings", SEED)?;
        linkctl.set_forward_rate(rate)?;
        let idle = ping(bed, pings)?.finish()?;
        let flows = flows_to(bed, OVERLOADED, offered_bps, seconds);
        let receivers = receivers(bed, &flows)?;
        let sender = Sender::start(bed.server(), SERVER, flows);
        let loaded = ping(bed, pings)?.finish()?;
        let sent = sender.finish()?;
        let stats = drained(&linkctl)?;
        had_room(bed.client())?;
        for (client, receiver) in receivers.into_iter().enumerate() {
            let received = receiver.finish()?;
            let forward = stats.client(&bed.client_address(client).to_string())?.forward();
            ensure!(sent[client].refused == 0, "{sent:?}");
            ensure!(received.overflowed == 0, "the receiver lost {}", received.overflowed);
            let what = format!("client {client}, Mbit/s");
            overload.delivers(&what, &sent[client], &received, &stats)?;
            ensure!(received.out_of_order() == 0, "client {client} is out of order");
            ensure!(
                forward.received().packets == sent[client].packets,
                "client {client}: {sent:?}"
            );
            ensure!(
                forward.sent().packets == received.arrivals.len() as u64,
                "client {client}: {:?}, {} arrived",
                forward.sent(),
                received.arrivals.len()
            );
        }
        dropped_only_for(&stats, &["aqm", "limit"])?;
        let fifth = stats.client(&bed.client_address(OVERLOADED).to_string())?;
        for (direction, pipe) in [("forward", fifth.forward()), ("return", fifth.back())] {
            // The queue holds pings only.
            ensure!(
                pipe.queue_max_bytes <= u64::from(Survey::SERIES) * PING_BYTES,
                "the fifth client's {direction} queue held {} bytes",
                pipe.queue_max_bytes
            );
        }
        undisturbed(&idle, &loaded, median_tolerance_ms(pings))?;
        within("share within 560 and 632 ms", loaded.share_within(560.0, 632.0), share, 1.0)
    })
}

fn ping(bed: &Testbed, pings: u32) -> anyhow::Result<Survey> {
    let source = bed.client_address(OVERLOADED);
    Survey::start(bed.client(), source, SERVER, pings).context("ping")
}

fn undisturbed(idle: &Pings, loaded: &Pings, tolerance_ms: f64) -> anyhow::Result<()> {
    ensure!(idle.lost() == 0 && loaded.lost() == 0, "{} and {} lost", idle.lost(), loaded.lost());
    ensure!(loaded.out_of_order == 0, "{} out of order", loaded.out_of_order);
    let median = idle.rtt_ms(0.5);
    within(
        "fifth client's median RTT, ms",
        loaded.rtt_ms(0.5),
        median - tolerance_ms,
        median + tolerance_ms,
    )
}
