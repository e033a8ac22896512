// SPDX-License-Identifier: Apache-2.0
//! linkd and the dataplane can be killed at any time.

use std::time::Duration;

use anyhow::{Context, ensure};
use smoke::cpus::Cpus;
use smoke::iperf::{Download, Plan};
use smoke::linkctl::{Linkctl, UNREACHABLE};
use smoke::testbed::SERVER;
use smoke::udp::{Flow, Receiver, Sender};
use smoke::{ping::Ping, wait};

use super::download::{Captures, in_order};
use super::{
    Form, SEED, accepts_change, complete, drained, dropped_only_for, emulator, on_bed, udp_at,
};

/// Number of kills, and duration of the download in seconds.
const fn kills(form: Form) -> (usize, u64) {
    match form {
        Form::Short => (3, 6),
        Form::Long => (10, 20),
    }
}

pub fn repeated_kills_of_linkd_do_not_disturb_download(
    cpus: &Cpus,
    form: Form,
) -> anyhow::Result<()> {
    let (kills, seconds) = kills(form);
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        let plan = Plan::new("cubic", Duration::from_secs(seconds));
        let captures = Captures::start(bed, &plan)?;
        let download = Download::start(bed, plan)?;
        let mut last = 0;
        for kill in 1..=kills {
            // Between two kills the statistics advance and satisfy conservation.
            wait::until("packets since the last kill", Duration::from_secs(10), || {
                let stats = linkctl.stats()?;
                let received = stats.packets(|pipe| pipe.received());
                Ok((received > last).then(|| last = received))
            })?;
            linkctl.stats()?.conserved()?;
            bed.kill_linkd().with_context(|| format!("kill {kill}"))?;
            bed.start_linkd().with_context(|| format!("start {kill}"))?;
        }
        let transfer = download.finish()?;
        let order = captures.finish()?;
        println!("    {:.1} Mbit/s; {order:?}", transfer.mbps_from(0.0));
        let stats = drained(&linkctl)?;
        in_order(&order)?;
        dropped_only_for(&stats, &["aqm", "limit"])
    })
}

pub fn killed_dataplane_resumes_link(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        linkctl.set_forward_rate("100 Mbit/s")?;
        let before = linkctl.show()?;
        // linkd is killed as well, so the link is read from its disk.
        std::thread::sleep(Duration::from_millis(500));
        bed.kill_linkd()?;
        bed.kill_dataplane()?;
        bed.start_dataplane()?;
        bed.start_linkd()?;
        wait::until("the link is back", Duration::from_secs(10), || {
            let after = linkctl.show()?;
            Ok((after.profile == before.profile).then_some(()))
        })?;
        let after = linkctl.show()?;
        ensure!(
            (&after.profile, after.seed) == (&before.profile, before.seed),
            "{after:?}, which was {before:?}"
        );
        let events = linkctl.run(&["events"])?;
        let events = format!("{events:?}");
        for kind in ["DATAPLANE_RESTARTED", "LINK_RESTORED"] {
            ensure!(events.contains(kind), "no {kind} in {events}");
        }
        Ok(())
    })
}

pub fn killed_linkd_loses_no_packet(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        linkctl.set_forward_rate("100 Mbit/s")?;
        let before = linkctl.show()?;
        let flow = Flow::full(udp_at(bed, 0), 50_000_000, 4);
        let receiver = Receiver::start(bed.client(), flow.to)?;
        let sender = Sender::start(bed.server(), SERVER, vec![flow]);
        let source = bed.client_address(0);
        let ping = Ping::start(bed.client(), source, SERVER, 40, Duration::from_millis(100))?;
        wait::until("the first reply", Duration::from_secs(10), || {
            Ok((ping.replies() > 0).then_some(()))
        })?;

        bed.kill_linkd()?;
        let refused = linkctl.run(&["show"])?;
        ensure!(refused.code() == UNREACHABLE, "{refused:?}");
        let seen = ping.replies();
        wait::until("replies without linkd", Duration::from_secs(10), || {
            Ok((ping.replies() >= seen + 10).then_some(()))
        })?;
        bed.start_linkd()?;
        let after = linkctl.show()?;
        ensure!(after == before, "linkd read back {after:?}, which was {before:?}");

        let (pings, sent) = (ping.finish()?, sender.finish()?);
        let stats = drained(&linkctl)?;
        let received = receiver.finish()?;
        ensure!(pings.lost() == 0 && pings.out_of_order == 0, "{pings:?}");
        complete(&sent[0], &received)?;
        dropped_only_for(&stats, &[])
    })
}

pub fn second_linkd_is_refused_while_first_runs(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        bed.linkctl()?.set_profile("geo-600", SEED)?;
        let first = bed.linkd_pid().context("linkd does not run")?;
        let (_second, socket) = bed.another_linkd("second.sock", &[])?;
        let linkctl = Linkctl::new(&bed.binaries()?.linkctl, &socket);
        for arguments in [&["set", "rate", "1 Mbit/s"][..], &["stats", "--mark"]] {
            let refused = linkctl.run(arguments)?;
            let named = refused.stderr.contains(&format!("process {first} controls"));
            ensure!(refused.code() != 0 && named, "{refused:?}");
        }
        // It takes over after the first one has ended.
        bed.kill_linkd()?;
        accepts_change(&linkctl, "1 Mbit/s")
    })
}
