// SPDX-License-Identifier: Apache-2.0
//! The quantity that a numeric field of a message holds: how its values are parsed and printed.

use crate::{
    Rate, UnitError, format_duration, format_overhead, format_probability, format_size,
    parse_duration, parse_overhead, parse_probability, parse_rate, parse_size,
};

/// A quantity with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bits per second.
    Rate,
    /// Bytes.
    Size,
    /// Bytes per frame that are added or, if negative, removed.
    Overhead,
    /// Nanoseconds.
    Duration,
    /// 0 to 1.
    Probability,
}

/// A value of a [`Quantity`], in its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A rate, a size or a duration.
    Whole(u64),
    Signed(i32),
    Real(f64),
}

impl Quantity {
    /// The quantity of an integer field, from the unit at the end of its name: `_bps`, `_bytes` or
    /// `_ns`. A signed size is an overhead. `None` for a plain count.
    #[must_use]
    pub fn of_field(name: &str, is_signed: bool) -> Option<Self> {
        let (_, unit) = name.rsplit_once('_')?;
        match unit {
            "bps" => Some(Self::Rate),
            "bytes" if is_signed => Some(Self::Overhead),
            "bytes" => Some(Self::Size),
            "ns" => Some(Self::Duration),
            _ => None,
        }
    }

    /// Parses `text`. `None` for the rate `unlimited`, which has no number.
    ///
    /// # Errors
    /// [`UnitError`] if the text is not exactly a value of this quantity.
    pub fn parse(self, text: &str) -> Result<Option<Amount>, UnitError> {
        Ok(match self {
            Self::Rate => parse_rate(text)?.bps().map(Amount::Whole),
            Self::Size => Some(Amount::Whole(parse_size(text)?)),
            Self::Overhead => Some(Amount::Signed(parse_overhead(text)?)),
            Self::Duration => Some(Amount::Whole(parse_duration(text)?)),
            Self::Probability => Some(Amount::Real(parse_probability(text)?)),
        })
    }

    /// Prints a value with its unit, so that [`parse`](Self::parse) returns the same value. An
    /// amount of another type counts as zero.
    #[must_use]
    pub fn format(self, amount: Amount) -> String {
        let whole = if let Amount::Whole(whole) = amount { whole } else { 0 };
        match self {
            Self::Rate => Rate::from_bps(Some(whole)).to_string(),
            Self::Size => format_size(whole),
            Self::Duration => format_duration(whole),
            Self::Overhead => {
                format_overhead(if let Amount::Signed(signed) = amount { signed } else { 0 })
            }
            Self::Probability => {
                format_probability(if let Amount::Real(real) = amount { real } else { 0.0 })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_follows_from_the_unit_in_the_field_name() {
        assert_eq!(Quantity::of_field("rate_bps", false), Some(Quantity::Rate));
        assert_eq!(Quantity::of_field("limit_bytes", false), Some(Quantity::Size));
        assert_eq!(Quantity::of_field("overhead_bytes", true), Some(Quantity::Overhead));
        assert_eq!(Quantity::of_field("base_ns", false), Some(Quantity::Duration));
        assert_eq!(Quantity::of_field("limit_packets", false), None);
        assert_eq!(Quantity::of_field("bps", false), None);
    }

    #[test]
    fn printed_amount_parses_to_the_same_amount() {
        for (quantity, amount) in [
            (Quantity::Rate, Amount::Whole(144_000_000)),
            (Quantity::Size, Amount::Whole(36_000_000)),
            (Quantity::Overhead, Amount::Signed(-14)),
            (Quantity::Duration, Amount::Whole(275_000_001)),
            (Quantity::Probability, Amount::Real(0.001)),
        ] {
            assert_eq!(quantity.parse(&quantity.format(amount)), Ok(Some(amount)));
        }
        assert_eq!(Quantity::Rate.parse("unlimited"), Ok(None));
    }
}
