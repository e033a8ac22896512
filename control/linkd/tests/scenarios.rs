// SPDX-License-Identifier: Apache-2.0
//! Scenarios through linkd, over a dataplane without packets with a running clock.

use crate::common::Lab;
use prost::Message;
use proto::linkemu::v1::events_client::EventsClient;
use proto::linkemu::v1::run_scenario_request::Scenario;
use proto::linkemu::v1::scenarios_client::ScenariosClient;
use proto::linkemu::v1::{self as pb, ScenarioAction as Action};
use tonic::transport::Channel;
use tonic::{Code, Streaming};

type Client = ScenariosClient<Channel>;

async fn client(lab: &mut Lab) -> Client {
    lab.set("viasat2").await.unwrap();
    ScenariosClient::new(lab.linkd())
}

async fn events(lab: &Lab) -> Streaming<pb::Event> {
    let request = pb::WatchEventsRequest { after: Some(0), once: false };
    EventsClient::new(lab.linkd()).watch_events(request).await.unwrap().into_inner()
}

/// The next event that is one of a scenario.
async fn next(events: &mut Streaming<pb::Event>) -> pb::Event {
    loop {
        let event = events.message().await.unwrap().unwrap();
        if event.kind().as_str_name().starts_with("EVENT_KIND_SCENARIO") {
            return event;
        }
    }
}

fn toml(steps: &str) -> pb::RunScenarioRequest {
    let scenario = Some(Scenario::Toml(format!("name = \"it\"\n{steps}")));
    pb::RunScenarioRequest { scenario, ..Default::default() }
}

/// Continues until it is stopped.
const ENDLESS: &str = "[[step]]\nrepeat = \"forever\"\n[[step.step]]\nboth.rate = \"1 Mbit/s\"\n\
                       [[step.step]]\nafter = \"200 ms\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn steps_take_effect_at_their_instants_and_say_so() {
    let mut lab = Lab::new();
    let mut client = client(&mut lab).await;
    let mut events = events(&lab).await;
    let request = toml(
        "[[step]]\nlabel = \"begin\"\nramp = { value = \"rate\", direction = \"forward\", to = \"44 Mbit/s\", \
         over = \"500 ms\", steps = 5 }\n[[step]]\nafter = \"100 ms\"\nprofile = \"geo-600\"\n\
         [[step]]\nlabel = \"end\"\n",
    );
    let answer = client.run_scenario(request).await.unwrap().into_inner();
    let state = answer.state.unwrap();
    assert_eq!((state.run, state.steps, state.length_ns), (1, Some(7), Some(600_000_000)));
    assert_eq!(answer.first.len(), 7);
    let started = next(&mut events).await;
    assert_eq!(started.kind(), pb::EventKind::ScenarioStarted);
    for (index, ms) in [100, 200, 300, 400, 500, 600, 600].into_iter().enumerate() {
        let event = next(&mut events).await;
        assert_eq!(event.kind(), pb::EventKind::ScenarioStep, "{event:?}");
        let step = event.scenario_step.unwrap();
        assert_eq!((step.run, step.index), (1, index as u64));
        assert_eq!(step.planned_ns, state.started_ns + ms * 1_000_000);
        assert_eq!(event.time_ns, Some(step.planned_ns + step.late_ns));
        assert_eq!(event.generation, (index < 6).then_some(index as u64 + 2));
        assert_eq!(
            step.label,
            ["begin", "", "end"][usize::from(index > 4) + usize::from(index > 5)]
        );
        assert!(!event.who.is_empty() && step.planned_utc.is_some());
    }
    assert_eq!(next(&mut events).await.kind(), pb::EventKind::ScenarioFinished);
    let state = lab.scenario().await;
    assert_eq!(state.phase(), pb::ScenarioPhase::Finished);
    assert_eq!((state.steps_done, state.generation), (7, 7));
    let applies = lab.fake.state().applies.clone();
    let rates: Vec<_> = applies[1..6]
        .iter()
        .map(|apply| {
            let profile = apply.plan.clone().profile.unwrap();
            profile.forward_pipe.unwrap().rate_bps.unwrap() / 1_000_000
        })
        .collect();
    assert_eq!(rates, [124, 104, 84, 64, 44]);
    // Only a whole profile restarts the processes.
    assert_eq!(applies.iter().filter(|apply| apply.restart).count(), 2);
    assert_eq!(lab.in_force().name, "geo-600");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_answers_the_plan_and_touches_nothing() {
    let mut lab = Lab::new();
    let mut client = client(&mut lab).await;
    let scenario = Some(Scenario::Name("rain-fade".into()));
    let request = pb::RunScenarioRequest { scenario, dry_run: true, ..Default::default() };
    let answer = client.run_scenario(request).await.unwrap().into_inner();
    assert_eq!((answer.state, answer.first.len()), (None, 20));
    assert_eq!(answer.first[0].action, "profile viasat2");
    assert_eq!(answer.scenario.unwrap().length_ns, Some(300_000_000_000));
    assert_eq!(lab.fake.state().applies.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_runs_at_a_time_and_the_refusal_names_who_runs_it() {
    let mut lab = Lab::new();
    let mut client = client(&mut lab).await;
    let request = pb::RunScenarioRequest { request_id: "ci-7".into(), ..toml(ENDLESS) };
    let first = client.run_scenario(request.clone()).await.unwrap().into_inner();
    let who = first.state.clone().unwrap().who;
    let refused = client.run_scenario(toml(ENDLESS)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains(&format!("{who} runs \"it\"")), "{}", refused.message());
    // The same request again is the same run.
    let again = client.run_scenario(request).await.unwrap().into_inner();
    assert_eq!(again, first);
    let control = |action: Action| {
        let (link, restore) = ("links/main".to_owned(), action != Action::Pause);
        pb::ControlScenarioRequest { link, action: action.into(), restore }
    };
    for wrong in [Action::Unspecified, Action::Resume] {
        let refused = client.control_scenario(control(wrong)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    let stopped = client.control_scenario(control(Action::Stop)).await.unwrap().into_inner();
    assert_eq!(stopped.phase(), pb::ScenarioPhase::Stopped);
    assert!(stopped.message.contains("viasat2 is back, generation"), "{}", stopped.message);
    assert_eq!(lab.in_force().name, "viasat2");
    let none = client.control_scenario(control(Action::Pause)).await.unwrap_err();
    assert_eq!(none.code(), Code::FailedPrecondition);
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_ends_with_the_event_that_it_names() {
    let mut lab = Lab::new();
    let mut client = client(&mut lab).await;
    let mut events = events(&lab).await;
    let request = toml(
        "[[step]]\nlabel = \"b\"\n\
         wait = { event = \"link_changed\", subject = \"geo-600\", timeout = \"1 min\" }\n\
         [[step]]\nafter = \"50 ms\"\nboth.rate = \"1 Mbit/s\"\n",
    );
    client.run_scenario(request).await.unwrap();
    while next(&mut events).await.kind() != pb::EventKind::ScenarioStep {}
    let change = lab.set("geo-600").await.unwrap().applied.unwrap();
    assert_eq!(next(&mut events).await.generation, Some(change.generation + 1));
    assert_eq!(next(&mut events).await.kind(), pb::EventKind::ScenarioFinished);
    assert_eq!(lab.in_force().name, "geo-600*");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_before_it_starts() {
    let mut lab = Lab::new();
    let mut client = client(&mut lab).await;
    let stale = pb::RunScenarioRequest { expected_generation: Some(9), ..toml(ENDLESS) };
    for (request, code, expected) in [
        (stale, Code::Aborted, "generation 9 was expected"),
        (pb::RunScenarioRequest::default(), Code::InvalidArgument, "give a name"),
        (toml("[[step]]\nprofile = \"viasat\"\n"), Code::NotFound, "viasat2"),
        (toml("[[step]]\nlable = \"x\"\n"), Code::InvalidArgument, "label"),
        (
            toml(
                "[[step]]\nlabel = \"x\"\n[[step]]\nafter = \"1 h\"\nboth.queue.limit = \"1 MB\"\n",
            ),
            Code::InvalidArgument,
            "step 1 cannot be",
        ),
        (
            toml(
                "[[step]]\nprofile = \"geo-600\"\n[[step]]\nramp = { value = \"rate\", to = \"1 Mbit/s\", over = \"1 s\", steps = 1 }\n",
            ),
            Code::InvalidArgument,
            "unlimited",
        ),
    ] {
        let refused = client.run_scenario(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{}", refused.message());
        assert!(refused.message().contains(expected), "{}", refused.message());
    }
    let named = pb::RunScenarioRequest {
        scenario: Some(Scenario::Name("rain-fad".into())),
        ..Default::default()
    };
    let refused = client.run_scenario(named).await.unwrap_err();
    assert!(refused.message().contains("rain-fade"), "{}", refused.message());
    assert_eq!(lab.fake.state().applies.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_watches_sees_it_come_and_go() {
    let mut lab = Lab::new();
    let mut client = client(&mut lab).await;
    let watch = client.watch_scenario(pb::WatchScenarioRequest::default()).await.unwrap();
    let mut watch = watch.into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!(first.phase(), pb::ScenarioPhase::None);
    client
        .run_scenario(toml("[[step]]\nlabel = \"x\"\n[[step]]\nafter = \"200 ms\"\n"))
        .await
        .unwrap();
    let mut seen = Vec::new();
    while !seen.contains(&pb::ScenarioPhase::Finished) {
        let state = watch.message().await.unwrap().unwrap();
        assert_eq!((state.run, state.name.as_str()), (1, "it"));
        seen.push(state.phase());
    }
    assert_eq!(seen[0], pb::ScenarioPhase::Running);
}

pub fn kept(lab: &Lab) -> Option<proto::linkd::v1::ScenarioRun> {
    let bytes = std::fs::read(lab.directory.path().join("state/state")).ok()?;
    proto::linkd::v1::State::decode(bytes.get(32..)?).ok()?.scenario
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_of_a_long_scenario_is_uploaded_while_it_runs() {
    let mut lab = Lab::new();
    let mut client = client(&mut lab).await;
    let mut stream = events(&lab).await;
    // More steps than the dataplane keeps, 0.1 ms apart. linkd is away for some of them.
    let steps = "[[step]]\nrepeat = 6000\n[[step.step]]\nafter = \"100 us\"\nlabel = \"x\"\n";
    client.run_scenario(toml(steps)).await.unwrap();
    while next(&mut stream).await.kind() != pb::EventKind::ScenarioStep {}
    lab.until("the run is on the disk", |lab| kept(lab).is_some()).await;
    lab.kill_linkd().await;
    lab.start_linkd();
    let mut client = ScenariosClient::new(lab.linkd());
    let mut watch =
        client.watch_scenario(pb::WatchScenarioRequest::default()).await.unwrap().into_inner();
    loop {
        let state = watch.message().await.unwrap().unwrap();
        if !state.runs() && state.run > 0 {
            assert_eq!(state.phase(), pb::ScenarioPhase::Finished, "{state:?}");
            assert_eq!(state.steps_done, 6000);
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dataplane_restart_ends_the_scenario_with_an_event() {
    let mut lab = Lab::new();
    let mut client = client(&mut lab).await;
    let mut stream = events(&lab).await;
    client.run_scenario(toml(ENDLESS)).await.unwrap();
    while next(&mut stream).await.kind() != pb::EventKind::ScenarioStep {}
    lab.start_dataplane_anew(2);
    loop {
        let event = next(&mut stream).await;
        if event.kind() == pb::EventKind::ScenarioStopped {
            assert!(event.message.contains("the dataplane was restarted"), "{event:?}");
            break;
        }
    }
    assert_eq!(lab.scenario().await.phase(), pb::ScenarioPhase::None);
}
