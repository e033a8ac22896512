// SPDX-License-Identifier: Apache-2.0
//! The command tree: help, completion and parsing all come from here.

use crate::context::Context;
use crate::failure::Failure;
use crate::{
    appliance, capture, certificate, clients, completion, doctor, envelope, events, fit, group,
    hint, lease, link, man, pki, probe, profile, run, scenario, set, show, stats, switch, top,
    traces, verify, web,
};
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;

/// Sets and shows the link that linkemu emulates.
#[derive(Debug, Parser)]
#[command(name = "linkctl", version, after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    pub context: Context,

    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses the arguments of a process, the program's name first.
    ///
    /// # Errors
    /// Help, version or a usage error, to be printed.
    pub fn from_args(args: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        let args: Vec<OsString> = args.collect();
        let parsed = Self::try_parse_from(&args);
        parsed.map_err(|error| hint::improve(error, &Self::command(), &args))
    }

    /// Refuses several links for a command that is about one.
    ///
    /// # Errors
    /// A usage error.
    pub fn check_links(&self) -> Result<(), Failure> {
        let links = self.context.linkd.links();
        if links.len() < 2 || matches!(self.command, Command::Set { .. }) {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "--link names {} links ({}), and this command applies to one link: only `linkctl set` \
             changes several links at one instant",
            links.len(),
            links.join(", ")
        )))
    }
}

const EXAMPLES: &str = "\
Examples:
  linkctl profile list                      the profiles that can be set
  linkctl set profile viasat2               a satellite link
  linkctl set rate 72Mbit/s --direction forward
  linkctl scenario run rain-fade            changes along a timeline
  linkctl show                              the current link, as a profile
  linkctl stats --watch                     statistics, every second
  linkctl top                               the same, live
  linkctl capture --client 10.0.0.2 -w run.pcapng    packets with their fates
  linkctl doctor                            checks this machine
  linkctl box apply box.toml --dry-run      the steps that set up a box
  linkctl -o json stats | jq .conservation
  linkctl link add lab1 --prefix 10.1.0.0/24         another link on this box
  linkctl --link lab1 set profile geo-600
  linkctl --link lab1,lab2 set delay 300ms           both at one instant, or neither
  linkctl envelope                          delay and rate that fit into memory
  linkctl certificate                       was the emulator a bottleneck?
  linkctl fit ping.log -w mine.toml         a profile from a measurement
  linkctl verify mine.toml --baseline ping.log
  linkctl --server linkemu.lab:8443 --ca ca.pem --cert ci-7.pem --key ci-7.key show

Exit codes:
  0 done   1 refused or failed   2 usage   3 cannot reach linkd or its dataplane
  4 a check failed   5 a check could not be decided: the logs are too short";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command behind its own link, without root
    #[command(after_help = run::EXAMPLES)]
    Run(Box<run::RunArgs>),
    /// Change the link, and print when the change took effect
    #[command(after_help = set::EXAMPLES, arg_required_else_help = true)]
    Set {
        #[command(subcommand)]
        what: set::Set,
    },
    /// Show the current link as a profile, which can be saved and set again
    #[command(after_help = show::EXAMPLES)]
    Show(show::ShowArgs),
    /// Show statistics: packets received, sent, dropped and held
    #[command(after_help = stats::EXAMPLES)]
    Stats(stats::StatsArgs),
    /// Show all clients live in the terminal
    #[command(after_help = top::EXAMPLES)]
    Top(top::TopArgs),
    /// Capture packets when they arrive, leave and are dropped
    #[command(after_help = capture::EXAMPLES)]
    Capture(capture::CaptureArgs),
    /// Check whether the emulator was the bottleneck since the last mark
    #[command(after_help = certificate::EXAMPLES)]
    Certificate(certificate::CertificateArgs),
    /// Assign frames to clients by rules, and list the clients
    #[command(after_help = clients::EXAMPLES, arg_required_else_help = true)]
    Clients {
        #[command(subcommand)]
        what: clients::Command,
    },
    /// Show the delay and rate that fit into memory, and whether a profile fits
    #[command(after_help = envelope::EXAMPLES)]
    Envelope(envelope::EnvelopeArgs),
    /// List, show and check profiles
    #[command(after_help = profile::EXAMPLES, arg_required_else_help = true)]
    Profile {
        #[command(subcommand)]
        what: profile::Command,
    },
    /// Run changes of the link along a timeline
    #[command(after_help = scenario::EXAMPLES, arg_required_else_help = true)]
    Scenario {
        #[command(subcommand)]
        what: scenario::Scenario,
    },
    /// Convert captures to traces of delay and loss, and play long traces
    #[command(after_help = traces::EXAMPLES, arg_required_else_help = true)]
    Trace {
        #[command(subcommand)]
        what: traces::Command,
    },
    /// Show the boxes of a group behind one P4 switch, and move clients between them
    #[command(after_help = group::EXAMPLES, arg_required_else_help = true)]
    Group {
        #[command(subcommand)]
        what: group::Command,
    },
    /// Show and control the P4 switch between the hosts and the box
    #[command(after_help = switch::EXAMPLES, arg_required_else_help = true)]
    Switch {
        #[command(subcommand)]
        what: switch::Command,
    },
    /// Measure a link: send probes, and reflect them
    #[command(after_help = probe::EXAMPLES, arg_required_else_help = true)]
    Probe {
        #[command(subcommand)]
        what: probe::Probe,
    },
    /// Fit a profile to a measured link
    #[command(after_help = fit::EXAMPLES)]
    Fit(Box<fit::FitArgs>),
    /// Check whether a link behaves like a measured one
    #[command(after_help = verify::EXAMPLES)]
    Verify(Box<verify::VerifyArgs>),
    /// Reserve a link of a shared box for a limited time
    #[command(after_help = lease::EXAMPLES, arg_required_else_help = true)]
    Lease {
        #[command(subcommand)]
        what: lease::Lease,
    },
    /// Add, list and remove links, and assign traffic to them
    #[command(after_help = link::EXAMPLES, arg_required_else_help = true)]
    Link {
        #[command(subcommand)]
        what: link::Command,
    },
    /// Show events: changes, leases, restarts of the dataplane
    #[command(after_help = events::EXAMPLES)]
    Events(events::EventsArgs),
    /// Print a URL that logs a browser in to the web page
    #[command(after_help = web::EXAMPLES)]
    Web(web::WebArgs),
    /// Check whether this machine can run linkemu, and name remedies
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(doctor::DoctorArgs),
    /// Check the box file, and set up the ports and hugepages that it names
    #[command(after_help = appliance::EXAMPLES, arg_required_else_help = true)]
    Box {
        #[command(subcommand)]
        what: appliance::Command,
    },
    /// Create, show and revoke X.509 certificates for linkd and its callers
    #[command(after_help = pki::EXAMPLES, arg_required_else_help = true)]
    Pki {
        #[command(subcommand)]
        what: pki::Pki,
    },
    /// Print a completion script for a shell
    ///
    /// It also completes names of profiles, scenarios and clients, which it requests from linkd at
    /// LINKEMU_SOCKET or LINKEMU_SERVER.
    #[command(after_help = completion::EXAMPLES)]
    Completion(completion::CompletionArgs),
    /// Write the man pages
    #[command(after_help = man::EXAMPLES)]
    Man(man::ManArgs),
}

/// Whether arguments that clap does not understand ask for JSON.
pub fn wants_json(args: impl Iterator<Item = OsString>) -> bool {
    let args: Vec<_> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    args.iter().enumerate().any(|(i, arg)| match arg.as_str() {
        "-o" | "--output" => args.get(i + 1).is_some_and(|next| next == "json"),
        "-ojson" | "-o=json" | "--output=json" => true,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let words = shlex::split(line).expect("the quotation marks are closed");
        let words = std::iter::once("linkctl".to_owned()).chain(words);
        Cli::from_args(words.map(OsString::from))
    }

    #[test]
    fn the_tree_is_sound() {
        Cli::command().debug_assert();
    }

    /// The text below the options of a command and of those below it.
    fn examples(command: &clap::Command, texts: &mut Vec<String>) {
        texts.extend(command.get_after_help().map(ToString::to_string));
        for command in command.get_subcommands() {
            examples(command, texts);
        }
    }

    #[test]
    fn every_example_of_the_help_parses() {
        let mut texts = Vec::new();
        examples(&Cli::command(), &mut texts);
        let mut parsed = 0;
        for line in texts.iter().flat_map(|text| text.lines()) {
            // Text is not indented.
            let Some(indented) = line.strip_prefix("  ") else { continue };
            let Some(command) = indented.trim_start().strip_prefix("linkctl ") else { continue };
            let end = [" | ", " > ", "   "].iter().filter_map(|mark| command.find(mark)).min();
            let command = &command[..end.unwrap_or(command.len())];
            if let Err(error) = parse(command) {
                panic!("{command}: {error}");
            }
            parsed += 1;
        }
        assert!(parsed > 100, "only {parsed} examples");
    }

    #[test]
    fn every_command_of_the_documentation_parses() {
        pages::commands_parse("linkctl", 51, |words| {
            Cli::from_args(words.iter().map(OsString::from))
        });
    }

    #[test]
    fn usage_errors_name_the_value() {
        for (line, expected) in [
            ("set rate 72", "such as \"72 Mbit/s\""),
            ("scenario import -w a.toml", "--forward"),
            ("scenario import --write a.toml --repeat", "--forward"),
            ("scenario import --forward a.csv --ignore jiter", "the nearest is \"JITTER\""),
            ("scenario orbit --tle a", "--ground"),
            ("scenario orbit --tle a --ground 91,0", "latitude 91 is outside of -90 to 90"),
            ("scenario orbit --tle a --ground 1,2 --elevation 90", "less than 90 degrees"),
            ("scenario orbit --tle a --ground 1,2 --step 1ms", "outside of 10 ms to 1 min"),
            ("scenario orbit --tle a --ground 1,2 --reconfigure 0s", "outside of 100 ms to 1 d"),
            ("scenario orbit --tle a --ground 1,2 --start noon", "2026-01-01T12:00:00Z"),
            ("set rate", "<RATE|unlimited|down>"),
            ("set rate 5Mbit/s --trace f", "cannot be used with"),
            ("set rate 5Mbit/s --trace-step 1s", "--trace"),
            ("set rate 0Mbit/s", "write \"down\""),
            ("set queue 36Mb", "bits"),
            ("set delay 5m", "min (minutes)"),
            ("set queue 10MB --threshold 5MB", "--drop-at-limit"),
            ("set queue 10MB --threshold 5MB --drop-at-limit 0.1", "write a unit"),
            (
                "set queue 10MB --tail-drop --threshold 5MB --drop-at-limit 1%",
                "cannot be used with",
            ),
            ("set loss", "<PERCENT|none|--every <TIME>>"),
            ("set loss --every 3h", "--for"),
            ("set loss none --every 3h --for 1s", "cannot be used with"),
            ("set loss some", "some"),
            ("set profle viasat2", "profile"),
            ("stats --watch --mark", "cannot be used with"),
            ("top --interval 5", "write a unit"),
            ("top --interval 1ms", "outside of 10 ms to 1 h"),
            ("envelope --memory 4", "write a unit"),
            ("certificate --max-stall 10", "write a unit"),
            ("certificate --max-memory 101", "0..=100"),
            ("envelope --port-rate down", "no rate of a port"),
            ("envelope --clients 0", "1.."),
            ("envelope --max-frame 13B", "14 B"),
            ("probe send", "<HOST[:PORT]>"),
            ("probe send host:0 -w f", "from 1 to 65535"),
            ("probe send host -w f --interval 5", "write a unit"),
            ("probe send host -w f --seed 7", "--poisson"),
            ("probe send host -w f --count 1 --duration 1s", "cannot be used with"),
            ("show --server linkemu.lab", "HOST:PORT"),
            ("pki client --ca d --name a/b --role viewer", "letters, digits"),
            ("pki client --ca d --name ca --role viewer", "the authority's own"),
            ("pki client --ca d --name a --role root", "viewer, operator or admin"),
            ("pki client --ca d --name a", "--role"),
            ("pki server --ca d", "--host"),
            ("cert show a.pem", "linkctl pki"),
            ("set jitter 5ms", "linkctl set part 'delay.body"),
            ("set latency 5ms", "linkctl set delay"),
            ("set viasat2", "linkctl set profile viasat2"),
            ("set ./mine.toml", "linkctl set profile ./mine.toml"),
            ("set rate -5Mbit/s", "\"-5Mbit/s\" is negative: write zero or more"),
            ("set -d forward loss -1%", "unexpected argument '-d'"),
            ("set delay -5ms -d forward", "\"-5ms\" is negative"),
            ("rate set 5Mbit/s", "linkctl set rate"),
            ("--link lab1 acquire", "linkctl lease acquire"),
            ("probe reflect --bind 8620", "invalid socket address"),
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn json_option_is_recognised_in_invalid_command() {
        let wants = |line: &str| wants_json(line.split(' ').map(OsString::from));
        assert!(wants("linkctl -o json x") && wants("linkctl x --output=json"));
        assert!(!wants("linkctl -o text json"));
    }
}
