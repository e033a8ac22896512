// SPDX-License-Identifier: Apache-2.0
//! Watchers get every event in order and once.

use crate::common::Lab;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::events_client::EventsClient;
use tonic::Code;

async fn watch(lab: &Lab, after: Option<u64>) -> tonic::Streaming<pb::Event> {
    let mut client = EventsClient::new(lab.linkd());
    client.watch_events(pb::WatchEventsRequest { after, once: false }).await.unwrap().into_inner()
}

#[tokio::test]
async fn a_change_is_an_event_with_its_instant_and_who_made_it() {
    let mut lab = Lab::new();
    let mut events = watch(&lab, None).await;
    let change = lab.set("viasat2").await.unwrap();
    let mut event = events.message().await.unwrap().unwrap();
    if event.kind() == pb::EventKind::DataplaneFound {
        event = events.message().await.unwrap().unwrap();
    }
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
    let last = loop {
        let event = all.message().await.unwrap().unwrap();
        assert_eq!(event.sequence, kinds.len() as u64 + 1);
        kinds.push(event.kind());
        if event.subject == "geo-600" {
            break event.sequence;
        }
    };
    use pb::EventKind::{DataplaneFound, LinkChanged, Started};
    kinds.retain(|kind| *kind != DataplaneFound);
    assert_eq!(kinds, [Started, LinkChanged, LinkChanged]);
    let mut rest = watch(&lab, Some(last - 1)).await;
    assert_eq!(rest.message().await.unwrap().unwrap().subject, "geo-600");
    // A watcher with `once` gets an end.
    let mut client = EventsClient::new(lab.linkd());
    let request = pb::WatchEventsRequest { after: Some(last - 1), once: true };
    let mut kept = client.watch_events(request).await.unwrap().into_inner();
    assert_eq!(kept.message().await.unwrap().unwrap().subject, "geo-600");
    while kept.message().await.unwrap().is_some() {}
}

#[tokio::test]
async fn an_event_that_has_not_happened_is_another_linkds() {
    let lab = Lab::new();
    let mut client = EventsClient::new(lab.linkd());
    let request = pb::WatchEventsRequest { after: Some(9), once: true };
    let status = client.watch_events(request).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    assert!(status.message().contains("watch from 0"), "{}", status.message());
}
