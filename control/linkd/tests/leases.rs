// SPDX-License-Identifier: Apache-2.0
//! Leases: one user at a time, and nothing left behind by a dead one.

use crate::common::{Lab, only, to_profile};
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::certificates_client::CertificatesClient;
use proto::linkemu::v1::leases_client::LeasesClient;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Request};

const SECOND: u64 = 1_000_000_000;

fn request(holder: &str, seconds: u64) -> pb::AcquireLeaseRequest {
    let (holder, ttl_ns) = (holder.to_owned(), seconds * SECOND);
    pb::AcquireLeaseRequest { holder, ttl_ns, ..Default::default() }
}

async fn acquire(
    lab: &Lab,
    request: pb::AcquireLeaseRequest,
) -> Result<pb::AcquireLeaseResponse, tonic::Status> {
    leases(lab).acquire_lease(request).await.map(tonic::Response::into_inner)
}

fn leases(lab: &Lab) -> LeasesClient<Channel> {
    LeasesClient::new(lab.linkd())
}

async fn set(lab: &mut Lab, name: &str, token: &str) -> Result<(), tonic::Status> {
    let mut request = Request::new(only(to_profile(name)));
    request.metadata_mut().insert(proto::LEASE_METADATA, token.parse().unwrap());
    lab.client.update_links(request).await.map(drop)
}

#[tokio::test]
async fn only_the_holder_changes_the_link() {
    let mut lab = Lab::new();
    let mine = acquire(&lab, request("ci 7", 60)).await.unwrap();
    set(&mut lab, "viasat2", &mine.token).await.unwrap();
    for status in [lab.set("geo-600").await.map(drop), set(&mut lab, "geo-600", "guessed").await] {
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("leased to ci 7"), "{}", status.message());
    }
    let second = acquire(&lab, request("ci 8", 60)).await.unwrap_err();
    assert_eq!(second.code(), Code::FailedPrecondition);
    let shown = leases(&lab).get_lease(pb::GetLeaseRequest::default()).await.unwrap();
    assert_eq!(Some(shown.into_inner()), mine.lease);
    let release =
        |token: &str| pb::ReleaseLeaseRequest { token: token.into(), ..Default::default() };
    let wrong = leases(&lab).release_lease(release("guessed")).await.unwrap_err();
    assert_eq!(wrong.code(), Code::NotFound);
    leases(&lab).release_lease(release(&mine.token)).await.unwrap();
    // Its token is no longer valid.
    let late = set(&mut lab, "geo-600", &mine.token).await.unwrap_err();
    assert!(late.message().contains("your lease has ended"), "{}", late.message());
    lab.set("geo-600").await.unwrap();
}

#[tokio::test]
async fn only_the_holder_marks_the_statistics() {
    let mut lab = Lab::new();
    let mine = acquire(&lab, request("ci 7", 60)).await.unwrap();
    let mark = |token: &str| {
        let mut request = Request::new(pb::GetStatsRequest { mark: true, ..Default::default() });
        request.metadata_mut().insert(proto::LEASE_METADATA, token.parse().unwrap());
        request
    };
    let mut certificates = CertificatesClient::new(lab.linkd());
    let judge = pb::GetCertificateRequest { mark: true, ..Default::default() };
    for status in [
        lab.client.get_stats(mark("")).await.map(drop),
        lab.client.get_stats(mark("guessed")).await.map(drop),
        certificates.get_certificate(judge).await.map(drop),
    ] {
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("leased to ci 7"), "{}", status.message());
    }
    assert_eq!(lab.fake.state().marks, 0);
    lab.client.get_stats(pb::GetStatsRequest::default()).await.unwrap();
    lab.client.get_stats(mark(&mine.token)).await.unwrap();
    assert_eq!(lab.fake.state().marks, 1);
}

#[tokio::test]
async fn profile_that_a_lease_returns_to_stays() {
    let mut lab = Lab::new();
    let mut mine = profile::Catalog::built_in().get("geo-600").unwrap().as_proto().clone();
    mine.name = "mine".into();
    let put = |profile: &pb::Profile| pb::PutProfileRequest {
        profile: Some(profile.clone()),
        replace: true,
        ..Default::default()
    };
    lab.client.put_profile(put(&mine)).await.unwrap();
    let returning = pb::AcquireLeaseRequest { return_profile: "mine".into(), ..request("ci", 60) };
    let lease = acquire(&lab, returning).await.unwrap();
    let delete = pb::DeleteProfileRequest { name: "mine".into() };
    let other = pb::Profile { description: "another".into(), ..mine.clone() };
    for status in [
        lab.client.delete_profile(delete.clone()).await.map(drop),
        lab.client.put_profile(put(&other)).await.map(drop),
    ] {
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("returns to the profile"), "{}", status.message());
    }
    // The same one again replaces nothing.
    lab.client.put_profile(put(&mine)).await.unwrap();
    let release = pb::ReleaseLeaseRequest { token: lease.token, ..Default::default() };
    leases(&lab).release_lease(release).await.unwrap();
    assert_eq!(lab.in_force(), mine);
    lab.client.delete_profile(delete).await.unwrap();
}

#[tokio::test]
async fn a_lease_survives_linkd_and_keeps_its_end() {
    let mut lab = Lab::new();
    let mine = acquire(&lab, request("ci", 600)).await.unwrap();
    set(&mut lab, "viasat2", &mine.token).await.unwrap();
    lab.kill_linkd().await;
    lab.start_linkd();
    assert!(lab.set("geo-600").await.is_err());
    set(&mut lab, "geo-600", &mine.token).await.unwrap();
    let shown = leases(&lab).get_lease(pb::GetLeaseRequest::default()).await.unwrap();
    assert_eq!(Some(shown.into_inner()), mine.lease);
}

#[tokio::test]
async fn watcher_sees_the_lease_come_change_and_go() {
    let lab = Lab::new();
    let request_watch = pb::WatchLeaseRequest::default();
    let mut states = leases(&lab).watch_lease(request_watch).await.unwrap().into_inner();
    let next = async |states: &mut tonic::Streaming<pb::LeaseState>| {
        let next = tokio::time::timeout(Duration::from_secs(60), states.message()).await;
        next.unwrap().unwrap().unwrap().lease
    };
    assert_eq!(next(&mut states).await, None);
    let mine = acquire(&lab, request("ci 7", 60)).await.unwrap();
    assert_eq!(next(&mut states).await, mine.lease);
    let renew = pb::RenewLeaseRequest { token: mine.token.clone(), ..Default::default() };
    let renewed = leases(&lab).renew_lease(renew).await.unwrap().into_inner();
    assert_eq!(next(&mut states).await, Some(renewed));
    let release = pb::ReleaseLeaseRequest { token: mine.token, ..Default::default() };
    leases(&lab).release_lease(release).await.unwrap();
    assert_eq!(next(&mut states).await, None);
}
