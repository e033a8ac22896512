// SPDX-License-Identifier: Apache-2.0
//! Scenarios of an owner, asked through its service, in virtual time. What holds with late workers and many
//! callers is in `tests/simulation`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::time::Duration;

use fake::FakeDataplane;
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_client::DataplaneClient;
use proto::dataplane::v1::dataplane_server::{Dataplane, DataplaneServer};
use proto::dataplane::v1::step::What;
use proto::dataplane::v1::watch_response::What as Told;
use proto::linkemu::v1::ScenarioPhase::{Finished, Paused, Stopped, Waiting};
use proto::linkemu::v1::{self as pb, ScenarioAction as Action};
use tonic::{Code, Status};

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

struct Bed<S: Dataplane> {
    fake: FakeDataplane,
    /// Without a connection.
    owner: DataplaneClient<DataplaneServer<S>>,
}

/// A dataplane with the links `main`, `a` and `b`.
async fn bed() -> Bed<impl Dataplane> {
    let fake = FakeDataplane::default();
    fake.state().instance = 1;
    let mut bed = Bed { owner: DataplaneClient::new(fake.service()), fake };
    for name in ["a", "b"] {
        let link = Some(pb::NamedLink { name: proto::link_name(name), ..Default::default() });
        bed.owner.add_link(dp::AddLinkRequest { link, ..Default::default() }).await.unwrap();
    }
    for link in ["main", "a", "b"] {
        bed.set(link, "geo-600").await;
    }
    bed
}

fn control(action: Action) -> dp::ControlScenarioRequest {
    dp::ControlScenarioRequest { action: action.into(), ..Default::default() }
}

fn to(name: &str) -> dp::Change {
    let profile = profile::Catalog::built_in().get(name).map(|it| it.as_proto().clone());
    dp::Change { profile, restart: true, ..Default::default() }
}

fn about<T>(link: &str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert(proto::LINK_METADATA, link.parse().unwrap());
    request
}

/// A step that sets the rate of both pipes, `n` + 1 Mbit/s.
fn rate(n: u64, at_ns: u64) -> dp::Step {
    let pipe = Some(pb::Pipe { rate_bps: Some((n + 1) * 1_000_000), ..Default::default() });
    let mask = Some(prost_types::FieldMask { paths: vec!["rate_bps".into()] });
    let parts = vec![dp::Part { direction: 0, pipe, mask }];
    let change = dp::Change { parts, ..Default::default() };
    dp::Step { index: n, at_ns, what: Some(What::Change(change)), ..Default::default() }
}

/// The same with changes of the other links.
fn with(step: dp::Step, others: [(&str, dp::Change); 2]) -> dp::Step {
    let link =
        |(link, change): (&str, _)| dp::StepLink { link: link.to_owned(), change: Some(change) };
    dp::Step { links: others.map(link).to_vec(), ..step }
}

fn scenario(first: Vec<dp::Step>) -> dp::RunScenarioRequest {
    dp::RunScenarioRequest {
        name: "it".into(),
        who: "ana".into(),
        first,
        complete: true,
        links: vec!["a".into(), "b".into()],
        ..Default::default()
    }
}

impl<S: Dataplane> Bed<S> {
    async fn set(&mut self, link: &str, profile: &str) -> pb::Applied {
        let change = dp::LinkChange { change: Some(to(profile)), ..Default::default() };
        let made = self.owner.apply(about(link, change.into())).await.unwrap().into_inner();
        made.into_one().applied.unwrap()
    }

    async fn run(&mut self, first: Vec<dp::Step>) -> pb::ScenarioState {
        self.start(scenario(first)).await.unwrap()
    }

    async fn start(
        &mut self,
        request: dp::RunScenarioRequest,
    ) -> Result<pb::ScenarioState, Status> {
        Ok(self.owner.run_scenario(request).await?.into_inner().state.unwrap())
    }

    async fn status(&mut self) -> dp::ScenarioStatus {
        let answer = self.owner.get_scenario(dp::GetScenarioRequest::default()).await.unwrap();
        answer.into_inner().status.unwrap()
    }

    /// Waits until it has ended, or `done`.
    async fn until(&mut self, done: impl Fn(&pb::ScenarioState) -> bool) -> pb::ScenarioState {
        loop {
            let state = self.status().await.state.unwrap();
            if !state.runs() || done(&state) {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn first_step(&mut self) {
        self.until(|it| it.steps_done > 0).await;
    }

    async fn end(&mut self) -> (pb::ScenarioPhase, u64, String) {
        let state = self.until(|_| false).await;
        (state.phase(), state.steps_done, state.message)
    }

    /// All events of a link so far.
    async fn events(&mut self, link: &str) -> Vec<pb::Event> {
        let request = about(link, dp::WatchRequest { after: Some(0) });
        let mut stream = self.owner.watch(request).await.unwrap().into_inner();
        let mut events = Vec::new();
        while let Some(Told::Event(event)) = stream.message().await.unwrap().unwrap().what {
            events.push(event);
        }
        events
    }

    async fn steps(&mut self) -> Vec<(pb::Event, pb::ScenarioStep)> {
        let step = |event: pb::Event| event.scenario_step.clone().map(|step| (event, step));
        self.events("main").await.into_iter().filter_map(step).collect()
    }

    /// The profiles of `main`, `a` and `b`, and their generations.
    fn links(&self) -> [(String, u64); 3] {
        let links = self.fake.state().links.clone();
        [&self.fake, &links["a"], &links["b"]].map(|fake| {
            let state = fake.state();
            let profile = state.plan.as_ref().and_then(|it| it.profile.as_ref());
            (profile.map(|it| it.name.clone()).unwrap_or_default(), state.generation)
        })
    }
}

fn at(expected: [(&str, u64); 3]) -> [(String, u64); 3] {
    expected.map(|(name, generation)| (name.to_owned(), generation))
}

#[tokio::test(start_paused = true)]
async fn steps_are_made_at_their_instants_and_late_ones_say_so() {
    let mut bed = bed().await;
    for (late_ms, late_steps) in [(0, 0), (30, 20)] {
        bed.fake.state().late = Duration::from_millis(late_ms);
        let known = bed.steps().await.len();
        let started = bed.run((0..20).map(|n| rate(n, n * 10 * MS)).collect()).await;
        let state = bed.until(|_| false).await;
        assert_eq!((state.phase(), state.steps_done), (Finished, 20), "{state:?}");
        assert_eq!((state.late_steps, state.late_max_ns), (late_steps, late_ms * MS));
        for (n, (event, step)) in (0..).zip(bed.steps().await.into_iter().skip(known)) {
            assert_eq!((step.index, step.late_ns), (n, late_ms * MS));
            assert_eq!(step.planned_ns, started.started_ns + n * 10 * MS);
            assert_eq!(event.time_ns, Some(step.planned_ns + step.late_ns));
            assert_eq!(event.message.contains("late by"), late_ms > 0, "{}", event.message);
        }
    }
    assert_eq!(bed.links()[0], ("geo-600*".to_owned(), 41));
}

#[tokio::test(start_paused = true)]
async fn pause_withdraws_pending_steps_and_moves_the_rest() {
    let mut bed = bed().await;
    // The second one is handed over with the first one.
    let started = bed.run(vec![rate(0, 0), rate(1, 240 * MS)]).await;
    bed.first_step().await;
    let paused = bed.owner.control_scenario(control(Action::Pause)).await.unwrap();
    assert_eq!(paused.into_inner().phase(), Paused);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(bed.links()[0].1, 2);
    bed.owner.control_scenario(control(Action::Resume)).await.unwrap();
    assert_eq!(bed.end().await.0, Finished);
    let (_, step) = bed.steps().await.remove(1);
    assert_eq!(step.planned_ns, started.started_ns + 640 * MS);
}

#[tokio::test(start_paused = true)]
async fn change_by_another_caller_stops_it_unless_that_is_tolerated() {
    let mut bed = bed().await;
    let first = || vec![rate(0, 0), rate(1, 500 * MS)];
    bed.run(first()).await;
    bed.first_step().await;
    bed.set("main", "lte").await;
    let (phase, steps, message) = bed.end().await;
    assert_eq!((phase, steps), (Stopped, 1));
    assert!(message.contains("somebody else changed the link"), "{message}");
    let tolerant = dp::RunScenarioRequest { tolerate_changes: true, ..scenario(first()) };
    bed.start(tolerant).await.unwrap();
    bed.first_step().await;
    bed.set("main", "viasat2").await;
    assert_eq!(bed.end().await.0, Finished);
    assert_eq!(bed.links()[0].0, "viasat2*");
}

#[tokio::test(start_paused = true)]
async fn wait_ends_with_its_event_or_its_timeout() {
    let mut bed = bed().await;
    let waiting = |timeout_ns, go_on| {
        let event = pb::EventKind::LeaseAcquired as i32;
        let wait = dp::Wait { event, timeout_ns, go_on, ..Default::default() };
        vec![dp::Step { what: Some(What::Wait(wait)), ..Default::default() }, rate(1, 50 * MS)]
    };
    let run = bed.run(waiting(HOUR, false)).await.run;
    bed.until(|it| it.phase() == Waiting).await;
    assert_eq!(bed.status().await.waiting.map(|step| step.index), Some(0));
    let now_ns = bed.fake.now_ns();
    // For another run or another step, it has no effect.
    for (run, index, time_ns) in
        [(run + 1, 0, None), (run, 1, None), (run, 0, Some(now_ns + 100 * MS))]
    {
        let request = dp::NotifyScenarioRequest { run, index, time_ns };
        bed.owner.notify_scenario(request).await.unwrap();
    }
    assert_eq!(bed.end().await.0, Finished);
    assert_eq!(bed.steps().await.remove(1).1.planned_ns, now_ns + 150 * MS);
    // A change by another caller is not the event.
    bed.run(waiting(HOUR, false)).await;
    bed.until(|it| it.phase() == Waiting).await;
    bed.set("main", "lte").await;
    assert!(bed.end().await.2.contains("somebody else changed the link"));
    bed.run(waiting(MS, false)).await;
    let (phase, _, message) = bed.end().await;
    assert_eq!(phase, Stopped);
    assert!(message.contains("LEASE_ACQUIRED did not come within 1 ms"), "{message}");
    bed.run(waiting(MS, true)).await;
    assert_eq!(bed.end().await.0, Finished);
}

#[tokio::test(start_paused = true)]
async fn one_runs_at_a_time_from_the_expected_generation() {
    let mut bed = bed().await;
    let first = || scenario(vec![rate(0, HOUR)]);
    let stale = dp::RunScenarioRequest { expected_generation: Some(9), ..first() };
    let refused = bed.start(stale).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    let keyed = dp::RunScenarioRequest { key: "k".into(), ..first() };
    let state = bed.start(keyed.clone()).await.unwrap();
    let refused = bed.start(first()).await.unwrap_err();
    assert!(refused.message().contains("ana runs \"it\""), "{}", refused.message());
    // The same request again is the same run, also after its end.
    assert_eq!(bed.start(keyed.clone()).await.unwrap(), state);
    bed.owner.control_scenario(control(Action::Stop)).await.unwrap();
    assert_eq!(bed.start(keyed).await.unwrap(), state);
    let none = bed.owner.control_scenario(control(Action::Pause)).await.unwrap_err();
    assert_eq!(none.code(), Code::FailedPrecondition);
}

#[tokio::test(start_paused = true)]
async fn step_changes_all_its_links_at_one_instant_and_restore_returns_all() {
    let mut bed = bed().await;
    let first = with(rate(0, 0), [("a", to("lte")), ("b", to("viasat2"))]);
    // The steps behind it do not overtake it.
    bed.run(vec![first, rate(1, 10 * MS), rate(2, HOUR)]).await;
    bed.until(|it| it.steps_done == 2).await;
    assert_eq!(bed.links(), at([("geo-600*", 3), ("lte", 2), ("viasat2", 2)]));
    let mut instants = Vec::new();
    for link in ["main", "a", "b"] {
        let events = bed.events(link).await;
        let own = events.iter().find(|it| it.generation == Some(2)).unwrap();
        instants.push(own.time_ns);
    }
    assert!(instants.iter().all(|it| *it == instants[0]), "{instants:?}");
    let reason = "enough".to_owned();
    let request = dp::ControlScenarioRequest { reason, restore: true, ..control(Action::Stop) };
    let stopped = bed.owner.control_scenario(request).await.unwrap().into_inner();
    assert!(stopped.message.contains("geo-600 is back, generation 4"), "{}", stopped.message);
    assert_eq!(bed.links(), at([("geo-600", 4), ("geo-600", 3), ("geo-600", 3)]));
    let last = bed.events("main").await.pop().unwrap();
    assert_eq!(last.kind(), pb::EventKind::ScenarioStopped);
}

#[tokio::test(start_paused = true)]
async fn restore_keeps_clients_that_were_set_meanwhile() {
    let mut bed = bed().await;
    let tolerant = dp::RunScenarioRequest {
        tolerate_changes: true,
        ..scenario(vec![rate(0, 0), rate(1, HOUR)])
    };
    bed.start(tolerant).await.unwrap();
    bed.first_step().await;
    let automatic = Some(pb::Automatic { limit: Some(9), ..Default::default() });
    let clients = Some(pb::Clients { automatic, ..Default::default() });
    let change = Some(dp::Change { clients: clients.clone(), ..Default::default() });
    let change = dp::LinkChange { change, ..Default::default() };
    bed.owner.apply(dp::ApplyRequest::from(change)).await.unwrap();
    let request = dp::ControlScenarioRequest { restore: true, ..control(Action::Stop) };
    bed.owner.control_scenario(request).await.unwrap();
    assert_eq!(bed.links()[0], ("geo-600".to_owned(), 4));
    assert_eq!(bed.fake.state().plan.clone().unwrap().clients, clients);
}

#[tokio::test(start_paused = true)]
async fn change_of_a_named_link_by_another_caller_stops_it() {
    let mut bed = bed().await;
    let both = |n, at_ns| with(rate(n, at_ns), [("a", to("lte")), ("b", to("viasat2"))]);
    bed.run(vec![both(0, 0), both(1, HOUR)]).await;
    bed.first_step().await;
    bed.set("b", "lte").await;
    let (phase, _, message) = bed.end().await;
    assert_eq!(phase, Stopped);
    let why = "link `b`: generation 2 was expected and 3 is current: somebody else changed it";
    assert!(message.contains(why), "{message}");
    assert_eq!(bed.links(), at([("geo-600*", 2), ("lte", 2), ("lte", 3)]));
}

#[tokio::test(start_paused = true)]
async fn refused_step_stops_it_before_any_link_changes() {
    let mut bed = bed().await;
    let before = bed.links();
    let none = dp::Change { parts: vec![dp::Part::default()], ..Default::default() };
    let mut low = rate(0, 0);
    if let Some(What::Change(change)) = &mut low.what {
        change.parts[0].pipe.as_mut().unwrap().rate_bps = Some(1);
    }
    for (step, why) in [
        (with(rate(0, 0), [("a", to("lte")), ("b", none)]), "step 0 is refused: link `b`: "),
        (low, "step 0 is refused: the patch is refused"),
    ] {
        bed.run(vec![step, rate(1, MS)]).await;
        let (phase, steps, message) = bed.end().await;
        assert_eq!((phase, steps), (Stopped, 0));
        assert!(message.contains(why), "{message}");
        assert_eq!(bed.links(), before);
    }
    // A link that was not named at the start.
    let unnamed = with(rate(0, 0), [("a", to("lte")), ("c", to("lte"))]);
    let refused = bed.start(scenario(vec![unnamed])).await.unwrap_err();
    assert!(refused.message().contains("link `c` was not named"), "{}", refused.message());
}
