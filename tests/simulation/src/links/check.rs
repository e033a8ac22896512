// SPDX-License-Identifier: Apache-2.0
//! What must hold after a history.

use std::collections::{BTreeMap, BTreeSet};

use proto::linkemu::v1 as pb;

use super::link::Executed;
use super::{End, Record};
use crate::Findings;
use crate::requests::{Answer, Asked, check_keys, rates, reached, why};

/// A rate of one pipe that a plan has and the plan before it had not.
type Introduced = BTreeMap<u64, u64>;

pub(crate) fn check(record: &Record, ends: &[End]) -> Findings {
    let mut checks = Checks { record, ends, found: Findings::default() };
    let introduced: Vec<_> = (0..ends.len()).map(|link| checks.link(link)).collect();
    for answer in &record.answers {
        checks.answer(answer, &introduced);
    }
    check_keys(&record.answers, &mut checks.found);
    for (link, introduced) in introduced.iter().enumerate() {
        checks.events(link, introduced);
        checks.scenario(link, introduced);
    }
    checks.found
}

struct Checks<'a> {
    record: &'a Record,
    ends: &'a [End],
    found: Findings,
}

impl Checks<'_> {
    /// All workers execute the same plans, each change once and upon the one before it. Returns the
    /// generation that introduced each rate.
    fn link(&mut self, link: usize) -> Introduced {
        let End { executed, current, pending, .. } = &self.ends[link];
        let first = executed.first().cloned().unwrap_or_default();
        let same = |it: &Executed| (it.generation, it.plan.clone());
        let plans: Vec<_> = first.iter().map(same).collect();
        for (worker, other) in executed.iter().enumerate() {
            let others: Vec<_> = other.iter().map(same).collect();
            self.found.fault(others == plans, || {
                let generations =
                    |plans: &[(u64, _)]| plans.iter().map(|it| it.0).collect::<Vec<_>>();
                format!(
                    "link {link}: worker {worker} executed {:?}, worker 0 {:?}",
                    generations(&others),
                    generations(&plans)
                )
            });
        }
        self.found
            .fault(*pending == 0, || format!("link {link}: {pending} changes are still pending"));
        let last = first.last().map(|it| (it.generation, rates(&it.plan)));
        let shown = (current.applied.generation, rates(&current.plan));
        self.found.fault(last == Some(shown), || {
            format!("link {link}: {shown:?} is said to be current, and {last:?} is executed")
        });
        let restores = self.record.runs.iter().any(|run| {
            run.restores && (run.link == link || run.others.iter().any(|it| it.0 == link))
        });
        let mut introduced = Introduced::new();
        let mut seen: BTreeSet<[Option<u64>; 2]> = BTreeSet::new();
        for pair in first.windows(2) {
            let [before, after] = pair else { continue };
            let generation = after.generation;
            self.found.fault(generation == before.generation + 1, || {
                format!("link {link}: generation {generation} follows {}", before.generation)
            });
            let (old, new) = (rates(&before.plan), rates(&after.plan));
            seen.insert(old);
            let changed: Vec<_> = (0..2).filter(|it| old[*it] != new[*it]).collect();
            let once = |rate: u64| !introduced.contains_key(&rate);
            match (&changed[..], changed.first().and_then(|it| new[*it])) {
                ([_], Some(rate)) if once(rate) => {
                    introduced.insert(rate, generation);
                }
                _ if restores && seen.contains(&new) => self.found.reached("restored"),
                _ => self.found.fault(false, || {
                    format!("link {link}: generation {generation} leads from {old:?} to {new:?}")
                }),
            }
        }
        introduced
    }

    /// What an answer says was executed, and nothing else.
    fn answer(&mut self, answer: &Answer, introduced: &[Introduced]) {
        let Answer { asked, at_ns, made, .. } = answer;
        let generations: Vec<_> =
            asked.iter().map(|it| introduced[it.link].get(&it.rate).copied()).collect();
        let rates: Vec<_> = asked.iter().map(|it| it.rate).collect();
        match made {
            None => {
                self.found.reached("the caller has gone");
                let all = generations.iter().all(Option::is_some);
                self.found.fault(all || generations.iter().all(Option::is_none), || {
                    format!("{rates:?} were executed in part: {generations:?}")
                });
            }
            Some(Err(status)) => {
                self.found.reached(why(status));
                // A repeated request may have been made before.
                let new = self.answers_of(answer) == 1;
                self.found.fault(!new || generations.iter().all(Option::is_none), || {
                    format!(
                        "{rates:?} were refused ({}) and executed: {generations:?}",
                        status.message()
                    )
                });
            }
            Some(Ok(made)) => {
                self.found.reached(match (made.iter().any(|it| it.repeated), asked.len(), at_ns) {
                    (true, ..) => "repeated",
                    (_, 1, None) => "made at once",
                    (_, 1, Some(_)) => "made at an instant",
                    _ => "made together",
                });
                for ((asked, made), generation) in asked.iter().zip(made).zip(generations) {
                    let Asked { rate, expected, .. } = asked;
                    let said = made.applied.generation;
                    self.found.fault(generation == Some(said), || {
                        format!("{rate} is said to be generation {said} and is {generation:?}")
                    });
                    let held = expected.is_none_or(|it| made.repeated || it + 1 == said);
                    self.found.fault(held, || {
                        format!("{rate} expected {expected:?} and is generation {said}")
                    });
                    let early = at_ns.is_some_and(|at| made.applied.effective_ns < at);
                    self.found
                        .fault(!early || made.repeated, || format!("{rate} was made too early"));
                }
            }
        }
    }

    /// Requests with the same key and content, on the same links.
    fn answers_of(&self, answer: &Answer) -> usize {
        let same = |it: &&Answer| it.request == answer.request;
        self.record.answers.iter().filter(same).count()
    }

    /// Each change that no scenario of the link made is an event, in the order of generations.
    fn events(&mut self, link: usize, introduced: &Introduced) {
        let own: BTreeSet<_> = {
            let runs = self.record.runs.iter().filter(|it| it.link == link);
            runs.flat_map(|it| it.rates.iter().copied()).collect()
        };
        let changes = introduced.iter().filter(|it| !own.contains(it.0));
        let expected: BTreeSet<_> = changes.map(|it| *it.1).collect();
        let events = self.ends[link].events.iter();
        let events = events.filter(|it| it.kind() == pb::EventKind::LinkChanged);
        let told: Vec<_> = events.filter_map(|it| it.generation).collect();
        let in_order = told.is_sorted_by(|a, b| a < b);
        let told: BTreeSet<_> = told.into_iter().collect();
        let missing: Vec<_> = expected.difference(&told).collect();
        // The end of another link's scenario is one too.
        self.found.fault(missing.is_empty() && in_order, || {
            format!("link {link}: no events for generations {missing:?}; in order: {in_order}")
        });
    }

    /// Each step is made once, in order, and told.
    fn scenario(&mut self, link: usize, introduced: &Introduced) {
        let End { events, scenario, .. } = &self.ends[link];
        let mut next: BTreeMap<u64, u64> = BTreeMap::new();
        let mut told = BTreeSet::new();
        let mut run = 0;
        for event in events {
            if event.kind() == pb::EventKind::ScenarioStarted {
                run += 1;
            }
            let Some(step) = &event.scenario_step else { continue };
            let index = next.entry(run).or_default();
            self.found.fault(step.index == *index, || {
                format!("link {link}: step {} of run {run} is told, {index} comes next", step.index)
            });
            *index += 1;
            let asked = self.record.runs.iter().find(|it| (it.link, it.run) == (link, run));
            let rate = asked.and_then(|it| it.rates.get(step.index as usize));
            let made = rate.and_then(|rate| introduced.get(rate));
            told.extend(rate.copied());
            let holds = made.copied() == event.generation;
            self.found.fault(holds, || {
                format!(
                    "link {link}: step {} of run {run} is told as generation {:?} and is {made:?}",
                    step.index, event.generation
                )
            });
        }
        for run in self.record.runs.iter().filter(|it| it.link == link) {
            let untold = |rate: &&u64| introduced.contains_key(rate) && !told.contains(*rate);
            let untold: Vec<_> = run.rates.iter().filter(untold).collect();
            self.found.fault(untold.is_empty(), || {
                format!(
                    "link {link}: steps {untold:?} of run {} were executed and not told",
                    run.run
                )
            });
        }
        let done = next.get(&scenario.run).copied().unwrap_or(0);
        self.found.fault(scenario.run == 0 || scenario.steps_done == done, || {
            format!(
                "link {link}: {} steps are said to be done, {done} were told",
                scenario.steps_done
            )
        });
        self.found.fault(!scenario.runs(), || format!("link {link}: the scenario did not end"));
        reached(events, &mut self.found);
    }
}
