// SPDX-License-Identifier: Apache-2.0
//! The counters of hosts, switch and box account for each frame.

use std::time::{Duration, Instant};

use anyhow::ensure;
use p4::bed::{Bed, on_bed};
use p4::numbered::Numbered;
use smoke::cpus::Cpus;
use smoke::stats::{Count, DropReason, Pipe, Stats, drops};
use smoke::testbed::{CLIENT_INTERFACE, SAT_INTERFACE, SERVER_INTERFACE};
use smoke::wait;

use super::SEED;
use super::path::{
    DRAINED, IN_BURSTS, INDEPENDENT, VOID, drained, interface, link, placed, silent,
};

/// All counters of frames, per direction.
#[derive(Clone, Copy, Debug, Default)]
struct Books {
    /// Interfaces of the hosts.
    into: [u64; 2],
    out: [u64; 2],
    /// Counters of linkd: of the box, including drops of the switch.
    received: [u64; 2],
    sent: [u64; 2],
    dropped: [u64; 2],
    held: [u64; 2],
    /// Counters of the switch.
    taken: [u64; 2],
    returned: [u64; 2],
    delivered: [u64; 2],
    lost: [u64; 2],
    gated: [u64; 2],
}

impl Books {
    fn read(bed: &Bed) -> anyhow::Result<(Self, Stats)> {
        let stats = drained(&bed.linkctl()?)?;
        let shown = bed.shown()?;
        let [server_out, server_in] = interface(bed.hosts.server(), SERVER_INTERFACE)?;
        let [client_out, client_in] = interface(bed.hosts.client(), CLIENT_INTERFACE)?;
        let sum = |of: fn(&Pipe) -> Count| {
            ["forward", "return"].map(|way| {
                let pipes = stats.pipes().filter(|(_, d, _)| *d == way);
                pipes.map(|(_, _, pipe)| of(pipe).packets).sum()
            })
        };
        let fate = |name| <[u64; 2]>::from(shown.fate(name));
        let books = Self {
            into: [server_out, client_out],
            out: [client_in, server_in],
            received: sum(|p| p.received()),
            sent: sum(|p| p.sent()),
            dropped: sum(|p| p.dropped_total()),
            held: sum(|p| p.held()),
            taken: fate("received"),
            returned: fate("returned"),
            delivered: fate("delivered"),
            lost: fate("lost"),
            gated: fate("gated"),
        };
        Ok((books, stats))
    }

    fn balanced(&self, earlier: &Self, own: [[u64; 2]; 2]) -> anyhow::Result<()> {
        for way in 0..2 {
            let of = |field: fn(&Self) -> &[u64; 2]| field(self)[way] - field(earlier)[way];
            let (into, out) = (of(|b| &b.into), of(|b| &b.out));
            let dropped = of(|b| &b.dropped);
            ensure!([into, out] == own[way], "hosts' interfaces {into} and {out}, sockets {own:?}");
            let what = format!("direction {way}: {self:?}, before {earlier:?}");
            ensure!(into == out + dropped + self.held[way], "in and out of the hosts, {what}");
            ensure!(of(|b| &b.received) == into && of(|b| &b.sent) == out, "the box, {what}");
            ensure!(of(|b| &b.taken) == into && of(|b| &b.delivered) == out, "the switch, {what}");
            let [returned, lost, gated] = [of(|b| &b.returned), of(|b| &b.lost), of(|b| &b.gated)];
            ensure!(returned == out + lost + gated, "back at the switch, {what}");
        }
        Ok(())
    }
}

/// Windows for each direction and link.
const WINDOWS: usize = 60;
/// Frames of a window, and interval of windows: the queue of bmv2 holds the frames that leave at
/// once after a stall of 20 ms.
const FEW: usize = 8;
const PACE: Duration = Duration::from_millis(3);

pub fn every_frame_is_counted_across_changes(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, 3, SEED, |bed| {
        let linkctl = bed.linkctl()?;
        let mut links = Vec::new();
        // Lost by the switch, then by both, then by the box in one direction.
        let count = "drop_run = { pass = 99, drop = 1 }";
        for (name, forward, back, delay) in [
            ("one", INDEPENDENT, IN_BURSTS, "30 ms"),
            ("two", IN_BURSTS, INDEPENDENT, "5 ms"),
            ("three", count, INDEPENDENT, "60 ms"),
        ] {
            links.push(bed.written(&format!("{name}.toml"), &link(name, forward, back, delay))?);
        }
        linkctl.set_profile(&links[0], SEED)?;
        placed(bed, "loss")?;
        let mut forward = Numbered::new(&bed.hosts, true, 3)?;
        let mut back = Numbered::new(&bed.hosts, false, 3)?;
        let gated = bed.hosts.client_address(1).to_string();
        // linkd reads the list of clients once a second.
        for way in [&mut forward, &mut back] {
            way.window()?;
        }
        let gate = |what: &str| {
            let gate = ["switch", "gate", what, "--client", &gated, "-d", "forward"];
            linkctl.run(&gate)?.success()
        };
        wait::until("the switch knows the client", DRAINED, || Ok(gate("open").ok()))?;
        drained(&linkctl)?;
        for way in [&mut forward, &mut back] {
            way.sentinel()?;
        }
        for _ in 0..VOID {
            let (before, was) = Books::read(bed)?;
            let [left, _] = interface(bed.hosts.emulator(), SAT_INTERFACE)?;
            let had = [[forward.sent, forward.came], [back.sent, back.came]];
            for (n, path) in links.iter().enumerate() {
                // While frames are in flight.
                linkctl.set_profile(path, SEED)?;
                for window in 0..WINDOWS {
                    let next = Instant::now() + PACE;
                    if n == 1 && [WINDOWS / 4, WINDOWS / 2].contains(&window) {
                        gate(if window == WINDOWS / 4 { "close" } else { "open" })?;
                    }
                    for way in [&mut forward, &mut back] {
                        for _ in 0..FEW {
                            way.one()?;
                        }
                        way.sentinel()?;
                    }
                    wait::until_instant(next);
                }
            }
            drained(&linkctl)?;
            forward.sentinel()?;
            back.sentinel()?;
            let (after, stats) = Books::read(bed)?;
            let (spoiled, _) = silent(&bed.hosts, (&was, left), &stats)?;
            if spoiled > 0 {
                println!("    VOID, once more: the switch's own queue dropped {spoiled} frames");
                continue;
            }
            for (client, direction, pipe) in stats.pipes() {
                let dropped = drops(pipe).map(|(reason, count)| (reason, count.packets));
                let received = pipe.received().packets;
                println!("    {client} {direction}: {received}, {:?}", Vec::from_iter(dropped));
            }
            let own = [[forward.sent, forward.came], [back.sent, back.came]];
            let own = [0, 1].map(|w: usize| [own[w][0] - had[w][0], own[w][1] - had[w][1]]);
            after.balanced(&before, own)?;
            ensure!(after.gated[0] > before.gated[0], "the gate dropped no frame: {after:?}");
            let lost = [after.lost[0] - before.lost[0], after.lost[1] - before.lost[1]];
            ensure!(lost[0] > 0 && lost[1] > 0, "the switch lost nothing: {after:?}");
            let shim = stats.packets(|p| p.dropped_for(DropReason::Shim));
            ensure!(shim == 0, "{shim} frames reached the box without a shim");
            return Ok(());
        }
        anyhow::bail!("the switch's own queue dropped frames in each of {VOID} runs")
    })
}
