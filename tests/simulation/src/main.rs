// SPDX-License-Identifier: Apache-2.0
//! Simulates histories of links by their seeds.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use simulation::{Coverage, Script, World, failure, run, simulate_all};

/// Simulates links with their workers in virtual time, by seeds, and checks each history.
///
/// Ends at the first history with a fault, with the least part of it that still has one and the command that
/// runs it again.
#[derive(Debug, Parser)]
#[command(name = "simulation")]
struct Arguments {
    /// What is simulated
    #[arg(value_enum)]
    world: World,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    seed: u64,
    /// How many seeds, from the first on
    #[arg(long, default_value_t = 1, value_name = "N")]
    seeds: u64,
    /// Only these requests of the first seed
    #[arg(long, value_delimiter = ',', value_name = "NUMBER", conflicts_with = "seeds")]
    ops: Vec<u64>,
}

fn main() -> ExitCode {
    let Arguments { world, seed, seeds, ops } = Arguments::parse();
    if !ops.is_empty() {
        let script = Script::of(world, seed).only(&ops);
        let report = run(&script);
        println!("{script:#?}\n{}", report.trace);
        report.faults.iter().for_each(|fault| println!("{fault}"));
        return if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let bar = ProgressBar::new(seeds);
    let style =
        ProgressStyle::with_template("simulation [{bar:30}] {pos}/{len}, {elapsed}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_secs(1));
    let result = simulate_all(world, seed..seed.saturating_add(seeds), || bar.inc(1));
    bar.finish_and_clear();
    match result {
        Ok(coverage) => {
            println!("{seeds} histories without a fault");
            show(&coverage);
            ExitCode::SUCCESS
        }
        Err(seed) => {
            println!("{:?}", failure(world, seed));
            ExitCode::FAILURE
        }
    }
}

fn show(coverage: &Coverage) {
    for (what, times) in coverage {
        println!("{times:>10}  {what}");
    }
}
