// SPDX-License-Identifier: Apache-2.0
//! Requests to links, as they were asked for and answered, in all worlds where a link is asked itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use owner::{Entry, Journal, Made, Next, Request};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tonic::{Code, Status};

use crate::Findings;
use crate::script::Expects;

/// The first profile of all links.
pub static PROFILE: LazyLock<Option<pb::Profile>> =
    LazyLock::new(|| profile::Catalog::built_in().get("geo-600").map(|it| it.as_proto().clone()));

/// A change of one link as it was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    pub link: usize,
    pub forward: bool,
    /// The rate that tells it from all others.
    pub rate: u64,
    pub expected: Option<u64>,
}

/// A request, and its answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub asked: Vec<Asked>,
    pub at_ns: Option<u64>,
    pub request: Request,
    /// None: the caller has gone.
    pub made: Option<Result<Vec<Made>, Status>>,
}

/// Answers as text: equal for equal ones.
pub fn trace(answers: &[Answer]) -> String {
    let line = |Answer { made, .. }: &Answer| match made {
        None => "left\n".to_owned(),
        Some(Ok(made)) => {
            let applied = made.iter().map(|it| (it.applied.generation, it.repeated));
            format!("{:?}\n", applied.collect::<Vec<_>>())
        }
        Some(Err(status)) => format!("{}\n", status.message()),
    };
    answers.iter().map(line).collect()
}

/// Why a change was refused.
pub fn why(status: &Status) -> &'static str {
    match (status.code(), status.message()) {
        (_, it) if it.contains("was expected") => "stale",
        (_, it) if it.contains("withdrawn") => "withdrawn",
        (_, it) if it.contains("another request") => "key used again",
        (Code::OutOfRange | Code::ResourceExhausted, _) => "cannot wait",
        (_, it) if it.contains("does not fit") || it.contains("refused") => "refused",
        (Code::Unavailable, _) => "no answer",
        _ => "another refusal",
    }
}

/// Checks that a request with a key was made once.
pub fn check_keys(answers: &[Answer], found: &mut Findings) {
    let mut made: BTreeMap<(usize, &str, &str), BTreeSet<u64>> = BTreeMap::new();
    for Answer { asked, request, made: answer, .. } in answers {
        let Some(Ok(all)) = answer else { continue };
        for (asked, it) in asked.iter().zip(all) {
            let key = (asked.link, &*request.key, &*request.fingerprint);
            if !request.key.is_empty() {
                made.entry(key).or_default().insert(it.applied.generation);
            }
        }
    }
    for (key, generations) in made {
        found.fault(generations.len() == 1, || {
            format!("{key:?} was made as generations {generations:?}")
        });
    }
}

/// All events of a journal that has lost none.
pub fn events(journal: &Journal<Entry>) -> Vec<pb::Event> {
    let mut events = Vec::new();
    while let Next::Entry(_, Entry { event, .. }) = journal.next(events.len() as u64) {
        events.push(event);
    }
    events
}

/// Notes what events tell.
pub fn reached(events: &[pb::Event], found: &mut Findings) {
    if events.iter().any(|it| it.scenario_step.is_some()) {
        found.reached("steps");
    }
    for event in events {
        match event.kind() {
            pb::EventKind::ScenarioFinished => found.reached("scenario finished"),
            pb::EventKind::ScenarioStopped => found.reached("scenario stopped"),
            pb::EventKind::ScenarioPaused => found.reached("scenario paused"),
            pb::EventKind::ScenarioResumed => found.reached("scenario resumed"),
            pb::EventKind::BoxLost => found.reached("box lost"),
            pb::EventKind::BoxFound => found.reached("box found"),
            _ => {}
        }
    }
}

impl Expects {
    /// The generation that a request expects, which reads the current one if it needs it.
    pub async fn generation(self, current: impl Future<Output = owner::Current>) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::Seen => Some(current.await.applied.generation),
            Self::Another => Some(1_000),
        }
    }
}

/// The rates of a plan, forward and return.
pub fn rates(plan: &dp::Plan) -> [Option<u64>; 2] {
    let profile = plan.profile.as_ref();
    let pipes = [
        profile.and_then(|it| it.forward_pipe.as_ref()),
        profile.and_then(|it| it.return_pipe.as_ref()),
    ];
    pipes.map(|pipe| pipe.and_then(|it| it.rate_bps))
}

/// A change of a rate of one pipe.
pub fn rate(forward: bool, bps: u64) -> dp::Change {
    let direction = if forward { pb::Direction::Forward } else { pb::Direction::Return };
    let pipe = pb::Pipe { rate_bps: Some(bps), ..Default::default() };
    let mask = prost_types::FieldMask { paths: vec!["rate_bps".into()] };
    let part = dp::Part { direction: direction.into(), pipe: Some(pipe), mask: Some(mask) };
    dp::Change { parts: vec![part], ..Default::default() }
}

/// The rate of the `part`th change of a request.
pub fn told(number: u64, part: usize) -> u64 {
    1_000_000 + number * 1_000 + part as u64
}

/// The start of a scenario.
pub fn scenario(first: Vec<dp::Step>, complete: bool, tolerate: bool) -> dp::RunScenarioRequest {
    dp::RunScenarioRequest {
        name: "it".to_owned(),
        who: "ana".to_owned(),
        first,
        complete,
        tolerate_changes: tolerate,
        ..Default::default()
    }
}

pub fn key_name(key: u8) -> String {
    format!("k{key}")
}

pub fn request(number: u64, key: Option<u8>) -> Request {
    Request { key: key.map(key_name).unwrap_or_default(), fingerprint: number.to_string() }
}
