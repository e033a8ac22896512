// SPDX-License-Identifier: Apache-2.0
//! What it costs to copy a frame, and to keep its buffer, by size.
//!
//! Two workers have the same load, delay and profile. One copies each frame, the other keeps each
//! buffer. They and the bare loop run in turns on the measuring thread. Each worker holds far more
//! than fits in the caches.

use emu::units::Nanos;
use serde::Serialize;

use crate::case::{Case, Profile};
use crate::contender::{Ceiling, Ours};
use crate::cost::{self, Effort, check_accounts, check_held, warm_up};
use crate::cpu;
use crate::error::Error;
use crate::sizes::Sizes;
use crate::spread::Spread;
use crate::stand::Bench;

/// Sizes of frames, in bytes with FCS.
pub const SIZES: [u32; 5] = [64, 512, 1_024, 1_518, 9_000];
const DELAY: Nanos = Nanos::from_millis(100);
/// Copy-breaks that keep every buffer and none.
const ALL: u32 = 0;
const NONE: u32 = u32::MAX;

/// Results for frames of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Keeping {
    /// Bytes with FCS.
    pub size: u32,
    /// Copying, ns of processor time a packet over the bare loop.
    pub copied_ns: Spread,
    /// Keeping the buffer, likewise.
    pub kept_ns: Spread,
    /// The second in the first, by repetition.
    pub ratio: Spread,
    /// Bytes of memory for a byte of frame held, copied and kept.
    pub bytes_per_byte: [f64; 2],
    /// Deviations from the conditions of the case; empty if there are none.
    pub faults: Vec<String>,
}

fn case(size: u32) -> Case {
    let case = Case::new(Sizes::Fixed(size), Profile::Full, 0, 1);
    Case { delay: DELAY, ..case }
}

/// The cases, with the copy-break that needs most buffers.
#[must_use]
pub fn cases() -> Vec<(Case, u32)> {
    SIZES.into_iter().map(|size| (case(size), ALL)).collect()
}

/// Measures all sizes.
///
/// # Errors
/// If ports, pool or engine cannot be made.
pub fn measure(bench: &Bench, effort: Effort) -> Result<Vec<Keeping>, Error> {
    SIZES.into_iter().map(|size| of_size(bench, size, effort)).collect()
}

fn of_size(bench: &Bench, size: u32, effort: Effort) -> Result<Keeping, Error> {
    let case = case(size);
    let open = |name: &str, copy_break| -> Result<Ours, Error> {
        let limits = bench.limits_above(&case, copy_break);
        let mut ours = Ours::new(bench.open(name, &case, limits.buffers)?, &case, limits)?;
        warm_up(&mut ours, &case);
        Ok(ours)
    };
    let mut bare = Ceiling::new(bench.open("bare", &case, 0)?);
    let (mut copies, mut keeps) = (open("copies", NONE)?, open("keeps", ALL)?);
    bare.run(effort.frames / 10);
    let mut bytes_per_byte = [0.0; 2];
    let mut faults = Vec::new();
    for (ours, bytes) in [&mut copies, &mut keeps].into_iter().zip(&mut bytes_per_byte) {
        let filled = &ours.report().snapshot;
        let held = filled.total().held.bytes.max(1) as f64;
        *bytes = cost::bytes(filled, &case) / held;
        faults.extend(check_held(&case, filled));
    }
    let (mut copied, mut kept, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.repetitions {
        let one = |run: &mut dyn FnMut(u64) -> u64| {
            let start = cpu::thread_ns();
            let frames = run(effort.frames) as f64;
            (cpu::thread_ns() - start) as f64 / frames
        };
        let floor = one(&mut |n| bare.run(n));
        let (a, b) = (one(&mut |n| copies.run(n)) - floor, one(&mut |n| keeps.run(n)) - floor);
        copied.push(a);
        kept.push(b);
        ratio.push(b / a);
    }
    for ours in [&mut copies, &mut keeps] {
        let snapshot = &ours.report().snapshot;
        faults.extend(check_accounts(&snapshot.total(), snapshot));
    }
    let [copied_ns, kept_ns, ratio] = [copied, kept, ratio].map(|of| Spread::of(&of));
    Ok(Keeping { size, copied_ns, kept_ns, ratio, bytes_per_byte, faults })
}
