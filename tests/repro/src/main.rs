// SPDX-License-Identifier: Apache-2.0
//! `repro`: see the crate's documentation and docs/testing.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Parser, Subcommand};
use repro::campaign::{End, Plan, Planned};
use repro::figure::Statistic;
use repro::machine::{self, Machine};
use repro::report::{Report, digits, document, page, plots};
use repro::store::{Record, Store};
use repro::study::{Place, Row, Study};
use repro::verdict::Judged;
use repro::{bed, link, server, statistics};
use smoke::binaries::{Binaries, Lack, check_machine};
use smoke::cpus::Cpus;
use smoke::estate;

/// Repeats published measurements with real hosts on the emulator (as root).
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the missing flows of a study, one after another
    Run(Run),
    /// Compare the results with the published figures; writes report.html and report.json
    Report(Compare),
    /// List the studies and their rows
    List,
}

#[derive(Debug, clap::Args)]
struct Compare {
    /// Names of studies, or their files
    #[arg(required = true)]
    study: Vec<String>,
    /// Directory with a directory of results for each study
    #[arg(long, value_name = "DIR", default_value = RESULTS)]
    results: PathBuf,
    /// Also replace the sections of these studies in this document
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
    /// Compare the flows of this kernel release; of the running one if absent
    #[arg(long, value_name = "RELEASE")]
    kernel: Option<String>,
}

/// Directory of all results.
const RESULTS: &str = "build/repro";

#[derive(Debug, clap::Args)]
struct Run {
    /// Name of a study, or its file
    study: String,
    /// Run these rows only
    #[arg(long, value_name = "NAME")]
    row: Vec<String>,
    /// Valid flows of each row; the study's number if absent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=9999))]
    flows: Option<u32>,
    /// The short form of the study, for at most 25 minutes
    #[arg(long)]
    short: bool,
    /// Start no flow that would probably end later than this after the start
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    limit: Option<Duration>,
    /// Use this profile instead of the study's (a built-in one or a file)
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Run the sender in a guest with another kernel (LINKEMU_HW names its directory)
    #[arg(long)]
    guest: bool,
    /// Directory of the results; build/repro/STUDY if absent
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(run) => self::run(&run),
        Command::Report(compare) => report(&compare),
        Command::List => list(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn list() -> anyhow::Result<ExitCode> {
    for name in repro::study::names() {
        let (study, _) = Study::load(&name)?;
        println!("{name}: {}", study.title);
        for row in &study.row {
            println!("  {} {}", row.name, elsewhere(row));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn report(compare: &Compare) -> anyhow::Result<ExitCode> {
    let kernel = compare.kernel.clone().unwrap_or_else(machine::kernel);
    for name in &compare.study {
        let (study, file) = Study::load(name)?;
        let beside = file.parent().unwrap_or(Path::new(""));
        let report = Report::of(&study, beside, &compare.results, &kernel)?;
        let directory = compare.results.join(&study.name);
        fs::create_dir_all(&directory)
            .with_context(|| format!("make the directory {}", directory.display()))?;
        let page = page::page(&report, &plots::draw(&report, &directory)?);
        let json = serde_json::to_string_pretty(&report)? + "\n";
        for (name, text) in [("report.html", page), ("report.json", json)] {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        if let Some(path) = &compare.document {
            let old = fs::read_to_string(path).unwrap_or_default();
            fs::write(path, document::replace(&old, &report))
                .with_context(|| format!("write {}", path.display()))?;
        }
        for judged in &report.figures {
            println!("{}", verdict(judged));
        }
        println!("{name}: {}; {}", report.total(), directory.join("report.html").display());
    }
    Ok(ExitCode::SUCCESS)
}

/// A figure in a line.
fn verdict(judged: &Judged) -> String {
    let paper = judged.paper.map(|p| format!(", paper {}", digits(p))).unwrap_or_default();
    let ours = judged.ours.map_or_else(String::new, |o| {
        let [value, low, high] = [o.value, o.low, o.high].map(digits);
        format!(", ours {value} ({low} to {high}, {} flows)", o.flows)
    });
    let reason =
        if judged.reason.is_empty() { String::new() } else { format!(": {}", judged.reason) };
    let Judged { place, what, verdict, .. } = judged;
    format!("{place}: {what}{paper}{ours}: {}{reason}", verdict.word())
}

/// Why a row has no transfers.
fn elsewhere(row: &Row) -> String {
    match (&row.not_run, &row.from) {
        (Some(reason), _) => format!("(not run: {reason})"),
        (None, Some(study)) => format!("(flows of {study})"),
        (None, None) => String::new(),
    }
}

/// Time limit of the short form.
const SHORT: Duration = Duration::from_secs(25 * 60);
/// Exit code of a run that the time limit ended.
const UNFINISHED: u8 = 3;

fn run(run: &Run) -> anyhow::Result<ExitCode> {
    let (study, file) = Study::load(&run.study)?;
    let beside = file.parent().unwrap_or(Path::new(""));
    let mut rows: Vec<Row> = if run.row.is_empty() {
        study.runnable().cloned().collect()
    } else {
        run.row.iter().map(|name| study.row(name).cloned()).collect::<Result<_, _>>()?
    };
    if run.guest {
        rows.iter_mut().for_each(|row| row.server = Place::Guest);
    }
    if let Some(row) = rows.iter().find(|r| r.transfer.is_empty()) {
        return Err(anyhow!("{} cannot be run: {}", row.name, elsewhere(row)));
    }
    let rows = rows
        .iter()
        .map(|row| {
            let link = link::resolve(&study.link, &row.link, beside, run.profile.as_deref())
                .with_context(|| format!("the link of {}", row.name))?;
            Ok(Planned { row, link, kernel: server::kernel(row.server)? })
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    check_machine().and(Binaries::find().map(drop)).map_err(|lack| match lack {
        Lack::Part(reason) | Lack::Permission(reason) => anyhow!(reason),
    })?;
    estate::watch_signals()?;
    let cpus = Cpus::available();
    cpus.keep_to_hosts();
    let directory = run.out.clone().unwrap_or_else(|| Path::new(RESULTS).join(&study.name));
    let store = Store::open(&directory)?;
    let form = if run.short { study.size.short } else { study.size.flows };
    let plan = Plan {
        study: &study,
        rounds: run.flows.unwrap_or(form),
        limit: run.limit.or(run.short.then_some(SHORT)),
        machine: Machine::here(),
        rows,
    };
    let mut first = true;
    let end = plan.run(
        &store,
        |row, link, seed, rounds| {
            if !std::mem::take(&mut first) {
                std::thread::sleep(study.size.pause);
            }
            bed::attempts(&study, row, link, (seed, rounds), &cpus)
        },
        |record| println!("{}", line(record)),
    )?;
    for Planned { row, link, kernel } in &plan.rows {
        let identity = repro::store::identity(&study, row, link, kernel)?;
        println!("{}", total(row, &store.valid(&row.name, Some(&identity))?));
    }
    println!("results: {}", directory.display());
    Ok(match end {
        End::Complete => ExitCode::SUCCESS,
        End::OutOfTime => {
            println!("the time limit ended the run: run it again to continue");
            ExitCode::from(UNFINISHED)
        }
    })
}

/// Metrics of the one-line forms, with their labels.
const SHOWN: [(&str, &str); 10] = [
    ("steady_mbps", "steady Mb/s"),
    ("steady_rtt_mean_ms", "RTT ms"),
    ("startup_mbps", "start-up Mb/s"),
    ("startup_rtt_mean_ms", "RTT ms"),
    ("object_1mb_s", "1 MB s"),
    ("object_5mb_s", "5 MB s"),
    ("object_30mb_s", "30 MB s"),
    ("object_50mb_s", "50 MB s"),
    ("goodput_mbps", "all Mb/s"),
    ("retransmitted_share", "retransmitted"),
];

/// One flow in a line.
fn line(record: &Record) -> String {
    let Record { row, round, attempt, .. } = record;
    let outcome = match &attempt.void {
        Some(reason) => format!("VOID: {reason}"),
        None => "valid".to_owned(),
    };
    let values = SHOWN.iter().filter_map(|(name, label)| {
        attempt.metrics.get(*name).map(|value| format!("{label} {}", digits(*value)))
    });
    let values: Vec<_> = values.chain([outcome]).collect();
    format!("{row} {round}: {}", values.join(", "))
}

/// A row in a line: mean (SD) of each metric.
fn total(row: &Row, records: &[Record]) -> String {
    let values = SHOWN.iter().filter_map(|(name, label)| {
        let values: Vec<f64> =
            records.iter().filter_map(|r| r.attempt.metrics.get(*name).copied()).collect();
        let mean = statistics::estimate(&values, Statistic::Mean)?.value;
        let sd = statistics::deviation(&values).map_or("-".to_owned(), digits);
        Some(format!("{label} {} ({sd})", digits(mean)))
    });
    let values: Vec<_> = values.collect();
    format!("{}, {} flows, mean (SD): {}", row.name, records.len(), values.join(", "))
}
