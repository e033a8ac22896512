// SPDX-License-Identifier: Apache-2.0
//! `linkctl man`: the man pages, from the command tree.

use crate::complete;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use profile::counted;
use serde::Serialize;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Example:
  linkctl man ./pages                       then: man ./pages/linkctl-set-rate.1";

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Output directory; created if it does not exist
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,

    /// Write the completion scripts for bash, zsh and fish to this directory too
    #[arg(long, value_name = "DIR")]
    pub completions: Option<PathBuf>,
}

#[derive(Serialize)]
struct View {
    pages: usize,
}

pub fn run(context: &Context, args: &ManArgs, tree: &clap::Command) -> Result<(), Failure> {
    let failed = |folder: &PathBuf| {
        let folder = folder.display().to_string();
        move |error| Failure::failed("io", format!("cannot write to {folder}: {error}"))
    };
    let pages = manual::write_pages(tree, "1", &args.folder).map_err(failed(&args.folder))?;
    if let Some(folder) = &args.completions {
        complete::write_scripts(folder).map_err(failed(folder))?;
    }
    match context.output {
        Output::Json => output::json(&View { pages }),
        Output::Text => output::text(&format!(
            "{} in {}",
            counted(pages, "page", "pages"),
            args.folder.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn subcommands_and_options_are_in_the_pages() {
        let pages = manual::pages(&Cli::command(), "1").unwrap();
        assert_eq!(manual::unnamed(&Cli::command(), &pages), [""; 0]);
        let find = |name: &str| pages.iter().find(|page| page.name == name).unwrap();
        let rate = String::from_utf8_lossy(&find("linkctl-set-rate.1").text).into_owned();
        assert!(rate.contains("Change the rate") && rate.contains("unlimited"), "{rate}");
        let first = String::from_utf8_lossy(&find("linkctl.1").text).into_owned();
        // The exit codes of the help.
        assert!(first.contains("a check failed"), "{first}");
    }
}
