// SPDX-License-Identifier: Apache-2.0
//! A running scenario: one task that makes its steps, each at its instant.
//!
//! Changes are handed over [`LEAD_NS`] before their instants, several one after the other,
//! and wait in the dataplane's workers: they are on time although this process may be
//! late. What was handed over and is not due can be taken back, for a pause, a stop, or
//! the end of the lease that the scenario runs under. A step whose instant has passed is
//! made at once, and how late it was is in its event; none is left out. The timeline is not
//! moved by that: only by pauses, and by waits for events.
//!
//! Each change expects the generation that the one before it makes. If somebody else
//! changes the link, those that wait are taken back by that, and their answers say so.

use super::clock::{Clock, Reading};
use super::edit::{Edit, planned};
use super::{Answer, Command};
use crate::caller::Caller;
use crate::control::{Cause, Control, is_away};
use crate::dataplane::Taken;
use crate::events::{Events, Next};
use crate::watching::Stopping;
use profile::format_duration;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use scenario::{Action, Item, Scenario, Timeline, Wait};
use std::collections::{BTreeMap, VecDeque};
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::{Code, Status};

/// A step is handed over this much before its instant: longer than this process is away on
/// a machine with other work.
const LEAD_NS: u64 = 250_000_000;
/// Steps under way; fewer than the dataplane lets wait.
const UNDER_WAY: usize = 24;
/// The first instant is this much after the request.
const START_NS: u64 = 100_000_000;
/// A step that is later than this is asked for as if it were not: the dataplane refuses
/// what passed long ago.
const PASSED_NS: u64 = 500_000_000;
/// The switch is waited for until this much before the instant of a step.
const WAY_NS: u64 = 20_000_000;
/// Between looks at the dataplane.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A step that is later than this is counted as late.
const LATE_NS: u64 = 1_000_000;
/// Steps that are shown in advance.
const NEXT: usize = 5;
/// How often a step is handed over again that was taken back by nobody's change.
const TRIES: u32 = 8;

/// What a scenario is run with.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub caller: Caller,
    pub seed: Option<u64>,
    pub tolerate_changes: bool,
    pub lossy: bool,
}

/// A step that is under way.
struct Sent {
    item: Item,
    planned_ns: u64,
    /// When it was handed over.
    sent_ns: u64,
    way: Way,
}

enum Way {
    /// It changes nothing, and is told when its instant has come.
    Mark,
    /// It is in the dataplane, which answers when it is made or taken back; with the link
    /// after it.
    Change(JoinHandle<Result<Taken, Status>>, Box<dp::Plan>),
}

/// A scenario and all that it needs.
pub(super) struct Runner {
    pub control: Control,
    pub events: Events,
    pub options: Options,
    pub scenario: Scenario,
    pub profiles: Arc<BTreeMap<String, pb::Profile>>,
    pub timeline: Timeline,
    /// The dataplane that it began with; another one ends it.
    pub instance: u64,
    pub clock: Clock,
    /// The link before it, to return to, and whether it was lossy.
    pub before: Option<(dp::Plan, bool)>,
    pub commands: mpsc::Receiver<Command>,
    pub state: watch::Sender<pb::ScenarioState>,
    pub stopping: Stopping,
    pub lease: watch::Receiver<()>,
    pub progress: Progress,
}

/// How far a scenario has come.
#[derive(Default)]
pub(super) struct Progress {
    /// On the dataplane's clock.
    start_ns: u64,
    /// By which the rest of the timeline comes later.
    shift_ns: u64,
    /// The link after the last step that was made, and its generation.
    link: Option<dp::Plan>,
    generation: u64,
    /// A change was made: the processes have been started with the seed that was given.
    changed: bool,
    /// Steps before those of the timeline.
    ahead: VecDeque<Item>,
    sent: VecDeque<Sent>,
    /// How often it was handed over again in vain.
    tries: u32,
}

impl Progress {
    /// Nothing is done; from a link of a generation on.
    pub fn new(start_ns: u64, link: Option<dp::Plan>, generation: u64) -> Self {
        Self { start_ns, link, generation, ..Self::default() }
    }

    /// Changes that are under way.
    fn changes(&self) -> u64 {
        self.sent.iter().filter(|sent| matches!(sent.way, Way::Change(..))).count() as u64
    }

    /// The link after all that is under way.
    fn tip(&self) -> Option<dp::Plan> {
        let sent = self.sent.iter().rev().find_map(|sent| match &sent.way {
            Way::Change(_, plan) => Some((**plan).clone()),
            Way::Mark => None,
        });
        sent.or_else(|| self.link.clone())
    }
}

/// Why it does not come to its end.
struct Halt {
    why: String,
    restore: bool,
    answer: Option<Answer>,
    /// linkd ends: what is on the disk is to say that the scenario was not over.
    ending: bool,
}

impl Halt {
    fn because(why: impl Into<String>) -> Self {
        Self { why: why.into(), restore: false, answer: None, ending: false }
    }

    fn stopped(who: &str, restore: bool, answer: Answer) -> Self {
        Self { restore, answer: Some(answer), ..Self::because(format!("stopped by {who}")) }
    }

    fn refused(step: u64, status: &Status) -> Self {
        Self::because(format!("step {step} is refused: {}", status.message()))
    }

    fn ending() -> Self {
        let why = "linkd was told to end; the link stays as it is";
        Self { ending: true, ..Self::because(why) }
    }
}

/// The first instant of a scenario that is asked for now.
pub(super) fn start_ns(clock: &Clock) -> u64 {
    clock.now_ns() + START_NS
}

/// The answer to the first step that is under way, if that has one.
async fn answered(sent: &mut VecDeque<Sent>) -> Result<Taken, Status> {
    match sent.front_mut() {
        Some(Sent { way: Way::Change(answer, _), .. }) => joined(answer).await,
        _ => pending().await,
    }
}

async fn joined(answer: &mut JoinHandle<Result<Taken, Status>>) -> Result<Taken, Status> {
    answer.await.unwrap_or_else(|_| Err(Status::internal("linkd failed: please report this")))
}

impl Runner {
    /// Runs it.
    pub async fn run(mut self) {
        let length = match self.scenario.length_ns() {
            Some(length) if self.scenario.waits() => {
                format!("{} and what it waits", format_duration(length))
            }
            Some(length) => format_duration(length),
            None => "without end".to_owned(),
        };
        let steps = self.scenario.steps().map_or(String::new(), |n| format!("{n} steps, "));
        let start_ns = self.progress.start_ns;
        self.control.keep_scenario(Some(&self.state.borrow()));
        self.tell(pb::EventKind::ScenarioStarted, start_ns, format!("{steps}{length}"));
        let Err(mut halt) = self.play().await else {
            let (steps, late) = {
                let state = self.state.borrow();
                (state.steps_done, state.late_steps)
            };
            let late = match late {
                0 => String::new(),
                n => format!(", {n} of them more than 1 ms late"),
            };
            self.control.keep_scenario(None);
            self.show(pb::ScenarioPhase::Finished, String::new());
            let now = self.clock.now_ns();
            self.tell(pb::EventKind::ScenarioFinished, now, format!("{steps} steps{late}"));
            return;
        };
        // What is not due by now does not come any more.
        if let Err(more) = self.withdraw().await {
            halt.why = format!("{}; {}", halt.why, more.why);
        }
        if halt.restore {
            halt.why = format!("{}; {}", halt.why, self.restore().await);
        }
        if !halt.ending {
            self.control.keep_scenario(None);
        }
        self.show(pb::ScenarioPhase::Stopped, halt.why.clone());
        self.tell(pb::EventKind::ScenarioStopped, self.clock.now_ns(), halt.why);
        self.reply(halt.answer);
    }

    async fn play(&mut self) -> Result<(), Halt> {
        self.show(pb::ScenarioPhase::Running, String::new());
        loop {
            // Before anything more is handed over.
            if self.lease.has_changed().unwrap_or(true) {
                self.lease.mark_unchanged();
                self.check_lease().await?;
            }
            self.hand_over().await?;
            let Some(wake) = self.next_wake()? else { return Ok(()) };
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    self.obey(command, self.options.tolerate_changes).await?;
                    self.show(pb::ScenarioPhase::Running, String::new());
                }
                () = self.stopping.stopped() => return Err(Halt::ending()),
                _ = self.lease.changed() => self.check_lease().await?,
                answer = answered(&mut self.progress.sent) => self.take(answer).await?,
                () = tokio::time::sleep_until(wake) => self.pass_marks().await?,
            }
            if self.clock.asked().elapsed() >= LOOK_EVERY {
                self.look(self.options.tolerate_changes).await?;
            }
        }
    }

    fn planned_ns(&self, item: &Item) -> u64 {
        let Progress { start_ns, shift_ns, .. } = self.progress;
        start_ns.saturating_add(item.at_ns).saturating_add(shift_ns)
    }

    /// When there is something to do that nobody asks for; nothing at the end.
    fn next_wake(&mut self) -> Result<Option<Instant>, Halt> {
        let look = self.clock.asked() + LOOK_EVERY;
        let mark = self.progress.sent.front().map(|sent| match sent.way {
            Way::Mark => self.clock.instant(sent.planned_ns),
            Way::Change(..) => look,
        });
        let next = match self.can_hand_over() {
            true => self.peek()?.map(|item| self.planned_ns(&item).saturating_sub(LEAD_NS)),
            false => None,
        };
        let next = next.map(|at| self.clock.instant(at));
        let first = [mark, next].into_iter().flatten().min();
        Ok(first.map(|at| at.min(look)))
    }

    /// The next step that is not under way.
    fn peek(&mut self) -> Result<Option<Item>, Halt> {
        if self.progress.ahead.is_empty()
            && let Some(item) = self.timeline.next()
        {
            let item = item.map_err(|error| Halt::because(error.to_string()))?;
            self.progress.ahead.push_back(item);
        }
        Ok(self.progress.ahead.front().cloned())
    }

    /// When a wait ends, nobody knows.
    fn can_hand_over(&self) -> bool {
        let Progress { sent, .. } = &self.progress;
        let waits = sent.back().is_some_and(|sent| matches!(sent.item.action, Action::Wait(_)));
        sent.len() < UNDER_WAY && !waits
    }

    /// Hands over the steps whose time for that has come.
    async fn hand_over(&mut self) -> Result<(), Halt> {
        while self.can_hand_over()
            && let Some(item) = self.peek()?
            && self.planned_ns(&item) <= self.clock.now_ns().saturating_add(LEAD_NS)
        {
            let edit = Edit::of(&item.action, &self.profiles)
                .map_err(|found| Halt::because(found.to_string()))?;
            let planned_ns = self.planned_ns(&item);
            let (way, sent_ns) = match edit {
                None => (Way::Mark, self.clock.now_ns()),
                Some(edit) => self.send(&item, &edit, planned_ns).await?,
            };
            self.progress.ahead.pop_front();
            self.progress.sent.push_back(Sent { item, planned_ns, sent_ns, way });
        }
        Ok(())
    }

    /// Sends a change on its way; and when it went.
    async fn send(&self, item: &Item, edit: &Edit, planned_ns: u64) -> Result<(Way, u64), Halt> {
        let Progress { generation, changed, .. } = self.progress;
        let Options { seed, lossy, .. } = self.options;
        let refused = |status| Halt::refused(item.index, &status);
        let plan = edit.plan(self.progress.tip(), seed).map_err(refused)?;
        let before = self.progress.changes();
        let (arm_forward, arm_return) = edit.arms();
        let mut request = dp::ApplyRequest {
            plan: Some(dp::Plan { offload: None, ..plan.clone() }),
            restart: edit.restarts() || (seed.is_some() && !changed && before == 0),
            expected_generation: Some(generation + before),
            lossy,
            arm_forward,
            arm_return,
            ..Default::default()
        };
        let dataplane = self.control.dataplane().clone();
        // Before it is under way, since changes come in order; and not beyond its instant: what
        // the switch could do of it is found out after it, as when a switch comes.
        let due = self.clock.instant(planned_ns.saturating_sub(WAY_NS));
        if due > Instant::now() {
            let asked = dataplane.offloaded(request.clone(), self.instance);
            request = tokio::time::timeout_at(due, asked).await.unwrap_or(request);
        }
        let sent_ns = self.clock.now_ns();
        request.at_ns = Some(planned_ns.max(sent_ns.saturating_sub(PASSED_NS)));
        let mut answer = Box::pin(async move { dataplane.apply(request).await });
        // Begun here, so that they come in their order.
        let begun = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        let answer = tokio::spawn(async move {
            match begun {
                Poll::Ready(answer) => answer,
                Poll::Pending => answer.await,
            }
        });
        Ok((Way::Change(answer, Box::new(plan)), sent_ns))
    }

    /// Takes the answer of the first step that is under way.
    async fn take(&mut self, answer: Result<Taken, Status>) -> Result<(), Halt> {
        let Some(Sent { item, planned_ns, way: Way::Change(_, plan), .. }) =
            self.progress.sent.pop_front()
        else {
            return Ok(());
        };
        match answer {
            Ok(taken) => {
                self.made(&item, planned_ns, *plan, &taken);
                Ok(())
            }
            Err(status) if status.code() == Code::Aborted => self.begin_anew(item, &status).await,
            Err(status) => {
                if is_away(&status) {
                    let (generation, caller) = (self.progress.generation + 1, &self.options.caller);
                    self.control.step_unanswered(self.instance, generation, *plan, caller).await;
                }
                Err(Halt::refused(item.index, &status))
            }
        }
    }

    /// After a change was taken back, and all that follow it: goes on from what is in force,
    /// if that may be.
    async fn begin_anew(&mut self, first: Item, status: &Status) -> Result<(), Halt> {
        self.withdraw().await?;
        self.progress.tries += 1;
        if self.progress.tries > TRIES {
            return Err(Halt::refused(first.index, status));
        }
        self.progress.ahead.push_front(first);
        // Whoever changes the link comes first, and may have ended the lease.
        self.check_lease().await?;
        self.look(self.options.tolerate_changes).await
    }

    /// Takes back what was handed over and is not due; tells of what was made.
    async fn withdraw(&mut self) -> Result<(), Halt> {
        if self.progress.changes() > 0
            && let Err(status) = self.control.dataplane().take_back().await
        {
            // Each answer will tell.
            tracing::warn!(why = status.message(), "cannot take steps back");
        }
        let (mut back, mut failed) = (VecDeque::new(), None);
        while let Some(Sent { item, planned_ns, sent_ns, way }) = self.progress.sent.pop_front() {
            match way {
                Way::Mark
                    if back.is_empty()
                        && planned_ns <= self.clock.now_ns()
                        && !matches!(item.action, Action::Wait(_)) =>
                {
                    self.passed(&item, planned_ns, sent_ns);
                }
                Way::Mark => back.push_back(item),
                Way::Change(mut answer, plan) => match joined(&mut answer).await {
                    Ok(taken) => self.made(&item, planned_ns, *plan, &taken),
                    Err(status) if status.code() == Code::Aborted => back.push_back(item),
                    Err(status) => {
                        failed.get_or_insert(Halt::refused(item.index, &status));
                    }
                },
            }
        }
        back.append(&mut self.progress.ahead);
        self.progress.ahead = back;
        failed.map_or(Ok(()), Err)
    }

    /// Tells of the steps that change nothing and whose instants have come.
    async fn pass_marks(&mut self) -> Result<(), Halt> {
        while let Some(sent) = self.progress.sent.front()
            && matches!(sent.way, Way::Mark)
            && sent.planned_ns <= self.clock.now_ns()
            && let Some(Sent { item, planned_ns, sent_ns, .. }) = self.progress.sent.pop_front()
        {
            self.passed(&item, planned_ns, sent_ns);
            if let Action::Wait(wait) = &item.action {
                self.wait(&item, wait).await?;
            }
        }
        Ok(())
    }

    /// Looks at the dataplane's clock, and at whether somebody else changed the link.
    async fn look(&mut self, tolerate: bool) -> Result<(), Halt> {
        let asked = Instant::now();
        let plan = match self.control.dataplane().plan("").await {
            Ok(plan) => plan,
            Err(status) => {
                // The next change will tell, if it lasts.
                tracing::warn!(why = status.message(), "cannot look at the dataplane");
                self.clock.postpone(asked);
                return Ok(());
            }
        };
        let reading =
            Reading::of(asked, &plan).map_err(|status| Halt::because(status.message()))?;
        if self.clock.correct(reading).is_err() {
            return Err(Halt::because("the dataplane was started anew, and its clock with it"));
        }
        let in_force = plan.applied.map_or(0, |applied| applied.generation);
        let known = self.progress.generation;
        // Its own changes may have been made and not been answered. If one is another's,
        // the answers will tell.
        let mut made = known..=known + self.progress.changes();
        if made.contains(&in_force) {
            return Ok(());
        }
        let matches = self.control.matches();
        let own = made.any(|generation| matches.after(self.instance, generation) == in_force);
        if !tolerate && !own {
            return Err(Halt::because(somebody_else(known, in_force)));
        }
        if self.progress.changes() == 0 {
            self.progress.generation = in_force;
            self.progress.tries = 0;
            self.timeline.observe(plan.plan.as_ref().and_then(|plan| plan.profile.as_ref()));
            self.progress.link = plan.plan;
        }
        Ok(())
    }

    /// Whether whoever started it may still change the link.
    async fn check_lease(&mut self) -> Result<(), Halt> {
        let checked = self.control.changing().await.leases.check(&self.options.caller);
        checked.map_err(|status| Halt::because(format!("it lost the link: {}", status.message())))
    }

    /// Does what is asked; a pause lasts until it is over. Whether others may change the
    /// link meanwhile.
    async fn obey(&mut self, command: Option<Command>, tolerate: bool) -> Result<(), Halt> {
        match command {
            None => Err(Halt::ending()),
            Some(Command::Stop { who, restore, answer }) => {
                Err(Halt::stopped(&who, restore, answer))
            }
            Some(Command::Resume { answer, .. }) => {
                self.reply(Some(answer));
                Ok(())
            }
            Some(Command::Pause { who, answer }) => self.pause(&who, answer, tolerate).await,
        }
    }

    async fn pause(&mut self, who: &str, answer: Answer, tolerate: bool) -> Result<(), Halt> {
        let paused_ns = self.clock.now_ns();
        self.withdraw().await?;
        self.show(pb::ScenarioPhase::Paused, format!("paused by {who}"));
        self.tell(pb::EventKind::ScenarioPaused, paused_ns, format!("by {who}"));
        self.reply(Some(answer));
        loop {
            let look = self.clock.asked() + LOOK_EVERY;
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Resume { who, answer }) => {
                        let now = self.clock.now_ns();
                        let paused = now.saturating_sub(paused_ns);
                        let shift_ns = &mut self.progress.shift_ns;
                        *shift_ns = shift_ns.saturating_add(paused);
                        self.show(pb::ScenarioPhase::Running, String::new());
                        let length = format_duration(paused / 1_000_000 * 1_000_000);
                        let message = format!("by {who} after {length}");
                        self.tell(pb::EventKind::ScenarioResumed, now, message);
                        self.reply(Some(answer));
                        return Ok(());
                    }
                    Some(Command::Pause { answer, .. }) => self.reply(Some(answer)),
                    Some(Command::Stop { who, restore, answer }) => {
                        return Err(Halt::stopped(&who, restore, answer));
                    }
                    None => return Err(Halt::ending()),
                },
                () = self.stopping.stopped() => return Err(Halt::ending()),
                _ = self.lease.changed() => self.check_lease().await?,
                () = tokio::time::sleep_until(look) => self.look(tolerate).await?,
            }
        }
    }

    /// Waits for an event; what follows comes later by that.
    async fn wait(&mut self, item: &Item, wait: &Wait) -> Result<(), Halt> {
        let Wait { event, subject, timeout_ns, go_on } = wait;
        // Whoever waits for somebody's change has nothing against it.
        let expects_change = *event == pb::EventKind::LinkChanged;
        let tolerate = self.options.tolerate_changes || expects_change;
        let mut last = self.events.last();
        let mut after = *last.borrow_and_update();
        self.show(pb::ScenarioPhase::Waiting, item.action.to_string());
        let met_ns = loop {
            let end_ns = self.planned_ns(item).saturating_add(*timeout_ns);
            let end = self.clock.instant(end_ns);
            let look = self.clock.asked() + LOOK_EVERY;
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    self.obey(command, tolerate).await?;
                    self.show(pb::ScenarioPhase::Waiting, item.action.to_string());
                }
                () = self.stopping.stopped() => return Err(Halt::ending()),
                _ = self.lease.changed() => self.check_lease().await?,
                _ = last.changed() => {
                    let mut met = None;
                    while met.is_none() {
                        match self.events.next(after) {
                            Next::Event(found) => {
                                after = found.sequence;
                                let about = subject.is_empty() || found.subject == *subject;
                                // The switch takes its part of the same link.
                                let own = found.generation.is_some_and(|generation| {
                                    self.control.matches().made(self.instance, generation)
                                });
                                if found.kind() == *event && about && !own {
                                    met = Some(found.time_ns);
                                }
                            }
                            Next::Gone(oldest) => after = oldest - 1,
                            Next::Nothing => break,
                        }
                    }
                    if let Some(time_ns) = met {
                        break time_ns.unwrap_or_else(|| self.clock.now_ns());
                    }
                }
                () = tokio::time::sleep_until(end.min(look)) => {
                    if Instant::now() >= end {
                        if *go_on {
                            break end_ns;
                        }
                        let timeout = format_duration(*timeout_ns);
                        return Err(Halt::because(format!(
                            "step {}: {} did not come within {timeout}",
                            item.index,
                            event.as_str_name().trim_start_matches("EVENT_KIND_")
                        )));
                    }
                    self.look(tolerate).await?;
                }
            }
        };
        if expects_change {
            self.look(true).await?;
        }
        // Pauses meanwhile are in it.
        let plan = self.progress.start_ns.saturating_add(item.at_ns);
        let shift_ns = &mut self.progress.shift_ns;
        *shift_ns = (*shift_ns).max(met_ns.saturating_sub(plan));
        self.show(pb::ScenarioPhase::Running, String::new());
        Ok(())
    }

    /// Puts the link back in force that was there before; says what came of it.
    async fn restore(&mut self) -> String {
        let Some((before, was_lossy)) = self.before.clone() else {
            return "there was no link to return to".to_owned();
        };
        let seed = self.progress.link.as_ref().map(|link| link.seed);
        let Options { caller, tolerate_changes, lossy, .. } = &self.options;
        let in_force = self.control.matches().after(self.instance, self.progress.generation);
        let terms = dp::ApplyRequest {
            expected_generation: (!tolerate_changes).then_some(in_force),
            lossy: *lossy || was_lossy,
            // Another seed takes effect at a new beginning only.
            restart: seed != Some(before.seed),
            ..Default::default()
        };
        let name = before.profile.as_ref().map_or("", |profile| &profile.name).to_owned();
        // The clients are none of a scenario's changes.
        let restored = |in_force: Option<dp::Plan>| {
            let clients = in_force.and_then(|plan| plan.clients);
            Ok(dp::Plan { clients, ..before.clone() })
        };
        let cause = Cause { what: "the end of a scenario", caller };
        match self.control.change(cause, None, terms, &restored).await {
            Ok(change) => {
                self.progress.generation = change.applied.unwrap_or_default().generation;
                format!("{name} is back in force, generation {}", self.progress.generation)
            }
            Err(status) => format!("{name} could not be put back: {}", status.message()),
        }
    }

    /// A change was made.
    fn made(&mut self, item: &Item, planned_ns: u64, plan: dp::Plan, taken: &Taken) {
        let applied = taken.applied;
        self.progress.generation = applied.generation;
        self.progress.changed = true;
        self.progress.tries = 0;
        self.control.keep_link(&plan, &applied);
        self.progress.link = Some(plan);
        let utc = applied.effective_utc.and_then(|utc| utc.try_into().ok());
        let utc = utc.unwrap_or_else(|| self.clock.utc(applied.effective_ns));
        self.done(item, planned_ns, applied.effective_ns, utc, Some(applied.generation));
    }

    /// A step that changes nothing is at its instant if it was known by then.
    fn passed(&mut self, item: &Item, planned_ns: u64, sent_ns: u64) {
        let actual = planned_ns.max(sent_ns);
        self.done(item, planned_ns, actual, self.clock.utc(actual), None);
    }

    /// Tells of a step that was made.
    fn done(
        &self,
        item: &Item,
        planned_ns: u64,
        actual_ns: u64,
        utc: SystemTime,
        generation: Option<u64>,
    ) {
        let late_ns = actual_ns.saturating_sub(planned_ns);
        self.state.send_modify(|state| {
            state.steps_done = item.index + 1;
            state.late_steps += u64::from(late_ns > LATE_NS);
            state.late_max_ns = state.late_max_ns.max(late_ns);
            state.last = Some(planned(item, self.progress.shift_ns));
        });
        self.show(pb::ScenarioPhase::Running, String::new());
        self.control.keep_scenario(Some(&self.state.borrow()));
        let late = match late_ns {
            ..=LATE_NS => String::new(),
            ns => format!(", late by {}", format_duration(ns / 1_000 * 1_000)),
        };
        if late_ns > LATE_NS {
            tracing::warn!(step = item.index, late_ns, "a scenario's step was late");
        }
        let label = if item.label.is_empty() { String::new() } else { format!("{}: ", item.label) };
        self.events.publish(pb::Event {
            utc: Some(utc.into()),
            time_ns: Some(actual_ns),
            kind: pb::EventKind::ScenarioStep as i32,
            who: self.options.caller.name.clone(),
            subject: self.scenario.name().to_owned(),
            message: format!("step {}, {label}{}{late}", item.index, item.action),
            generation,
            scenario_run: self.state.borrow().run,
            scenario_step: Some(pb::ScenarioStep {
                run: self.state.borrow().run,
                index: item.index,
                label: item.label.clone(),
                planned_ns,
                planned_utc: Some((utc - Duration::from_nanos(late_ns)).into()),
                late_ns,
            }),
            ..Default::default()
        });
    }

    fn tell(&self, kind: pb::EventKind, time_ns: u64, message: String) {
        self.events.publish(pb::Event {
            utc: Some(self.clock.utc(time_ns).into()),
            time_ns: Some(time_ns),
            kind: kind as i32,
            who: self.options.caller.name.clone(),
            subject: self.scenario.name().to_owned(),
            message,
            scenario_run: self.state.borrow().run,
            ..Default::default()
        });
    }

    /// Shows where it is.
    fn show(&self, phase: pb::ScenarioPhase, message: String) {
        let Progress { start_ns, shift_ns, ahead, sent, .. } = &self.progress;
        let under_way = sent.iter().map(|sent| sent.item.clone()).chain(ahead.iter().cloned());
        let coming = under_way.chain(self.timeline.clone().take(NEXT).flatten()).take(NEXT);
        let next: Vec<_> = coming.map(|item| planned(&item, *shift_ns)).collect();
        let elapsed_ns = self.clock.now_ns().saturating_sub(start_ns.saturating_add(*shift_ns));
        self.state.send_modify(|state| {
            state.phase = phase as i32;
            state.next = next;
            state.elapsed_ns = elapsed_ns;
            state.generation = self.progress.generation;
            state.message = message;
        });
    }

    fn reply(&self, answer: Option<Answer>) {
        if let Some(answer) = answer {
            // Who asked may be gone.
            let _ = answer.send(Ok(self.state.borrow().clone()));
        }
    }
}

fn somebody_else(expected: u64, in_force: u64) -> String {
    format!(
        "generation {expected} was expected and {in_force} is in force: somebody else changed the \
         link (--tolerate-changes goes on)"
    )
}
