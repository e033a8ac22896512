// SPDX-License-Identifier: Apache-2.0
//! `linkctl doctor`: is this machine fit to run linkemu?
//!
//! The checks are those of the crate `doctor`; with --server, linkd runs them on its machine.

mod services;

use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use ::boxfile::BoxFileError;
use ::doctor::finding::{Finding, Level};
use ::doctor::machine::Machine;
use ::doctor::wanted::Wanted;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use profile::counted;
use proto::linkemu::v1 as pb;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "\
Examples:
  linkctl doctor
  linkctl doctor --box /etc/linkemu/box.toml
  linkctl doctor --iface veth0 --iface veth1    includes their offloads
  linkctl --server box.lab:8443 doctor          checks the machine of that linkd
  linkctl -o json doctor | jq '.checks[] | select(.level != \"FINDING_LEVEL_OK\")'

It changes nothing. Exit codes: 0 all checks passed, 4 a check failed.";

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Check the ports, cores and memory of this box file too
    #[arg(long = "box", value_name = "FILE")]
    pub box_file: Option<PathBuf>,

    /// Check the offloads of this kernel interface too; may be given again
    #[arg(long, value_name = "IF")]
    pub iface: Vec<String>,

    /// Unix socket of the dataplane
    #[arg(
        long,
        value_name = "PATH",
        env = "LINKEMU_DATAPLANE",
        default_value = "/run/linkemu/dataplane.sock"
    )]
    pub dataplane: PathBuf,
}

pub async fn run(context: &Context, args: &DoctorArgs) -> Result<(), Failure> {
    if context.linkd.server.is_some() {
        if args.box_file.is_some() || !args.iface.is_empty() {
            return Err(Failure::usage(
                "--box and --iface are of this machine, and --server is another one: leave them out, or \
                 run linkctl doctor there",
            ));
        }
        let findings = there(context).await?;
        return tell(context.output, findings);
    }
    let mut wanted = args.box_file.as_deref().map_or(Ok(Wanted::default()), wanted)?;
    wanted.ifaces.clone_from(&args.iface);
    let machine = Machine::this();
    // Without a dataplane, limits are those of this process.
    let dataplane = machine.serving(&args.dataplane).unwrap_or_else(|| "self".into());
    let mut findings = ::doctor::check(&machine, &wanted, Some(&dataplane)).await;
    findings.extend(services::check(&context.linkd.socket, &args.dataplane).await);
    tell(context.output, findings)
}

/// The checks of the machine of linkd.
async fn there(context: &Context) -> Result<Vec<Finding>, Failure> {
    let connection = Connection::open(context).await?;
    let mut doctor = connection.doctor();
    let answer = connection.answer(doctor.diagnose(pb::DiagnoseRequest {})).await?;
    Ok(answer.checks)
}

fn wanted(box_file: &Path) -> Result<Wanted, Failure> {
    Wanted::read(box_file).map_err(|error| match error {
        BoxFileError::Read { .. } => Failure::failed("io", error.to_string()),
        error => Failure::failed("invalid_argument", error.to_string()),
    })
}

/// Prints the findings, and fails if one of them is bad.
pub fn tell(form: Output, findings: Vec<Finding>) -> Result<(), Failure> {
    let answer = pb::DiagnoseResponse::from(findings);
    match form {
        Output::Json => output::message(&answer)?,
        Output::Text => output::text(&table(&answer.checks))?,
    }
    verdict(answer.bad)
}

fn verdict(bad: u32) -> Result<(), Failure> {
    match bad {
        0 => Ok(()),
        n => Err(Failure::check(counted(n, "check failed", "checks failed"))),
    }
}

/// One row per finding; lines are not broken, so that commands can be copied.
pub fn table(findings: &[Finding]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["CHECK", "STATE", "FOUND"]);
    for finding in findings {
        let mut lines = vec![finding.found.clone()];
        if finding.level() != Level::Ok {
            lines.push(format!("  {}", finding.why));
            lines.push(format!("  $ {}", finding.remedy));
        }
        table.add_row([&*finding.check, finding.level().word(), &lines.join("\n")]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(verdict(1).unwrap_err().message(), "1 check failed");
        assert_eq!(verdict(2).unwrap_err().message(), "2 checks failed");
    }
}
