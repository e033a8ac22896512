// SPDX-License-Identifier: Apache-2.0
//! `linkctl probe send`: sends probes and writes the log.

use super::show::{Progress, SendView};
use super::thread::{Signals, drive, failure, stop};
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use ::probe::{Error, Extent, Plan, Report, Spacing, Target};
use clap::Args;
use profile::parse_duration;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

pub const EXAMPLES: &str = "\
Examples:
  linkctl probe send far.example -w link.csv --duration 24h
  linkctl probe send far.example -w link.csv --duration 24h --resume
  linkctl probe send [2001:db8::7]:9000 -w link.csv --interval 15ms --count 1000000
  linkctl probe send far.example -w link.csv --poisson --seed 7
  linkctl -o json probe send 192.0.2.7 -w link.csv --count 100 | jq .rtt_ms

An outage that is shorter than the interval is seen by chance only, and an event every three hours is
seen eight times in a day. 20 bytes every 200 ms are 2 kbit/s with headers.

The file is CSV after comment lines with the settings: sequence, sent_utc, sent_s (since the start),
rtt_ms (empty: lost), there_ms and back_ms (with --synchronised). It is written at least once per
second. The first SIGINT or SIGTERM waits for the probes in flight, the second does not; --resume
continues the file after either, or after a crash.

Round trips are measured by the monotonic clock, from immediately before the system call that sends to
the kernel's timestamp of the arrival, to within some microseconds. If this process is delayed by more
than an interval, the probes that were due are not sent, and are counted as skipped.";

#[derive(Debug, Args)]
pub struct SendArgs {
    /// Host with linkctl probe reflect; default port: 8620
    #[arg(value_name = "HOST[:PORT]")]
    target: Target,
    /// Write the probes to this file, which must not exist except with --resume
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// Interval of the probes, 10us to 1h
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "200ms")]
    interval: Duration,
    /// Draw exponential intervals with this mean, to avoid aliasing with periodic effects
    #[arg(long)]
    poisson: bool,
    /// Seed of the exponential intervals
    #[arg(long, value_name = "N", requires = "poisson")]
    seed: Option<u64>,
    /// Stop when the file has N probes; without --count and --duration, at SIGINT
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    count: Option<u64>,
    /// Stop this long after the start of the file
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// UDP payload in bytes, 20 to 1472
    #[arg(long, value_name = "BYTES", default_value_t = ::probe::HEADER)]
    size: usize,
    /// Count a probe as lost after this time, 1ms to 1h
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    timeout: Duration,
    /// Continue the file, if it exists; all other options must be the same as before
    #[arg(long)]
    resume: bool,
    /// Write one-way delays too: the clocks of both hosts are synchronised (PTP, GNSS)
    #[arg(long)]
    synchronised: bool,
    /// Source address
    #[arg(long, value_name = "ADDR")]
    bind: Option<IpAddr>,
}

fn duration(text: &str) -> Result<Duration, profile::UnitError> {
    parse_duration(text).map(Duration::from_nanos)
}

impl SendArgs {
    fn plan(&self) -> Plan {
        let spacing = match self.poisson {
            true => Spacing::Poisson { seed: self.seed },
            false => Spacing::Constant,
        };
        let extent = match (self.count, self.duration) {
            (Some(count), _) => Extent::Count(count),
            (None, Some(duration)) => Extent::Duration(duration),
            (None, None) => Extent::Open,
        };
        Plan {
            source: self.bind,
            interval: self.interval,
            spacing,
            size: self.size,
            timeout: self.timeout,
            extent,
            synchronised: self.synchronised,
            ..Plan::new(self.target.clone())
        }
    }
}

pub async fn run(context: &Context, args: &SendArgs) -> Result<(), Failure> {
    let report = measure(&args.plan(), &args.write, args.resume).await?;
    let view = SendView::new(&args.target, &args.write, &report);
    match context.output {
        Output::Json => output::json(&view),
        Output::Text => output::text(&view.text()),
    }
}

/// Sends as planned and shows the progress.
pub async fn measure(plan: &Plan, path: &Path, resume: bool) -> Result<Report, Failure> {
    plan.check().map_err(|error| failure(Error::Plan(error)))?;
    let (signals, stop) = (Signals::new()?, stop()?);
    let (told, reports) = watch::channel(Report::default());
    let mut progress = Progress::new(plan);
    let sender = {
        let (plan, path, stop) = (plan.clone(), path.to_owned(), stop.clone());
        let tell = move |report: &Report| {
            told.send_replace(*report);
        };
        tokio::task::spawn_blocking(move || ::probe::send(&plan, &path, resume, &stop, tell))
    };
    let report = drive(sender, reports, signals, &stop, |event| progress.show(&event)).await;
    progress.end();
    let report = report?;
    // Trouble after the last report.
    progress.warn(&report);
    Ok(report)
}
