// SPDX-License-Identifier: Apache-2.0
//! What must hold after a history of linkd.

use std::collections::BTreeSet;
use std::time::Duration;

use proto::linkemu::v1 as pb;
use tonic::{Code, Status};

use super::{Changed, End, Lease, Record, Told};
use crate::{Findings, Report};

/// A lease is looked at from time to time.
const SLACK: Duration = Duration::from_millis(500);
/// The longest time for which linkd is away.
const AWAY: Duration = Duration::from_secs(3);

/// A lease, for the time that it surely ran, and for the longest that it may have run.
struct Span<'a> {
    token: &'a str,
    steal: bool,
    /// When it was asked for, and given.
    sent: Duration,
    given: Duration,
    /// It ran until then, unless linkd crashed.
    surely: Duration,
    /// It had ended by then.
    ended: Duration,
}

pub(super) fn check(end: &End) -> Report {
    let End { record, has, shown, applied, audit, .. } = end;
    let leases = record.leases.iter().filter_map(|told| Span::of(record, told)).collect();
    let (audited, found) = (audited(audit), Findings::default());
    let mut checks = Checks { end, leases, audited, found };
    checks
        .found
        .fault(has == shown, || format!("the dataplane has {has:?}, linkd shows {shown:?}"));
    checks.leases();
    for change in &record.changes {
        match &change.answer {
            None => checks.found.reached("the caller has gone"),
            Some(Ok(answer)) => checks.made(change, answer),
            Some(Err(status)) => checks.refused(change, status),
        }
    }
    checks.happened();
    let answers = record.changes.iter().map(|it| match &it.answer {
        None => "left\n".to_owned(),
        Some(Ok(it)) => format!("{} {}\n", it.applied.unwrap_or_default().generation, it.repeated),
        Some(Err(status)) => format!("{:?}\n", status.code()),
    });
    let trace = answers.collect::<String>() + &format!("{applied:?}");
    checks.found.report(trace)
}

struct Checks<'a> {
    end: &'a End,
    leases: Vec<Span<'a>>,
    /// Generations in lines of the audit log.
    audited: BTreeSet<u64>,
    found: Findings,
}

impl Checks<'_> {
    /// A lease that is not stolen is given while no other one runs.
    fn leases(&mut self) {
        let mut faults = Vec::new();
        for (place, lease) in self.leases.iter().enumerate() {
            let runs = |other: &&Span<'_>| other.given < lease.sent && lease.given < other.surely;
            let other = self.leases[..place].iter().find(runs);
            if let Some(other) = other.filter(|_| !lease.steal) {
                let (Span { sent, given, .. }, Span { given: from, surely, .. }) = (lease, other);
                faults.push(format!(
                    "a lease was given from {sent:?} to {given:?}, while one ran from {from:?} until {surely:?}"
                ));
            }
        }
        self.found.faults.append(&mut faults);
        for stolen in self.leases.iter().map(|it| it.steal).collect::<Vec<_>>() {
            self.found.reached(if stolen { "stolen or acquired" } else { "acquired" });
        }
    }

    /// How often the dataplane made a change.
    fn times(&self, change: &Changed) -> usize {
        let side = usize::from(!change.forward);
        let plans = self.end.applied.windows(2);
        let new = plans.filter(|it| it[0][side] != it[1][side] && it[1][side] == Some(change.rate));
        new.count()
    }

    /// A change that was made has its line in the audit log, its event, and the right to it.
    fn made(&mut self, change: &Changed, answer: &pb::ChangeResponse) {
        let Changed { rate, expected, token, id, sent, answered, .. } = change;
        let record = &self.end.record;
        let generation = answer.applied.unwrap_or_default().generation;
        self.found.reached(if answer.repeated { "repeated" } else { "made" });
        self.found.fault(expected.is_none(), || {
            format!("{rate} expected {expected:?} and is {generation}")
        });
        // After a restart the dataplane has the last plan, and does not know earlier requests.
        let first = record.changes.iter().filter(|it| it.id == *id).map(|it| it.sent).min();
        let anew = record.dataplanes.iter().any(|at| *at >= first.unwrap_or_default());
        let times = self.times(change);
        self.found.fault(times == 1 || times > 1 && (id.is_empty() || anew), || {
            format!("{rate} is said to be generation {generation} and was made {times} times")
        });
        self.found.fault(self.audited.contains(&generation), || {
            format!("{rate} is generation {generation}, which no line of the audit log has")
        });
        // Events of a linkd that has crashed are lost with it.
        let told = self.end.events.iter().any(|it| it.generation == Some(generation));
        self.found.fault(told || !record.linkds.is_empty(), || {
            format!("{rate} is generation {generation}, which no event has")
        });
        let held = match token {
            Some(token) => {
                let may = |it: &Span<'_>| it.sent <= *answered && *sent <= it.ended;
                self.leases.iter().any(|it| it.token == token && may(it))
            }
            None => !self.leases.iter().any(|it| it.given < *sent && *answered < it.surely),
        };
        self.found.fault(held || answer.repeated, || {
            let token = token.as_ref().map(|_| "its token");
            format!("{rate} was made from {sent:?} to {answered:?} without the lease, by {token:?}")
        });
    }

    /// A change that was refused was not made, and was refused for a reason.
    fn refused(&mut self, change: &Changed, status: &Status) {
        let Changed { rate, token, sent, answered, .. } = change;
        let unknown = matches!(
            status.code(),
            Code::Unavailable
                | Code::DeadlineExceeded
                | Code::Unknown
                | Code::Cancelled
                | Code::Internal
        );
        let why = status.message();
        let by_lease = why.contains("lease") || why.contains("has the link");
        self.found.reached(match why {
            it if it.contains("was expected") => "stale",
            _ if by_lease => "no lease",
            it if it.contains("is refused") => "refused",
            _ if unknown => "no answer",
            _ => "another refusal",
        });
        let again = self.end.record.changes.iter().filter(|it| it.rate == *rate).count() > 1;
        let made = self.times(change) > 0;
        self.found
            .fault(!made || unknown || again, || format!("{rate} was refused ({why}) and made"));
        if by_lease {
            // Some lease may run, and it is not surely that of the token.
            let some = self.leases.iter().any(|it| it.sent <= *answered && *sent <= it.ended);
            let own = self.leases.iter().find(|it| Some(it.token) == token.as_deref());
            let own = own.is_some_and(|it| it.given < *sent && *answered < it.surely);
            self.found.fault(!own && (some || token.is_some()), || {
                format!("{rate} was refused from {sent:?} to {answered:?}: {why}")
            });
        }
    }

    fn happened(&mut self) {
        let Record { linkds, dataplanes, jumped, full, .. } = &self.end.record;
        let restored = |it: &&pb::Event| it.kind() == pb::EventKind::LinkRestored;
        for (often, what) in [
            (linkds.len(), "linkd was started again"),
            (dataplanes.len(), "the dataplane was started again"),
            (usize::from(*jumped), "the wall clock jumped"),
            (usize::from(*full), "the disk was full"),
            (self.end.events.iter().filter(restored).count(), "restored"),
        ] {
            if often > 0 {
                *self.found.coverage.entry(what).or_default() += often as u64;
            }
        }
    }
}

impl<'a> Span<'a> {
    /// The time of a lease, if `told` is that it was acquired.
    fn of(record: &'a Record, told: &'a Told) -> Option<Self> {
        let Told { sent, answered, lease: Lease::Acquired { token, ttl, steal } } = told else {
            return None;
        };
        let of = |is: fn(&Lease) -> Option<&String>| {
            record.leases.iter().filter(move |it| is(&it.lease) == Some(token))
        };
        let renewed = || {
            of(|it| match it {
                Lease::Renewed { token } => Some(token),
                _ => None,
            })
        };
        let ending = of(|it| match it {
            Lease::Ending { token } => Some(token),
            _ => None,
        });
        let mut released = of(|it| match it {
            Lease::Released { token } => Some(token),
            _ => None,
        });
        let released = released.next().map_or(Duration::MAX, |it| it.answered);
        // One that was stolen may have been so as soon as that was asked for.
        let stolen = record.leases.iter().filter(|it| {
            it.answered > *answered && matches!(it.lease, Lease::Acquired { steal: true, .. })
        });
        let over = ending.chain(stolen).map(|it| it.sent).min().unwrap_or(Duration::MAX);
        // What remains after a restart is told by the wall clock, which may have jumped.
        let crash = record.linkds.iter().find(|at| *at > sent);
        let crash = crash.map_or(Duration::MAX, |at| at.saturating_sub(AWAY));
        let last_sent = renewed().map(|it| it.sent).max().unwrap_or(*sent);
        let last_answered = renewed().map(|it| it.answered).max().unwrap_or(*answered);
        let restarted = record.linkds.iter().max().copied().unwrap_or_default();
        Some(Self {
            token,
            steal: *steal,
            sent: *sent,
            given: *answered,
            surely: (last_sent + *ttl).min(over).min(crash),
            ended: (last_answered.max(restarted) + *ttl + SLACK).min(released),
        })
    }
}

/// Generations in lines of the audit log.
fn audited(audit: &str) -> BTreeSet<u64> {
    let lines = audit.lines().map(serde_json::from_str::<serde_json::Value>);
    lines.filter_map(|line| line.ok()?["generation"].as_u64()).collect()
}
