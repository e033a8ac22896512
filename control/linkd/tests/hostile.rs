// SPDX-License-Identifier: Apache-2.0
//! Calls of all roles and noise over the network. Drawn requests of all methods are in `tests/fuzz`.

use crate::common::pki::{Ask, Authority, channel, tls};
use crate::common::{Lab, only, rate, to_profile, to_values};
use linkd::{Limits, Listen, Security};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::Code;

/// Says so much and waits for the end, which may come in the middle of it. A connection that
/// linkd keeps is left after a second.
async fn say(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) {
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.read_to_end(&mut rest)).await;
}

/// Over TCP: calls of all roles, random bytes before and after the handshake.
#[tokio::test]
async fn nothing_over_the_network_makes_linkd_panic_or_pass_the_gate() {
    const ROLES: [&str; 3] = ["linkemu:role:viewer", "linkemu:role:operator", "linkemu:role:none"];
    let authority = Authority::new();
    let server = authority.sign(&Ask::server());
    let (lab, address, _) = Lab::with(|directory| Security {
        listen: Some(Listen {
            address: "127.0.0.1:0".parse().unwrap(),
            tls: authority.files(directory, &server),
        }),
        audit: Some(directory.join("audit.jsonl")),
        // All come at once.
        limits: Limits { per_caller: 100, ..Limits::default() },
        ..Security::default()
    });
    let address = address.unwrap();
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]),
    );
    let pairs = ROLES.map(|role| authority.sign(&Ask::client("x", &[role])));
    let mut clients = pairs.each_ref().map(|pair| {
        let connector = authority.client(Some(pair));
        LinkemuClient::new(channel(connector, address, "linkemu.lab"))
    });
    let mut changes = 0;
    for n in 0..300 {
        let who = n % ROLES.len();
        let name = ["viasat2", "none"][n / ROLES.len() % 2];
        let (set, patch) = (to_profile(name), to_values(&["rate_bps"], rate(50_000)));
        for request in [only(set), only(patch)] {
            match (who, clients[who].update_links(request).await) {
                (1, Ok(_)) => changes += 1,
                (1, Err(status)) => assert_eq!(status.code(), Code::NotFound),
                (_, answer) => {
                    assert_eq!(answer.unwrap_err().code(), Code::PermissionDenied, "{who}");
                }
            }
        }
        assert_eq!(lab.fake.state().generation, changes);
    }
    assert_eq!(changes, 150);
    let bytes = vec(any::<u8>(), 0..600);
    let mut noises = JoinSet::new();
    for n in 0..60 {
        let noise = bytes.new_tree(&mut runner).unwrap().current();
        let connector = authority.client(Some(&pairs[1]));
        noises.spawn(async move {
            if n % 2 == 0 {
                say(TcpStream::connect(address).await.unwrap(), &noise).await;
                return;
            }
            // Half of them after the preface of HTTP/2.
            let preface: &[u8] = if n % 4 == 1 { b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" } else { &[] };
            let stream = tls(&connector, address, "linkemu.lab").await.unwrap();
            say(stream, &[preface, &noise].concat()).await;
        });
    }
    noises.join_all().await;
    let list = pb::ListProfilesRequest::default();
    clients[0].list_profiles(list).await.unwrap();
    assert_eq!(lab.fake.state().generation, changes);
    let text = std::fs::read_to_string(lab.directory.path().join("audit.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    // Two calls in each of 100 rounds.
    assert_eq!((count("asked"), count("answered")), (200, 200));
    assert!(count("refused") >= 200, "{}", count("refused"));
    assert!(count("handshake_refused") > 0);
}
