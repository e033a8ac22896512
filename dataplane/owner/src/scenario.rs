// SPDX-License-Identifier: Apache-2.0
//! Scenarios that the controller uploads and the dataplane executes.
//!
//! One scenario runs at a time, in a task ([`run`]) that alone changes its state. Requests send it
//! commands and read the state that it publishes. The controller may disappear: the task needs it
//! only for steps that were not uploaded yet, and for events that a step waits for.
//!
//! ```text
//! NONE ──run──▶ RUNNING ◀──event──▶ WAITING     RUNNING, WAITING ◀──pause, resume──▶ PAUSED
//! RUNNING ──last step──▶ FINISHED               RUNNING, WAITING, PAUSED ──stop, refusal──▶ STOPPED
//! FINISHED, STOPPED ──run──▶ RUNNING
//! ```

mod run;
mod uploads;

use crate::{Changes, Entry, Journal, Keys, Link, Request, stale_message};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use run::{Named, Options, Progress, Run};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tonic::Status;
use uploads::Uploads;

/// Runs with a key that are known.
const KEYS: usize = 64;
/// Commands that may wait for the run.
const COMMANDS: usize = 16;
/// Limit of `RunScenarioRequest.source`.
const SOURCE_BYTES: usize = 4 << 20;

type Answer = oneshot::Sender<pb::ScenarioState>;

/// A request to the run.
enum Command {
    Pause { who: String, answer: Answer },
    Resume { who: String, answer: Answer },
    Stop { reason: String, restore: bool, answer: Answer },
    Notify { index: u64, time_ns: Option<u64> },
}

/// The scenario of a link. Clones share it.
#[derive(Clone)]
pub struct Scenarios<L: Link>(Arc<Shared<L>>);

struct Shared<L> {
    link: L,
    journal: Journal<Entry>,
    /// State of the current run, or of the last one.
    state: watch::Sender<pb::ScenarioState>,
    uploads: Uploads,
    current: Mutex<Current>,
}

struct Current {
    runs: u64,
    /// To the last run.
    commands: mpsc::Sender<Command>,
    source: Vec<u8>,
    /// Names of the other links that it changes.
    links: BTreeSet<String>,
    started: Keys<pb::ScenarioState>,
}

impl<L: Link> Scenarios<L> {
    /// No scenario has run.
    #[must_use]
    pub fn new(link: L) -> Self {
        let journal = link.history().journal().clone();
        let none = pb::ScenarioPhase::None as i32;
        let (state, _) = watch::channel(pb::ScenarioState { phase: none, ..Default::default() });
        let (commands, _) = mpsc::channel(COMMANDS);
        let (source, links, started) = (Vec::new(), BTreeSet::new(), Keys::new(KEYS));
        let current = Current { runs: 0, commands, source, links, started };
        let (current, uploads) = (Mutex::new(current), Uploads::default());
        Self(Arc::new(Shared { link, journal, state, uploads, current }))
    }

    /// Each change of [`Self::status`].
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<pb::ScenarioState> {
        self.0.state.subscribe()
    }

    /// The state of the run, and the room for uploads.
    #[must_use]
    pub fn status(&self) -> dp::ScenarioStatus {
        let state = self.0.state.borrow().clone();
        let runs = state.runs();
        let waits = state.phase() == pb::ScenarioPhase::Waiting;
        dp::ScenarioStatus {
            next_index: self.0.uploads.next_index().filter(|_| runs),
            room: if runs { self.0.uploads.room() } else { 0 },
            waiting: self.0.uploads.waiting().filter(|_| waits),
            state: Some(state),
        }
    }

    /// The status, with the source of the run and the answer to the request with `key`.
    pub async fn get(&self, key: &str) -> dp::GetScenarioResponse {
        let current = self.0.current.lock().await;
        let status = self.status();
        let runs = status.state.as_ref().is_some_and(pb::ScenarioState::runs);
        let source = if runs { current.source.clone() } else { Vec::new() };
        let (fingerprint, started) = current
            .started
            .get(key)
            .map_or_else(Default::default, |it| (it.0.fingerprint.clone(), Some(it.1.clone())));
        dp::GetScenarioResponse { status: Some(status), source, started, fingerprint }
    }

    /// Whether a scenario runs that changes another link.
    pub async fn changes_link(&self, name: &str) -> bool {
        let current = self.0.current.lock().await;
        self.0.state.borrow().runs() && current.links.contains(name)
    }

    /// Starts a scenario, which also changes other links, given by name.
    ///
    /// # Errors
    /// FAILED_PRECONDITION while another one runs, ABORTED for another generation,
    /// INVALID_ARGUMENT, OUT_OF_RANGE or RESOURCE_EXHAUSTED for the steps, ALREADY_EXISTS for a key
    /// of another request.
    pub async fn run(
        &self,
        request: dp::RunScenarioRequest,
        links: BTreeMap<String, L>,
    ) -> Result<dp::RunScenarioResponse, Status> {
        let Shared { link, journal, state, uploads, .. } = &*self.0;
        let dp::RunScenarioRequest { key, fingerprint, source, .. } = request;
        let named = Request { key, fingerprint };
        let mut current = self.0.current.lock().await;
        if let Some(started) = current.started.find(&named)? {
            let state = Some(started.clone());
            return Ok(dp::RunScenarioResponse { state, repeated: true });
        }
        check_idle(&state.borrow())?;
        if source.len() > SOURCE_BYTES {
            let (given, most) = (source.len(), SOURCE_BYTES);
            return Err(Status::invalid_argument(format!(
                "source: {given} bytes are more than {most}: shorten the scenario, or name smaller \
                 profiles"
            )));
        }
        let others = link.history().other_changes();
        let before = link.current().await;
        let generation = before.applied.generation;
        if let Some(expected) = request.expected_generation.filter(|it| *it != generation) {
            return Err(Status::aborted(stale_message(expected, generation)));
        }
        let names: BTreeSet<_> = links.keys().cloned().collect();
        check_links(&request.first, &names)?;
        let mut other_links = BTreeMap::new();
        for (name, link) in links {
            other_links.insert(name, Named::new(link).await);
        }
        uploads.begin(request.first, request.complete)?;
        let (commands, obeyed) = mpsc::channel(COMMANDS);
        current.runs += 1;
        current.commands = commands;
        current.source = source;
        current.links = names;
        let start_ns = link.now_ns() + run::START_NS;
        let first = pb::ScenarioState {
            phase: pb::ScenarioPhase::Running as i32,
            run: current.runs,
            name: request.name,
            who: request.who,
            started_utc: Some(link.utc(start_ns).into()),
            started_ns: start_ns,
            steps: request.steps,
            length_ns: request.length_ns,
            generation,
            ..Default::default()
        };
        state.send_replace(first.clone());
        current.started.keep(named, first.clone());
        let run = Run {
            link: link.clone(),
            journal: journal.clone(),
            options: Options {
                seed: request.seed,
                lossy: request.lossy,
                tolerate_changes: request.tolerate_changes,
            },
            uploads: uploads.clone(),
            commands: obeyed,
            state: state.clone(),
            others,
            named: other_links,
            progress: Progress::new(start_ns, &before),
            before,
        };
        tokio::spawn(run.run());
        Ok(dp::RunScenarioResponse { state: Some(first), repeated: false })
    }

    /// Uploads further steps of a run.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if that run has ended; as [`Self::run`] for the steps.
    pub async fn extend(
        &self,
        request: dp::ExtendScenarioRequest,
    ) -> Result<dp::ExtendScenarioResponse, Status> {
        let current = self.0.current.lock().await;
        if request.run != current.runs || !self.0.state.borrow().runs() {
            return Err(none_runs());
        }
        check_links(&request.steps, &current.links)?;
        self.0.uploads.extend(request.steps, request.complete)?;
        self.0.state.send_modify(|_| {});
        Ok(dp::ExtendScenarioResponse { status: Some(self.status()) })
    }

    /// Withdraws pending steps and delays all later ones until [`Self::resume`].
    ///
    /// # Errors
    /// FAILED_PRECONDITION if no scenario runs.
    pub async fn pause(&self, who: String) -> Result<pb::ScenarioState, Status> {
        self.command(|answer| Command::Pause { who, answer }).await
    }

    /// Ends a pause.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if no scenario runs.
    pub async fn resume(&self, who: String) -> Result<pb::ScenarioState, Status> {
        self.command(|answer| Command::Resume { who, answer }).await
    }

    /// Stops the scenario; with `restore`, applies the link from before it.
    ///
    /// # Errors
    /// FAILED_PRECONDITION if no scenario runs.
    pub async fn stop(&self, reason: String, restore: bool) -> Result<pb::ScenarioState, Status> {
        self.command(|answer| Command::Stop { reason, restore, answer }).await
    }

    /// Reports the event that the step `index` of a run waits for. Has no effect if that step does
    /// not wait.
    pub async fn notify(&self, run: u64, index: u64, time_ns: Option<u64>) {
        let commands = {
            let current = self.0.current.lock().await;
            (current.runs == run).then(|| current.commands.clone())
        };
        if let Some(commands) = commands {
            // It may have ended.
            let _ = commands.send(Command::Notify { index, time_ns }).await;
        }
    }

    async fn command(
        &self,
        command: impl FnOnce(Answer) -> Command,
    ) -> Result<pb::ScenarioState, Status> {
        let (answer, answered) = oneshot::channel();
        {
            let current = self.0.current.lock().await;
            if !self.0.state.borrow().runs() {
                return Err(none_runs());
            }
            current.commands.send(command(answer)).await.map_err(|_| none_runs())?;
        }
        answered.await.map_err(|_| none_runs())
    }
}

/// Checks the links that steps name.
fn check_links(steps: &[dp::Step], links: &BTreeSet<String>) -> Result<(), Status> {
    for dp::Step { index, what, links: named, .. } in steps {
        let mut once = BTreeSet::new();
        for dp::StepLink { link, .. } in named {
            let why = match what {
                Some(dp::step::What::Wait(_)) => "is beside a wait: give it a step of its own",
                _ if !links.contains(link) => "was not named at the start",
                _ if !once.insert(link) => "is named twice: give one change of each link",
                _ => continue,
            };
            return Err(Status::invalid_argument(format!("step {index}: link `{link}` {why}")));
        }
    }
    Ok(())
}

fn none_runs() -> Status {
    Status::failed_precondition("no scenario runs: see `linkctl scenario status`")
}

fn check_idle(state: &pb::ScenarioState) -> Result<(), Status> {
    if !state.runs() {
        return Ok(());
    }
    let pb::ScenarioState { run, name, who, steps_done, .. } = state;
    Err(Status::failed_precondition(format!(
        "{who} runs {name:?} (run {run}, {steps_done} steps done), and one runs at a time: wait for \
         its end, or stop it (`linkctl scenario stop`)"
    )))
}
