// SPDX-License-Identifier: Apache-2.0
//! What must hold after a history of a group.

use std::collections::{BTreeMap, BTreeSet};

use owner::Made;
use proto::linkemu::v1 as pb;
use tonic::{Code, Status};

use super::End;
use crate::Findings;
use crate::links::{Answer, Asked, rates};

pub(super) fn check(end: &End) -> Findings {
    let mut checks = Checks { end, found: Findings::default() };
    checks.boxes();
    let told = checks.events();
    checks.answers(&told);
    checks.keys();
    checks.found
}

struct Checks<'a> {
    end: &'a End,
    found: Findings,
}

impl Checks<'_> {
    /// All boxes are back with the plan of the group, and nothing is unfinished.
    fn boxes(&mut self) {
        let End { current, pending, scenario, boxes, .. } = self.end;
        let now = rates(&current.plan);
        for (place, (rates, listed)) in boxes.iter().enumerate() {
            self.found.fault(listed.up && listed.current, || {
                format!("box {place} is not current: {}", listed.message)
            });
            self.found
                .fault(*rates == now, || format!("box {place} has {rates:?}, the group {now:?}"));
        }
        self.found.fault(*pending == 0, || format!("{pending} changes are still pending"));
        self.found.fault(!scenario.runs(), || "the scenario did not end".to_owned());
    }

    /// Changes are told in their order, and steps are told by their scenario in theirs. Returns the
    /// generations of changes.
    fn events(&mut self) -> Vec<u64> {
        let events = &self.end.events;
        let told = |is: fn(&pb::Event) -> bool| -> Vec<_> {
            events.iter().filter(|it| is(it)).filter_map(|it| it.generation).collect()
        };
        let changes = told(|it| it.kind() == pb::EventKind::LinkChanged);
        let of_steps = told(|it| it.scenario_step.is_some());
        for generations in [&changes, &of_steps] {
            self.found.fault(generations.is_sorted_by(|a, b| a < b), || {
                format!("generations are told as {generations:?}")
            });
        }
        let steps: Vec<_> = events.iter().filter_map(|it| it.scenario_step.as_ref()).collect();
        for pair in steps.windows(2) {
            let [before, after] = pair else { continue };
            let follows = after.index == before.index + 1 || after.index == 0;
            self.found
                .fault(follows, || format!("step {} is told after {}", after.index, before.index));
        }
        if !steps.is_empty() {
            self.found.reached("steps");
        }
        for event in events {
            match event.kind() {
                pb::EventKind::ScenarioFinished => self.found.reached("scenario finished"),
                pb::EventKind::ScenarioStopped => self.found.reached("scenario stopped"),
                pb::EventKind::BoxLost => self.found.reached("box lost"),
                pb::EventKind::BoxFound => self.found.reached("box found"),
                _ => {}
            }
        }
        changes
    }

    fn answers(&mut self, told: &[u64]) {
        let mut all: BTreeMap<u64, &Made> = BTreeMap::new();
        for answer in &self.end.answers {
            let Some(asked) = answer.asked.first() else { continue };
            match &answer.made {
                None => self.found.reached("the caller has gone"),
                Some(Err(status)) => self.refused(answer, asked, status),
                Some(Ok(made)) => {
                    let Some(made) = made.first() else { continue };
                    self.made(answer, asked, made, told);
                    let generation = made.applied.generation;
                    let twice = !made.repeated && all.insert(generation, made).is_some();
                    self.found.fault(!twice, || format!("generation {generation} was made twice"));
                }
            }
        }
        // No change is lost: a plan has what the plan before it had, but for the rate that was changed.
        let plans = all.iter().filter_map(|(n, it)| Some((*n, rates(it.plan.as_deref()?))));
        let plans: Vec<_> = plans.collect();
        for pair in plans.windows(2) {
            let [(n, old), (m, new)] = pair else { continue };
            let both = (0..2).all(|it| old[it] != new[it]);
            self.found.fault(*m != n + 1 || !both, || {
                format!("generation {m} leads from {old:?} to {new:?}")
            });
        }
    }

    fn refused(&mut self, answer: &Answer, asked: &Asked, status: &Status) {
        self.found.reached(match status.message() {
            it if it.contains("was expected") => "stale",
            it if it.contains("withdrawn") => "withdrawn",
            it if it.contains("another request") => "key used again",
            _ if status.code() == Code::OutOfRange => "cannot wait",
            it if it.contains("does not fit") || it.contains("refused") => "refused",
            _ if status.code() == Code::Unavailable => "no answer",
            _ => "another refusal",
        });
        let Asked { rate, forward, .. } = asked;
        let same = self.end.answers.iter().filter(|it| it.request == answer.request);
        let has = rates(&self.end.current.plan)[usize::from(!forward)] == Some(*rate);
        self.found.fault(!has || same.count() > 1, || {
            format!("{rate} was refused ({status}) and is in force")
        });
    }

    /// An answer says what is executed.
    fn made(&mut self, answer: &Answer, asked: &Asked, made: &Made, told: &[u64]) {
        let Asked { rate, expected, forward, .. } = asked;
        let (generation, at_ns) = (made.applied.generation, answer.at_ns);
        self.found.reached(match (made.repeated, at_ns) {
            (true, _) => "repeated",
            (_, None) => "made at once",
            (_, Some(_)) => "made at an instant",
        });
        let away = |it: &String| it.contains("follows when it can") || it.contains("is down");
        if made.remarks.iter().any(away) {
            self.found.reached("made without a box");
        }
        let held = made.repeated || expected.is_none_or(|it| it + 1 == generation);
        self.found.fault(held, || format!("{rate} expected {expected:?} and is {generation}"));
        // Clocks of boxes are known to half of a round trip.
        let early = at_ns.is_some_and(|at| made.applied.effective_ns + 1_000 < at);
        self.found.fault(!early || made.repeated, || format!("{rate} was made too early"));
        self.found.fault(told.contains(&generation), || {
            format!("{rate} is generation {generation}, which is not told")
        });
        let plan = made.plan.as_deref().map(rates).unwrap_or_default();
        self.found.fault(plan[usize::from(!forward)] == Some(*rate), || {
            format!("{rate} was made, and its plan has {plan:?}")
        });
    }

    /// A request with a key is made once.
    fn keys(&mut self) {
        let mut keyed: BTreeMap<(&str, &str), BTreeSet<u64>> = BTreeMap::new();
        for Answer { request, made, .. } in &self.end.answers {
            let Some(Ok(all)) = made else { continue };
            let key = (&*request.key, &*request.fingerprint);
            if !request.key.is_empty() {
                keyed.entry(key).or_default().extend(all.iter().map(|it| it.applied.generation));
            }
        }
        for (key, generations) in keyed {
            self.found
                .fault(generations.len() == 1, || format!("{key:?} was made as {generations:?}"));
        }
    }
}
