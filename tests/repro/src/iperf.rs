// SPDX-License-Identifier: Apache-2.0
//! A download by iperf3: the server sends (`--reverse`) with the congestion control of the transfer.

use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::Value;
use smoke::process::Process;
use smoke::testbed::{SERVER, Testbed};

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
        number: u16,
    ) -> anyhow::Result<Self> {
        let server = server.iperf(bed, number)?;
        let (port, address) = (number.to_string(), SERVER.to_string());
        let client = bed.client_address(0).to_string();
        let amount = match (transfer.bytes, transfer.duration) {
            (Some(bytes), _) => ["-n".to_owned(), bytes.to_string()],
            (None, duration) => {
                ["-t".to_owned(), duration.unwrap_or_default().as_secs().to_string()]
            }
        };
        let fetch = [
            ["iperf3", "-c", &address, "-p", &port, "-B", &client, "-J", "--reverse", "-C"]
                .as_slice(),
            &[&transfer.algorithm, &amount[0], &amount[1]],
        ]
        .concat();
        let client = Process::spawn(bed.client().command(&fetch))?;
        Ok(Self { server, client })
    }

    pub fn ended(&mut self) -> bool {
        self.client.ended().is_some()
    }

    /// Reads the reports of both ends.
    ///
    /// # Errors
    /// If an end reports an error.
    pub fn finish(self) -> anyhow::Result<()> {
        let ends = [("client", Some(self.client)), ("server", self.server)];
        for (end, process) in ends.into_iter().filter_map(|(end, p)| Some((end, p?))) {
            let said = process.finish(GRACE)?;
            let report: Value = serde_json::from_str(&said.stdout)
                .with_context(|| format!("iperf3's {end} wrote {}{}", said.stdout, said.stderr))?;
            if let Some(error) = report["error"].as_str() {
                return Err(anyhow!("iperf3's {end}: {error}"));
            }
        }
        Ok(())
    }
}
