// SPDX-License-Identifier: Apache-2.0
//! Samples of the links' statistics.

use crate::common::{Lab, until};
use linkd::{Security, WebListen};
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::history_client::HistoryClient;
use proto::linkemu::v1::links_client::LinksClient;
use std::time::{Duration, Instant};
use tonic::Code;
use tonic::transport::Channel;

const TENTH_NS: u64 = 100_000_000;

/// Its dataplane has `lab1` besides `main`.
async fn two_links(lab: &Lab) {
    let link = pb::NamedLink::default();
    let request = pb::CreateLinkRequest { link_id: "lab1".into(), link: Some(link) };
    LinksClient::new(lab.linkd()).create_link(request).await.unwrap();
}

fn client(lab: &Lab) -> HistoryClient<Channel> {
    HistoryClient::new(lab.linkd())
}

async fn history(client: &mut HistoryClient<Channel>, interval_ns: u64) -> Vec<pb::LinkSample> {
    let request = pb::GetHistoryRequest { interval_ns, ..Default::default() };
    client.get_history(request).await.unwrap().into_inner().samples
}

#[tokio::test]
async fn one_stream_samples_all_links_ten_times_a_second_and_what_it_saw_is_kept() {
    let mut lab = Lab::new();
    lab.set("viasat2").await.unwrap();
    two_links(&lab).await;
    let mut client = client(&lab);
    assert!(history(&mut client, 0).await.is_empty());
    let request = pb::WatchLinksRequest { interval_ns: TENTH_NS, links: Vec::new() };
    let mut stream = client.watch_links(request).await.unwrap().into_inner();
    let since = Instant::now();
    for _ in 0..6 {
        let samples = stream.message().await.unwrap().unwrap().samples;
        let names: Vec<_> = samples.iter().map(|sample| sample.link.as_str()).collect();
        assert_eq!(names, ["links/lab1", "links/main"]);
    }
    // Five intervals; on a busy machine more time passes.
    assert!(since.elapsed() >= Duration::from_millis(250), "{:?}", since.elapsed());
    let samples = history(&mut client, TENTH_NS).await;
    assert!(samples.len() >= 6, "{}", samples.len());
    assert!(samples.windows(2).all(|two| two[0].time_ns <= two[1].time_ns));
    let of_link = |name: &str| pb::GetHistoryRequest { link: name.into(), ..Default::default() };
    let samples = client.get_history(of_link("links/lab1")).await.unwrap().into_inner().samples;
    assert_eq!(samples[0].link, "links/lab1");
    let status = client.get_history(of_link("links/none")).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn watcher_can_name_links_and_wrong_requests_name_the_limit() {
    let lab = Lab::new();
    two_links(&lab).await;
    let mut client = client(&lab);
    let links = vec!["links/lab1".to_owned()];
    let request = pb::WatchLinksRequest { interval_ns: 0, links };
    let mut stream = client.watch_links(request).await.unwrap().into_inner();
    let samples = stream.message().await.unwrap().unwrap().samples;
    assert_eq!((samples.len(), samples[0].link.as_str()), (1, "links/lab1"));
    for (interval_ns, link, code, why) in [
        (1, "links/main", Code::InvalidArgument, "100 ms to 1 h"),
        (0, "links/none", Code::NotFound, "none"),
    ] {
        let request = pb::WatchLinksRequest { interval_ns, links: vec![link.into()] };
        let status = client.watch_links(request).await.unwrap_err();
        assert_eq!(status.code(), code);
        assert!(status.message().contains(why), "{status:?}");
    }
    let request = pb::GetHistoryRequest { interval_ns: 5, ..Default::default() };
    let status = client.get_history(request).await.unwrap_err();
    assert!(status.message().contains("100 ms"), "{status:?}");
}

#[tokio::test]
async fn linkd_with_a_web_page_samples_without_a_watcher() {
    let (lab, ..) = Lab::with(|_| Security {
        web: Some(WebListen {
            address: "127.0.0.1:0".parse().unwrap(),
            hosts: Vec::new(),
            tls: None,
            insecure: false,
        }),
        ..Security::default()
    });
    let mut client = client(&lab);
    until("samples", async || (history(&mut client, 0).await.len() > 1).then_some(())).await;
}
