// SPDX-License-Identifier: Apache-2.0
//! Follows the dataplane: its events become events of linkd, and its scenario gets further steps and
//! the events that it waits for.
//!
//! One task, which holds nothing that the dataplane does not hold too: after a restart of linkd it
//! continues from the dataplane's status and from the source of the scenario that is kept there.

use super::{Scenarios, Unfinished, steps};
use crate::control::Control;
use crate::events::Events;
use owner::Next;
use prost::Message;
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::step::What;
use proto::dataplane::v1::watch_response::What as Told;
use proto::linkd::v1::ScenarioSource;
use proto::linkemu::v1 as pb;
use scenario::{Scenario, Timeline};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

/// Before the dataplane is asked again.
const AGAIN: Duration = Duration::from_millis(100);
/// A ramp that begins at the current value of the link is uploaded this much before it begins.
const HOLD_NS: u64 = 1_000_000_000;

/// An event that the scenario waits for.
struct Waiting {
    run: u64,
    index: u64,
    wait: dp::Wait,
    /// Events with a greater sequence count.
    after: u64,
}

/// Follows the dataplane until dropped.
pub(crate) async fn follow(scenarios: &Scenarios, events: &Events) {
    let mut instance = 0;
    loop {
        if let Err(status) = follow_once(scenarios, events, &mut instance).await {
            tracing::debug!(why = status.message(), "cannot follow the dataplane");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Follows until the connection breaks. `instance` is the dataplane that was followed last.
async fn follow_once(
    scenarios: &Scenarios,
    events: &Events,
    instance: &mut u64,
) -> Result<(), Status> {
    let control = &scenarios.control;
    let found = control.dataplane().plan().await?.instance;
    let kept = control.saver().state();
    // No event of another dataplane was published.
    let after = if kept.sequence_instance == found { kept.sequence } else { 0 };
    if *instance != found {
        control.follow_from(after);
        *instance = found;
    }
    let mut stream = control.dataplane().watch(Some(after)).await?;
    let mut last = events.last();
    let (mut waiting, mut status): (Option<Waiting>, _) = (None, dp::ScenarioStatus::default());
    // Sequence of the event of the last step, with which a wait begins.
    let mut last_step = *last.borrow();
    let mut retry = None;
    let mut is_first = true;
    loop {
        tokio::select! {
            message = stream.message() => {
                let Some(dp::WatchResponse { sequence, what, id }) = message? else { return Ok(()) };
                match what {
                    Some(Told::Event(event)) => {
                        let is_step = event.kind() == pb::EventKind::ScenarioStep;
                        control.forward(found, sequence, event, &id);
                        if is_step {
                            last_step = *last.borrow();
                        }
                    }
                    Some(Told::Scenario(now)) => {
                        status = now;
                        scenarios.show(&status, is_first);
                        is_first = false;
                        waiting = wait(&status, waiting, last_step);
                        retry = extend(scenarios, &status).await;
                    }
                    None => {}
                }
            }
            _ = last.changed() => {}
            () = until(retry), if retry.is_some() => retry = extend(scenarios, &status).await,
        }
        if let Some(it) = &mut waiting
            && let Some(time_ns) = happened(events, it)
        {
            let request = dp::NotifyScenarioRequest { run: it.run, index: it.index, time_ns };
            control.dataplane().notify_scenario(request).await?;
            waiting = None;
        }
    }
}

async fn until(instant: Option<Instant>) {
    if let Some(instant) = instant {
        tokio::time::sleep_until(instant).await;
    }
}

/// The wait of a status. Events after the sequence `after` count.
fn wait(status: &dp::ScenarioStatus, before: Option<Waiting>, after: u64) -> Option<Waiting> {
    let dp::ScenarioStatus { state, waiting, .. } = status;
    let Some(dp::Step { index, what: Some(What::Wait(wait)), .. }) = waiting else { return None };
    let run = state.as_ref()?.run;
    match before {
        Some(known) if (known.run, known.index) == (run, *index) => Some(known),
        _ => Some(Waiting { run, index: *index, wait: wait.clone(), after }),
    }
}

/// When the event happened, if it did; the inner value is its time on the dataplane's clock, if it
/// has one.
fn happened(events: &Events, waiting: &mut Waiting) -> Option<Option<u64>> {
    loop {
        match events.next(waiting.after) {
            Next::Entry(sequence, event) => {
                waiting.after = sequence;
                let subject = &waiting.wait.subject;
                let about = subject.is_empty() || event.subject == *subject;
                if event.kind() == waiting.wait.event() && about {
                    return Some(event.time_ns);
                }
            }
            Next::Gone(oldest) => waiting.after = oldest - 1,
            Next::Nothing => return None,
        }
    }
}

/// Uploads the next steps if there is room. Returns when to try again, if not at the next status.
async fn extend(scenarios: &Scenarios, status: &dp::ScenarioStatus) -> Option<Instant> {
    match try_to_extend(scenarios, status).await {
        Ok(again) => again,
        Err(status) => {
            tracing::warn!(why = status.message(), "cannot upload the steps of a scenario");
            Some(Instant::now() + AGAIN)
        }
    }
}

async fn try_to_extend(
    scenarios: &Scenarios,
    status: &dp::ScenarioStatus,
) -> Result<Option<Instant>, Status> {
    let dp::ScenarioStatus { state: Some(state), next_index: Some(next_index), room, .. } = status
    else {
        return Ok(None);
    };
    // Less room is reported again with each step.
    if (*room as usize) < steps::UPLOAD {
        return Ok(None);
    }
    let control = &scenarios.control;
    let unfinished = scenarios.exchange(None).filter(|it| it.run == state.run);
    let mut unfinished = match unfinished {
        Some(it) if it.timeline.index() == *next_index => it,
        _ => recovered(control, state.run, *next_index).await?,
    };
    if unfinished.tolerate_changes && unfinished.timeline.begins_ramp() {
        if state.steps_done == *next_index {
            let plan = control.dataplane().plan().await?.plan.unwrap_or_default();
            unfinished.timeline.observe(plan.profile.as_ref());
        } else if let Some(ahead) = ahead(&unfinished.timeline, state).filter(|ns| *ns > HOLD_NS) {
            scenarios.exchange(Some(unfinished));
            return Ok(Some(Instant::now() + Duration::from_nanos(ahead - HOLD_NS)));
        }
    }
    let Unfinished { run, mut timeline, profiles, tolerate_changes } = unfinished;
    let before = timeline.clone();
    let (steps, complete) = steps::upload(&mut timeline, &profiles, tolerate_changes)
        .map_err(|found| crate::refusal::invalid("the scenario", &found))?;
    let request = dp::ExtendScenarioRequest { run, steps, complete };
    let answer = control.dataplane().extend_scenario(request).await;
    let timeline = if answer.is_ok() { timeline } else { before };
    if !(complete && answer.is_ok()) {
        scenarios.exchange(Some(Unfinished { run, timeline, profiles, tolerate_changes }));
    }
    answer.map(|_| None)
}

/// Time until the next item of a timeline.
fn ahead(timeline: &Timeline, state: &pb::ScenarioState) -> Option<u64> {
    let next = timeline.clone().next()?.ok()?;
    Some(next.at_ns.saturating_sub(state.elapsed_ns))
}

/// The rest of a run that another linkd has started.
async fn recovered(control: &Control, run: u64, next_index: u64) -> Result<Unfinished, Status> {
    let source = control.dataplane().scenario("").await?.source;
    let lost = |why: String| Status::data_loss(format!("the source of the scenario: {why}"));
    let source = ScenarioSource::decode(&*source).map_err(|error| lost(error.to_string()))?;
    let ScenarioSource { toml, link, profiles, tolerate_changes } = source;
    let scenario = Scenario::from_toml(&toml).map_err(|found| lost(found.to_string()))?;
    let named = profiles.into_iter().map(|profile| (profile.name.clone(), profile));
    let profiles = Arc::new(named.collect());
    let mut timeline = Timeline::new(&scenario, link.as_ref(), Arc::clone(&profiles));
    while timeline.index() < next_index && timeline.next().is_some() {}
    Ok(Unfinished { run, timeline, profiles, tolerate_changes })
}

impl Scenarios {
    /// Takes a status of the dataplane. One of an earlier run, which was on its way when a new run
    /// began, is ignored; the first one of a connection may be of another dataplane.
    fn show(&self, status: &dp::ScenarioStatus, is_first: bool) {
        let Some(state) = &status.state else { return };
        if state.run < self.state.borrow().run && !is_first {
            return;
        }
        self.state.send_if_modified(|known| {
            let changed = known != state;
            known.clone_from(state);
            changed
        });
        let saver = self.control.saver();
        let ended = saver.state().scenario.is_some_and(|kept| kept.run <= state.run);
        if ended && !state.runs() {
            saver.update(|kept| kept.scenario = None);
        }
    }
}
