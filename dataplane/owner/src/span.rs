// SPDX-License-Identifier: Apache-2.0
//! The time since the last mark.
//!
//! High-water marks, lateness and stalls restart in the workers. Counters do not: the span keeps
//! their values at the mark.

use profile::strictest;
use proto::linkemu::v1 as model;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    received: model::Count,
    sent: model::Count,
    overload: u64,
    missed: u64,
    transmit_dropped: u64,
    unconfirmed: u64,
    port_faults: u64,
    unplaced: u64,
}

/// The span that began with the last mark, or with the dataplane.
#[derive(Clone, Debug, Default)]
pub struct Span {
    since_ns: u64,
    since_utc: Option<prost_types::Timestamp>,
    marked: bool,
    generation: u64,
    lossy: bool,
    /// The strictest since then, and that of the current link; none before there is a link.
    tolerance: Option<model::Tolerance>,
    current: Option<model::Tolerance>,
    before: Totals,
}

impl Span {
    /// The first one, since the dataplane started.
    #[must_use]
    pub fn starting(utc: prost_types::Timestamp) -> Self {
        Self { since_utc: Some(utc), ..Self::default() }
    }

    /// The link changed, is `lossy` or not, and has this tolerance.
    pub fn changed(&mut self, lossy: bool, tolerance: model::Tolerance) {
        self.lossy |= lossy;
        self.tolerance = Some(match self.tolerance.take() {
            Some(before) => strictest(before, &tolerance),
            None => tolerance.clone(),
        });
        self.current = Some(tolerance);
    }

    /// The span up to these statistics; with `mark`, the next span begins after them.
    pub fn of(&mut self, stats: &model::Stats, mark: bool) -> model::Span {
        let (now, before) = (Totals::of(stats), self.before);
        let span = model::Span {
            since_ns: self.since_ns,
            since_utc: self.since_utc,
            marked: self.marked,
            generation: self.generation,
            lossy: self.lossy,
            received: Some(since(now.received, before.received)),
            sent: Some(since(now.sent, before.sent)),
            overload: now.overload.saturating_sub(before.overload),
            missed: now.missed.saturating_sub(before.missed),
            transmit_dropped: now.transmit_dropped.saturating_sub(before.transmit_dropped),
            unconfirmed: now.unconfirmed.saturating_sub(before.unconfirmed),
            port_faults: now.port_faults.saturating_sub(before.port_faults),
            unplaced: now.unplaced.saturating_sub(before.unplaced),
            // linkd's: the dataplane never communicates with the switch.
            switch: None,
            boxes: None,
            tolerance: self.tolerance.clone(),
            // The machine's: the caller reads it.
            host: None,
        };
        if mark {
            *self = Self {
                since_ns: stats.time_ns,
                since_utc: stats.utc,
                marked: true,
                generation: stats.generation,
                lossy: stats.lossy,
                tolerance: self.current.clone(),
                current: self.current.take(),
                before: now,
            };
        }
        span
    }
}

impl Totals {
    fn of(stats: &model::Stats) -> Self {
        let mut sum = Self::default();
        let pipes = stats.clients.iter().flat_map(|c| [&c.forward_pipe, &c.return_pipe]);
        for pipe in pipes.flatten() {
            add(&mut sum.received, pipe.received);
            add(&mut sum.sent, pipe.sent);
            let overload =
                pipe.dropped.iter().filter(|d| d.reason() == model::DropReason::Overload);
            sum.overload += overload.map(|d| d.count.unwrap_or_default().packets).sum::<u64>();
        }
        sum.missed = stats.ports.iter().map(|p| p.missed).sum();
        sum.transmit_dropped = stats.ports.iter().map(|p| p.transmit_dropped).sum();
        sum.unplaced = stats.ports.iter().map(|p| p.unplaced).sum();
        let states = || stats.ports.iter().filter_map(|p| p.state.as_ref());
        sum.unconfirmed = states().map(|state| state.unconfirmed).sum();
        sum.port_faults = states().map(|state| state.faults).sum();
        sum
    }
}

fn add(sum: &mut model::Count, more: Option<model::Count>) {
    let more = more.unwrap_or_default();
    sum.packets += more.packets;
    sum.bytes += more.bytes;
}

fn since(now: model::Count, before: model::Count) -> model::Count {
    model::Count {
        packets: now.packets.saturating_sub(before.packets),
        bytes: now.bytes.saturating_sub(before.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After `n` packets, of which so many were lost by the emulator for each reason.
    fn stats(time_ns: u64, n: u64, lost: [u64; 3]) -> model::Stats {
        let count = |packets| Some(model::Count { packets, bytes: 100 * packets });
        let [overload, missed, transmit_dropped] = lost;
        let drop =
            |reason: model::DropReason, n| model::Drop { reason: reason.into(), count: count(n) };
        let pipe = model::PipeStats {
            received: count(n),
            sent: count(n / 2),
            dropped: vec![
                drop(model::DropReason::Aqm, 77),
                drop(model::DropReason::Overload, overload),
            ],
            ..model::PipeStats::default()
        };
        let client = model::ClientStats {
            client: "10.0.0.1".into(),
            forward_pipe: Some(pipe.clone()),
            return_pipe: Some(pipe),
            ..model::ClientStats::default()
        };
        let port = model::PortStats { missed, transmit_dropped, ..model::PortStats::default() };
        let (clients, ports) = (vec![client], vec![port.clone(), port]);
        model::Stats { time_ns, generation: time_ns, clients, ports, ..model::Stats::default() }
    }

    #[test]
    fn counters_are_those_since_the_mark() {
        let mut span = Span::starting(prost_types::Timestamp::default());
        let first = span.of(&stats(5, 100, [1, 2, 3]), false);
        assert_eq!((first.since_ns, first.marked, first.generation), (0, false, 0));
        assert_eq!((first.overload, first.missed, first.transmit_dropped), (2, 4, 6));
        // A look changes nothing.
        assert_eq!(span.of(&stats(5, 100, [1, 2, 3]), true), first);
        let second = span.of(&stats(9, 104, [1, 2, 7]), false);
        assert_eq!((second.since_ns, second.marked, second.generation), (5, true, 5));
        assert_eq!((second.overload, second.missed, second.transmit_dropped), (0, 0, 8));
        assert_eq!(second.received, Some(model::Count { packets: 8, bytes: 800 }));
        assert_eq!(second.sent, Some(model::Count { packets: 4, bytes: 400 }));
    }

    #[test]
    fn a_lossy_link_is_remembered_until_the_next_mark() {
        let mut span = Span::default();
        let mut changed = |lossy| span.changed(lossy, model::Tolerance::default());
        changed(true);
        changed(false);
        assert!(span.of(&stats(1, 0, [0; 3]), true).lossy);
        assert!(!span.of(&stats(2, 0, [0; 3]), false).lossy);
        // A lossy link at the mark is in the next span too.
        let lossy = model::Stats { lossy: true, ..stats(3, 0, [0; 3]) };
        span.of(&lossy, true);
        span.changed(false, model::Tolerance::default());
        assert!(span.of(&stats(4, 0, [0; 3]), false).lossy);
    }

    #[test]
    fn tolerance_is_the_strictest_since_the_mark() {
        let of = |lateness_ns, stall_ns| model::Tolerance {
            lateness_ns,
            stall_ns,
            ..model::Tolerance::default()
        };
        let mut span = Span::default();
        span.changed(false, of(1, 10));
        let mut read = |change: Option<model::Tolerance>, mark| {
            change.into_iter().for_each(|it| span.changed(false, it));
            let it = span.of(&stats(1, 0, [0; 3]), mark).tolerance.unwrap();
            (it.lateness_ns, it.stall_ns)
        };
        assert_eq!(read(Some(of(6, 16)), false), (1, 10));
        // The run that the mark ends had the first link too.
        assert_eq!(read(None, true), (1, 10));
        assert_eq!(read(None, false), (6, 16));
        assert_eq!(read(Some(of(9, 12)), false), (6, 12));
        assert_eq!(read(Some(of(9, 99)), true), (6, 12));
        assert_eq!(read(None, false), (9, 99));
    }
}
