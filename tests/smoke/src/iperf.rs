// SPDX-License-Identifier: Apache-2.0
//! Downloads by iperf3: the server of the link sends, the client receives.
//!
//! Throughput is the TCP payload that the client's iperf3 received in each interval. The round-trip
//! time is `tcpi_rtt` of the sending kernel, which the server's iperf3 reports for each interval.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::process::Process;
use crate::testbed::{SERVER, Testbed};
use crate::wait;

/// Time beyond the download itself: connection set-up over the link, draining queues.
const GRACE: Duration = Duration::from_secs(45);

#[derive(Clone, Debug)]
pub struct Plan {
    pub cc: String,
    pub duration: Duration,
    /// Index of the client, from zero.
    pub client: usize,
    /// Port of the server. Simultaneous downloads need different ports.
    pub port: u16,
}

impl Plan {
    /// A download by the first client.
    #[must_use]
    pub fn new(cc: &str, duration: Duration) -> Self {
        Self { cc: cc.to_owned(), duration, client: 0, port: 5201 }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// Start, in seconds of the download.
    pub start: f64,
    pub end: f64,
    pub bytes: u64,
}

/// Round-trip time measured by the sender.
#[derive(Clone, Copy, Debug)]
pub struct SenderRtt {
    /// Seconds of the download.
    pub at: f64,
    pub rtt_ms: f64,
}

#[derive(Clone, Debug)]
pub struct Transfer {
    pub plan: Plan,
    pub intervals: Vec<Interval>,
    pub rtts: Vec<SenderRtt>,
    pub retransmits: u64,
}

#[derive(Debug)]
pub struct Download {
    plan: Plan,
    server: Process,
    client: Process,
}

impl Download {
    pub fn start(bed: &Testbed, plan: Plan) -> Result<Self> {
        let address = bed.client_address(plan.client);
        Self::between(bed.server(), bed.client(), address, plan)
    }

    /// Starts both ends in two namespaces. The first has the server's address, the second
    /// `address`.
    pub fn between(
        sender: &Namespace,
        receiver: &Namespace,
        address: Ipv4Addr,
        plan: Plan,
    ) -> Result<Self> {
        let (port, server) = (plan.port.to_string(), SERVER.to_string());
        let serve = ["iperf3", "-s", "-1", "-J", "-i", "0.5", "-B", &server, "-p", &port];
        let mut serving = Process::spawn(sender.command(&serve))?;
        let number = plan.port;
        wait::until("iperf3 listens", Duration::from_secs(10), || {
            if serving.ended().is_some() {
                return Err(Error::parse("iperf3 -s", serving.stdout() + &serving.stderr()));
            }
            sender.enter(move || listens(number)).map(|yes| yes.then_some(()))
        })?;
        let address = address.to_string();
        let seconds = plan.duration.as_secs().to_string();
        let fetch = [
            "iperf3",
            "-c",
            &server,
            "-p",
            &port,
            "-B",
            &address,
            "-t",
            &seconds,
            "-J",
            "-i",
            "0.5",
            "--reverse",
            "-C",
            &plan.cc,
        ];
        let client = Process::spawn(receiver.command(&fetch))?;
        Ok(Self { plan, server: serving, client })
    }

    pub fn ended(&mut self) -> bool {
        self.client.ended().is_some()
    }

    /// Waits for its end and reads the reports.
    pub fn finish(self) -> Result<Transfer> {
        let client = self.client.finish(self.plan.duration + GRACE)?;
        let server = self.server.finish(GRACE)?;
        let received = Report::read("the client's iperf3", &client.stdout, &client.stderr)?;
        let sent = Report::read("the server's iperf3", &server.stdout, &server.stderr)?;
        let intervals = received
            .intervals
            .iter()
            .map(|i| Interval { start: i.sum.start, end: i.sum.end, bytes: i.sum.bytes })
            .collect();
        let rtts = sent
            .intervals
            .iter()
            .filter_map(|i| {
                let rtt = i.streams.first()?.rtt?;
                Some(SenderRtt { at: i.sum.end, rtt_ms: rtt / 1000.0 })
            })
            .collect();
        let retransmits = sent.intervals.iter().filter_map(|i| i.sum.retransmits).sum();
        Ok(Transfer { plan: self.plan, intervals, rtts, retransmits })
    }
}

impl Transfer {
    /// Goodput over the intervals that start at or after `from` seconds.
    #[must_use]
    pub fn mbps_from(&self, from: f64) -> f64 {
        // Tolerates rounding: an interval can start slightly before the half.
        let chosen = self.intervals.iter().filter(|i| i.start >= from - 0.1);
        let (bytes, time) = chosen.fold((0, 0.0), |(b, t), i| (b + i.bytes, t + (i.end - i.start)));
        bytes as f64 * 8e-6 / time
    }

    /// Goodput over the second half.
    #[must_use]
    pub fn mbps_second_half(&self) -> f64 {
        self.mbps_from(self.plan.duration.as_secs_f64() / 2.0)
    }

    /// Mean round-trip time of the sender over the second half.
    #[must_use]
    pub fn rtt_ms_second_half(&self) -> f64 {
        let half = self.plan.duration.as_secs_f64() / 2.0;
        let chosen: Vec<f64> = self.rtts.iter().filter(|r| r.at > half).map(|r| r.rtt_ms).collect();
        chosen.iter().sum::<f64>() / chosen.len() as f64
    }
}

#[derive(Debug, Deserialize)]
struct Report {
    #[serde(default)]
    intervals: Vec<ReportInterval>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ReportInterval {
    streams: Vec<ReportStream>,
    sum: ReportSum,
}

#[derive(Debug, Deserialize)]
struct ReportStream {
    /// Microseconds.
    rtt: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct ReportSum {
    start: f64,
    end: f64,
    bytes: u64,
    retransmits: Option<u64>,
}

impl Report {
    fn read(what: &str, json: &str, stderr: &str) -> Result<Self> {
        let report: Self = serde_json::from_str(json)
            .map_err(|e| Error::parse(what, format!("{e}: {json}{stderr}")))?;
        match report.error {
            Some(error) => Err(Error::parse(what, error)),
            None => Ok(report),
        }
    }
}

/// Whether a TCP socket listens on this port in this thread's namespace.
pub fn listens(port: u16) -> Result<bool> {
    use crate::error::Trying;
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp")
        .trying(|| "read the table of sockets".to_owned())?;
    let local = format!(":{port:04X} ");
    // Column 4 is the state; 0A is LISTEN.
    Ok(table.lines().any(|l| {
        l.contains(&local) && l.split_whitespace().nth(3).is_some_and(|state| state == "0A")
    }))
}
