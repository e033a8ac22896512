// SPDX-License-Identifier: Apache-2.0
//! A dataplane: links with simulated workers, and their scenarios.

mod check;
mod link;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use owner::{Changes, Link, LinkChange, Request, Scenarios, Terms};
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::step::What;
use proto::linkemu::v1 as pb;
use tokio::time::{sleep, timeout};

use crate::requests::{
    Answer, Asked, PROFILE, events, key_name, rate, request, scenario, told, trace,
};
use crate::script::{Change, LINKS, Op, Script, Timed};
use crate::{Report, in_virtual_time};
use check::check;
use link::{Clock, Executed, REFUSED_BPS, SimLink};

/// Steps, stalls and waits for uploads are over then.
const QUIET: Duration = Duration::from_secs(120);

/// A run of a scenario as it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub link: usize,
    pub run: u64,
    /// The rate of each step, by its index.
    pub rates: Vec<u64>,
    /// The other links that each step changes, with their rates.
    pub others: Vec<(usize, u64)>,
    pub restores: bool,
}

/// All that a history left behind.
#[derive(Default)]
pub(crate) struct Record {
    pub answers: Vec<Answer>,
    pub runs: Vec<Asking>,
}

/// What a history ended with, for one link.
pub(crate) struct End {
    pub executed: Vec<Vec<Executed>>,
    pub current: owner::Current,
    pub pending: usize,
    pub events: Vec<pb::Event>,
    pub scenario: pb::ScenarioState,
}

#[derive(Clone)]
struct Bed {
    clock: Clock,
    links: Vec<SimLink>,
    scenarios: Vec<Scenarios<SimLink>>,
    record: Arc<Mutex<Record>>,
}

/// Runs a script, and checks what must hold.
pub(crate) fn run(script: &Script) -> Report {
    let (record, ends) = in_virtual_time(history(script));
    let mut trace = trace(&record.answers);
    for end in &ends {
        let all = end.executed.iter().flatten().map(|it| (it.generation, it.at_ns));
        trace += &format!("{:?}\n", all.collect::<Vec<_>>());
    }
    check(&record, &ends).report(trace)
}

async fn history(script: &Script) -> (Record, Vec<End>) {
    let plan = dp::Plan { profile: PROFILE.clone(), seed: 1, ..dp::Plan::default() };
    let clock = Clock::start();
    let links: Vec<_> = (0..LINKS)
        .map(|number| {
            let name = char::from(b'a' + u8::try_from(number).unwrap_or(0)).to_string();
            let seed = script.seed.wrapping_mul(LINKS as u64 + 1) + number as u64;
            SimLink::new(&name, clock, script.workers, plan.clone(), seed)
        })
        .collect();
    let scenarios = links.iter().map(|link| Scenarios::new(link.clone())).collect();
    let bed = Bed { clock, links, scenarios, record: Arc::default() };
    let player = bed.clone();
    let make = move |op| {
        let bed = player.clone();
        async move { bed.make(op).await }
    };
    script.play(QUIET, make).await;
    sleep(QUIET).await;
    for scenario in &bed.scenarios {
        // One that was paused.
        let _ = scenario.stop("the end".to_owned(), false).await;
    }
    sleep(QUIET).await;
    let mut ends = Vec::with_capacity(LINKS);
    for (link, scenario) in bed.links.iter().zip(&bed.scenarios) {
        let plans = link.history().plans_now();
        ends.push(End {
            executed: link.executed(),
            pending: plans.as_ref().map_or(usize::MAX, |it| it.schedule.len()),
            current: plans.map(|it| it.current.clone()).unwrap_or_default(),
            events: events(link.history().journal()),
            scenario: scenario.status().state.unwrap_or_default(),
        });
    }
    let record = std::mem::take(&mut *bed.record());
    (record, ends)
}

impl Bed {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn asked(&self, number: u64, part: usize, change: Change) -> Asked {
        let Change { link, forward, refused, expects } = change;
        let expected = expects.generation(self.links[link].current()).await;
        let rate = if refused && forward { REFUSED_BPS } else { told(number, part) };
        Asked { link, forward, rate, expected }
    }

    async fn make(&self, Timed { number, op, .. }: Timed) {
        match op {
            Op::Change { change, ahead_ms, key, leaves } => {
                let asked = vec![self.asked(number, 0, change).await];
                let at_ns =
                    ahead_ms.map(|ms| self.clock.now_ns().saturating_add_signed(ms * 1_000_000));
                self.send(asked, at_ns, request(number, key), leaves).await;
            }
            Op::Together { changes, key } => {
                let mut asked = Vec::new();
                for (part, change) in changes.into_iter().enumerate() {
                    asked.push(self.asked(number, part, change).await);
                }
                self.send(asked, None, request(number, key), false).await;
            }
            Op::Again { key } => {
                let key = key_name(key);
                let before =
                    self.record().answers.iter().rfind(|it| it.request.key == key).cloned();
                if let Some(Answer { asked, at_ns, request, .. }) = before {
                    self.send(asked, at_ns, request, false).await;
                }
            }
            Op::Withdraw { link } => {
                let _ = self.links[link].withdraw().await;
            }
            Op::Stall { link, worker, ms } => {
                self.links[link].stall(worker, Duration::from_millis(ms));
            }
            Op::Run { link, steps, every_ms, others, tolerate, complete } => {
                self.run(number, link, (steps, every_ms), others, (tolerate, complete)).await;
            }
            Op::Extend { link, steps, every_ms, complete } => {
                self.extend(number, link, (steps, every_ms), complete).await;
            }
            Op::Pause { link } => {
                let _ = self.scenarios[link].pause("ana".to_owned()).await;
            }
            Op::Resume { link } => {
                let _ = self.scenarios[link].resume("ana".to_owned()).await;
            }
            Op::Stop { link, restore } => {
                // The one that runs is among them.
                let of_link = |it: &&mut Asking| it.link == link;
                self.record().runs.iter_mut().filter(of_link).for_each(|it| it.restores |= restore);
                let _ = self.scenarios[link].stop("asked".to_owned(), restore).await;
            }
            _ => {}
        }
    }

    async fn send(&self, asked: Vec<Asked>, at_ns: Option<u64>, request: Request, leaves: bool) {
        let terms = |asked: &Asked| Terms {
            at_ns,
            expected: asked.expected,
            request: request.clone(),
            ..Terms::default()
        };
        let changes = asked.iter().map(|it| LinkChange {
            link: self.links[it.link].clone(),
            change: rate(it.forward, it.rate),
            terms: terms(it),
        });
        let mut changes: Vec<_> = changes.collect();
        let place = {
            let mut record = self.record();
            let (asked, made) = (asked, None);
            record.answers.push(Answer { asked, at_ns, request, made });
            record.answers.len() - 1
        };
        let made = match (changes.len(), changes.pop()) {
            (1, Some(LinkChange { link, change, terms })) => {
                let work = link.apply(change, terms);
                let patience = if leaves { Duration::from_millis(1) } else { QUIET };
                let Ok(made) = timeout(patience, work).await else { return };
                made.map(|made| vec![made])
            }
            (_, last) => {
                changes.extend(last);
                SimLink::apply_links(changes).await
            }
        };
        self.record().answers[place].made = Some(made);
    }

    async fn run(
        &self,
        number: u64,
        link: usize,
        (steps, every_ms): (u64, u64),
        others: Vec<usize>,
        (tolerate, complete): (bool, bool),
    ) {
        let rates: Vec<_> = (0..steps as usize).map(|step| told(number, step)).collect();
        let others: Vec<_> = others.into_iter().map(|it| (it, told(number, 900 + it))).collect();
        let first = rates.iter().enumerate().map(|(index, bps)| {
            let index = index as u64;
            // The last step changes the others too.
            let links = if index + 1 == steps { &others[..] } else { &[] };
            step(index, index * every_ms * 1_000_000, *bps, &self.links, links)
        });
        let request = scenario(first.collect(), complete, tolerate);
        let named = others.iter().map(|(it, _)| {
            let link = &self.links[*it];
            (link.name().to_owned(), link.clone())
        });
        let named: BTreeMap<_, _> = named.collect();
        // Steps may be made before the answer.
        let place = {
            let mut record = self.record();
            record.runs.push(Asking { link, run: 0, rates, others, restores: false });
            record.runs.len() - 1
        };
        if let Ok(answer) = self.scenarios[link].run(request, named).await {
            self.record().runs[place].run = answer.state.unwrap_or_default().run;
        }
    }

    async fn extend(
        &self,
        number: u64,
        link: usize,
        (steps, every_ms): (u64, u64),
        complete: bool,
    ) {
        let status = self.scenarios[link].status();
        let (Some(next), Some(state)) = (status.next_index, status.state) else { return };
        let rates: Vec<_> = (0..steps as usize).map(|step| told(number, step)).collect();
        let first_ns = self.clock.now_ns().saturating_sub(state.started_ns);
        let steps = rates.iter().zip(0..).map(|(bps, n): (&u64, u64)| {
            step(next + n, first_ns + n * every_ms * 1_000_000, *bps, &self.links, &[])
        });
        let steps = steps.collect();
        let request = dp::ExtendScenarioRequest { run: state.run, steps, complete };
        if self.scenarios[link].extend(request).await.is_ok() {
            let mut record = self.record();
            let run = record.runs.iter_mut().find(|it| (it.link, it.run) == (link, state.run));
            if let Some(run) = run {
                run.rates.extend(rates);
            }
        }
    }
}

fn step(index: u64, at_ns: u64, bps: u64, links: &[SimLink], others: &[(usize, u64)]) -> dp::Step {
    let others = others.iter().map(|(link, bps)| dp::StepLink {
        link: links[*link].name().to_owned(),
        change: Some(rate(true, *bps)),
    });
    let what = Some(What::Change(rate(true, bps)));
    dp::Step { index, at_ns, what, links: others.collect(), ..Default::default() }
}
