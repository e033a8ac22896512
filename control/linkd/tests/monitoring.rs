// SPDX-License-Identifier: Apache-2.0
//! The files in monitoring/, against a real scrape, promtool and a real Prometheus.
//!
//! Both are Debian's `prometheus`, on PATH or where scripts/setup.sh unpacks it. Without them these
//! tests are left out and report that, or fail where `CI=true`.

use crate::exporter::{Exporter, LIMIT, Scraped, busy, get, plan};
use p4runtime::Count;
use p4server::Fake;
use proto::dataplane::v1 as dp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Variables of Grafana; any duration and instance suffices, because only names and grammar count.
const VARIABLES: [(&str, &str); 5] = [
    ("$__rate_interval", "1m"),
    ("$__range", "1m"),
    ("$instance", "box"),
    ("$link", "main"),
    ("$client", ".*"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn monitoring(file: &str) -> PathBuf {
    root().join("monitoring").join(file)
}

/// A program of Debian's `prometheus`; none is a reason to leave a test out.
fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain([root().join("build/tools/prometheus")])
        .map(|directory| directory.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        let in_ci = std::env::var("CI").is_ok_and(|v| v == "true" || v == "1");
        assert!(!in_ci, "there is no `{name}`: run scripts/setup.sh");
        eprintln!("SKIPPED: there is no `{name}`: run scripts/setup.sh");
    }
    found
}

fn holds(what: &str, output: &Output) {
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&said));
}

async fn exporter() -> Exporter {
    let exporter = Exporter::new(1).await;
    exporter.fake.state().stats = busy(["10.0.0.1".into(), "10.0.0.2".into()]);
    exporter.fake.state().plan = Some(plan("viasat2", 7));
    exporter
}

/// All that the dashboard asks Prometheus for, with Grafana's variables filled in.
fn asked_by_the_dashboard() -> Vec<String> {
    fn gather(value: &Value, asked: &mut Vec<String>) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| gather(value, asked)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value {
                        Value::String(text) if name == "expr" => asked.push(text.clone()),
                        // Grafana's own function around a selector.
                        Value::String(text) if name == "query" => asked.extend(
                            text.strip_prefix("label_values(")
                                .and_then(|text| text.rsplit_once(", "))
                                .map(|(selector, _)| selector.to_owned()),
                        ),
                        value => gather(value, asked),
                    }
                }
            }
            _ => {}
        }
    }
    let dashboard = std::fs::read(monitoring("grafana/linkemu.json")).unwrap();
    let mut asked = Vec::new();
    gather(&serde_json::from_slice(&dashboard).unwrap(), &mut asked);
    assert!(asked.len() > 25, "{asked:#?}");
    let fill = |text: String| VARIABLES.iter().fold(text, |text, (name, v)| text.replace(name, v));
    asked.into_iter().map(fill).collect()
}

/// The names of our metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("linkemu_"))
        .collect()
}

fn all_exist<'a>(what: &str, used: impl IntoIterator<Item = &'a str>, scraped: &Scraped) {
    let there = scraped.names();
    let unknown: Vec<_> = used.into_iter().filter(|name| !there.contains(name)).collect();
    assert!(unknown.is_empty(), "{what} uses what no scrape has: {unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_the_dashboard_and_the_alerts_exists() {
    let scraped = exporter().await.scrape();
    let asked = asked_by_the_dashboard().join("\n");
    all_exist("the dashboard", names(&asked), &scraped);
    for file in ["prometheus/alerts.yml", "prometheus/alerts_test.yml"] {
        let text = std::fs::read_to_string(monitoring(file)).unwrap();
        assert!(names(&text).len() > 4, "{file}");
        all_exist(file, names(&text), &scraped);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_finds_nothing_wrong() {
    let Some(promtool) = tool("promtool") else { return };
    let run = |arguments: &[&str]| {
        let directory = monitoring("prometheus");
        let output = Command::new(&promtool).args(arguments).current_dir(directory).output();
        holds(&arguments.join(" "), &output.unwrap());
    };
    run(&["check", "rules", "alerts.yml"]);
    run(&["test", "rules", "alerts_test.yml"]);
    run(&["check", "config", "prometheus.yml"]);
    let exporter = exporter().await;
    let up = exporter.scrape().text;
    drop(exporter.running);
    std::fs::remove_file(exporter.directory.path().join("dataplane.sock")).unwrap();
    let down = get(exporter.address, "/metrics").body;
    for text in [up, down] {
        check_metrics(&promtool, &text);
    }
}

fn check_metrics(promtool: &Path, text: &str) {
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    holds("check metrics", &output);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_is_in_the_metrics_and_promtool_finds_nothing_wrong() {
    let switch = Fake::start(1).await.unwrap();
    let exporter = exporter().await;
    assert!(!exporter.scrape().has("linkemu_switch_up"));
    {
        let mut state = exporter.fake.state();
        state.switch = Some(dp::Switch {
            address: switch.address(),
            device: 1,
            election: 1,
            target: dp::SwitchTarget::Bmv2 as i32,
            boxes: vec![dp::SwitchBox { wan_port: 1, client_port: 2 }],
            wan_ports: vec![3],
            client_ports: vec![4],
            loses: true,
            ..Default::default()
        });
        (state.instance, state.generation) = (9, 1);
    }
    let lost = r#"linkemu_switch_frames_total{direction="forward",fate="lost"}"#;
    let late = r#"linkemu_switch_excess_seconds_count{direction="return"}"#;
    let start = Instant::now();
    let scraped = loop {
        // Client 2, forward; and the eighth bucket of the lateness on the return.
        switch.count("linkemu.fates", 2 << 4 | 3, Count { packets: 7, bytes: 700 });
        switch.count("linkemu.lateness", 32 + 7, Count { packets: 5, bytes: 0 });
        let scraped = exporter.scrape();
        let there = |series| scraped.has(series) && scraped.value(series) > 0.0;
        // A session that begins again counts on, and is not up meanwhile.
        if there(lost) && there(late) && there("linkemu_switch_up") {
            break scraped;
        }
        assert!(start.elapsed() < LIMIT, "{}", scraped.text);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(scraped.value("linkemu_switch_up"), 1.0);
    let rest = (scraped.value(lost) % 7.0, scraped.value(late) % 5.0);
    assert_eq!(rest, (0.0, 0.0));
    assert!(scraped.value("linkemu_switch_entries") > 5.0);
    assert!(scraped.value("linkemu_switch_restore_seconds") > 0.0);
    assert_eq!(scraped.value("linkemu_switch_early_total"), 0.0);
    let sum = r#"linkemu_switch_excess_seconds_sum{direction="return"}"#;
    assert!(scraped.value(sum).is_nan());
    let Some(promtool) = tool("promtool") else { return };
    check_metrics(&promtool, &scraped.text);
}

/// A Prometheus that ends with its owner.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// One that scrapes `target` each half second, with our rules.
    fn start(program: &Path, directory: &Path, target: SocketAddr) -> Self {
        // YAML holds all of JSON.
        let config = json!({
            "global": { "scrape_interval": "500ms", "evaluation_interval": "500ms" },
            "rule_files": [monitoring("prometheus/alerts.yml")],
            "scrape_configs": [{
                "job_name": "linkemu",
                "static_configs": [{ "targets": [target.to_string()] }],
            }],
        });
        let (file, log) = (directory.join("prometheus.json"), directory.join("prometheus.log"));
        std::fs::write(&file, config.to_string()).unwrap();
        // Prometheus takes no port 0. A port of 127.0.0.1 that is free now may be another test's a
        // moment later, so the address is this process's.
        let [.., high, low] = std::process::id().to_be_bytes();
        let free = TcpListener::bind((Ipv4Addr::new(127, 77, high, low), 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let child = Command::new(program)
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, address, log }
    }

    /// An answer of its API; `None` until it serves.
    fn api(&mut self, path: &str) -> Option<Value> {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("{status}: {}", std::fs::read_to_string(&self.log).unwrap());
        }
        std::net::TcpStream::connect(self.address).ok()?;
        let answer = get(self.address, path);
        let answer = serde_json::from_str::<Value>(&answer.body).ok()?;
        Some(answer)
    }

    fn query(&mut self, expression: &str) -> Option<Value> {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        self.api(&format!("/api/v1/query?query={escaped}"))
    }
}

fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_prometheus_scrapes_and_answers() {
    let Some(program) = tool("prometheus") else { return };
    let exporter = exporter().await;
    let mut prometheus = Prometheus::start(&program, exporter.directory.path(), exporter.address);
    let first = |answer: &Value| answer["data"]["result"].get(0).cloned();
    let series = r#"linkemu_sent_packets_total{link="main",client="10.0.0.2",direction="forward"}"#;
    let sample = until(series, || first(&prometheus.query(series)?));
    assert_eq!(sample["value"][1], "7");
    assert_eq!(sample["metric"]["job"], "linkemu");
    // Prometheus takes it as a counter.
    let kind = until("metadata", || {
        let answer = prometheus.api("/api/v1/metadata?metric=linkemu_sent_packets_total")?;
        answer["data"]["linkemu_sent_packets_total"].get(0).cloned()
    });
    assert_eq!(kind["type"], "counter");
    for expression in asked_by_the_dashboard() {
        let answer = prometheus.query(&expression).unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
    }
    // The fake stalled for 7 ms at most.
    exporter.fake.state().stats.stall_max_ns = 20_000_000;
    let alert = r#"ALERTS{alertname="LinkemuStall",alertstate="firing"}"#;
    until(alert, || first(&prometheus.query(alert)?));
    assert_eq!(exporter.fake.state().marks, 0);
}
