// SPDX-License-Identifier: Apache-2.0
//! `linkctl box`: checks the description of a box, and reserves and releases the resources of
//! this machine: hugepages, and ports for vfio-pci.
//!
//! Everything is checked before any change, the previous state is recorded before it is
//! changed, and all of it ends with the boot (docs/adr/0035).

mod here;
mod host;
mod network;
mod plan;
mod port;
mod record;
mod room;
mod step;
mod switch;

use crate::context::{Context, Output};
use crate::doctor::{table, tell};
use crate::failure::Failure;
use crate::output;
use ::doctor::finding::{Finding, Level};
use boxfile::{BoxFile, BoxFileError};
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use host::Host;
use plan::Plan;
use profile::counted;
use record::Record;
use serde::Serialize;
use std::path::{Path, PathBuf};
use step::{Step, Tool};

pub const EXAMPLES: &str = "\
Examples:
  linkctl box check box.toml                the file
  linkctl box check box.toml --here         and this machine
  linkctl box apply box.toml --dry-run      the steps, as commands
  linkctl box apply /etc/linkemu/box.toml   reserve hugepages, take the ports
  linkctl box show                          the steps that were applied
  linkctl box undo                          undo them

apply never takes a port that carries the default route, this session or an address. The changes
last until the next boot. Exit codes: 0 done, 1 failed, 4 a check failed.";

#[derive(Debug, Args)]
pub struct Where {
    /// Directory that has /proc, /sys, /dev, /run and the tools
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    pub root: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a box file, alone or against this machine; changes nothing
    Check {
        /// Box file
        file: PathBuf,
        /// Check that this machine has the resources, and that they are free
        #[arg(long)]
        here: bool,
        #[command(flatten)]
        place: Where,
    },
    /// Reserve the hugepages and bind the ports that a box file names
    Apply {
        /// Box file
        file: PathBuf,
        /// Print the steps as commands, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        place: Where,
    },
    /// Undo apply, also one that did not complete
    Undo {
        /// Print the steps as commands, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        place: Where,
    },
    /// Show the changes by apply, and the previous state
    Show {
        #[command(flatten)]
        place: Where,
    },
}

pub fn run(context: &Context, what: &Command) -> Result<(), Failure> {
    match what {
        Command::Check { file, here, place } => check(context.output, file, *here, place),
        Command::Apply { file, dry_run, place } => apply(context.output, file, *dry_run, place),
        Command::Undo { dry_run, place } => undo(context.output, *dry_run, place),
        Command::Show { place } => show(context.output, place),
    }
}

fn read(path: &Path) -> Result<BoxFile, Failure> {
    BoxFile::read(path).map_err(|error| match error {
        BoxFileError::Read { .. } => Failure::failed("io", error.to_string()),
        error => Failure::check(error.to_string()),
    })
}

fn disagreements(file: &BoxFile, path: &Path) -> Vec<Finding> {
    let finding = |problem: boxfile::Problem| {
        let why = "the file does not agree with itself";
        let remedy = format!("\"${{EDITOR:-vi}}\" {}", path.display());
        Finding::warning("file", problem.to_string(), why, remedy).bad_if(true)
    };
    file.problems().into_iter().map(finding).collect()
}

fn check(form: Output, path: &Path, here: bool, place: &Where) -> Result<(), Failure> {
    let file = read(path)?;
    let mut findings = disagreements(&file, path);
    if findings.is_empty() {
        findings.push(Finding::ok("file", format!("{} agrees with itself", path.display())));
        findings.extend(room::check(&file));
        if here {
            findings.extend(here::check(&Host::below(&place.root), &file).findings);
        }
    }
    tell(form, findings)
}

#[derive(Serialize)]
struct StepView {
    what: String,
    command: String,
    undo: String,
    /// It is so on this machine.
    in_force: bool,
}

#[derive(Serialize)]
struct View {
    changed: bool,
    steps: Vec<StepView>,
}

impl View {
    fn new<'a>(
        changed: bool,
        steps: impl IntoIterator<Item = &'a Step>,
        host: &Host,
        tool: Tool,
    ) -> Self {
        let view = |step: &Step| StepView {
            what: step.what(),
            command: step.command(tool),
            undo: step.undo_command(tool),
            in_force: step.is_done(host),
        };
        Self { changed, steps: steps.into_iter().map(view).collect() }
    }

    fn tell(
        &self,
        form: Output,
        nothing: &str,
        line: impl Fn(&StepView) -> String,
    ) -> Result<(), Failure> {
        match form {
            Output::Json => output::json(self),
            Output::Text if self.steps.is_empty() => output::text(nothing),
            Output::Text => {
                let lines: Vec<_> = self.steps.iter().map(line).collect();
                output::text(&lines.join("\n"))
            }
        }
    }
}

fn apply(form: Output, path: &Path, dry_run: bool, place: &Where) -> Result<(), Failure> {
    let file = read(path)?;
    let mut findings = disagreements(&file, path);
    let host = Host::below(&place.root);
    if !dry_run {
        host.may_change()?;
    }
    let _lock = if dry_run { None } else { Some(record::lock(&host)?) };
    let before = Record::read(&host)?;
    let mut checked = here::Checked::default();
    if findings.is_empty() {
        checked = here::check(&host, &file);
        findings.append(&mut checked.findings);
    }
    let bad: Vec<_> = findings.into_iter().filter(|f| f.level() == Level::Bad).collect();
    if !bad.is_empty() {
        // Programs have all of it in one object on standard output, as from `check`.
        return match form {
            Output::Json => tell(form, bad),
            Output::Text => {
                output::text(&table(&bad))?;
                Err(Failure::check(format!("{}: nothing was changed", count(bad.len()))))
            }
        };
    }
    let plan = Plan::new(&host, &file, &checked, before.as_ref())?;
    let tool = Tool::of(&host);
    if !dry_run {
        plan.carry_out(&host, tool, path, before)?;
    }
    let view = View::new(!dry_run && !plan.to_do.is_empty(), &plan.to_do, &host, tool);
    view.tell(form, "nothing to do: all of it is so", |step| match dry_run {
        true => format!("{}   # {}", step.command, step.what),
        false => format!("done: {}", step.what),
    })
}

fn count(bad: usize) -> String {
    counted(bad, "check failed", "checks failed")
}

fn undo(form: Output, dry_run: bool, place: &Where) -> Result<(), Failure> {
    let host = Host::below(&place.root);
    if !dry_run {
        host.may_change()?;
    }
    let _lock = if dry_run { None } else { Some(record::lock(&host)?) };
    let record = Record::read(&host)?;
    let steps = record.as_ref().map(|r| r.steps.as_slice()).unwrap_or_default();
    let open: Vec<_> = steps.iter().rev().filter(|step| step.is_changed(&host)).cloned().collect();
    let tool = Tool::of(&host);
    if let (Some(record), false) = (record, dry_run) {
        plan::undo(&host, tool, record)?;
    }
    let view = View::new(!dry_run && !open.is_empty(), &open, &host, tool);
    view.tell(form, "nothing to undo", |step| match dry_run {
        true => format!("{}   # undoes: {}", step.undo, step.what),
        false => format!("undone: {}", step.what),
    })
}

#[derive(Serialize)]
struct Shown<'a> {
    file: Option<&'a Path>,
    /// The apply completed.
    complete: bool,
    ports: &'a [boxfile::Binding],
    #[serde(flatten)]
    view: View,
}

fn show(form: Output, place: &Where) -> Result<(), Failure> {
    let host = Host::below(&place.root);
    let record = Record::read(&host)?;
    let steps = record.as_ref().map(|r| r.steps.as_slice()).unwrap_or_default();
    let shown = Shown {
        file: record.as_ref().map(|r| r.file.as_path()),
        complete: record.as_ref().is_some_and(|r| r.complete),
        ports: record.as_ref().map(|r| r.ports.as_slice()).unwrap_or_default(),
        view: View::new(false, steps, &host, Tool::of(&host)),
    };
    if form == Output::Json {
        return output::json(&shown);
    }
    let Some(file) = shown.file else { return output::text("nothing was applied") };
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["DONE", "IN FORCE", "TO UNDO"]);
    for step in &shown.view.steps {
        let in_force = if step.in_force { "yes" } else { "no" };
        table.add_row([&step.what, in_force, &step.undo]);
    }
    let state = if shown.complete {
        "applied"
    } else {
        "begun and not finished: apply it again, or undo it"
    };
    output::text(&format!("{}: {state}\n{}", file.display(), table.trim_fmt()))
}
