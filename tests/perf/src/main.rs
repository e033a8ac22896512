// SPDX-License-Identifier: Apache-2.0
//! `bench`: see the crate's documentation and docs/performance.md.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use perf::arguments::{Arguments, Output};
use perf::goals;
use perf::report::plot;
use perf::report::table::{self, Style};
use perf::results::Results;
use perf::run;

/// A goal is missed, or a case measured something else.
const MISSED: u8 = 4;

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.list {
        for case in run::cases(&arguments) {
            println!("{case}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(contender) = arguments.count {
        println!("{}", run::count(&arguments, contender)?);
        return Ok(ExitCode::SUCCESS);
    }
    let results = run::run(&arguments)?;
    let json = serde_json::to_string_pretty(&results)?;
    let text = table::text(&results, Style::Terminal);
    match arguments.output {
        Output::Table => println!("{text}"),
        Output::Json => println!("{json}"),
    }
    if let Some(folder) = &arguments.out {
        write(folder, &json, &text, &results)
            .with_context(|| format!("cannot write into {}", folder.display()))?;
    }
    let fine = if arguments.no_goals { goals::sound(&results) } else { goals::all_hold(&results) };
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(MISSED) })
}

fn write(folder: &Path, json: &str, text: &str, results: &Results) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("results.json"), json)?;
    fs::write(folder.join("results.txt"), format!("{text}\n"))?;
    fs::write(folder.join("results.md"), format!("{}\n", table::text(results, Style::Markdown)))?;
    plot::draw(results, folder)?;
    Ok(())
}
