// SPDX-License-Identifier: Apache-2.0
//! More UDP than the link carries: rate, queue and counters.

use std::time::Duration;

use anyhow::ensure;
use smoke::cpus::Cpus;
use smoke::stats::{DropReason, Watch};

use super::{
    Delivery, Form, Overload, SEED, always_conserved, deliver, dropped_only_for, emulator,
    flows_to, on_bed, within,
};

const OFFERED_BPS: u64 = 200_000_000;

/// A queue and the duration of its overload.
struct Case {
    /// Arguments of `linkctl set queue`. If empty, the queue of the profile is used.
    queue: &'static [&'static str],
    limit_mb: f64,
    seconds: u64,
    /// Time of the first drops.
    full_after_s: f64,
}

/// 56 Mbit/s of excess fill 36 MB in 5.2 s and 9 MB in 1.3 s. The random drop begins at half of the
/// limit.
const fn case(form: Form) -> Case {
    match form {
        Form::Long => Case { queue: &[], limit_mb: 36.0, seconds: 20, full_after_s: 6.0 },
        Form::Short => Case {
            queue: &["9MB", "--threshold", "4500kB", "--drop-at-limit", "10%"],
            limit_mb: 9.0,
            seconds: 6,
            full_after_s: 2.0,
        },
    }
}

pub fn udp_overload_is_delivered_at_link_rate_and_dropped_by_queue_only(
    cpus: &Cpus,
    form: Form,
) -> anyhow::Result<()> {
    let Case { queue, limit_mb, seconds, full_after_s } = case(form);
    let window = [full_after_s, seconds as f64];
    let overload = Overload { rate_bps: 144e6, offered_bps: OFFERED_BPS as f64, window };
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2-pings", SEED)?;
        if !queue.is_empty() {
            let set = ["set", "queue", "--direction", "forward"];
            linkctl.change(&[&set[..], queue].concat())?;
        }
        let watch = Watch::start(&linkctl, Duration::from_millis(100))?;
        let Delivery { sent, received, stats } =
            deliver(bed, flows_to(bed, 1, OFFERED_BPS, seconds))?;
        let (sent, received) = (&sent[0], &received[0]);
        always_conserved(&watch.finish()?)?;

        let client = stats.client(&bed.client_address(0).to_string())?;
        let forward = client.forward();
        overload.delivers("delivered, Mbit/s", sent, received, &stats)?;
        let high_water = forward.queue_max_bytes as f64 / 1e6;
        within("queue's high-water mark, MB", high_water, limit_mb / 2.0, limit_mb)?;
        dropped_only_for(&stats, &["aqm", "limit"])?;
        ensure!(
            forward.dropped_for(DropReason::Aqm).packets > 0,
            "the queue's random drop never dropped"
        );
        ensure!(sent.refused == 0, "the sender's kernel refused packets: {sent:?}");
        ensure!(
            forward.received().packets == sent.packets,
            "the server sent {} packets, the emulator received {}",
            sent.packets,
            forward.received().packets
        );
        ensure!(received.overflowed == 0, "the receiver's socket lost {}", received.overflowed);
        ensure!(
            (forward.sent().packets, forward.sent().bytes)
                == (received.arrivals.len() as u64, received.bytes()),
            "the emulator sent {:?}, the client received {} packets",
            forward.sent(),
            received.arrivals.len()
        );
        ensure!(received.out_of_order() == 0, "{} out of order", received.out_of_order());
        Ok(())
    })
}
