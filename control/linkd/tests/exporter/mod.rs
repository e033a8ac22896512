// SPDX-License-Identifier: Apache-2.0
//! linkd in-process with its metrics, a fake dataplane, and a plain HTTP client.

use fake::{FakeDataplane, Running};
use linkd::{Metrics, Security, Server, Settings};
use profile::Catalog;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than any request, on a machine of any speed.
pub const LIMIT: Duration = Duration::from_secs(60);

pub struct Exporter {
    pub directory: TempDir,
    pub fake: FakeDataplane,
    pub running: Option<Running>,
    pub address: SocketAddr,
    pub stop: Option<oneshot::Sender<()>>,
    pub server: JoinHandle<()>,
}

impl Exporter {
    /// One that shows so many clients each for itself; within a runtime of several threads.
    pub async fn new(clients: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let fake = FakeDataplane::default();
        let running = Some(fake.serve(&at("dataplane.sock")).unwrap());
        let settings = Settings {
            socket: at("linkd.sock"),
            dataplane: at("dataplane.sock"),
            catalog: Catalog::built_in(),
            state: Some(at("state")),
            security: Security::default(),
        };
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let metrics = Metrics::bind(loopback, clients).await.unwrap();
        let address = metrics.address();
        let server = Server::bind(settings).unwrap().with_metrics(metrics);
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(async {
            let stopped = async {
                let _ = stopped.await;
            };
            server.serve(stopped).await.unwrap();
        });
        Self { directory, fake, running, address, stop: Some(stop), server }
    }

    pub fn dataplane(&self) -> PathBuf {
        self.directory.path().join("dataplane.sock")
    }

    pub fn scrape(&self) -> Scraped {
        let answer = get(self.address, "/metrics");
        assert_eq!(answer.status, 200, "{}", answer.body);
        Scraped::read(&answer.body)
    }
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

pub fn get(address: SocketAddr, target: &str) -> Answer {
    ask(address, format!("GET {target} HTTP/1.0\r\n\r\n").as_bytes()).unwrap()
}

/// The answer to a request; none if the connection was closed without one.
pub fn ask(address: SocketAddr, request: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    // A request that is too long is not read to its end.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.into(), body: body.into() })
}

/// A scrape: its lines, and its values by series.
pub struct Scraped {
    pub text: String,
    values: BTreeMap<String, f64>,
}

impl Scraped {
    pub fn read(text: &str) -> Self {
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let value = |line: &str| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        };
        Self { text: text.into(), values: series.map(value).collect() }
    }

    pub fn value(&self, series: &str) -> f64 {
        *self.values.get(series).unwrap_or_else(|| panic!("no {series} in\n{}", self.text))
    }

    pub fn has(&self, series: &str) -> bool {
        self.values.contains_key(series)
    }

    pub fn series(&self) -> usize {
        self.values.len()
    }

    /// Names of series, without labels.
    pub fn names(&self) -> std::collections::BTreeSet<&str> {
        self.values.keys().map(|series| series.split('{').next().unwrap()).collect()
    }
}

pub fn count(packets: u64) -> Option<pb::Count> {
    Some(pb::Count { packets, bytes: 100 * packets })
}

/// A pipe that received so many packets, lost one each for three reasons, and holds one.
pub fn pipe(received: u64) -> pb::PipeStats {
    let drop = |reason: pb::DropReason| pb::Drop { reason: reason.into(), count: count(1) };
    pb::PipeStats {
        received: count(received),
        sent: count(received - 4),
        dropped: [pb::DropReason::Aqm, pb::DropReason::Outage, pb::DropReason::Overload]
            .map(drop)
            .into(),
        held: count(1),
        queue: count(1),
        queue_max_bytes: 36_000_000,
        marked: count(2),
        duplicated: count(0),
        corrupted: count(3),
        generated: count(0),
        cross_offered: count(7),
        cross_dropped: count(6),
        access: Some(pb::AccessStats {
            requested_bytes: 5_000,
            assigned_bytes: 4_000,
            used_bytes: 3_000,
            requests: 20,
            collisions: 1,
        }),
        queue_delay: Some(pb::Histogram {
            counts: vec![2, 0, 1, 4],
            sum_ns: 2_500_000_000,
            first_bound_ns: 1 << 18,
        }),
        lateness: Some(pb::Histogram {
            counts: vec![5, 1],
            sum_ns: 9_000,
            first_bound_ns: 1 << 10,
        }),
    }
}

/// Statistics of a busy dataplane with these clients.
pub fn busy(clients: impl IntoIterator<Item = String>) -> pb::Stats {
    let client = |client: String, received| pb::ClientStats {
        client,
        forward_pipe: Some(pipe(received)),
        return_pipe: Some(pipe(5)),
        ..Default::default()
    };
    let fixed = ["bypass", "default"].map(|name| client(name.into(), 5));
    let port = |name: &str| pb::PortStats {
        name: name.into(),
        received: count(1_000),
        sent: count(900),
        missed: 3,
        transmit_dropped: 2,
        staged: 1,
        malformed: 4,
        unplaced: 9,
        foreign: 11,
        link: if name == "wan" { pb::LinkState::Up } else { pb::LinkState::Down } as i32,
        link_mbps: 10_000,
        state: Some(pb::PortState {
            name: name.into(),
            mtu: 1_500,
            faults: 6,
            changes: 8,
            unconfirmed: 7,
            ..Default::default()
        }),
    };
    let own = clients.into_iter().zip(10..).map(|(name, received)| client(name, received));
    pb::Stats {
        time_ns: 12_500_000_000,
        clients: fixed.into_iter().chain(own).collect(),
        ports: vec![port("wan"), port("client")],
        lateness: Some(pb::Lateness {
            count: 1_000,
            p50_ns: 1_000,
            p99_ns: 20_000,
            p999_ns: 300_000,
            max_ns: 4_000_000,
        }),
        memory: Some(pb::Memory {
            capacity_bytes: 1 << 30,
            used_bytes: 1 << 20,
            used_max_bytes: 1 << 21,
        }),
        span: Some(pb::Span {
            since_ns: 2_500_000_000,
            marked: true,
            tolerance: Some(pb::Tolerance {
                lateness_ns: 6_000_000,
                stall_ns: 16_000_000,
                ..Default::default()
            }),
            ..Default::default()
        }),
        workers: vec![
            pb::WorkerStats { received: count(500), ..Default::default() },
            pb::WorkerStats { received: count(300), stall_max_ns: 7_000_000, ..Default::default() },
        ],
        emulator_drops: 12,
        stall_max_ns: 7_000_000,
        ..Default::default()
    }
}

pub fn plan(name: &str, seed: u64) -> dp::Plan {
    let profile = Some(pb::Profile { name: name.into(), ..Default::default() });
    dp::Plan { profile, seed, ..dp::Plan::default() }
}
