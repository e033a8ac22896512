// SPDX-License-Identifier: Apache-2.0
//! Steps of a scenario take effect on time, by the dataplane's clock.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;
use smoke::cpus::Cpus;
use smoke::process::run;

use super::{Form, SEED, drained, emulator, on_bed};

/// Steps a second.
const DENSITY: u64 = 10;
const fn seconds(form: Form) -> u64 {
    match form {
        Form::Short => 4,
        Form::Long => 60,
    }
}
/// Largest lateness of a step.
const WITHIN: Duration = Duration::from_millis(1);

#[derive(Debug, Deserialize)]
struct Row {
    index: u64,
    time_ns: u64,
    planned_ns: u64,
    late_ns: u64,
    generation: u64,
}

pub fn ten_steps_a_second_are_on_time(cpus: &Cpus, form: Form) -> anyhow::Result<()> {
    let seconds = seconds(form);
    let count = seconds * DENSITY;
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        let first = linkctl.set_profile("viasat2", SEED)?;
        linkctl.mark()?;
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name).display().to_string();
        let (scenario, log) = (at("dense.toml"), at("steps.csv"));
        let text = format!(
            "name = \"dense\"\n[[step]]\nrepeat = {}\n[[step.step]]\nforward.rate = \"72 Mbit/s\"\n\
             [[step.step]]\nafter = \"100 ms\"\nforward.rate = \"144 Mbit/s\"\n\
             [[step.step]]\nafter = \"100 ms\"\n",
            count / 2
        );
        fs::write(&scenario, text)?;
        let command: Command = linkctl.command(&["scenario", "run", &scenario, "--log", &log]);
        run(command, Duration::from_secs(seconds + 30))?.success()?;
        let text = fs::read_to_string(&log)?;
        let rows = rows(&text)?;
        ensure!(rows.len() as u64 == count, "{} of {count} steps in the log", rows.len());
        let stall = Duration::from_nanos(linkctl.stats()?.stall_max_ns);
        let mut late = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            // The third entry of each repetition is the mark that ends it.
            let index = i as u64 / 2 * 3 + i as u64 % 2;
            ensure!(row.index == index, "{row:?}, expected step {index}");
            ensure!(row.generation == first.generation + 1 + i as u64, "{row:?}");
            ensure!(row.time_ns == row.planned_ns + row.late_ns, "{row:?}");
            let planned = rows[0].planned_ns + i as u64 * 1_000_000_000 / DENSITY;
            ensure!(row.planned_ns == planned, "{row:?}, planned for {planned}");
            late.push(row.late_ns);
        }
        late.sort_unstable();
        let quantile = |p: usize| Duration::from_nanos(late[(late.len() - 1) * p / 100]);
        println!(
            "    {count} steps, late by p50 {:?}, p99 {:?}, max {:?}; longest stall {stall:?}",
            quantile(50),
            quantile(99),
            quantile(100)
        );
        let most = quantile(100);
        ensure!(most <= WITHIN, "a step was {most:?} late, longest stall {stall:?}");
        drained(&linkctl)?;
        Ok(())
    })
}

/// Rows of steps that changed the link. Marks have no generation.
fn rows(text: &str) -> anyhow::Result<Vec<Row>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    let generation =
        header.iter().position(|name| name == "generation").context("no generation")?;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        if !record[generation].is_empty() {
            rows.push(record.deserialize(Some(&header)).with_context(|| format!("{record:?}"))?);
        }
    }
    Ok(rows)
}
