// SPDX-License-Identifier: Apache-2.0
//! The web page: login, sessions, and requests that are no own page's.

use crate::common::pki::{Ask, Authority, Pair, channel, tls};
use crate::common::{Lab, PATIENCE, only, rate, to_profile, to_values};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_TYPE, COOKIE, HOST, HeaderMap, ORIGIN, SET_COOKIE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use linkd::{Limits, Listen, Security, WebListen};
use pcap_file::pcapng::{Block, PcapNgReader};
use prost::Message;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::web_client::WebClient;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

const GRPC_WEB: &str = "application/grpc-web+proto";
const JSON: &str = "application/json";
/// The body of a request for another profile.
const SET: &str = r#"{"updates": [{"profile": {"name": "viasat2"}}]}"#;

/// A linkd with a web page, and an audit log.
struct Site {
    lab: Lab,
    address: SocketAddr,
}

/// An answer that has been read.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The status of a call over gRPC-Web: in the headers, or in the last frame of the body.
    fn code(&self) -> Code {
        let text = match self.headers.get("grpc-status") {
            Some(status) => status.to_str().unwrap().to_owned(),
            None => {
                let trailers = String::from_utf8_lossy(&self.body).into_owned();
                let (_, status) = trailers.rsplit_once("grpc-status:").unwrap();
                status.split("\r\n").next().unwrap().to_owned()
            }
        };
        Code::from_bytes(text.trim().as_bytes())
    }

    /// The first message of an answer over gRPC-Web.
    fn message<M: Message + Default>(&self) -> M {
        let length = u32::from_be_bytes(self.body[1..5].try_into().unwrap()) as usize;
        M::decode(&self.body[5..5 + length]).unwrap()
    }

    /// The cookie that it sets, without its attributes.
    fn cookie(&self) -> String {
        let cookie = self.headers[SET_COOKIE].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }
}

fn listen() -> WebListen {
    let address = "127.0.0.1:0".parse().unwrap();
    WebListen { address, hosts: Vec::new(), tls: None, insecure: false }
}

/// The body of a call over gRPC-Web.
fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &message].concat()
}

impl Site {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let (lab, ..) = Lab::with(|directory| Security {
            web: Some(listen()),
            audit: Some(directory.join("audit.jsonl")),
            limits,
            ..Security::default()
        });
        let address = lab.web.unwrap();
        Self { lab, address }
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A request as our page would send it; `headers` replace those of the same name, or remove
    /// them with an empty value.
    fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method).uri(path);
        let map = request.headers_mut().unwrap();
        map.insert(HOST, self.address.to_string().parse().unwrap());
        map.insert(ORIGIN, self.origin().parse().unwrap());
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            map.remove(&name);
            if !value.is_empty() {
                map.insert(name, value.parse().unwrap());
            }
        }
        request.body(Full::new(body.into())).unwrap()
    }

    async fn open(&self, request: Request<Full<Bytes>>) -> http::Response<Incoming> {
        self.try_to_open(request).await.unwrap()
    }

    async fn try_to_open(
        &self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<http::Response<Incoming>> {
        let io = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Answer {
        read(self.open(request).await).await
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(self.request(Method::GET, path, headers, "")).await
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        self.send(self.request(Method::POST, path, headers, body)).await
    }

    /// A call over gRPC-Web.
    async fn call(&self, method: &str, headers: &[(&str, &str)], message: &impl Message) -> Answer {
        let headers = [&[("content-type", GRPC_WEB)], headers].concat();
        self.post(&format!("/linkemu.v1.{method}"), &headers, framed(message)).await
    }

    /// The token of a login link.
    async fn link(&self, role: &str) -> String {
        let mut client = WebClient::new(self.lab.linkd());
        let request = pb::CreateWebLoginRequest { role: role.into() };
        let answer = client.create_web_login(request).await.unwrap().into_inner();
        assert_eq!(answer.url, format!("{}{}", self.origin(), answer.path));
        answer.path.strip_prefix("/login#").unwrap().to_owned()
    }

    async fn redeem(&self, token: &str, headers: &[(&str, &str)]) -> Answer {
        let headers = [&[("content-type", JSON)], headers].concat();
        self.post("/login", &headers, format!("{{\"token\":\"{token}\"}}")).await
    }

    /// The cookie of a new session.
    async fn login(&self, role: &str) -> String {
        let token = self.link(role).await;
        let answer = self.redeem(&token, &[]).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
        answer.cookie()
    }

    /// A call in JSON.
    async fn json(&self, method: &str, cookie: &str, body: impl Into<Bytes>) -> Answer {
        let headers = [("content-type", JSON), ("cookie", cookie)];
        self.post(&format!("/linkemu.v1.{method}"), &headers, body).await
    }

    fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.lab.directory.path().join("audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last line of the log, which has to be about a refusal.
    fn refused(&self, code: &str, why: &str) -> Value {
        let line = self.audit().pop().unwrap();
        assert_eq!((&line["event"], &line["code"]), (&"refused".into(), &code.into()), "{line}");
        assert!(line["message"].as_str().unwrap().contains(why), "{line}");
        assert!(line["from"].as_str().unwrap().starts_with("web 127.0.0.1:"), "{line}");
        line
    }
}

async fn read(response: http::Response<Incoming>) -> Answer {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: head.status, headers: head.headers, body }
}

fn slower() -> pb::UpdateLinksRequest {
    only(to_values(&["rate_bps"], rate(1_000_000)))
}

fn named(name: &str) -> pb::UpdateLinksRequest {
    only(to_profile(name))
}

#[tokio::test]
async fn login_link_starts_a_session_with_its_role_and_the_log_names_it() {
    let site = Site::new();
    let answer = site.redeem(&site.link("operator").await, &[]).await;
    let cookie = answer.headers[SET_COOKIE].to_str().unwrap();
    let attributes = "; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict";
    assert!(cookie.starts_with("linkemu-session=") && cookie.ends_with(attributes), "{cookie}");
    let cookie = answer.cookie();
    let answer = site.call("Web/GetCaller", &[("cookie", &cookie)], &pb::GetCallerRequest {}).await;
    assert_eq!(answer.code(), Code::Ok);
    let caller: pb::GetCallerResponse = answer.message();
    assert_eq!(caller.role, "operator");
    assert!(caller.session_expires.is_some());
    let answer = site.call("Linkemu/UpdateLinks", &[("cookie", &cookie)], &named("viasat2")).await;
    assert_eq!(answer.code(), Code::Ok);
    assert_eq!(site.lab.in_force().name, "viasat2");
    let lines = site.audit();
    let [.., login, asked, answered] = &*lines else { panic!("{lines:?}") };
    assert_eq!((&login["event"], &login["who"]), (&"login".into(), &caller.name.into()));
    for line in [asked, answered] {
        assert_eq!((&line["who"], &line["session"]), (&login["who"], &1.into()), "{line}");
        assert_eq!(line["method"], "linkemu.v1.Linkemu/UpdateLinks");
        assert!(line["from"].as_str().unwrap().starts_with("web 127.0.0.1:"), "{line}");
    }
    assert_eq!(answered["generation"], 1);
}

#[tokio::test]
async fn viewer_cannot_post_a_change() {
    let site = Site::new();
    let cookie = site.login("viewer").await;
    let answer = site.call("Linkemu/UpdateLinks", &[("cookie", &cookie)], &slower()).await;
    assert_eq!(answer.code(), Code::PermissionDenied);
    let line = site.refused("PERMISSION_DENIED", "linkctl web --role operator");
    assert_eq!((&line["role"], &line["session"]), (&"viewer".into(), &1.into()));
    assert!(site.lab.fake.state().plan.is_none());
    // Nor can it make itself another session.
    let request = pb::CreateWebLoginRequest::default();
    let answer = site.call("Web/CreateWebLogin", &[("cookie", &cookie)], &request).await;
    assert_eq!(answer.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn token_is_refused_the_second_time_and_after_its_time() {
    let site = Site::new();
    let token = site.link("viewer").await;
    assert_eq!(site.redeem(&token, &[]).await.status, StatusCode::NO_CONTENT);
    for token in [&*token, "", "x"] {
        let answer = site.redeem(token, &[]).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        assert!(answer.headers.get(SET_COOKIE).is_none());
        assert_eq!(answer.json()["code"], "unauthenticated");
        site.refused("UNAUTHENTICATED", "linkctl web");
    }
    let site = Site::with(Limits { web_link: Duration::ZERO, ..Limits::default() });
    let token = site.link("viewer").await;
    assert_eq!(site.redeem(&token, &[]).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn session_id_is_new_at_login_and_dead_after_logout() {
    let site = Site::new();
    // One that an attacker chose.
    let planted = format!("linkemu-session={}", "0".repeat(64));
    let token = site.link("admin").await;
    let answer = site.redeem(&token, &[("cookie", &planted)]).await;
    let first = answer.cookie();
    assert_ne!(first, planted);
    let who = async |cookie: &str| {
        let request = pb::GetCallerRequest {};
        site.call("Web/GetCaller", &[("cookie", cookie)], &request).await.code()
    };
    assert_eq!(who(&planted).await, Code::Unauthenticated);
    assert_eq!(who(&first).await, Code::Ok);
    let token = site.link("admin").await;
    let second = site.redeem(&token, &[("cookie", &first)]).await.cookie();
    assert_eq!((who(&first).await, who(&second).await), (Code::Unauthenticated, Code::Ok));
    let headers = [("cookie", &*second), ("content-type", JSON)];
    let answer = site.post("/logout", &headers, "{}").await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert!(answer.headers[SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(who(&second).await, Code::Unauthenticated);
}

#[tokio::test]
async fn session_ends_with_its_lifetime_and_its_streams_say_so() {
    let limits = Limits { web_session: Duration::from_millis(500), ..Limits::default() };
    let site = Site::with(limits);
    let cookie = site.login("viewer").await;
    let request = pb::WatchEventsRequest::default();
    let answer = site.call("Events/WatchEvents", &[("cookie", &cookie)], &request).await;
    assert_eq!(answer.code(), Code::Unauthenticated);
    assert!(String::from_utf8_lossy(&answer.body).contains("session"), "{:?}", answer.body);
}

#[tokio::test]
async fn request_of_another_page_is_refused_and_audited() {
    let site = Site::new();
    let cookie = site.login("admin").await;
    let attacks: [&[(&str, &str)]; 6] = [
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", "")],
        &[("origin", "http://127.0.0.1:1")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
    ];
    for attack in attacks {
        let headers = [attack, &[("cookie", &*cookie)]].concat();
        let answer = site.call("Linkemu/UpdateLinks", &headers, &named("viasat2")).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{attack:?}");
        let line = site.refused("PERMISSION_DENIED", "");
        assert_eq!(line["method"], "/linkemu.v1.Linkemu/UpdateLinks");
    }
    // What a form can send.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        let headers = [("content-type", kind), ("cookie", &*cookie)];
        for path in ["/linkemu.v1.Linkemu/UpdateLinks", "/login", "/logout"] {
            let answer = site.post(path, &headers, framed(&named("viasat2"))).await;
            assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
        }
    }
    // A link that the browser follows.
    let answer = site.get("/linkemu.v1.Linkemu/UpdateLinks", &[("cookie", &cookie)]).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(site.lab.fake.state().plan.is_none());
}

#[tokio::test]
async fn name_that_resolves_to_this_address_is_refused() {
    let site = Site::new();
    let cookie = site.login("admin").await;
    for host in ["evil.example", "evil.example:8480", "127.0.0.1.evil.example", "localhost@evil"] {
        let answer = site.get("/", &[("host", host)]).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{host}");
        let origin = format!("http://{host}");
        let headers = [("host", host), ("origin", &origin), ("cookie", &cookie)];
        let answer = site.call("Web/GetCaller", &headers, &pb::GetCallerRequest {}).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{host}");
        site.refused("PERMISSION_DENIED", "no name of this box");
    }
    assert_eq!(site.get("/", &[("host", "localhost:8480")]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn every_answer_forbids_frames_and_foreign_content() {
    let site = Site::new();
    let answers = [
        site.get("/", &[]).await,
        site.get("/login", &[]).await,
        site.get("/none.js", &[]).await,
        site.get("/", &[("host", "evil.example")]).await,
        site.call("Web/GetCaller", &[], &pb::GetCallerRequest {}).await,
    ];
    for Answer { headers, .. } in answers {
        let policy = headers["content-security-policy"].to_str().unwrap();
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{policy}");
        }
        assert_eq!(headers["x-frame-options"], "DENY");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert_eq!(headers["cross-origin-opener-policy"], "same-origin");
        assert!(headers.contains_key("cache-control"));
        assert!(!headers.contains_key("access-control-allow-origin"));
    }
}

#[tokio::test]
async fn path_that_leads_out_of_the_application_is_refused() {
    let site = Site::new();
    for path in ["/../etc/passwd", "/assets/../../etc/passwd", "/%2e%2e/etc/passwd", "/a%2f..%2fb"]
    {
        let mut io = TcpStream::connect(site.address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        io.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        io.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && !answer.contains("root:"), "{answer}");
        assert_eq!(site.refused("INVALID_ARGUMENT", "path")["method"], path);
    }
}

#[tokio::test]
async fn json_call_is_answered_in_json_and_errors_have_an_http_status() {
    let site = Site::new();
    let cookie = site.login("operator").await;
    let answer = site.json("Linkemu/UpdateLinks", &cookie, SET).await;
    assert_eq!(
        (answer.status, &answer.headers[CONTENT_TYPE]),
        (StatusCode::OK, &JSON.parse().unwrap())
    );
    let answer = answer.json();
    // 64-bit integers are strings.
    let link = &answer["links"][0];
    assert_eq!(link["applied"]["generation"], "1", "{answer}");
    assert_eq!(link["profile"]["name"], "viasat2");
    for (method, body, status, code, why) in [
        ("Linkemu/GetProfile", r#"{"name": "viasat3"}"#, 404, "not_found", "viasat2"),
        ("Linkemu/UpdateLinks", r#"{"nmae": []}"#, 400, "invalid_argument", "nmae"),
        ("Linkemu/UpdateLinks", "{", 400, "invalid_argument", "as JSON"),
        ("Linkemu/UpdateLinks", "{} {}", 400, "invalid_argument", "trailing"),
        ("Linkemu/WatchStats", r#"{"intervalNs": "1"}"#, 400, "invalid_argument", "10 ms"),
        (
            "Leases/AcquireLease",
            r#"{"holder": "a", "ttlNs": "1000000000", "steal": true}"#,
            403,
            "permission_denied",
            "with steal",
        ),
    ] {
        let answer = site.json(method, &cookie, body).await;
        assert_eq!(answer.status.as_u16(), status, "{body}: {}", answer.json());
        let answer = answer.json();
        assert_eq!(answer["code"], code, "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(why), "{answer}");
    }
    let answer = site.json("Linkemu/GetProfile", &cookie, r#"{"name": "none"}"#).await.json();
    assert_eq!(answer["details"][0]["type"], "google.rpc.ResourceInfo", "{answer}");
    let answer = site.json("Linkemu/GetLink", "", "{}").await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    let answer = site.json("Linkemu/None", &cookie, "{}").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(site.lab.fake.state().generation, 1);
}

#[tokio::test]
async fn json_stream_has_a_line_for_each_message() {
    let site = Site::new();
    let cookie = site.login("viewer").await;
    let request = r#"{"after": "0", "once": true}"#;
    let answer = site.json("Events/WatchEvents", &cookie, request).await;
    assert_eq!(answer.headers[CONTENT_TYPE], "application/x-ndjson");
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["result"]["kind"], "EVENT_KIND_STARTED", "{text}");
    assert_eq!(lines[0]["result"]["sequence"], "1");
}

#[tokio::test]
async fn oversized_and_deeply_nested_json_is_refused_with_the_limit_and_audited() {
    let site = Site::new();
    let cookie = site.login("operator").await;
    let long = format!("{{\"requestId\": \"{}\"}}", "a".repeat(3 << 20));
    let answer = site.json("Linkemu/UpdateLinks", &cookie, long).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let limit = "longer than the 3145728 bytes";
    assert!(answer.json()["message"].as_str().unwrap().contains(limit), "{}", answer.json());
    assert_eq!(site.refused("OUT_OF_RANGE", limit)["session"], 1);
    for (open, close) in [("[", "]"), ("{\"inline\":", "}")] {
        let deep = open.repeat(1_000) + &close.repeat(1_000);
        let deep = format!("{{\"updates\": {deep}}}");
        let answer = site.json("Linkemu/UpdateLinks", &cookie, deep).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        site.refused("INVALID_ARGUMENT", "as JSON");
    }
    // Before the login there is no reading: the connection may end before the answer is read.
    let path = "/linkemu.v1.Linkemu/UpdateLinks";
    let headers = [("content-type", JSON)];
    let request = site.request(Method::POST, path, &headers, "{".repeat(4 << 20));
    if let Ok(answer) = site.try_to_open(request).await {
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    }
    site.refused("UNAUTHENTICATED", "linkctl web");
}

#[tokio::test]
async fn capture_is_downloaded_as_a_pcapng_file() {
    let site = Site::new();
    let packet = |n: u64| pb::CapturedPacket {
        time_ns: n,
        number: n,
        direction: pb::Direction::Forward.into(),
        point: pb::CapturePoint::Egress.into(),
        length: 100,
        data: vec![n as u8; 100],
        ..Default::default()
    };
    let start = pb::CaptureStart { snaplen: 128, profile: "geo".into(), ..Default::default() };
    site.lab.fake.state().capture = (0..3)
        .map(|n| pb::CaptureChunk {
            start: (n == 0).then(|| start.clone()),
            clients: vec!["10.0.0.2".into()],
            packets: (1..=100).rev().map(|i| packet(100 * n + i)).collect(),
            time_ns: 100 * (n + 1),
            ..Default::default()
        })
        .collect();
    let cookie = site.login("operator").await;
    let accept = ("accept", "application/x-pcapng");
    let headers = [("content-type", JSON), ("cookie", &*cookie), accept];
    let path = "/linkemu.v1.Captures/Capture";
    let answer = site.post(path, &headers, r#"{"direction": "DIRECTION_FORWARD"}"#).await;
    assert_eq!(answer.headers[CONTENT_TYPE], accept.1);
    let mut reader = PcapNgReader::new(&answer.body[..]).unwrap();
    let mut times = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            times.push(packet.timestamp.as_nanos());
            assert_eq!(packet.original_len, 100);
        }
    }
    assert_eq!(times, (1..=300).collect::<Vec<_>>());
    // Packets are not for viewers.
    let cookie = site.login("viewer").await;
    let headers = [("content-type", JSON), ("cookie", &*cookie), accept];
    assert_eq!(site.post(path, &headers, "{}").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn description_of_the_api_needs_no_login() {
    let site = Site::new();
    let answer = site.get("/openapi.json", &[]).await.json();
    assert!(answer["openapi"].as_str().unwrap().starts_with("3.1"), "{}", answer["openapi"]);
    assert!(answer["paths"]["/linkemu.v1.Web/GetCaller"]["post"].is_object());
}

#[tokio::test]
async fn streams_are_bounded_for_each_caller_and_leave_room_for_other_calls() {
    let site = Site::new();
    let [one, two] = [site.login("viewer").await, site.login("admin").await];
    let stalled = async |cookie: &str| {
        let headers = [("content-type", JSON), ("cookie", cookie)];
        let path = "/linkemu.v1.Events/WatchEvents";
        site.open(site.request(Method::POST, path, &headers, "{}")).await
    };
    let mut open = Vec::new();
    for _ in 0..32 {
        let stream = stalled(&one).await;
        assert_eq!(stream.status(), StatusCode::OK);
        open.push(stream);
    }
    let refused = read(stalled(&one).await).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.json()["message"].as_str().unwrap().contains("32 streams of one caller"));
    // The same session, another one, and the unix socket still get answers.
    for cookie in [&one, &two] {
        assert_eq!(site.json("Linkemu/GetVersion", cookie, "{}").await.status, StatusCode::OK);
    }
    assert_eq!(stalled(&two).await.status(), StatusCode::OK);
    let mut client = site.lab.client.clone();
    client.get_version(pb::GetVersionRequest {}).await.unwrap();
    // One that is closed makes room.
    drop(open.pop());
    let again = async { while stalled(&one).await.status() != StatusCode::OK {} };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
}

#[tokio::test]
async fn ten_thousand_connections_leave_the_unix_socket_and_established_pages_responsive() {
    let limits =
        Limits { connections: 32, web_head: Duration::from_secs(600), ..Limits::default() };
    let site = Site::with(limits);
    let cookie = site.login("admin").await;
    let io = TcpStream::connect(site.address).await.unwrap();
    let (mut page, connection) = http1::handshake(TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection);
    let mut client = site.lab.client.clone();
    let headers = [("content-type", JSON), ("cookie", &*cookie)];
    let (mut open, mut slowest) = (Vec::new(), Duration::ZERO);
    for n in 0..10_000 {
        let mut io = TcpStream::connect(site.address).await.unwrap();
        let head = b"POST /linkemu.v1.Events/WatchEvents HTTP/1.1\r\n";
        let _ = io.write_all(head).await;
        open.push(io);
        if open.len() == 500 {
            // Those beyond the limit are closed already.
            open.drain(..400);
        }
        if n % 500 == 0 {
            let since = Instant::now();
            client.get_version(pb::GetVersionRequest {}).await.unwrap();
            let path = "/linkemu.v1.Linkemu/GetVersion";
            let request = site.request(Method::POST, path, &headers, "{}");
            page.ready().await.unwrap();
            let answer = read(page.send_request(request).await.unwrap()).await;
            assert_eq!(answer.status, StatusCode::OK);
            slowest = slowest.max(since.elapsed());
        }
    }
    assert!(slowest < PATIENCE, "{slowest:?}");
    let refused = |line: &Value| {
        let message = line["message"].as_str().unwrap_or_default();
        line["event"] == "handshake_refused" && message.contains("connections")
    };
    assert!(site.audit().iter().any(refused));
}

#[tokio::test]
async fn slow_head_and_unread_answer_end_the_connection() {
    let short = Duration::from_millis(200);
    let site = Site::with(Limits { web_head: short, web_unread: short, ..Limits::default() });
    // A head that never ends, one byte at a time.
    let mut io = TcpStream::connect(site.address).await.unwrap();
    let dripping = async {
        io.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ").await?;
        loop {
            io.write_all(b"a").await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let dripping = tokio::time::timeout(PATIENCE, dripping).await;
    let ended: std::io::Result<()> = dripping.expect("the connection stays");
    ended.unwrap_err();
    // Answers that are not read, on a connection that stays open.
    let mut io = TcpStream::connect(site.address).await.unwrap();
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let asking = async {
        loop {
            io.write_all(request).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let asking = tokio::time::timeout(PATIENCE, asking).await;
    let ended: std::io::Result<()> = asking.expect("the connection stays");
    ended.unwrap_err();
}

#[tokio::test]
async fn browser_with_a_certificate_needs_no_login_and_tls_gives_secure_cookies() {
    let authority = Authority::new();
    let (lab, ..) = Lab::with(|directory| {
        let files = authority.files(directory, &authority.sign(&Ask::server()));
        let web = WebListen { tls: Some(files), ..listen() };
        Security { web: Some(web), ..Security::default() }
    });
    let address = lab.web.unwrap();
    let send = async |own: Option<&Pair>, path: &str, headers: &[(&str, &str)], body: Vec<u8>| {
        let io = tls(&authority.client(own), address, "linkemu.lab").await.unwrap();
        let io = TokioIo::new(io);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::post(format!("https://linkemu.lab:{}{path}", address.port()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        read(sender.send_request(request).await.unwrap()).await
    };
    let kind = (CONTENT_TYPE.as_str(), GRPC_WEB);
    let origin = format!("https://linkemu.lab:{}", address.port());
    let origin = ("origin", &*origin);
    let who = "/linkemu.v1.Web/GetCaller";
    let own = authority.sign(&Ask::client("ann", &["linkemu:role:viewer"]));
    let answer = send(Some(&own), who, &[kind, origin], framed(&pb::GetCallerRequest {})).await;
    assert_eq!(answer.message::<pb::GetCallerResponse>().name, "ann");
    assert!(answer.headers.contains_key("strict-transport-security"));
    // A program has no Origin; a page of another host has one.
    let answer = send(Some(&own), who, &[kind], framed(&pb::GetCallerRequest {})).await;
    assert_eq!(answer.code(), Code::Ok);
    let evil = ("origin", "https://evil.example");
    let answer = send(Some(&own), who, &[kind, evil], framed(&pb::GetCallerRequest {})).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    // Without a certificate it needs a link.
    let answer = send(None, who, &[kind, origin], framed(&pb::GetCallerRequest {})).await;
    assert_eq!(answer.code(), Code::Unauthenticated);
    let request = pb::CreateWebLoginRequest::default();
    let link = WebClient::new(lab.linkd()).create_web_login(request).await.unwrap().into_inner();
    assert!(link.url.starts_with(&format!("{}/login#", origin.1)), "{}", link.url);
    let token = link.path.strip_prefix("/login#").unwrap();
    let body = format!("{{\"token\":\"{token}\"}}").into_bytes();
    let answer = send(None, "/login", &[(CONTENT_TYPE.as_str(), JSON), origin], body).await;
    let cookie = answer.headers[SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-linkemu-session=") && cookie.ends_with("; Secure"));
    let cookie = (COOKIE.as_str(), &*answer.cookie());
    let answer = send(None, who, &[kind, origin, cookie], framed(&pb::GetCallerRequest {})).await;
    assert_eq!(answer.code(), Code::Ok);
}

#[tokio::test]
async fn listener_and_page_serve_at_once_and_a_session_ends_with_the_certificate_behind_it() {
    let authority = Authority::new();
    let (lab, address, reload) = Lab::with(|directory| {
        let tls = authority.files(directory, &authority.sign(&Ask::server()));
        let at = "127.0.0.1:0".parse().unwrap();
        let listen = Some(Listen { address: at, tls });
        Security { listen, web: Some(self::listen()), ..Security::default() }
    });
    let site = Site { address: lab.web.unwrap(), lab };
    let own = authority.sign(&Ask::client("ann", &["linkemu:role:viewer"]));
    let channel = channel(authority.client(Some(&own)), address.unwrap(), "linkemu.lab");
    let request = pb::CreateWebLoginRequest::default();
    let link = WebClient::new(channel).create_web_login(request).await.unwrap().into_inner();
    let cookie = site.redeem(link.path.strip_prefix("/login#").unwrap(), &[]).await.cookie();
    let who = site.json("Web/GetCaller", &cookie, "{}").await.json();
    assert_eq!((&who["name"], &who["role"]), (&"ann".into(), &"viewer".into()));
    let ca = site.lab.directory.path().join("ca.pem");
    std::fs::write(ca, Authority::named("b").pem).unwrap();
    reload.reload().unwrap();
    let ended =
        async { while site.json("Web/GetCaller", &cookie, "{}").await.status == StatusCode::OK {} };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    let refused = site.json("Web/GetCaller", &cookie, "{}").await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn requests_of_a_viewer_are_bounded_in_bytes_and_in_messages() {
    let site = Site::new();
    let viewer = site.login("viewer").await;
    let validate = "Linkemu/ValidateProfile";
    let estimates = format!("{}{{}}", "{},".repeat(900_000));
    let many = format!(r#"{{"profile": {{"provenance": {{"estimates": [{estimates}]}}}}}}"#);
    let refused = site.json(validate, &viewer, many).await;
    assert_eq!(refused.json()["code"], "invalid_argument");
    assert!(refused.json()["message"].as_str().unwrap().contains("lists and objects"));
    // Bodies that never end.
    let length = profile::MESSAGE_BYTES;
    let part = vec![b' '; length - 1];
    let mut open = Vec::new();
    for _ in 0..6 {
        let mut io = TcpStream::connect(site.address).await.unwrap();
        let (origin, address) = (site.origin(), site.address);
        let head = format!(
            "POST /linkemu.v1.{validate} HTTP/1.1\r\nHost: {address}\r\nOrigin: {origin}\r\n\
             Content-Type: {JSON}\r\nCookie: {viewer}\r\nContent-Length: {length}\r\n\r\n"
        );
        io.write_all(head.as_bytes()).await.unwrap();
        io.write_all(&part).await.unwrap();
        open.push(io);
    }
    // Five have room.
    let is_refused = |line: &Value| {
        let message = line["message"].as_str().unwrap_or_default();
        message.starts_with("more than 16 MiB of your requests")
    };
    site.lab.until("a refusal", |_| site.audit().iter().any(is_refused)).await;
    let operator = site.login("operator").await;
    assert_eq!(site.json("Linkemu/GetVersion", &operator, "{}").await.status, StatusCode::OK);
}

#[tokio::test]
async fn log_is_fitted_over_json_by_an_operator_and_read_by_a_viewer() {
    let site = Site::new();
    let [operator, viewer] = [site.login("operator").await, site.login("viewer").await];
    let create = r#"{"fit": {"log": {"fileName": "table.csv", "columns": "sent=t,rtt=rtt:ms"}}}"#;
    let refused = site.json("Jobs/CreateJob", &viewer, create).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let created = site.json("Jobs/CreateJob", &operator, create).await.json();
    assert_eq!(created["state"], "JOB_STATE_WAITING_FOR_INPUT");
    let name = &created["name"];
    // As long as a part may be: more than two thirds of a request, in base64.
    let mut log = "t,rtt\n".to_owned();
    let mut number = 0_u32;
    while log.len() < 2_100_000 {
        number += 1;
        let rtt = 600.0 + f64::from(number.wrapping_mul(2_654_435_761) >> 16) / 3_000.0;
        log += &format!("{:.1},{rtt:.3}\n", f64::from(number) * 0.2);
    }
    let upload = async |cookie: &str, offset: usize, data: &[u8]| {
        let data = STANDARD.encode(data);
        let body = json!({ "job": name, "offset": offset.to_string(), "data": data });
        site.json("Jobs/UploadJobInput", cookie, body.to_string()).await
    };
    let (first, rest) = log.as_bytes().split_at(2 << 20);
    assert_eq!(upload(&operator, 0, first).await.json()["bytes"], (2 << 20).to_string());
    let gap = upload(&operator, (2 << 20) + 1, rest).await;
    assert_eq!(
        (gap.status, &gap.json()["code"]),
        (StatusCode::BAD_REQUEST, &"out_of_range".into())
    );
    let long = upload(&operator, 2 << 20, &[0; 3 << 20]).await;
    assert_eq!(long.json()["code"], "out_of_range", "the request is longer than one may be");
    assert_eq!(upload(&viewer, 2 << 20, rest).await.status, StatusCode::FORBIDDEN);
    assert_eq!(upload(&operator, 2 << 20, rest).await.json()["bytes"], log.len().to_string());
    let of = json!({ "name": name }).to_string();
    assert_eq!(site.json("Jobs/StartJob", &viewer, of.clone()).await.status, StatusCode::FORBIDDEN);
    site.json("Jobs/StartJob", &operator, of.clone()).await;
    let watched = site.json("Jobs/WatchJob", &viewer, of.clone()).await;
    let lines = String::from_utf8(watched.body.to_vec()).unwrap();
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["result"]["state"], "JOB_STATE_DONE", "{lines}");
    let job = site.json("Jobs/GetJob", &viewer, of.clone()).await.json();
    assert!(job["fit"]["toml"].as_str().unwrap().contains("name = \"table\""), "{job}");
    assert!(job["fit"]["plots"][0]["link"].as_array().unwrap().len() > 100);
    let list = site.json("Jobs/ListJobs", &viewer, "{}").await.json();
    assert_eq!(list["jobs"][0]["name"], *name);
    // A viewer may read the state of the machine, and may not change jobs.
    let checks = site.json("Doctor/Diagnose", &viewer, "{}").await.json();
    assert!(checks["checks"].as_array().unwrap().len() > 10, "{checks}");
    for method in ["CancelJob", "DeleteJob"] {
        let refused = site.json(&format!("Jobs/{method}"), &viewer, of.clone()).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(site.json("Jobs/DeleteJob", &operator, of.clone()).await.status, StatusCode::OK);
    assert_eq!(site.json("Jobs/GetJob", &viewer, of).await.status, StatusCode::NOT_FOUND);
    let audit = site.audit();
    let uploads = audit.iter().filter(|line| line["method"] == "linkemu.v1.Jobs/UploadJobInput");
    let asked: Vec<_> = uploads.filter(|line| line["event"] == "asked").collect();
    assert!(asked.len() >= 3 && asked.iter().all(|line| line["request"].get("data").is_none()));
}
