// SPDX-License-Identifier: Apache-2.0
//! The switch as a witness of a run outside of the box.
//!
//! Two counters that are read one after the other differ by the frames in between. So the side that a
//! frame passes first is read first: missing frames are then lost, and the largest difference so far is
//! the least number of lost frames. It is exact when no frame was in flight.
//!
//! The counters of both sides begin at different times: those of a box with its dataplane, those of the switch
//! with the dataplane that linkd met (a restarted linkd-group is another one), or with its program. So only
//! what both have counted since a common reading is compared. That reading has the order in which frames in
//! flight seem to be lost already, so that none seems to be lost later.

use ::switch::{Counts, Fates, Histogram, Stalls};
use emu::units::{ByDirection, Direction};
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use std::time::Instant;

/// Readings of the counters of the switch around one of the statistics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub before: &'a Counts,
    /// Immediately after the statistics.
    pub soon: &'a Counts,
    /// When frames in flight have arrived.
    pub after: &'a Counts,
}

/// A wire from the switch to a port of the box, or back.
#[derive(Clone, Copy, Debug, Default)]
struct Wire {
    /// Counters at the common reading.
    zero: Ends,
    /// Counted since.
    counted: Ends,
    lost: i64,
}

/// Frames that left at one end of a wire, and that arrived at the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    left: i64,
    arrived: i64,
}

impl Wire {
    /// Takes a reading. `least` has the end that frames pass first read first, `most` last. With `begins` it is
    /// the common reading of counters that began again.
    fn read(&mut self, least: Ends, most: Ends, begins: bool) {
        let Ends { left, .. } = self.counted;
        if begins {
            let zero = |read: i64, counted| read.saturating_sub(counted);
            self.zero.left = zero(most.left, left);
            self.zero.arrived = zero(most.arrived, left - self.lost);
        }
        // What seemed to be in flight at the common reading had arrived, if less is missing now than was lost.
        let missing = (most.left - self.zero.left) - (most.arrived - self.zero.arrived);
        self.zero.arrived += (self.lost - missing).max(0);
        self.counted.left = left.max(least.left - self.zero.left);
        self.counted.arrived = least.arrived - self.zero.arrived;
        self.lost = self.lost.max(self.counted.left - self.counted.arrived);
    }
}

/// All that is counted of a run, cumulative.
#[derive(Clone, Debug, Default)]
struct Figures {
    /// Frames that were lost between switch and box.
    to_box: u64,
    from_box: u64,
    /// Between the decision of the pipeline and the egress, by port.
    at_egress: BTreeMap<u16, u64>,
    early: u64,
    /// Frames by their time beyond the intended delay, of both directions.
    excess: Vec<u64>,
    stalls: Option<Stalls>,
    dropped: u64,
    foreign: u64,
}

/// State at a mark.
#[derive(Clone, Debug)]
struct Mark {
    /// On the dataplane's clock, ns.
    at_ns: u64,
    instant: Instant,
    figures: Figures,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Witness {
    wires: [Wire; 4],
    at_egress: BTreeMap<u16, u64>,
    mark: Option<Mark>,
    /// Since when the switch had answered at the first reading, and at the last one.
    first: Option<Instant>,
    last: Option<Instant>,
    /// At the first reading.
    began: Option<Figures>,
    /// At the first reading no frame was missing, so both sides had counted the same frames.
    is_aligned: bool,
}

/// The wires, in the order of [`Witness::wires`]: whether it leads to the box, its port, and the direction of
/// its frames.
const WIRES: [(bool, &str, Direction); 4] = [
    (true, "wan", Direction::Forward),
    (true, "client", Direction::Return),
    (false, "client", Direction::Forward),
    (false, "wan", Direction::Return),
];

impl Witness {
    /// Whether the counters have no common reading since the switch answers.
    pub fn must_begin(&self, since: Instant) -> bool {
        self.last != Some(since)
    }

    /// Adds the view of the switch to the run of `stats`. `since` is the instant since which it has answered
    /// without a break, if it does.
    pub fn add(
        &mut self,
        stats: &mut pb::Stats,
        around: Around<'_>,
        since: Option<Instant>,
        marks: bool,
    ) {
        let after = around.after;
        if let Some(since) = since {
            self.compare(stats, around, self.must_begin(since));
            self.last = Some(since);
        }
        let now = self.figures(after);
        if since.is_some() && self.began.is_none() {
            (self.first, self.began) = (since, Some(now.clone()));
        }
        if let Some(span) = &mut stats.span {
            let mark = self.mark.as_ref().filter(|mark| mark.at_ns == span.since_ns);
            let is_whole = match mark {
                Some(mark) => since.is_some_and(|since| since <= mark.instant),
                // Counts from before a mark that is not known would be those of the run.
                None => !span.marked && self.is_aligned && since.is_some() && since == self.first,
            };
            let base = mark.map(|mark| &mark.figures).or(self.began.as_ref());
            let figures = now.since(base.unwrap_or(&Figures::default()), after);
            span.switch = Some(pb::SwitchSpan { is_whole, ..figures });
        }
        if marks {
            self.mark = Some(Mark { at_ns: stats.time_ns, instant: Instant::now(), figures: now });
        }
    }

    /// What was counted at the ends of the wires since their common reading.
    pub fn wires(&self) -> Vec<pb::SwitchWire> {
        let counted = |count: i64| u64::try_from(count).unwrap_or(0);
        let wire = |(wire, (to_box, port, _)): (&Wire, &(bool, &str, Direction))| pb::SwitchWire {
            to_box: *to_box,
            port: (*port).to_owned(),
            left: counted(wire.counted.left),
            arrived: counted(wire.counted.arrived),
            missing: counted(wire.lost),
        };
        self.wires.iter().zip(&WIRES).map(wire).collect()
    }

    fn compare(&mut self, stats: &pb::Stats, around: Around<'_>, begins: bool) {
        let Around { before, soon, after } = around;
        let is_first = self.last.is_none();
        let mut is_aligned = true;
        for (wire, (to_box, side, direction)) in self.wires.iter_mut().zip(&WIRES) {
            // Of all boxes: `wan`, or `wan.b1` and so on.
            let name = |port: &&pb::PortStats| port.name.split('.').next() == Some(side);
            let count = |port: &pb::PortStats| match to_box {
                // A frame that the port missed was not lost before it.
                true => packets(port.received).saturating_add(port.missed),
                false => packets(port.sent),
            };
            let ports = stats.ports.iter().filter(name).map(count);
            let Some(at_box) = ports.reduce(u64::saturating_add).map(signed) else { continue };
            let at_switch = |counts: &Counts| {
                let of = |fates: &Fates| if *to_box { fates.received } else { fates.returned };
                let all = counts.clients.values().map(|client| of(&client[*direction]).packets);
                signed(all.sum())
            };
            let ends = |at_switch| match to_box {
                true => Ends { left: at_switch, arrived: at_box },
                false => Ends { left: at_box, arrived: at_switch },
            };
            let [early, late] = [at_switch(before), at_switch(after)].map(ends);
            let next = ends(at_switch(if begins { soon } else { after }));
            let (least, most) = if *to_box { (early, next) } else { (late, early) };
            is_aligned &= least.left <= least.arrived;
            wire.read(least, most, begins);
        }
        if is_first {
            self.is_aligned = is_aligned;
        }
        for (port, given) in &before.egress {
            let sent = after.egress.get(port).map_or(u64::MAX, |egress| egress.sent.packets);
            let lost = self.at_egress.entry(*port).or_default();
            *lost = (*lost).max(given.given.packets.saturating_sub(sent));
        }
    }

    fn figures(&self, counts: &Counts) -> Figures {
        let lost = |to_box: bool| {
            let wires = self.wires.iter().zip(&WIRES).filter(|(_, it)| it.0 == to_box);
            wires.map(|(wire, _)| u64::try_from(wire.lost).unwrap_or(0)).sum()
        };
        Figures {
            to_box: lost(true),
            from_box: lost(false),
            at_egress: self.at_egress.clone(),
            early: counts.early,
            excess: excess(counts),
            stalls: counts.stalls.clone(),
            dropped: dropped(counts),
            foreign: counts.foreign,
        }
    }
}

impl Figures {
    fn since(&self, base: &Self, counts: &Counts) -> pb::SwitchSpan {
        let at_egress = self.at_egress(base, counts);
        let of_side = |to_hosts: bool| {
            let here = at_egress.iter().filter(|loss| loss.to_hosts == to_hosts);
            here.map(|loss| loss.packets).sum::<u64>()
        };
        let bins = self.excess.iter().enumerate();
        let bins = bins.map(|(at, n)| n - base.excess.get(at).unwrap_or(&0).min(n));
        let bins = bins.collect::<Vec<_>>();
        let bounds = &counts.lateness[Direction::Forward].bounds;
        pb::SwitchSpan {
            is_whole: false,
            // The box does not get what the egress lost.
            lost_to_box: self.to_box.saturating_sub(base.to_box).max(of_side(false)),
            lost_from_box: self.from_box.saturating_sub(base.from_box),
            lost_to_hosts: of_side(true),
            excess_p99_ns: beyond(bounds, &bins, 100),
            excess_max_ns: beyond(bounds, &bins, u64::MAX),
            stall_max_ns: self.stalls.as_ref().map(|it| longest(it, base.stalls.as_ref())),
            early: self.early.saturating_sub(base.early),
            lost_at_egress: at_egress,
            dropped: self.dropped.saturating_sub(base.dropped),
            foreign_changes: self.foreign.saturating_sub(base.foreign),
        }
    }

    /// Losses in the switch since `base`, of the ports that have any.
    fn at_egress(&self, base: &Self, counts: &Counts) -> Vec<pb::SwitchPortLoss> {
        let loss = |(port, lost): (&u16, &u64)| {
            let packets = lost.saturating_sub(base.at_egress.get(port).copied().unwrap_or(0));
            let to_hosts = counts.egress.get(port).is_some_and(|egress| egress.to_hosts);
            (packets > 0).then(|| pb::SwitchPortLoss { port: (*port).into(), to_hosts, packets })
        };
        self.at_egress.iter().filter_map(loss).collect()
    }
}

fn packets(count: Option<pb::Count>) -> u64 {
    count.unwrap_or_default().packets
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Frames that the switch dropped at configured ports because of its entries. Frames without a shim are left
/// out: the kernel of the box's machine sends some at the same wires, and `returned` lacks those of the box.
fn dropped(counts: &Counts) -> u64 {
    let configured = counts.ports.iter().filter(|(port, _)| counts.egress.contains_key(port));
    let all = configured.flat_map(|(_, it)| [it.unknown_port, it.wrong_direction, it.no_box]);
    all.map(|count| count.packets).sum()
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
    use ::switch::{Count, Egress, PortDrops};
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
        let since = witness.last.unwrap_or_else(Instant::now);
        let around = Around { before, soon: after, after };
        witness.add(&mut stats, around, Some(since), marks);
        stats.span.unwrap().switch.unwrap()
    }

    /// A witness that began when nothing was counted.
    fn begun() -> Witness {
        let mut witness = Witness::default();
        let none = counts([0; 2], [0; 2], &[]);
        assert!(run(&mut witness, stats([0; 2], [0; 2], 0), [&none; 2], false).is_whole);
        witness
    }

    #[test]
    fn missing_frames_are_counted_with_their_place() {
        let mut witness = begun();
        let all = counts([100, 50], [90, 45], &[]);
        let exact = run(&mut witness, stats([100, 45], [50, 90], 0), [&all; 2], false);
        assert!(exact.is_whole);
        assert_eq!((exact.lost_to_box, exact.lost_from_box), (0, 0));
        let lossy = run(&mut witness, stats([97, 45], [48, 93], 0), [&all; 2], false);
        assert_eq!((lossy.lost_to_box, lossy.lost_from_box), (5, 3));
        let wires: Vec<_> =
            witness.wires().iter().map(|it| (it.left, it.arrived, it.missing)).collect();
        assert_eq!(wires, [(100, 97, 3), (50, 48, 2), (93, 90, 3), (45, 45, 0)]);
        // Frames that the port of the box missed were not lost on their way.
        let mut missed = stats([99, 45], [50, 90], 0);
        missed.ports[0].missed = 1;
        let missed = run(&mut begun(), missed, [&all; 2], false);
        assert_eq!(missed.lost_to_box, 0);
    }

    #[test]
    fn frames_between_the_readings_hide_no_loss_that_was_seen() {
        let mut witness = begun();
        let (early, late) = (counts([100, 0], [90, 0], &[]), counts([140, 0], [140, 0], &[]));
        let quiet = run(&mut witness, stats([98, 0], [0, 92], 0), [&early; 2], false);
        assert_eq!((quiet.lost_to_box, quiet.lost_from_box), (2, 2));
        let busy = run(&mut witness, stats([120, 0], [0, 120], 0), [&early, &late], false);
        assert_eq!((busy.lost_to_box, busy.lost_from_box), (2, 2));
    }

    /// The switch began at zero with a restarted linkd-group, and the boxes counted on; or the reverse.
    #[test]
    fn counters_that_began_at_different_times_make_no_losses() {
        let (zero, old) = (counts([0; 2], [0; 2], &[]), counts([700, 600], [500, 400], &[]));
        for (first, ports) in [(&zero, [[900, 800], [700, 600]]), (&old, [[0; 2]; 2])] {
            let mut witness = Witness::default();
            let stats = |more: [[u64; 2]; 2], since_ns| {
                let [wan, client] = [0, 1].map(|at| [0, 1].map(|of| ports[at][of] + more[at][of]));
                stats(wan, client, since_ns)
            };
            let of = |counts: &Counts, at: usize, fate: fn(&Fates) -> Count| {
                fate(&counts.clients[&3].0[at]).packets
            };
            let counts = |received: [u64; 2], returned: [u64; 2]| {
                let received = [0, 1].map(|at| of(first, at, |it| it.received) + received[at]);
                let returned = [0, 1].map(|at| of(first, at, |it| it.returned) + returned[at]);
                counts(received, returned, &[])
            };
            let found = run(&mut witness, stats([[0; 2]; 2], 0), [first; 2], false);
            assert!(!found.is_whole, "a run from before is not seen as a whole");
            assert_eq!((found.lost_to_box, found.lost_from_box), (0, 0));
            let all = counts([100, 50], [100, 50]);
            let found = run(&mut witness, stats([[100, 50], [50, 100]], 0), [&all; 2], true);
            assert_eq!((found.lost_to_box, found.lost_from_box), (0, 0));
            assert!(witness.wires().iter().all(|it| it.missing == 0 && it.left == it.arrived));
            // True losses are found as before.
            let all = counts([200, 50], [190, 50]);
            let found = run(&mut witness, stats([[193, 50], [50, 195]], 10), [&all; 2], false);
            assert!(found.is_whole);
            assert_eq!((found.lost_to_box, found.lost_from_box), (7, 5));
        }
    }

    #[test]
    fn frames_in_flight_at_the_first_reading_are_not_lost_and_hide_losses_only_until_it_is_quiet() {
        let mut witness = Witness::default();
        let around =
            [(0, 0), (30, 20)].map(|(to, from)| counts([100 + to, 0], [100 + from, 0], &[]));
        let [before, after] = &around;
        run(&mut witness, stats([110, 0], [0, 110], 0), [before, after], true);
        // All have arrived.
        let quiet = counts([130, 0], [130, 0], &[]);
        let found = run(&mut witness, stats([130, 0], [0, 130], 10), [&quiet; 2], false);
        assert_eq!((found.lost_to_box, found.lost_from_box), (0, 0));
        let lossy = counts([230, 0], [230, 0], &[]);
        let found = run(&mut witness, stats([229, 0], [0, 232], 10), [&lossy; 2], false);
        assert_eq!((found.lost_to_box, found.lost_from_box), (1, 2));
    }

    #[test]
    fn losses_remain_when_the_switch_returns_and_its_gap_makes_none() {
        let mut witness = begun();
        let all = counts([100, 0], [100, 0], &[]);
        let lossy = run(&mut witness, stats([98, 0], [0, 101], 0), [&all; 2], true);
        assert_eq!((lossy.lost_to_box, lossy.lost_from_box), (2, 1));
        // Meanwhile the box has sent 50 frames that no switch has counted.
        witness.last = Some(Instant::now());
        let mut found = stats([98, 0], [0, 151], 10);
        let returned = Some(Instant::now() + Duration::from_secs(1));
        witness.add(&mut found, Around { before: &all, soon: &all, after: &all }, returned, false);
        let found = found.span.unwrap().switch.unwrap();
        assert_eq!((found.is_whole, found.lost_to_box, found.lost_from_box), (false, 0, 0));
        let missing: u64 = witness.wires().iter().map(|it| it.missing).sum();
        assert_eq!(missing, 3);
    }

    #[test]
    fn loss_in_the_switch_has_its_port_and_run() {
        let mut witness = begun();
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
        let mut witness = begun();
        let first = counts([100, 0], [100, 0], &[98, 0, 2]);
        let found = run(&mut witness, stats([90, 0], [0, 100], 0), [&first; 2], true);
        assert_eq!((found.lost_to_box, found.excess_p99_ns), (10, u64::MAX));
        let second = counts([200, 0], [200, 0], &[100, 98, 2]);
        let found = run(&mut witness, stats([189, 0], [0, 200], 10), [&second; 2], false);
        assert!(found.is_whole);
        assert_eq!((found.lost_to_box, found.excess_p99_ns, found.early), (1, 2_000, 0));
        assert_eq!(found.excess_max_ns, 2_000);
        let third = counts([300, 0], [300, 0], &[300, 98, 3]);
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
    fn drops_by_entries_and_changes_of_others_are_those_of_the_run() {
        let mut witness = Witness::default();
        let drops = |packets| PortDrops {
            unknown_port: count(packets),
            wrong_direction: count(packets),
            no_box: count(packets),
            // Of hosts, and of the kernel beside the box.
            cut: count(9),
            no_shim: count(9),
        };
        let look = |packets, foreign| Counts {
            // Port 7 is not configured.
            ports: [(1, drops(packets)), (7, drops(50 * packets))].into(),
            egress: [(1, Egress::default())].into(),
            foreign,
            ..counts([1, 0], [1, 0], &[])
        };
        let of = |witness: &mut Witness, counts: &Counts, since_ns, marks| {
            let span = run(witness, stats([1, 0], [0, 1], since_ns), [counts; 2], marks);
            (span.dropped, span.foreign_changes)
        };
        assert_eq!(of(&mut witness, &look(4, 2), 0, false), (0, 0));
        assert_eq!(of(&mut witness, &look(5, 3), 0, true), (3, 1));
        assert_eq!(of(&mut witness, &look(7, 3), 10, false), (6, 0));
    }

    #[test]
    fn run_is_whole_only_if_the_switch_answered_since_its_mark() {
        let mut witness = begun();
        let all = counts([1, 0], [1, 0], &[1]);
        run(&mut witness, stats([1, 0], [0, 1], 0), [&all; 2], true);
        let returned = Instant::now() + Duration::from_secs(1);
        let around = Around { before: &all, soon: &all, after: &all };
        for (since, since_ns) in [(Some(returned), 10), (None, 10), (Some(Instant::now()), 99)] {
            let mut found = stats([1, 0], [0, 1], since_ns);
            witness.add(&mut found, around, since, false);
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
