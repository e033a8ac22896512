// SPDX-License-Identifier: Apache-2.0
//! Where a scenario is, for people.

use super::{count, length};
use profile::{counted, format_duration};
use proto::linkemu::v1 as pb;

/// A step as a line.
pub fn step(step: &pb::PlannedStep) -> String {
    let pb::PlannedStep { index, after_ns, label, action } = step;
    let label = if label.is_empty() { String::new() } else { format!("{label}: ") };
    format!("{index:>6}  {:>12}  {label}{action}", format_duration(*after_ns))
}

/// A phase as text has it.
pub fn phase(state: &pb::ScenarioState) -> String {
    state.phase().as_str_name().trim_start_matches("SCENARIO_PHASE_").to_lowercase()
}

pub fn text(state: &pb::ScenarioState) -> String {
    if state.run == 0 {
        return "no scenario has run since the dataplane started".to_owned();
    }
    let why = if state.message.is_empty() { String::new() } else { format!(": {}", state.message) };
    let mut lines = vec![
        format!(
            "{} (run {}, started by {}): {}{why}",
            state.name,
            state.run,
            state.who,
            phase(state)
        ),
        format!(
            "  {} of {} steps, {} of {}; generation {}",
            state.steps_done,
            count(state.steps),
            format_duration(state.elapsed_ns / 1_000_000 * 1_000_000),
            length(state.length_ns),
            state.generation
        ),
    ];
    if state.late_steps > 0 {
        lines.push(format!(
            "  {} more than 1 ms late, {} at most",
            counted(state.late_steps, "step", "steps"),
            format_duration(state.late_max_ns / 1_000 * 1_000)
        ));
    }
    for (word, steps) in [("last", state.last.as_slice()), ("next", state.next.as_slice())] {
        lines.extend(steps.iter().map(|it| format!("  {word} {}", step(it))));
    }
    lines.join("\n")
}
