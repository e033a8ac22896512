// SPDX-License-Identifier: Apache-2.0
//! Random histories of changes, scenarios, and controllers that restart, against a model of the
//! link's state: the real dataplane with a real worker, asked through its service.
//!
//! The model knows the generation, the plan and the keys. What a stopped scenario has applied it
//! learns from the number of steps that the dataplane reports, and checks the plan by it.

use crate::apply::{block_on, change, dataplane};
use crate::scenario::{rate, request};
use ::dataplane::dataplane::Dataplane;
use ::dataplane::links::Links;
use ::dataplane::service::Service;
use proptest::prelude::*;
use proptest::test_runner::Config;
use proto::TOKEN_METADATA;
use proto::dataplane::v1 as pb;
use proto::dataplane::v1::dataplane_server::Dataplane as _;
use proto::dataplane::v1::watch_response::What as Told;
use proto::linkemu::v1::{self as model, ScenarioAction as Action};
use std::collections::HashMap;
use std::time::Duration;
use tokio_stream::StreamExt;
use tonic::{Code, Request, Status};

#[derive(Clone, Debug)]
enum Op {
    /// A change of the rate or of the profile. With a key, the same key again is the same change.
    Change { profile: bool, value: u64, key: Option<u8>, stale: bool },
    /// Its value is out of range.
    Invalid,
    /// A scenario of so many steps, ended as described.
    Scenario { steps: u64, end: End },
    /// The controller disappears and another one takes over.
    Handover,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Finish,
    Stop,
    StopAndRestore,
    /// A change by the controller, which is not tolerated.
    Change,
    Pause,
    /// The controller is replaced while the scenario runs.
    Handover,
}

fn op() -> impl Strategy<Value = Op> {
    let end = prop_oneof![
        Just(End::Finish),
        Just(End::Stop),
        Just(End::StopAndRestore),
        Just(End::Change),
        Just(End::Pause),
        Just(End::Handover),
    ];
    prop_oneof![
        4 => (any::<bool>(), 0..50_u64, prop::option::of(0..3_u8), prop::bool::weighted(0.2))
            .prop_map(|(profile, value, key, stale)| Op::Change { profile, value, key, stale }),
        1 => Just(Op::Invalid),
        2 => (1..8_u64, end).prop_map(|(steps, end)| Op::Scenario { steps, end }),
        1 => Just(Op::Handover),
    ]
}

/// The state of the link as it must be.
struct Model {
    plan: pb::Plan,
    generation: u64,
    /// Change and answer by key.
    made: HashMap<u8, (pb::Change, pb::LinkChanged)>,
    /// Generations that events reported, in their order.
    reported: Vec<u64>,
}

impl Model {
    fn apply(&mut self, change: &pb::Change) {
        self.plan = owner::merge(change, self.plan.clone()).unwrap().plan;
        self.generation += 1;
        self.reported.push(self.generation);
    }
}

/// A controller: it lasts as long as its stream.
struct Controller {
    token: u64,
    _stream: <Service as pb::dataplane_server::Dataplane>::ControlStream,
}

impl Controller {
    async fn take(service: &Service) -> Self {
        let request = Request::new(pb::ControlRequest { name: "model".into() });
        let mut stream = service.control(request).await.unwrap().into_inner();
        let token = stream.next().await.unwrap().unwrap().token;
        Self { token, _stream: stream }
    }
}

fn tokened<T>(message: T, token: u64) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(TOKEN_METADATA, token.to_string().parse().unwrap());
    request
}

struct Bed {
    dataplane: Dataplane,
    service: Service,
    controller: Option<Controller>,
    model: Model,
    /// Events that a watcher got that connected again and again.
    seen: Vec<pb::WatchResponse>,
}

impl Bed {
    fn token(&self) -> u64 {
        self.controller.as_ref().unwrap().token
    }

    async fn apply(
        &self,
        change: pb::Change,
        key: Option<u8>,
        expected_generation: Option<u64>,
    ) -> Result<pb::LinkChanged, Status> {
        let key = key.map_or_else(String::new, |key| format!("k{key}"));
        let change =
            pb::LinkChange { change: Some(change), expected_generation, key, ..Default::default() };
        let answer = self.service.apply(tokened(change.into(), self.token())).await;
        answer.map(|answer| answer.into_inner().into_one())
    }

    async fn make(&mut self, op: Op) {
        match op {
            Op::Change { profile, value, key, stale } => {
                let change = match profile {
                    true => change(["geo-600", "viasat2"][value as usize % 2]),
                    false => rated(value),
                };
                self.change(change, key, stale).await;
            }
            Op::Invalid => {
                let mut change = rated(0);
                change.parts[0].pipe.as_mut().unwrap().rate_bps = Some(1);
                let refused = self.apply(change, Some(9), None).await.unwrap_err();
                assert_eq!(refused.code(), Code::InvalidArgument);
            }
            Op::Handover => self.handover().await,
            Op::Scenario { steps, end } => self.scenario(steps, end).await,
        }
    }

    async fn change(&mut self, change: pb::Change, key: Option<u8>, stale: bool) {
        let known = key.and_then(|key| self.model.made.get(&key)).cloned();
        let expected = self.model.generation + u64::from(stale);
        let answer = self.apply(change.clone(), key, Some(expected)).await;
        match (known, stale) {
            // The fingerprints are equal here: a key is its request.
            (Some((_, made)), _) => {
                let answer = answer.unwrap();
                assert_eq!(answer, pb::LinkChanged { repeated: true, ..made });
            }
            (None, true) => assert_eq!(answer.unwrap_err().code(), Code::Aborted),
            (None, false) => {
                self.model.apply(&change);
                let answer = answer.unwrap();
                assert_eq!(answer.plan.as_ref(), Some(&self.model.plan));
                assert_eq!(answer.applied.unwrap().generation, self.model.generation);
                if let Some(key) = key {
                    self.model.made.insert(key, (change, answer));
                }
            }
        }
    }

    /// The controller's connection breaks, and another one controls the dataplane.
    async fn handover(&mut self) {
        let second = self.service.control(Request::new(pb::ControlRequest::default())).await;
        assert!(second.is_err(), "two controllers at once");
        let old = self.controller.take().unwrap().token;
        let stale = || {
            let change = pb::LinkChange { change: Some(rated(1)), ..Default::default() };
            pb::ApplyRequest::from(change)
        };
        assert!(self.service.apply(tokened(stale(), old)).await.is_err());
        self.controller = Some(Controller::take(&self.service).await);
        let refused = self.service.apply(tokened(stale(), old)).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        self.watch().await;
    }

    async fn control(&self, action: Action, restore: bool) -> Result<(), Status> {
        let (action, who, reason) = (action.into(), String::new(), "model".into());
        let request = pb::ControlScenarioRequest { action, who, reason, restore };
        self.service.control_scenario(tokened(request, self.token())).await.map(drop)
    }

    async fn scenario(&mut self, count: u64, end: End) {
        let steps: Vec<_> = (0..count).map(|n| rate(n, n * 30_000_000)).collect();
        let before = (self.model.plan.clone(), self.model.generation);
        let request = tokened(request(steps.clone()), self.token());
        self.service.run_scenario(request).await.unwrap();
        let again = tokened(crate::scenario::request(steps.clone()), self.token());
        assert!(self.service.run_scenario(again).await.is_err(), "two scenarios at once");
        if !matches!(end, End::Finish | End::Handover) {
            self.until(|state| state.steps_done > 0).await;
        }
        match end {
            End::Finish => {}
            End::Handover => self.handover().await,
            End::Stop | End::StopAndRestore => {
                let restore = matches!(end, End::StopAndRestore);
                // It may have finished.
                let _ = self.control(Action::Stop, restore).await;
            }
            End::Pause => {
                if self.control(Action::Pause, false).await.is_ok() {
                    let paused = self.dataplane.plan().await.unwrap().applied.generation;
                    tokio::time::sleep(Duration::from_millis(60)).await;
                    let now = self.dataplane.plan().await.unwrap().applied.generation;
                    assert_eq!(now, paused, "a step during a pause");
                    self.control(Action::Resume, false).await.unwrap();
                }
            }
            End::Change => {}
        }
        let by_other = match end {
            End::Change => Some(self.apply(rated(77), None, None).await.unwrap()),
            _ => None,
        };
        let state = self.until(|_| false).await;
        for step in steps.into_iter().take(state.steps_done as usize) {
            let Some(pb::step::What::Change(change)) = step.what else { unreachable!() };
            self.model.apply(&change);
        }
        if by_other.is_some() {
            // It withdrew all pending steps, and the scenario stopped.
            self.model.apply(&rated(77));
        }
        if state.message.contains("is back") {
            let (plan, _) = before;
            self.model.plan = plan;
            // The return is no step, and is reported by the end of the scenario.
            self.model.generation += 1;
        }
        if matches!(end, End::Finish | End::Pause | End::Handover) {
            assert_eq!((state.phase(), state.steps_done), (model::ScenarioPhase::Finished, count));
        }
    }

    async fn until(&self, done: impl Fn(&model::ScenarioState) -> bool) -> model::ScenarioState {
        for _ in 0..6_000 {
            let request = Request::new(pb::GetScenarioRequest::default());
            let answer = self.service.get_scenario(request).await.unwrap().into_inner();
            let state = answer.status.unwrap().state.unwrap();
            if !state.runs() || done(&state) {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the scenario stands still for 30 s");
    }

    /// Gets the events since the last time, as a linkd that connects again does.
    async fn watch(&mut self) {
        let after = self.seen.last().map_or(0, |last| last.sequence);
        let request = Request::new(pb::WatchRequest { after: Some(after) });
        let mut stream = self.service.watch(request).await.unwrap().into_inner();
        while let Some(message) = stream.next().await {
            let message = message.unwrap();
            match message.what {
                Some(Told::Event(_)) => self.seen.push(message),
                // It follows all events that happened before.
                _ => return,
            }
        }
    }

    async fn check(&self) {
        let current = self.dataplane.plan().await.unwrap();
        assert_eq!(current.plan, self.model.plan);
        assert_eq!(current.applied.generation, self.model.generation);
        let stats = self.dataplane.stats(false).await.unwrap();
        assert_eq!(stats.generation, self.model.generation, "the worker has another generation");
    }
}

fn rated(value: u64) -> pb::Change {
    let Some(pb::step::What::Change(change)) = rate(value, 0).what else { unreachable!() };
    change
}

async fn history(ops: Vec<Op>, dataplane: Dataplane) {
    let service = Service::new(Links::new(dataplane.clone()));
    let controller = Some(Controller::take(&service).await);
    let plan = dataplane.plan().await.unwrap().plan;
    let (made, reported) = (HashMap::new(), Vec::new());
    let model = Model { plan, generation: 0, made, reported };
    let mut bed = Bed { dataplane, service, controller, model, seen: Vec::new() };
    for op in ops {
        bed.make(op).await;
        bed.check().await;
    }
    bed.watch().await;
    let sequences: Vec<_> = bed.seen.iter().map(|it| it.sequence).collect();
    let expected: Vec<_> = (1..=sequences.len() as u64).collect();
    assert_eq!(sequences, expected, "each event once, in its order");
    let generations = bed.seen.iter().filter_map(|it| match &it.what {
        Some(Told::Event(event)) => event.generation,
        _ => None,
    });
    assert_eq!(generations.collect::<Vec<_>>(), bed.model.reported);
    bed.dataplane.stop().await.unwrap();
}

proptest! {
    // PROPTEST_CASES / 256 histories times 24; each takes a second.
    #![proptest_config(Config {
        cases: Config::default().cases.saturating_mul(24).div_ceil(256),
        max_shrink_iters: 64,
        ..Config::default()
    })]

    #[test]
    fn link_state_follows_the_model(ops in prop::collection::vec(op(), 1..10)) {
        let (dataplane, thread) = dataplane(1 << 40);
        block_on(history(ops, dataplane));
        thread.join().unwrap();
    }
}
