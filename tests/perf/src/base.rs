// SPDX-License-Identifier: Apache-2.0
//! This commit against another: both programs in turns, in one run.
//!
//! The base's files are taken out of git into the target folder, and its own `bench` is built
//! there and measures the same cases. The comparison is of the cost over the ceiling that each
//! has measured by itself, so that the state of the machine is in both. A base without
//! `tests/perf` cannot be compared; this is reported.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;
use serde_json::Value;
use thiserror::Error as Derive;

use crate::case::Case;
use crate::machine::git;
use crate::spread::Spread;

/// Arguments of both programs besides the case: short runs, repeated often.
const ARGUMENTS: [&str; 5] = ["--only", "cost", "--no-goals", "--output", "json"];

/// One case in both.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    pub case: String,
    /// The base's cost over the ceiling, ns a packet.
    pub base_ns: Spread,
    pub here_ns: Spread,
}

#[derive(Clone, Debug, Serialize)]
pub struct Against {
    pub base: String,
    pub cases: Vec<Compared>,
}

/// Why there is no comparison.
#[derive(Debug, Derive)]
pub enum BaseError {
    /// This is no checkout, or one without a commit before.
    #[error("there is no commit to compare with here: run in a git checkout, or name one")]
    None,
    /// There is no such commit.
    #[error("git knows no commit `{0}`: name one that is there")]
    Unknown(String),
    /// It has no benchmark.
    #[error("commit {0} has no tests/perf, so there is nothing to compare with")]
    NoBench(String),
    #[error("`{program}` failed: {reason}")]
    Failed { program: String, reason: String },
}

/// The commit to compare with: the one named; else where this branch left `origin/main`; else
/// the last commit, or the one before if nothing differs from it.
#[must_use]
pub fn revision(named: Option<&str>) -> String {
    if let Some(named) = named {
        return named.to_owned();
    }
    let head = git(&["rev-parse", "HEAD"]);
    let left = git(&["merge-base", "origin/main", "HEAD"]);
    if !left.is_empty() && left != head {
        return left;
    }
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    if changed { head } else { git(&["rev-parse", "HEAD~1"]) }
}

/// Compares `cases`, each `rounds` times in turns.
///
/// # Errors
/// If the base cannot be built or run.
pub fn compare(
    revision: &str,
    cases: &[Case],
    rounds: usize,
    also: &[&str],
    mut say: impl FnMut(&str),
) -> Result<Against, BaseError> {
    let (commit, base) = program(revision, &mut say)?;
    // This very program, even if its file has been replaced meanwhile.
    let here = PathBuf::from("/proc/self/exe");
    let mut compared = Vec::new();
    for case in cases {
        let name = case.to_string();
        say(&format!("{name} against {commit}"));
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            theirs.push(run(&base, &name, also)?);
            ours.push(run(&here, &name, also)?);
        }
        let (base_ns, here_ns) = (Spread::of(&theirs), Spread::of(&ours));
        compared.push(Compared { case: name, base_ns, here_ns });
    }
    Ok(Against { base: commit, cases: compared })
}

/// The short name of a commit, and its `bench`, which is built unless it was before.
///
/// # Errors
/// If there is no such commit, or it cannot be built.
pub fn program(revision: &str, say: &mut impl FnMut(&str)) -> Result<(String, PathBuf), BaseError> {
    if revision.is_empty() {
        return Err(BaseError::None);
    }
    let commit = git(&["rev-parse", "--short", &format!("{revision}^{{commit}}")]);
    if commit.is_empty() {
        return Err(BaseError::Unknown(revision.to_owned()));
    }
    if git(&["cat-file", "-t", &format!("{commit}:tests/perf/Cargo.toml")]) != "blob" {
        return Err(BaseError::NoBench(commit));
    }
    let program = build(&commit, say)?;
    Ok((commit, program))
}

fn build(commit: &str, say: &mut impl FnMut(&str)) -> Result<PathBuf, BaseError> {
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"]));
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| top.join("target"), Into::into);
    let (source, out) = (target.join("bench").join(commit), target.join("bench/build"));
    let program = target.join("bench").join(format!("bench-{commit}"));
    if program.is_file() {
        return Ok(program);
    }
    say(&format!("building {commit}"));
    fs::create_dir_all(&source).map_err(|e| failed("mkdir", e))?;
    let archive = Command::new("git")
        .current_dir(&top)
        .args(["archive", commit])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed("git archive", e))?;
    let mut tar = Command::new("tar");
    tar.arg("-x").arg("-C").arg(&source);
    if let Some(files) = archive.stdout {
        tar.stdin(files);
    }
    finish("tar", &mut tar)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&source).env("CARGO_TARGET_DIR", &out);
    finish(
        "cargo",
        cargo.args(["build", "--release", "--locked", "-p", "perf", "--bin", "bench"]),
    )?;
    let _ = fs::remove_dir_all(&source);
    fs::copy(out.join("release/bench"), &program).map_err(|e| failed("cp", e))?;
    Ok(program)
}

/// The median cost over the ceiling that a program measures.
fn run(program: &Path, case: &str, also: &[&str]) -> Result<f64, BaseError> {
    let mut command = Command::new(program);
    let printed = finish("bench", command.args(ARGUMENTS).args(["--case", case]).args(also))?;
    cost(&printed).ok_or_else(|| failed("bench", format!("no cost of `{case}` in its results")))
}

fn cost(json: &str) -> Option<f64> {
    let results: Value = serde_json::from_str(json).ok()?;
    results["costs"][0]["over_ns"]["median"].as_f64()
}

fn finish(program: &str, command: &mut Command) -> Result<String, BaseError> {
    let out = command.output().map_err(|e| failed(program, e))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let told = String::from_utf8_lossy(&out.stderr);
    Err(failed(program, told.lines().last().unwrap_or("it said nothing")))
}

fn failed(program: &str, reason: impl ToString) -> BaseError {
    BaseError::Failed { program: program.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_found_in_the_results() {
        let json = r#"{"costs":[{"case":"x","over_ns":{"median":41.5,"min":40,"max":50}}]}"#;
        assert_eq!(cost(json), Some(41.5));
        assert_eq!(cost("{}"), None);
        assert_eq!(cost("not JSON"), None);
    }

    #[test]
    fn unknown_commit_is_named() {
        let error = compare("no-such-commit", &[], 1, &[], |_| {}).unwrap_err();
        assert!(error.to_string().contains("`no-such-commit`"), "{error}");
    }

    #[test]
    fn named_base_is_used() {
        assert_eq!(revision(Some("v1")), "v1");
    }
}
