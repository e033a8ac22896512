// SPDX-License-Identifier: Apache-2.0
//! Precision of measured times.

/// A time in ns to four significant digits: more is never known.
#[must_use]
pub fn four_digits(ns: u64) -> u64 {
    let unit = 10_u64.pow(ns.max(1).ilog10().saturating_sub(3));
    ns.saturating_add(unit / 2) / unit * unit
}
