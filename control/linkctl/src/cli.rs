// SPDX-License-Identifier: Apache-2.0
//! The command tree: help, completion and parsing all come from here.

use crate::connection::Place;
use crate::verify;
use crate::{
    appliance, capture, cert, certificate, clients, complete, doctor, envelope, events, fit, lease,
    man, probe, scenario, switch, top,
};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use profile::{Rate, UnitError, parse_duration, parse_probability, parse_rate, parse_size};
use std::ffi::OsString;
use std::path::PathBuf;

/// Of the options that every command has.
pub const GLOBAL: &str = "Global options";

/// Sets and shows the link that linkemu emulates.
#[derive(Debug, Parser)]
#[command(name = "linkctl", version, after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// Print text for people or JSON for programs, errors too
    #[arg(
        short = 'o',
        long = "output",
        global = true,
        default_value = "text",
        value_name = "text|json",
        help_heading = GLOBAL
    )]
    pub output: Output,

    /// Where linkd is.
    #[command(flatten)]
    pub linkd: Place,

    /// The token of the lease under which to change the link
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "LINKEMU_LEASE",
        hide_env_values = true,
        help_heading = GLOBAL
    )]
    pub lease: Option<String>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  linkctl profile list                      what there is
  linkctl set profile viasat2               be a satellite link
  linkctl set rate 72Mbit/s --direction forward
  linkctl scenario run rain-fade            changes along a timeline
  linkctl show                              the link in force, as a profile
  linkctl stats --watch                     what it does to the packets
  linkctl top                               the same, live
  linkctl capture --client 10.0.0.2 -w run.pcapng    packets, and the fate of each
  linkctl doctor                            is this machine fit for it?
  linkctl box apply box.toml --dry-run      take the ports that a box's file names
  linkctl -o json stats | jq .conservation
  linkctl envelope                          what can be held without loss
  linkctl certificate                       was the emulator itself the bottleneck?
  linkctl fit ping.log -w mine.toml         a profile that behaves like a measured link
  linkctl verify mine.toml --baseline ping.log
  linkctl --server linkemu.lab:8443 --ca ca.pem --cert ci-7.pem --key ci-7.key show

Exit codes:
  0 done   1 refused or failed   2 usage   3 cannot reach linkd or its dataplane
  4 a check did not hold   5 a check could not be decided: the logs are too short";

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs: stable keys in snake_case.
    Json,
}

impl std::str::FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("write text or json; a file to be written is named by -w".into()),
        }
    }
}

/// The first word.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Change the link; says from which instant the change is in force
    #[command(after_help = SET_EXAMPLES, arg_required_else_help = true)]
    Set {
        /// What to change.
        #[command(subcommand)]
        what: Set,
    },
    /// Show the link in force, as a profile that can be saved and set again
    #[command(after_help = SHOW_EXAMPLES)]
    Show,
    /// Show what happened to the packets
    #[command(after_help = STATS_EXAMPLES)]
    Stats(StatsArgs),
    /// Watch all clients live, in the terminal
    #[command(after_help = top::EXAMPLES)]
    Top(top::TopArgs),
    /// Capture packets as they come, and as they leave or are dropped
    #[command(after_help = capture::EXAMPLES)]
    Capture(capture::CaptureArgs),
    /// Judge a run: was the emulator itself the bottleneck since the last mark?
    #[command(after_help = certificate::EXAMPLES)]
    Certificate(certificate::CertificateArgs),
    /// Say which frames are which client's, and list the clients
    #[command(after_help = clients::EXAMPLES, arg_required_else_help = true)]
    Clients {
        /// What to do.
        #[command(subcommand)]
        what: clients::Command,
    },
    /// Show what can be held without loss, and whether a profile can
    #[command(after_help = envelope::EXAMPLES)]
    Envelope(envelope::EnvelopeArgs),
    /// List, show and check profiles
    #[command(after_help = PROFILE_EXAMPLES, arg_required_else_help = true)]
    Profile {
        /// What to do with them.
        #[command(subcommand)]
        what: Profile,
    },
    /// Run changes of the link along a timeline
    #[command(after_help = scenario::EXAMPLES, arg_required_else_help = true)]
    Scenario {
        /// What to do.
        #[command(subcommand)]
        what: scenario::Scenario,
    },
    /// Show the P4 switch between the hosts and the box, and close its gates
    #[command(after_help = switch::EXAMPLES, arg_required_else_help = true)]
    Switch {
        /// What to do.
        #[command(subcommand)]
        what: switch::Command,
    },
    /// Measure a link's baseline: send probes, and reflect them
    #[command(after_help = probe::EXAMPLES, arg_required_else_help = true)]
    Probe {
        /// What to do.
        #[command(subcommand)]
        what: probe::Probe,
    },
    /// Fit a profile to a measured baseline
    #[command(after_help = fit::EXAMPLES)]
    Fit(Box<fit::FitArgs>),
    /// Compare a link with a baseline: does it behave alike?
    #[command(after_help = verify::EXAMPLES)]
    Verify(Box<verify::VerifyArgs>),
    /// Have the link for oneself for a while, on a box that many share
    #[command(after_help = lease::EXAMPLES, arg_required_else_help = true)]
    Lease {
        /// What to do.
        #[command(subcommand)]
        what: lease::Lease,
    },
    /// Show what happens: changes, leases, a dataplane that comes and goes
    #[command(after_help = events::EXAMPLES)]
    Events(events::EventsArgs),
    /// Check whether this machine is fit to run linkemu, and say what to do
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(doctor::DoctorArgs),
    /// Check the description of a box, and take the ports and hugepages that it names
    #[command(after_help = appliance::EXAMPLES, arg_required_else_help = true)]
    Box {
        /// What to do.
        #[command(subcommand)]
        what: appliance::Command,
    },
    /// Make certificates for a lab, and show what is in one
    #[command(after_help = cert::EXAMPLES, arg_required_else_help = true)]
    Cert {
        /// What to do.
        #[command(subcommand)]
        what: cert::Cert,
    },
    /// Print a completion script for a shell
    ///
    /// It completes names of profiles, scenarios and clients too: it asks linkd for them, at
    /// LINKEMU_SOCKET or LINKEMU_SERVER.
    #[command(
        after_help = "Examples:\n  linkctl completion bash > /etc/bash_completion.d/linkctl\n  source <(linkctl completion zsh)"
    )]
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages
    #[command(after_help = man::EXAMPLES)]
    Man(man::ManArgs),
}

const SET_EXAMPLES: &str = "\
Examples:
  linkctl set profile viasat2 --seed 7
  linkctl set profile ./my-link.toml
  linkctl set rate down                     both directions: packets wait
  linkctl set rate --trace lte.mahimahi -d forward
  linkctl set delay 300ms --slot none --direction return
  linkctl set queue 10MB --threshold 5MB --drop-at-limit 10%
  linkctl set loss --every 3h --for 320ms
  linkctl set part 'reorder = \"none\"'
  linkctl set profile ./huge.toml --lossy    though it does not fit (linkctl envelope)

Units are written out: Mbit/s, MB (10^6 bytes), MiB (2^20 bytes), ms, %.";

const PART_EXAMPLES: &str = "\
Examples:
  linkctl set part 'duplicate = \"0.1 %\"' 'corrupt = \"0.01 %\"' -d forward
  linkctl set part 'reorder = { probability = \"1 %\", by = \"5 ms\" }'
  linkctl set part 'duplicate = \"0 %\"' 'corrupt = \"0 %\"' 'reorder = \"none\"'
  linkctl set part 'drop_run = { pass = 999, drop = 1, once = true }'   again: armed again
  linkctl set part 'queue = { codel = { interval = \"600 ms\" }, ecn = true }'

The keys are those of [forward] and [return] in a profile. \"none\" is a value of
gilbert_elliott, four_state_loss, drop_run, reorder, fade, queue.random_drop,
queue.red, queue.codel, queue.pie and delay.body; lists are taken away by [], and
probabilities by \"0 %\".";

const SHOW_EXAMPLES: &str = "\
Examples:
  linkctl show > my-link.toml               save it, edit it, give it a name, and
  linkctl set profile ./my-link.toml        set it
  linkctl -o json show | jq .generation";

const STATS_EXAMPLES: &str = "\
Examples:
  linkctl stats                             once
  linkctl stats --mark                      and start high-water marks and lateness anew
  linkctl stats --watch 200ms               again and again
  linkctl -o json stats --watch | jq -c .emulator_drops";

const PROFILE_EXAMPLES: &str = "\
Examples:
  linkctl profile list
  linkctl profile show viasat2 > mine.toml
  linkctl profile put mine.toml             then `linkctl set profile` knows it by name
  linkctl profile check mine.toml           exit code 4 if it is wrong; needs no linkd";

/// Which pipes, and on what condition.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// Towards the client, from it, or each of both
    #[arg(short, long, value_enum, default_value = "both")]
    pub direction: Direction,
    #[command(flatten)]
    pub condition: Condition,
}

/// On what condition.
#[derive(Clone, Debug, Args)]
pub struct Condition {
    /// Refuse if another generation is in force: someone else changed the link
    #[arg(long, value_name = "N")]
    pub expect_generation: Option<u64>,
    /// Name this request, so that it is not carried out twice if it is sent again
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub request_id: String,
    /// Take it even if there is too little memory or time: then packets may be lost by the
    /// emulator itself, and `show` and `stats` say so
    #[arg(long)]
    pub lossy: bool,
}

/// A way through the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// Towards the client.
    Forward,
    /// From the client.
    Return,
    /// Both.
    Both,
}

/// How a random duration is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Law {
    /// Memoryless, with this mean.
    Exponential,
    /// Always the same.
    Fixed,
}

/// What to change.
#[derive(Debug, Subcommand)]
pub enum Set {
    /// Replace the whole link and start its random processes anew
    Profile {
        /// A profile's name, or a file: with a '/' in it, or ending in .toml; - for standard input
        #[arg(value_name = "NAME|FILE|-", add = ArgValueCompleter::new(complete::profile))]
        profile: String,
        /// Seed of all random processes; without it, the one in force stays
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
        #[command(flatten)]
        condition: Condition,
    },
    /// Change a part of it.
    #[command(flatten)]
    Patch(Patch),
}

/// Which part of the link to change.
#[derive(Debug, Subcommand)]
pub enum Patch {
    /// Change the rate, of each direction
    Rate {
        /// Such as 72Mbit/s, or unlimited, or down (packets wait in the queue)
        #[arg(value_name = "RATE|unlimited|down", value_parser = parse_rate, required_unless_present = "trace")]
        rate: Option<Rate>,
        /// A trace of mahimahi, or CSV such as time_s,rate_mbps: from the change on, over and over
        #[arg(long, value_name = "FILE", conflicts_with = "rate")]
        trace: Option<PathBuf>,
        /// Length of its steps, over which it is averaged; without it 100 ms, or as CSV's rows are
        #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "trace", conflicts_with = "rate")]
        trace_step: Option<u64>,
        #[command(flatten)]
        target: Target,
    },
    /// Change the constant delay, of each direction; excursions stay as they are
    ///
    /// It is one-way: `set delay 300ms` delays each direction by 300 ms, and adds 600 ms to a round
    /// trip. `set delay --rtt 600ms` is the same.
    Delay {
        /// Of each direction, such as 300ms
        #[arg(value_name = "TIME", value_parser = parse_duration, required_unless_present = "rtt")]
        base: Option<u64>,
        /// What both directions add to a round trip together, in halves
        #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with_all = ["base", "direction"])]
        rtt: Option<u64>,
        /// Period of transmission slots, or none; without it, as it is
        #[arg(long, value_name = "TIME|none", value_parser = parse_slot)]
        slot: Option<u64>,
        #[command(flatten)]
        target: Target,
    },
    /// Change the queue's limit, of each client and direction, and how it drops
    Queue {
        /// Such as 36MB
        #[arg(value_name = "SIZE", value_parser = parse_size)]
        limit: u64,
        /// Drop arriving packets at random above this; without it, as it is
        #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "drop_at_limit")]
        threshold: Option<u64>,
        /// Probability of that at the threshold
        #[arg(long, value_name = "PERCENT", value_parser = parse_probability, requires = "threshold", default_value = "0%")]
        drop_at_threshold: f64,
        /// Probability of that at the limit; linear between
        #[arg(long, value_name = "PERCENT", value_parser = parse_probability, requires = "threshold")]
        drop_at_limit: Option<f64>,
        /// Drop at the limit only
        #[arg(long, conflicts_with_all = ["threshold", "drop_at_limit"])]
        tail_drop: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Replace all that the channel loses, of each direction, by a share of the packets, by one
    /// class of outages, or by nothing; duplicates, wrong bits and reordering lose nothing, and
    /// stay: `set part` changes them
    #[command(group(ArgGroup::new("outages").required(true).args(["share", "every"])))]
    Loss {
        /// Such as 1%, of packets drawn one by one; or none
        #[arg(value_name = "PERCENT|none", value_parser = parse_loss, conflicts_with = "duration")]
        share: Option<f64>,
        /// Mean time from the end of one outage to the start of the next
        #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "duration")]
        every: Option<u64>,
        /// Mean duration
        #[arg(long = "for", id = "duration", value_name = "TIME", value_parser = parse_duration, requires = "every")]
        duration: Option<u64>,
        /// How the duration is drawn
        #[arg(long, value_enum, default_value = "exponential")]
        law: Law,
        #[command(flatten)]
        target: Target,
    },
    /// Change any part of a direction, in a profile's words; what is not named stays
    #[command(after_help = PART_EXAMPLES)]
    Part {
        /// Such as 'duplicate = "0.1 %"', in TOML; "none" takes away what is a table
        #[arg(required = true, value_name = "KEY = VALUE")]
        part: Vec<String>,
        #[command(flatten)]
        target: Target,
    },
}

/// How to show statistics.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Again every INTERVAL (10 ms to 1 h) until interrupted
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1s", value_parser = parse_duration)]
    pub watch: Option<u64>,
    /// Begin a run: start high-water marks, lateness and stalls anew after this snapshot
    #[arg(long, conflicts_with = "watch")]
    pub mark: bool,
}

/// What to do with profiles.
#[derive(Debug, Subcommand)]
pub enum Profile {
    /// All that can be set by name
    List,
    /// One of them
    Show {
        /// Its name.
        #[arg(add = ArgValueCompleter::new(complete::profile_name))]
        name: String,
    },
    /// Store profiles in linkd under their names; the link does not change
    Put {
        /// Profiles in TOML.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Take the place of stored ones.
        #[arg(long)]
        replace: bool,
    },
    /// Delete stored profiles; the link does not change
    Delete {
        /// Their names.
        #[arg(required = true, value_name = "NAME", add = ArgValueCompleter::new(complete::profile_name))]
        names: Vec<String>,
    },
    /// Check files; needs no linkd
    Check {
        /// Profiles in TOML.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Write the JSON Schema of profiles, for editors that check and complete TOML; needs no linkd
    Schema,
}

impl Cli {
    /// The token of a lease; an empty variable is none.
    pub fn token(&self) -> Option<&str> {
        self.lease.as_deref().filter(|token| !token.is_empty())
    }
}

/// A share of packets, or none.
fn parse_loss(text: &str) -> Result<f64, UnitError> {
    if text == "none" { Ok(0.0) } else { parse_probability(text) }
}

fn parse_slot(text: &str) -> Result<u64, UnitError> {
    if text == "none" { Ok(0) } else { parse_duration(text) }
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
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("linkctl").chain(line.split_whitespace()))
    }

    #[test]
    fn the_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_example_parses() {
        let linkd = [
            EXAMPLES,
            SET_EXAMPLES,
            PART_EXAMPLES,
            SHOW_EXAMPLES,
            STATS_EXAMPLES,
            PROFILE_EXAMPLES,
        ];
        let probe = [probe::EXAMPLES, probe::REFLECT_EXAMPLES, probe::SEND_EXAMPLES];
        let scenarios = [scenario::EXAMPLES, scenario::import::EXAMPLES];
        let lab = [lease::EXAMPLES, events::EXAMPLES].into_iter().chain(scenarios);
        let rest = [
            fit::EXAMPLES,
            verify::EXAMPLES,
            envelope::EXAMPLES,
            top::EXAMPLES,
            doctor::EXAMPLES,
            man::EXAMPLES,
            switch::EXAMPLES,
            switch::GATE_EXAMPLES,
            certificate::EXAMPLES,
            cert::EXAMPLES,
        ];
        let texts = linkd.into_iter().chain(probe).chain(lab).chain(rest);
        let mut examples = 0;
        for line in texts.flat_map(str::lines) {
            let Some(command) = line.strip_prefix("  linkctl ") else { continue };
            let end = [" | ", " > ", "    "].iter().filter_map(|mark| command.find(mark)).min();
            let command = &command[..end.unwrap_or(command.len())];
            if let Err(error) = parse(command) {
                panic!("{command}: {error}");
            }
            examples += 1;
        }
        assert!(examples > 15);
    }

    #[test]
    fn usage_errors_name_the_value() {
        for (line, expected) in [
            ("set rate 72", "such as \"72 Mbit/s\""),
            ("scenario import -w a.toml", "--forward"),
            ("scenario import --write a.toml --repeat", "--forward"),
            ("scenario import --forward a.csv --ignore jiter", "the nearest is \"JITTER\""),
            ("set rate", "<RATE|unlimited|down>"),
            ("set rate 5Mbit/s --trace f", "cannot be used with"),
            ("set rate 5Mbit/s --trace-step 1s", "--trace"),
            ("set rate 0Mbit/s", "say \"down\""),
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
            ("cert client --ca d --name a/b --role viewer", "letters, digits"),
            ("cert client --ca d --name ca --role viewer", "the authority's own"),
            ("cert client --ca d --name a --role root", "viewer, operator or admin"),
            ("cert client --ca d --name a", "--role"),
            ("cert server --ca d", "--host"),
            ("probe reflect --bind 8620", "invalid socket address"),
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn json_is_recognised_in_what_does_not_parse() {
        let wants = |line: &str| wants_json(line.split(' ').map(OsString::from));
        assert!(wants("linkctl -o json x") && wants("linkctl x --output=json"));
        assert!(!wants("linkctl -o text json"));
    }
}
