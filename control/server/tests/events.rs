// SPDX-License-Identifier: Apache-2.0
//! What happens is told to who watches, in order and once.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::Lab;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::events_client::EventsClient;
use tonic::Code;

async fn watch(lab: &Lab, after: Option<u64>) -> tonic::Streaming<pb::Event> {
    let mut client = EventsClient::new(lab.linkd());
    client.watch_events(pb::WatchEventsRequest { after }).await.unwrap().into_inner()
}

#[tokio::test]
async fn a_change_is_an_event_with_its_instant_and_who_made_it() {
    let mut lab = Lab::new();
    let mut events = watch(&lab, None).await;
    let change = lab.set("viasat2").await.unwrap();
    let event = events.message().await.unwrap().unwrap();
    let applied = change.applied.unwrap();
    assert_eq!(event.kind(), pb::EventKind::LinkChanged);
    assert_eq!(event.generation, Some(applied.generation));
    assert_eq!((event.time_ns, event.utc), (Some(applied.effective_ns), applied.effective_utc));
    assert_eq!(event.subject, "viasat2");
    assert!(!event.who.is_empty());
}

#[tokio::test]
async fn who_comes_late_gets_what_is_kept_and_goes_on_where_they_were() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    lab.set("geo-600").await.unwrap();
    let mut all = watch(&lab, Some(0)).await;
    let mut kinds = Vec::new();
    for sequence in 1..=3 {
        let event = all.message().await.unwrap().unwrap();
        assert_eq!(event.sequence, sequence);
        kinds.push(event.kind());
    }
    use pb::EventKind::{LinkChanged, Started};
    assert_eq!(kinds, [Started, LinkChanged, LinkChanged]);
    let mut rest = watch(&lab, Some(2)).await;
    assert_eq!(rest.message().await.unwrap().unwrap().subject, "geo-600");
}

#[tokio::test]
async fn an_event_that_has_not_happened_is_another_linkds() {
    let lab = Lab::new();
    let mut client = EventsClient::new(lab.linkd());
    let status = client.watch_events(pb::WatchEventsRequest { after: Some(9) }).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    assert!(status.message().contains("watch from 0"), "{}", status.message());
}
