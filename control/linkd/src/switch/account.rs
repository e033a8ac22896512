// SPDX-License-Identifier: Apache-2.0
//! One account over the dataplane and the switch.
//!
//! The dataplane counts every frame that it passed to the switch as sent. Packets that the switch then lost, or
//! a closed gate dropped, are moved from sent to dropped, by client and direction. So the
//! conservation of packets still holds.
//!
//! The switch is read before the dataplane, so every packet that it has counted as lost is in the
//! dataplane's sent counter.

use proto::linkemu::v1 as pb;
use std::collections::HashMap;

/// A client's number and a direction.
pub(crate) type Key = (u16, pb::Direction);

/// Packets that the switch did not deliver; bytes of inner frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Away {
    pub lost: pb::Count,
    pub gated: pb::Count,
}

/// Packets that the switch dropped since the dataplane started.
pub(crate) type Reading = HashMap<Key, Away>;

/// Keeps what a merged account needs of the one before.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The moved count at the last known mark, and the instant of that mark on the dataplane's
    /// clock.
    mark: Option<(u64, pb::Count)>,
}

impl Account {
    /// Moves what the switch took away from sent to dropped. Gives how many packets could not
    /// be moved, because the dataplane did not send as many: none, unless counters are wrong.
    pub fn merge(&mut self, stats: &mut pb::Stats, reading: &Reading, marks: bool) -> u64 {
        let (mut moved, mut over) = (pb::Count::default(), 0);
        for client in &mut stats.clients {
            let numbers = client.other_numbers.iter().chain([&client.number]);
            let numbers = numbers.filter_map(|number| u16::try_from(*number).ok());
            let ways = [pb::Direction::Forward, pb::Direction::Return];
            let keys = numbers.filter(|number| *number > 0).flat_map(|n| ways.map(|way| (n, way)));
            for key in keys.collect::<Vec<_>>() {
                let Some(away) = reading.get(&key) else { continue };
                let pipe = match key.1 {
                    pb::Direction::Return => &mut client.return_pipe,
                    _ => &mut client.forward_pipe,
                };
                let pipe = pipe.get_or_insert_default();
                for (reason, count) in
                    [(pb::DropReason::Loss, away.lost), (pb::DropReason::Outage, away.gated)]
                {
                    let part = shift(pipe, reason, count);
                    over += count.packets - part.packets;
                    moved += part;
                }
            }
        }
        self.correct_span(stats, moved);
        if marks {
            self.mark = Some((stats.time_ns, moved));
        }
        over
    }

    /// Corrects the sent count since a mark by the moved count since then. Marks by another linkd
    /// are unknown.
    fn correct_span(&self, stats: &mut pb::Stats, moved: pb::Count) {
        let Some(span) = &mut stats.span else { return };
        let before = match self.mark {
            _ if !span.marked => pb::Count::default(),
            Some((at, before)) if at == span.since_ns => before,
            _ => return,
        };
        let sent = span.sent.get_or_insert_default();
        let less =
            |sent: u64, before, moved: u64| sent.saturating_sub(moved.saturating_sub(before));
        sent.packets = less(sent.packets, before.packets, moved.packets);
        sent.bytes = less(sent.bytes, before.bytes, moved.bytes);
    }
}

/// Moves a count from sent to a reason of drops, as far as there is as much.
fn shift(pipe: &mut pb::PipeStats, reason: pb::DropReason, count: pb::Count) -> pb::Count {
    if count == pb::Count::default() {
        return count;
    }
    let sent = pipe.sent.get_or_insert_default();
    let (packets, bytes) = (count.packets.min(sent.packets), count.bytes.min(sent.bytes));
    sent.packets -= packets;
    sent.bytes -= bytes;
    let part = pb::Count { packets, bytes };
    pipe.drop_more(reason.into(), part);
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORWARD: pb::Direction = pb::Direction::Forward;

    fn count(packets: u64) -> pb::Count {
        pb::Count { packets, bytes: packets * 100 }
    }

    fn away(lost: u64, gated: u64) -> Away {
        Away { lost: count(lost), gated: count(gated) }
    }

    fn reading(number: u16, lost: u64, gated: u64) -> Reading {
        Reading::from([((number, FORWARD), away(lost, gated))])
    }

    /// A client of this number that was sent so many packets, and lost two.
    fn stats(number: u32, sent: u64) -> pb::Stats {
        let drop =
            |reason: pb::DropReason| pb::Drop { reason: reason.into(), count: Some(count(1)) };
        let pipe = pb::PipeStats {
            received: Some(count(sent + 3)),
            sent: Some(count(sent)),
            dropped: vec![drop(pb::DropReason::Loss), drop(pb::DropReason::Aqm)],
            held: Some(count(1)),
            ..Default::default()
        };
        let client = pb::ClientStats { number, forward_pipe: Some(pipe), ..Default::default() };
        pb::Stats { clients: vec![client], ..Default::default() }
    }

    #[test]
    fn what_the_switch_took_away_was_dropped_and_not_sent() {
        let mut stats = stats(3, 100);
        let over = Account::default().merge(&mut stats, &reading(3, 10, 4), false);
        let pipe = stats.clients[0].forward();
        assert_eq!((pipe.sent(), over), (count(86), 0));
        let dropped = [pb::DropReason::Loss, pb::DropReason::Outage];
        assert_eq!(dropped.map(|reason| pipe.dropped_for(reason)), [count(11), count(4)]);
        assert!(stats.sums().exact);
    }

    #[test]
    fn others_clients_and_those_without_a_number_are_left_alone() {
        for number in [0, 4, 70_000] {
            let reading = Reading::from([
                ((3, FORWARD), away(10, 0)),
                ((0, FORWARD), away(10, 0)),
                ((4, pb::Direction::Return), away(10, 0)),
            ]);
            let mut found = stats(number, 100);
            found.clients[0].return_pipe = None;
            let over = Account::default().merge(&mut found, &reading, false);
            assert_eq!(found.clients[0].forward_pipe, stats(number, 100).clients[0].forward_pipe);
            assert_eq!(over, if number == 4 { 10 } else { 0 });
        }
    }

    #[test]
    fn what_was_sent_since_a_mark_is_without_what_was_lost_since_then() {
        let span = |since_ns, marked, sent| {
            Some(pb::Span { since_ns, marked, sent: Some(count(sent)), ..Default::default() })
        };
        let sent = |stats: &pb::Stats| stats.span.as_ref().unwrap().sent.unwrap().packets;
        let mut account = Account::default();
        let mut first = pb::Stats { time_ns: 7, span: span(0, false, 100), ..stats(3, 100) };
        account.merge(&mut first, &reading(3, 10, 0), true);
        assert_eq!(sent(&first), 90);
        let mut second = pb::Stats { time_ns: 9, span: span(7, true, 50), ..stats(3, 150) };
        account.merge(&mut second, &reading(3, 15, 0), false);
        assert_eq!(sent(&second), 45);
        // A mark that is not known.
        let mut other = pb::Stats { time_ns: 11, span: span(8, true, 50), ..stats(3, 150) };
        account.merge(&mut other, &reading(3, 15, 0), false);
        assert_eq!(sent(&other), 50);
    }

    proptest! {
        /// Whatever both counted, in whatever order, also where it cannot be.
        #[test]
        fn every_merged_snapshot_conserves_packets_and_bytes(
            pipes in prop::collection::vec(
                (0_u32..6, any::<bool>(), 0_u64..1 << 40, 0_u64..1 << 40, 0_u64..1 << 40), 0..8
            ),
            reading in prop::collection::vec(
                (0_u16..6, any::<bool>(), 0_u64..1 << 40, 0_u64..1 << 40), 0..8
            ),
        ) {
            let direction = |back| if back { pb::Direction::Return } else { FORWARD };
            let reading: Reading = reading
                .iter()
                .map(|(number, back, lost, gated)| {
                    let lost = pb::Count { packets: *lost, bytes: lost.wrapping_mul(*gated) >> 24 };
                    ((*number, direction(*back)), Away { lost, gated: count(*gated) })
                })
                .collect();
            let clients = pipes.iter().map(|(number, back, sent, bytes, dropped)| {
                let sent = pb::Count { packets: *sent, bytes: *bytes };
                let lost = count(*dropped);
                let pipe = Some(pb::PipeStats {
                    received: Some(pb::Count {
                        packets: sent.packets + lost.packets,
                        bytes: sent.bytes + lost.bytes,
                    }),
                    sent: Some(sent),
                    dropped: vec![
                        pb::Drop { reason: pb::DropReason::Loss.into(), count: Some(lost) },
                    ],
                    ..Default::default()
                });
                let (forward_pipe, return_pipe) =
                    if *back { (None, pipe) } else { (pipe, None) };
                pb::ClientStats { number: *number, forward_pipe, return_pipe, ..Default::default() }
            });
            let mut stats = pb::Stats { clients: clients.collect(), ..Default::default() };
            let received = stats.sums().received;
            Account::default().merge(&mut stats, &reading, false);
            prop_assert!(stats.sums().exact);
            prop_assert_eq!(stats.sums().received, received);
        }
    }
}
