// SPDX-License-Identifier: Apache-2.0
//! `linkctl doctor`: is this machine fit to run linkemu?
//!
//! Each check reads the kernel's state of the machine, from roots of `/proc` and `/sys` that
//! are parameters, and gives a [`Finding`]: the observation, the reason, and the command. It
//! changes nothing.

pub mod cores;
pub mod devices;
pub mod finding;
pub mod machine;
pub mod memory;
mod offloads;
mod services;
mod wall_clock;
pub mod wanted;

use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use finding::{Finding, Level};
use machine::Machine;
use serde::Serialize;
use std::path::PathBuf;
use wanted::Wanted;

pub const EXAMPLES: &str = "\
Examples:
  linkctl doctor
  linkctl doctor --box /etc/linkemu/box.toml
  linkctl doctor --iface veth0 --iface veth1    offloads of these too
  linkctl -o json doctor | jq '.checks[] | select(.level != \"ok\")'

It changes nothing. Exit codes: 0 nothing is bad, 4 something is.";

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Check what this description of a box names: its ports, cores and memory
    #[arg(long = "box", value_name = "FILE")]
    pub box_file: Option<PathBuf>,

    /// Check the offloads of this kernel interface too; may be given again
    #[arg(long, value_name = "IF")]
    pub iface: Vec<String>,

    /// Find the dataplane here
    #[arg(
        long,
        value_name = "PATH",
        env = "LINKEMU_DATAPLANE",
        default_value = "/run/linkemu/dataplane.sock"
    )]
    pub dataplane: PathBuf,
}

#[derive(Serialize)]
struct View<'a> {
    bad: usize,
    warnings: usize,
    checks: &'a [Finding],
}

pub async fn run(context: &Context, args: &DoctorArgs) -> Result<(), Failure> {
    let mut wanted = args.box_file.as_deref().map_or(Ok(Wanted::default()), Wanted::read)?;
    wanted.ifaces.clone_from(&args.iface);
    let machine = Machine::this();
    let mut findings = local(&machine, &wanted, services::process(&machine, &args.dataplane));
    findings.push(wall_clock::check());
    for iface in wanted.ifaces.iter().chain(&wanted.ports) {
        findings.push(offloads::check(&machine, iface).await);
    }
    findings.extend(services::check(&context.linkd.socket, &args.dataplane).await);
    tell(context.output, &findings)
}

/// Checks of files. Limits are those of the dataplane's process, or of this one.
fn local(machine: &Machine, wanted: &Wanted, dataplane: Option<String>) -> Vec<Finding> {
    let of = dataplane.as_deref().unwrap_or("self");
    let mut findings = memory::check(machine, wanted, of);
    findings.extend(devices::check(machine, wanted));
    findings.extend(cores::check(machine, wanted));
    findings
}

/// Prints the findings, and fails if one of them is bad.
pub fn tell(form: Output, findings: &[Finding]) -> Result<(), Failure> {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (bad, warnings) = (count(Level::Bad), count(Level::Warning));
    match form {
        Output::Json => output::json(&View { bad, warnings, checks: findings })?,
        Output::Text => output::text(&table(findings))?,
    }
    verdict(bad)
}

fn verdict(bad: usize) -> Result<(), Failure> {
    match bad {
        0 => Ok(()),
        1 => Err(Failure::check("1 check is bad")),
        n => Err(Failure::check(format!("{n} checks are bad"))),
    }
}

/// One row per finding; lines are not broken, so that commands can be copied.
pub fn table(findings: &[Finding]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["CHECK", "STATE", "FOUND"]);
    for finding in findings {
        let mut lines = vec![finding.found.clone()];
        if finding.level != Level::Ok {
            lines.push(format!("  {}", finding.why));
            lines.push(format!("  $ {}", finding.remedy));
        }
        table.add_row([&*finding.check, finding.level.name(), &lines.join("\n")]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::tests::Tree;

    #[test]
    fn empty_machine_is_checked_without_error() {
        let wanted = Wanted { named: true, cores: vec![2], ..Wanted::default() };
        let findings = local(&Tree::new(&[]).machine(), &wanted, None);
        assert!(findings.len() >= 10);
        for finding in &findings {
            let silent = finding.why.is_empty() && finding.remedy.is_empty();
            assert_eq!(silent, finding.level == Level::Ok, "{finding:?}");
        }
        let mut names: Vec<_> = findings.iter().map(|finding| &finding.check).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), findings.len());
    }

    #[test]
    fn problem_is_reported_with_reason_and_command() {
        let found = [
            Finding::ok("SMT", "off"),
            Finding::warning("hugepages", "none", "slower", "echo 88 > x").bad_if(true),
        ];
        let text = table(&found);
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[2].contains("hugepages") && lines[2].contains("bad"));
        assert!(lines[4].ends_with("$ echo 88 > x"));
        assert!(verdict(0).is_ok());
        assert_eq!(verdict(1).unwrap_err().message(), "1 check is bad");
        assert_eq!(verdict(2).unwrap_err().message(), "2 checks are bad");
    }
}
