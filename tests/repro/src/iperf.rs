// SPDX-License-Identifier: Apache-2.0
//! A download by iperf3: the server sends (`--reverse`) with the congestion control of the transfer.

use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::Value;
use smoke::process::Process;
use smoke::testbed::{SERVER, Testbed};

use crate::metrics::{Metrics, Series, put};
use crate::server::Server;
use crate::study::Transfer;

/// The ends tell each other the results over a full queue.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Download {
    /// Absent if it runs in a guest.
    server: Option<Process>,
    client: Process,
}

impl Download {
    /// Starts both ends.
    ///
    /// # Errors
    /// If the server does not listen.
    pub fn start(
        bed: &Testbed,
        server: &mut Server,
        transfer: &Transfer,
        (client, number): (usize, u16),
    ) -> anyhow::Result<Self> {
        let asked = server.asked(&transfer.algorithm);
        let server = server.iperf(bed, number)?;
        let (port, address) = (number.to_string(), SERVER.to_string());
        let client = bed.client_address(client).to_string();
        let amount = match (transfer.bytes, transfer.duration) {
            (Some(bytes), _) => ["-n".to_owned(), bytes.to_string()],
            (None, duration) => {
                ["-t".to_owned(), duration.unwrap_or_default().as_secs().to_string()]
            }
        };
        let mut fetch =
            vec!["iperf3", "-c", &address, "-p", &port, "-B", &client, "-J", "--reverse"];
        fetch.extend([&amount[0], &amount[1]].map(String::as_str));
        if let Some(algorithm) = asked {
            fetch.extend(["-C", algorithm]);
        }
        let client = Process::spawn(bed.client().command(&fetch))?;
        Ok(Self { server, client })
    }

    pub fn ended(&mut self) -> bool {
        self.client.ended().is_some()
    }

    /// Reads the reports of both ends, and returns the client's.
    ///
    /// # Errors
    /// If an end reports an error.
    pub fn finish(self) -> anyhow::Result<Value> {
        let client = report("client", self.client);
        let server = self.server.map(|server| report("server", server)).transpose();
        server.and(client)
    }
}

fn report(end: &str, process: Process) -> anyhow::Result<Value> {
    let said = process.finish(GRACE)?;
    let report: Value = serde_json::from_str(&said.stdout)
        .with_context(|| format!("iperf3's {end} wrote {}{}", said.stdout, said.stderr))?;
    match report["error"].as_str() {
        Some(error) => Err(anyhow!("iperf3's {end}: {error}")),
        None => Ok(report),
    }
}

/// Metrics and series of the client's report: bytes that arrived in each second.
#[must_use]
pub fn measured(report: &Value) -> (Metrics, Series) {
    let rate = |sum: &Value| sum["bits_per_second"].as_f64().map(|bps| bps / 1e6);
    let mut metrics = Metrics::new();
    let received = &report["end"]["sum_received"];
    put(&mut metrics, "goodput_mbps", rate(received));
    put(&mut metrics, "duration_s", received["seconds"].as_f64());
    put(&mut metrics, "retransmits", report["end"]["sum_sent"]["retransmits"].as_f64());
    let intervals = report["intervals"].as_array().into_iter().flatten();
    let mbps: Vec<f64> = intervals.filter_map(|i| rate(&i["sum"])).collect();
    let rtt_ms = vec![None; mbps.len()];
    (metrics, Series { mbps, rtt_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_report_has_throughput_and_seconds() {
        let report = serde_json::json!({
            "intervals": [{ "sum": { "bits_per_second": 5e6 } }, { "sum": { "bits_per_second": 7e6 } }],
            "end": {
                "sum_sent": { "retransmits": 43 },
                "sum_received": { "seconds": 2.0, "bits_per_second": 6e6 },
            },
        });
        let (metrics, series) = measured(&report);
        assert_eq!((metrics["goodput_mbps"], metrics["retransmits"]), (6.0, 43.0));
        assert_eq!(series.mbps, [5.0, 7.0]);
    }
}
