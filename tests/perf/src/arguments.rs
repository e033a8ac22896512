// SPDX-License-Identifier: Apache-2.0
//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Measures what the dataplane costs beside what its driver alone costs, in one run.
///
/// Runs on DPDK's null driver: no NIC, and no root unless hugepages are to be used. Costs are
/// processor time, in ns a packet.
///
/// Exits with 4 if a goal is missed or a case measured something else than it says, with 1 on
/// any other failure.
#[derive(Clone, Debug, Parser)]
#[command(version, name = "bench")]
pub struct Arguments {
    /// Only cases with this in their name, or of exactly this name, and only their cost, unless
    /// `--only` asks for more. Names are SIZE-PROFILE-DELAY-CLIENTS, such as 64B-full-300ms-1
    #[arg(long, value_name = "FILTER")]
    pub case: Option<String>,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<Part>,
    /// About a minute: few cases, few repetitions
    #[arg(long)]
    pub quick: bool,
    /// List the cases and end
    #[arg(long)]
    pub list: bool,
    /// Repetitions of each contender
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub repetitions: Option<u16>,
    /// Frames in a repetition
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub frames: Option<u64>,
    /// Frames longer than this many bytes, FCS excluded, stay in the buffer they came in
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub copy_break: u32,
    /// Give frames to one client after the other, instead of to a client drawn for each
    #[arg(long)]
    pub round_robin: bool,
    /// Do not use hugepages, even if there are enough
    #[arg(long)]
    pub no_huge: bool,
    /// Compare with this commit [default: where this branch left origin/main, or the last one]
    #[arg(long, value_name = "REV")]
    pub base: Option<String>,
    /// Print this
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Write results.json, results.txt, results.md and plots into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Do not fail because of goals that are missed
    #[arg(long)]
    pub no_goals: bool,
    /// Run one contender alone, for callgrind
    #[arg(long, hide = true, value_enum)]
    pub count: Option<Contender>,
}

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Memory a byte held.
    Memory,
    /// Cost of a packet, by case.
    Cost,
    /// Finding a frame's client by rules.
    Rules,
    /// The driver's own forwarder.
    Testpmd,
    /// A change of plan under load.
    Change,
    /// Several workers.
    Workers,
    /// Copying frames against keeping their buffers, by size.
    Keeping,
    /// Passing frames on to another worker.
    Handover,
    /// Lateness in real time.
    Lateness,
    /// Instructions a packet, by callgrind.
    Instructions,
    /// This commit against its base.
    Base,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables.
    Table,
    /// One JSON object.
    Json,
}

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Contender {
    /// The bare loop.
    Ceiling,
    /// The emulator's worker.
    Ours,
}

impl Arguments {
    /// Whether a part is selected.
    #[must_use]
    pub fn wants(&self, part: Part) -> bool {
        if !self.only.is_empty() {
            return self.only.contains(&part);
        }
        if self.case.is_some() {
            return part == Part::Cost || (part == Part::Base && self.base.is_some());
        }
        match part {
            Part::Base => !self.quick || self.base.is_some(),
            Part::Instructions | Part::Keeping => !self.quick,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &[&str]) -> Arguments {
        Arguments::try_parse_from([&["bench"], words].concat()).unwrap()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn filter_selects_costs_only() {
        let a = parse(&["--case", "64B"]);
        assert!(a.wants(Part::Cost) && !a.wants(Part::Memory) && !a.wants(Part::Base));
        let a = parse(&["--case", "64B", "--only", "memory,lateness"]);
        assert!(a.wants(Part::Memory) && !a.wants(Part::Cost));
    }

    #[test]
    fn quick_run_builds_base_only_if_named() {
        assert!(!parse(&["--quick"]).wants(Part::Base));
        assert!(parse(&["--quick", "--base", "HEAD~3"]).wants(Part::Base));
        assert!(parse(&[]).wants(Part::Base));
    }

    #[test]
    fn invalid_input_is_refused() {
        let refused =
            |words: &[&str]| Arguments::try_parse_from([&["bench"], words].concat()).is_err();
        assert!(refused(&["--only", "everything"]));
        assert!(refused(&["--repetitions", "0"]));
        assert!(refused(&["--frames", "0"]));
    }
}
