// SPDX-License-Identifier: Apache-2.0
//! Quantities as people write them: a number and its unit.
//!
//! Every parser is exact: decimal digits times the unit's integer factor, in
//! integers, or an error. That is why the usual crates do not serve here:
//! bytesize reads fractions through floats, saturates, and takes "Mb" for
//! megabytes; humantime reads "1 2 s" as 12 s and panics near the largest
//! durations. Every formatter writes what its parser reads back to the identical
//! value.

mod decimal;
mod duration;
mod nearest;
mod probability;
mod quantity;
mod rate;
mod size;

pub use duration::{format_duration, parse_duration};
pub use nearest::nearest;
pub use probability::{format_probability, parse_probability};
pub use quantity::{Amount, Quantity};
pub use rate::{Rate, parse_rate};
pub use size::{format_overhead, format_size, parse_overhead, parse_size};

/// Why a text is not the quantity that it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// No number to begin with.
    #[error("{text:?} does not begin with a number: write it as {example:?}")]
    NoNumber {
        text: String,
        /// A text of the wanted kind.
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
    /// Below zero.
    #[error("{text:?} is negative: write zero or more")]
    Negative { text: String },
    /// More than can be represented.
    #[error("{text:?} is more than the largest representable {limit}: write less")]
    TooLarge { text: String, limit: String },
    /// Finer than the smallest unit.
    #[error("{text:?} is not a whole number of {of}: write it with fewer decimals")]
    Inexact { text: String, of: &'static str },
    /// A rate of zero.
    #[error("{text:?} is no rate: say \"down\" for a link that is down, or \"unlimited\"")]
    ZeroRate { text: String },
}

/// At most this much of a text goes into a message.
const SHOWN: usize = 60;

/// A text, cut for a message.
#[must_use]
pub fn shown(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
