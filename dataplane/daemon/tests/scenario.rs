// SPDX-License-Identifier: Apache-2.0
//! Scenarios on the dataplane with a real worker, on its clock.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::apply::{block_on, change, dataplane, plan, standing_still};
use ::dataplane::dataplane::{ANSWER_WITHIN, Dataplane};
use owner::{Changes, Entry, Link, Next, Scenarios, Terms};
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

pub fn scenarios(dataplane: &Dataplane) -> Scenarios<Dataplane> {
    Scenarios::new(dataplane.clone())
}

/// Waits until the scenario has ended or `done`; its state.
pub async fn until(
    scenarios: &Scenarios<Dataplane>,
    done: impl Fn(&model::ScenarioState) -> bool,
) -> model::ScenarioState {
    let mut changes = scenarios.changes();
    let reached = changes.wait_for(|state| !state.runs() || done(state));
    let reached = tokio::time::timeout(Duration::from_secs(60), reached).await;
    reached.expect("within 60 s").unwrap().clone()
}

pub fn events(dataplane: &Dataplane) -> Vec<model::Event> {
    let (mut after, mut events) = (0, Vec::new());
    while let Next::Entry(sequence, Entry { event, .. }) = dataplane.history().journal().next(after)
    {
        after = sequence;
        events.push(event);
    }
    events
}

fn steps(dataplane: &Dataplane) -> Vec<(model::Event, model::ScenarioStep)> {
    let step = |event: model::Event| event.scenario_step.clone().map(|step| (event, step));
    events(dataplane).into_iter().filter_map(step).collect()
}

#[test]
fn steps_are_applied_at_their_instants() {
    let (dataplane, thread) = dataplane(1 << 40);
    block_on(async {
        let scenarios = scenarios(&dataplane);
        let first = (0..20).map(|n| rate(n, n * 10 * MS)).collect();
        let started = scenarios.run(request(first), BTreeMap::new()).await.unwrap().state.unwrap();
        let end = until(&scenarios, |_| false).await;
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
        let scenarios = scenarios(&dataplane);
        // The request itself needs no worker.
        let first = vec![rate(0, 0), rate(1, MS)];
        scenarios.run(request(first), BTreeMap::new()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        go.send(()).unwrap();
        let end = until(&scenarios, |_| false).await;
        assert_eq!((end.phase(), end.steps_done), (model::ScenarioPhase::Finished, 2), "{end:?}");
        assert!(end.late_max_ns > 0 || end.late_steps == 0, "{end:?}");
        assert_eq!(steps(&dataplane).len(), 2);
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

#[test]
fn pause_withdraws_pending_steps_and_delays_them() {
    let (dataplane, thread) = dataplane(1 << 40);
    block_on(async {
        let scenarios = scenarios(&dataplane);
        // The second one is handed over with the first one.
        let first = vec![rate(0, 0), rate(1, 240 * MS)];
        let started = scenarios.run(request(first), BTreeMap::new()).await.unwrap().state.unwrap();
        until(&scenarios, |state| state.steps_done > 0).await;
        let paused = scenarios.pause("ben".into()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
        let generation = dataplane.plan().await.unwrap().applied.generation;
        assert_eq!((generation, paused.generation), (paused.steps_done, paused.steps_done));
        scenarios.resume("ben".into()).await.unwrap();
        let end = until(&scenarios, |_| false).await;
        assert_eq!(end.phase(), model::ScenarioPhase::Finished, "{end:?}");
        // On a machine that held this thread up, both steps were made before the pause.
        if paused.steps_done == 1 {
            let (_, step) = steps(&dataplane).remove(1);
            assert!(step.planned_ns >= started.started_ns + 640 * MS, "{step:?}");
        }
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

#[test]
fn change_by_somebody_else_stops_the_scenario_unless_tolerated() {
    let (dataplane, thread) = dataplane(1 << 40);
    block_on(async {
        let scenarios = scenarios(&dataplane);
        let first = || vec![rate(0, 0), rate(1, 500 * MS)];
        scenarios.run(request(first()), BTreeMap::new()).await.unwrap();
        until(&scenarios, |state| state.steps_done > 0).await;
        dataplane.apply(change("geo-600"), Terms::default()).await.unwrap();
        let end = until(&scenarios, |_| false).await;
        assert!(end.message.contains("somebody else changed the link"), "{end:?}");
        assert_eq!(dataplane.plan().await.unwrap().plan, plan("geo-600"));
        let tolerant = pb::RunScenarioRequest { tolerate_changes: true, ..request(first()) };
        scenarios.run(tolerant, BTreeMap::new()).await.unwrap();
        until(&scenarios, |state| state.steps_done > 0).await;
        dataplane.apply(change("viasat2"), Terms::default()).await.unwrap();
        let end = until(&scenarios, |_| false).await;
        assert_eq!(end.phase(), model::ScenarioPhase::Finished, "{end:?}");
        let current = dataplane.plan().await.unwrap().plan.profile.unwrap();
        assert_eq!(current.name, "viasat2*");
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

#[test]
fn wait_ends_with_its_event_or_its_timeout() {
    let (dataplane, thread) = dataplane(1 << 40);
    let waiting = |timeout_ns, go_on| {
        let event = model::EventKind::LeaseAcquired as i32;
        let wait = pb::Wait { event, timeout_ns, go_on, ..Default::default() };
        vec![pb::Step { what: Some(What::Wait(wait)), ..Default::default() }, rate(1, 50 * MS)]
    };
    block_on(async {
        let scenarios = scenarios(&dataplane);
        let run =
            scenarios.run(request(waiting(60_000 * MS, false)), BTreeMap::new()).await.unwrap();
        until(&scenarios, |state| state.phase() == model::ScenarioPhase::Waiting).await;
        let status = scenarios.status();
        assert_eq!(status.waiting.map(|step| step.index), Some(0));
        let (run, now) = (run.state.unwrap().run, dataplane.time().0);
        // For another run or another step, it has no effect.
        scenarios.notify(run + 1, 0, None).await;
        scenarios.notify(run, 1, None).await;
        scenarios.notify(run, 0, Some(now + 100 * MS)).await;
        let end = until(&scenarios, |_| false).await;
        assert_eq!(end.phase(), model::ScenarioPhase::Finished, "{end:?}");
        let (_, step) = steps(&dataplane).remove(1);
        assert_eq!(step.planned_ns, now + 150 * MS);
        scenarios.run(request(waiting(MS, false)), BTreeMap::new()).await.unwrap();
        let end = until(&scenarios, |_| false).await;
        assert!(end.message.contains("LEASE_ACQUIRED did not come within 1 ms"), "{end:?}");
        scenarios.run(request(waiting(MS, true)), BTreeMap::new()).await.unwrap();
        let end = until(&scenarios, |_| false).await;
        assert_eq!((end.phase(), end.steps_done), (model::ScenarioPhase::Finished, 2), "{end:?}");
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}

#[test]
fn invalid_step_stops_the_scenario_and_restore_returns_to_the_link_before() {
    let (dataplane, thread) = dataplane(1 << 40);
    block_on(async {
        let scenarios = scenarios(&dataplane);
        let mut bad = rate(1, MS);
        if let Some(What::Change(change)) = &mut bad.what {
            change.parts[0].pipe.as_mut().unwrap().rate_bps = Some(1);
        }
        scenarios.run(request(vec![rate(0, 0), bad]), BTreeMap::new()).await.unwrap();
        let end = until(&scenarios, |_| false).await;
        assert!(end.message.contains("step 1 is refused: the patch is refused"), "{end:?}");
        assert_eq!(end.generation, 1);
        scenarios
            .run(request(vec![rate(0, 0), rate(1, 3_600_000 * MS)]), BTreeMap::new())
            .await
            .unwrap();
        until(&scenarios, |state| state.steps_done > 0).await;
        let before = dataplane.plan().await.unwrap();
        let stopped = scenarios.stop("stopped by ben".into(), true).await.unwrap();
        assert!(stopped.message.contains("transparent* is back, generation 3"), "{stopped:?}");
        let current = dataplane.plan().await.unwrap();
        assert_eq!((current.plan, current.applied.generation), (before.plan, 3));
        assert_eq!(events(&dataplane).last().unwrap().kind(), model::EventKind::ScenarioStopped);
        dataplane.stop().await.unwrap();
    });
    thread.join().unwrap();
}
