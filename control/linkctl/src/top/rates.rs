// SPDX-License-Identifier: Apache-2.0
//! Rates of each client, from two snapshots and the current link.
//!
//! Rates count transmitted bytes, in bit/s of frames without FCS, over the dataplane's own
//! clock between the snapshots. Without two snapshots of one dataplane there is no rate:
//! `None`, never zero. The queueing delay is an estimate, queue bytes × 8 / the current
//! rate: the wait of a frame that arrives now, if the rate stays. For a rate that changes
//! with time it takes the mean, and for capacity on demand the rate of transmission.

use proto::EXPIRED;
use proto::linkemu::v1 as pb;

/// Kinds of drops, as columns.
pub const KINDS: [&str; 5] = ["AQM", "LIMIT", "OUTAGE", "LOSS", "OWN"];
pub const KIND_COUNT: usize = KINDS.len();

/// The rate that a queue is served with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Serving {
    /// Not known: no link was read, or the client has none.
    #[default]
    Unknown,
    Unlimited,
    /// The link is down: packets wait.
    Down,
    /// In bit/s.
    At(f64),
    /// The mean of a rate that changes, in bit/s.
    Mean(f64),
    /// The most that is assigned of a rate on demand, in bit/s.
    OnDemand(f64),
}

impl Serving {
    /// Serving rate of a current pipe.
    pub fn of(pipe: &pb::Pipe) -> Self {
        if let Some(trace) = &pipe.rate_trace {
            if let Some(it) = &trace.opportunities {
                return Self::of_opportunities(trace.step_ns, it);
            }
            let steps = trace.rates_bps.len() as f64;
            let sum: f64 = trace.rates_bps.iter().map(|bps| *bps as f64).sum();
            return if sum > 0.0 { Self::Mean(sum / steps) } else { Self::Down };
        }
        match pipe.rate_bps {
            None => Self::Unlimited,
            Some(0) => Self::Down,
            Some(bps) if pipe.access.is_some() => Self::OnDemand(bps as f64),
            Some(bps) => Self::At(bps as f64),
        }
    }

    fn of_opportunities(step_ns: u64, it: &pb::Opportunities) -> Self {
        let sum = |all: (u64, u64), run: (u64, u64)| (all.0 + run.0, all.1 + run.1);
        let (steps, count) = profile::opportunity_runs(&it.runs).fold((0, 0), sum);
        let seconds = steps as f64 * step_ns as f64 / 1e9;
        Self::Mean(count as f64 * f64::from(it.size_bytes) * 8.0 / seconds)
    }

    /// In bit/s, if it is limited.
    pub fn bps(self) -> Option<f64> {
        match self {
            Self::At(bps) | Self::Mean(bps) | Self::OnDemand(bps) => Some(bps),
            Self::Unknown | Self::Unlimited | Self::Down => None,
        }
    }

    /// Waiting time of `queue` bytes, at a rate of transmission in bit/s.
    pub fn wait(self, queue: u64, sent_bps: Option<f64>) -> Wait {
        match self {
            Self::Unknown => Wait::Unknown,
            _ if queue == 0 => Wait::Seconds(0.0),
            Self::Unlimited => Wait::Seconds(0.0),
            Self::Down => Wait::Forever,
            Self::At(bps) | Self::Mean(bps) => Wait::Seconds(queue as f64 * 8.0 / bps),
            Self::OnDemand(_) => match sent_bps {
                Some(bps) if bps > 0.0 => Wait::Seconds(queue as f64 * 8.0 / bps),
                _ => Wait::Unknown,
            },
        }
    }
}

/// An estimate of the queueing delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub enum Wait {
    #[default]
    Unknown,
    /// In seconds.
    Seconds(f64),
    Forever,
}

/// Displayed parameters of the current link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    pub profile: String,
    pub generation: u64,
    pub forward: Serving,
    pub back: Serving,
}

impl From<pb::Link> for Link {
    fn from(link: pb::Link) -> Self {
        let profile = link.profile.unwrap_or_default();
        let serving = |pipe: &Option<pb::Pipe>| pipe.as_ref().map_or(Serving::Unknown, Serving::of);
        Self {
            generation: link.applied.map_or(0, |applied| applied.generation),
            forward: serving(&profile.forward_pipe),
            back: serving(&profile.return_pipe),
            profile: profile.name,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Rate of transmission in bit/s.
    pub rate_bps: Option<f64>,
    /// Backlog of the shaper in bytes.
    pub queue_bytes: u64,
    /// Approximate delay of the queue.
    pub wait: Wait,
    /// Packets per second, by [`KINDS`].
    pub drops: Option<[f64; KIND_COUNT]>,
    /// Of capacity on demand.
    pub demand: Option<Demand>,
}

/// What a terminal asked for and was assigned, in bit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    pub requested: f64,
    pub assigned: f64,
    pub used: f64,
}

impl Flow {
    /// Drops of all kinds per second.
    pub fn dropping(&self) -> Option<f64> {
        self.drops.map(|drops| drops.iter().sum())
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Its address, or what else it is called.
    pub client: String,
    pub forward: Flow,
    pub back: Flow,
}

impl Row {
    /// Both directions in one: rates, queues and drops are added; of the delays, the longer.
    pub fn both(&self) -> Flow {
        let (f, b) = (&self.forward, &self.back);
        let drops = f.drops.zip(b.drops).map(|(f, b)| std::array::from_fn(|i| f[i] + b[i]));
        Flow {
            rate_bps: f.rate_bps.zip(b.rate_bps).map(|(f, b)| f + b),
            queue_bytes: f.queue_bytes.saturating_add(b.queue_bytes),
            wait: if b.wait > f.wait { b.wait } else { f.wait },
            drops,
            demand: None,
        }
    }
}

/// Seconds between two snapshots of one dataplane; `None` if it was restarted between.
pub fn between(last: &pb::Stats, this: &pb::Stats) -> Option<f64> {
    let ns = this.time_ns.checked_sub(last.time_ns).filter(|ns| *ns > 0)?;
    Some(ns as f64 / 1e9)
}

/// The rows of a snapshot, in its order.
pub fn rows(last: Option<&pb::Stats>, this: &pb::Stats, link: &Link) -> Vec<Row> {
    let before = last.and_then(|last| Some((last, between(last, this)?)));
    let known: std::collections::HashMap<&str, &pb::ClientStats> = before
        .iter()
        .flat_map(|(last, _)| last.clients.iter().map(|c| (c.client.as_str(), c)))
        .collect();
    let row = |(at, client): (usize, &pb::ClientStats)| {
        let old = before.filter(|_| client.client != EXPIRED).and_then(|(last, seconds)| {
            // Most often clients keep their places.
            let same = last.clients.get(at).filter(|old| old.client == client.client);
            Some((same.or_else(|| known.get(client.client.as_str()).copied())?, seconds))
        });
        // Frames that bypass the emulator have no queue.
        let bypass = client.client == "bypass";
        let serving = |serving| if bypass { Serving::Unknown } else { serving };
        Row {
            client: client.client.clone(),
            forward: flow(
                old.map(|(old, s)| (old.forward(), s)),
                client.forward(),
                serving(link.forward),
            ),
            back: flow(old.map(|(old, s)| (old.back(), s)), client.back(), serving(link.back)),
        }
    };
    this.clients.iter().enumerate().map(row).collect()
}

fn flow(old: Option<(&pb::PipeStats, f64)>, new: &pb::PipeStats, serving: Serving) -> Flow {
    // A counter that went back is another dataplane's.
    let rate_bps = old.and_then(|(old, seconds)| {
        Some(new.sent().bytes.checked_sub(old.sent().bytes)? as f64 * 8.0 / seconds)
    });
    let drops = old.and_then(|(old, seconds)| {
        let (old, new) = (kinds(old), kinds(new));
        let mut rates = [0.0; KIND_COUNT];
        for ((rate, old), new) in rates.iter_mut().zip(old).zip(new) {
            *rate = new.checked_sub(old)? as f64 / seconds;
        }
        Some(rates)
    });
    let on_demand = matches!(serving, Serving::OnDemand(_));
    let demand = old.filter(|_| on_demand).and_then(|(old, seconds)| {
        let [old, new] = [old.access, new.access].map(Option::unwrap_or_default);
        let rate = |new: u64, old: u64| Some(new.checked_sub(old)? as f64 * 8.0 / seconds);
        Some(Demand {
            requested: rate(new.requested_bytes, old.requested_bytes)?,
            assigned: rate(new.assigned_bytes, old.assigned_bytes)?,
            used: rate(new.used_bytes, old.used_bytes)?,
        })
    });
    let wait = serving.wait(new.queue().bytes, rate_bps);
    Flow { rate_bps, queue_bytes: new.queue().bytes, wait, drops, demand }
}

/// Packets dropped, by [`KINDS`]: the last is all that no link does.
fn kinds(pipe: &pb::PipeStats) -> [u64; KIND_COUNT] {
    use pb::DropReason::{Aqm, Limit, Loss, Mtu, Outage, Overload, Oversize, Runt, Unspecified};
    let sum = |reasons: &[pb::DropReason]| {
        let packets = reasons.iter().map(|reason| pipe.dropped_for(*reason).packets);
        packets.fold(0, u64::saturating_add)
    };
    let own = sum(&[Overload, Runt, Oversize, Unspecified]);
    [sum(&[Aqm]), sum(&[Limit]), sum(&[Outage]), sum(&[Loss, Mtu]), own]
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A client that has sent so many bytes each way, with a queue and outage drops forward.
    pub fn client(name: &str, sent: u64, queue: u64, outages: u64) -> pb::ClientStats {
        let count = |packets, bytes| Some(pb::Count { packets, bytes });
        let reason = pb::DropReason::Outage as i32;
        let pipe = |sent, queue, outages| pb::PipeStats {
            sent: count(1, sent),
            queue: count(1, queue),
            dropped: vec![pb::Drop { reason, count: count(outages, 0) }],
            ..Default::default()
        };
        pb::ClientStats {
            client: name.into(),
            forward_pipe: Some(pipe(sent, queue, outages)),
            return_pipe: Some(pipe(sent / 10, 0, 0)),
            ..Default::default()
        }
    }

    pub fn snapshot(time_ns: u64, clients: Vec<pb::ClientStats>) -> pb::Stats {
        pb::Stats { time_ns, clients, ..Default::default() }
    }

    pub fn link() -> Link {
        let (forward, back) = (Serving::At(144e6), Serving::At(12e6));
        Link { profile: "viasat2".into(), generation: 7, forward, back }
    }

    #[test]
    fn rate_counts_bytes_between_two_snapshots() {
        let last = snapshot(1_000_000_000, vec![client("10.0.0.2", 1_000, 0, 5)]);
        let this = snapshot(1_500_000_000, vec![client("10.0.0.2", 126_000, 18_000_000, 9)]);
        let rows = rows(Some(&last), &this, &link());
        let row = &rows[0];
        assert_eq!(row.forward.rate_bps, Some(2_000_000.0));
        assert_eq!(row.back.rate_bps, Some(200_000.0));
        assert_eq!(row.forward.wait, Wait::Seconds(1.0));
        assert_eq!(row.forward.drops, Some([0.0, 0.0, 8.0, 0.0, 0.0]));
        let both = row.both();
        assert_eq!((both.rate_bps, both.dropping()), (Some(2_200_000.0), Some(8.0)));
        assert_eq!((both.queue_bytes, both.wait), (18_000_000, Wait::Seconds(1.0)));
    }

    #[test]
    fn without_two_snapshots_of_one_dataplane_there_is_no_rate() {
        let this = snapshot(5, vec![client("a", 1_000, 0, 0), client("b", 1_000, 0, 0)]);
        for last in [
            None,
            // Another dataplane, by its clock, by its counters; a client that is new; no time.
            Some(snapshot(6, vec![client("a", 0, 0, 0)])),
            Some(snapshot(1, vec![client("a", 100_000, 0, 7)])),
            Some(snapshot(1, vec![client("c", 0, 0, 0)])),
            Some(snapshot(5, vec![client("a", 0, 0, 0)])),
        ] {
            for row in rows(last.as_ref(), &this, &link()) {
                assert_eq!(row.forward.rate_bps, None);
                assert_eq!(row.forward.drops, None);
                assert_eq!(row.both().rate_bps, None);
            }
        }
    }

    #[test]
    fn clients_are_matched_by_name_in_any_order() {
        let last = snapshot(0, vec![client("a", 0, 0, 0), client("b", 1_000, 0, 0)]);
        let this = snapshot(
            1_000_000_000,
            vec![client("c", 7, 0, 0), client("b", 2_000, 0, 0), client("a", 500, 0, 0)],
        );
        let rates: Vec<_> =
            rows(Some(&last), &this, &link()).iter().map(|row| row.forward.rate_bps).collect();
        assert_eq!(rates, [None, Some(8_000.0), Some(4_000.0)]);
    }

    #[test]
    fn expired_client_has_no_rate() {
        let last = snapshot(0, vec![client("a", 9_000, 0, 0), client(EXPIRED, 1_000, 0, 0)]);
        let this = snapshot(1_000_000_000, vec![client(EXPIRED, 10_000, 0, 0)]);
        let rows = rows(Some(&last), &this, &link());
        assert_eq!((rows[0].forward.rate_bps, &rows[0].forward.drops), (None, &None));
    }

    #[test]
    fn wait_is_queue_over_current_rate() {
        let trace = |rates: &[u64]| pb::Pipe {
            rate_trace: Some(pb::RateTrace {
                step_ns: 1,
                rates_bps: rates.to_vec(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let rate = |rate_bps| pb::Pipe { rate_bps, ..Default::default() };
        for (pipe, serving, wait) in [
            (rate(None), Serving::Unlimited, Wait::Seconds(0.0)),
            (rate(Some(0)), Serving::Down, Wait::Forever),
            (rate(Some(8_000)), Serving::At(8_000.0), Wait::Seconds(2.0)),
            (trace(&[12_000, 4_000]), Serving::Mean(8_000.0), Wait::Seconds(2.0)),
            (trace(&[0, 0]), Serving::Down, Wait::Forever),
            (trace(&[]), Serving::Down, Wait::Forever),
        ] {
            assert_eq!(Serving::of(&pipe), serving);
            assert_eq!(serving.wait(2_000, None), wait);
            assert_eq!(serving.wait(0, None), Wait::Seconds(0.0));
        }
        assert_eq!(Serving::Unknown.wait(0, None), Wait::Unknown);
        assert!(Wait::Forever > Wait::Seconds(1e9) && Wait::Seconds(0.0) > Wait::Unknown);
    }

    #[test]
    fn capacity_on_demand_is_served_at_the_rate_of_transmission() {
        let access = |bytes| {
            let (assigned_bytes, used_bytes) = (2 * bytes, bytes);
            let access = pb::AccessStats {
                requested_bytes: 3 * bytes,
                assigned_bytes,
                used_bytes,
                ..Default::default()
            };
            let mut client = client("a", bytes, 1_000, 0);
            client.forward_pipe.as_mut().unwrap().access = Some(access);
            client
        };
        let pipe = pb::Pipe {
            rate_bps: Some(8_000),
            access: Some(pb::Access::default()),
            ..Default::default()
        };
        let link = Link { forward: Serving::of(&pipe), ..link() };
        let last = snapshot(0, vec![access(1_000)]);
        let this = snapshot(1_000_000_000, vec![access(1_500)]);
        let flow = rows(Some(&last), &this, &link)[0].forward;
        let demand = Demand { requested: 12_000.0, assigned: 8_000.0, used: 4_000.0 };
        assert_eq!((flow.wait, flow.demand), (Wait::Seconds(2.0), Some(demand)));
        let flow =
            rows(Some(&this), &snapshot(2_000_000_000, vec![access(1_500)]), &link)[0].forward;
        assert_eq!(flow.wait, Wait::Unknown, "nothing is sent");
        assert_eq!(rows(None, &this, &link)[0].forward.demand, None);
    }

    #[test]
    fn unimpaired_client_has_no_queueing_delay() {
        let this = snapshot(1, vec![client("bypass", 0, 0, 0), client("default", 0, 0, 0)]);
        let waits: Vec<_> = rows(None, &this, &link()).iter().map(|r| r.forward.wait).collect();
        assert_eq!(waits, [Wait::Unknown, Wait::Seconds(0.0)]);
    }

    #[test]
    fn a_link_is_read_with_its_rates() {
        let rate = |bps| Some(pb::Pipe { rate_bps: Some(bps), ..Default::default() });
        let profile = pb::Profile {
            name: "mine*".into(),
            forward_pipe: rate(144_000_000),
            return_pipe: rate(0),
            ..Default::default()
        };
        let applied = Some(pb::Applied { generation: 7, ..Default::default() });
        let link = Link::from(pb::Link { profile: Some(profile), applied, ..Default::default() });
        assert_eq!((link.profile.as_str(), link.generation), ("mine*", 7));
        assert_eq!((link.forward, link.back), (Serving::At(144e6), Serving::Down));
        assert_eq!(Link::from(pb::Link::default()), Link::default());
    }
}
