// SPDX-License-Identifier: Apache-2.0
//! The guard on the cost of a packet: each case of tests/perf/budget.toml under callgrind, and the
//! memory of clients and links.
//!
//! Counts hold for one compiler, so with other tools every test is void. Without valgrind they are
//! skipped; in CI that is a failure.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use perf::budget::{Budget, State, judge, judge_state, report};
use perf::meter::Meter;
use perf::suite;
use perf::tools::Tools;

/// Why nothing can be compared.
#[derive(Clone)]
enum Lack {
    Skipped(String),
    Void(String),
}

fn lack(budget: &Budget) -> Option<Lack> {
    if cfg!(debug_assertions) {
        return Some(Lack::Skipped("only for a release build: make budget".to_owned()));
    }
    let tools = match Tools::here() {
        Ok(tools) => tools,
        Err(error) => return Some(Lack::Skipped(error.to_string())),
    };
    let differences = tools.differences(&budget.tools);
    (!differences.is_empty()).then(|| {
        Lack::Void(format!(
            "the budget holds for other tools: {}. Compare with `make budget BASE=REV`, then record \
             new figures with `make budget REASON=\"...\"`",
            differences.join("; ")
        ))
    })
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let budget = match Budget::read(&Budget::path()) {
        Ok(budget) => budget,
        Err(error) => {
            eprintln!("budget: {error}");
            return ExitCode::FAILURE;
        }
    };
    let lack = if arguments.list { None } else { lack(&budget) };
    let remarks = Arc::new(Mutex::new(Vec::new()));
    let trial = |name: String, test: Box<dyn FnOnce() -> Result<String, String> + Send>| {
        let (lack, remarks, named) = (lack.clone(), Arc::clone(&remarks), name.clone());
        Trial::ignorable_test(name, move || {
            let remark = |line| remarks.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            match lack {
                Some(Lack::Skipped(reason)) if std::env::var("CI").is_ok_and(|v| v == "true") => {
                    Err(Failed::from(reason))
                }
                Some(Lack::Skipped(reason)) => {
                    remark(format!("SKIPPED: budget::{named}: {reason}"));
                    Ok(Completion::ignored_with(reason))
                }
                Some(Lack::Void(reason)) => {
                    remark(format!("VOID: budget::{named}: {reason}"));
                    Ok(Completion::ignored_with(format!("VOID: {reason}")))
                }
                None => {
                    remark(test()?);
                    Ok(Completion::Completed)
                }
            }
        })
    };
    let meter = Arc::new(Meter::new(env!("CARGO_BIN_EXE_bench").into(), true));
    let mut trials = Vec::new();
    for case in suite::guarded() {
        let (name, meter) = (case.to_string(), Arc::clone(&meter));
        let allowed = budget.case(&name).map(|entry| entry.cost);
        let named = name.clone();
        let test = move || {
            let allowed = allowed.ok_or_else(|| {
                format!("{named} has no budget: make budget REASON=\"...\" CASE={named}")
            })?;
            let cost = meter.cost(&case).map_err(|error| error.to_string())?;
            report(&named, &judge(&allowed, &cost))
        };
        trials.push(trial(name, Box::new(test)));
    }
    let state = budget.state.clone();
    let judged = move || report("state", &judge_state(&state, &State::here("")));
    trials.push(trial("state".to_owned(), Box::new(judged)));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let mut remarks = remarks.lock().unwrap_or_else(PoisonError::into_inner);
    remarks.sort();
    remarks.iter().for_each(|line| eprintln!("{line}"));
    conclusion.exit_code()
}
