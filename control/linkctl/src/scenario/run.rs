// SPDX-License-Identifier: Apache-2.0
//! `linkctl scenario run` and `watch`: follow a scenario to its end.

use super::log::Log;
use super::state::{phase, step};
use super::{RunArgs, control, count, file, length, told};
use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::events;
use crate::failure::Failure;
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use profile::{counted, format_duration};
use proto::linkemu::v1::{self as pb, ScenarioAction as Action};
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::path::Path;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tonic::{Status, Streaming};

/// Events that are shown at the end.
const LAST: usize = 20;

pub async fn run(context: &Context, args: &RunArgs) -> Result<(), Failure> {
    let request = request(args, context.linkd.link_name())?;
    let connection = Connection::open(context).await?;
    // Before it starts, so that nothing of it is missed.
    let mut follower = match args.dry_run || args.detach {
        true => None,
        false => Some(Follower::new(&connection, args.log.as_deref()).await?),
    };
    let answer = connection.answer(connection.scenarios().run_scenario(request)).await?;
    let Some(state) = &answer.state else { return dry(context.output, &answer) };
    match &mut follower {
        Some(follower) => follower.follow(context, &connection, state, true).await,
        None => told(context.output, state),
    }
}

/// Follows the running scenario.
pub async fn watch(context: &Context, log: Option<&Path>) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let mut follower = Follower::new(&connection, log).await?;
    let state = connection.scenario().await?;
    if !state.runs() {
        told(context.output, &state)?;
        return completed(&state);
    }
    follower.follow(context, &connection, &state, false).await
}

/// # Errors
/// If a run has ended before its end, or there was none.
fn completed(last: &pb::ScenarioState) -> Result<(), Failure> {
    let pb::ScenarioState { name, message, .. } = last;
    match last.phase() {
        pb::ScenarioPhase::Finished => Ok(()),
        pb::ScenarioPhase::None | pb::ScenarioPhase::Unspecified => {
            Err(Failure::failed("none", "there is no run to follow"))
        }
        _ => Err(Failure::failed("stopped", format!("{name} did not come to its end: {message}"))),
    }
}

/// A scenario of linkd's, or of a file.
///
/// # Errors
/// If the file cannot be read, or is no scenario.
pub fn named(name: &str) -> Result<pb::run_scenario_request::Scenario, Failure> {
    use pb::run_scenario_request::Scenario::{Name, Toml};
    if !name.contains('/') && !name.ends_with(".toml") {
        return Ok(Name(name.to_owned()));
    }
    let invalid = |found| Failure::invalid(format!("{name} is not a valid scenario"), found);
    Ok(Toml(file(Path::new(name))?.map_err(invalid)?.text().to_owned()))
}

fn request(args: &RunArgs, link: String) -> Result<pb::RunScenarioRequest, Failure> {
    Ok(pb::RunScenarioRequest {
        scenario: Some(named(&args.scenario)?),
        expected_generation: args.expect_generation,
        seed: args.seed,
        request_id: args.request_id.clone(),
        dry_run: args.dry_run,
        tolerate_changes: args.tolerate_changes,
        lossy: args.lossy,
        link,
    })
}

fn dry(format: Output, answer: &pb::RunScenarioResponse) -> Result<(), Failure> {
    if format == Output::Json {
        return output::message(answer);
    }
    let pb::Scenario { name, steps, length_ns, .. } = answer.scenario.clone().unwrap_or_default();
    let mut lines = vec![format!("{name}: steps: {}; {}", count(steps), length(length_ns))];
    lines.extend(answer.first.iter().map(step));
    if steps.is_none_or(|steps| steps > answer.first.len() as u64) {
        lines.push("     …".to_owned());
    }
    output::text(&lines.join("\n"))
}

/// linkd's events and states of a run.
struct Follower {
    events: Streaming<pb::Event>,
    states: Streaming<pb::ScenarioState>,
    log: Option<Log>,
    /// The last events of the run, and the number of earlier ones.
    last: VecDeque<pb::Event>,
    before: u64,
    interrupt: Signal,
}

impl Follower {
    async fn new(connection: &Connection, log: Option<&Path>) -> Result<Self, Failure> {
        let log = log.map(Log::create).transpose()?;
        let request = pb::WatchEventsRequest { after: None, once: false };
        let events = connection.answer(connection.events().watch_events(request)).await?;
        let watch = pb::WatchScenarioRequest { link: connection.link() };
        let states = connection.answer(connection.scenarios().watch_scenario(watch)).await?;
        let interrupt = signal(SignalKind::interrupt()).map_err(|error| {
            Failure::failed("internal", format!("cannot wait for signals: {error}"))
        })?;
        Ok(Self { events, states, log, last: VecDeque::new(), before: 0, interrupt })
    }

    /// Follows a run to its end; with `stops`, an interrupt asks linkd to stop it.
    async fn follow(
        &mut self,
        context: &Context,
        connection: &Connection,
        started: &pb::ScenarioState,
        stops: bool,
    ) -> Result<(), Failure> {
        let bar = bar(context.output, started);
        let mut last = started.clone();
        let mut stopping = false;
        // Its last event reports that no steps remain. Its last state may never
        // be seen, if another run has begun before.
        let (mut end, mut superseded) = (None, false);
        while end.is_none() || last.runs() && !superseded {
            tokio::select! {
                event = self.events.message(), if end.is_none() => {
                    let event = whole(connection, event)?;
                    if self.event(&event, started)? {
                        end = Some(event);
                    }
                }
                state = self.states.message() => {
                    let state = whole(connection, state)?;
                    superseded = state.run > started.run;
                    if state.run == started.run {
                        show(&bar, &state);
                        last = state;
                    }
                }
                _ = self.interrupt.recv() => {
                    if !stops || stopping {
                        bar.abandon();
                        let name = &last.name;
                        let left = format!(
                            "{name} is left to linkd: see `linkctl scenario status`"
                        );
                        return Err(Failure::failed("interrupted", left));
                    }
                    stopping = true;
                    bar.println("stopping; Ctrl-C again leaves it to linkd");
                    let connection = connection.clone();
                    // Its end is seen as that of any other run.
                    tokio::spawn(async move { control(&connection, Action::Stop, false).await });
                }
            }
        }
        bar.finish_and_clear();
        if let Some(end) = end.filter(|_| last.runs()) {
            let finished = end.kind() == pb::EventKind::ScenarioFinished;
            last.set_phase(match finished {
                true => pb::ScenarioPhase::Finished,
                false => pb::ScenarioPhase::Stopped,
            });
            last.message = end.message;
        }
        if context.output == Output::Text {
            self.recount()?;
        }
        told(context.output, &last)?;
        completed(&last)
    }

    /// Logs a step of the run; whether it was the run's last event.
    fn event(&mut self, event: &pb::Event, run: &pb::ScenarioState) -> Result<bool, Failure> {
        use pb::EventKind::{ScenarioFinished, ScenarioStopped};
        if event.scenario_step.as_ref().is_some_and(|step| step.run == run.run)
            && let Some(log) = &mut self.log
        {
            log.write(event)?;
        }
        if self.last.len() == LAST {
            self.last.pop_front();
            self.before += 1;
        }
        self.last.push_back(event.clone());
        // Events of other runs may come before this run's first one.
        Ok(event.scenario_run == run.run
            && [ScenarioFinished, ScenarioStopped].contains(&event.kind()))
    }
}

impl Follower {
    fn recount(&self) -> Result<(), Failure> {
        if self.before > 0 {
            let before = counted(self.before, "event", "events");
            output::text(&format!("… {before} before these: `linkctl events`"))?;
        }
        self.last.iter().try_for_each(|event| {
            let clock = event.time_ns.map_or_else(|| "-".to_owned(), seconds);
            output::text(&format!("{clock:>17}{}", events::line(event)))
        })
    }
}

/// The dataplane's clock.
fn seconds(ns: u64) -> String {
    format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// The item of a stream that never ends by itself.
fn whole<T>(connection: &Connection, next: Result<Option<T>, Status>) -> Result<T, Failure> {
    let next = next.map_err(|status| connection.failure(&status))?;
    next.ok_or_else(|| Failure::failed("unavailable", "linkd ended the stream"))
}

fn bar(format: Output, state: &pb::ScenarioState) -> ProgressBar {
    if format == Output::Json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, form) = match state.length_ns {
        Some(length) => {
            let form = "{prefix} [{bar:30}] {msg}";
            (ProgressBar::new(length.max(1)), form)
        }
        None => (ProgressBar::new_spinner(), "{prefix} {spinner} {msg}"),
    };
    // A form that is not understood is the usual one.
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar.set_prefix(state.name.clone());
    bar
}

fn show(bar: &ProgressBar, state: &pb::ScenarioState) {
    bar.set_position(state.elapsed_ns.min(state.length_ns.unwrap_or(u64::MAX)));
    let elapsed = format_duration(state.elapsed_ns / 100_000_000 * 100_000_000);
    let steps = state.steps.map_or(String::new(), |steps| format!("/{steps}"));
    let mut message = format!("{} {elapsed}, step {}{steps}", phase(state), state.steps_done);
    for next in state.next.iter().take(3) {
        message.push('\n');
        message.push_str(&step(next));
    }
    bar.set_message(message);
}
