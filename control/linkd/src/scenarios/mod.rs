// SPDX-License-Identifier: Apache-2.0
//! The known scenarios, and the one that runs on a link in the dataplane.
//!
//! A scenario is rehearsed, compiled to steps and uploaded here. The dataplane executes it;
//! [`follow`] uploads the rest meanwhile, and reports the events that it waits for.

mod follow;
mod steps;

pub(crate) use follow::follow;

use crate::caller::Caller;
use crate::control::{Control, Find, Visitor, is_away, lock_all};
use crate::leases::Leases;
use crate::named::Named;
use crate::refusal;
use crate::watching::Watching;
use prost::Message;
use proto::dataplane::v1 as dp;
use proto::linkd::v1::{ScenarioLink, ScenarioRun, ScenarioSource};
use proto::linkemu::v1 as pb;
use scenario::{Scenario, Timeline};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use steps::{planned, rehearse, upload};
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tonic::{Code, Status};

/// Steps that a dry run shows.
const FIRST: usize = 20;
/// Scenarios that are read and tried on paper at a time.
const REHEARSALS: usize = 2;
const _: () = assert!(scenario::LINK_CHARS == emu::client::MAX_NAME);

/// The scenarios. Clones share them.
#[derive(Clone)]
pub(crate) struct Scenarios {
    control: Control,
    pub watching: Watching,
    rehearsals: Arc<Semaphore>,
    /// As the dataplane reports it.
    pub state: watch::Sender<pb::ScenarioState>,
    /// The run with steps that are not uploaded yet.
    unfinished: Arc<Mutex<Option<Unfinished>>>,
}

/// The rest of a run.
#[derive(Debug)]
struct Unfinished {
    run: u64,
    timeline: Timeline,
    profiles: Arc<BTreeMap<String, pb::Profile>>,
    tolerate_changes: bool,
}

struct Start {
    plan: dp::Plan,
    generation: u64,
    instance: u64,
}

/// Tries a scenario on paper; returns its timeline.
async fn rehearsed(
    scenario: &Scenario,
    profiles: &Arc<BTreeMap<String, pb::Profile>>,
    expected_generation: Option<u64>,
    from: &Start,
    others: BTreeMap<String, dp::Plan>,
) -> Result<Timeline, Status> {
    if let Some(expected) = expected_generation.filter(|expected| *expected != from.generation) {
        return Err(Status::aborted(owner::stale_message(expected, from.generation)));
    }
    let link = from.plan.profile.as_ref();
    let timeline = Timeline::new(scenario, link, Arc::clone(profiles));
    let (ahead, from, sets) = (timeline.clone(), from.plan.clone(), Arc::clone(profiles));
    spawn_blocking(move || rehearse(ahead, from, others, &sets)).await.map_err(|_| untried())??;
    Ok(timeline)
}

pub(crate) fn message(scenario: &Scenario) -> pb::Scenario {
    pb::Scenario {
        name: scenario.name().to_owned(),
        description: scenario.description().to_owned(),
        source: scenario.source().to_owned(),
        toml: scenario.text().to_owned(),
        steps: scenario.steps(),
        length_ns: scenario.length_ns(),
    }
}

pub(crate) fn named(name: &str) -> Result<Scenario, Status> {
    scenario::named(name).map_err(|nearest| {
        let remedy = match nearest {
            Some(near) => format!("the nearest is {near:?}"),
            None => "see `linkctl scenario list`".to_owned(),
        };
        Status::not_found(format!("no scenario is named {:?}: {remedy}", refusal::clip(name)))
    })
}

/// The answer for a scenario that was tried.
fn answer(scenario: &Scenario, timeline: &Timeline) -> pb::RunScenarioResponse {
    let first = timeline.clone().take(FIRST).flatten().map(|item| planned(&item)).collect();
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
    pub fn new(control: Control, watching: Watching) -> Self {
        let none = pb::ScenarioPhase::None as i32;
        let (state, _) = watch::channel(pb::ScenarioState { phase: none, ..Default::default() });
        let rehearsals = Arc::new(Semaphore::new(REHEARSALS));
        Self { control, watching, rehearsals, state, unfinished: Arc::default() }
    }

    /// Exchanges the run with steps that are not uploaded yet.
    fn exchange(&self, unfinished: Option<Unfinished>) -> Option<Unfinished> {
        let mut place = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, unfinished)
    }

    /// The other links that a scenario changes.
    fn others(
        &self,
        find: Find<'_>,
        scenario: &Scenario,
    ) -> Result<BTreeMap<String, Control>, Status> {
        let mut others = BTreeMap::new();
        for name in scenario.links() {
            if name == self.control.name() {
                let message = format!(
                    "links: `{name}` is the scenario's own link: write its change outside of `links`"
                );
                return Err(refusal::field("scenario", message));
            }
            others.insert(name.to_owned(), find(name)?);
        }
        Ok(others)
    }

    pub async fn run(
        &self,
        find: Find<'_>,
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
            link: _,
        } = request;
        refusal::check_request_id(&request_id)?;
        let rehearsal = self.rehearsals.acquire().await.map_err(|_| untried())?;
        // Reading takes long enough to hold up other requests.
        let scenario =
            spawn_blocking(move || requested(scenario)).await.map_err(|_| untried())??;
        let mut profiles = BTreeMap::new();
        for name in scenario.profiles() {
            profiles.insert(name.to_owned(), self.control.named(name).await?.as_proto().clone());
        }
        let profiles = Arc::new(profiles);
        let others = self.others(find, &scenario)?;
        if dry_run {
            let from = start(self.control.dataplane().plan().await?);
            let mut plans = BTreeMap::new();
            for (name, other) in &others {
                let plan = other.dataplane().plan().await?.plan.unwrap_or_default();
                plans.insert(name.clone(), plan);
            }
            let timeline =
                rehearsed(&scenario, &profiles, expected_generation, &from, plans).await?;
            return Ok(answer(&scenario, &timeline));
        }
        if let Some(named) = &named
            && let known = self.control.dataplane().scenario(&named.key()).await?
            && let Some(state) = known.started
        {
            if known.fingerprint != named.fingerprint() {
                return Err(self
                    .control
                    .dataplane()
                    .translate(Status::new(Code::AlreadyExists, "")));
            }
            let from = start(self.control.dataplane().plan().await?);
            let timeline = Timeline::new(&scenario, from.plan.profile.as_ref(), profiles);
            return Ok(pb::RunScenarioResponse {
                state: Some(state),
                ..answer(&scenario, &timeline)
            });
        }
        let own = self.control.name();
        let mut all = others.clone();
        all.insert(own.to_owned(), self.control.clone());
        let mut locked = lock_all(&all).await;
        let leases: Vec<_> = locked.iter().map(|(name, it)| (*name, &it.leases)).collect();
        match &*leases {
            [(_, leases)] => leases.check(&caller)?,
            leases => Leases::check_links(leases, &caller)?,
        }
        let Some(mut changing) = locked.remove(own) else { return Err(untried()) };
        let from = start(self.control.look(&mut changing).await?);
        let (mut plans, mut visited) = (BTreeMap::new(), Vec::new());
        for (name, other) in &others {
            let Some(held) = locked.get_mut(name.as_str()) else { continue };
            let found = other.look(held).await;
            let found = found.map_err(|status| owner::of_link(name, &status))?;
            plans.insert(name.clone(), found.plan.unwrap_or_default());
            let token = held.leases.token();
            visited.push(ScenarioLink { name: name.clone(), token });
        }
        let timeline = rehearsed(&scenario, &profiles, expected_generation, &from, plans).await?;
        drop(rehearsal);
        let response = answer(&scenario, &timeline);
        let mut rest = timeline;
        let (first, complete) = upload(&mut rest, &profiles, tolerate_changes)
            .map_err(|found| refusal::invalid("the scenario", &found))?;
        let source = ScenarioSource {
            toml: scenario.text().to_owned(),
            link: from.plan.profile,
            profiles: profiles.values().cloned().collect(),
            tolerate_changes,
        };
        let request = dp::RunScenarioRequest {
            name: scenario.name().to_owned(),
            who: caller.name.clone(),
            steps: scenario.steps(),
            length_ns: scenario.length_ns(),
            first,
            complete,
            seed,
            lossy,
            tolerate_changes,
            expected_generation: Some(from.generation),
            key: named.as_ref().map_or_else(String::new, Named::key),
            fingerprint: named.as_ref().map_or_else(String::new, Named::fingerprint),
            expected_instance: from.instance,
            source: if complete { Vec::new() } else { source.encode_to_vec() },
            links: others.keys().cloned().collect(),
        };
        // The status of the run may be here before the answer.
        self.exchange(None);
        // Before it runs: if the answer is lost, the end of the lease has to stop it all the same.
        let mut kept = ScenarioRun {
            run: 0,
            instance: from.instance,
            name: request.name.clone(),
            who: request.who.clone(),
            token: changing.leases.token(),
            links: visited,
        };
        let before = self.control.saver().state().scenario;
        self.control.saver().update(|state| state.scenario = Some(kept.clone()));
        let started = match self.control.dataplane().run_scenario(request).await {
            Err(status) if !is_away(&status) => {
                self.control.saver().update(|state| state.scenario = before);
                return Err(status);
            }
            started => started?,
        };
        let state = started.state.unwrap_or_default();
        if !complete {
            let run = state.run;
            self.exchange(Some(Unfinished { run, timeline: rest, profiles, tolerate_changes }));
        }
        // Watchers that come after the answer see this run.
        self.state.send_if_modified(|known| {
            let is_new = known.run != state.run;
            if is_new {
                known.clone_from(&state);
            }
            is_new
        });
        kept.run = state.run;
        self.visit(&kept, &others);
        self.control.saver().update(|state| state.scenario = Some(kept));
        self.control.settle_scenario(&changing.leases).await;
        Ok(pb::RunScenarioResponse { state: Some(state), ..response })
    }

    /// Tells other links that a run changes them.
    pub fn visit(&self, run: &ScenarioRun, others: &BTreeMap<String, Control>) {
        for ScenarioLink { name, token } in &run.links {
            if let Some(other) = others.get(name) {
                let dataplane = self.control.dataplane().clone();
                other.visited_by(Visitor { dataplane, run: run.run, token: token.clone() });
            }
        }
    }

    /// Fails unless the caller may change the link.
    pub async fn check(&self, caller: &Caller) -> Result<(), Status> {
        self.control.changing().await.leases.check(caller)
    }
}

fn start(current: dp::GetPlanResponse) -> Start {
    let dp::GetPlanResponse { plan, applied, instance, .. } = current;
    let generation = applied.unwrap_or_default().generation;
    Start { plan: plan.unwrap_or_default(), generation, instance }
}
