// SPDX-License-Identifier: Apache-2.0
//! What must hold after a history of a group.

use std::collections::BTreeMap;

use owner::Made;
use proto::linkemu::v1 as pb;
use tonic::Status;

use super::End;
use crate::Findings;
use crate::requests::{Answer, Asked, check_keys, rates, reached, why};

pub(super) fn check(end: &End) -> Findings {
    let mut checks = Checks { end, found: Findings::default() };
    checks.boxes();
    let told = checks.events();
    checks.answers(&told);
    check_keys(&end.answers, &mut checks.found);
    checks.found
}

struct Checks<'a> {
    end: &'a End,
    found: Findings,
}

impl Checks<'_> {
    /// All boxes have the plan of the group, and no change is pending.
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
        reached(events, &mut self.found);
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
        // A plan differs from the one before it by one rate: no change is lost.
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
        self.found.reached(why(status));
        let Asked { rate, forward, .. } = asked;
        let same = self.end.answers.iter().filter(|it| it.request == answer.request);
        let has = rates(&self.end.current.plan)[usize::from(!forward)] == Some(*rate);
        self.found.fault(!has || same.count() > 1, || {
            format!("{rate} was refused ({status}) and is in force")
        });
    }

    /// What an answer says is executed.
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
}
