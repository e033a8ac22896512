// SPDX-License-Identifier: Apache-2.0
//! The content of `/metrics`, and its limits.

use crate::exporter::{Exporter, LIMIT, ask, busy, get, plan};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

fn addresses(n: u32) -> impl Iterator<Item = String> {
    (0..n).map(|i| std::net::Ipv4Addr::from_bits(0x0a00_0000 + i).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_says_what_the_dataplane_counted() {
    let exporter = Exporter::new(256).await;
    exporter.fake.state().stats = busy(["10.0.0.1".into(), "2001:db8::1".into()]);
    exporter.fake.state().plan = Some(plan("a \"quoted\\ name\"\n", 77));
    exporter.fake.state().generation = 5;
    let answer = get(exporter.address, "/metrics");
    assert!(answer.head.to_lowercase().contains("content-type: text/plain; version=0.0.4"));
    let scraped = exporter.scrape();
    for (series, value) in [
        ("dataplane_up", 1.0),
        ("state_saved", 1.0),
        ("dataplane_time_seconds", 12.5),
        (r#"generation{link="main"}"#, 5.0),
        (r#"lossy{link="main"}"#, 0.0),
        (r#"conservation_exact{link="main"}"#, 1.0),
        (r#"emulator_drops_total{link="main"}"#, 12.0),
        (r#"stall_max_seconds{link="main"}"#, 0.007),
        (r#"mark_time_seconds{link="main"}"#, 2.5),
        (r#"lateness_limit_seconds{link="main"}"#, 0.006),
        (r#"stall_limit_seconds{link="main"}"#, 0.016),
        (r#"worker_received_packets_total{link="main",worker="0"}"#, 500.0),
        (r#"worker_stall_max_seconds{link="main",worker="1"}"#, 0.007),
        (r#"memory_used_bytes{link="main"}"#, 1048576.0),
        (r#"lateness_since_mark_seconds{link="main",share="0.99"}"#, 0.00002),
        (r#"received_packets_total{link="main",client="10.0.0.1",direction="forward"}"#, 10.0),
        (r#"received_bytes_total{link="main",client="2001:db8::1",direction="return"}"#, 500.0),
        (r#"sent_packets_total{link="main",client="10.0.0.1",direction="forward"}"#, 6.0),
        (
            r#"dropped_packets_total{link="main",client="10.0.0.1",direction="return",reason="outage"}"#,
            1.0,
        ),
        (
            r#"dropped_bytes_total{link="main",client="10.0.0.1",direction="return",reason="limit"}"#,
            0.0,
        ),
        (r#"marked_packets_total{link="main",client="10.0.0.1",direction="forward"}"#, 2.0),
        (r#"duplicated_packets_total{link="main",client="10.0.0.1",direction="forward"}"#, 0.0),
        (r#"corrupted_bytes_total{link="main",client="10.0.0.1",direction="return"}"#, 300.0),
        (r#"cross_offered_packets_total{link="main",client="10.0.0.1",direction="return"}"#, 7.0),
        (r#"cross_dropped_bytes_total{link="main",client="10.0.0.1",direction="forward"}"#, 600.0),
        (r#"access_used_bytes_total{link="main",client="10.0.0.1",direction="return"}"#, 3_000.0),
        (r#"access_collisions_total{link="main",client="10.0.0.1",direction="return"}"#, 1.0),
        (r#"held_bytes{link="main",client="bypass",direction="forward"}"#, 100.0),
        (r#"queue_high_water_bytes{link="main",client="default",direction="forward"}"#, 36e6),
        (r#"queue_delay_seconds_sum{link="main",client="10.0.0.1",direction="forward"}"#, 2.5),
        (r#"queue_delay_seconds_count{link="main",client="10.0.0.1",direction="forward"}"#, 7.0),
        (
            r#"queue_delay_seconds_bucket{le="0.000262144",link="main",client="10.0.0.1",direction="forward"}"#,
            2.0,
        ),
        (
            r#"queue_delay_seconds_bucket{le="0.001048576",link="main",client="10.0.0.1",direction="forward"}"#,
            3.0,
        ),
        (
            r#"queue_delay_seconds_bucket{le="+Inf",link="main",client="10.0.0.1",direction="forward"}"#,
            7.0,
        ),
        (
            r#"lateness_seconds_bucket{le="+Inf",link="main",client="default",direction="return"}"#,
            6.0,
        ),
        (r#"port_missed_packets_total{port="wan"}"#, 3.0),
        (r#"port_transmit_dropped_packets_total{port="client"}"#, 2.0),
        (r#"port_unplaced_packets_total{port="client"}"#, 9.0),
        (r#"port_foreign_packets_total{port="client"}"#, 11.0),
        (r#"port_unconfirmed_packets_total{port="client"}"#, 7.0),
        (r#"port_faults_total{port="wan"}"#, 6.0),
        (r#"port_mtu_bytes{port="wan"}"#, 1500.0),
        (r#"port_up{port="wan"}"#, 1.0),
        (r#"port_up{port="client"}"#, 0.0),
        (r#"config_info{link="main",profile="a \"quoted\\ name\"\n",seed="77"}"#, 1.0),
    ] {
        let found = scraped.value(&format!("linkemu_{series}"));
        assert!((found - value).abs() < 1e-9, "{series} is {found}, not {value}");
    }
    assert!(scraped.text.contains("linkemu_build_info{version=\""));
    // Each family is described, once.
    for series in scraped.names() {
        let parts = ["_bucket", "_sum", "_count"].into_iter();
        let name = parts.filter_map(|part| series.strip_suffix(part)).next().unwrap_or(series);
        let described = format!("# TYPE {name} ");
        assert_eq!(scraped.text.matches(&described).count(), 1, "{name}");
        let kind = if name != series {
            "histogram"
        } else if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        assert!(scraped.text.contains(&format!("{described}{kind}\n")), "{name}");
    }
    assert_eq!(exporter.fake.state().marks, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_cannot_be_written_is_a_metric() {
    let exporter = Exporter::new(256).await;
    std::fs::create_dir(exporter.directory.path().join("state/state.new")).unwrap();
    // A change to be saved.
    exporter.fake.state().plan = Some(plan("a", 1));
    exporter.fake.state().generation = 5;
    let begun = Instant::now();
    while exporter.scrape().value("linkemu_state_saved") > 0.0 {
        assert!(begun.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_dataplane_a_scrape_says_so() {
    let mut exporter = Exporter::new(256).await;
    exporter.fake.state().stats = busy(addresses(1));
    exporter.running = None;
    std::fs::remove_file(exporter.dataplane()).unwrap();
    let down = exporter.scrape();
    assert_eq!(down.value("linkemu_dataplane_up"), 0.0);
    assert!(!down.has("linkemu_emulator_drops_total"));
    assert!(down.names().contains("linkemu_scrape_duration_seconds"));
    exporter.running = Some(exporter.fake.serve(&exporter.dataplane()).unwrap());
    assert_eq!(exporter.scrape().value("linkemu_dataplane_up"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataplane_that_hangs_bounds_the_scrape() {
    let exporter = Exporter::new(256).await;
    exporter.fake.state().pause = 2 * LIMIT;
    let start = Instant::now();
    let scraped = exporter.scrape();
    assert_eq!(scraped.value("linkemu_dataplane_up"), 0.0);
    assert!(scraped.value("linkemu_scrape_duration_seconds") >= 3.0);
    assert!(start.elapsed() < LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn scrapes_at_the_same_time_share_one_read() {
    const SCRAPES: u64 = 24;
    let exporter = Exporter::new(256).await;
    exporter.fake.state().pause = Duration::from_millis(500);
    let address = exporter.address;
    let scrapes: Vec<_> =
        (0..SCRAPES).map(|_| std::thread::spawn(move || get(address, "/metrics").status)).collect();
    assert!(scrapes.into_iter().all(|scrape| scrape.join().unwrap() == 200));
    // A machine that is slow to connect may need some more than one.
    let reads = exporter.fake.state().reads;
    assert!((1..SCRAPES / 2).contains(&reads), "{reads} reads for {SCRAPES} scrapes");
    // A later one reads again.
    get(address, "/metrics");
    assert_eq!(exporter.fake.state().reads, reads + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_clients_are_a_bounded_scrape_of_which_nothing_is_missing() {
    let exporter = Exporter::new(20).await;
    let stats = busy(addresses(10_000));
    let total: u64 = stats
        .clients
        .iter()
        .map(|c| c.forward_pipe.as_ref().unwrap())
        .fold(0, |s, p| s + p.received.unwrap().packets);
    exporter.fake.state().stats = stats;
    let few = {
        let exporter = Exporter::new(20).await;
        exporter.fake.state().stats = busy(addresses(21));
        exporter.scrape().series()
    };
    let scraped = exporter.scrape();
    assert_eq!(scraped.series(), few);
    // The last ones have the most traffic.
    let forward = |client: &str| {
        let labels = format!("{{link=\"main\",client=\"{client}\",direction=\"forward\"}}");
        format!("linkemu_received_packets_total{labels}")
    };
    let last = addresses(10_000).last().unwrap();
    assert!(scraped.has(&forward(&last)) && !scraped.has(&forward("10.0.0.0")));
    let shown = addresses(10_000).skip(9_980).chain(["bypass".into(), "default".into()]);
    let shown: f64 = shown.map(|client| scraped.value(&forward(&client))).sum();
    assert_eq!(shown + scraped.value(&forward("other")), total as f64);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_are_refused_and_the_next_is_answered() {
    let exporter = Exporter::new(256).await;
    let address = exporter.address;
    assert_eq!(get(address, "/").status, 404);
    assert_eq!(get(address, "/metrics/../etc/passwd").status, 404);
    let head = ask(address, b"HEAD /metrics HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let post = ask(address, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nmark");
    let post = post.unwrap();
    assert_eq!(post.status, 405);
    assert!(post.head.to_lowercase().contains("allow: get, head"));
    let long = [b"GET /metrics?".as_slice(), &[b'x'; 1 << 20], b" HTTP/1.1\r\n\r\n"].concat();
    let many =
        format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{}\r\n", "X-Field: 1\r\n".repeat(1_000));
    let refused: [&[u8]; 5] = [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &long,
        many.as_bytes(),
    ];
    for request in refused {
        let status = ask(address, request).map(|answer| answer.status);
        assert!(status.is_none_or(|status| (400..500).contains(&status)), "{status:?}");
    }
    assert_eq!(exporter.scrape().value("linkemu_dataplane_up"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_make_room_for_new_ones() {
    let exporter = Exporter::new(256).await;
    let half = |_| {
        let mut stream = TcpStream::connect(exporter.address).unwrap();
        stream.write_all(b"GET /met").unwrap();
        stream
    };
    let mut idle: Vec<_> = (0..161).map(half).collect();
    assert_eq!(exporter.scrape().value("linkemu_dataplane_up"), 1.0);
    // The slot was freed before the deadline of the last connection.
    let last = idle.last_mut().unwrap();
    last.set_nonblocking(true).unwrap();
    let waits = last.read(&mut [0]).unwrap_err();
    assert_eq!(waits.kind(), ErrorKind::WouldBlock);
    last.set_nonblocking(false).unwrap();
    for mut stream in idle {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        // Closed with an answer, without one, or with data that was not read.
        if let Err(error) = stream.read_to_end(&mut Vec::new()) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_named_and_the_end_frees_it() {
    let mut exporter = Exporter::new(256).await;
    let address = exporter.address;
    let error = linkd::Metrics::bind(address, 1).await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("--metrics"), "{error}");
    exporter.stop.take();
    (&mut exporter.server).await.unwrap();
    let start = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(start.elapsed() < LIMIT, "metrics are served on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let nowhere: SocketAddr = "192.0.2.1:9742".parse().unwrap();
    assert!(linkd::Metrics::bind(nowhere, 1).await.is_err());
}
