// SPDX-License-Identifier: Apache-2.0
//! `linkctl completion`: prints the script that registers completion with a shell.

use crate::complete;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use clap_complete::Shell;

pub const EXAMPLES: &str = "\
Examples:
  linkctl completion bash > /etc/bash_completion.d/linkctl
  source <(linkctl completion zsh)";

#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// Shell
    shell: Shell,
}

pub fn run(args: &CompletionArgs) -> Result<(), Failure> {
    let script = complete::script(&args.shell.to_string());
    output::bytes(&script.map_err(|error| Failure::failed("internal", error.to_string()))?)
}
