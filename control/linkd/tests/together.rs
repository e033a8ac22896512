// SPDX-License-Identifier: Apache-2.0
//! Changes of several links in one request.

use crate::common::{Lab, rate, to_profile, to_values};
use crate::links::{create, lease, shown, under};
use crate::scenarios::kept;
use linkd::Security;
use prost::Message;
use proto::linkemu::v1 as pb;
use proto::{LEASE_METADATA, link_name};
use serde_json::Value;
use tonic::{Code, Request, Status};

fn to(link: &str, profile: &str) -> pb::LinkUpdate {
    pb::LinkUpdate { link: link.into(), ..to_profile(profile).into() }
}

fn at_generation(link: &str, generation: u64) -> pb::LinkUpdate {
    let (link, expected_generation) = (link.to_owned(), Some(generation));
    let patch = to_values(&["rate_bps"], rate(5_000_000));
    pb::LinkUpdate { link, expected_generation, ..patch.into() }
}

async fn change(
    lab: &mut Lab,
    updates: Vec<pb::LinkUpdate>,
    tokens: &str,
) -> Result<pb::UpdateLinksResponse, Status> {
    let mut request = Request::new(pb::UpdateLinksRequest { updates, ..Default::default() });
    request.metadata_mut().insert(LEASE_METADATA, tokens.parse().unwrap());
    lab.client.update_links(request).await.map(tonic::Response::into_inner)
}

async fn all(lab: &mut Lab) -> Vec<String> {
    let mut all = Vec::new();
    for link in ["main", "lab1", "lab2"] {
        all.push(shown(lab, link).await.unwrap());
    }
    all
}

async fn with_links() -> Lab {
    let lab = Lab::new();
    create(&lab, "lab1").await.unwrap();
    create(&lab, "lab2").await.unwrap();
    lab
}

#[tokio::test]
async fn links_change_together_and_stay_so_after_restart() {
    let mut lab = with_links().await;
    let changes = vec![to("lab2", "lte"), to("links/main", "viasat2"), to("links/lab1", "geo-600")];
    let answer = change(&mut lab, changes, "").await.unwrap();
    let named: Vec<_> = answer.links.iter().map(|it| &*it.name).collect();
    assert_eq!(named, ["links/lab2", "links/main", "links/lab1"]);
    let generations: Vec<_> =
        answer.links.iter().map(|it| it.applied.unwrap().generation).collect();
    assert_eq!((generations, answer.repeated), (vec![1, 1, 1], false));
    assert_eq!(all(&mut lab).await, ["viasat2", "geo-600", "lte"]);
    // Each link has an event.
    let request = pb::WatchEventsRequest { after: Some(0), once: true };
    let mut events = pb::events_client::EventsClient::new(lab.linkd())
        .watch_events(request)
        .await
        .unwrap()
        .into_inner();
    let mut changed = Vec::new();
    while let Some(event) = events.message().await.unwrap() {
        if event.kind() == pb::EventKind::LinkChanged {
            changed.push(event.link);
        }
    }
    changed.sort();
    assert_eq!(changed, ["", "links/lab1", "links/lab2"]);
    // And a saved state.
    lab.start_dataplane_anew(2);
    lab.until("the links are back", |lab| {
        let links = lab.fake.state().links.clone();
        let back = |name| links.get(name).is_some_and(|it| it.state().generation == 1);
        back("lab1") && back("lab2") && lab.fake.state().generation == 1
    })
    .await;
    assert_eq!(all(&mut lab).await, ["viasat2", "geo-600", "lte"]);
}

#[tokio::test]
async fn refusal_of_one_link_names_it_and_leaves_all_as_they_are() {
    let mut lab = with_links().await;
    let first = vec![to("main", "viasat2"), to("lab1", "geo-600"), to("lab2", "lte")];
    change(&mut lab, first, "").await.unwrap();
    let before = all(&mut lab).await;
    let bad = pb::LinkUpdate { link: "lab2".into(), ..Default::default() };
    for (change_of, code, why) in [
        (at_generation("lab2", 7), Code::Aborted, "link `lab2`: generation 7 was expected and 1"),
        (to("lab3", "lte"), Code::NotFound, "no link `lab3`"),
        (to("links/lab1", "lte"), Code::InvalidArgument, "`lab1` is named twice"),
        (to("lab2", "none such"), Code::NotFound, "link `lab2`: no profile is named"),
        (bad, Code::InvalidArgument, "updates[1]: changes nothing"),
    ] {
        let refused = change(&mut lab, vec![to("lab1", "starlink"), change_of], "").await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), code, "{}", refused.message());
        assert!(refused.message().contains(why), "{}", refused.message());
        assert_eq!(all(&mut lab).await, before);
    }
    assert_eq!(change(&mut lab, Vec::new(), "").await.unwrap_err().code(), Code::InvalidArgument);
    for link in ["lab1", "lab2"] {
        assert_eq!(lab.fake.state().links[link].state().generation, 1);
    }
}

#[tokio::test]
async fn each_lease_is_needed_and_no_other_one() {
    let mut lab = with_links().await;
    let one = lease(&lab, "lab1", "job a").await;
    let two = lease(&lab, "lab2", "job b").await;
    let both = || vec![to("lab1", "lte"), to("lab2", "lte")];
    for tokens in ["", &one, "other"] {
        let refused = change(&mut lab, both(), tokens).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        let link = if tokens == one { "link `lab2`: " } else { "link `lab1`: " };
        assert!(refused.message().starts_with(link), "{}", refused.message());
    }
    assert_eq!(all(&mut lab).await, ["", "", ""]);
    change(&mut lab, both(), &format!("{one},{two}")).await.unwrap();
    // A link without a lease needs none, and a token of no link is refused.
    change(&mut lab, vec![to("main", "lte"), to("lab1", "lte")], &one).await.unwrap();
    let refused = change(&mut lab, vec![to("main", "viasat2")], &one).await.unwrap_err();
    assert!(refused.message().contains("your lease has ended"), "{}", refused.message());
    assert_eq!(shown(&mut lab, "main").await.unwrap(), "lte");
    // One of several tokens also suffices for one link.
    let tokens = format!("{one}, {two}");
    change(&mut lab, vec![to("lab2", "geo-600")], &tokens).await.unwrap();
}

#[tokio::test]
async fn repeated_request_is_not_applied_twice() {
    let mut lab = with_links().await;
    let request = |profile: &str| pb::UpdateLinksRequest {
        updates: vec![to("lab1", profile), to("lab2", "lte")],
        request_id: "r".into(),
    };
    let first = lab.client.update_links(request("lte")).await.unwrap().into_inner();
    let again = lab.client.update_links(request("lte")).await.unwrap().into_inner();
    assert!(again.repeated && !first.repeated);
    assert_eq!(again.links[0].applied, first.links[0].applied);
    let refused = lab.client.update_links(request("geo-600")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{}", refused.message());
    assert_eq!(lab.fake.state().links["lab1"].state().generation, 1);
}

#[tokio::test]
async fn audit_log_has_lines_of_each_link() {
    let (mut lab, ..) = Lab::with(|directory| Security {
        audit: Some(directory.join("audit.jsonl")),
        ..Security::default()
    });
    create(&lab, "lab1").await.unwrap();
    change(&mut lab, vec![to("main", "lte"), to("lab1", "lte")], "").await.unwrap();
    change(&mut lab, vec![to("main", "lte"), at_generation("lab1", 9)], "").await.unwrap_err();
    let text = std::fs::read_to_string(lab.directory.path().join("audit.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |link: &str, event: &str| -> Vec<&Value> {
        let is = |line: &&Value| {
            line["method"] == "linkemu.v1.Linkemu/UpdateLinks"
                && line["link"] == link
                && line["event"] == event
        };
        lines.iter().filter(is).collect()
    };
    for link in ["main", "lab1"].map(link_name) {
        let (asked, answered) = (of(&link, "asked"), of(&link, "answered"));
        let [made, refused] = *answered else { panic!("{link}: {answered:?}") };
        assert_eq!((&made["code"], &made["generation"]), (&"OK".into(), &1.into()));
        assert_eq!((&refused["code"], &refused["generation"]), (&"ABORTED".into(), &Value::Null));
        assert_eq!((&asked[0]["call"], &asked[1]["call"]), (&made["call"], &refused["call"]));
    }
}

const HANDOVER: &str = "name = \"handover\"\n[[step]]\nprofile = \"lte\"\n\
                        links.lab1.profile = \"geo-600\"\nlinks.lab2.both.rate = \"5 Mbit/s\"\n\
                        [[step]]\nafter = \"1 h\"\n";

async fn start(lab: &Lab, toml: &str, tokens: &str) -> Result<(), Status> {
    let scenario = Some(pb::run_scenario_request::Scenario::Toml(toml.into()));
    let request = pb::RunScenarioRequest { scenario, ..Default::default() };
    let mut scenarios = pb::scenarios_client::ScenariosClient::new(lab.linkd());
    scenarios.run_scenario(under(tokens, request)).await.map(drop)
}

async fn until_phase(lab: &Lab, wanted: pb::ScenarioPhase) -> String {
    let mut scenarios = pb::scenarios_client::ScenariosClient::new(lab.linkd());
    let watch = scenarios.watch_scenario(pb::WatchScenarioRequest::default()).await;
    let mut states = watch.unwrap().into_inner();
    loop {
        let state = states.message().await.unwrap().unwrap();
        if state.phase() == wanted {
            return state.message;
        }
    }
}

async fn with_profiles() -> Lab {
    let mut lab = with_links().await;
    change(&mut lab, vec![to("lab1", "viasat2"), to("lab2", "viasat2")], "").await.unwrap();
    lab
}

#[tokio::test]
async fn scenario_changes_its_links_and_needs_the_lease_of_each() {
    let mut lab = with_profiles().await;
    let token = lease(&lab, "lab2", "job b").await;
    let refused = start(&lab, HANDOVER, "").await.unwrap_err();
    assert!(refused.message().starts_with("link `lab2`: "), "{}", refused.message());
    let unknown = HANDOVER.replace("lab2", "lab3");
    let refused = start(&lab, &unknown, "").await.unwrap_err();
    assert!(refused.message().contains("no link `lab3`"), "{}", refused.message());
    let own = HANDOVER.replace("lab2", "main");
    let refused = start(&lab, &own, "").await.unwrap_err();
    assert!(refused.message().contains("own link"), "{}", refused.message());
    let bad =
        HANDOVER.replace("rate = \"5 Mbit/s\"", "queue.red = { min = \"9 MB\", max = \"8 MB\" }");
    let refused = start(&lab, &bad, &token).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{}", refused.message());
    assert_eq!(all(&mut lab).await, ["", "viasat2", "viasat2"]);
    start(&lab, HANDOVER, &token).await.unwrap();
    let state = lab.fake.state().links["lab2"].clone();
    lab.until("the step is made", move |_| state.state().generation == 2).await;
    assert_eq!(all(&mut lab).await, ["lte", "geo-600", "viasat2*"]);
    // The end of a lease under which it changes a link stops it.
    let request = pb::ReleaseLeaseRequest { token, link: "links/lab2".into() };
    let mut leases = pb::leases_client::LeasesClient::new(lab.linkd());
    leases.release_lease(request).await.unwrap();
    let message = until_phase(&lab, pb::ScenarioPhase::Stopped).await;
    assert!(message.contains("it lost the link `lab2`"), "{message}");
}

#[tokio::test]
async fn scenario_stops_when_another_caller_gets_or_changes_one_of_its_links() {
    let mut lab = with_profiles().await;
    start(&lab, HANDOVER, "").await.unwrap();
    let state = lab.fake.state().links["lab2"].clone();
    lab.until("the step is made", move |_| state.state().generation == 2).await;
    change(&mut lab, vec![to("lab1", "lte")], "").await.unwrap();
    let message = until_phase(&lab, pb::ScenarioPhase::Stopped).await;
    assert!(message.contains("link `lab1`: generation 2 was expected and 3"), "{message}");
    start(&lab, HANDOVER, "").await.unwrap();
    lab.until("the run is on the disk", |lab| kept(lab).is_some_and(|run| run.run == 2)).await;
    lab.kill_linkd().await;
    lab.start_linkd();
    lease(&lab, "lab1", "job a").await;
    let message = until_phase(&lab, pb::ScenarioPhase::Stopped).await;
    assert!(message.contains("it lost the link `lab1`"), "{message}");
}

/// The profile of a link on the disk.
fn saved(lab: &Lab, link: &str) -> String {
    let path = lab.directory.path().join("state/links").join(link).join("state");
    let state = std::fs::read(path).ok();
    let state = state.and_then(|it| proto::linkd::v1::State::decode(it.get(32..)?).ok());
    state.and_then(|it| Some(it.plan?.profile?.name)).unwrap_or_default()
}

#[tokio::test]
async fn state_of_other_links_follows_steps_with_and_without_linkd() {
    let mut lab = with_profiles().await;
    let scenario = HANDOVER.replace("1 h", "3 s\"\nlinks.lab1.profile = \"lte");
    start(&lab, &scenario, "").await.unwrap();
    lab.until("the step is on the disk", |lab| saved(lab, "lab1") == "geo-600").await;
    lab.kill_linkd().await;
    let state = lab.fake.state().links["lab1"].clone();
    lab.until("the last step is made", move |_| state.state().generation == 3).await;
    lab.start_linkd();
    lab.until("it is on the disk", |lab| saved(lab, "lab1") == "lte").await;
    assert_eq!((saved(&lab, "lab2"), lab.in_force().name), ("viasat2*".into(), "lte".into()));
    lab.start_dataplane_anew(2);
    for link in ["lab1", "lab2"] {
        lab.until("the link is back", |lab| {
            let links = lab.fake.state().links.clone();
            links.get(link).is_some_and(|it| it.state().generation == 1)
        })
        .await;
    }
    assert_eq!(all(&mut lab).await, ["lte", "lte", "viasat2*"]);
}
