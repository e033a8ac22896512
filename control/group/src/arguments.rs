// SPDX-License-Identifier: Apache-2.0
//! The command line of `linkd-group`.

use std::path::PathBuf;

use clap::Parser;

const EXAMPLES: &str = "\
Examples:
  A group of the boxes in a file, and linkd for all of them:
    linkd-group --group /etc/linkemu/group.toml &
    linkd --dataplane /run/linkemu/group.sock

  A group file with a box on this machine, and another one:
    [[box]]
    name = \"b1\"
    dataplane = \"unix:/run/linkemu/dataplane.sock\"
    [[box]]
    name = \"b2\"
    dataplane = \"https://box2.lab:8443\"
    ca = \"/etc/linkemu/ca.pem\"
    cert = \"/etc/linkemu/group.pem\"
    key = \"/etc/linkemu/group.key\"
    [owner]
    ship-1 = \"b2\"

Exit codes: 0 ended by a signal; 1 could not start; 2 usage.";

/// Several boxes behind one P4 switch as one dataplane for linkd.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXAMPLES)]
pub struct Arguments {
    /// Group file, in TOML: boxes, and owners of clients.
    #[arg(long, value_name = "FILE", required_unless_present = "manual")]
    pub group: Option<PathBuf>,

    /// Unix socket for linkd.
    #[arg(long, value_name = "PATH", default_value = "/run/linkemu/group.sock")]
    pub socket: PathBuf,

    /// Log to standard error: error, warn, info, debug, trace, or filters of `tracing`.
    #[arg(long, value_name = "FILTER", env = "LINKEMU_LOG", default_value = "info")]
    pub log: String,

    /// Write the man page and the completion scripts into this directory, and end.
    #[arg(long, value_name = "DIR", hide = true, exclusive = true)]
    pub manual: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_documentation_parses() {
        pages::commands_parse("linkd-group", 0, |words| Arguments::try_parse_from(words));
    }

    #[test]
    fn the_page_names_every_option_and_needs_none_to_be_written() {
        use clap::CommandFactory;
        let tree = Arguments::command();
        tree.clone().debug_assert();
        let pages = manual::pages(&tree, "8").unwrap();
        assert_eq!(manual::unnamed(&tree, &pages), [""; 0]);
        assert!(Arguments::try_parse_from(["linkd-group", "--manual", "x"]).is_ok());
        assert!(Arguments::try_parse_from(["linkd-group"]).is_err());
    }
}
