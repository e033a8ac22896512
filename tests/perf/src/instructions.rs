// SPDX-License-Identifier: Apache-2.0
//! Instructions, counted by the processor, or else by callgrind.
//!
//! Many virtual machines have no counters. There a contender runs under callgrind, which counts
//! what the function [`MEASURED`] executes: exact, repeatable, and a few dozen times slower, so
//! with little held. Instructions say nothing of the cache.

use std::process::{Command, Stdio};

use perf_event::Builder;
use perf_event::events::Hardware;
use thiserror::Error as Derive;

/// The function in which callgrind counts instructions.
pub const MEASURED: &str = "counted_run";

/// The processor's counter of instructions in user space, of this thread.
#[derive(Debug)]
pub struct Counter(perf_event::Counter);

impl Counter {
    /// A counter that runs; `None` if the machine has none for us.
    #[must_use]
    pub fn open() -> Option<Self> {
        let mut counter = Builder::new(Hardware::INSTRUCTIONS).build().ok()?;
        counter.enable().ok()?;
        Some(Self(counter))
    }

    pub fn read(&mut self) -> Option<u64> {
        self.0.read().ok()
    }
}

/// Why callgrind gave no figure.
#[derive(Debug, Derive)]
pub enum CallgrindError {
    #[error("`valgrind` is missing: run scripts/setup.sh bench")]
    Missing,
    /// It ran and gave none.
    #[error("callgrind gave no count: {0}")]
    NoCount(String),
}

/// Instructions a packet of one contender, by callgrind.
///
/// # Errors
/// If it is missing or fails.
pub fn callgrind(case: &str, contender: &str, frames: u64) -> Result<f64, CallgrindError> {
    let no_count = |text: String| CallgrindError::NoCount(text);
    let program = std::env::current_exe().map_err(|e| no_count(e.to_string()))?;
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect=*{MEASURED}*"))
        .arg(program)
        .args(["--no-huge", "--count", contender, "--case", case])
        .args(["--frames", &frames.to_string()])
        .stdin(Stdio::null())
        .output();
    let out = match out {
        Ok(out) => out,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(CallgrindError::Missing),
        Err(e) => return Err(no_count(e.to_string())),
    };
    let (told, printed) =
        (String::from_utf8_lossy(&out.stderr), String::from_utf8_lossy(&out.stdout));
    let frames = printed.trim().parse::<f64>().ok().filter(|n| *n > 0.0);
    match (collected(&told), frames) {
        (Some(instructions), Some(frames)) => Ok(instructions / frames),
        _ => Err(no_count(told.lines().last().unwrap_or("it said nothing").to_owned())),
    }
}

/// The count in callgrind's own words.
fn collected(told: &str) -> Option<f64> {
    let line = told.lines().find(|l| l.contains("Collected"))?;
    line.split(':').nth(1)?.trim().parse().ok().filter(|n| *n > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrinds_count_is_read() {
        let told = "==7== \n==7== Events    : Ir\n==7== Collected : 123456\n";
        assert_eq!(collected(told), Some(123_456.0));
        assert_eq!(collected("==7== Collected : 0"), None);
        assert_eq!(collected(""), None);
    }
}
