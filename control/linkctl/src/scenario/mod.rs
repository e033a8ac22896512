// SPDX-License-Identifier: Apache-2.0
//! `linkctl scenario`: the available scenarios, and the running one.

pub mod import;
mod log;
pub mod orbit;
mod run;
mod state;

pub use run::named;

use crate::complete;
use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::{Failure, ViolationView};
use crate::output;
use ::scenario::Scenario as Checked;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use comfy_table::{ContentArrangement, Table, presets};
use profile::{Catalog, FileError, Violations, counted, format_duration};
use proto::linkemu::v1::{self as pb, ScenarioAction as Action};
use serde::Serialize;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "\
Examples:
  linkctl scenario list                     the built-in scenarios
  linkctl scenario show rain-fade > my-fade.toml
  linkctl scenario check my-fade.toml       exit code 4 if it is invalid; needs no linkd
  linkctl scenario run my-fade.toml --dry-run
  linkctl scenario import --forward down.csv -w mine.toml
  linkctl scenario orbit --tle leo.tle --ground 50.7,4.6 -w leo.toml
  linkctl scenario run rain-fade --seed 7 --log steps.csv
  linkctl scenario run link-flap --detach
  linkctl scenario watch
  linkctl scenario stop --restore

At its end, run prints the last events; --log writes all steps. Ctrl-C stops the scenario; a second
Ctrl-C leaves it running in linkd.
Exit codes of run and watch: 0 completed, 1 stopped or failed. If no scenario
runs, watch has the exit code of the last one.";

#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// List all scenarios that can be run by name
    List,
    /// Show a scenario as a file, which can be changed and run
    Show {
        /// Name of the scenario
        #[arg(add = ArgValueCompleter::new(complete::scenario_name))]
        name: String,
    },
    /// Check files of scenarios; needs no linkd
    Check {
        /// Scenarios in TOML
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Name of a profile that linkd will have besides the built-in ones; may be given again
        #[arg(long = "profile", value_name = "NAME")]
        profiles: Vec<String>,
    },
    /// Convert traces of TheaterQ to a scenario; needs no linkd
    #[command(after_help = import::EXAMPLES)]
    Import(import::ImportArgs),
    /// Convert orbits of satellites to a scenario; needs no linkd
    #[command(after_help = orbit::EXAMPLES)]
    Orbit(Box<orbit::OrbitArgs>),
    /// Run a scenario to its end
    Run(RunArgs),
    /// Pause the running scenario
    Pause,
    /// Resume the paused scenario
    Resume,
    /// Stop the running scenario
    Stop {
        /// Restore the link from before the scenario; default: the link stays as it is
        #[arg(long)]
        restore: bool,
    },
    /// Show the progress of the running scenario to its end
    Watch {
        /// Write all further steps to this file: CSV, or JSON lines if its name ends in .json or
        /// .jsonl
        #[arg(long, value_name = "FILE")]
        log: Option<PathBuf>,
    },
    /// Show the running scenario, or the last one
    Status,
}

#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Name of a scenario, or a file (with a '/', or ending in .toml)
    #[arg(value_name = "NAME|FILE", add = ArgValueCompleter::new(complete::scenario))]
    pub scenario: String,
    /// Seed of all random processes, which restart with the first change; default: the current
    /// seed
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print the first steps, their number and the length, and change nothing
    #[arg(long, conflicts_with_all = ["detach", "log"])]
    pub dry_run: bool,
    /// Start it and return
    #[arg(long, conflicts_with = "log")]
    pub detach: bool,
    /// Write all steps to this file: CSV, or JSON lines if its name ends in .json or .jsonl
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Continue when another caller changes the link
    #[arg(long)]
    pub tolerate_changes: bool,
    /// Refuse if the generation is not N, because another caller changed the link
    #[arg(long, value_name = "N")]
    pub expect_generation: Option<u64>,
    /// Accept steps that do not fit into memory or time
    #[arg(long)]
    pub lossy: bool,
    /// Name of this request: if it is repeated, the answer is the run that it started
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub request_id: String,
}

#[derive(Serialize)]
struct CheckView<'a> {
    files: Vec<FileView<'a>>,
}

#[derive(Serialize)]
struct FileView<'a> {
    file: &'a str,
    valid: bool,
    name: Option<&'a str>,
    steps: Option<u64>,
    length_ns: Option<u64>,
    violations: Vec<ViolationView<'a>>,
}

fn length(ns: Option<u64>) -> String {
    ns.map_or_else(|| "without end".to_owned(), format_duration)
}

fn count(steps: Option<u64>) -> String {
    steps.map_or_else(|| "no end".to_owned(), |n| n.to_string())
}

pub async fn run(context: &Context, what: &Scenario) -> Result<(), Failure> {
    match what {
        Scenario::Check { files, profiles } => return check(context.output, files, profiles),
        Scenario::Import(args) => return import::run(context, args),
        Scenario::Orbit(args) => return orbit::run(context, args),
        Scenario::Run(args) => return run::run(context, args).await,
        Scenario::Watch { log } => return run::watch(context, log.as_deref()).await,
        _ => {}
    }
    let connection = Connection::open(context).await?;
    let mut client = connection.scenarios();
    let state = match what {
        Scenario::List => {
            let request = pb::ListScenariosRequest {};
            let answer = connection.answer(client.list_scenarios(request)).await?;
            return list(context.output, &answer);
        }
        Scenario::Show { name } => {
            let request = pb::GetScenarioRequest { name: name.clone() };
            let scenario = connection.answer(client.get_scenario(request)).await?;
            return match context.output {
                Output::Text => output::text(&scenario.toml),
                Output::Json => output::message(&scenario),
            };
        }
        Scenario::Pause => control(&connection, Action::Pause, false).await?,
        Scenario::Resume => control(&connection, Action::Resume, false).await?,
        Scenario::Stop { restore } => control(&connection, Action::Stop, *restore).await?,
        _ => connection.scenario().await?,
    };
    told(context.output, &state)
}

async fn control(
    connection: &Connection,
    action: Action,
    restore: bool,
) -> Result<pb::ScenarioState, Failure> {
    let (link, action) = (connection.link(), action.into());
    let request = pb::ControlScenarioRequest { link, action, restore };
    connection.answer(connection.scenarios().control_scenario(request)).await
}

fn told(format: Output, state: &pb::ScenarioState) -> Result<(), Failure> {
    match format {
        Output::Text => output::text(&state::text(state)),
        Output::Json => output::message(state),
    }
}

fn list(format: Output, answer: &pb::ListScenariosResponse) -> Result<(), Failure> {
    if format == Output::Json {
        return output::message(answer);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["NAME", "STEPS", "LENGTH", "DESCRIPTION", "SOURCE"]);
    for scenario in &answer.scenarios {
        let pb::Scenario { name, description, source, .. } = scenario;
        let (steps, length) = (count(scenario.steps), length(scenario.length_ns));
        table.add_row([name, &steps, &length, description, source]);
    }
    output::text(&table.trim_fmt())
}

fn file(path: &Path) -> Result<Result<Checked, Violations>, Failure> {
    match Checked::from_file(path) {
        Ok(scenario) => Ok(Ok(scenario)),
        Err(FileError::Invalid { violations, .. }) => Ok(Err(violations)),
        Err(error) => Err(error.into()),
    }
}

/// The profiles that a scenario sets and that are neither built in nor among `named`.
fn check_profiles(scenario: &Checked, named: &[String]) -> Result<(), Violations> {
    let built_in = Catalog::built_in();
    let mut unknown = scenario.profiles();
    unknown.retain(|name| built_in.get(name).is_none() && !named.iter().any(|n| n == name));
    unknown.sort_unstable();
    unknown.dedup();
    let mut violations = Violations::default();
    for name in unknown {
        let nearest = built_in.nearest(name).map_or(String::new(), |it| format!(", {it:?} is"));
        let message = format!(
            "{name:?} is not a built-in profile{nearest}: correct it, or say --profile {name} if \
             linkd will have one of this name"
        );
        violations.push("step.profile", message);
    }
    violations.into_result()
}

/// Reads every file before it judges any, so that one look gives all.
fn check(format: Output, files: &[PathBuf], profiles: &[String]) -> Result<(), Failure> {
    let mut checked = Vec::new();
    for path in files {
        let scenario =
            file(path)?.and_then(|scenario| check_profiles(&scenario, profiles).map(|()| scenario));
        checked.push((path.display().to_string(), scenario));
    }
    let wrong = checked.iter().filter(|(_, result)| result.is_err()).count();
    match format {
        Output::Json => {
            let files = checked.iter().map(|(file, result)| {
                let scenario = result.as_ref().ok();
                let found = result.as_ref().err();
                FileView {
                    file,
                    valid: scenario.is_some(),
                    name: scenario.map(Checked::name),
                    steps: scenario.and_then(Checked::steps),
                    length_ns: scenario.and_then(Checked::length_ns),
                    violations: found.into_iter().flatten().map(ViolationView::from).collect(),
                }
            });
            output::json(&CheckView { files: files.collect() })?;
        }
        Output::Text => {
            for (file, result) in &checked {
                match result {
                    Ok(scenario) => {
                        let name = scenario.name();
                        let (steps, length) =
                            (count(scenario.steps()), length(scenario.length_ns()));
                        let line = format!("{file}: {name} is valid (steps: {steps}; {length})");
                        output::text(&line)?;
                    }
                    Err(found) => output::text(&found.in_file(file))?,
                }
            }
        }
    }
    match wrong {
        0 => Ok(()),
        n => Err(Failure::check(counted(
            n,
            "file is not a valid scenario",
            "files are not valid scenarios",
        ))),
    }
}
