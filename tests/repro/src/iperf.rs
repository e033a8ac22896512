// SPDX-License-Identifier: Apache-2.0
//! A download by iperf3: the server sends (`--reverse`) with the congestion control of the transfer.

use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::Value;
use smoke::error::Error;
use smoke::iperf::listens;
use smoke::process::Process;
use smoke::testbed::{SERVER, Testbed};
use smoke::wait;

use crate::study::Transfer;

const SOON: Duration = Duration::from_secs(10);
/// The ends tell each other the results over a full queue.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Download {
    server: Process,
    client: Process,
}

impl Download {
    /// Starts both ends.
    ///
    /// # Errors
    /// If the server does not listen.
    pub fn start(bed: &Testbed, transfer: &Transfer, number: u16) -> anyhow::Result<Self> {
        let (port, address) = (number.to_string(), SERVER.to_string());
        let serve = ["iperf3", "-s", "-1", "-J", "-B", &address, "-p", &port];
        let mut server = Process::spawn(bed.server().command(&serve))?;
        wait::until("iperf3 listens", SOON, || {
            if server.ended().is_some() {
                return Err(Error::parse("iperf3 -s", server.stdout() + &server.stderr()));
            }
            bed.server().enter(move || listens(number)).map(|yes| yes.then_some(()))
        })?;
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
        for (end, process) in [("client", self.client), ("server", self.server)] {
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
