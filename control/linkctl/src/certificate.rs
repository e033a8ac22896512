// SPDX-License-Identifier: Apache-2.0
//! `linkctl certificate`: was the emulator itself the bottleneck since the last mark?
//!
//! linkd is asked for the statistics, once; [`certificate`] judges them.

use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use certificate::{Certificate, Criterion, Limits, Unit, Verdict};
use clap::Args;
use comfy_table::{Table, presets};
use profile::{counted, parse_duration};
use proto::linkemu::v1 as pb;
use view::{Snapshot, instant, size, time};

pub const EXAMPLES: &str = "\
Examples:
  linkctl stats --mark                      begin a run
  linkctl certificate                       and check it
  linkctl certificate --mark                and begin the next run
  linkctl certificate --max-lateness 100us --max-stall 1ms
  linkctl -o json certificate | jq .verdict

If a run passes, the link limited it, not the emulator. Repeat a run that fails, with the remedies
of the certificate. The limits of lateness and stall follow from the link (docs/certificate.md);
--strict applies 1 ms and 10 ms to every link.

Exit code 4 if a criterion fails.";

#[derive(Debug, Args)]
pub struct CertificateArgs {
    /// Then begin the next run: reset high-water marks, lateness and stalls
    #[arg(long)]
    mark: bool,
    #[command(flatten)]
    limits: LimitArgs,
}

// Of `linkctl certificate` and `linkctl run`; a doc comment would be the help of both.
#[derive(Debug, Args)]
pub struct LimitArgs {
    /// Maximum number of packets that the emulator lost
    #[arg(long, value_name = "N", default_value_t = Limits::default().emulator_drops)]
    max_drops: u64,
    /// Maximum lateness of 99 % of the packets; default: what the link tolerates
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_lateness: Option<u64>,
    /// Maximum time for which a worker stalled, and lateness of any packet; default: what the link
    /// tolerates
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_stall: Option<u64>,
    /// Default to a lateness of 1 ms and a stall of 10 ms on every link
    #[arg(long)]
    strict: bool,
    /// Maximum use of a worker's memory for packets, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = Limits::default().memory_percent, value_parser = clap::value_parser!(u8).range(..=100))]
    max_memory: u8,
    /// Maximum number of changes of the link; default: any number
    #[arg(long, value_name = "N")]
    max_changes: Option<u64>,
    /// Minimum number of packets sent
    #[arg(long, value_name = "N", default_value_t = Limits::default().packets)]
    min_packets: u64,
}

impl LimitArgs {
    pub fn limits(&self) -> Limits {
        Limits {
            packets: self.min_packets,
            emulator_drops: self.max_drops,
            lateness_p99_ns: self.max_lateness,
            stall_ns: self.max_stall,
            memory_percent: self.max_memory,
            changes: self.max_changes,
            strict: self.strict,
        }
    }
}

/// The certificate of the run since the last mark.
pub async fn found(
    connection: &Connection,
    limits: &Limits,
    mark: bool,
) -> Result<Certificate, Failure> {
    let request = pb::GetStatsRequest { mark };
    let stats = connection.call(|mut c| async move { c.get_stats(request).await }).await?;
    Certificate::new(&Snapshot::from(stats), limits)
        .map_err(|error| Failure::failed("unimplemented", error.to_string()))
}

pub async fn run(context: &Context, args: &CertificateArgs) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let certificate = found(&connection, &args.limits.limits(), args.mark).await?;
    match context.output {
        Output::Text => output::text(&text(&certificate))?,
        Output::Json => output::json(&certificate)?,
    }
    match certificate.verdict {
        Verdict::Pass => Ok(()),
        Verdict::Fail => {
            let failed: Vec<_> = certificate.failed().map(Criterion::to_string).collect();
            let failed = failed.join("; ");
            Err(Failure::check(format!("{}: {failed}", certificate.summary)))
        }
    }
}

pub fn text(certificate: &Certificate) -> String {
    let Certificate { summary, span, until_ns, until_utc, generation, changes, .. } = certificate;
    let utc = |utc: &Option<String>| utc.clone().unwrap_or_else(|| "an unknown time".into());
    let length = instant::seconds(until_ns.saturating_sub(span.since_ns));
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["CRITERION", "FOUND", "LIMIT", "HOLDS"]);
    for c in &certificate.criteria {
        let holds = if c.holds { "yes" } else { "NO" };
        table.add_row([c.name.into(), c.unit.figure(c.value), c.bound(), holds.into()]);
    }
    let late = &certificate.lateness_ns;
    let verdict = match certificate.verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
    };
    let reasons = certificate.criteria.iter().filter(|c| c.unit == Unit::Ns);
    let reasons: String = reasons.map(|c| format!("limit of {}: {}\n", c.name, c.reason)).collect();
    let lines = |kind: &str, lines: &[String]| -> String {
        lines.iter().map(|line| format!("{kind}: {line}\n")).collect()
    };
    let (remarks, remedies) =
        (lines("remark", &certificate.remarks), lines("remedy", &certificate.remedies));
    format!(
        "{verdict}: {summary}\n\
         from {} to {}, {length}\n\
         generation {} to {generation}: {}\n\n{}\n\n\
         packets: {} received, {} sent\n\
         lost by the emulator: overload {}, missed {}, transmit dropped {}, \
         unconfirmed {}; of clients without a slot {}\n\
         lateness: p50 {}, p99 {}, p99.9 {}, max {} of {}\n\
         memory: {} at most, of {}; {}\n{reasons}{remarks}{remedies}",
        utc(&span.since_utc),
        utc(until_utc),
        span.generation,
        counted(changes, "change", "changes"),
        table.trim_fmt(),
        span.received.packets,
        span.sent.packets,
        span.overload,
        span.missed,
        span.transmit_dropped,
        span.unconfirmed,
        span.unplaced,
        time(late.p50),
        time(late.p99),
        time(late.p999),
        time(late.max),
        counted(late.count, "packet", "packets"),
        size(certificate.memory.used_max_bytes),
        size(certificate.memory.capacity_bytes),
        counted(certificate.workers.len(), "worker", "workers"),
    )
}
