// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Scenarios`: what there is, and the one that runs.
//!
//! A scenario runs in a task of its own ([`runner`]), which alone moves it; the calls send
//! it commands and read the state that it shows.

mod clock;
mod edit;
mod runner;

use crate::answers::Named;
use crate::caller::Caller;
use crate::control::{Control, to_its_end};
use crate::events::Events;
use crate::refusal;
use crate::watching::Watching;
use clock::{Clock, Reading};
use edit::{planned, rehearse};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::scenarios_server;
use runner::{Options, Progress, Runner, start_ns};
use scenario::{Scenario, Timeline};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Steps that a dry run shows.
const FIRST: usize = 20;
/// Requests with a name that are known.
const REQUESTS: usize = 64;
/// Scenarios that are read and tried on paper at a time.
const REHEARSALS: usize = 2;
/// Commands that may wait for the runner.
const COMMANDS: usize = 16;

type Answer = oneshot::Sender<Result<pb::ScenarioState, Status>>;

/// What a runner is told.
enum Command {
    Pause { who: String, answer: Answer },
    Resume { who: String, answer: Answer },
    Stop { who: String, restore: bool, answer: Answer },
}

/// The scenarios; clones are the same.
#[derive(Clone)]
pub(crate) struct Scenarios {
    control: Control,
    events: Events,
    watching: Watching,
    current: Arc<Mutex<Current>>,
    rehearsals: Arc<Semaphore>,
    /// Of the run that runs, or ran last.
    state: watch::Sender<pb::ScenarioState>,
}

/// What starting one looks at.
struct Current {
    runs: u64,
    /// To the last run.
    commands: mpsc::Sender<Command>,
    /// The last run.
    runner: Option<JoinHandle<()>>,
    /// Of the last runs, and what they were answered.
    requests: VecDeque<(Named, pb::RunScenarioResponse)>,
}

/// What a scenario starts from.
struct InForce {
    plan: dp::GetPlanResponse,
    /// The dataplane's, as of then.
    clock: Clock,
}

/// Tries a scenario on paper, from what is in force: the timeline from there.
async fn rehearsed(
    scenario: &Scenario,
    profiles: &Arc<BTreeMap<String, pb::Profile>>,
    expected_generation: Option<u64>,
    InForce { plan, .. }: &InForce,
) -> Result<Timeline, Status> {
    let generation = plan.applied.map_or(0, |applied| applied.generation);
    if let Some(expected) = expected_generation.filter(|expected| *expected != generation) {
        return Err(refusal::other_generation(expected, generation));
    }
    let link = plan.plan.as_ref().and_then(|plan| plan.profile.as_ref());
    let timeline = Timeline::new(scenario, link, Arc::clone(profiles));
    let (ahead, from, sets) = (timeline.clone(), link.cloned(), Arc::clone(profiles));
    spawn_blocking(move || rehearse(ahead, from, &sets)).await.map_err(|_| untried())??;
    Ok(timeline)
}

/// The event for a scenario that a run of linkd left unfinished, if the state that it
/// saved last is one of those: linkd does not go on with it.
#[must_use]
pub(crate) fn interrupted(saved: &pb::ScenarioState) -> Option<pb::Event> {
    if !saved.runs() {
        return None;
    }
    let after = match &saved.last {
        Some(step) => format!("after step {} ({})", step.index, step.action),
        None => "before its first step".to_owned(),
    };
    Some(pb::Event {
        kind: pb::EventKind::ScenarioStopped as i32,
        who: saved.who.clone(),
        subject: saved.name.clone(),
        message: format!(
            "linkd ended {after}; the link stayed as it was then, and the scenario does not go on"
        ),
        ..Default::default()
    })
}

fn message(scenario: &Scenario) -> pb::Scenario {
    pb::Scenario {
        name: scenario.name().to_owned(),
        description: scenario.description().to_owned(),
        source: scenario.source().to_owned(),
        toml: scenario.text().to_owned(),
        steps: scenario.steps(),
        length_ns: scenario.length_ns(),
    }
}

fn named(name: &str) -> Result<Scenario, Status> {
    scenario::named(name).map_err(|nearest| {
        let remedy = match nearest {
            Some(near) => format!("the nearest is {near:?}"),
            None => "see `linkctl scenario list`".to_owned(),
        };
        Status::not_found(format!("no scenario is named {:?}: {remedy}", refusal::clip(name)))
    })
}

/// What is answered of a scenario that was tried.
fn answer(scenario: &Scenario, timeline: &Timeline) -> pb::RunScenarioResponse {
    let first = timeline.clone().take(FIRST).flatten().map(|item| planned(&item, 0)).collect();
    pb::RunScenarioResponse { state: None, scenario: Some(message(scenario)), first }
}

fn untried() -> Status {
    Status::internal("the scenario could not be tried on paper")
}

fn requested(scenario: Option<pb::run_scenario_request::Scenario>) -> Result<Scenario, Status> {
    use pb::run_scenario_request::Scenario as Requested;
    match scenario {
        None => Err(refusal::field("scenario", "missing: give a name or a scenario's TOML")),
        Some(Requested::Name(name)) => named(&name),
        Some(Requested::Toml(text)) => {
            Scenario::from_toml(&text).map_err(|found| refusal::invalid("the scenario", &found))
        }
    }
}

impl Scenarios {
    /// None has run.
    pub fn new(control: Control, events: Events, watching: Watching) -> Self {
        let none = pb::ScenarioPhase::None as i32;
        let (state, _) = watch::channel(pb::ScenarioState { phase: none, ..Default::default() });
        let (commands, _) = mpsc::channel(COMMANDS);
        let current = Current { runs: 0, commands, runner: None, requests: VecDeque::new() };
        let current = Arc::new(Mutex::new(current));
        let rehearsals = Arc::new(Semaphore::new(REHEARSALS));
        Self { control, events, watching, current, rehearsals, state }
    }

    /// Waits until nothing runs any more; to be called when linkd ends.
    pub async fn ended(&self) {
        let runner = self.current.lock().await.runner.take();
        if let Some(runner) = runner {
            // One that failed has ended as well.
            let _ = runner.await;
        }
    }

    /// The state of the run that runs, or ran last.
    fn state(&self) -> watch::Receiver<pb::ScenarioState> {
        self.state.subscribe()
    }

    async fn run(
        &self,
        caller: Caller,
        request: pb::RunScenarioRequest,
    ) -> Result<pb::RunScenarioResponse, Status> {
        let named = Named::new("RunScenario", &caller.name, &request.request_id, &request);
        let named = named.filter(|_| !request.dry_run);
        let pb::RunScenarioRequest {
            scenario,
            expected_generation,
            seed,
            request_id,
            dry_run,
            tolerate_changes,
            lossy,
        } = request;
        refusal::check_request_id(&request_id)?;
        let rehearsal = self.rehearsals.acquire().await.map_err(|_| untried())?;
        // Long enough to hold up other requests.
        let scenario =
            spawn_blocking(move || requested(scenario)).await.map_err(|_| untried())??;
        let mut profiles = BTreeMap::new();
        for name in scenario.profiles() {
            profiles.insert(name.to_owned(), self.control.named(name).await?.as_proto().clone());
        }
        let profiles = Arc::new(profiles);
        if dry_run {
            let from = self.in_force().await?;
            let timeline = rehearsed(&scenario, &profiles, expected_generation, &from).await?;
            return Ok(answer(&scenario, &timeline));
        }
        // Held to the end: two that come at once do not both start.
        let mut current = self.current.lock().await;
        if let Some(named) = &named {
            for (known, answer) in &current.requests {
                if named.repeats(known)? {
                    return Ok(answer.clone());
                }
            }
        }
        let lease = self.control.lease_changes();
        let from = {
            let mut changing = self.control.changing().await;
            changing.leases.check(&caller)?;
            self.check_idle()?;
            let from = self.in_force().await?;
            match self.control.bring_back(&mut changing, &from.plan).await? {
                true => self.in_force().await?,
                false => from,
            }
        };
        let timeline = rehearsed(&scenario, &profiles, expected_generation, &from).await?;
        drop(rehearsal);
        let InForce { plan, clock } = from;
        let generation = plan.applied.map_or(0, |applied| applied.generation);
        let lossy_before = plan.applied.is_some_and(|applied| applied.lossy);
        let mut response = answer(&scenario, &timeline);
        let (commands, obeyed) = mpsc::channel(COMMANDS);
        current.runs += 1;
        current.commands = commands;
        let start_ns = start_ns(&clock);
        let state = pb::ScenarioState {
            phase: pb::ScenarioPhase::Running as i32,
            run: current.runs,
            name: scenario.name().to_owned(),
            who: caller.name.clone(),
            started_utc: Some(clock.utc(start_ns).into()),
            started_ns: start_ns,
            steps: scenario.steps(),
            length_ns: scenario.length_ns(),
            generation,
            ..Default::default()
        };
        self.state.send_replace(state.clone());
        response.state = Some(state);
        if let Some(named) = named {
            if current.requests.len() == REQUESTS {
                current.requests.pop_front();
            }
            current.requests.push_back((named, response.clone()));
        }
        let runner = Runner {
            control: self.control.clone(),
            events: self.events.clone(),
            options: Options { caller, seed, tolerate_changes, lossy },
            scenario,
            profiles,
            timeline,
            instance: plan.instance,
            clock,
            before: plan.plan.clone().map(|plan| (plan, lossy_before)),
            commands: obeyed,
            state: self.state.clone(),
            stopping: self.watching.stopping(),
            lease,
            progress: Progress::new(start_ns, plan.plan, generation),
        };
        current.runner = Some(tokio::spawn(runner.run()));
        Ok(response)
    }

    /// What is in force.
    async fn in_force(&self) -> Result<InForce, Status> {
        let asked = Instant::now();
        let plan = self.control.dataplane().plan("").await?;
        let clock = Clock::from(Reading::of(asked, &plan)?);
        Ok(InForce { plan, clock })
    }

    fn check_idle(&self) -> Result<(), Status> {
        let state = self.state.borrow();
        if !state.runs() {
            return Ok(());
        }
        let pb::ScenarioState { run, name, who, steps_done, .. } = &*state;
        Err(Status::failed_precondition(format!(
            "{who} runs {name:?} (run {run}, {steps_done} steps done), and one runs at a time: \
             wait for its end, or stop it (`linkctl scenario stop`)"
        )))
    }

    /// Tells the runner something, if the caller may change the link.
    async fn tell(
        &self,
        caller: &Caller,
        command: impl FnOnce(Answer) -> Command,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        let none =
            || Status::failed_precondition("no scenario runs: see `linkctl scenario status`");
        self.control.changing().await.leases.check(caller)?;
        let (answer, answered) = oneshot::channel();
        {
            let current = self.current.lock().await;
            if !self.state.borrow().runs() {
                return Err(none());
            }
            current.commands.send(command(answer)).await.map_err(|_| none())?;
        }
        // It has ended instead.
        answered.await.map_err(|_| none())?.map(Response::new)
    }
}

#[tonic::async_trait]
impl scenarios_server::Scenarios for Scenarios {
    async fn list_scenarios(
        &self,
        _: Request<pb::ListScenariosRequest>,
    ) -> Result<Response<pb::ListScenariosResponse>, Status> {
        let scenarios = scenario::built_in().iter().map(message).collect();
        Ok(Response::new(pb::ListScenariosResponse { scenarios }))
    }

    async fn get_scenario(
        &self,
        request: Request<pb::GetScenarioRequest>,
    ) -> Result<Response<pb::Scenario>, Status> {
        Ok(Response::new(message(&named(&request.get_ref().name)?)))
    }

    async fn run_scenario(
        &self,
        request: Request<pb::RunScenarioRequest>,
    ) -> Result<Response<pb::RunScenarioResponse>, Status> {
        let caller = Caller::of(&request);
        let (this, request) = (self.clone(), request.into_inner());
        if request.dry_run {
            // It changes nothing, and ends with who asked.
            return this.run(caller, request).await.map(Response::new);
        }
        to_its_end(async move { this.run(caller, request).await }).await
    }

    async fn pause_scenario(
        &self,
        request: Request<pb::PauseScenarioRequest>,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        let caller = Caller::of(&request);
        let who = caller.name.clone();
        self.tell(&caller, |answer| Command::Pause { who, answer }).await
    }

    async fn resume_scenario(
        &self,
        request: Request<pb::ResumeScenarioRequest>,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        let caller = Caller::of(&request);
        let who = caller.name.clone();
        self.tell(&caller, |answer| Command::Resume { who, answer }).await
    }

    async fn stop_scenario(
        &self,
        request: Request<pb::StopScenarioRequest>,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        let caller = Caller::of(&request);
        let (who, restore) = (caller.name.clone(), request.get_ref().restore);
        self.tell(&caller, |answer| Command::Stop { who, restore, answer }).await
    }

    async fn get_scenario_state(
        &self,
        _: Request<pb::GetScenarioStateRequest>,
    ) -> Result<Response<pb::ScenarioState>, Status> {
        Ok(Response::new(self.state.borrow().clone()))
    }

    type WatchScenarioStream = ReceiverStream<Result<pb::ScenarioState, Status>>;

    async fn watch_scenario(
        &self,
        request: Request<pb::WatchScenarioRequest>,
    ) -> Result<Response<Self::WatchScenarioStream>, Status> {
        let permit = self.watching.permit(&Caller::of(&request))?;
        let (sender, receiver) = mpsc::channel(1);
        let mut state = self.state();
        let mut stopping = self.watching.ending(&request);
        tokio::spawn(async move {
            let _permit = permit;
            state.mark_changed();
            loop {
                tokio::select! {
                    biased;
                    _ = state.changed() => {}
                    () = sender.closed() => return,
                    () = stopping.stopped() => {
                        let _ = sender.try_send(Err(stopping.status()));
                        return;
                    }
                }
                let next = state.borrow_and_update().clone();
                if sender.send(Ok(next)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_state_that_was_not_at_its_end_is_an_event_and_no_other_is() {
        let last = pb::PlannedStep { index: 7, action: "mark".into(), ..Default::default() };
        let mut saved = pb::ScenarioState { last: Some(last), ..Default::default() };
        (saved.name, saved.who) = ("fade".into(), "ana".into());
        for phase in 0..=6 {
            saved.phase = phase;
            let event = interrupted(&saved);
            assert_eq!(event.is_some(), (2..=4).contains(&phase), "{phase}");
            if let Some(event) = event {
                assert_eq!((event.subject.as_str(), event.who.as_str()), ("fade", "ana"));
                assert!(event.message.contains("after step 7 (mark)"), "{}", event.message);
            }
        }
    }
}
