// SPDX-License-Identifier: Apache-2.0
//! The switch as a witness of a run outside of the box.
//!
//! Two counters that are read one after the other differ by the frames in between. So the side that a
//! frame passes first is read first: missing frames are then lost, and the largest difference so far is
//! the least number of lost frames. It is exact when no frame was in flight.

use ::switch::{Count, Counts, Fates, Histogram, Stalls};
use emu::units::{ByDirection, Direction};
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use std::time::Instant;

/// Frames that were lost between switch and box, and in the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lost {
    to_box: u64,
    from_box: u64,
    /// Between the decision of the pipeline and the egress, by port.
    at_egress: BTreeMap<u16, u64>,
}

/// State at a mark.
#[derive(Clone, Debug)]
struct Mark {
    /// On the dataplane's clock, ns.
    at_ns: u64,
    instant: Instant,
    lost: Lost,
    early: u64,
    excess: Vec<u64>,
    stalls: Option<Stalls>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Witness {
    lost: Lost,
    mark: Option<Mark>,
    /// Since when it had answered when it was asked first.
    first: Option<Instant>,
    /// Stalls before it was asked first.
    former_stalls: Option<Stalls>,
}

impl Witness {
    /// Adds the view of the switch to the run of `stats`. Its counters were read `before` and `after` them.
    /// `since` is the instant since which it has answered without a break, if it does.
    pub fn add(
        &mut self,
        stats: &mut pb::Stats,
        before: &Counts,
        after: &Counts,
        since: Option<Instant>,
        marks: bool,
    ) {
        self.compare(stats, before, after);
        self.first = self.first.or(since);
        if self.former_stalls.is_none() {
            self.former_stalls.clone_from(&after.stalls);
        }
        let excess = excess(after);
        if let Some(span) = &mut stats.span {
            let mark = self.mark.as_ref().filter(|mark| mark.at_ns == span.since_ns);
            let base = mark.map_or_else(Lost::default, |mark| mark.lost.clone());
            let at_egress = self.at_egress(&base, after);
            let of_side = |to_hosts: bool| {
                let here = at_egress.iter().filter(|loss| loss.to_hosts == to_hosts);
                here.map(|loss| loss.packets).sum::<u64>()
            };
            let to_box = self.lost.to_box - base.to_box.min(self.lost.to_box);
            let early = mark.map_or(0, |mark| mark.early);
            let bins = mark.map_or(&[][..], |mark| &mark.excess);
            let counts = excess.iter().enumerate();
            let counts = counts.map(|(at, n)| n - bins.get(at).unwrap_or(&0).min(n));
            let counts = counts.collect::<Vec<_>>();
            let bounds = &after.lateness[Direction::Forward].bounds;
            let former = mark.map_or(&self.former_stalls, |mark| &mark.stalls);
            span.switch = Some(pb::SwitchSpan {
                is_whole: match mark {
                    Some(mark) => since.is_some_and(|since| since <= mark.instant),
                    // Counts from before a mark that is not known would be those of the run.
                    None => !span.marked && since.is_some() && since == self.first,
                },
                // The box does not get what the egress lost.
                lost_to_box: to_box.max(of_side(false)),
                lost_to_hosts: of_side(true),
                lost_at_egress: at_egress,
                lost_from_box: self.lost.from_box - base.from_box.min(self.lost.from_box),
                excess_p99_ns: beyond(bounds, &counts, 100),
                excess_max_ns: beyond(bounds, &counts, u64::MAX),
                stall_max_ns: after.stalls.as_ref().map(|stalls| longest(stalls, former.as_ref())),
                early: after.early.saturating_sub(early),
            });
        }
        if marks {
            let (at_ns, lost, early) = (stats.time_ns, self.lost.clone(), after.early);
            let (instant, stalls) = (Instant::now(), after.stalls.clone());
            self.mark = Some(Mark { at_ns, instant, lost, early, excess, stalls });
        }
    }

    /// Losses in the switch since `base`, of the ports that have any.
    fn at_egress(&self, base: &Lost, counts: &Counts) -> Vec<pb::SwitchPortLoss> {
        let loss = |(port, lost): (&u16, &u64)| {
            let packets = lost.saturating_sub(base.at_egress.get(port).copied().unwrap_or(0));
            let to_hosts = counts.egress.get(port).is_some_and(|egress| egress.to_hosts);
            (packets > 0).then(|| pb::SwitchPortLoss { port: (*port).into(), to_hosts, packets })
        };
        self.lost.at_egress.iter().filter_map(loss).collect()
    }

    fn compare(&mut self, stats: &pb::Stats, before: &Counts, after: &Counts) {
        // Of all boxes: `wan`, or `wan.b1` and so on.
        let ports = |side: &'static str| {
            let name = |port: &&pb::PortStats| port.name.split('.').next() == Some(side);
            stats.ports.iter().filter(name)
        };
        let arrived = |side| {
            // A frame that the port missed was not lost before it.
            let of = |port: &pb::PortStats| packets(port.received) + port.missed;
            ports(side).map(of).reduce(u64::saturating_add).unwrap_or(u64::MAX)
        };
        let sent = |side| ports(side).map(|port| packets(port.sent)).sum::<u64>();
        let sum = |counts: &Counts, of: fn(&Fates) -> Count, direction| {
            counts.clients.values().map(|client| of(&client[direction]).packets).sum::<u64>()
        };
        let received = |direction| sum(before, |fates| fates.received, direction);
        let returned = |direction| sum(after, |fates| fates.returned, direction);
        let [forward, back] = Direction::BOTH;
        let to_box = received(forward).saturating_sub(arrived("wan"))
            + received(back).saturating_sub(arrived("client"));
        let from_box = sent("client").saturating_sub(returned(forward))
            + sent("wan").saturating_sub(returned(back));
        self.lost.to_box = self.lost.to_box.max(to_box);
        self.lost.from_box = self.lost.from_box.max(from_box);
        for (port, given) in &before.egress {
            let sent = after.egress.get(port).map_or(u64::MAX, |egress| egress.sent.packets);
            let lost = self.lost.at_egress.entry(*port).or_default();
            *lost = (*lost).max(given.given.packets.saturating_sub(sent));
        }
    }
}

fn packets(count: Option<pb::Count>) -> u64 {
    count.unwrap_or_default().packets
}

/// Frames by their time beyond the intended delay, of both directions.
fn excess(counts: &Counts) -> Vec<u64> {
    let ByDirection([Histogram { counts: forward, .. }, Histogram { counts: back, .. }]) =
        &counts.lateness;
    let length = forward.len().max(back.len());
    let of = |counts: &[u64], at: usize| counts.get(at).copied().unwrap_or(0);
    (0..length).map(|at| of(forward, at) + of(back, at)).collect()
}

/// Upper bound of the bin that one frame in `share` is beyond, and of the largest if `share` is more than
/// there are; the largest number in the last bin, zero without frames.
fn beyond(bounds: &[u64], counts: &[u64], share: u64) -> u64 {
    let all: u64 = counts.iter().sum();
    let mut above = all / share;
    for (at, count) in counts.iter().enumerate().rev() {
        if *count > above {
            return bounds.get(at).copied().unwrap_or(u64::MAX);
        }
        above -= count;
    }
    0
}

/// The bound of the longest stall since `former`; zero without any.
fn longest(stalls: &Stalls, former: Option<&Stalls>) -> u64 {
    let before = |bound| former.and_then(|former| former.0.get(bound)).copied().unwrap_or(0);
    let since = stalls.0.iter().rev().find(|(bound, count)| **count > before(bound));
    since.map_or(0, |(bound, _)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::switch::Egress;
    use std::time::Duration;

    fn count(packets: u64) -> Count {
        Count { packets, bytes: packets * 100 }
    }

    fn counts(received: [u64; 2], returned: [u64; 2], excess: &[u64]) -> Counts {
        let fates = |at: usize| Fates {
            received: count(received[at]),
            returned: count(returned[at]),
            ..Fates::default()
        };
        let histogram = Histogram { bounds: vec![1_000, 2_000], counts: excess.to_vec() };
        Counts {
            clients: [(3, ByDirection([fates(0), fates(1)]))].into(),
            lateness: ByDirection([histogram, Histogram::default()]),
            ..Counts::default()
        }
    }

    /// Frames of the ports `wan` and `client`: received and sent.
    fn stats(wan: [u64; 2], client: [u64; 2], since_ns: u64) -> pb::Stats {
        let count = |packets| Some(pb::Count { packets, bytes: 0 });
        let port = |name: &str, [received, sent]: [u64; 2]| pb::PortStats {
            name: name.into(),
            received: count(received),
            sent: count(sent),
            ..Default::default()
        };
        let span = pb::Span { since_ns, marked: since_ns > 0, ..Default::default() };
        let ports = vec![port("wan", wan), port("client", client)];
        pb::Stats { time_ns: since_ns + 10, span: Some(span), ports, ..Default::default() }
    }

    fn run(
        witness: &mut Witness,
        mut stats: pb::Stats,
        [before, after]: [&Counts; 2],
        marks: bool,
    ) -> pb::SwitchSpan {
        let since = witness.first.unwrap_or_else(Instant::now);
        witness.add(&mut stats, before, after, Some(since), marks);
        stats.span.unwrap().switch.unwrap()
    }

    #[test]
    fn missing_frames_are_counted_with_their_place() {
        let mut witness = Witness::default();
        let all = counts([100, 50], [90, 45], &[]);
        let exact = run(&mut witness, stats([100, 45], [50, 90], 0), [&all; 2], false);
        assert!(exact.is_whole);
        assert_eq!((exact.lost_to_box, exact.lost_from_box), (0, 0));
        let lossy = run(&mut witness, stats([97, 45], [48, 93], 0), [&all; 2], false);
        assert_eq!((lossy.lost_to_box, lossy.lost_from_box), (5, 3));
        // Frames that the port of the box missed were not lost on their way.
        let mut missed = stats([99, 45], [50, 90], 0);
        missed.ports[0].missed = 1;
        let missed = run(&mut Witness::default(), missed, [&all; 2], false);
        assert_eq!(missed.lost_to_box, 0);
    }

    #[test]
    fn frames_between_the_readings_hide_no_loss_that_was_seen() {
        let mut witness = Witness::default();
        let (early, late) = (counts([100, 0], [90, 0], &[]), counts([140, 0], [140, 0], &[]));
        let quiet = run(&mut witness, stats([98, 0], [0, 92], 0), [&early; 2], false);
        assert_eq!((quiet.lost_to_box, quiet.lost_from_box), (2, 2));
        let busy = run(&mut witness, stats([120, 0], [0, 120], 0), [&early, &late], false);
        assert_eq!((busy.lost_to_box, busy.lost_from_box), (2, 2));
    }

    #[test]
    fn loss_in_the_switch_has_its_port_and_run() {
        let mut witness = Witness::default();
        let look = |given: [u64; 3], sent: [u64; 3]| {
            let port = |at: usize| {
                let (given, sent) = (count(given[at]), count(sent[at]));
                (at as u16, Egress { given, sent, to_hosts: at > 0 })
            };
            Counts { egress: [port(0), port(1), port(2)].into(), ..Counts::default() }
        };
        let none = |since_ns| stats([0; 2], [0; 2], since_ns);
        let first = look([10, 20, 30], [9, 20, 28]);
        let found = run(&mut witness, none(0), [&first; 2], true);
        assert_eq!((found.lost_to_box, found.lost_to_hosts), (1, 2));
        // Frames that were given after the first reading, and some that were lost.
        let before = look([10, 50, 60], [9, 44, 58]);
        let after = look([10, 90, 60], [9, 84, 58]);
        let found = run(&mut witness, none(10), [&before, &after], false);
        assert_eq!((found.lost_to_hosts, found.lost_at_egress.len()), (0, 0));
        let found = run(&mut witness, none(10), [&after; 2], false);
        let loss = pb::SwitchPortLoss { port: 1, to_hosts: true, packets: 6 };
        assert_eq!((found.lost_to_box, found.lost_to_hosts), (0, 6));
        assert_eq!(found.lost_at_egress, [loss]);
    }

    #[test]
    fn run_begins_at_its_mark() {
        let mut witness = Witness::default();
        let first = counts([100, 0], [100, 0], &[98, 0, 2]);
        let found = run(&mut witness, stats([90, 0], [0, 100], 0), [&first; 2], true);
        assert_eq!((found.lost_to_box, found.excess_p99_ns), (10, u64::MAX));
        let second = counts([200, 0], [200, 0], &[100, 98, 2]);
        let found = run(&mut witness, stats([189, 0], [0, 200], 10), [&second; 2], false);
        assert!(found.is_whole);
        assert_eq!((found.lost_to_box, found.excess_p99_ns, found.early), (1, 2_000, 0));
        assert_eq!(found.excess_max_ns, 2_000);
        let third = counts([300, 0], [300, 0], &[200, 98, 3]);
        let found = run(&mut witness, stats([289, 0], [0, 300], 10), [&third; 2], false);
        assert_eq!((found.excess_p99_ns, found.excess_max_ns), (2_000, u64::MAX));
        // No switch has told of its stalls.
        assert_eq!(found.stall_max_ns, None);
    }

    #[test]
    fn longest_stall_is_that_of_the_run() {
        let mut witness = Witness::default();
        let look = |stalls: &[(u64, u64)]| Counts {
            stalls: Some(Stalls(stalls.iter().copied().collect())),
            ..counts([1, 0], [1, 0], &[])
        };
        let stall = |witness: &mut Witness, counts: &Counts, since_ns, marks| {
            run(witness, stats([1, 0], [0, 1], since_ns), [counts; 2], marks).stall_max_ns
        };
        // While the program was loaded.
        let loaded = look(&[(2_000, 3), (500_000, 1)]);
        assert_eq!(stall(&mut witness, &loaded, 0, false), Some(0));
        let first = look(&[(2_000, 4), (500_000, 1)]);
        assert_eq!(stall(&mut witness, &first, 0, true), Some(2_000));
        assert_eq!(stall(&mut witness, &first, 10, false), Some(0));
        let second = look(&[(1_000, 1), (2_000, 4), (300_000, 1), (500_000, 1)]);
        assert_eq!(stall(&mut witness, &second, 10, false), Some(300_000));
    }

    #[test]
    fn run_is_whole_only_if_the_switch_answered_since_its_mark() {
        let mut witness = Witness::default();
        let all = counts([1, 0], [1, 0], &[1]);
        run(&mut witness, stats([1, 0], [0, 1], 0), [&all; 2], true);
        let returned = Instant::now() + Duration::from_secs(1);
        for (since, since_ns) in [(Some(returned), 10), (None, 10), (Some(Instant::now()), 99)] {
            let mut found = stats([1, 0], [0, 1], since_ns);
            witness.add(&mut found, &all, &all, since, false);
            assert!(!found.span.unwrap().switch.unwrap().is_whole, "{since:?} {since_ns}");
        }
    }

    #[test]
    fn percentile_and_maximum_are_the_bounds_of_their_bins() {
        let bounds = [10, 20];
        for (counts, percentile, maximum) in [
            (&[0, 0, 0][..], 0, 0),
            (&[5, 0, 0], 10, 10),
            (&[99, 1, 0], 10, 20),
            (&[98, 2, 0], 20, 20),
            (&[197, 2, 1], 20, u64::MAX),
            (&[0, 0, 1], u64::MAX, u64::MAX),
            (&[], 0, 0),
        ] {
            let found = (beyond(&bounds, counts, 100), beyond(&bounds, counts, u64::MAX));
            assert_eq!(found, (percentile, maximum), "{counts:?}");
        }
    }
}
