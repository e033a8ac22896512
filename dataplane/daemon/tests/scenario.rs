// SPDX-License-Identifier: Apache-2.0
//! Scenarios on the dataplane with a real worker, on its clock. What they do is in the tests of the fake dataplane.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::apply::{block_on, dataplane, standing_still};
use ::dataplane::dataplane::{ANSWER_WITHIN, Dataplane};
use owner::{Entry, Link, Next, Scenarios};
use proto::dataplane::v1 as pb;
use proto::dataplane::v1::step::What;
use proto::linkemu::v1 as model;

const MS: u64 = 1_000_000;

/// A step that sets the rate of both pipes, `n` + 1 Mbit/s.
pub fn rate(n: u64, at_ns: u64) -> pb::Step {
    let pipe = model::Pipe { rate_bps: Some((n + 1) * 1_000_000), ..Default::default() };
    let mask = prost_types::FieldMask { paths: vec!["rate_bps".into()] };
    let part = pb::Part { direction: 0, pipe: Some(pipe), mask: Some(mask) };
    let change = pb::Change { parts: vec![part], ..Default::default() };
    pb::Step { index: n, at_ns, what: Some(What::Change(change)), ..Default::default() }
}

pub fn request(first: Vec<pb::Step>) -> pb::RunScenarioRequest {
    pb::RunScenarioRequest {
        name: "it".into(),
        who: "ana".into(),
        first,
        complete: true,
        ..Default::default()
    }
}

/// Waits until the scenario has ended; its state.
async fn end(scenarios: &Scenarios<Dataplane>) -> model::ScenarioState {
    let mut changes = scenarios.changes();
    let ended = changes.wait_for(|state| !state.runs());
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
    ended.expect("within 60 s").unwrap().clone()
}

fn steps(dataplane: &Dataplane) -> Vec<(model::Event, model::ScenarioStep)> {
    let (mut after, mut steps) = (0, Vec::new());
    while let Next::Entry(sequence, Entry { event, .. }) = dataplane.history().journal().next(after)
    {
        after = sequence;
        steps.extend(event.scenario_step.clone().map(|step| (event, step)));
    }
    steps
}

#[test]
fn steps_are_applied_at_their_instants() {
    let (dataplane, thread) = dataplane(1 << 40);
    block_on(async {
        let scenarios = Scenarios::new(dataplane.clone());
        let first = (0..20).map(|n| rate(n, n * 10 * MS)).collect();
        let started = scenarios.run(request(first), BTreeMap::new()).await.unwrap().state.unwrap();
        let end = end(&scenarios).await;
        assert_eq!((end.phase(), end.steps_done), (model::ScenarioPhase::Finished, 20), "{end:?}");
        for (n, (event, step)) in steps(&dataplane).into_iter().enumerate() {
            let n = n as u64;
            assert_eq!((step.index, event.generation), (n, Some(n + 1)));
            assert_eq!(step.planned_ns, started.started_ns + n * 10 * MS);
            assert_eq!(event.time_ns, Some(step.planned_ns + step.late_ns));
        }
        let current = dataplane.plan().await.unwrap();
        let profile = current.plan.profile.unwrap();
        assert_eq!(profile.forward_pipe.unwrap().rate_bps, Some(20_000_000));
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

#[test]
fn step_of_a_worker_that_stands_still_is_late_and_not_lost() {
    let (dataplane, go, thread) = standing_still(1 << 40, ANSWER_WITHIN);
    block_on(async {
        let scenarios = Scenarios::new(dataplane.clone());
        // The request itself needs no worker.
        let first = vec![rate(0, 0), rate(1, MS)];
        scenarios.run(request(first), BTreeMap::new()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        go.send(()).unwrap();
        let end = end(&scenarios).await;
        assert_eq!((end.phase(), end.steps_done), (model::ScenarioPhase::Finished, 2), "{end:?}");
        assert!(end.late_max_ns > 0 || end.late_steps == 0, "{end:?}");
        assert_eq!(steps(&dataplane).len(), 2);
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}
