// SPDX-License-Identifier: Apache-2.0
//! Quantities as people write them: a number and its unit.
//!
//! Every parser is exact: decimal digits times the integer factor of the unit, in integers, or an
//! error. The usual crates are not exact. bytesize parses fractions as floats, saturates, and reads
//! "Mb" as megabytes. humantime parses "1 2 s" as 12 s and panics near the largest durations. Each
//! formatter prints a text that its parser reads back to the same value.

mod decimal;
mod duration;
mod nearest;
mod probability;
mod quantity;
mod rate;
mod size;

use std::fmt;

pub use duration::{format_duration, parse_duration};
pub use nearest::nearest;
pub use probability::{format_probability, parse_probability};
pub use quantity::{Amount, Quantity};
pub use rate::{Rate, parse_rate};
pub use size::{format_overhead, format_size, parse_overhead, parse_size};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text does not start with a number.
    #[error("{text:?} does not begin with a number: write it as {example:?}")]
    NoNumber {
        text: String,
        /// A valid text of the expected kind.
        example: String,
    },
    #[error("{text} has no unit: write a unit, such as {example:?}")]
    NoUnit {
        text: String,
        /// The number with a unit.
        example: String,
    },
    /// A unit that does not exist.
    #[error("{unit:?} in {text:?} is not a unit of {of}: {hint}")]
    UnknownUnit { text: String, unit: String, of: &'static str, hint: String },
    #[error("{text:?} is negative: write zero or more")]
    Negative { text: String },
    /// Larger than the type can represent.
    #[error("{text:?} is more than the largest representable {limit}: write less")]
    TooLarge { text: String, limit: String },
    /// Finer than the smallest unit.
    #[error("{text:?} is not a whole number of {of}: write it with fewer decimals")]
    Inexact { text: String, of: &'static str },
    #[error("{text:?} is not a rate: write \"down\" for a link that is down, or \"unlimited\"")]
    ZeroRate { text: String },
}

/// A count with its noun: `1 worker`, `2 workers`.
#[must_use]
pub fn counted(count: impl fmt::Display, one: &str, many: &str) -> String {
    let count = count.to_string();
    let noun = if count == "1" { one } else { many };
    format!("{count} {noun}")
}

/// Maximum number of characters of a text in a message.
const SHOWN: usize = 60;

/// Truncates a text for a message.
#[must_use]
pub fn shown(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_singular() {
        let workers = |n: usize| counted(n, "worker", "workers");
        assert_eq!([0, 1, 2].map(workers), ["0 workers", "1 worker", "2 workers"]);
    }
}
