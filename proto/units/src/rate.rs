// SPDX-License-Identifier: Apache-2.0
//! Rates, in bit/s.

use super::decimal::{Kind, fixed};
use super::{UnitError, shown};
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    Unlimited,
    Down,
    Limited(NonZeroU64),
}

impl Rate {
    /// From the protobuf field: absent is unlimited, zero is down.
    pub fn from_bps(bps: Option<u64>) -> Self {
        match bps.map(NonZeroU64::new) {
            None => Self::Unlimited,
            Some(None) => Self::Down,
            Some(Some(bps)) => Self::Limited(bps),
        }
    }

    /// The protobuf field: absent is unlimited, zero is down.
    pub fn bps(self) -> Option<u64> {
        match self {
            Self::Unlimited => None,
            Self::Down => Some(0),
            Self::Limited(bps) => Some(bps.get()),
        }
    }
}

const KIND: Kind = Kind {
    of: "rate",
    smallest: "bit/s",
    unit: "Mbit/s",
    example: "144 Mbit/s",
    limit: || Rate::from_bps(Some(u64::MAX)).to_string(),
};

const UNITS: [(&str, u64); 4] =
    [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)];

const SPELLINGS: [&str; 12] = [
    "bit/s", "b/s", "bps", "kbit/s", "kb/s", "kbps", "Mbit/s", "Mb/s", "Mbps", "Gbit/s", "Gb/s",
    "Gbps",
];

/// Parses a rate: `144 Mbit/s`, `72Mb/s`, `9.6kbps`, `unlimited` or `down`.
///
/// # Errors
/// If the text is not a rate, or not a whole number of bit/s.
pub fn parse_rate(text: &str) -> Result<Rate, UnitError> {
    match text.trim() {
        "unlimited" => return Ok(Rate::Unlimited),
        "down" => return Ok(Rate::Down),
        _ => {}
    }
    let head = KIND.head(text, text)?;
    let unit = head.rest.trim_end();
    if unit.is_empty() {
        return Err(KIND.no_unit(text));
    }
    let bps = KIND.value(text, &head, factor(text, unit)?)?;
    NonZeroU64::new(bps).map(Rate::Limited).ok_or_else(|| UnitError::ZeroRate { text: shown(text) })
}

fn factor(text: &str, unit: &str) -> Result<u64, UnitError> {
    let (prefix, factor) = match unit.as_bytes()[0] {
        b'k' | b'K' => (1, 1_000),
        b'M' => (1, 1_000_000),
        b'G' => (1, 1_000_000_000),
        _ => (0, 1),
    };
    match &unit[prefix..] {
        "bit/s" | "b/s" | "bps" => Ok(factor),
        "B/s" | "Bps" => {
            let hint = "that is bytes; rates are in bits, so write 8 times as many bit/s";
            Err(KIND.unknown(text, unit, Some(hint.into()), &[]))
        }
        _ => Err(KIND.unknown(text, unit, None, &SPELLINGS)),
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_rate(text)
    }
}

impl fmt::Display for Rate {
    /// Prints a rate so that [`parse_rate`] returns the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bps = match self {
            Self::Unlimited => return f.write_str("unlimited"),
            Self::Down => return f.write_str("down"),
            Self::Limited(bps) => bps.get(),
        };
        let (unit, factor) = UNITS.into_iter().find(|u| bps >= u.1).unwrap_or(("bit/s", 1));
        write!(f, "{} {unit}", fixed(bps, factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bps(text: &str) -> u64 {
        parse_rate(text).unwrap().bps().unwrap()
    }

    fn message(text: &str) -> String {
        parse_rate(text).unwrap_err().to_string()
    }

    #[test]
    fn all_rate_spellings_are_parsed() {
        for text in ["72 Mbit/s", "72Mbit/s", " 72  Mb/s ", "72Mbps", "72000 kbit/s", "0.072Gb/s"] {
            assert_eq!(bps(text), 72_000_000, "{text}");
        }
        assert_eq!(bps("9600 bit/s"), 9_600);
        assert_eq!(parse_rate("unlimited"), Ok(Rate::Unlimited));
        assert_eq!(parse_rate("down"), Ok(Rate::Down));
    }

    #[test]
    fn errors_name_the_value_and_the_remedy() {
        assert_eq!(message("144"), "144 has no unit: write a unit, such as \"144 Mbit/s\"");
        assert!(message("0 Mbit/s").contains("write \"down\""));
        assert!(message("-3 Mbit/s").contains("negative"));
        assert!(message("36 MB/s").contains("bytes"));
        assert!(message("36 Mbit").contains("the nearest is \"Mbit/s\""));
        assert!(message("99999999999999999999 Gbit/s").contains("18446744073.709551615 Gbit/s"));
        assert!(message("18446744074 Gbit/s").contains("more than the largest"));
        assert!(message("0.5 bit/s").contains("whole number of bit/s"));
        assert!(message("fast").contains("144 Mbit/s"));
        assert!(message("").contains("144 Mbit/s"));
        assert!(message("1. Mbit/s").contains("144 Mbit/s"));
        assert!(message("NaN Mbit/s").contains("number"));
        assert!(message("1e9 bit/s").contains("not a unit"));
    }

    #[test]
    fn rates_print_in_the_largest_unit() {
        assert_eq!(Rate::from_bps(Some(144_000_000)).to_string(), "144 Mbit/s");
        assert_eq!(Rate::from_bps(Some(1_500)).to_string(), "1.5 kbit/s");
        assert_eq!(Rate::from_bps(Some(7)).to_string(), "7 bit/s");
    }
}
