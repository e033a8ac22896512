// SPDX-License-Identifier: Apache-2.0
//! Changes of the plan: merged and checked once, applied by all boxes at one instant.
//!
//! The instant is [`LEAD_NS`] and the longest recent round trip from now, on each box's clock. If a box
//! refuses before that instant, all others withdraw the change. If one box has applied it, all apply it: a
//! box that missed a change gets the plan as soon as it answers.
//!
//! A box with the current plan gets the change. A box with another plan, or a restarted one, gets the
//! whole plan; its refusal does not stop the others.

mod follow;
mod remarks;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use follow::whole;
use owner::{
    Current, History, Link, Merged, Outcomes, Proposal, Schedule, ScheduleError, Source,
    check_ahead, check_passed, subject, to_its_end,
};
use proto::MAIN_LINK;
use proto::dataplane::v1 as dp;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::clock::Offset;
use crate::group::{Group, names};
use crate::member::SILENT;
use crate::steering;

/// From the request to the instant, besides the round trip: a box compiles the plan meanwhile.
const LEAD_NS: u64 = 100_000_000;
/// Attempts to send a change that overtook the one before it, and the time between them.
const TRIES: u32 = 20;
const TRY_AGAIN: Duration = Duration::from_millis(2);

/// The generation that a box has, or will have after all pending changes, if it is then at the group's
/// plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    pub instance: u64,
    pub generation: u64,
}

/// A plan that was checked, and the change that leads to it.
pub struct Ready {
    change: dp::Change,
    source: Source,
    lossy: bool,
    plan: dp::Plan,
    restart: bool,
}

/// A change for one box.
struct Order {
    place: usize,
    request: dp::LinkChange,
    offset: Offset,
    /// It gets the whole plan.
    is_behind: bool,
    /// A change before it is pending there.
    follows: bool,
}

/// The outcome of a change at one box.
pub struct Answer {
    place: usize,
    offset: Offset,
    is_behind: bool,
    answer: Result<dp::LinkChanged, Status>,
}

/// The outcome of a change.
pub enum Outcome {
    Made(Vec<Answer>),
    /// No box has made it.
    Refused(Status, Vec<Answer>),
}

impl Link for Group {
    type Ready = Ready;
    type Outcome = Outcome;

    fn name(&self) -> &str {
        MAIN_LINK
    }

    fn now_ns(&self) -> u64 {
        self.0.clock.now_ns()
    }

    fn utc(&self, time_ns: u64) -> SystemTime {
        self.0.clock.utc(time_ns)
    }

    fn history(&self) -> &History {
        &self.0.history
    }

    fn check_instant(&self, arrived_ns: u64, at_ns: u64) -> Result<(), ScheduleError> {
        check_ahead(arrived_ns, at_ns)?;
        check_passed(arrived_ns, at_ns)
    }

    /// It comes after all pending changes.
    fn instant(&self, asked_ns: u64, schedule: &Schedule) -> u64 {
        let up = self.up();
        let lead_ns = up.iter().map(|place| self.0.members[*place].round_trip_ns()).max();
        let earliest_ns = self.0.clock.now_ns() + LEAD_NS + lead_ns.unwrap_or(0);
        asked_ns.max(earliest_ns).max(schedule.last_ns().unwrap_or(0))
    }

    /// Also gives new clients their boxes.
    async fn prepare(&self, proposal: Proposal<'_>) -> Result<(Current, Ready), Status> {
        let Proposal { change, terms, merged: Merged { plan, restart, .. } } = proposal;
        if let Some(clients) = &plan.clients {
            let what = subject(change);
            steering::check(clients).map_err(|found| owner::invalid(what, &found))?;
        }
        if self.up().is_empty() {
            // Its caller is told why.
            self.describe()?;
        }
        if self.place(&names(&plan)) {
            tracing::info!(version = self.owners().version(), "new clients have their boxes");
        }
        let ready = Ready {
            change: change.clone(),
            source: terms.source.clone(),
            lossy: terms.lossy,
            plan: plan.clone(),
            restart,
        };
        Ok((Current { plan, ..Current::default() }, ready))
    }

    /// The answers of the boxes tell which ones were withdrawn.
    async fn take_back(&self, _: RangeInclusive<u64>) -> Result<Option<u64>, Status> {
        self.withdraw_at_boxes().await;
        Ok(None)
    }

    /// There is one, as a group has one link.
    fn commit(
        orders: Vec<owner::Order<Self>>,
        at_ns: Option<u64>,
    ) -> Result<Outcomes<Outcome>, Status> {
        let orders = orders.into_iter().map(|order| {
            let owner::Order { link, ready, follows, .. } = order;
            let at_ns = at_ns.unwrap_or_else(|| link.instant(0, &Schedule::default()));
            let orders = link.orders(&ready, at_ns, follows);
            (link, orders, at_ns)
        });
        let orders: Vec<_> = orders.collect();
        Ok(Box::pin(async move {
            let mut outcomes = Vec::with_capacity(orders.len());
            for (group, orders, at_ns) in orders {
                outcomes.push(group.drive(orders, at_ns).await);
            }
            Ok(outcomes)
        }))
    }

    async fn conclude(
        &self,
        next: Current,
        outcome: Outcome,
        schedule: &Schedule,
    ) -> Result<Current, Status> {
        match outcome {
            Outcome::Made(answers) => {
                let next = self.made(next, answers, schedule);
                self.changed_span(&next).await;
                self.show(next.clone());
                Ok(next)
            }
            Outcome::Refused(status, answers) => {
                self.not_made(&answers, schedule);
                Err(status)
            }
        }
    }

    async fn complete<T: Send + 'static>(
        &self,
        _: Duration,
        work: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> Result<T, Status> {
        self.applied()?;
        to_its_end(work).await
    }
}

impl Group {
    /// Withdraws pending changes at all boxes.
    async fn withdraw_at_boxes(&self) {
        let mut calls = JoinSet::new();
        for place in self.up() {
            let group = self.clone();
            calls.spawn(async move {
                let member = &group.0.members[place];
                let call = |mut c: crate::connect::Client, request| async move {
                    c.withdraw(request).await
                };
                if let Err(status) = member.call(SILENT, dp::WithdrawRequest {}, call).await {
                    // Each change has its own answer.
                    let why = member.words(&status);
                    tracing::warn!(box_ = member.name, why, "cannot withdraw changes");
                }
            });
        }
        calls.join_all().await;
    }

    /// A change for each box that is up.
    fn orders(&self, ready: &Ready, at_ns: u64, follows: bool) -> Vec<Order> {
        let Ready { change, source, lossy, plan, restart } = ready;
        let up = self.up();
        let mut tips = self.tips();
        let mut orders = Vec::new();
        for (place, tip) in tips.iter_mut().enumerate() {
            if !up.contains(&place) {
                // It misses this change.
                *tip = None;
                continue;
            }
            let member = &self.0.members[place];
            let offset = member.offset();
            *tip = tip.filter(|tip| tip.instance == member.instance());
            let mut request = dp::LinkChange {
                cause: Some(cause(source)),
                lossy: *lossy,
                at_ns: Some(offset.of_box(at_ns)),
                ..Default::default()
            };
            let is_behind = tip.is_none();
            match tip {
                Some(tip) => {
                    request.change = Some(change.clone());
                    request.expected_generation = Some(tip.generation);
                    request.expected_instance = tip.instance;
                    tip.generation += 1;
                }
                None => {
                    request.change = Some(whole(plan, *restart || !self.has_seed(member, plan)));
                    request.expected_instance = member.instance();
                }
            }
            orders.push(Order { place, request, offset, is_behind, follows });
        }
        orders
    }

    /// Sends a change to the boxes and waits for all answers. The others withdraw it if one refuses it
    /// before its instant.
    async fn drive(&self, orders: Vec<Order>, at_ns: u64) -> Outcome {
        let stopped = Arc::new(AtomicBool::new(false));
        let mut calls = JoinSet::new();
        for order in orders {
            let (group, stopped) = (self.clone(), stopped.clone());
            calls.spawn(async move { group.order(order, at_ns, &stopped).await });
        }
        let (mut answers, mut refused): (Vec<Answer>, Option<Status>) = (Vec::new(), None);
        while let Some(answer) = calls.join_next().await {
            let Ok(answer) = answer else { continue };
            if let Err(status) = &answer.answer
                && is_refusal(status)
                && !answer.is_behind
                && refused.is_none()
            {
                refused = Some(of_box(&self.0.members[answer.place].name, status));
                stopped.store(true, Ordering::Relaxed);
                if self.0.clock.now_ns() < at_ns {
                    self.withdraw_at_boxes().await;
                }
            }
            answers.push(answer);
        }
        answers.sort_by_key(|it| it.place);
        if answers.iter().any(|it| it.answer.is_ok() && !it.is_behind)
            || answers.iter().all(|it| it.is_behind) && answers.iter().any(|it| it.answer.is_ok())
        {
            return Outcome::Made(answers);
        }
        let was_withdrawn = |it: &Answer| it.answer.as_ref().is_err_and(is_withdrawn);
        let why = refused.unwrap_or_else(|| match answers.iter().any(was_withdrawn) {
            true => withdrawn(),
            false => {
                let first =
                    answers.iter().find_map(|it| Some((it.place, it.answer.as_ref().err()?)));
                first.map_or_else(withdrawn, |(place, status)| {
                    let member = &self.0.members[place];
                    let status = match is_refusal(status) {
                        true => status.clone(),
                        false => Status::unavailable(member.words(status)),
                    };
                    of_box(&member.name, &status)
                })
            }
        });
        Outcome::Refused(why, answers)
    }

    async fn order(&self, order: Order, at_ns: u64, stopped: &AtomicBool) -> Answer {
        let Order { place, request, offset, is_behind, follows } = order;
        let member = &self.0.members[place];
        let mut tries = 0;
        let answer = loop {
            let left = Duration::from_nanos(at_ns.saturating_sub(self.0.clock.now_ns())) + SILENT;
            let answer = member.apply(left, request.clone()).await;
            // It may have overtaken the change before it on the way.
            let overtook = follows
                && !is_behind
                && answer.as_ref().is_err_and(|status| status.code() == Code::Aborted)
                && self.0.clock.now_ns() < at_ns
                && !stopped.load(Ordering::Relaxed);
            tries += 1;
            if !overtook || tries > TRIES {
                break answer;
            }
            sleep(TRY_AGAIN).await;
        };
        Answer { place, offset, is_behind, answer }
    }

    /// The plan that boxes have applied, with its instant and remarks.
    fn made(&self, mut next: Current, answers: Vec<Answer>, schedule: &Schedule) -> Current {
        let mut remarks = Vec::new();
        let (mut told, mut instants) = (Vec::new(), Vec::new());
        for Answer { place, offset, answer, is_behind } in answers {
            let member = &self.0.members[place];
            match answer {
                Ok(dp::LinkChanged { applied, remarks, .. }) => {
                    let applied = applied.unwrap_or_default();
                    // One that also needs the offload is brought there by its task.
                    if is_behind && next.plan.offload.is_none() {
                        // Changes that follow are sent already.
                        let pending = u64::try_from(schedule.len()).unwrap_or(0);
                        let (instance, generation) = (member.instance(), applied.generation);
                        self.tips()[place] =
                            Some(Tip { instance, generation: generation + pending });
                    }
                    next.applied.lossy |= applied.lossy;
                    instants.push((place, offset.of_group(applied.effective_ns), offset.error_ns));
                    told.push((place, remarks));
                }
                Err(status) => {
                    self.tips()[place] = None;
                    remarks.push(format!(
                        "box {} has not made this change and follows when it can: {}",
                        member.name,
                        member.words(&status)
                    ));
                }
            }
        }
        for member in self.0.members.iter().filter(|it| !it.is_up()) {
            let (name, why) = (&member.name, &member.state().message);
            let known = format!("box {name} ");
            if !remarks.iter().any(|it| it.starts_with(&known)) {
                remarks.push(format!(
                    "box {name} is down and gets this change when it is back: {why}"
                ));
            }
        }
        remarks.extend(self.of_instants(&instants));
        remarks.extend(self.of_boxes(told));
        let effective_ns = instants.iter().map(|it| it.1).max().unwrap_or_default();
        next.applied.effective_ns = effective_ns;
        next.applied.effective_utc = Some(self.0.clock.utc(effective_ns).into());
        next.remarks = remarks;
        let is_named = names(&next.plan);
        let ahead: Vec<_> = schedule.plans().flat_map(names).collect();
        let named: std::collections::BTreeSet<_> = is_named.iter().chain(&ahead).collect();
        self.owners().retain(|client| named.contains(&client.to_owned()));
        next
    }

    /// After a change that no box has made.
    fn not_made(&self, answers: &[Answer], schedule: &Schedule) {
        let mut tips = self.tips();
        for Answer { place, answer, is_behind, .. } in answers {
            let tip = &mut tips[*place];
            let is_known = answer.as_ref().is_err_and(|it| is_refusal(it) || is_withdrawn(it));
            match tip {
                Some(tip) if is_known && !is_behind => tip.generation -= 1,
                // Whether it has made it is not known.
                _ => *tip = None,
            }
        }
        drop(tips);
        let current = self.shown().map(|it| it.plan).unwrap_or_default();
        let plans = schedule.plans().chain([&current]);
        let named: std::collections::BTreeSet<_> = plans.flat_map(names).collect();
        self.owners().retain(|client| named.contains(client));
    }
}

fn cause(source: &Source) -> dp::Cause {
    source
        .cause()
        .cloned()
        .unwrap_or_else(|| dp::Cause { what: "a step of a scenario".into(), ..Default::default() })
}

/// Whether a box has decided against a change: not if it went away, stalls, or took it back.
fn is_refusal(status: &Status) -> bool {
    use Code::{DeadlineExceeded, Internal, Unavailable, Unknown};
    std::error::Error::source(status).is_none()
        && !is_withdrawn(status)
        && ![DeadlineExceeded, Internal, Unavailable, Unknown].contains(&status.code())
}

fn is_withdrawn(status: &Status) -> bool {
    std::error::Error::source(status).is_none()
        && [Code::Cancelled, Code::Aborted].contains(&status.code())
}

fn withdrawn() -> Status {
    Status::cancelled("withdrawn before its instant: another change was made")
}

/// The status of a box, with its name in the message and the box's details.
fn of_box(name: &str, status: &Status) -> Status {
    let message = format!("box {name}: {}", status.message());
    Status::with_details(status.code(), message, status.details().to_vec().into())
}
