// SPDX-License-Identifier: Apache-2.0
//! The budget: the most instructions and cache lines for a packet, and the most memory for a client and a
//! link.
//!
//! tests/perf/budget.toml has the figures of each case as they were measured, with the reason for the
//! last change. A case fails if it costs more than its budget and a tolerance. Figures hold for the tools
//! in the file; with others nothing is compared (docs/adr/0071).

use std::fmt;
use std::path::{Path, PathBuf};

use dpdk::Mbuf;
use emu::engine::{Engine, PIPE_BYTES};
use emu::pipe::COLD_BYTES;
use serde::{Deserialize, Serialize};
use thiserror::Error as Derive;

use crate::meter::Cost;
use crate::tools::Tools;

/// What a case may exceed its budget by, %.
const INSTRUCTIONS: f64 = 2.0;
/// The same for cache lines. Where an object lies in the simulated cache moves them by 1 %.
const LINES: f64 = 5.0;
/// Lines below which a share says nothing.
const FEW_LINES: f64 = 1.0;

const HEADER: &str = "\
# Cost of a packet and memory of the dataplane, as measured: docs/performance.md, \"The guard\".
# Written by `make budget REASON=\"...\"`. Do not edit: the figures hold for these tools only.

";

/// Why a budget cannot be used.
#[derive(Debug, Derive)]
pub enum BudgetError {
    #[error("{}: {reason}", .path.display())]
    File { path: PathBuf, reason: String },
    #[error("{}: {reason}", .path.display())]
    Invalid { path: PathBuf, reason: toml::de::Error },
    #[error(transparent)]
    Text(#[from] toml::ser::Error),
}

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    pub tools: Tools,
    pub state: State,
    /// By name.
    #[serde(rename = "case")]
    pub cases: Vec<Entry>,
}

/// Bytes of memory without packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Why it is as much as it is.
    pub reason: String,
    /// A pipe in its engine; a client has two.
    pub pipe: usize,
    /// Behind a pipe's pointer to what few packets need.
    pub cold: usize,
    /// The engine of a link, without its clients.
    pub link: usize,
}

impl State {
    /// That of this build.
    #[must_use]
    pub fn here(reason: &str) -> Self {
        let link = size_of::<Engine<Mbuf>>();
        Self { reason: reason.to_owned(), pipe: PIPE_BYTES, cold: COLD_BYTES, link }
    }
}

/// What a case may cost, for a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub name: String,
    /// Why it costs as much as it does.
    pub reason: String,
    #[serde(flatten)]
    pub cost: Cost,
}

/// A figure beside its budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub what: &'static str,
    pub budget: f64,
    pub measured: f64,
    /// Percent above the budget; negative below it.
    pub excess: f64,
    /// Percent.
    pub tolerance: f64,
}

impl Verdict {
    fn new(what: &'static str, budget: f64, measured: f64, tolerance: f64) -> Self {
        let excess = if budget > 0.0 { (measured / budget - 1.0) * 100.0 } else { f64::INFINITY };
        let excess = if measured == budget { 0.0 } else { excess };
        Self { what, budget, measured, excess, tolerance }
    }

    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.excess > self.tolerance
    }

    /// Whether the budget is too high to notice the next increase.
    #[must_use]
    pub fn is_loose(&self) -> bool {
        self.excess < -self.tolerance
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, budget, measured, excess, tolerance } = self;
        write!(
            f,
            "{what}: budget {budget}, measured {measured}: {excess:+.2} % (limit {tolerance} %)"
        )
    }
}

/// A case beside its budget.
#[must_use]
pub fn judge(budget: &Cost, measured: &Cost) -> Vec<Verdict> {
    let lines = measured.lines.max(budget.lines) >= FEW_LINES;
    let lines = lines.then(|| Verdict::new("cache lines", budget.lines, measured.lines, LINES));
    let over =
        Verdict::new("instructions over the bare loop", budget.over, measured.over, INSTRUCTIONS);
    std::iter::once(over).chain(lines).collect()
}

/// The memory beside its budget: every byte counts.
#[must_use]
pub fn judge_state(budget: &State, here: &State) -> Vec<Verdict> {
    let bytes =
        |what, budget: usize, here: usize| Verdict::new(what, budget as f64, here as f64, 0.0);
    vec![
        bytes("bytes of a pipe", budget.pipe, here.pipe),
        bytes("bytes of its rarely used part", budget.cold, here.cold),
        bytes("bytes of a link", budget.link, here.link),
    ]
}

/// The verdicts as text, with the remedy for those that fail.
///
/// # Errors
/// The text, if a budget is exceeded.
pub fn report(name: &str, verdicts: &[Verdict]) -> Result<String, String> {
    let text = |v: &Verdict| {
        let loose = if v.is_loose() { "; NOTE: lower the budget" } else { "" };
        format!("{name}: {v}{loose}")
    };
    let lines = verdicts.iter().map(text).collect::<Vec<_>>().join("\n");
    if !verdicts.iter().any(Verdict::is_exceeded) {
        return Ok(lines);
    }
    Err(format!(
        "{lines}\nfind the cause: `make budget BASE=REV` compares with a commit; if the cost is meant, \
         record why: make budget REASON=\"...\" CASE={name}"
    ))
}

impl Budget {
    /// The file of this repository.
    #[must_use]
    pub fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("budget.toml")
    }

    /// # Errors
    /// If the file is missing or invalid.
    pub fn read(path: &Path) -> Result<Self, BudgetError> {
        let text = std::fs::read_to_string(path).map_err(|error| file(path, &error))?;
        toml::from_str(&text)
            .map_err(|reason| BudgetError::Invalid { path: path.to_owned(), reason })
    }

    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), BudgetError> {
        let text = format!("{HEADER}{}", toml::to_string(self)?);
        std::fs::write(path, text).map_err(|error| file(path, &error))
    }

    #[must_use]
    pub fn case(&self, name: &str) -> Option<&Entry> {
        self.cases.iter().find(|entry| entry.name == name)
    }

    /// Replaces the budget of a case. Equal figures keep their reason.
    pub fn set(&mut self, name: &str, cost: Cost, reason: &str) {
        let entry = Entry { name: name.to_owned(), reason: reason.to_owned(), cost };
        match self.cases.iter_mut().find(|entry| entry.name == name) {
            Some(known) if known.cost == cost => {}
            Some(known) => *known = entry,
            None => self.cases.push(entry),
        }
    }
}

fn file(path: &Path, error: &std::io::Error) -> BudgetError {
    BudgetError::File { path: path.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost { bare: 100.0, ours: 1100.0, over: 1000.0, lines: 4.0 };

    #[test]
    fn cost_above_the_tolerance_fails_with_figures_and_remedy() {
        let measured = Cost { ours: 1121.0, over: 1021.0, ..COST };
        let told = report("64B", &judge(&COST, &measured)).unwrap_err();
        let line =
            "64B: instructions over the bare loop: budget 1000, measured 1021: +2.10 % (limit 2 %)";
        assert!(told.starts_with(line), "{told}");
        assert!(told.contains("make budget REASON=\"...\" CASE=64B"), "{told}");
    }

    #[test]
    fn cost_within_the_tolerance_passes() {
        let measured = Cost { over: 1019.0, ..COST };
        assert!(report("64B", &judge(&COST, &measured)).is_ok());
    }

    #[test]
    fn cheaper_case_passes_with_a_note() {
        let measured = Cost { over: 979.0, ..COST };
        let told = report("64B", &judge(&COST, &measured)).unwrap();
        assert!(told.contains("NOTE: lower the budget"), "{told}");
        let told = report("64B", &judge(&COST, &COST)).unwrap();
        assert!(!told.contains("NOTE"), "{told}");
    }

    #[test]
    fn one_more_line_of_four_fails_and_of_almost_none_does_not() {
        let measured = Cost { lines: 5.0, ..COST };
        assert!(report("64B", &judge(&COST, &measured)).is_err());
        let (few, more) = (Cost { lines: 0.1, ..COST }, Cost { lines: 0.9, ..COST });
        assert!(report("64B", &judge(&few, &more)).is_ok());
        let many = Cost { lines: 2.0, ..COST };
        assert!(report("64B", &judge(&Cost { lines: 0.0, ..COST }, &many)).is_err());
    }

    #[test]
    fn every_byte_of_state_counts() {
        let budget = State::here("");
        let grown = State { pipe: budget.pipe + 1, ..budget.clone() };
        assert!(report("state", &judge_state(&budget, &budget)).is_ok());
        assert!(report("state", &judge_state(&budget, &grown)).is_err());
    }

    #[test]
    fn new_figures_take_the_reason_and_equal_ones_keep_theirs() {
        let mut budget = Budget::read(&Budget::path()).unwrap();
        let first = budget.cases[0].clone();
        budget.set(&first.name, first.cost, "nothing");
        assert_eq!(budget.cases[0], first);
        budget.set(&first.name, COST, "tested");
        assert_eq!((budget.cases[0].cost, budget.cases[0].reason.as_str()), (COST, "tested"));
    }

    #[test]
    fn the_file_has_every_guarded_case_with_a_reason_and_is_as_it_would_be_written() {
        let budget = Budget::read(&Budget::path()).unwrap();
        let names: Vec<&str> = budget.cases.iter().map(|entry| entry.name.as_str()).collect();
        let guarded: Vec<String> =
            crate::suite::guarded().iter().map(ToString::to_string).collect();
        assert_eq!(names, guarded);
        assert!(budget.cases.iter().all(|entry| !entry.reason.is_empty()));
        let text = std::fs::read_to_string(Budget::path()).unwrap();
        assert_eq!(text, format!("{HEADER}{}", toml::to_string(&budget).unwrap()));
    }
}
