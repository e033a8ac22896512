// SPDX-License-Identifier: Apache-2.0
//! Access over TCP, permissions, and the audit log.

use crate::common::pki::{Ask, Authority, Pair, channel, tls};
use crate::common::{Lab, PATIENCE, only, rate, to_profile, to_values, until};
use linkd::{Limits, Listen, Reload, Security};
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::events_client::EventsClient;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use rcgen::ExtendedKeyUsagePurpose;
use serde_json::Value;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

const NAME: &str = "linkemu.lab";
const VIEWER: &[&str] = &["linkemu:role:viewer"];
const OPERATOR: &[&str] = &["linkemu:role:operator"];
const ADMIN: &[&str] = &["linkemu:role:admin"];

struct Secure {
    lab: Lab,
    authority: Authority,
    address: SocketAddr,
    reload: Reload,
}

impl Secure {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        Self::made(limits, |directory| directory.join("audit.jsonl"))
    }

    fn made(limits: Limits, audit: impl FnOnce(&Path) -> PathBuf) -> Self {
        let authority = Authority::new();
        let server = authority.sign(&Ask::server());
        let (lab, address, reload) = Lab::with(|directory| Security {
            listen: Some(Listen {
                address: "127.0.0.1:0".parse().unwrap(),
                tls: authority.files(directory, &server),
            }),
            audit: Some(audit(directory)),
            limits,
            ..Security::default()
        });
        Self { lab, authority, address: address.unwrap(), reload }
    }

    fn pair(&self, name: &str, uris: &[&str]) -> Pair {
        self.authority.sign(&Ask::client(name, uris))
    }

    fn channel(&self, own: Option<&Pair>) -> Channel {
        channel(self.authority.client(own), self.address, NAME)
    }

    fn client(&self, name: &str, uris: &[&str]) -> LinkemuClient<Channel> {
        LinkemuClient::new(self.channel(Some(&self.pair(name, uris))))
    }

    fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.lab.directory.path().join("audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for a line.
    async fn line(&self, is: impl Fn(&Value) -> bool) -> Value {
        until("a line in the audit log", async || self.audit().into_iter().find(&is)).await
    }

    async fn refused(&self, why: &str) {
        let line = self
            .line(|line| {
                let message = line["message"].as_str().unwrap_or_default();
                line["event"] == "handshake_refused" && message.contains(why)
            })
            .await;
        assert!(line["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    }

    /// It is up, and lets in who may come in. On a busy machine a handshake may take longer
    /// than a short limit allows; then it is tried again.
    async fn serves(&self) {
        let serving = async {
            let mut client = self.client("anybody", VIEWER);
            while client.list_profiles(pb::ListProfilesRequest::default()).await.is_err() {
                client = self.client("anybody", VIEWER);
            }
        };
        tokio::time::timeout(PATIENCE, serving).await.unwrap();
    }
}

fn named(name: &str) -> pb::UpdateLinksRequest {
    only(to_profile(name))
}

fn slower() -> pb::UpdateLinksRequest {
    only(to_values(&["rate_bps"], rate(1_000_000)))
}

fn denied(status: &Status, needed: &str, role: &str) {
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.reason, "ROLE_NEEDED");
    assert_eq!((&*info.metadata["needed"], &*info.metadata["role"]), (needed, role));
    assert!(status.message().contains("linkctl pki client --role"), "{status:?}");
}

#[tokio::test]
async fn who_shows_no_good_certificate_is_not_let_in_and_the_log_says_why() {
    let secure = Secure::new();
    let ask = Ask::client("mallory", ADMIN);
    let expired = Ask { days: (-2, -1), ..Ask::client("late", ADMIN) };
    let early = Ask { days: (1, 2), ..Ask::client("early", ADMIN) };
    let server = Ask { purpose: ExtendedKeyUsagePurpose::ServerAuth, ..Ask::client("s", ADMIN) };
    let sign = |ask| Some(secure.authority.sign(ask));
    for (own, why) in [
        (None, "no certificate"),
        (Some(ask.self_signed()), "self-signed, or of an authority that is not in"),
        (Some(Authority::named("b").sign(&ask)), "self-signed, or of an authority that is not in"),
        (Some(Authority::new().sign(&ask)), "another authority that has the name"),
        (sign(&expired), "has expired"),
        (sign(&early), "does not hold yet"),
        (sign(&server), "not one of a client"),
    ] {
        let before = secure.audit().len();
        let mut client = LinkemuClient::new(secure.channel(own.as_ref()));
        let status = client.update_links(named("viasat2")).await.unwrap_err();
        // Not linkd's answer: there is no connection.
        assert!(matches!(status.code(), Code::Unavailable | Code::Unknown), "{why}: {status:?}");
        assert!(std::error::Error::source(&status).is_some(), "{why}: {status:?}");
        let line = until("a line", async || secure.audit().get(before).cloned()).await;
        assert_eq!(line["event"], "handshake_refused", "{why}");
        assert!(line["message"].as_str().unwrap().contains(why), "{why}: {line}");
    }
    assert!(secure.lab.fake.state().applies.is_empty());
    secure.serves().await;
}

#[tokio::test]
async fn what_does_not_speak_tls_is_refused() {
    let secure = Secure::new();
    let mut plain = LinkemuClient::connect(format!("http://{}", secure.address)).await.unwrap();
    let status = plain.update_links(named("viasat2")).await.unwrap_err();
    assert!(
        matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal),
        "{status:?}"
    );
    secure.refused("that is not TLS").await;
    drop(TcpStream::connect(secure.address).await.unwrap());
    secure.refused("closed the connection").await;
    // A caller that looks for another name.
    let pair = secure.pair("ci-7", OPERATOR);
    let connector = secure.authority.client(Some(&pair));
    let error = tls(&connector, secure.address, "other.lab").await.unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    secure.refused("does not take this server's certificate").await;
    // And one that does not believe linkd's authority.
    let error =
        tls(&Authority::named("b").client(Some(&pair)), secure.address, NAME).await.unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    assert!(secure.lab.fake.state().applies.is_empty());
    secure.serves().await;
}

#[tokio::test]
async fn a_viewer_looks_and_changes_nothing() {
    let secure = Secure::new();
    let channel = secure.channel(Some(&secure.pair("eve", VIEWER)));
    let mut client = LinkemuClient::new(channel.clone());
    client.list_profiles(pb::ListProfilesRequest::default()).await.unwrap();
    client.get_profile(pb::GetProfileRequest { name: "viasat2".into() }).await.unwrap();
    client.get_link(pb::GetLinkRequest::default()).await.unwrap();
    client.get_stats(pb::GetStatsRequest::default()).await.unwrap();
    let mut watch = client.watch_stats(pb::WatchStatsRequest::default()).await.unwrap();
    assert!(watch.get_mut().message().await.unwrap().is_some());
    let request = pb::WatchEventsRequest { after: Some(0), ..Default::default() };
    EventsClient::new(channel).watch_events(request).await.unwrap();
    assert_eq!(secure.audit().len(), 1, "reads are not written down");

    denied(&client.update_links(named("viasat2")).await.unwrap_err(), "operator", "viewer");
    denied(&client.update_links(slower()).await.unwrap_err(), "operator", "viewer");
    let marking = pb::GetStatsRequest { mark: true, ..Default::default() };
    denied(&client.get_stats(marking).await.unwrap_err(), "operator", "viewer");
    assert!(secure.lab.fake.state().applies.is_empty());
    assert_eq!(secure.lab.fake.state().marks, 0);
    let log = secure.audit();
    for (line, method) in log[1..].iter().zip(["UpdateLinks", "UpdateLinks", "GetStats"]) {
        assert_eq!(line["event"], "refused");
        assert_eq!(line["who"], "eve");
        assert_eq!(line["role"], "viewer");
        assert_eq!(line["code"], "PERMISSION_DENIED");
        assert_eq!(line["method"], format!("linkemu.v1.Linkemu/{method}"));
        assert!(line["from"].as_str().unwrap().starts_with("127.0.0.1:"));
        assert!(line["time"].as_str().unwrap().ends_with('Z'));
    }
    assert_eq!(log.len(), 4);
}

#[tokio::test]
async fn an_operator_changes_the_link_and_the_log_has_what_became_of_it() {
    let secure = Secure::new();
    let mut client = secure.client("ci-7", OPERATOR);
    client.update_links(named("viasat2")).await.unwrap();
    client.update_links(slower()).await.unwrap();
    client.get_stats(pb::GetStatsRequest { mark: true, ..Default::default() }).await.unwrap();
    client.update_links(named("none")).await.unwrap_err();
    let log = secure.audit();
    let shown: Vec<_> = log[1..]
        .iter()
        .map(|line| {
            assert_eq!((&line["who"], &line["role"]), (&"ci-7".into(), &"operator".into()));
            let (event, code) = (line["event"].as_str().unwrap(), line["code"].as_str());
            (line["call"].as_u64().unwrap(), event, code, line["generation"].as_u64())
        })
        .collect();
    assert_eq!(
        shown,
        [
            (1, "asked", None, None),
            (1, "answered", Some("OK"), Some(1)),
            (2, "asked", None, None),
            (2, "answered", Some("OK"), Some(2)),
            (3, "asked", None, None),
            (3, "answered", Some("OK"), Some(2)),
            (4, "asked", None, None),
            (4, "answered", Some("NOT_FOUND"), None),
        ]
    );
    assert_eq!(log[1]["request"]["profile"]["name"], "viasat2");
    assert_eq!(log[3]["request"]["pipes"][0]["mask"][0], "rate_bps");
    assert_eq!(
        log[8]["message"].as_str().unwrap().split(':').next(),
        Some("no profile is named \"none\"")
    );
    // Events say who it was.
    let channel = secure.channel(Some(&secure.pair("eve", VIEWER)));
    let request = pb::WatchEventsRequest { after: Some(0), ..Default::default() };
    let mut events = EventsClient::new(channel).watch_events(request).await.unwrap().into_inner();
    let mut changes = Vec::new();
    // linkd's events, which come at any time, have no caller.
    while changes.len() < 2 {
        let event = events.message().await.unwrap().unwrap();
        if !event.who.is_empty() {
            changes.push((event.who, event.generation));
        }
    }
    assert_eq!(changes, [("ci-7".to_owned(), Some(1)), ("ci-7".to_owned(), Some(2))]);
}

#[tokio::test]
async fn change_made_after_its_deadline_is_an_event_and_in_the_log() {
    let secure = Secure::new();
    secure.lab.fake.state().stall = Some(Duration::from_millis(300));
    let status = secure.client("ci-7", OPERATOR).update_links(named("viasat2")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let late = secure.line(|line| line["event"] == "late").await;
    assert_eq!((&late["who"], &late["role"]), (&"ci-7".into(), &"operator".into()));
    assert_eq!((&late["call"], &late["generation"]), (&1.into(), &1.into()));
    let channel = secure.channel(Some(&secure.pair("eve", VIEWER)));
    let request = pb::WatchEventsRequest { after: Some(0), ..Default::default() };
    let mut events = EventsClient::new(channel).watch_events(request).await.unwrap().into_inner();
    let changed = loop {
        let event = events.message().await.unwrap().unwrap();
        if event.kind() == pb::EventKind::LinkChanged {
            break event;
        }
    };
    assert_eq!(
        (&*changed.who, &*changed.subject, changed.generation),
        ("ci-7", "viasat2", Some(1))
    );
    assert!(changed.message.contains("after its deadline"), "{}", changed.message);
}

#[tokio::test]
async fn what_linkd_does_not_know_needs_an_admin() {
    let secure = Secure::new();
    for (uris, code) in [(OPERATOR, Code::PermissionDenied), (ADMIN, Code::Unimplemented)] {
        let mut client = tonic::client::Grpc::new(secure.channel(Some(&secure.pair("x", uris))));
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<pb::GetLinkRequest, pb::Link>::default();
        let path = http::uri::PathAndQuery::from_static("/linkemu.v1.Leases/StealAll");
        let request = tonic::Request::new(pb::GetLinkRequest::default());
        let status = client.unary(request, path, codec).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
    }
    secure.line(|line| line["code"] == "PERMISSION_DENIED" && line["role"] == "operator").await;
    secure.line(|line| line["code"] == "UNIMPLEMENTED" && line["event"] == "answered").await;
}

#[tokio::test]
async fn a_certificate_without_one_name_and_one_role_may_nothing() {
    let secure = Secure::new();
    for (name, uris, why) in [
        ("bob", &[][..], "gives no role"),
        ("bob", &["linkemu:role:root"], "gives a role that is not"),
        ("bob", &["linkemu:role:viewer", "linkemu:role:admin"], "gives 2 roles"),
        ("bob\n{}", ADMIN, "control characters"),
    ] {
        let mut client = secure.client(name, uris);
        let status = client.list_profiles(pb::ListProfilesRequest::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains(why), "{status:?}");
        let line = secure
            .line(|line| line["message"].as_str().is_some_and(|message| message.contains(why)))
            .await;
        assert_eq!((&line["event"], &line["who"]), (&"refused".into(), &name.into()));
    }
}

#[tokio::test]
async fn without_a_log_nothing_is_changed_and_everything_is_read() {
    // A valid path at the start fails later: its directory is removed, and no other one can take
    // its place.
    let secure = Secure::made(Limits::default(), |directory| {
        std::fs::create_dir(directory.join("log")).unwrap();
        directory.join("log/audit.jsonl")
    });
    let mut client = secure.client("ci-7", OPERATOR);
    client.update_links(named("viasat2")).await.unwrap();
    let log = secure.lab.directory.path().join("log");
    std::fs::remove_dir_all(&log).unwrap();
    let status = client.update_links(named("geo-600")).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("cannot write down who makes them"), "{status:?}");
    assert!(status.message().contains("audit.jsonl"), "{status:?}");
    assert_eq!(secure.lab.in_force().name, "viasat2");
    client.get_link(pb::GetLinkRequest::default()).await.unwrap();
    assert!(secure.reload.reload().is_err());
    std::fs::create_dir(&log).unwrap();
    client.update_links(named("geo-600")).await.unwrap();
    let text = std::fs::read_to_string(log.join("audit.jsonl")).unwrap();
    assert!(text.lines().count() == 2 && text.contains("geo-600"), "{text}");
}

#[tokio::test]
async fn the_log_has_who_changes_the_link_over_the_unix_socket() {
    let mut secure = Secure::new();
    secure.lab.set("viasat2").await.unwrap();
    let line = secure.line(|line| line["event"] == "answered").await;
    assert_eq!((&line["from"], &line["role"]), (&"unix".into(), &"admin".into()));
    assert_ne!(line["who"], "unknown");
}

#[tokio::test]
async fn certificates_are_read_anew_and_connections_stay() {
    let secure = Secure::new();
    let mut client = secure.client("ci-7", OPERATOR);
    client.update_links(named("viasat2")).await.unwrap();
    let mut watch = secure.client("eve", VIEWER).watch_stats(hourly()).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    let (other, mine) = (Authority::named("b"), secure.pair("ci-7", OPERATOR));
    let directory = secure.lab.directory.path();
    other.files(directory, &other.sign(&Ask::server()));
    // The first half of it: a key and the certificate of another.
    std::fs::write(directory.join("server.key"), &mine.key).unwrap();
    let error = secure.reload.reload().unwrap_err().to_string();
    assert!(error.contains("is not that of the certificate"), "{error}");
    secure.serves().await;
    other.files(directory, &other.sign(&Ask::server()));
    let both = format!("{}{}", other.pem, secure.authority.pem);
    std::fs::write(directory.join("ca.pem"), both).unwrap();
    secure.reload.reload().unwrap();
    client.update_links(named("geo-600")).await.unwrap();
    let error = tls(&secure.authority.client(Some(&mine)), secure.address, NAME).await.unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    let theirs = other.sign(&Ask::client("new", VIEWER));
    let mut client = LinkemuClient::new(channel(other.client(Some(&theirs)), secure.address, NAME));
    client.list_profiles(pb::ListProfilesRequest::default()).await.unwrap();
    // Connections end with the authority that their certificates are of.
    std::fs::write(directory.join("ca.pem"), &other.pem).unwrap();
    secure.reload.reload().unwrap();
    ends(&mut watch, "an authority that is not in --tls-client-ca").await;
    client.list_profiles(pb::ListProfilesRequest::default()).await.unwrap();
    assert_eq!(secure.audit().iter().filter(|line| line["event"] == "reopened").count(), 3);
}

/// Statistics now, and in an hour.
fn hourly() -> pb::WatchStatsRequest {
    pb::WatchStatsRequest { interval_ns: 3_600_000_000_000, ..Default::default() }
}

async fn ends(watch: &mut tonic::Streaming<pb::Stats>, why: &str) {
    let status = tokio::time::timeout(PATIENCE, watch.message()).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    assert!(status.message().contains(why), "{status:?}");
}

#[tokio::test]
async fn stream_and_connection_end_with_their_certificate() {
    let secure = Secure::new();
    let short =
        secure.authority.sign(&Ask { days: (-1, 0), seconds: 3, ..Ask::client("a", VIEWER) });
    let client = || LinkemuClient::new(secure.channel(Some(&short)));
    let mut watch = client().watch_stats(hourly()).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    // One that does not read, and so is not told.
    let mut quiet =
        tls(&secure.authority.client(Some(&short)), secure.address, NAME).await.unwrap();
    let _ = quiet.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    ends(&mut watch, "has expired").await;
    let mut all = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, quiet.read_to_end(&mut all)).await.unwrap();
    assert!(client().get_link(pb::GetLinkRequest::default()).await.is_err());
    secure.refused("has expired").await;
}

#[tokio::test]
async fn revoked_certificate_is_refused_and_its_connection_ends() {
    let authority = Authority::new();
    let (bad, good) =
        ["mallory", "ci-7"].map(|name| authority.sign(&Ask::client(name, VIEWER))).into();
    let (lab, address, reload) = Lab::with(|directory| {
        let crl = directory.join("ca.crl");
        std::fs::write(&crl, authority.crl(&[])).unwrap();
        let files = authority.files(directory, &authority.sign(&Ask::server()));
        let tls = linkd::TlsFiles { client_crl: vec![crl], ..files };
        let listen = Some(Listen { address: "127.0.0.1:0".parse().unwrap(), tls });
        let audit = Some(directory.join("audit.jsonl"));
        Security { listen, audit, ..Security::default() }
    });
    let secure = Secure { lab, authority, address: address.unwrap(), reload };
    let watch = async |pair: &Pair| {
        let mut client = LinkemuClient::new(secure.channel(Some(pair)));
        let mut watch = client.watch_stats(hourly()).await.unwrap().into_inner();
        assert!(watch.message().await.unwrap().is_some());
        (client, watch)
    };
    let (_, mut ended) = watch(&bad).await;
    let (mut client, _watch) = watch(&good).await;
    let crl = secure.lab.directory.path().join("ca.crl");
    std::fs::write(&crl, "no list").unwrap();
    let error = secure.reload.reload().unwrap_err().to_string();
    assert!(error.contains("ca.crl holds no certificate revocation list"), "{error}");
    std::fs::write(&crl, secure.authority.crl(&[&bad])).unwrap();
    secure.reload.reload().unwrap();
    ends(&mut ended, "is revoked").await;
    client.get_link(pb::GetLinkRequest::default()).await.unwrap();
    let mut again = LinkemuClient::new(secure.channel(Some(&bad)));
    again.get_link(pb::GetLinkRequest::default()).await.unwrap_err();
    secure.refused("is revoked").await;
    // A list of another authority says nothing of ours.
    std::fs::write(&crl, Authority::named("b").crl(&[])).unwrap();
    secure.reload.reload().unwrap();
    let mut unknown = LinkemuClient::new(secure.channel(Some(&good)));
    unknown.get_link(pb::GetLinkRequest::default()).await.unwrap_err();
    secure.refused("no list of --tls-client-crl").await;
}

#[tokio::test]
async fn caller_has_so_many_connections_and_leaves_room_to_others() {
    let secure = Secure::with(Limits { per_caller: 3, ..Limits::default() });
    let pair = secure.pair("ci-7", OPERATOR);
    let list = pb::ListProfilesRequest::default();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = LinkemuClient::new(secure.channel(Some(&pair)));
        client.list_profiles(list.clone()).await.unwrap();
        clients.push(client);
    }
    let mut another = LinkemuClient::new(secure.channel(Some(&pair)));
    let status = another.list_profiles(list.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("3 connections of one caller are open"), "{status:?}");
    // Other callers, and the unix socket, are not counted with them.
    secure.serves().await;
    let mut local = secure.lab.client.clone();
    local.list_profiles(list.clone()).await.unwrap();
    // A slot comes back with the end of its connection.
    clients.pop();
    let fresh = || LinkemuClient::new(secure.channel(Some(&pair)));
    until("a slot", async || fresh().list_profiles(list.clone()).await.ok()).await;
    clients[0].list_profiles(list).await.unwrap();
}

#[tokio::test]
async fn idle_connections_without_a_certificate_keep_no_caller_out() {
    let handshake = Duration::from_secs(600);
    let secure = Secure::with(Limits { strangers: 8, handshake, ..Limits::default() });
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(TcpStream::connect(secure.address).await.unwrap());
    }
    secure
        .client("anybody", VIEWER)
        .list_profiles(pb::ListProfilesRequest::default())
        .await
        .unwrap();
    secure.refused("made room for another").await;
    // The oldest ones were closed.
    let ended = tokio::time::timeout(PATIENCE, idle[0].read(&mut [0])).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn handshakes_that_hang_hold_up_nobody_and_end() {
    let handshake = Duration::from_millis(300);
    let secure = Secure::with(Limits { handshake, ..Limits::default() });
    let mut hanging = Vec::new();
    for n in 0..8 {
        let mut stream = TcpStream::connect(secure.address).await.unwrap();
        // Some begin a handshake and then send nothing.
        if n % 2 == 0 {
            stream.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        }
        hanging.push(stream);
    }
    secure.serves().await;
    // And one that says little after it.
    let pair = secure.pair("ci-7", OPERATOR);
    let connector = secure.authority.client(Some(&pair));
    let connecting = async {
        loop {
            if let Ok(stream) = tls(&connector, secure.address, NAME).await {
                return stream;
            }
        }
    };
    let mut silent = tokio::time::timeout(PATIENCE, connecting).await.unwrap();
    // One that begins a greeting and does not end it holds its slot no longer.
    let _ = silent.write_all(b"P").await;
    for stream in &mut hanging {
        let mut buffer = [0; 64];
        let ended = tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await.unwrap();
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
    let mut all = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut all)).await.unwrap();
    secure.refused("were not there within 300ms").await;
    secure.serves().await;
}

#[tokio::test]
async fn greetings_that_hang_lock_nobody_out_of_the_unix_socket() {
    let handshake = Duration::from_secs(2);
    let secure = Secure::with(Limits { connections: 8, handshake, ..Limits::default() });
    let socket = secure.lab.directory.path().join("linkd.sock");
    let begun = std::time::Instant::now();
    let mut hanging = Vec::new();
    for _ in 0..8 {
        let mut stream = tokio::net::UnixStream::connect(&socket).await.unwrap();
        stream.write_all(b"P").await.unwrap();
        hanging.push(stream);
    }
    let mut client = LinkemuClient::new(secure.lab.linkd());
    let answer = client.list_profiles(pb::ListProfilesRequest::default()).await;
    // On a busy machine they may be gone by now.
    if begun.elapsed() < handshake {
        let status = answer.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert!(status.message().contains("8 connections of all callers"), "{status:?}");
    }
    for stream in &mut hanging {
        // linkd's own greeting, and the end.
        let mut all = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.unwrap();
    }
    let list = pb::ListProfilesRequest::default();
    until("a slot", async || client.list_profiles(list.clone()).await.ok()).await;
}

#[tokio::test]
async fn who_does_not_answer_loses_the_connection() {
    let short = Duration::from_millis(100);
    let secure = Secure::with(Limits { quiet: short, dead: short, ..Limits::default() });
    let pair = secure.pair("ci-7", OPERATOR);
    let mut dead = tls(&secure.authority.client(Some(&pair)), secure.address, NAME).await.unwrap();
    // An HTTP/2 client that answers no PING: its preface and empty SETTINGS.
    // The write fails if this thread was held up for longer than linkd waits.
    let _ = dead.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let mut all = Vec::new();
    let read = tokio::time::timeout(PATIENCE, dead.read_to_end(&mut all)).await;
    assert!(read.is_ok(), "it is still open");
}

#[tokio::test]
async fn what_is_too_long_is_refused() {
    let secure = Secure::new();
    let mut client = secure.client("ci-7", OPERATOR);
    let status = client.update_links(named(&"x".repeat(profile::MESSAGE_BYTES))).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    let name = "x".repeat(profile::MESSAGE_BYTES);
    let status = client.get_profile(pb::GetProfileRequest { name }).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    let mut request = tonic::Request::new(named("viasat2"));
    request.metadata_mut().insert("x", "y".repeat(32 << 10).parse().unwrap());
    client.update_links(request).await.unwrap_err();
    assert!(secure.lab.fake.state().applies.is_empty());
    let longest = std::fs::read_to_string(secure.lab.directory.path().join("audit.jsonl")).unwrap();
    assert!(longest.lines().all(|line| line.len() < 4_096));
    secure.serves().await;
}

#[tokio::test]
async fn settings_that_are_no_good_are_refused_with_the_reason() {
    use linkd::{Server, Settings};
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let authority = Authority::new();
    let bind = |listen: Listen| {
        Server::bind(Settings {
            socket: at("linkd.sock"),
            dataplane: at("dataplane.sock"),
            catalog: profile::Catalog::built_in(),
            state: None,
            security: Security { listen: Some(listen), ..Security::default() },
        })
    };
    let good = || Listen {
        address: "127.0.0.1:0".parse().unwrap(),
        tls: authority.files(directory.path(), &authority.sign(&Ask::server())),
    };
    bind(good()).unwrap();
    let fails = |listen: Listen, expected: &str| {
        let error = bind(listen).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!at("linkd.sock").exists());
    };
    let listen = good();
    std::fs::set_permissions(at("server.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    fails(listen, "mode 0644");
    let listen = good();
    std::fs::write(at("server.key"), authority.sign(&Ask::server()).key).unwrap();
    fails(listen, "is not that of the certificate in");
    let old = Ask { days: (-2, -1), ..Ask::server() };
    let tls = authority.files(directory.path(), &authority.sign(&old));
    fails(Listen { tls, ..good_address() }, "it expired at");
    let mut listen = good();
    listen.tls.cert = at("none.pem");
    fails(listen, "cannot read");
    let mut listen = good();
    listen.tls.client_ca = listen.tls.cert.clone();
    fails(listen, "not that of an authority");
    let mut listen = good();
    std::fs::write(at("ca.crl"), "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")
        .unwrap();
    listen.tls.client_crl = vec![at("ca.crl")];
    fails(listen, "ca.crl");
    let listen = good();
    std::fs::File::create(at("ca.pem")).unwrap().write_all(b"no pem").unwrap();
    fails(listen, "holds no certificate");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    fails(Listen { address: taken.local_addr().unwrap(), ..good() }, "cannot listen on");
}

fn good_address() -> Listen {
    let none = PathBuf::new;
    let tls =
        linkd::TlsFiles { cert: none(), key: none(), client_ca: none(), client_crl: Vec::new() };
    Listen { address: "127.0.0.1:0".parse().unwrap(), tls }
}
