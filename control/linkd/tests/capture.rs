// SPDX-License-Identifier: Apache-2.0
//! A capture passes through linkd as it is, and ends with its caller.

use crate::common::Lab;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::captures_client::CapturesClient;
use tonic::{Code, Status};

fn chunks() -> Vec<pb::CaptureChunk> {
    let packet = |n| pb::CapturedPacket {
        time_ns: n,
        number: n,
        point: pb::CapturePoint::Egress.into(),
        data: vec![n as u8; 100],
        ..Default::default()
    };
    let chunk = |n: u64| pb::CaptureChunk {
        packets: (0..1000).map(|i| packet(1000 * n + i)).collect(),
        time_ns: n,
        ..Default::default()
    };
    (0..20).map(chunk).collect()
}

fn request() -> pb::CaptureRequest {
    pb::CaptureRequest {
        clients: vec!["10.0.0.2".into()],
        direction: pb::Direction::Return.into(),
        snaplen: 77,
        count: 5,
        duration_ns: 9,
        ..Default::default()
    }
}

#[tokio::test]
async fn what_the_dataplane_captures_comes_out_whole_and_ends_with_it() {
    let lab = Lab::new();
    lab.fake.state().capture = chunks();
    let mut client = CapturesClient::new(lab.linkd());
    let mut stream = client.capture(request()).await.unwrap().into_inner();
    let mut all = Vec::new();
    while let Some(chunk) = stream.message().await.unwrap() {
        all.push(chunk);
    }
    assert_eq!(all, chunks());
    assert_eq!(lab.fake.state().captures, [request()]);
}

#[tokio::test]
async fn a_refusal_of_the_dataplane_is_linkds_answer() {
    let lab = Lab::new();
    lab.fake.state().refuse = Some(Status::resource_exhausted("somebody captures already"));
    let mut client = CapturesClient::new(lab.linkd());
    let status = client.capture(request()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "somebody captures already");
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_it_at_the_dataplane() {
    let lab = Lab::new();
    {
        let mut state = lab.fake.state();
        (state.capture, state.capture_waits) = (chunks(), true);
    }
    let mut client = CapturesClient::new(lab.linkd());
    let mut stream = client.capture(request()).await.unwrap().into_inner();
    for _ in chunks() {
        stream.message().await.unwrap().unwrap();
    }
    assert_eq!(lab.fake.state().capturing, 1);
    drop(stream);
    lab.until("the capture ends", |lab| lab.fake.state().capturing == 0).await;
}

#[tokio::test]
async fn a_dataplane_that_ends_in_mid_capture_is_said() {
    let mut lab = Lab::new();
    {
        let mut state = lab.fake.state();
        (state.capture, state.capture_waits) = (chunks(), true);
    }
    let mut client = CapturesClient::new(lab.linkd());
    let mut stream = client.capture(request()).await.unwrap().into_inner();
    for _ in chunks() {
        stream.message().await.unwrap().unwrap();
    }
    lab.running.take();
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}
