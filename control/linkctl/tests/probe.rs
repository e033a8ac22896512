// SPDX-License-Identifier: Apache-2.0
//! `linkctl probe`: the sender against the reflector, both as programs, without linkd.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

fn linkctl(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linkctl"));
    command.args(line.split_whitespace());
    command
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// A child that does not outlive the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn interrupt(&self) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    }

    /// Its exit code and standard output.
    fn end(mut self) -> (Option<i32>, Vec<u8>) {
        let mut output = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut output).unwrap();
        (self.0.wait().unwrap().code(), output)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A reflector, and its address.
struct Reflector {
    running: Running,
    address: String,
    _stderr: BufReader<ChildStderr>,
}

impl Reflector {
    fn new() -> Self {
        let mut running = Running::start(&mut linkctl("-o json probe reflect --bind 127.0.0.1:0"));
        let mut stderr = BufReader::new(running.0.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("reflecting probes at ").unwrap().to_owned();
        Self { running, address, _stderr: stderr }
    }
}

struct Lab {
    directory: TempDir,
    target: String,
}

impl Lab {
    fn new(target: &str) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), target: target.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("link.csv")
    }

    /// A sender that gives JSON.
    fn command(&self, options: &str) -> Command {
        let path = self.path();
        let mut command = linkctl(&format!("-o json probe send {} {options}", self.target));
        command.arg("-w").arg(path);
        command
    }

    fn run(&self, options: &str) -> Output {
        self.command(options).output().unwrap()
    }

    fn rows(&self) -> usize {
        let text = fs::read_to_string(self.path()).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).count()
    }
}

#[test]
fn a_sender_and_a_reflector_measure_the_loopback() {
    let reflector = Reflector::new();
    let lab = Lab::new(&reflector.address);
    let output = lab.run("--interval 2ms --count 50");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let summary = json(&output.stdout);
    for (key, expected) in [("sent", 50), ("received", 50), ("lost", 0), ("late", 0)] {
        assert_eq!(summary[key], expected, "{summary}");
    }
    assert_eq!((&summary["loss_ratio"], &summary["duplicates"]), (&0.0.into(), &0.into()));
    let rtt = |key: &str| summary["rtt_ms"][key].as_f64().unwrap();
    assert!(0.0 < rtt("min") && rtt("min") <= rtt("p50"));
    assert!(rtt("p50") <= rtt("p99") && rtt("p99") <= rtt("max"));
    assert_eq!(lab.rows(), 50);

    let output = lab.run("--interval 2ms --count 60 --resume");
    let summary = json(&output.stdout);
    assert_eq!((&summary["first_sequence"], &summary["sent"]), (&50.into(), &10.into()));
    assert_eq!(lab.rows(), 60);

    reflector.running.interrupt();
    let (code, output) = reflector.running.end();
    assert_eq!((code, &json(&output)["reflected"]), (Some(0), &60.into()));
}

#[test]
fn an_interrupted_sender_leaves_a_whole_file_and_says_what_it_measured() {
    let reflector = Reflector::new();
    let lab = Lab::new(&reflector.address);
    let sender = Running::start(&mut lab.command("--interval 5ms"));
    let begun = Instant::now();
    while lab.rows() < 10 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    sender.interrupt();
    let (code, output) = sender.end();
    let summary = json(&output);
    assert_eq!((code, &summary["lost"]), (Some(0), &0.into()));
    assert_eq!(summary["received"], lab.rows());
    assert!(fs::read_to_string(lab.path()).unwrap().ends_with('\n'));
}

#[test]
fn sender_without_answers_reports_once_and_continues() {
    // Holds the port, but only for datagrams from the discard port.
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    holder.connect("127.0.0.1:9").unwrap();
    let address = holder.local_addr().unwrap();
    let lab = Lab::new(&address.to_string());
    let output = lab.run("--interval 10ms --count 100 --timeout 100ms");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(json(&output.stdout)["lost"], 100);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!("warning: nobody listens at {address}");
    assert_eq!(told.matches(&expected).count(), 1, "{told}");
    assert!(told.contains("start linkctl probe reflect there"), "{told}");
}

#[test]
fn impossible_request_is_refused_with_exit_code_and_remedy() {
    let lab = Lab::new("127.0.0.1:9");
    for (options, expected) in [
        ("--interval 0ms", "--interval 0 ms: give 10 µs to 1 h"),
        ("--interval 9us", "--interval 9 µs: give 10 µs to 1 h"),
        ("--size 19", "--size 19: give 20"),
        ("--count 0", "--count 0: that is no probe"),
        ("--duration 0s", "--duration 0: that is no probe"),
        ("--timeout 0s", "--timeout 0 ms: give 1 ms"),
    ] {
        let output = lab.run(options);
        assert_eq!(output.status.code(), Some(2), "{options}");
        let error = &json(&output.stderr)["error"];
        assert_eq!(error["code"], "usage");
        assert!(error["message"].as_str().unwrap().contains(expected), "{error}");
    }
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let reflect =
        linkctl(&format!("-o json probe reflect --bind {}", taken.local_addr().unwrap())).output();
    let unresolvable = Lab::new("a..b").run("--count 1");
    fs::write(lab.path(), "precious").unwrap();
    for (output, code, expected) in [
        (lab.run("--count 1"), "already_exists", "give --resume"),
        (lab.run("--count 1 --resume"), "failed_precondition", "is not a log"),
        (lab.run("--count 1 --bind 192.0.2.1"), "io", "cannot bind 192.0.2.1"),
        (reflect.unwrap(), "io", "and is free"),
        (unresolvable, "not_found", "cannot resolve a..b"),
    ] {
        assert_eq!(output.status.code(), Some(1), "{code}");
        let error = &json(&output.stderr)["error"];
        assert_eq!(error["code"], code);
        assert!(error["message"].as_str().unwrap().contains(expected), "{error}");
    }
    assert_eq!(fs::read_to_string(lab.path()).unwrap(), "precious");
}
