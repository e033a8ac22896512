// SPDX-License-Identifier: Apache-2.0
//! Remedies for mistakes that clap cannot explain.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use profile::Catalog;
use std::ffi::OsString;

/// More commands than that under one name are no help.
const MOST: usize = 3;
/// What other tools call a part of the link, and the command here.
const CALLED: [(&[&str], &str); 6] = [
    (&["latency", "rtt", "ping"], "linkctl set delay 300ms, or linkctl set delay --rtt 600ms"),
    (&["bandwidth", "bw", "speed", "throughput"], "linkctl set rate 72Mbit/s"),
    (
        &["jitter", "variation"],
        "linkctl set part 'delay.body = { correlation = \"80 ms\", quantiles = [\"0 ms\", \"5 ms\"] }': \
         0 to 5 ms more, drawn again every 80 ms on average",
    ),
    (
        &["drop", "losses", "outage", "outages"],
        "linkctl set loss 1%, or linkctl set loss --every 3h --for 320ms",
    ),
    (&["buffer", "limit", "aqm"], "linkctl set queue 10MB"),
    (
        &["access", "reorder", "duplicate", "corrupt", "mtu", "fade", "capacity", "cross_traffic"],
        "linkctl help set part has an example of it",
    ),
];

/// Adds the command or option that the user probably meant.
pub fn improve(mut error: Error, tree: &Command, args: &[OsString]) -> Error {
    // Clap takes "-5Mbit/s" for the option "-5".
    if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && is_negative(option)
        && let Some(value) = args.iter().filter_map(|arg| arg.to_str()).find(|arg| is_negative(arg))
    {
        return tree.clone().error(
            ErrorKind::ValueValidation,
            format!("{value:?} is negative: write zero or more"),
        );
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let tips = meant(given, parent(given, tree, args), tree);
    if !tips.is_empty() {
        // Clap's own suggestion is by letters only.
        error.remove(ContextKind::SuggestedSubcommand);
        let tips = tips.into_iter().map(Into::into).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Whether an argument is a negative quantity.
fn is_negative(arg: &str) -> bool {
    arg.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Name of the command that has no subcommand `given`.
fn parent<'a>(given: &str, tree: &'a Command, args: &[OsString]) -> &'a str {
    let mut command = tree;
    for arg in args.iter().skip(1).take_while(|arg| *arg != given) {
        command = command.find_subcommand(arg).unwrap_or(command);
    }
    command.get_name()
}

fn meant(given: &str, parent: &str, tree: &Command) -> Vec<String> {
    if given == "cert" {
        // Clap would suggest `certificate`, which is something else.
        let tip = "X.509 certificates: linkctl pki; the verdict on a run: linkctl certificate";
        return vec![tip.to_owned()];
    }
    if parent == "set" {
        let is_file = given.ends_with(".toml") || given.contains('/') || given == "-";
        if is_file || Catalog::built_in().get(given).is_some() {
            return vec![format!("{given} is a profile: linkctl set profile {given}")];
        }
        if let Some((_, tip)) = CALLED.iter().find(|(names, _)| names.contains(&given)) {
            return vec![(*tip).to_owned()];
        }
    }
    let mut found = Vec::new();
    commands(given, "", tree, &mut found);
    if found.len() > MOST { Vec::new() } else { found }
}

/// The commands with this name in the tree, each with those that it is below.
fn commands(name: &str, above: &str, tree: &Command, found: &mut Vec<String>) {
    let path = format!("{above}{}", tree.get_name());
    for command in tree.get_subcommands() {
        if command.get_name() == name {
            found.push(format!("{path} {name}"));
        }
        commands(name, &format!("{path} "), command, found);
    }
}
