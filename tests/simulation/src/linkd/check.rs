// SPDX-License-Identifier: Apache-2.0
//! What must hold after a history of linkd.

use std::collections::BTreeSet;
use std::time::Duration;

use proto::linkemu::v1 as pb;
use tonic::{Code, Status};

use super::{Applied, Changed, Command, End, Lease, Ran, Record, Told, clients};
use crate::{Findings, Report};

/// A lease is looked at from time to time.
const SLACK: Duration = Duration::from_millis(500);
/// The longest time for which linkd is away.
const AWAY: Duration = Duration::from_secs(3);
/// A lease that is over has returned the link within that time.
const RETURNED: Duration = Duration::from_secs(15);
/// linkd has written its state within that time.
const WRITTEN: Duration = Duration::from_secs(1);
/// linkd has stopped a scenario that has lost the link within that time.
const STOPPED: Duration = Duration::from_secs(5);

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
    /// Its end was answered then.
    released: Duration,
}

pub(super) fn check(end: &End) -> Report {
    let End { record, has, shown, applied, audit, .. } = end;
    let leases = record.leases.iter().filter_map(|told| Span::of(record, told)).collect();
    let (audited, found) = (audited(audit), Findings::default());
    let mut checks = Checks { end, leases, audited, found };
    checks
        .found
        .fault(has == shown, || format!("the dataplane has {has:?}, linkd shows {shown:?}"));
    checks.found.fault(end.clients == clients(), || {
        format!("the link is lost: the dataplane has the clients {:?}", end.clients)
    });
    checks.leases();
    checks.returns();
    checks.restores();
    for run in &record.runs {
        checks.run(run);
    }
    for Command { what, token, sent, answered } in &record.commands {
        let held = checks.held(token.as_deref(), *sent, *answered);
        checks.found.fault(held, || {
            format!(
                "a scenario was {what} from {sent:?} to {answered:?} without the lease: {token:?}"
            )
        });
        checks.found.reached(what);
    }
    checks.steps_told();
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
        Some(Ok(it)) => format!("{} {}\n", generation(it), it.repeated),
        Some(Err(status)) => format!("{:?}\n", status.code()),
    });
    let applied: Vec<_> = applied.iter().map(|it| it.rates).collect();
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
        self.made_at(usize::from(!change.forward), change.rate).count()
    }

    /// The plans that changed the rate of a pipe to this one.
    fn made_at(&self, side: usize, rate: u64) -> impl Iterator<Item = &Applied> {
        let plans = self.end.applied.windows(2);
        let new = move |it: &&[Applied]| {
            let [before, after] = [&it[0], &it[1]].map(|it| it.rates[side]);
            before != after && after == Some(rate)
        };
        plans.filter(new).map(|it| &it[1])
    }

    /// A released lease has returned the link.
    fn returns(&mut self) {
        for told in &self.end.record.leases {
            let Lease::Released { token, returned } = &told.lease else { continue };
            let asked = self.end.record.returning.contains(token);
            self.found.fault(asked == *returned, || {
                format!("a released lease has returned the link: {returned}, and was to: {asked}")
            });
            if *returned {
                self.found.reached("returned");
            }
        }
    }

    /// A dataplane that was started again has the last link once, with each change that was answered.
    fn restores(&mut self) {
        let End { applied, record, .. } = self.end;
        let count = applied.iter().filter(|it| it.restores).count();
        let crashes = record.dataplanes.len();
        self.found
            .fault(count <= crashes, || format!("{count} links are back after {crashes} crashes"));
        for pair in applied.windows(2).filter(|it| it[1].restores && !record.full) {
            for side in 0..2 {
                let [before, after] = [&pair[0], &pair[1]].map(|it| it.rates[side]);
                let kept = |it: &&Changed| {
                    let written = |at: &Duration| it.answered + WRITTEN < *at || *at < it.sent;
                    matches!(it.answer, Some(Ok(_)))
                        && (Some(it.rate), usize::from(!it.forward)) == (before, side)
                        && record.crashes.iter().all(written)
                        // It was answered by the dataplane that crashed.
                        && record.dataplanes.iter().all(|at| it.answered + AWAY < *at || *at < it.sent)
                };
                let lost = record.changes.iter().find(kept).filter(|_| before != after);
                self.found.fault(lost.is_none(), || {
                    format!("a dataplane that was started again has {after:?} after {before:?}")
                });
            }
        }
    }

    /// Steps are made in their order, once, and while the caller may change the link.
    fn run(&mut self, run: &Ran) {
        let Ran { rates, token } = run;
        let mut last = Duration::ZERO;
        let mut faults = Vec::new();
        for rate in rates {
            let made: Vec<_> = self.made_at(0, *rate).filter_map(|it| it.step).collect();
            let restarted = !self.end.record.dataplanes.is_empty();
            if made.len() > 1 && !restarted {
                faults.push(format!("step {rate} was made at {made:?}"));
            }
            let Some(at) = made.first().copied() else { continue };
            if at < last {
                faults.push(format!("step {rate} was made at {at:?}, one before it at {last:?}"));
            }
            last = at;
            let runs = |it: &Span<'_>| it.given + STOPPED < at && at < it.surely;
            let held = match token {
                Some(token) => {
                    let may = |it: &Span<'_>| at <= it.released && at < it.ended + STOPPED;
                    self.leases.iter().any(|it| it.token == token && may(it))
                }
                None => !self.leases.iter().any(runs),
            };
            if !held {
                faults.push(format!("step {rate} was made at {at:?}, without the lease {token:?}"));
            }
        }
        self.found.faults.append(&mut faults);
        if !last.is_zero() {
            self.found.reached(if token.is_some() { "run under a lease" } else { "run" });
        }
    }

    /// Each step is told once, also by a linkd that was away.
    fn steps_told(&mut self) {
        let steps: Vec<_> =
            self.end.events.iter().filter_map(|it| it.scenario_step.as_ref()).collect();
        for pair in steps.windows(2) {
            let [before, after] = pair else { continue };
            let follows = after.index == before.index + 1 || after.index == 0;
            self.found
                .fault(follows, || format!("step {} is told after {}", after.index, before.index));
        }
        let stopped = |it: &&pb::Event| it.kind() == pb::EventKind::ScenarioStopped;
        let lost = |it: &&pb::Event| stopped(it) && it.message.contains("it lost the link");
        if self.end.events.iter().any(|it| lost(&it)) {
            self.found.reached("a scenario lost the link");
        }
    }

    /// A change that was made has its line in the audit log, its event, and the right to it.
    fn made(&mut self, change: &Changed, answer: &pb::UpdateLinksResponse) {
        let Changed { rate, expected, token, id, sent, answered, .. } = change;
        let record = &self.end.record;
        let generation = generation(answer);
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
        let held = self.held(token.as_deref(), *sent, *answered);
        self.found.fault(held || answer.repeated, || {
            let token = token.as_ref().map(|_| "its token");
            format!("{rate} was made from {sent:?} to {answered:?} without the lease, by {token:?}")
        });
    }

    /// Whether a caller with this token may have changed the link.
    fn held(&self, token: Option<&str>, sent: Duration, answered: Duration) -> bool {
        let may = |it: &Span<'_>| it.sent <= answered && sent <= it.ended;
        match token {
            Some(token) => self.leases.iter().any(|it| it.token == token && may(it)),
            None => !self.leases.iter().any(|it| it.given < sent && answered < it.surely),
        }
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
            Lease::Released { token, .. } => Some(token),
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
        // It stays until the dataplane has taken the profile that it returns to.
        let returns = if record.returning.contains(token) { RETURNED } else { Duration::ZERO };
        Some(Self {
            token,
            steal: *steal,
            sent: *sent,
            given: *answered,
            surely: (last_sent + *ttl).min(over).min(crash),
            ended: (last_answered.max(restarted) + *ttl + SLACK + returns).min(released),
            released,
        })
    }
}

/// Generations in lines of the audit log.
fn audited(audit: &str) -> BTreeSet<u64> {
    let lines = audit.lines().map(serde_json::from_str::<serde_json::Value>);
    lines.filter_map(|line| line.ok()?["generation"].as_u64()).collect()
}

/// The generation of the link after a change.
fn generation(answer: &pb::UpdateLinksResponse) -> u64 {
    let applied = answer.links.first().and_then(|link| link.applied);
    applied.map_or(0, |applied| applied.generation)
}
