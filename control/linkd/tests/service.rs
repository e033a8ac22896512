// SPDX-License-Identifier: Apache-2.0
//! Effects of linkemu.v1 on the dataplane, and its answers.

use crate::common::{Lab, rate, to_inline, to_profile, to_values};
use pb::Direction::{Forward, Return, Unspecified};
use pb::certificates_client::CertificatesClient;
use proto::linkemu::v1 as pb;
use std::time::Duration;
use tonic::Code;
use tonic_types::StatusExt;

fn fields(status: &tonic::Status) -> Vec<String> {
    let request = status.get_details_bad_request().unwrap();
    request.field_violations.into_iter().map(|violation| violation.field).collect()
}

#[tokio::test]
async fn a_profile_is_compiled_and_restarts_the_random_processes() {
    let mut lab = Lab::new();
    let change = lab.set("viasat2").await.unwrap();
    assert_eq!(change.applied.unwrap().generation, 1);
    assert_eq!(change.profile.unwrap().name, "viasat2");
    assert_eq!(change.seed, 1);
    let apply = lab.fake.state().applies[0].clone();
    assert!(apply.restart);
    assert_eq!(apply.plan.profile.as_ref(), Some(&lab.in_force()));
}

#[tokio::test]
async fn an_unknown_profile_names_the_nearest() {
    let mut lab = Lab::new();
    let status = lab.set("viasat").await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), "no profile is named \"viasat\": the nearest is \"viasat2\"");
    assert!(lab.fake.state().applies.is_empty());
    let status = lab.set(&"x".repeat(500_000)).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn an_inline_profile_is_checked_whole() {
    let mut lab = Lab::new();
    let mut profile = profile::Catalog::built_in().get("viasat2").unwrap().as_proto().clone();
    profile.name = "mine".into();
    lab.update(to_inline(&profile)).await.unwrap();
    assert_eq!(lab.in_force(), profile);
    profile.forward_pipe.as_mut().unwrap().rate_bps = Some(1);
    profile.return_pipe.as_mut().unwrap().delay = None;
    let status = lab.update(to_inline(&profile)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(fields(&status), ["forward.rate", "return.delay"]);
    assert!(status.message().contains("forward.rate: 1 bit/s is below 1 kbit/s"));
    assert_eq!(lab.fake.state().generation, 1);
    let status = lab.update(pb::ProfileUpdate::default()).await.unwrap_err();
    assert_eq!(fields(&status), ["profile"]);
}

#[tokio::test]
async fn another_profile_may_not_take_a_known_name() {
    let mut lab = Lab::new();
    let mut profile = profile::Catalog::built_in().get("viasat2-pings").unwrap().as_proto().clone();
    lab.update(to_inline(&profile)).await.unwrap();
    profile.forward_pipe.as_mut().unwrap().rate_bps = None;
    let status = lab.update(to_inline(&profile)).await.unwrap_err();
    assert_eq!(fields(&status), ["name"]);
    profile.name.push('*');
    lab.update(to_inline(&profile)).await.unwrap();
}

#[tokio::test]
async fn traces_at_their_limit_are_taken() {
    let mut lab = Lab::new();
    let mut profile = profile::Catalog::built_in().get("viasat2-pings").unwrap().as_proto().clone();
    profile.name = "traced".into();
    for pipe in [&mut profile.forward_pipe, &mut profile.return_pipe] {
        let pipe = pipe.as_mut().unwrap();
        pipe.rate_bps = None;
        let rates_bps = vec![400_000_000_000; *profile::RATE_TRACE_RATES_BPS_ITEMS.end()];
        pipe.rate_trace =
            Some(pb::RateTrace { step_ns: 1_000_000, rates_bps, ..Default::default() });
    }
    lab.update(to_inline(&profile)).await.unwrap();
    assert_eq!(lab.in_force(), profile);
    lab.patch(Return, &["packet_loss"], pb::Pipe::default()).await.unwrap();
}

#[tokio::test]
async fn a_patch_that_is_wrong_changes_nothing() {
    let mut lab = Lab::new();
    let status = lab.patch(Forward, &["rate_bps"], rate(50_000)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("set one first"));
    lab.set("viasat2").await.unwrap();
    for (paths, pipe, field, message) in [
        (&["rate"][..], rate(50_000), "mask.paths[0]", "the nearest is \"rate_bps\""),
        (&["queue.limt"], rate(50_000), "mask.paths[0]", "the nearest is \"queue.limit_bytes\""),
        (&[], rate(50_000), "mask", "names nothing"),
        (&["queue.limit_bytes"], rate(50_000), "pipe.queue", "missing"),
        (&["queue"], rate(50_000), "forward.queue", "missing"),
        (&["rate_bps"], rate(5), "forward.rate", "5 bit/s is below"),
    ] {
        let status = lab.patch(Unspecified, paths, pipe).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(fields(&status)[0], field);
        assert!(status.message().contains(message), "{}", status.message());
    }
    let good = to_values(&["rate_bps"], rate(50_000));
    let many = vec![good.clone(); owner::MOST_PARTS + 1];
    let status = lab.update(pb::LinkUpdate { pipes: many, ..Default::default() }).await;
    assert_eq!(fields(&status.unwrap_err()), ["updates[0].pipes"]);
    let status = lab.update(pb::PipeUpdate { pipe: None, ..good.clone() }).await.unwrap_err();
    assert_eq!(fields(&status), ["pipe"]);
    let status = lab.update(pb::PipeUpdate { direction: 9, ..good }).await.unwrap_err();
    assert_eq!(fields(&status), ["direction"]);
    assert_eq!(lab.fake.state().generation, 1);
}

#[tokio::test]
async fn a_dead_dataplane_is_named_and_found_again() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    lab.running = None;
    for _ in 0..3 {
        let status = lab.client.get_link(pb::GetLinkRequest::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        let path = lab.dataplane().display().to_string();
        let expected =
            format!("no dataplane at {path}: start linkd-dataplane, or give --dataplane");
        assert_eq!(status.message(), expected);
    }
    assert_eq!(lab.set("viasat2").await.unwrap_err().code(), Code::Unavailable);
    lab.running = Some(lab.fake.serve(&lab.dataplane()).unwrap());
    let link = lab.client.get_link(pb::GetLinkRequest::default()).await.unwrap().into_inner();
    assert_eq!(link.profile.unwrap().name, "viasat2");
    // Replaced between two calls: the second does not see the broken connection. (A change that
    // meets it is not repeated, because its result is unknown.)
    lab.running = Some(lab.fake.serve(&lab.dataplane()).unwrap());
    lab.client.get_link(pb::GetLinkRequest::default()).await.unwrap();
    lab.set("geo-600").await.unwrap();
    lab.client.list_profiles(pb::ListProfilesRequest::default()).await.unwrap();
}

#[tokio::test]
async fn what_the_dataplane_refuses_passes_as_it_is() {
    let mut lab = Lab::new();
    lab.fake.state().refuse = Some(tonic::Status::resource_exhausted("needs 9 GB, there are 2"));
    let status = lab.set("viasat2").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "needs 9 GB, there are 2");
}

#[tokio::test]
async fn statistics_are_read_marked_and_watched() {
    let mut lab = Lab::new();
    lab.fake.state().stats.emulator_drops = 5;
    let stats = lab
        .client
        .get_stats(pb::GetStatsRequest { mark: true, ..Default::default() })
        .await
        .unwrap();
    assert_eq!(stats.into_inner().emulator_drops, 5);
    assert_eq!(lab.fake.state().marks, 1);
    let watch = |interval_ns| pb::WatchStatsRequest { interval_ns, ..Default::default() };
    let mut stream = lab.client.watch_stats(watch(10_000_000)).await.unwrap().into_inner();
    for _ in 0..3 {
        assert_eq!(stream.message().await.unwrap().unwrap().emulator_drops, 5);
    }
    lab.running = None;
    let status = loop {
        match stream.message().await {
            Ok(snapshot) => assert!(snapshot.is_some()),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Unavailable);
    for interval in [1, 9_999_999, 3_600_000_000_001, u64::MAX] {
        let status = lab.client.watch_stats(watch(interval)).await.unwrap_err();
        assert_eq!(fields(&status), ["interval_ns"]);
    }
}

#[tokio::test]
async fn shutdown_ends_streams_and_removes_the_socket() {
    let mut lab = Lab::new();
    let request = pb::WatchStatsRequest { interval_ns: 3_600_000_000_000, ..Default::default() };
    let mut stream = lab.client.watch_stats(request).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    drop(lab.stop.take());
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    tokio::time::timeout(Duration::from_secs(30), lab.server).await.unwrap().unwrap();
    assert!(!lab.directory.path().join("linkd.sock").exists());
    assert!(!lab.directory.path().join("linkd.sock.lock").exists());
}

#[tokio::test]
async fn a_link_outside_of_the_envelope_is_taken_on_an_explicit_flag_only() {
    let mut lab = Lab::new();
    lab.fake.state().excess = Some("needs 9.6 GB, 4 GB reserved".into());
    let refused = lab.set("viasat2").await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("9.6 GB"), "{refused}");
    // The numbers pass as they are.
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(
        (info.reason.as_str(), info.metadata["needed_bytes"].as_str()),
        ("OUTSIDE_ENVELOPE", "9600")
    );

    let taken = pb::LinkUpdate { lossy: true, ..to_profile("viasat2").into() };
    let taken = lab.update(taken).await.unwrap();
    assert!(taken.applied.unwrap().lossy);
    assert_eq!(taken.remarks, ["needs 9.6 GB, 4 GB reserved"]);
    let link = lab.client.get_link(pb::GetLinkRequest::default()).await.unwrap().into_inner();
    assert!(link.applied.unwrap().lossy);
    assert_eq!(link.remarks, taken.remarks);
    let stats = lab.client.get_stats(pb::GetStatsRequest::default()).await.unwrap();
    assert!(stats.into_inner().lossy);

    // A patch does not inherit the leave.
    let refused = lab.patch(pb::Direction::Forward, &["rate_bps"], rate(1_000_000)).await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    let patch = to_values(&["rate_bps"], rate(1_000_000));
    let taken = lab.update(pb::LinkUpdate { lossy: true, ..patch.into() }).await.unwrap();
    assert!(taken.applied.unwrap().lossy);
    let asked: Vec<_> = lab.fake.state().applies.iter().map(|a| (a.restart, a.lossy)).collect();
    let patches = [(false, false), (false, true)];
    assert_eq!(asked, [&[(true, false), (true, true)][..], &patches].concat());
}

#[tokio::test]
async fn what_there_is_to_hold_a_link_with_is_the_dataplanes_answer() {
    let mut lab = Lab::new();
    // One that does not say is an older one.
    let unknown = lab.client.get_room(pb::GetRoomRequest::default()).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unimplemented);
    assert!(unknown.message().contains("older"), "{unknown}");
    let room = pb::Room {
        clients: 16,
        port_bps: 10_000_000_000,
        frame_bytes: 1_514,
        memory_bytes: 3 << 30,
        workers: 1,
        shim_bytes: 32,
        pair_bytes: 0,
    };
    lab.fake.state().room = Some(room);
    let answer = lab.client.get_room(pb::GetRoomRequest::default()).await.unwrap().into_inner();
    assert_eq!(answer, room);
    lab.running = None;
    let gone = lab.client.get_room(pb::GetRoomRequest::default()).await.unwrap_err();
    assert_eq!(gone.code(), Code::Unavailable);
}

#[tokio::test]
async fn a_run_is_judged_by_the_limits_of_the_request_or_the_usual_ones() {
    let lab = Lab::new();
    let mut client = CertificatesClient::new(lab.linkd());
    let status = client.get_certificate(pb::GetCertificateRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "no span: {status}");

    let count = |packets| Some(pb::Count { packets, bytes: 100 * packets });
    let span = pb::Span { sent: count(6), received: count(9), overload: 3, ..Default::default() };
    lab.fake.state().stats = pb::Stats { span: Some(span.clone()), ..Default::default() };
    let usual = client.get_certificate(pb::GetCertificateRequest::default()).await.unwrap();
    let usual = usual.into_inner();
    assert!(!usual.holds);
    let failed: Vec<_> = usual.criteria.iter().filter(|c| !c.holds).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].text, "emulator_drops 3 packets, at most 0 packets");
    assert_eq!(usual.span, Some(span));
    assert_eq!(lab.fake.state().marks, 0);

    let wide =
        pb::GetCertificateRequest { emulator_drops: Some(3), mark: true, ..Default::default() };
    assert!(client.get_certificate(wide).await.unwrap().into_inner().holds);
    assert_eq!(lab.fake.state().marks, 1);

    // A run has one entry for each set of limits; a mark ends it.
    client.get_certificate(pb::GetCertificateRequest::default()).await.unwrap();
    let listed = async |client: &mut CertificatesClient<tonic::transport::Channel>| {
        let request = pb::ListCertificatesRequest::default();
        let all = client.list_certificates(request).await.unwrap().into_inner().certificates;
        let holds = |it: &pb::ListedCertificate| it.certificate.as_ref().unwrap().holds;
        all.iter().map(|it| (it.marked, holds(it))).collect::<Vec<_>>()
    };
    assert_eq!(listed(&mut client).await, [(false, false), (true, true)]);
    let mut main = lab.client.clone();
    main.get_stats(pb::GetStatsRequest { mark: true, ..Default::default() }).await.unwrap();
    main.get_stats(pb::GetStatsRequest::default()).await.unwrap();
    assert_eq!(listed(&mut client).await, [(true, false), (true, true)]);
    for _ in 0..100 {
        main.get_stats(pb::GetStatsRequest { mark: true, ..Default::default() }).await.unwrap();
    }
    assert_eq!(listed(&mut client).await, [(true, false); 100]);

    let wrong = pb::GetCertificateRequest { memory_percent: Some(101), ..Default::default() };
    let status = client.get_certificate(wrong).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(fields(&status), ["memory_percent"]);
}
