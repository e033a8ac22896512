// SPDX-License-Identifier: Apache-2.0
//! The reports of a run: its state, and an event for each step and each phase.

use super::{LATE_NS, NEXT, Outcome, Progress, Run};
use crate::scenario::Answer;
use crate::{Entry, Link, Made};
use profile::format_duration;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use std::time::{Duration, SystemTime};

fn planned(step: &dp::Step, shift_ns: u64) -> pb::PlannedStep {
    let dp::Step { index, at_ns, label, action, .. } = step;
    let after_ns = at_ns.saturating_add(shift_ns);
    pb::PlannedStep { index: *index, after_ns, label: label.clone(), action: action.clone() }
}

impl<L: Link> Run<L> {
    /// Reports a change that was applied.
    pub(super) fn made(&mut self, step: &dp::Step, planned_ns: u64, made: &Outcome) {
        let Outcome { own: Made { plan, applied, .. }, named } = made;
        self.made_links(named);
        self.progress.generation = applied.generation;
        if let Some(plan) = plan {
            self.progress.seed = plan.seed;
        }
        self.progress.seeded = true;
        self.progress.tries = 0;
        let utc = applied.effective_utc.and_then(|utc| utc.try_into().ok());
        let utc = utc.unwrap_or_else(|| self.link.utc(applied.effective_ns));
        self.done(step, planned_ns, applied.effective_ns, utc, Some(applied.generation));
    }

    /// Reports a step that changes nothing. It is on time if it was known at its instant.
    pub(super) fn passed(&mut self, step: &dp::Step, planned_ns: u64, sent_ns: u64) {
        let actual = planned_ns.max(sent_ns);
        self.done(step, planned_ns, actual, self.link.utc(actual), None);
    }

    fn done(
        &self,
        step: &dp::Step,
        planned_ns: u64,
        actual_ns: u64,
        utc: SystemTime,
        generation: Option<u64>,
    ) {
        let late_ns = actual_ns.saturating_sub(planned_ns);
        let late = match late_ns {
            ..=LATE_NS => String::new(),
            ns => format!(", late by {}", format_duration(ns / 1_000 * 1_000)),
        };
        if late_ns > LATE_NS {
            tracing::warn!(step = step.index, late_ns, "a scenario's step was late");
        }
        let dp::Step { index, label, action, .. } = step;
        let named = if label.is_empty() { String::new() } else { format!("{label}: ") };
        let event = pb::Event {
            utc: Some(utc.into()),
            generation,
            scenario_step: Some(pb::ScenarioStep {
                run: self.state.borrow().run,
                index: *index,
                label: label.clone(),
                planned_ns,
                planned_utc: Some((utc - Duration::from_nanos(late_ns)).into()),
                late_ns,
            }),
            ..self.event(
                pb::EventKind::ScenarioStep,
                actual_ns,
                format!("step {index}, {named}{action}{late}"),
            )
        };
        self.journal.push(|_| Entry { event, id: String::new() });
        self.state.send_modify(|state| {
            state.steps_done = index + 1;
            state.late_steps += u64::from(late_ns > LATE_NS);
            state.late_max_ns = state.late_max_ns.max(late_ns);
            state.last = Some(planned(step, self.progress.shift_ns));
        });
        self.show(pb::ScenarioPhase::Running, String::new());
    }

    fn event(&self, kind: pb::EventKind, time_ns: u64, message: String) -> pb::Event {
        let state = self.state.borrow();
        pb::Event {
            utc: Some(self.link.utc(time_ns).into()),
            time_ns: Some(time_ns),
            kind: kind as i32,
            who: state.who.clone(),
            subject: state.name.clone(),
            message,
            scenario_run: state.run,
            ..Default::default()
        }
    }

    pub(super) fn tell(&self, kind: pb::EventKind, time_ns: u64, message: String) {
        let event = self.event(kind, time_ns, message);
        self.journal.push(|_| Entry { event, id: String::new() });
    }

    /// Publishes the state. The events that it follows from are published before.
    pub(super) fn show(&self, phase: pb::ScenarioPhase, message: String) {
        let Progress { start_ns, shift_ns, sent, .. } = &self.progress;
        let sent = sent.iter().map(|sent| sent.step.clone());
        let coming = sent.chain(self.uploads.ahead(NEXT)).take(NEXT);
        let next: Vec<_> = coming.map(|step| planned(&step, *shift_ns)).collect();
        let start_ns = start_ns.saturating_add(*shift_ns);
        let elapsed_ns = self.link.now_ns().saturating_sub(start_ns);
        self.state.send_modify(|state| {
            state.phase = phase as i32;
            state.next = next;
            state.elapsed_ns = elapsed_ns;
            state.generation = self.progress.generation;
            state.message = message;
        });
    }

    pub(super) fn reply(&self, answer: Option<Answer>) {
        if let Some(answer) = answer {
            // The caller may be gone.
            let _ = answer.send(self.state.borrow().clone());
        }
    }
}
