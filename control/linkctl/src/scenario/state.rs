// SPDX-License-Identifier: Apache-2.0
//! Where a scenario is, for people and for programs.

use super::{count, length};
use profile::{counted, format_duration};
use proto::linkemu::v1 as pb;
use serde::Serialize;
use view::instant;

#[derive(Debug, Serialize)]
pub struct StepView<'a> {
    index: u64,
    after_ns: u64,
    label: &'a str,
    action: &'a str,
}

impl<'a> From<&'a pb::PlannedStep> for StepView<'a> {
    fn from(step: &'a pb::PlannedStep) -> Self {
        let pb::PlannedStep { index, after_ns, label, action } = step;
        Self { index: *index, after_ns: *after_ns, label, action }
    }
}

impl StepView<'_> {
    pub fn text(&self) -> String {
        let Self { index, after_ns, label, action } = self;
        let label = if label.is_empty() { String::new() } else { format!("{label}: ") };
        format!("{index:>6}  {:>12}  {label}{action}", format_duration(*after_ns))
    }
}

#[derive(Debug, Serialize)]
pub struct StateView<'a> {
    phase: String,
    run: u64,
    name: &'a str,
    who: &'a str,
    started_ns: u64,
    started_utc: Option<String>,
    steps_done: u64,
    steps: Option<u64>,
    elapsed_ns: u64,
    length_ns: Option<u64>,
    last: Option<StepView<'a>>,
    next: Vec<StepView<'a>>,
    late_steps: u64,
    late_max_ns: u64,
    generation: u64,
    message: &'a str,
}

/// A phase as JSON and text have it.
pub fn phase(state: &pb::ScenarioState) -> String {
    state.phase().as_str_name().trim_start_matches("SCENARIO_PHASE_").to_lowercase()
}

impl<'a> From<&'a pb::ScenarioState> for StateView<'a> {
    fn from(state: &'a pb::ScenarioState) -> Self {
        Self {
            phase: phase(state),
            run: state.run,
            name: &state.name,
            who: &state.who,
            started_ns: state.started_ns,
            started_utc: instant::utc(state.started_utc.as_ref()),
            steps_done: state.steps_done,
            steps: state.steps,
            elapsed_ns: state.elapsed_ns,
            length_ns: state.length_ns,
            last: state.last.as_ref().map(StepView::from),
            next: state.next.iter().map(StepView::from).collect(),
            late_steps: state.late_steps,
            late_max_ns: state.late_max_ns,
            generation: state.generation,
            message: &state.message,
        }
    }
}

impl StateView<'_> {
    pub fn text(&self) -> String {
        if self.run == 0 {
            return "no scenario has run since the dataplane started".to_owned();
        }
        let why =
            if self.message.is_empty() { String::new() } else { format!(": {}", self.message) };
        let mut lines = vec![
            format!(
                "{} (run {}, started by {}): {}{why}",
                self.name, self.run, self.who, self.phase
            ),
            format!(
                "  {} of {} steps, {} of {}; generation {}",
                self.steps_done,
                count(self.steps),
                format_duration(self.elapsed_ns / 1_000_000 * 1_000_000),
                length(self.length_ns),
                self.generation
            ),
        ];
        if self.late_steps > 0 {
            lines.push(format!(
                "  {} more than 1 ms late, {} at most",
                counted(self.late_steps, "step", "steps"),
                format_duration(self.late_max_ns / 1_000 * 1_000)
            ));
        }
        for (word, steps) in [("last", self.last.as_slice()), ("next", self.next.as_slice())] {
            lines.extend(steps.iter().map(|step| format!("  {word} {}", step.text())));
        }
        lines.join("\n")
    }
}
