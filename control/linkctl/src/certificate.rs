// SPDX-License-Identifier: Apache-2.0
//! `linkctl certificate`: was the emulator itself the bottleneck since the last mark?

use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use certificate::{EMULATOR_DROPS, MEMORY_PERCENT, NS, PACKETS_SENT, bound, figure};
use clap::Args;
use comfy_table::{Table, presets};
use profile::{counted, parse_duration};
use proto::linkemu::v1 as pb;
use view::{instant, size, time};

pub const EXAMPLES: &str = "\
Examples:
  linkctl stats --mark                      begin a run
  linkctl certificate                       and check it
  linkctl certificate --mark                and begin the next run
  linkctl certificate --max-lateness 100us --max-stall 1ms
  linkctl -o json certificate | jq .holds

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
    #[arg(long, value_name = "N", default_value_t = EMULATOR_DROPS)]
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
    #[arg(long, value_name = "PERCENT", default_value_t = MEMORY_PERCENT, value_parser = clap::value_parser!(u32).range(..=100))]
    max_memory: u32,
    /// Maximum number of changes of the link; default: any number
    #[arg(long, value_name = "N")]
    max_changes: Option<u64>,
    /// Minimum number of packets sent
    #[arg(long, value_name = "N", default_value_t = PACKETS_SENT)]
    min_packets: u64,
}

impl LimitArgs {
    /// A request for the certificate; with `mark`, another run begins after it.
    pub fn request(&self, link: String, mark: bool) -> pb::GetCertificateRequest {
        pb::GetCertificateRequest {
            mark,
            packets: Some(self.min_packets),
            emulator_drops: Some(self.max_drops),
            lateness_p99_ns: self.max_lateness,
            stall_ns: self.max_stall,
            memory_percent: Some(self.max_memory),
            changes: self.max_changes,
            strict: self.strict,
            link,
        }
    }
}

pub async fn run(context: &Context, args: &CertificateArgs) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let request = args.limits.request(connection.link(), args.mark);
    let certificate = connection.answer(connection.certificates().get_certificate(request)).await?;
    match context.output {
        Output::Text => output::text(&text(&certificate))?,
        Output::Json => output::message(&certificate)?,
    }
    if certificate.holds {
        return Ok(());
    }
    let failed: Vec<_> = certificate::failed(&certificate).map(|c| c.text.as_str()).collect();
    Err(Failure::check(format!("{}: {}", certificate.summary, failed.join("; "))))
}

pub fn text(of: &pb::Certificate) -> String {
    let utc = |at: Option<&prost_types::Timestamp>| {
        instant::utc(at).unwrap_or_else(|| "an unknown time".into())
    };
    let span = of.span.clone().unwrap_or_default();
    let length = instant::seconds(of.until_ns.saturating_sub(span.since_ns));
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["CRITERION", "FOUND", "LIMIT", "HOLDS"]);
    for c in &of.criteria {
        let holds = if c.holds { "yes" } else { "NO" };
        table.add_row([&*c.name, &figure(&c.unit, c.value), &bound(c), holds]);
    }
    let (late, memory) = (of.lateness.unwrap_or_default(), of.memory.unwrap_or_default());
    let reasons = of.criteria.iter().filter(|c| c.unit == NS);
    let reasons: String = reasons.map(|c| format!("limit of {}: {}\n", c.name, c.reason)).collect();
    let lines = |kind: &str, lines: &[String]| -> String {
        lines.iter().map(|line| format!("{kind}: {line}\n")).collect()
    };
    let (remarks, remedies) = (lines("remark", &of.remarks), lines("remedy", &of.remedies));
    format!(
        "{}: {}\n\
         from {} to {}, {length}\n\
         generation {} to {}: {}\n\n{}\n\n\
         packets: {} received, {} sent\n\
         lost by the emulator: overload {}, missed {}, transmit dropped {}, \
         unconfirmed {}; of clients without a slot {}\n\
         lateness: p50 {}, p99 {}, p99.9 {}, max {} of {}\n\
         memory: {} at most, of {}; {}\n{reasons}{remarks}{remedies}",
        if of.holds { "PASS" } else { "FAIL" },
        of.summary,
        utc(span.since_utc.as_ref()),
        utc(of.until_utc.as_ref()),
        span.generation,
        of.generation,
        counted(of.changes, "change", "changes"),
        table.trim_fmt(),
        span.received().packets,
        span.sent().packets,
        span.overload,
        span.missed,
        span.transmit_dropped,
        span.unconfirmed,
        span.unplaced,
        time(late.p50_ns),
        time(late.p99_ns),
        time(late.p999_ns),
        time(late.max_ns),
        counted(late.count, "packet", "packets"),
        size(memory.used_max_bytes),
        size(memory.capacity_bytes),
        counted(of.workers.len(), "worker", "workers"),
    )
}
