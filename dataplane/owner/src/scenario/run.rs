// SPDX-License-Identifier: Apache-2.0
//! One run of a scenario: a task that applies each step at its instant.
//!
//! Steps are handed over [`LEAD_NS`] before their instants and wait in the dataplane's workers, so
//! that they are on time even if this task is not. A pause or a stop withdraws those that are not
//! due. A step with an instant in the past is applied immediately; its event has the lateness. No
//! step is left out. Pauses and waits delay the rest of the timeline; lateness does not.
//!
//! Each step expects the generation of the step before it. A change by another caller withdraws all
//! pending steps.

mod hold;
mod named;
mod report;

use super::{Answer, Command};
use crate::scenario::uploads::Uploads;
use crate::{Chain, Changes, Current, Entry, Journal, Link, Refusal, Source, Terms, stale_message};
pub(super) use named::Named;
use named::{LINKS_LEAD_NS, Outcome, changed};
use profile::{counted, format_duration};
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::step::What;
use proto::linkemu::v1 as pb;
use std::collections::{BTreeMap, VecDeque};
use std::future::{pending, poll_fn};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

/// Longer than the control thread is held up on a busy machine.
const LEAD_NS: u64 = 250_000_000;
/// Steps that are handed over at a time; fewer than the dataplane lets wait.
const HANDED_OVER: usize = 24;
/// From the request to the first instant.
pub(super) const START_NS: u64 = 100_000_000;
/// A later step is applied as if it were late by this much only: a group refuses instants that passed
/// long ago.
const PASSED_NS: u64 = 500_000_000;
/// A step with more lateness counts as late.
const LATE_NS: u64 = 1_000_000;
/// Steps that the state shows in advance.
const NEXT: usize = 5;
/// Attempts to apply a step that was withdrawn.
const TRIES: u32 = 8;
/// The task looks at its steps at least that often.
const LOOK: Duration = Duration::from_secs(3_600);
/// How long the run waits for steps that were not uploaded in time.
const STARVED: Duration = Duration::from_secs(30);

/// How the scenario is executed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub seed: Option<u64>,
    pub lossy: bool,
    pub tolerate_changes: bool,
}

/// A step that was handed over.
struct Sent {
    step: dp::Step,
    planned_ns: u64,
    /// When it was handed over.
    sent_ns: u64,
    way: Way,
}

enum Way {
    /// It changes nothing, and is reported at its instant.
    Mark,
    /// Resolves when the change was applied or withdrawn.
    Change(JoinHandle<Result<Outcome, Refusal>>),
}

/// A scenario and everything that it needs.
pub(super) struct Run<L> {
    pub link: L,
    pub journal: Journal<Entry>,
    pub options: Options,
    pub uploads: Uploads,
    pub commands: mpsc::Receiver<Command>,
    pub state: watch::Sender<pb::ScenarioState>,
    /// Generation of the last change by another caller.
    pub others: watch::Receiver<u64>,
    /// The other links that it changes.
    pub named: BTreeMap<String, Named<L>>,
    /// The link before the scenario.
    pub before: Current,
    pub progress: Progress,
}

pub(super) struct Progress {
    /// On the dataplane's clock.
    start_ns: u64,
    /// Delay of the rest of the timeline.
    shift_ns: u64,
    /// After the last step that was applied.
    generation: u64,
    seed: u64,
    /// A step was handed over that restarted the processes with the given seed.
    seeded: bool,
    sent: VecDeque<Sent>,
    /// Of the steps that are handed over.
    chain: Chain,
    /// Attempts in vain since the last step that was applied.
    tries: u32,
}

impl Progress {
    pub fn new(start_ns: u64, before: &Current) -> Self {
        Self {
            start_ns,
            shift_ns: 0,
            generation: before.applied.generation,
            seed: before.plan.seed,
            seeded: false,
            sent: VecDeque::new(),
            chain: Chain::default(),
            tries: 0,
        }
    }

    /// Changes that are handed over.
    fn changes(&self) -> u64 {
        self.sent.iter().filter(|sent| matches!(sent.way, Way::Change(_))).count() as u64
    }
}

/// Why the scenario ends early.
struct Halt {
    reason: String,
    restore: bool,
    answer: Option<Answer>,
}

impl Halt {
    fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), restore: false, answer: None }
    }

    fn refused(step: u64, why: &str) -> Self {
        Self::because(format!("step {step} is refused: {why}"))
    }

    fn ending() -> Self {
        Self::because("the dataplane ends")
    }
}

/// The answer to the first step that is handed over, if it is a change.
async fn answered(sent: &mut VecDeque<Sent>) -> Result<Outcome, Refusal> {
    match sent.front_mut() {
        Some(Sent { way: Way::Change(answer), .. }) => joined(answer).await,
        _ => pending().await,
    }
}

async fn joined(
    answer: impl Future<Output = Result<Result<Outcome, Refusal>, JoinError>>,
) -> Result<Outcome, Refusal> {
    answer.await.unwrap_or_else(|_| {
        Err(Refusal::Refused("the request ended without a result: please report this".to_owned()))
    })
}

fn is_wait(step: &dp::Step) -> bool {
    matches!(step.what, Some(What::Wait(_)))
}

impl<L: Link> Run<L> {
    /// Runs the scenario to its end.
    pub async fn run(mut self) {
        let (steps, length) = {
            let state = self.state.borrow();
            let steps = state.steps.map_or(String::new(), |n| counted(n, "step", "steps") + ", ");
            let length = state.length_ns.map_or("without end".to_owned(), format_duration);
            (steps, length)
        };
        let start_ns = self.progress.start_ns;
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
            let message = counted(steps, "step", "steps") + &late;
            self.tell(pb::EventKind::ScenarioFinished, self.link.now_ns(), message);
            self.show(pb::ScenarioPhase::Finished, String::new());
            return;
        };
        if let Err(more) = self.withdraw().await {
            halt.reason = format!("{}; {}", halt.reason, more.reason);
        }
        if halt.restore {
            halt.reason = format!("{}; {}", halt.reason, self.restore().await);
        }
        self.tell(pb::EventKind::ScenarioStopped, self.link.now_ns(), halt.reason.clone());
        self.show(pb::ScenarioPhase::Stopped, halt.reason);
        self.reply(halt.answer);
    }

    async fn play(&mut self) -> Result<(), Halt> {
        self.show(pb::ScenarioPhase::Running, String::new());
        loop {
            self.check_others(self.options.tolerate_changes)?;
            self.hand_over().await;
            let Some(wake) = self.next_wake() else {
                if self.uploads.next_index().is_none() {
                    return Ok(());
                }
                self.starve().await?;
                continue;
            };
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    self.obey(command, self.options.tolerate_changes).await?;
                    self.show(pb::ScenarioPhase::Running, String::new());
                }
                _ = self.others.changed() => self.others.mark_changed(),
                () = changed(&mut self.named) => {}
                answer = answered(&mut self.progress.sent) => self.take(answer).await?,
                () = self.uploads.extended() => {}
                () = tokio::time::sleep_until(wake) => self.pass_marks().await?,
            }
        }
    }

    /// Waits for steps that should have been uploaded by now.
    async fn starve(&mut self) -> Result<(), Halt> {
        let end = Instant::now() + STARVED;
        while self.uploads.next_ns().is_none() && self.uploads.next_index().is_some() {
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    self.obey(command, self.options.tolerate_changes).await?;
                    self.show(pb::ScenarioPhase::Running, String::new());
                }
                _ = self.others.changed() => {
                    self.others.mark_changed();
                    self.check_others(self.options.tolerate_changes)?;
                }
                () = changed(&mut self.named) => {
                    self.check_others(self.options.tolerate_changes)?;
                }
                () = self.uploads.extended() => {}
                () = tokio::time::sleep_until(end) => {
                    return Err(Halt::because(format!(
                        "step {} was not uploaded within {} s: linkd is away",
                        self.state.borrow().steps_done,
                        STARVED.as_secs()
                    )));
                }
            }
        }
        Ok(())
    }

    fn planned_ns(&self, step: &dp::Step) -> u64 {
        self.instant_ns(step.at_ns)
    }

    fn instant_ns(&self, at_ns: u64) -> u64 {
        let Progress { start_ns, shift_ns, .. } = self.progress;
        start_ns.saturating_add(at_ns).saturating_add(shift_ns)
    }

    /// When the link's clock has that time, or in an hour if that is earlier.
    fn instant(&self, time_ns: u64) -> Instant {
        let ahead = Duration::from_nanos(time_ns.saturating_sub(self.link.now_ns()));
        Instant::now() + ahead.min(LOOK)
    }

    /// When the next step has to be reported or handed over; none if there is neither. Changes wake
    /// the task by their answers.
    fn next_wake(&self) -> Option<Instant> {
        let sent = self.progress.sent.front().map(|sent| match sent.way {
            Way::Mark => sent.planned_ns,
            Way::Change(_) => u64::MAX,
        });
        let next = self.uploads.next_ns().filter(|_| self.can_hand_over());
        let next = next.map(|at_ns| self.instant_ns(at_ns).saturating_sub(self.lead_ns()));
        sent.into_iter().chain(next).min().map(|at_ns| self.instant(at_ns))
    }

    /// The end of a wait is not known in advance.
    fn can_hand_over(&self) -> bool {
        let sent = &self.progress.sent;
        let holds = |sent: &Sent| is_wait(&sent.step) || !sent.step.links.is_empty();
        // A change of several links comes after all others, and before all later ones.
        let alone = self.uploads.next_has_links();
        sent.len() < HANDED_OVER && !sent.back().is_some_and(holds) && (!alone || sent.is_empty())
    }

    /// How long before its instant the next step is handed over.
    fn lead_ns(&self) -> u64 {
        if self.uploads.next_has_links() { LINKS_LEAD_NS } else { LEAD_NS }
    }

    /// Hands over the steps that are due within [`Self::lead_ns`].
    async fn hand_over(&mut self) {
        while self.can_hand_over()
            && let Some(at_ns) = self.uploads.next_ns()
            && self.instant_ns(at_ns) <= self.link.now_ns().saturating_add(self.lead_ns())
            && let Some(step) = self.uploads.take()
        {
            let planned_ns = self.planned_ns(&step);
            let sent_ns = self.link.now_ns();
            let way = match &step.what {
                Some(What::Change(change)) => {
                    self.send(&step, change.clone(), planned_ns, sent_ns).await
                }
                None if !step.links.is_empty() => {
                    self.send(&step, dp::Change::default(), planned_ns, sent_ns).await
                }
                Some(What::Wait(_)) | None => Way::Mark,
            };
            self.progress.sent.push_back(Sent { step, planned_ns, sent_ns, way });
        }
    }

    async fn send(
        &mut self,
        step: &dp::Step,
        mut change: dp::Change,
        planned_ns: u64,
        sent_ns: u64,
    ) -> Way {
        if let Some(seed) = self.options.seed {
            change.seed = Some(seed);
            change.restart |= !self.progress.seeded && self.progress.changes() == 0;
        }
        let at_ns = planned_ns.max(sent_ns.saturating_sub(PASSED_NS));
        if !step.links.is_empty() {
            return self.send_links(step, change, at_ns);
        }
        let terms = Terms {
            at_ns: Some(at_ns),
            expected: Some(self.progress.generation + self.progress.changes()),
            lossy: self.options.lossy,
            chain: self.progress.chain.clone(),
            ..Terms::of(Source::Scenario)
        };
        let link = self.link.clone();
        let mut answer = Box::pin(async move { Ok(link.change(change, terms).await?.into()) });
        // Polled here first, so that the changes keep their order.
        let first = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        Way::Change(tokio::spawn(async move {
            match first {
                Poll::Ready(answer) => answer,
                Poll::Pending => answer.await,
            }
        }))
    }

    /// Takes the answer of the first step that is handed over.
    async fn take(&mut self, answer: Result<Outcome, Refusal>) -> Result<(), Halt> {
        let Some(Sent { step, planned_ns, .. }) = self.progress.sent.pop_front() else {
            return Ok(());
        };
        match answer {
            Ok(made) => {
                self.made(&step, planned_ns, &made);
                Ok(())
            }
            Err(Refusal::Stale(why)) => self.try_again(step, &why).await,
            Err(Refusal::Refused(why)) => Err(Halt::refused(step.index, &why)),
        }
    }

    /// After a change was withdrawn, and all later ones with it: continues from the current link,
    /// if that is allowed.
    async fn try_again(&mut self, first: dp::Step, why: &str) -> Result<(), Halt> {
        let rest = self.withdraw().await;
        self.progress.tries += 1;
        let index = first.index;
        self.uploads.put_back(std::iter::once(first));
        rest?;
        self.check_others(self.options.tolerate_changes)?;
        if self.progress.tries > TRIES {
            return Err(Halt::refused(index, why));
        }
        self.read_current().await;
        Ok(())
    }

    async fn read_current(&mut self) {
        let current = self.link.current().await;
        self.progress.generation = current.applied.generation;
        self.progress.seed = current.plan.seed;
        self.read_links().await;
    }

    /// Withdraws the steps that were handed over and are not due; reports those that were applied.
    async fn withdraw(&mut self) -> Result<(), Halt> {
        if self.progress.changes() > 0
            && let Err(status) = self.link.clone().withdraw_all().await
        {
            // Each answer has the result.
            tracing::warn!(%status, "cannot withdraw the steps of a scenario");
        }
        let (mut back, mut failed) = (Vec::new(), None);
        while let Some(Sent { step, planned_ns, sent_ns, way }) = self.progress.sent.pop_front() {
            match way {
                Way::Mark
                    if back.is_empty() && planned_ns <= self.link.now_ns() && !is_wait(&step) =>
                {
                    self.passed(&step, planned_ns, sent_ns);
                }
                Way::Mark => back.push(step),
                Way::Change(mut answer) => match joined(&mut answer).await {
                    Ok(made) => self.made(&step, planned_ns, &made),
                    Err(Refusal::Stale(_)) => back.push(step),
                    Err(Refusal::Refused(why)) => {
                        failed.get_or_insert(Halt::refused(step.index, &why));
                    }
                },
            }
        }
        self.progress.chain = Chain::default();
        self.uploads.put_back(back.into_iter());
        failed.map_or(Ok(()), Err)
    }

    /// Reports the steps that change nothing and are due.
    async fn pass_marks(&mut self) -> Result<(), Halt> {
        while let Some(sent) = self.progress.sent.front()
            && matches!(sent.way, Way::Mark)
            && sent.planned_ns <= self.link.now_ns()
            && let Some(Sent { step, planned_ns, sent_ns, .. }) = self.progress.sent.pop_front()
        {
            self.passed(&step, planned_ns, sent_ns);
            if let Some(What::Wait(wait)) = &step.what {
                self.wait(&step, wait).await?;
            }
        }
        Ok(())
    }

    /// Ends the scenario if another caller has changed one of its links and that is not tolerated.
    fn check_others(&mut self, tolerate: bool) -> Result<(), Halt> {
        self.check_links(tolerate)?;
        let changed = self.others.has_changed().unwrap_or(false);
        let current = *self.others.borrow_and_update();
        match changed && !tolerate && current > self.progress.generation {
            true => Err(Halt::because(format!(
                "{}: somebody else changed the link (--tolerate-changes goes on)",
                stale_message(self.progress.generation, current)
            ))),
            false => Ok(()),
        }
    }

    /// Applies the link from before the scenario; returns the result in words.
    async fn restore(&mut self) -> String {
        let Current { plan, applied, .. } = self.before.clone();
        let Some(profile) = plan.profile.clone() else {
            return "there was no link to return to".to_owned();
        };
        let name = profile.name.clone();
        let change = dp::Change {
            profile: Some(profile),
            seed: Some(plan.seed),
            // Another seed takes effect at a restart only.
            restart: self.progress.seed != plan.seed,
            ..Default::default()
        };
        let terms = Terms {
            expected: (!self.options.tolerate_changes).then_some(self.progress.generation),
            lossy: self.options.lossy || applied.lossy,
            ..Terms::of(Source::Scenario)
        };
        let restored = match self.named.is_empty() {
            true => self.link.clone().change(change, terms).await.map_err(Refusal::from),
            false => self.restore_links(change, terms).await,
        };
        match restored {
            Ok(made) => {
                self.progress.generation = made.applied.generation;
                format!("{name} is back, generation {}", self.progress.generation)
            }
            Err(Refusal::Stale(why) | Refusal::Refused(why)) => {
                format!("{name} could not be applied again: {why}")
            }
        }
    }
}
