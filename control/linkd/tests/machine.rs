// SPDX-License-Identifier: Apache-2.0
//! The checks of linkd's machine, and the envelope of its dataplane.

use crate::common::Lab;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::doctor_client::DoctorClient;
use proto::linkemu::v1::envelopes_client::EnvelopesClient;
use proto::linkemu::v1::get_envelope_request::Profile as Given;
use tonic::Code;

#[tokio::test]
async fn machine_of_linkd_is_checked_and_the_answer_kept_for_a_moment() {
    let mut lab = Lab::new();
    let mut client = DoctorClient::new(lab.linkd());
    let mut diagnose = async || {
        client.diagnose(pb::DiagnoseRequest {}).await.map(tonic::Response::into_inner).unwrap()
    };
    let answer = diagnose().await;
    let of = |answer: &pb::DiagnoseResponse, name: &str| {
        answer.checks.iter().find(|check| check.check == name).cloned().unwrap()
    };
    assert!(answer.checks.len() >= 12, "{answer:?}");
    // The fake dataplane has another version.
    assert_eq!(of(&answer, "dataplane").level(), pb::FindingLevel::Warning);
    assert_eq!(of(&answer, "linkd").level(), pb::FindingLevel::Ok);
    // Limits of another process are not those of the dataplane, which has no lock here.
    assert!(of(&answer, "locked memory").found.starts_with("not known"), "{answer:?}");
    for check in &answer.checks {
        let is_ok = check.level() == pb::FindingLevel::Ok;
        assert_eq!((check.why.is_empty(), check.remedy.is_empty()), (is_ok, is_ok), "{check:?}");
    }
    lab.running = None;
    assert_eq!(diagnose().await, answer, "it was asked again at once");
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    let later = diagnose().await;
    assert_eq!(of(&later, "dataplane").level(), pb::FindingLevel::Bad);
    assert_eq!(later.bad, answer.bad + 1);
}

#[tokio::test]
async fn envelope_is_that_of_the_link_of_a_profile_or_of_a_box_that_is_not_there() {
    let mut lab = Lab::new();
    lab.fake.state().room = Some(pb::Room {
        clients: 10,
        port_bps: 10_000_000_000,
        frame_bytes: 1_514,
        memory_bytes: 8 << 30,
        workers: 1,
        ..Default::default()
    });
    lab.set("viasat2").await.unwrap();
    let mut client = EnvelopesClient::new(lab.linkd());
    let mut ask = async |request: pb::GetEnvelopeRequest| {
        client.get_envelope(request).await.map(tonic::Response::into_inner)
    };
    let current = ask(pb::GetEnvelopeRequest::default()).await.unwrap();
    let profile = current.profile.unwrap();
    assert_eq!(profile.name, "viasat2");
    assert!(profile.needed_bytes > 36_000_000 && profile.clients.is_some());
    assert!(current.text.contains("viasat2") && current.rows.len() >= 5);
    // A box with little memory, and no dataplane.
    lab.running = None;
    let small = |profile: Option<Given>| pb::GetEnvelopeRequest {
        profile,
        clients: Some(100),
        memory_bytes: Some(1 << 30),
        port_bps: Some(10_000_000_000),
        ..Default::default()
    };
    assert_eq!(ask(small(None)).await.unwrap().profile, None);
    let profile = ask(small(Some(Given::Name("viasat2".into())))).await.unwrap().profile.unwrap();
    assert!(!profile.fits && !profile.excesses.is_empty(), "{profile:?}");
    let clients = profile.clients.unwrap();
    assert_eq!(clients.limit(), pb::EnvelopeLimit::UpTo);
    assert!((1..100).contains(&clients.value.unwrap()), "{clients:?}");
    let code = async |result: Result<pb::Envelope, tonic::Status>| result.unwrap_err().code();
    assert_eq!(code(ask(small(Some(Given::Name("viasat".into())))).await).await, Code::NotFound);
    let broken = small(Some(Given::Toml("name = 7".into())));
    assert_eq!(code(ask(broken).await).await, Code::InvalidArgument);
    for wrong in [
        pb::GetEnvelopeRequest { clients: Some(0), ..small(None) },
        pb::GetEnvelopeRequest { workers: Some(0), ..small(None) },
        pb::GetEnvelopeRequest { workers: Some(u32::MAX), ..small(None) },
        pb::GetEnvelopeRequest { port_bps: Some(0), ..small(None) },
        pb::GetEnvelopeRequest { frame_bytes: Some(13), ..small(None) },
        pb::GetEnvelopeRequest { frame_bytes: Some(u32::MAX), ..small(None) },
    ] {
        assert_eq!(code(ask(wrong).await).await, Code::InvalidArgument);
    }
    let huge = pb::GetEnvelopeRequest {
        memory_bytes: Some(u64::MAX),
        port_bps: Some(u64::MAX),
        ..small(Some(Given::Name("viasat2".into())))
    };
    assert!(ask(huge).await.is_ok());
}
