// SPDX-License-Identifier: Apache-2.0
//! The driver's own forwarder, `dpdk-testpmd` with `--forward-mode=io`, as the ceiling.
//!
//! It runs on the same driver with the same arguments, in a separate process. Its processor
//! time comes from the scheduler's account of its forwarding thread, its packets from its own
//! statistics. It forwards between two ports without touching a byte.
//! Reference: DPDK testpmd user guide, "Testpmd Runtime Functions".

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use thiserror::Error as Derive;

const PROGRAM: &str = "dpdk-testpmd";
/// Time limit for its prompt.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why there is no figure.
#[derive(Debug, Derive)]
pub enum TestpmdError {
    #[error("`dpdk-testpmd` is missing: run scripts/setup.sh bench")]
    Missing,
    /// It did not start, or ended.
    #[error("`dpdk-testpmd` failed: {0}")]
    Failed(String),
    /// It said nothing in time.
    #[error("`dpdk-testpmd` did not print `{0}` within 20 s")]
    Silent(&'static str),
}

impl From<std::io::Error> for TestpmdError {
    fn from(e: std::io::Error) -> Self {
        Self::Failed(e.to_string())
    }
}

/// A running testpmd; killed when dropped.
#[derive(Debug)]
pub struct Testpmd {
    child: Child,
    lines: Receiver<String>,
}

impl Testpmd {
    /// Starts one on two null ports of frames of `len` bytes.
    ///
    /// # Errors
    /// If it is missing or does not come up.
    pub fn start(len: u32, huge: bool) -> Result<Self, TestpmdError> {
        if !on_path(PROGRAM) {
            return Err(TestpmdError::Missing);
        }
        // Into a pipe it would print a page at a time.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", PROGRAM]);
        if huge {
            command.arg("--in-memory");
        } else {
            command.args(["--no-huge", "--no-shconf"]);
        }
        let prefix = format!("bench-{}", std::process::id());
        command.args(["-m", "128", "--no-pci", "--no-telemetry", "--file-prefix", &prefix]);
        command.args(["--lcores", "0@(0-1023),1@(0-1023)"].map(lcores));
        for n in 0..2 {
            command.args(["--vdev", &format!("net_null{n},size={len},copy=0")]);
        }
        command.args(["--", "-i", "--forward-mode=io", "--burst=32", "--total-num-mbufs=8192"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (sender, lines) = channel();
        if let Some(out) = child.stdout.take() {
            // Ends with the pipe.
            std::thread::spawn(move || {
                let lines = BufReader::new(out).lines();
                lines.map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
            });
        }
        let mut testpmd = Self { child, lines };
        // Its answer shows that it reads commands.
        testpmd.say("show fwd stats all")?;
        testpmd.wait_for("Accumulated forward statistics", &mut Vec::new())?;
        Ok(testpmd)
    }

    /// Forwards for `length`; returns the forwarder's ns of processor time per packet.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn run(&mut self, length: Duration) -> Result<f64, TestpmdError> {
        self.say("clear fwd stats all")?;
        let before = self.cpu_ns()?;
        self.say("start")?;
        std::thread::sleep(length);
        self.say("stop")?;
        let mut lines = Vec::new();
        self.wait_for("Done.", &mut lines)?;
        let ns = self.cpu_ns()?.saturating_sub(before);
        let packets = accumulated(&lines)
            .ok_or_else(|| TestpmdError::Failed("no statistics in what it printed".to_owned()))?;
        Ok(ns as f64 / packets.max(1) as f64)
    }

    fn say(&mut self, command: &str) -> Result<(), TestpmdError> {
        let pipe = self.child.stdin.as_mut();
        let pipe = pipe.ok_or_else(|| TestpmdError::Failed("no pipe to it".to_owned()))?;
        writeln!(pipe, "{command}")?;
        Ok(pipe.flush()?)
    }

    fn wait_for(&self, what: &'static str, lines: &mut Vec<String>) -> Result<(), TestpmdError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let found = line.contains(what);
                    lines.push(line);
                    if found {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(TestpmdError::Silent(what)),
                Err(RecvTimeoutError::Disconnected) => {
                    let last = lines.last().cloned().unwrap_or_default();
                    return Err(TestpmdError::Failed(format!("it ended after `{last}`")));
                }
            }
        }
    }

    /// Processor time of its forwarding thread.
    fn cpu_ns(&self) -> Result<u64, TestpmdError> {
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let path = task?.path();
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            // "lcore-worker-1" up to DPDK 23.07, "dpdk-worker1" from then on.
            if name.contains("worker") {
                let stat = fs::read_to_string(path.join("schedstat"))?;
                let ns = stat.split(' ').next().and_then(|n| n.parse().ok());
                return ns.ok_or_else(|| TestpmdError::Failed("schedstat is empty".to_owned()));
            }
        }
        Err(TestpmdError::Failed("it has no forwarding thread".to_owned()))
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.say("quit");
        let deadline = Instant::now() + Duration::from_secs(3);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Cuts a wide core set to the cores that there are.
fn lcores(argument: &str) -> String {
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    argument.replace("1023", &last.to_string())
}

/// Packets received on all ports, from the output of `stop`.
fn accumulated(lines: &[String]) -> Option<u64> {
    let from = lines.iter().position(|l| l.contains("Accumulated forward statistics"))?;
    let line = lines[from..].iter().find(|l| l.trim_start().starts_with("RX-packets:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packets_are_those_of_all_ports() {
        let text = "\
Telling cores to stop...
  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: 11             RX-dropped: 0             RX-total: 11
  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: 2543200        RX-dropped: 0             RX-total: 2543200
  TX-packets: 2543168        TX-dropped: 0             TX-total: 2543168
Done.";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(accumulated(&lines), Some(2_543_200));
        assert_eq!(accumulated(&lines[..3]), None);
    }

    #[test]
    fn program_is_searched_on_path() {
        assert!(on_path("sh") && !on_path("no-such-program"));
    }

    #[test]
    fn the_core_set_names_cores_that_exist() {
        assert!(!lcores("0@(0-1023)").contains("1023"));
    }
}
