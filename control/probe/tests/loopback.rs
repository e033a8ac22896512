// SPDX-License-Identifier: Apache-2.0
//! The sender and the reflector over the loopback interface, on ports that the kernel
//! chooses.
#![allow(clippy::unwrap_used, reason = "a test")]

use probe::packet::{Header, Kind};
use probe::stop::Urgency;
use probe::{Error, Extent, LARGEST, Plan, Reflected, Reflector, Report, Spacing, Stop};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const MS: Duration = Duration::from_millis(1);

/// A reflector in a thread.
struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: JoinHandle<Reflected>,
}

impl Running {
    fn at(address: &str) -> Self {
        let reflector = Reflector::bind(address.parse().unwrap()).unwrap();
        let address = reflector.address();
        let stop = Stop::new().unwrap();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || reflector.run(&stopped, None, |_| ()).unwrap());
        Self { address, stop, thread }
    }

    fn end(self) -> Reflected {
        self.stop.request();
        self.thread.join().unwrap()
    }
}

/// A log in a temporary directory.
struct Lab {
    directory: TempDir,
}

impl Lab {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("log.csv")
    }

    fn send(&self, plan: &Plan, resume: bool) -> Result<Report, Error> {
        probe::send(plan, &self.path(), resume, &Stop::new().unwrap(), |_| ())
    }

    /// The rows, by column, and the comments.
    fn read(&self) -> (Vec<Vec<String>>, Vec<String>) {
        let text = fs::read_to_string(self.path()).unwrap();
        assert!(text.ends_with('\n'));
        let (comments, lines): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with("# "));
        assert_eq!(lines[0], probe::log::COLUMNS.join(","));
        let rows = lines[1..].iter().map(|row| row.split(',').map(str::to_owned).collect());
        (rows.collect(), comments.into_iter().map(str::to_owned).collect())
    }

    /// The rows of a log that must be in order.
    fn rows(&self) -> Vec<Vec<String>> {
        let (rows, _) = self.read();
        let mut last = -1.0;
        for (index, row) in rows.iter().enumerate() {
            assert_eq!(row.len(), 6);
            assert_eq!(row[0], index.to_string());
            humantime::parse_rfc3339(&row[1]).unwrap();
            let sent: f64 = row[2].parse().unwrap();
            assert!(sent > last, "{row:?}");
            last = sent;
        }
        rows
    }
}

fn plan(target: SocketAddr, count: u64) -> Plan {
    Plan { interval: MS, extent: Extent::Count(count), ..Plan::new(target.into()) }
}

fn request(sequence: u32, length: usize) -> Vec<u8> {
    let mut bytes = Header { kind: Kind::Request, session: 7, sequence }.encode().to_vec();
    bytes.resize(length, 0x5a);
    bytes
}

/// A client that does not wait for ever, so that a fault ends the test.
fn client(at: &str) -> UdpSocket {
    let socket = UdpSocket::bind(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

#[test]
fn two_hundred_probes_at_a_thousand_a_second_all_come_back() {
    let reflector = Running::at("127.0.0.1:0");
    let lab = Lab::new();
    let plan = plan(reflector.address, 200);
    let mut most = 0;
    let report = probe::send(&plan, &lab.path(), false, &Stop::new().unwrap(), |report| {
        most = most.max(report.counts.outstanding);
    });
    let report = report.unwrap();
    let counts = report.counts;
    assert_eq!((counts.sent, counts.received, counts.lost), (200, 200, 0));
    assert_eq!((counts.outstanding, counts.duplicates, counts.foreign), (0, 0, 0));
    assert!(most <= plan.outstanding_limit() as u64);
    let rtt = report.rtt.unwrap();
    assert!(Duration::ZERO < rtt.min && rtt.min <= rtt.p50 && rtt.p50 <= rtt.p99);
    assert!(rtt.p99 <= rtt.max && rtt.max <= plan.timeout);

    let rows = lab.rows();
    assert_eq!(rows.len(), 200);
    // Never ahead of the schedule: the last is due after 199 intervals.
    assert!(rows[199][2].parse::<f64>().unwrap() >= 0.199);
    for row in &rows {
        assert!(row[3].parse::<f64>().unwrap() > 0.0);
        assert_eq!(row[4..], ["", ""]);
    }
    let reflected = Reflected { reflected: 200, ..Reflected::default() };
    assert_eq!(reflector.end(), reflected);
}

#[test]
fn padded_poisson_probes_with_synchronised_clocks_give_one_way_delays() {
    let reflector = Running::at("[::1]:0");
    let lab = Lab::new();
    let spacing = Spacing::Poisson { seed: Some(7) };
    let plan = Plan { spacing, size: LARGEST, synchronised: true, ..plan(reflector.address, 100) };
    assert_eq!(lab.send(&plan, false).unwrap().counts.received, 100);
    for row in lab.rows() {
        // In ns, so that the sum is exact.
        let ns = |at: usize| row[at].replace('.', "").parse::<i64>().unwrap();
        assert_eq!(ns(4) + ns(5), ns(3), "{row:?}");
    }
    assert!(lab.read().1.contains(&"# seed = 7".to_owned()));
    reflector.end();
}

#[test]
fn resumed_log_continues_to_the_count_of_all_runs() {
    let reflector = Running::at("127.0.0.1:0");
    let lab = Lab::new();
    assert_eq!(lab.send(&plan(reflector.address, 50), false).unwrap().counts.sent, 50);
    assert!(lab.send(&plan(reflector.address, 50), false).is_err());
    let report = lab.send(&plan(reflector.address, 120), true).unwrap();
    assert_eq!((report.first_sequence, report.counts.sent), (50, 70));
    assert_eq!(lab.rows().len(), 120);
    // No probes remain.
    assert_eq!(lab.send(&plan(reflector.address, 120), true).unwrap().counts.sent, 0);
    assert_eq!(lab.rows().len(), 120);
    let resumed = |line: &&String| line.starts_with("# resumed_utc = ");
    assert_eq!(lab.read().1.iter().filter(resumed).count(), 2);
    reflector.end();
}

#[test]
fn hostile_datagrams_are_not_answered_and_an_answer_is_as_long_as_its_request() {
    let reflector = Running::at("127.0.0.1:0");
    let client = client("127.0.0.1:0");
    client.connect(reflector.address).unwrap();
    let good = request(1, 20);
    let reply = Header { kind: Kind::Reply { received_ns: 1 }, session: 7, sequence: 1 };
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let hostile = [
        vec![],
        vec![0],
        good[..19].to_vec(),
        request(1, LARGEST + 1),
        request(1, 9000),
        reply.encode().to_vec(),
        changed(0, b'X'),
        changed(2, 0x21),
        changed(2, 0x10),
        changed(2, 0x1f),
        changed(3, 1),
        changed(19, 1),
        b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_vec(),
        vec![0xff; 1472],
    ];
    for datagram in &hostile {
        client.send(datagram).unwrap();
    }
    // The kernel keeps the order: were one answered, its answer would be read first.
    let mut bytes = [0; 2048];
    for (sequence, length) in [(1, 20), (2, 21), (3, 700), (4, LARGEST)] {
        client.send(&request(sequence, length)).unwrap();
        assert_eq!(client.recv(&mut bytes).unwrap(), length);
        let header = Header::decode(&bytes[..length]).unwrap();
        assert!(matches!(header.kind, Kind::Reply { .. }));
        assert_eq!((header.session, header.sequence), (7, sequence));
    }
    let (reflected, ignored) = (4, hostile.len() as u64);
    assert_eq!(reflector.end(), Reflected { reflected, ignored, ..Reflected::default() });
}

#[test]
fn an_answer_comes_from_the_address_that_was_asked() {
    for wildcard in ["[::]:0", "0.0.0.0:0"] {
        let reflector = Running::at(wildcard);
        // A connected socket takes no datagram from another address.
        let client = client("127.0.0.1:0");
        client.connect(("127.0.0.2", reflector.address.port())).unwrap();
        client.send(&request(1, 20)).unwrap();
        assert_eq!(client.recv(&mut [0; 64]).unwrap(), 20);
        reflector.end();
    }
}

#[test]
fn a_broadcast_is_not_answered() {
    for wildcard in ["[::]:0", "0.0.0.0:0"] {
        let reflector = Running::at(wildcard);
        let client = client("127.0.0.1:0");
        client.set_broadcast(true).unwrap();
        let port = reflector.address.port();
        client.send_to(&request(1, 20), ("127.255.255.255", port)).unwrap();
        client.send_to(&request(2, 20), ("127.0.0.1", port)).unwrap();
        let mut bytes = [0; 20];
        client.recv(&mut bytes).unwrap();
        assert_eq!(Header::decode(&bytes).unwrap().sequence, 2);
        let expected = Reflected { reflected: 1, unsendable: 1, ..Reflected::default() };
        assert_eq!(reflector.end(), expected);
    }
}

#[test]
fn probes_without_listener_are_lost_and_the_run_continues() {
    // Holds the port, but only for datagrams from the discard port.
    let holder = client("127.0.0.1:0");
    holder.connect("127.0.0.1:9").unwrap();
    let address = holder.local_addr().unwrap();
    let lab = Lab::new();
    let plan = Plan { timeout: 50 * MS, ..plan(address, 20) };
    let counts = lab.send(&plan, false).unwrap().counts;
    assert_eq!((counts.sent, counts.lost), (20, 20));
    assert!(counts.refused > 0);
    assert!(lab.rows().iter().all(|row| row[3].is_empty()));
}

#[test]
fn only_the_right_reply_counts_and_it_counts_once() {
    let socket = client("127.0.0.1:0");
    let address = socket.local_addr().unwrap();
    let n = 30;
    let liar = std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        for _ in 0..n {
            let (length, client) = socket.recv_from(&mut bytes).unwrap();
            let request = Header::decode(&bytes[..length]).unwrap();
            let kind = Kind::Reply { received_ns: u64::MAX };
            let reply = Header { kind, ..request };
            let other_run = Header { session: request.session.wrapping_add(1), ..reply };
            let future = Header { sequence: request.sequence + 1000, ..reply };
            let mut longer = reply.encode().to_vec();
            longer.push(0);
            for lie in
                [&b"lie"[..], &bytes[..length], &other_run.encode(), &future.encode(), &longer]
            {
                socket.send_to(lie, client).unwrap();
            }
            socket.send_to(&reply.encode(), client).unwrap();
            socket.send_to(&reply.encode(), client).unwrap();
        }
    });
    let lab = Lab::new();
    let counts = lab.send(&plan(address, n), false).unwrap().counts;
    assert_eq!((counts.sent, counts.received, counts.lost), (n, n, 0));
    // The last probe's second reply may come after the end.
    assert!((n - 1..=n).contains(&counts.duplicates), "{counts:?}");
    assert_eq!(counts.foreign, 5 * n);
    liar.join().unwrap();
}

#[test]
fn the_first_request_to_stop_awaits_replies_and_the_second_does_not() {
    let lab = Lab::new();
    // Takes probes and keeps silent.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let open = Plan { timeout: 100 * MS, ..plan(address, u64::MAX) };
    let stop = Stop::new().unwrap();
    let report = probe::send(&open, &lab.path(), false, &stop, |report| {
        if report.counts.sent > 0 && stop.urgency() == Urgency::None {
            stop.request();
        }
    });
    let counts = report.unwrap().counts;
    assert!(counts.sent > 0);
    assert_eq!((counts.lost, counts.outstanding), (counts.sent, 0));
    assert_eq!(lab.rows().len() as u64, counts.lost);

    let lab = Lab::new();
    let patient = Plan { timeout: Duration::from_secs(600), ..plan(address, 5) };
    let stop = Stop::new().unwrap();
    let report = probe::send(&patient, &lab.path(), false, &stop, |report| {
        if report.counts.sent == 5 {
            stop.request();
            stop.request();
        }
    });
    let counts = report.unwrap().counts;
    assert_eq!((counts.sent, counts.outstanding, counts.lost), (5, 5, 0));
    assert_eq!(lab.rows().len(), 0);
}

#[test]
fn a_held_up_sender_skips_its_probes_and_the_kernels_stamps_keep_the_round_trips() {
    let reflector = client("127.0.0.1:0");
    reflector.set_nonblocking(true).unwrap();
    let (hold, interval) = (300 * MS, 10 * MS);
    let timeout = Duration::from_secs(600);
    let plan = Plan { interval, timeout, ..plan(reflector.local_addr().unwrap(), u64::MAX) };
    let lab = Lab::new();
    let stop = Stop::new().unwrap();
    // Answers on the sender's own thread, and holds it up then.
    let mut answered: Vec<(u32, SystemTime)> = Vec::new();
    let mut holds = 0;
    let report = probe::send(&plan, &lab.path(), false, &stop, |_| {
        let mut bytes = [0; 64];
        while let Ok((length, client)) = reflector.recv_from(&mut bytes) {
            let sequence = Header::decode(&bytes[..length]).unwrap().sequence;
            probe::packet::reflect(&mut bytes[..length], 1).unwrap();
            reflector.send_to(&bytes[..length], client).unwrap();
            answered.push((sequence, SystemTime::now()));
        }
        if holds == 3 {
            stop.request();
        }
        holds += 1;
        std::thread::sleep(hold);
    });
    let counts = report.unwrap().counts;
    // All instants of a hold but those at its ends.
    let per_hold = (hold.as_millis() / interval.as_millis()) as u64 - 2;
    assert!(counts.skipped >= 3 * per_hold, "{counts:?}");
    assert_eq!((counts.received, counts.lost), (counts.sent, 0));
    let rows = lab.rows();
    assert_eq!(rows.len() as u64, counts.sent);
    assert_eq!(rows.len(), answered.len());
    for (sequence, answered) in answered {
        let row = &rows[sequence as usize];
        let rtt = Duration::from_secs_f64(row[3].parse::<f64>().unwrap() / 1e3);
        let arrived = humantime::parse_rfc3339(&row[1]).unwrap() + rtt;
        // It was read at least the hold later. The two clocks are read one after the other, which
        // a busy machine may hold up.
        assert!(arrived <= answered + hold / 2, "{row:?}");
    }
}

#[test]
fn unavailable_resource_is_named_and_leaves_no_file() {
    let lab = Lab::new();
    let here: SocketAddr = "127.0.0.1:9".parse().unwrap();
    for (plan, expected) in [
        (Plan::new("a..b".parse().unwrap()), "cannot resolve a..b"),
        (
            Plan { source: Some("192.0.2.1".parse().unwrap()), ..plan(here, 1) },
            "cannot bind 192.0.2.1",
        ),
        (Plan { source: Some("::1".parse().unwrap()), ..plan(here, 1) }, "family of --bind ::1"),
        (Plan { size: 19, ..plan(here, 1) }, "--size 19"),
    ] {
        let error = lab.send(&plan, false).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!lab.path().exists());
    }
    let holder = client("127.0.0.1:0");
    let taken = holder.local_addr().unwrap();
    let error = Reflector::bind(taken).unwrap_err().to_string();
    assert!(error.contains(&format!("cannot bind {taken}")), "{error}");
}
