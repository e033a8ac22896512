// SPDX-License-Identifier: Apache-2.0
//! Restarts of linkd and of the dataplane, and repeated requests.

use crate::common::{Lab, only, to_profile};
use profile::{Catalog, Profile};
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::events_client::EventsClient;
use proto::linkemu::v1::leases_client::LeasesClient;
use tonic::Code;

fn named(request_id: &str) -> pb::UpdateLinksRequest {
    pb::UpdateLinksRequest { request_id: request_id.into(), ..only(to_profile("viasat2")) }
}

async fn kinds(lab: &Lab, until: pb::EventKind) -> Vec<pb::EventKind> {
    let mut client = EventsClient::new(lab.linkd());
    let request = pb::WatchEventsRequest { after: Some(0), once: false };
    let mut events = client.watch_events(request).await.unwrap().into_inner();
    let mut kinds = Vec::new();
    while kinds.last() != Some(&until) {
        kinds.push(events.message().await.unwrap().unwrap().kind());
    }
    kinds
}

#[tokio::test]
async fn state_that_cannot_be_written_is_told_until_it_can() {
    let mut lab = Lab::new();
    // As a full disk does, it keeps the new file from being written.
    let in_the_way = lab.directory.path().join("state/state.new");
    std::fs::create_dir(&in_the_way).unwrap();
    lab.set("viasat2").await.unwrap();
    kinds(&lab, pb::EventKind::StateNotSaved).await;
    let warned = |remarks: &[String]| remarks.iter().any(|r| r.contains("cannot write its state"));
    let change = lab.set("geo-600").await.unwrap();
    assert!(warned(&change.remarks), "{:?}", change.remarks);
    let link = lab.client.get_link(pb::GetLinkRequest::default()).await.unwrap().into_inner();
    assert!(warned(&link.remarks), "{:?}", link.remarks);
    let lease =
        pb::AcquireLeaseRequest { holder: "ci".into(), ttl_ns: 1 << 36, ..Default::default() };
    let mut leases = LeasesClient::new(lab.linkd());
    // Not UNAVAILABLE: linkd was reached, and to try elsewhere does not help.
    let status = leases.acquire_lease(lease.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    std::fs::remove_dir(&in_the_way).unwrap();
    kinds(&lab, pb::EventKind::StateSaved).await;
    assert!(!warned(&lab.set("viasat2").await.unwrap().remarks));
    leases.acquire_lease(lease).await.unwrap();
}

#[tokio::test]
async fn a_stored_profile_whose_name_is_taken_is_left_out_and_said() {
    let mut lab = Lab::new();
    lab.kill_linkd().await;
    let own = Catalog::built_in().get("geo-600").unwrap().to_toml();
    let profiles = lab.directory.path().join("state/profiles");
    std::fs::write(profiles.join("geo-600.toml"), own).unwrap();
    lab.start_linkd();
    let list =
        lab.client.list_profiles(pb::ListProfilesRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.stored, Vec::<String>::new());
    kinds(&lab, pb::EventKind::StateDamaged).await;
}

#[tokio::test]
async fn linkd_serves_before_it_has_read_its_stored_profiles() {
    let mut lab = Lab::new();
    lab.kill_linkd().await;
    let mut mine = Catalog::built_in().get("geo-600").unwrap().as_proto().clone();
    mine.name = "mine".into();
    let text = profile::Profile::try_from(mine.clone()).unwrap().to_toml();
    // The read blocks until the first write.
    let pipe = lab.directory.path().join("state/profiles/mine.toml");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    lab.start_linkd();
    lab.client.get_version(pb::GetVersionRequest {}).await.unwrap();
    let listing = tokio::spawn({
        let mut client = lab.client.clone();
        async move {
            client.list_profiles(pb::ListProfilesRequest::default()).await.unwrap().into_inner()
        }
    });
    lab.until("the file is read", |_| {
        let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_NONBLOCK;
        nix::fcntl::open(&pipe, flags, nix::sys::stat::Mode::empty()).is_ok_and(|opened| {
            std::io::Write::write_all(&mut std::fs::File::from(opened), text.as_bytes()).unwrap();
            true
        })
    })
    .await;
    assert_eq!(listing.await.unwrap().stored, ["mine"]);
    assert_eq!(lab.set("mine").await.unwrap().profile, Some(mine));
}

#[tokio::test]
async fn a_link_that_cannot_be_restored_is_said_once_and_left() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    lab.fake.state().refuse = Some(tonic::Status::failed_precondition("needs 9 GB"));
    lab.start_dataplane_anew(2);
    kinds(&lab, pb::EventKind::LinkNotRestored).await;
    let applies = lab.fake.state().applies.len();
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    assert_eq!(lab.fake.state().applies.len(), applies);
    lab.fake.state().refuse = None;
    lab.set("geo-600").await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_sent_again_is_carried_out_once() {
    let mut lab = Lab::new();
    let first = lab.client.update_links(named("job 7")).await.unwrap().into_inner();
    lab.set("geo-600").await.unwrap();
    let again = lab.client.update_links(named("job 7")).await.unwrap().into_inner();
    assert_eq!(again, pb::UpdateLinksResponse { repeated: true, ..first.clone() });
    assert_eq!(lab.in_force().name, "geo-600");
    // Another request under its name is a mistake.
    let other = pb::ProfileUpdate { seed: Some(3), ..to_profile("viasat2") };
    let other = pb::UpdateLinksRequest { request_id: "job 7".into(), ..only(other) };
    let status = lab.client.update_links(other).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("a name of its own"), "{}", status.message());
    let long = lab.client.update_links(named(&"x".repeat(129))).await.unwrap_err();
    assert_eq!(long.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn stored_profiles_are_set_listed_replaced_and_survive() {
    let mut lab = Lab::new();
    let mut mine = Catalog::built_in().get("geo-600").unwrap().as_proto().clone();
    mine.name = "mine".into();
    let put = |profile: &pb::Profile, replace| pb::PutProfileRequest {
        profile: Some(profile.clone()),
        replace,
        ..Default::default()
    };
    let stored = lab.client.put_profile(put(&mine, false)).await.unwrap().into_inner();
    assert!(!stored.replaced);
    let seed_before = mine.clone();
    mine.description = "another".into();
    let taken = lab.client.put_profile(put(&mine, false)).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists);
    assert!(lab.client.put_profile(put(&mine, true)).await.unwrap().into_inner().replaced);
    assert_ne!(seed_before, mine);
    lab.kill_linkd().await;
    lab.start_linkd();
    let list =
        lab.client.list_profiles(pb::ListProfilesRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.stored, ["mine"]);
    assert!(list.profiles.contains(&mine));
    assert_eq!(lab.set("mine").await.unwrap().profile, Some(mine.clone()));
    let delete = |name: &str| pb::DeleteProfileRequest { name: name.into() };
    let fixed = lab.client.delete_profile(delete("viasat2")).await.unwrap_err();
    assert_eq!(fixed.code(), Code::FailedPrecondition);
    lab.client.delete_profile(delete("mine")).await.unwrap();
    let gone = lab.client.delete_profile(delete("mine")).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    // The current profile stays.
    assert_eq!(lab.in_force(), mine);
    for name in ["../x", "a/b", "", ".hidden"] {
        let profile = pb::Profile { name: name.into(), ..mine.clone() };
        let status = lab.client.put_profile(put(&profile, true)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{name}");
    }
    let files = std::fs::read_dir(lab.directory.path().join("state/profiles")).unwrap();
    assert_eq!(files.count(), 0);
}

#[tokio::test]
async fn profiles_are_listed_in_pages() {
    let mut lab = Lab::new();
    let mut large = Catalog::built_in().get("geo-600").unwrap().as_proto().clone();
    let rates_bps = vec![1 << 35; 65_536];
    let trace = Some(pb::RateTrace { step_ns: 1_000_000, rates_bps, ..Default::default() });
    let pipe = large.forward_pipe.as_mut().unwrap();
    (pipe.rate_bps, pipe.rate_trace) = (None, trace);
    for name in ["a", "b", "z", "zz"] {
        let profile = Some(pb::Profile { name: name.into(), ..large.clone() });
        let put = pb::PutProfileRequest { profile, ..Default::default() };
        lab.client.put_profile(put).await.unwrap();
    }
    let (mut pages, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = pb::ListProfilesRequest { page_token };
        let page = lab.client.list_profiles(request).await.unwrap().into_inner();
        assert!(prost::Message::encoded_len(&page) < 1_100_000);
        pages.push((page.profiles.len(), page.stored.join(" ")));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    // Each of them has 393 kB; most of the built-in ones are between `b` and `z`.
    let (counts, stored): (Vec<_>, Vec<_>) = pages.into_iter().unzip();
    assert_eq!(stored, ["a b", "z zz"]);
    assert_eq!(counts.iter().sum::<usize>(), Catalog::built_in().iter().count() + 4);
}

#[tokio::test]
async fn toml_text_is_accepted_for_profiles_and_patches() {
    let mut lab = Lab::new();
    let text = Catalog::built_in().get("geo-600").unwrap().to_toml().replace("geo-600", "mine");
    let mine = Profile::from_toml(&text).unwrap().into_proto();
    let profile = Some(pb::profile_update::Profile::Toml(text.clone()));
    lab.update(pb::ProfileUpdate { profile, seed: None }).await.unwrap();
    assert_eq!(lab.in_force(), mine);
    let put = pb::PutProfileRequest { toml: text.clone(), ..Default::default() };
    let stored = lab.client.put_profile(put).await.unwrap().into_inner();
    assert_eq!(stored.profile.as_ref(), Some(&mine));

    let part = "rate = \"3 Mbit/s\"\npacket_loss = \"1 %\"\n[delay]\nbase = \"7 ms\"".to_owned();
    let forward = pb::Direction::Forward as i32;
    let patch = pb::PipeUpdate { direction: forward, toml: part, ..Default::default() };
    lab.update(patch.clone()).await.unwrap();
    let (now, before) = (lab.in_force(), mine.clone());
    let (pipe, old) = (now.forward_pipe.unwrap(), before.forward_pipe.unwrap());
    assert_eq!((pipe.rate_bps, pipe.packet_loss), (Some(3_000_000), 0.01));
    assert_eq!(pipe.delay.unwrap().base_ns, 7_000_000);
    // Other parameters stay.
    assert_eq!((pipe.queue, now.return_pipe), (old.queue, before.return_pipe));

    let beside = pb::PipeUpdate { pipe: Some(pb::Pipe::default()), ..patch.clone() };
    let wrong = pb::PipeUpdate { toml: "rate_bps = 3".into(), ..patch };
    for (request, part) in
        [(beside, "toml"), (wrong, "line 1, column 1: part.rate_bps: unknown key")]
    {
        let refused = lab.update(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(part), "{}", refused.message());
    }
    let both = pb::PutProfileRequest { profile: Some(mine), toml: text, replace: true };
    let refused = lab.client.put_profile(both).await.unwrap_err();
    assert!(refused.message().contains("one of the two"), "{}", refused.message());
    // Files of this machine are not read for callers.
    let file = "name = \"x\"\n[forward]\nrate_trace = { file = \"/etc/passwd\" }\n".to_owned();
    let validate = pb::ValidateProfileRequest { toml: file, ..Default::default() };
    let found = lab.client.validate_profile(validate).await.unwrap().into_inner().violations;
    let trace = found.iter().find(|v| v.path.contains("rate_trace")).unwrap();
    assert_eq!((trace.line, trace.column > 0), (3, true), "{trace:?}");
}

#[tokio::test]
async fn a_profile_is_looked_at_without_being_stored() {
    let mut lab = Lab::new();
    let good = Catalog::built_in().get("geo-600").unwrap().as_proto().clone();
    let validate = |p: &pb::Profile| pb::ValidateProfileRequest {
        profile: Some(p.clone()),
        ..Default::default()
    };
    let found = lab.client.validate_profile(validate(&good)).await.unwrap().into_inner();
    assert_eq!(found.violations, []);
    let bad = pb::Profile { name: "no name".into(), forward_pipe: None, ..good };
    let found = lab.client.validate_profile(validate(&bad)).await.unwrap().into_inner();
    let paths: Vec<_> = found.violations.iter().map(|v| v.path.as_str()).collect();
    assert_eq!(paths, ["name", "forward"]);
}

#[tokio::test]
async fn the_health_service_tells_whether_the_dataplane_answers() {
    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    let mut lab = Lab::new();
    let mut health = HealthClient::new(lab.linkd());
    let mut until = async |wanted: ServingStatus| {
        let service = "linkemu.v1.Linkemu".to_owned();
        let watch = health.watch(HealthCheckRequest { service }).await.unwrap();
        let mut watch = watch.into_inner();
        while watch.message().await.unwrap().unwrap().status() != wanted {}
    };
    until(ServingStatus::Serving).await;
    lab.running = None;
    until(ServingStatus::NotServing).await;
    lab.running = Some(lab.fake.serve(&lab.dataplane()).unwrap());
    until(ServingStatus::Serving).await;
}
