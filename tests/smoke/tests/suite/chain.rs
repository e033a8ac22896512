// SPDX-License-Identifier: Apache-2.0
//! Access links whose packets also pass one shared link.

use std::time::Duration;

use anyhow::ensure;
use smoke::cpus::Cpus;
use smoke::linkctl::Linkctl;
use smoke::stats::Stats;
use smoke::testbed::{SERVER, Testbed};
use smoke::udp::{Flow, Receiver, Sender};

use super::{
    SEED, drained, dropped_only_for, emulator, had_room, link, on_bed, punctual, receivers,
    refused, udp_at, within, written,
};

const BACKBONE: &str = "backbone";
const ACCESS: [(&str, &str); 3] = [("one", "1"), ("same", "1"), ("twice", "2")];
const ACCESS_LINK: &str = "rate = \"144 Mbit/s\"\nqueue.limit = \"1 MB\"";
const SHARED_LINK: &str = "rate = \"100 Mbit/s\"\nqueue.limit = \"500 kB\"";
const SHARED_MBPS: f64 = 100.0;
/// Above the share of each access link, and below its own rate.
const OFFERED_BPS: u64 = 60_000_000;
const FRAME_BYTES: usize = 1_000;
const SECONDS: u64 = 4;
const STALL: Duration = Duration::from_millis(50);
/// As for one client of a link ([`super::rules`]).
const RATE_TOLERANCE: f64 = 0.002;
/// Over 3 s a link of weight 1 has 9,375 frames of the shared one. Deficit round robin deviates by at
/// most three frames of 1000 bytes by its weight, at a quantum of 1514: 0.03 %. The tolerance of the
/// rate is added for each link.
const SHARE_TOLERANCE: f64 = 0.0045;

fn done(linkctl: &Linkctl, arguments: &[&str]) -> anyhow::Result<()> {
    Ok(linkctl.run(arguments)?.success().map(drop)?)
}

pub fn access_links_share_backbone_by_weight(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(3), |bed| {
        let linkctl = bed.linkctl()?;
        done(&linkctl, &["link", "add", BACKBONE, "--scheduler", "drr", "--memory", "64MiB"])?;
        let access_profile = written(bed, "access.toml", &link("access", ACCESS_LINK))?;
        for (n, (name, weight)) in ACCESS.into_iter().enumerate() {
            let prefix = format!("{}/32", bed.client_address(n));
            let add = ["link", "add", name, "--via", BACKBONE, "--weight", weight];
            done(&linkctl, &[&add[..], &["--memory", "64MiB", "--prefix", &prefix]].concat())?;
            linkctl.with("--link", name).set_profile(&access_profile, SEED)?;
        }
        let backbone = linkctl.with("--link", BACKBONE);
        let shared = written(bed, "shared.toml", &link("shared", SHARED_LINK))?;
        backbone.set_profile(&shared, SEED)?;
        refuses(bed, &linkctl)?;
        shares(bed, &linkctl, &backbone)?;
        for (name, _) in ACCESS {
            done(&linkctl, &["link", "remove", name])?;
        }
        done(&linkctl, &["link", "remove", BACKBONE])
    })
}

fn shares(bed: &Testbed, linkctl: &Linkctl, backbone: &Linkctl) -> anyhow::Result<()> {
    let duration = Duration::from_secs(SECONDS);
    let flow = |to| Flow { to, rate_bps: OFFERED_BPS, frame_bytes: FRAME_BYTES, duration };
    let flows: Vec<Flow> = (0..ACCESS.len()).map(|client| flow(udp_at(bed, client))).collect();
    let receivers = receivers(bed, &flows)?;
    let sent = Sender::start(bed.server(), SERVER, flows).finish()?;
    let shared = drained(backbone)?;
    let main = drained(linkctl)?;
    let forward = |stats: &Stats| -> u64 {
        let pipes = stats.pipes().filter(|(_, way, _)| *way == "forward");
        pipes.map(|(_, _, pipe)| pipe.received.packets).sum()
    };
    let (entered, wan) = (forward(&main) + forward(&shared), main.port("wan")?.received.packets);
    ensure!(entered == wan, "{entered} packets in main and the shared link, {wan} at the port");
    had_room(bed.client())?;
    punctual(&shared, STALL)?;
    dropped_only_for(&shared, &["limit"])?;
    let received = receivers.into_iter().map(Receiver::finish).collect::<Result<Vec<_>, _>>()?;
    for (n, (name, _)) in ACCESS.into_iter().enumerate() {
        let access = drained(&linkctl.with("--link", name))?;
        dropped_only_for(&access, &[])?;
        // What leaves one link arrives at the other one, in either direction.
        let through = shared.client(name)?;
        let address = bed.client_address(n).to_string();
        let own = access.client(&address)?;
        ensure!(through.forward.received.packets == sent[n].packets, "{name}: {through:?}");
        ensure!(through.forward.sent == own.forward.received, "{name}: {through:?}, {own:?}");
        ensure!(own.r#return.sent == through.r#return.received, "{name}: {through:?}, {own:?}");
    }
    let rate = |n: usize| received[n].rate_bps(1.0, SECONDS as f64) / 1e6;
    let rates = [rate(0), rate(1), rate(2)];
    let (low, high) = (1.0 - RATE_TOLERANCE, 1.0 + RATE_TOLERANCE);
    let sum = rates.iter().sum();
    within("the shared link, Mbit/s", sum, low * SHARED_MBPS, high * SHARED_MBPS)?;
    let (low, high) = (1.0 - SHARE_TOLERANCE, 1.0 + SHARE_TOLERANCE);
    within("the same weight, times the rate", rates[1] / rates[0], low, high)?;
    within("twice the weight, times the rate", rates[2] / rates[0], 2.0 * low, 2.0 * high)
}

fn refuses(bed: &Testbed, linkctl: &Linkctl) -> anyhow::Result<()> {
    refused(linkctl, &["link", "remove", BACKBONE], "passed by one, same, twice: remove these")?;
    let rule = ["link", "assign", BACKBONE, "--prefix", "10.9.0.0/16"];
    refused(linkctl, &rule, "no traffic of its own: assign it to one of these")?;
    refused(linkctl, &["link", "add", "new", "--via", "one"], "`one` is not shared")?;
    let clients = "[[client]]\nname = \"a\"\nprefix = [\"10.9.0.0/16\"]\n";
    let clients = written(bed, "clients.toml", clients)?;
    let backbone = linkctl.with("--link", BACKBONE);
    refused(&backbone, &["clients", "set", &clients], "the clients of a link that others pass")
}
