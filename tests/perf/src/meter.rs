// SPDX-License-Identifier: Apache-2.0
//! Instructions and cache lines of a packet in a case, beside the bare loop's. Any thread.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::instructions::{CallgrindError, callgrind};
use crate::sizes::Sizes;

/// Frames that are counted.
const FRAMES: u64 = 20_000;

/// What a packet costs in a case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Instructions of the bare loop.
    pub bare: f64,
    /// Instructions of ours.
    pub ours: f64,
    /// Their difference, which a budget is about.
    pub over: f64,
    /// Cache lines of ours from beyond 1 MiB.
    pub lines: f64,
}

/// What the bare loop's cost depends on: sizes, whether clients are drawn, directions.
type Traffic = (Sizes, bool, bool);

/// Measures with one program.
#[derive(Debug)]
pub struct Meter {
    program: PathBuf,
    lines: bool,
    bare: Mutex<BTreeMap<Traffic, Arc<Mutex<Option<f64>>>>>,
}

impl Meter {
    /// Of `program`, a `bench`; cache lines only if `lines`.
    #[must_use]
    pub fn new(program: PathBuf, lines: bool) -> Self {
        Self { program, lines, bare: Mutex::default() }
    }

    /// Measures a case.
    ///
    /// # Errors
    /// As [`callgrind`].
    pub fn cost(&self, case: &Case) -> Result<Cost, CallgrindError> {
        let bare = self.bare(case)?;
        let ours = callgrind(&self.program, &case.to_string(), "ours", FRAMES, self.lines)?;
        let rounded = |value: f64, parts: f64| (value * parts).round() / parts;
        Ok(Cost {
            bare: rounded(bare, 10.0),
            ours: rounded(ours.instructions, 10.0),
            over: rounded(ours.instructions - bare, 10.0),
            lines: rounded(ours.lines, 100.0),
        })
    }

    /// Instructions of the bare loop, measured once for all cases with the same traffic.
    fn bare(&self, case: &Case) -> Result<f64, CallgrindError> {
        let traffic = (case.sizes, case.clients > 1, case.both);
        let known = Arc::clone(locked(&self.bare).entry(traffic).or_default());
        let mut known = locked(&known);
        if let Some(bare) = *known {
            return Ok(bare);
        }
        let bare = callgrind(&self.program, &case.to_string(), "ceiling", FRAMES, false)?;
        Ok(*known.insert(bare.instructions))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
