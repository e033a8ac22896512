// SPDX-License-Identifier: Apache-2.0
//! Keeps what Prometheus takes for counters from falling.
//!
//! With a P4 switch, what it lost is moved from sent to dropped. It is read before the
//! dataplane: a frame that it loses between both is in sent at one scrape, and in dropped at
//! the next. Where nothing else was sent meanwhile, sent would fall by it, and Prometheus would
//! take that for a restart. So as much stays in sent until other frames make up for it; the
//! sum stays what it is.

use proto::linkemu::v1 as pb;
use std::collections::HashMap;

/// The reasons that frames are moved to.
const REASONS: [pb::DropReason; 2] = [pb::DropReason::Loss, pb::DropReason::Outage];

/// The counters of the last scrape.
#[derive(Debug, Default)]
pub(super) struct Steady {
    time_ns: u64,
    last: HashMap<(String, bool), Said>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Said {
    sent: pb::Count,
    dropped: [pb::Count; 2],
}

impl Steady {
    /// Replaces counters that decreased since the last snapshot.
    pub fn hold(&mut self, stats: &mut pb::Stats) {
        if stats.time_ns < self.time_ns {
            // A restarted dataplane counts from zero.
            self.last.clear();
        }
        self.time_ns = stats.time_ns;
        for client in &mut stats.clients {
            let pipes = [(false, &mut client.forward_pipe), (true, &mut client.return_pipe)];
            for (is_return, pipe) in pipes {
                let Some(pipe) = pipe else { continue };
                let last = self.last.entry((client.client.clone(), is_return)).or_default();
                *last = hold(pipe, *last);
            }
        }
    }
}

fn hold(pipe: &mut pb::PipeStats, last: Said) -> Said {
    let sent = pipe.sent.get_or_insert_default();
    let mut short = pb::Count {
        packets: last.sent.packets.saturating_sub(sent.packets),
        bytes: last.sent.bytes.saturating_sub(sent.bytes),
    };
    let mut dropped = [pb::Count::default(); 2];
    for ((reason, last), now) in REASONS.into_iter().zip(last.dropped).zip(&mut dropped) {
        let Some(drop) = pipe.dropped.iter_mut().find(|drop| drop.reason() == reason) else {
            continue;
        };
        let count = drop.count.get_or_insert_default();
        // At most the increase since then.
        let packets = short.packets.min(count.packets.saturating_sub(last.packets));
        let bytes = short.bytes.min(count.bytes.saturating_sub(last.bytes));
        (count.packets, count.bytes) = (count.packets - packets, count.bytes - bytes);
        (sent.packets, sent.bytes) = (sent.packets + packets, sent.bytes + bytes);
        (short.packets, short.bytes) = (short.packets - packets, short.bytes - bytes);
        *now = *count;
    }
    Said { sent: *sent, dropped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(packets: u64) -> Option<pb::Count> {
        Some(pb::Count { packets, bytes: 100 * packets })
    }

    /// Statistics with packets sent by the dataplane, and lost and gated by the switch.
    fn stats(time_ns: u64, sent: u64, lost: u64, gated: u64) -> pb::Stats {
        let drop = |reason: pb::DropReason, packets| pb::Drop {
            reason: reason.into(),
            count: count(packets),
        };
        let pipe = pb::PipeStats {
            received: count(sent),
            sent: count(sent - lost - gated),
            dropped: vec![drop(pb::DropReason::Loss, lost), drop(pb::DropReason::Outage, gated)],
            ..Default::default()
        };
        let client = pb::ClientStats {
            client: "10.0.0.2".into(),
            forward_pipe: Some(pipe),
            ..Default::default()
        };
        pb::Stats { time_ns, clients: vec![client], ..Default::default() }
    }

    /// The exported counters: sent, lost, gated.
    fn said(steady: &mut Steady, mut stats: pb::Stats) -> (u64, u64, u64) {
        steady.hold(&mut stats);
        assert!(stats.sums().exact);
        let pipe = stats.clients[0].forward();
        let [lost, gated] = REASONS.map(|reason| pipe.dropped_for(reason).packets);
        (pipe.sent().packets, lost, gated)
    }

    #[test]
    fn frames_that_are_known_late_to_be_lost_are_made_up_for_by_others() {
        let mut steady = Steady::default();
        assert_eq!(said(&mut steady, stats(1, 100, 10, 0)), (90, 10, 0));
        // Five more of these were lost, and nothing was sent since.
        assert_eq!(said(&mut steady, stats(2, 100, 15, 0)), (90, 10, 0));
        assert_eq!(said(&mut steady, stats(3, 103, 15, 0)), (90, 13, 0));
        assert_eq!(said(&mut steady, stats(4, 200, 15, 0)), (185, 15, 0));
    }

    #[test]
    fn a_dataplane_that_began_anew_is_a_restart() {
        let mut steady = Steady::default();
        assert_eq!(said(&mut steady, stats(9, 100, 10, 0)), (90, 10, 0));
        assert_eq!(said(&mut steady, stats(1, 20, 5, 0)), (15, 5, 0));
    }

    proptest! {
        #[test]
        fn no_counter_falls_and_every_sum_stays(
            steps in prop::collection::vec((0_u64..50, 0_u64..50, 0_u64..50), 1..40)
        ) {
            let mut steady = Steady::default();
            let (mut sent, mut lost, mut gated) = (0, 0, 0);
            let mut before = (0, 0, 0);
            for (time, (more, losses, gates)) in (1..).zip(steps) {
                sent += more;
                lost = (lost + losses).min(sent - gated);
                gated = (gated + gates).min(sent - lost);
                let now = said(&mut steady, stats(time, sent, lost, gated));
                prop_assert!(now.0 >= before.0 && now.1 >= before.1 && now.2 >= before.2);
                prop_assert_eq!(now.0 + now.1 + now.2, sent);
                before = now;
            }
        }
    }
}
