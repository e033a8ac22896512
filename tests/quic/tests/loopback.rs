// SPDX-License-Identifier: Apache-2.0
//! The real program at both ends, over the loopback interface.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use quicflow::page::Page;
use quicflow::report::{Fetched, Served};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quicflow");
const STACKS: &[&str] = if cfg!(feature = "s2n") { &["quinn", "s2n"] } else { &["quinn"] };

struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    address: String,
    directory: TempDir,
}

impl Server {
    fn start(stack: &str, congestion: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new(PROGRAM)
            .args(["serve", "--stack", stack, "--congestion", congestion])
            .args(["--bind", "127.0.0.1:0", "--x509"])
            .arg(directory.path().join("x509.der"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("serving ").unwrap().to_owned();
        Self { child, out, address, directory }
    }

    fn fetch(&self, stack: &str, work: [&str; 2]) -> Fetched {
        let fetched = Command::new(PROGRAM)
            .args(["fetch", "--stack", stack, "--connect", &self.address])
            .args(["--bind", "127.0.0.1:0", "--limit", "20"])
            .args(work)
            .arg("--x509")
            .arg(self.directory.path().join("x509.der"))
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&fetched.stderr);
        assert!(fetched.status.success(), "{stack}: {error}");
        serde_json::from_slice(&fetched.stdout).unwrap()
    }

    /// Stops the server as a test bed does, and reads its reports.
    fn stop(mut self) -> Vec<Served> {
        let stopped = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(stopped.success());
        let lines = self.out.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        let reports = lines.collect();
        assert!(self.child.wait().unwrap().success());
        reports
    }
}

#[test]
fn page_arrives_completely_with_every_stack_and_congestion_control() {
    for stack in STACKS {
        for congestion in ["cubic", "bbr"] {
            let server = Server::start(stack, congestion);
            let transfer = server.fetch(stack, ["--page", "big"]);
            assert_eq!((transfer.objects, transfer.bytes), (218, Page::Big.bytes()));
            assert_eq!(transfer.bytes_per_step.iter().sum::<u64>(), transfer.bytes);
            let udp: u64 = transfer.udp_bytes_per_step.iter().sum();
            assert!((1.0..1.2).contains(&(udp as f64 / transfer.bytes as f64)), "{udp}");
            let times = [0.0, transfer.handshake_s, transfer.first_byte_s, transfer.end_s];
            assert!(times.is_sorted() && transfer.goodput_mbps() > 1.0, "{transfer:?}");
            let served = server.stop();
            assert_eq!((&*served[0].stack, &*served[0].congestion), (*stack, congestion));
        }
    }
}

#[test]
fn bulk_transfer_ends_with_its_time_and_reports_the_path() {
    for stack in STACKS {
        let server = Server::start(stack, "bbr");
        let transfer = server.fetch(stack, ["--seconds", "0.6"]);
        assert!((0.6..3.0).contains(&transfer.end_s), "{transfer:?}");
        assert!(transfer.bytes > 1_000_000, "{stack}: {} bytes", transfer.bytes);
        let served = server.stop();
        let last = served[0].path.iter().rfind(|sample| sample.rtt_ms > 0.0);
        let last = last.unwrap_or_else(|| panic!("{stack}: no path in {served:?}"));
        assert!(last.window_bytes >= 13_500 && last.sent > 700, "{stack}: {last:?}");
    }
}
