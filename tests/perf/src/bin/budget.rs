// SPDX-License-Identifier: Apache-2.0
//! `budget`: measures the cases of tests/perf/budget.toml, and records them or compares them with
//! another commit. The test of the same name checks them.

use std::path::PathBuf;
use std::thread;

use anyhow::{Context, ensure};
use clap::Parser;
use clap::builder::NonEmptyStringValueParser;
use perf::base;
use perf::budget::{Budget, State};
use perf::case::Case;
use perf::instructions::CallgrindError;
use perf::meter::{Cost, Meter};
use perf::report::table::{Style, row, table};
use perf::suite;
use perf::tools::Tools;

/// Counts the instructions and cache lines for a packet, and prints them.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Cases [default: all of the budget]
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// Record the figures in tests/perf/budget.toml, with this reason for the change
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    reason: Option<String>,
    /// Compare with this commit; its program is built by the same tools
    #[arg(long, value_name = "REV", conflicts_with = "reason")]
    base: Option<String>,
}

/// Names the bytes of a pipe and of a link, beside the cases.
const STATE: &str = "state";

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    ensure!(!cfg!(debug_assertions), "figures are of the release build: run `make budget`");
    let cases = chosen(&arguments.cases)?;
    let tools = Tools::here()?;
    let here = std::env::current_exe()?.with_file_name("bench");
    if let Some(revision) = &arguments.base {
        return compare(revision, here, &cases);
    }
    let costs = measure(here, &cases, true).into_iter().collect::<Result<Vec<Cost>, _>>()?;
    let mut table = table(Style::Markdown, ["case", "bare loop", "ours", "over it", "cache lines"]);
    for (case, cost) in cases.iter().zip(&costs) {
        let Cost { bare, ours, over, lines } = cost;
        let values = [text(*bare), text(*ours), text(*over), format!("{lines:.2}")];
        row(&mut table, &case.to_string(), values);
    }
    println!("{table}");
    let State { pipe, cold, link, .. } = State::here("");
    println!("bytes: a pipe {pipe}, its rarely used part {cold}, a link {link}");
    let Some(reason) = &arguments.reason else { return Ok(()) };
    let names = &arguments.cases;
    let has_state = names.is_empty() || names.iter().any(|name| name == STATE);
    record(&tools, &cases, &costs, reason, (names.is_empty(), has_state))
}

/// The cases with these names, or all that have a budget.
fn chosen(names: &[String]) -> anyhow::Result<Vec<Case>> {
    let mut cases = suite::guarded();
    let known: Vec<String> = cases.iter().map(ToString::to_string).collect();
    if let Some(other) = names.iter().find(|name| !known.contains(name) && *name != STATE) {
        anyhow::bail!("`{other}` has no budget; there are: {STATE}, {}", known.join(", "));
    }
    cases.retain(|case| names.is_empty() || names.contains(&case.to_string()));
    Ok(cases)
}

/// Writes the figures into the file: those of all cases if `is_all`, and the bytes if `has_state`.
fn record(
    tools: &Tools,
    cases: &[Case],
    costs: &[Cost],
    reason: &str,
    (is_all, has_state): (bool, bool),
) -> anyhow::Result<()> {
    let path = Budget::path();
    let (old, state) = (Budget::read(&path), State::here(reason));
    let mut budget = match old {
        Ok(budget) => budget,
        Err(error) if !is_all => return Err(error.into()),
        Err(_) => Budget { tools: tools.clone(), state: state.clone(), cases: Vec::new() },
    };
    let differs = State { reason: budget.state.reason.clone(), ..state.clone() } != budget.state;
    if has_state && differs {
        budget.state = state;
    }
    if is_all {
        budget.tools = tools.clone();
        budget.cases.retain(|entry| cases.iter().any(|case| case.to_string() == entry.name));
    }
    let differences = tools.differences(&budget.tools);
    ensure!(
        differences.is_empty(),
        "the other budgets hold for other tools ({}): name no case, so that all are measured",
        differences.join("; ")
    );
    for (case, cost) in cases.iter().zip(costs) {
        budget.set(&case.to_string(), *cost, reason);
    }
    let order = suite::guarded().iter().map(ToString::to_string).collect::<Vec<_>>();
    budget.cases.sort_by_key(|entry| order.iter().position(|name| *name == entry.name));
    budget.write(&path).context("the budget is unchanged")?;
    println!("recorded in {}", path.display());
    Ok(())
}

fn compare(revision: &str, here: PathBuf, cases: &[Case]) -> anyhow::Result<()> {
    let (commit, base) = base::program(revision, &mut |what| eprintln!("{what}"))?;
    let (before, after) = (measure(base, cases, false), measure(here, cases, false));
    let mut table =
        table(Style::Markdown, ["instructions over the bare loop", &commit, "here", "change"]);
    for ((case, before), after) in cases.iter().zip(before).zip(after) {
        let after = after?.over;
        // A base without this case is no error.
        let (before, change) = match before {
            Ok(Cost { over, .. }) => {
                (text(over), format!("{:+.2} %", (after / over - 1.0) * 100.0))
            }
            Err(CallgrindError::NoCount(_)) => ("-".to_owned(), "-".to_owned()),
            Err(error) => return Err(error.into()),
        };
        row(&mut table, &case.to_string(), [before, text(after), change]);
    }
    println!("{table}");
    Ok(())
}

/// Measures cases, as many at a time as there are processors.
fn measure(program: PathBuf, cases: &[Case], lines: bool) -> Vec<Result<Cost, CallgrindError>> {
    let at_a_time = thread::available_parallelism().map_or(1, usize::from);
    let (meter, mut costs) = (Meter::new(program, lines), Vec::new());
    let meter = &meter;
    for some in cases.chunks(at_a_time) {
        eprintln!("{}", some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        thread::scope(|scope| {
            let mut running = Vec::new();
            for case in some {
                running.push(scope.spawn(move || meter.cost(case)));
            }
            let stopped = || Err(CallgrindError::NoCount("the thread ended early".to_owned()));
            costs.extend(running.into_iter().map(|one| one.join().unwrap_or_else(|_| stopped())));
        });
    }
    costs
}

fn text(value: f64) -> String {
    format!("{value:.1}")
}
