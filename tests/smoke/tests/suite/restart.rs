// SPDX-License-Identifier: Apache-2.0
//! The control plane may be killed at any time.

use std::time::Duration;

use anyhow::ensure;
use smoke::cpus::Cpus;
use smoke::linkctl::UNREACHABLE;
use smoke::testbed::SERVER;
use smoke::udp::{FULL_FRAME_BYTES, Flow, Receiver, Sender};
use smoke::{ping::Ping, wait};

use super::{SEED, drained, dropped_only_for, emulator, on_bed, udp_at};

pub fn killing_linkd_touches_no_packet(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        linkctl.set_forward_rate("100 Mbit/s")?;
        let before = linkctl.show()?;
        let flow = Flow {
            to: udp_at(bed, 0),
            rate_bps: 50_000_000,
            frame_bytes: FULL_FRAME_BYTES,
            duration: Duration::from_secs(6),
        };
        let receiver = Receiver::start(bed.client(), flow.to)?;
        let sender = Sender::start(bed.server(), SERVER, vec![flow]);
        let source = bed.client_address(0);
        let ping = Ping::start(bed.client(), source, SERVER, 60, Duration::from_millis(100))?;
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
        ensure!(after == before, "linkd read back {after:#}, which was {before:#}");

        let (pings, sent) = (ping.finish()?, sender.finish()?);
        let stats = drained(&linkctl)?;
        let received = receiver.finish()?;
        ensure!(pings.lost() == 0 && pings.out_of_order() == 0, "{pings:?}");
        ensure!(received.arrivals.len() as u64 == sent[0].packets, "of {sent:?} not all arrived");
        ensure!(received.out_of_order() == 0, "{} out of order", received.out_of_order());
        dropped_only_for(&stats, &[])
    })
}
