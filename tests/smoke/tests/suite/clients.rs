// SPDX-License-Identifier: Apache-2.0
//! Several clients, each with a queue of its own.

use anyhow::{Context, ensure};
use smoke::cpus::Cpus;
use smoke::ping::{Survey, Surveyed};
use smoke::testbed::{SERVER, Testbed};
use smoke::udp::Sender;

use super::{
    Overload, SEED, drained, dropped_only_for, emulator, flows_to, had_room, on_bed, within,
};

const OVERLOADED: usize = 4;
const OFFERED_BPS: u64 = 160_000_000;
const SECONDS: u64 = 16;
/// By then a sender may be late by 0.4 s, and leaves no queue empty.
const OVERLOAD: Overload =
    Overload { rate_bps: 144e6, offered_bps: OFFERED_BPS as f64, window: [4.0, SECONDS as f64] };
/// Of each of the survey's series; they end before the overloads do.
const PINGS: u32 = 13;
/// The slot of 43 ms spreads the round-trip times evenly, with a standard deviation of
/// 12.4 ms. Of 260 of them, if drawn independently, the median deviates by
/// 12.4 x 1.73 / 16.1 = 1.3 ms (1.73: the median's of an even distribution against the
/// mean's); the difference of two by 1.9 ms, and three of these are the tolerance.
const MEDIAN_TOLERANCE_MS: f64 = 5.7;
/// ping's frame: Ethernet, IPv4, ICMP and 56 bytes.
const PING_BYTES: u64 = 14 + 20 + 8 + 56;

pub fn four_overloads_leave_a_fifth_client_alone(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(5), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        let idle = ping(bed)?.finish()?;
        let (flows, receivers) = flows_to(bed, OVERLOADED, OFFERED_BPS, SECONDS)?;
        let sender = Sender::start(bed.server(), SERVER, flows);
        let loaded = ping(bed)?.finish()?;
        let sent = sender.finish()?;
        let stats = drained(&linkctl)?;
        had_room(bed.client())?;
        for (client, receiver) in receivers.into_iter().enumerate() {
            let received = receiver.finish()?;
            let forward = &stats.client(&bed.client_address(client).to_string())?.forward;
            ensure!(sent[client].refused == 0, "{sent:?}");
            ensure!(received.overflowed == 0, "the receiver lost {}", received.overflowed);
            let what = format!("client {client}, Mbit/s");
            OVERLOAD.delivers(&what, &sent[client], &received, &stats)?;
            ensure!(received.out_of_order() == 0, "client {client} is out of order");
            ensure!(forward.received.packets == sent[client].packets, "client {client}: {sent:?}");
            ensure!(
                forward.sent.packets == received.arrivals.len() as u64,
                "client {client}: {:?}, {} arrived",
                forward.sent,
                received.arrivals.len()
            );
        }
        dropped_only_for(&stats, &["aqm", "limit"])?;
        let fifth = stats.client(&bed.client_address(OVERLOADED).to_string())?;
        for (direction, pipe) in [("forward", &fifth.forward), ("return", &fifth.back)] {
            // The pings are alone in their queue.
            ensure!(
                pipe.queue_max_bytes <= u64::from(Survey::SERIES) * PING_BYTES,
                "the fifth client's {direction} queue held {} bytes",
                pipe.queue_max_bytes
            );
        }
        undisturbed(&idle, &loaded)
    })
}

fn ping(bed: &Testbed) -> anyhow::Result<Survey> {
    let source = bed.client_address(OVERLOADED);
    Survey::start(bed.client(), source, SERVER, PINGS).context("ping")
}

fn undisturbed(idle: &Surveyed, loaded: &Surveyed) -> anyhow::Result<()> {
    ensure!(idle.lost() == 0 && loaded.lost() == 0, "{} and {} lost", idle.lost(), loaded.lost());
    ensure!(loaded.out_of_order() == 0, "{} out of order", loaded.out_of_order());
    let median = idle.rtts().at(0.5);
    within(
        "fifth client's median RTT, ms",
        loaded.rtts().at(0.5),
        median - MEDIAN_TOLERANCE_MS,
        median + MEDIAN_TOLERANCE_MS,
    )?;
    within("share within 560 and 632 ms", loaded.share_within(560.0, 632.0), 0.95, 1.0)
}
