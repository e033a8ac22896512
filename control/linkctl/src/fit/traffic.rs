// SPDX-License-Identifier: Apache-2.0
//! Arguments of the calibration from TCP traffic.

use crate::failure::Failure;
use crate::terminal::{bar, warn};
use ::fit::traffic::calibrate::{CalibrateError, Calibrated, Options, calibrate};
use ::fit::traffic::read::{TrafficFile, read};
use clap::{Args, value_parser};
use profile::{Profile, parse_size};

/// Most flows that are simulated per congestion control and evaluation.
const MOST_FLOWS: u64 = 1000;

#[derive(Debug, Args)]
pub struct TrafficArgs {
    /// TCP downloads over the same link: published figures in TOML, JSON of iperf3 --reverse, a pcap of
    /// the sender, or round trips in CSV (ack_s, rtt_ms). They tell how long isolated losses last, the
    /// drop law, how the capacity varies, and how the terminal of --like asks for capacity. Where a file does not name its congestion control: cubic:FILE or bbr:FILE
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(super) traffic: Vec<TrafficFile>,
    /// Flows that are simulated for each congestion control, at each step of the search
    #[arg(
        long, value_name = "N", requires = "traffic", default_value_t = 16,
        value_parser = value_parser!(u64).range(2..=MOST_FLOWS)
    )]
    traffic_flows: u64,
    /// Seed of the simulated flows
    #[arg(long, value_name = "N", requires = "traffic", default_value_t = 1)]
    traffic_seed: u64,
    /// The receive window of the hosts of measured flows, such as 30MB; otherwise 30 MB, half of a
    /// buffer of 60 MB
    #[arg(long, value_name = "SIZE", requires = "traffic", value_parser = parse_size)]
    receive_window: Option<u64>,
}

impl TrafficArgs {
    /// Estimates what pings leave open; none without traffic.
    pub(super) fn calibrate(&self, profile: &Profile) -> Result<Option<Calibrated>, Failure> {
        if self.traffic.is_empty() {
            return Ok(None);
        }
        let read = read(&self.traffic);
        let (mut observations, remarks) =
            read.map_err(|error| Failure::failed("traffic", error.to_string()))?;
        warn(&remarks);
        for o in &mut observations {
            if let Some(window) = self.receive_window {
                o.setup.receive_window = window;
            }
        }
        let flows = usize::try_from(self.traffic_flows).unwrap_or(usize::MAX);
        let options = Options { flows, seed: self.traffic_seed, ..Options::default() };
        let bar = bar("simulating flows");
        let progress = |done: usize, total: usize| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        };
        let calibrated = calibrate(profile, &observations, &options, &progress);
        bar.finish_and_clear();
        match calibrated {
            Ok(calibrated) => Ok(Some(calibrated)),
            Err(CalibrateError::Schema(violations)) => {
                let message = "what was estimated is outside of what a profile can say";
                Err(Failure::invalid(message, violations))
            }
            Err(error) => Err(Failure::failed("traffic", error.to_string())),
        }
    }
}
