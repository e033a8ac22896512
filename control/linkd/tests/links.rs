// SPDX-License-Identifier: Apache-2.0
//! Several links: plans, leases and saved states are separate.

use crate::common::{Lab, only, to_profile, until};
use proto::LEASE_METADATA;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::events_client::EventsClient;
use proto::linkemu::v1::leases_client::LeasesClient;
use proto::linkemu::v1::links_client::LinksClient;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

fn links(lab: &Lab) -> LinksClient<Channel> {
    LinksClient::new(lab.linkd())
}

/// A request under a lease.
pub fn under<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(LEASE_METADATA, token.parse().unwrap());
    request
}

pub async fn create(lab: &Lab, name: &str) -> Result<pb::NamedLink, Status> {
    let link = pb::NamedLink { memory_bytes: 64 << 20, clients: 4, ..Default::default() };
    let request = pb::CreateLinkRequest { link_id: name.into(), link: Some(link) };
    links(lab).create_link(request).await.map(tonic::Response::into_inner)
}

async fn delete(lab: &Lab, name: &str) -> Result<(), Status> {
    let request = pb::DeleteLinkRequest { name: format!("links/{name}") };
    links(lab).delete_link(request).await.map(drop)
}

async fn set(lab: &mut Lab, link: &str, profile: &str, token: &str) -> Result<u64, Status> {
    let update = pb::LinkUpdate { link: link.into(), ..to_profile(profile).into() };
    let request = under(token, only(update));
    let link = lab.client.update_links(request).await?.into_inner().into_one();
    Ok(link.applied.unwrap().generation)
}

pub async fn shown(lab: &mut Lab, link: &str) -> Result<String, Status> {
    let link = lab.client.get_link(pb::GetLinkRequest { name: link.into() }).await?.into_inner();
    Ok(link.profile.unwrap_or_default().name)
}

pub async fn lease(lab: &Lab, link: &str, holder: &str) -> String {
    let (link, holder, ttl_ns) = (link.to_owned(), holder.to_owned(), 60_000_000_000);
    let request = pb::AcquireLeaseRequest { link, holder, ttl_ns, ..Default::default() };
    let mut leases = LeasesClient::new(lab.linkd());
    leases.acquire_lease(request).await.unwrap().into_inner().token
}

fn rule(prefix: &str) -> Vec<pb::LinkRule> {
    vec![pb::LinkRule { prefixes: vec![prefix.into()], ..Default::default() }]
}

#[tokio::test]
async fn change_and_lease_are_of_one_link() {
    let mut lab = Lab::new();
    let added = create(&lab, "lab1").await.unwrap();
    assert_eq!((&*added.name, added.memory_bytes, added.clients), ("links/lab1", 64 << 20, 4));
    lab.set("viasat2").await.unwrap();
    let token = lease(&lab, "links/lab1", "job b").await;
    // With and without "links/".
    assert_eq!(set(&mut lab, "links/lab1", "geo-600", &token).await.unwrap(), 1);
    assert_eq!(set(&mut lab, "lab1", "lte", &token).await.unwrap(), 2);
    let refused = set(&mut lab, "lab1", "geo-600", "").await.unwrap_err();
    assert!(refused.message().contains("leased to job b"), "{}", refused.message());
    // As clients named the link before requests did.
    let mut request = Request::new(pb::GetStatsRequest::default());
    request.metadata_mut().insert(proto::LINK_METADATA, "links/lab1".parse().unwrap());
    let refused = lab.client.get_stats(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("name the link in the request"), "{}", refused.message());
    // Nobody has the lease of main.
    lab.set("geo-rain").await.unwrap();
    assert_eq!(shown(&mut lab, "main").await.unwrap(), "geo-rain");
    assert_eq!(shown(&mut lab, "lab1").await.unwrap(), "lte");
    assert_eq!(lab.fake.state().applies.len(), 2);
    let listed = links(&lab).list_links(pb::ListLinksRequest {}).await.unwrap().into_inner();
    let holders: Vec<_> = listed.links.iter().map(|l| (&*l.name, &*l.holder)).collect();
    assert_eq!(holders, [("links/main", ""), ("links/lab1", "job b")]);
    let refused = delete(&lab, "lab1").await.unwrap_err();
    assert!(refused.message().contains("leased to job b"), "{}", refused.message());
}

#[tokio::test]
async fn unknown_link_is_not_found_and_name_in_use_is_refused() {
    let mut lab = Lab::new();
    let unknown = shown(&mut lab, "links/lab1").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(unknown.message().contains("no link `lab1`: the links are main"), "{unknown:?}");
    create(&lab, "lab1").await.unwrap();
    assert_eq!(create(&lab, "lab1").await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(create(&lab, "main").await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(delete(&lab, "lab2").await.unwrap_err().code(), Code::NotFound);
    delete(&lab, "lab1").await.unwrap();
    assert_eq!(shown(&mut lab, "lab1").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn links_return_to_restarted_dataplane_with_rules_and_profiles() {
    let mut lab = Lab::new();
    create(&lab, "lab1").await.unwrap();
    set(&mut lab, "lab1", "geo-600", "").await.unwrap();
    assign(&lab, "lab1", "10.1.0.0/24", "").await.unwrap();
    lab.start_dataplane_anew(2);
    lab.until("the link is back", |lab| lab.fake.state().links.contains_key("lab1")).await;
    let fake = lab.fake.state().links["lab1"].clone();
    lab.until("its profile is back", move |_| fake.state().generation == 1).await;
    assert_eq!(shown(&mut lab, "lab1").await.unwrap(), "geo-600");
    let rules = lab.fake.state().rules.rules.clone();
    assert_eq!((&*rules[0].link, &*rules[0].prefixes[0]), ("links/lab1", "10.1.0.0/24"));
    // So it is for a linkd that was killed meanwhile.
    lab.kill_linkd().await;
    lab.start_dataplane_anew(3);
    lab.start_linkd();
    lab.until("the link is back", |lab| lab.fake.state().links.contains_key("lab1")).await;
    // And one that was removed stays away.
    delete(&lab, "lab1").await.unwrap();
    lab.kill_linkd().await;
    lab.start_linkd();
    assert_eq!(shown(&mut lab, "lab1").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn link_that_linkd_does_not_know_is_kept() {
    let mut lab = Lab::new();
    create(&lab, "lab1").await.unwrap();
    lab.kill_linkd().await;
    std::fs::remove_dir_all(lab.directory.path().join("state/links")).unwrap();
    lab.start_linkd();
    until("lab1 is known", async || shown(&mut lab, "lab1").await.ok()).await;
}

async fn assign(lab: &Lab, link: &str, prefix: &str, token: &str) -> Result<(), Status> {
    let (link, rules) = (link.to_owned(), rule(prefix));
    let request = pb::SetLinkRulesRequest { link, rules, ..Default::default() };
    links(lab).set_link_rules(under(token, request)).await.map(drop)
}

/// Subjects of the events of a kind that a link has had.
async fn subjects(lab: &Lab, link: &str, kind: pb::EventKind) -> Vec<String> {
    let mut events = EventsClient::new(lab.linkd());
    let request = pb::WatchEventsRequest { after: Some(0), once: true };
    let mut stream = events.watch_events(request).await.unwrap().into_inner();
    let mut seen = Vec::new();
    while let Some(event) = stream.message().await.unwrap() {
        if event.kind() == kind && event.link == link && !event.subject.is_empty() {
            seen.push(event.subject);
        }
    }
    seen
}

fn refused(status: Result<impl std::fmt::Debug, Status>, by: &str) {
    let status = status.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains(by), "{}", status.message());
}

#[tokio::test]
async fn packets_of_a_leased_link_go_to_another_one_only_with_its_token() {
    let lab = Lab::new();
    for name in ["lab1", "lab2"] {
        create(&lab, name).await.unwrap();
    }
    assign(&lab, "lab1", "10.99.0.0/24", "").await.unwrap();
    let alice = lease(&lab, "lab1", "alice").await;
    let taken = "prefix 10.99.0.2/32 takes packets of `lab1`, and the link is leased to alice";
    refused(assign(&lab, "lab2", "10.99.0.2/32", "").await, taken);
    refused(assign(&lab, "lab2", "10.98.0.0/24", "guessed").await, "your lease has ended");
    assert_eq!(lab.fake.state().rules.rules.len(), 1);
    assign(&lab, "lab2", "10.98.0.0/24", "").await.unwrap();
    assign(&lab, "lab2", "10.99.0.2/32", &alice).await.unwrap();
    let kind = pb::EventKind::LinkRulesChanged;
    assert_eq!(subjects(&lab, "links/lab1", kind).await, ["lab2"]);
    // All that no rule takes is the traffic of main.
    let carol = lease(&lab, "main", "carol").await;
    let taken = "takes packets of `main`, and the link is leased to carol";
    refused(assign(&lab, "lab2", "10.97.0.0/24", "").await, taken);
    assign(&lab, "lab2", "10.97.0.0/24", &carol).await.unwrap();
    delete(&lab, "lab2").await.unwrap();
    assert_eq!(subjects(&lab, "", kind).await, ["lab2", "lab2"]);
}

#[tokio::test]
async fn link_takes_memory_of_leased_main_or_passes_a_leased_link_only_with_its_token() {
    let lab = Lab::new();
    let add = async |name: &str, via: &str, token: &str| {
        let link = pb::NamedLink { via: via.into(), ..Default::default() };
        let request = pb::CreateLinkRequest { link_id: name.into(), link: Some(link) };
        links(&lab).create_link(under(token, request)).await
    };
    add("backbone", "", "").await.unwrap();
    add("lab1", "links/backbone", "").await.unwrap();
    let bob = lease(&lab, "backbone", "bob").await;
    refused(
        add("lab2", "links/backbone", "").await,
        "would pass `backbone`, and the link is leased",
    );
    refused(delete(&lab, "lab1").await, "`lab1` is a client of `backbone`, and the link is leased");
    add("lab2", "links/backbone", &bob).await.unwrap();
    let carol = lease(&lab, "main", "carol").await;
    let taken = "a new link takes its memory from `main`, and the link is leased to carol";
    refused(add("lab3", "", "").await, taken);
    assert!(!lab.fake.state().links.contains_key("lab3"));
    add("lab3", "", &carol).await.unwrap();
    assert_eq!(subjects(&lab, "", pb::EventKind::LinkAdded).await, ["lab3"]);
}
