// SPDX-License-Identifier: Apache-2.0
//! The transfers of all rounds that run at once: their start, their end, and what each measured.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use quicflow::report::Served;
use smoke::capture::Capture;
use smoke::testbed::{SERVER_INTERFACE, Testbed};
use smoke::wait;

use crate::metrics::{self, Metrics, Series};
use crate::packets;
use crate::server::Server;
use crate::study::{Metrics as Definitions, Row, Study, Tool};
use crate::{iperf, quic};

/// Port of the first transfer.
const PORT: u16 = 5201;
const LOOK: Duration = Duration::from_millis(50);

/// The metrics and the series of a transfer.
pub type Measured = (Metrics, Series);

/// A download of either tool.
#[derive(Debug)]
enum Flow {
    Tcp(iperf::Download),
    Quic(quic::Download),
}

/// Running transfers, in the order of rounds.
#[derive(Debug)]
pub struct Transfers {
    begin: Instant,
    capture: Option<Capture>,
    /// QUIC senders, each of all rounds of a transfer.
    servers: Vec<Option<quic::Server>>,
    /// Flows with their ports.
    flows: Vec<(Flow, u16)>,
    /// Transfers of a round.
    count: usize,
}

impl Transfers {
    /// Starts the transfers of a number of rounds.
    ///
    /// # Errors
    /// If an end cannot be started.
    pub fn start(
        study: &Study,
        row: &Row,
        bed: &Testbed,
        server: &mut Server,
        rounds: usize,
    ) -> anyhow::Result<Self> {
        let count = row.transfer.len();
        let ports: Vec<u16> = (PORT..).take(count * rounds).collect();
        let capture = capture(study, row, bed, &ports)?;
        let quic = row.transfer.iter().zip(&ports);
        let servers: Vec<Option<quic::Server>> = quic
            .map(|(t, &port)| (t.tool == Tool::Quic).then(|| quic::Server::start(bed, t, port)))
            .map(Option::transpose)
            .collect::<Result<_, _>>()?;
        let (begin, flows) = (Instant::now(), Vec::new());
        let mut transfers = Self { begin, capture, servers, flows, count };
        for (number, port) in ports.into_iter().enumerate() {
            let after = row.stagger.unwrap_or_default() * u32::try_from(number / count)?;
            wait::until_instant(begin + after);
            let flow = transfers.flow(row, bed, server, (number, port))?;
            transfers.flows.push((flow, port));
        }
        Ok(transfers)
    }

    /// Starts a flow, counted over all rounds.
    fn flow(
        &self,
        row: &Row,
        bed: &Testbed,
        server: &mut Server,
        (number, port): (usize, u16),
    ) -> anyhow::Result<Flow> {
        let (round, place) = (number / self.count, number % self.count);
        let transfer = &row.transfer[place];
        let client = round * row.clients() + usize::from(transfer.client);
        Ok(match &self.servers[place] {
            None => Flow::Tcp(iperf::Download::start(bed, server, transfer, (client, port))?),
            Some(server) => {
                let address = bed.client_address(client);
                Flow::Quic(server.fetch(bed, transfer, address, u16::try_from(number)?)?)
            }
        })
    }

    /// Waits until all flows have ended.
    ///
    /// # Errors
    /// If they do not end within a limit.
    pub fn wait(&mut self, limit: Duration) -> anyhow::Result<()> {
        while !self.flows.iter_mut().all(|(flow, _)| flow.ended()) {
            let elapsed = self.begin.elapsed();
            ensure!(elapsed < limit, "the transfers did not end within {limit:?}");
            wait::until_instant(Instant::now() + LOOK);
        }
        Ok(())
    }

    /// Measures all flows, round by round. The flows of a round are in the order of the row; one
    /// that failed fails its round.
    ///
    /// # Errors
    /// If the capture or the reports of a QUIC sender cannot be read.
    pub fn finish(
        self,
        definitions: &Definitions,
    ) -> anyhow::Result<Vec<anyhow::Result<Vec<Measured>>>> {
        let served = self.servers.into_iter().flatten().map(quic::Server::finish);
        let served: HashMap<_, _> =
            served.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        let ports: Vec<u16> = self.flows.iter().map(|(_, port)| *port).collect();
        let traces = self.capture.map(|c| packets::read(&c.stop()?, &ports)).transpose()?;
        let measure = |(flow, port): (Flow, u16)| match flow {
            Flow::Tcp(download) => {
                let report = download.finish()?;
                let Some(traces) = &traces else { return Ok(iperf::measured(&report)) };
                let trace = traces.get(&port);
                let trace = trace.with_context(|| format!("no packet of port {port}"))?;
                let series = metrics::series(trace, definitions);
                Ok((metrics::compute(trace, definitions), series))
            }
            Flow::Quic(download) => fetched(download, &served),
        };
        let mut flows = self.flows.into_iter().map(measure);
        let mut rounds = Vec::new();
        for _ in 0..ports.len() / self.count {
            // All of a round are taken, so that the next one starts at its own.
            let round: Vec<_> = flows.by_ref().take(self.count).collect();
            rounds.push(round.into_iter().collect());
        }
        Ok(rounds)
    }
}

fn fetched(
    download: quic::Download,
    served: &HashMap<std::net::SocketAddr, Served>,
) -> anyhow::Result<Measured> {
    let local = download.local;
    let fetched = download.finish()?;
    let served = served.get(&local).with_context(|| format!("no report about {local}"))?;
    Ok(quic::measured(&fetched, served))
}

impl Flow {
    fn ended(&mut self) -> bool {
        match self {
            Self::Tcp(download) => download.ended(),
            Self::Quic(download) => download.ended(),
        }
    }
}

/// The capture of TCP transfers, if the study needs it.
fn capture(
    study: &Study,
    row: &Row,
    bed: &Testbed,
    ports: &[u16],
) -> anyhow::Result<Option<Capture>> {
    let tcp = row.transfer.iter().any(|t| t.tool == Tool::Iperf3);
    if !tcp || study.metrics.from_iperf3 {
        return Ok(None);
    }
    let file = bed.directory().path("sender.pcap");
    let filter = format!("tcp portrange {PORT}-{}", ports.last().copied().unwrap_or(PORT));
    Ok(Some(Capture::start(bed.server(), SERVER_INTERFACE, &filter, file)?))
}
