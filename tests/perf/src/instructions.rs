// SPDX-License-Identifier: Apache-2.0
//! Instructions, counted by the processor, or else by callgrind.
//!
//! Many virtual machines have no counters. There a contender runs under callgrind, which counts
//! what the function [`MEASURED`] executes: exact, repeatable, and a few dozen times slower, so
//! with little held.
//!
//! Instructions say nothing of the cache, so callgrind can also simulate one: of fixed sizes, without
//! prefetching.

use std::path::Path;
use std::process::{Command, Stdio};

use perf_event::Builder;
use perf_event::events::Hardware;
use thiserror::Error as Derive;

/// The function in which callgrind counts instructions.
pub const MEASURED: &str = "counted_run";

/// The simulated caches: bytes, ways, bytes of a line. The last level is as large as the second
/// level of the machine in docs/performance.md.
const CACHES: [&str; 4] =
    ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64"];

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
    #[error("`valgrind` is missing: run scripts/setup.sh budget")]
    Missing,
    /// It ran and gave none.
    #[error("callgrind gave no count: {0}")]
    NoCount(String),
}

/// What one contender costs for a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    pub instructions: f64,
    /// Cache lines of data that come from beyond the simulated cache of 1 MiB; zero if it is not
    /// simulated.
    pub lines: f64,
}

/// Valgrind in a fixed environment: its size moves the stack.
#[must_use]
pub fn valgrind() -> Command {
    let mut command = Command::new("valgrind");
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command
}

/// Runs a contender of `program`, a `bench`, under callgrind, with or without simulated `caches`.
///
/// # Errors
/// If callgrind is missing or fails.
pub fn callgrind(
    program: &Path,
    case: &str,
    contender: &str,
    frames: u64,
    caches: bool,
) -> Result<Counted, CallgrindError> {
    let no_count = |text: String| CallgrindError::NoCount(text);
    let out = valgrind()
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect=*{MEASURED}*"))
        .args(CACHES.iter().filter(|_| caches))
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
        (Some([instructions, lines]), Some(frames)) => {
            Ok(Counted { instructions: instructions / frames, lines: lines / frames })
        }
        _ => Err(no_count(told.lines().last().unwrap_or("it said nothing").to_owned())),
    }
}

/// Instructions, and misses of data in the last level, in callgrind's own words.
fn collected(told: &str) -> Option<[f64; 2]> {
    let words = |key: &str| {
        let line = told.lines().find(|l| l.contains(key))?;
        Some(line.split_once(" : ")?.1.split_whitespace())
    };
    let counts: Vec<(&str, f64)> = words("Events")?
        .zip(words("Collected")?)
        .map(|(event, count)| Some((event, count.parse().ok()?)))
        .collect::<Option<_>>()?;
    let sum = |events: &[&str]| -> f64 {
        counts.iter().filter(|(event, _)| events.contains(event)).map(|(_, n)| n).sum()
    };
    Some([sum(&["Ir"]), sum(&["DLmr", "DLmw"])]).filter(|[instructions, _]| *instructions > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrinds_counts_are_read() {
        let told = "==7== \n==7== Events    : Ir\n==7== Collected : 123456\n";
        assert_eq!(collected(told), Some([123_456.0, 0.0]));
        let told = "==7== Events    : Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\n\
                    ==7== Collected : 10 9 8 7 6 5 4 3 2\n";
        assert_eq!(collected(told), Some([10.0, 5.0]));
        assert_eq!(collected("==7== Events    : Ir\n==7== Collected : 0"), None);
        assert_eq!(collected(""), None);
    }
}
