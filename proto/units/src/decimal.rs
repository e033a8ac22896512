// SPDX-License-Identifier: Apache-2.0
//! A decimal number with a unit, parsed and printed without floats.

use super::{UnitError, shown};

/// Maximum number of digits after the point. More digits are not exact in any unit.
const FRACTION_DIGITS: usize = 18;

/// A kind of quantity, for error messages.
pub(super) struct Kind {
    pub of: &'static str,
    /// Name of the smallest unit: "bit/s".
    pub smallest: &'static str,
    /// The unit used in examples.
    pub unit: &'static str,
    pub example: &'static str,
    pub limit: fn() -> String,
}

/// The number at the start of a text, and the rest.
pub(super) struct Head<'a> {
    whole: &'a str,
    fraction: &'a str,
    /// The rest, without leading space.
    pub rest: &'a str,
}

impl Kind {
    /// Splits a text after its number.
    pub fn head<'a>(&self, whole_text: &str, text: &'a str) -> Result<Head<'a>, UnitError> {
        let text = text.trim_start();
        let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = text.split_at(digits(text));
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(after) => {
                let (fraction, rest) = after.split_at(digits(after));
                (Some(fraction), rest)
            }
            None => (None, rest),
        };
        if whole.is_empty() || fraction == Some("") {
            if text.starts_with(['-', '−']) {
                return Err(UnitError::Negative { text: shown(whole_text) });
            }
            let example = self.example.to_owned();
            return Err(UnitError::NoNumber { text: shown(whole_text), example });
        }
        let fraction = fraction.unwrap_or("").trim_end_matches('0');
        Ok(Head { whole, fraction, rest: rest.trim_start() })
    }

    /// Number times factor of the unit.
    pub fn value(&self, text: &str, head: &Head<'_>, factor: u64) -> Result<u64, UnitError> {
        let too_large = || UnitError::TooLarge { text: shown(text), limit: (self.limit)() };
        let inexact = || UnitError::Inexact { text: shown(text), of: self.smallest };
        let whole: u64 = head.whole.parse().map_err(|_| too_large())?;
        let whole = whole.checked_mul(factor).ok_or_else(too_large)?;
        if head.fraction.is_empty() {
            return Ok(whole);
        }
        if head.fraction.len() > FRACTION_DIGITS {
            return Err(inexact());
        }
        // At most 10^18 × 2^64: no overflow in 128 bits.
        let digits: u64 = head.fraction.parse().map_err(|_| inexact())?;
        let product = u128::from(digits) * u128::from(factor);
        let divisor = 10_u128.pow(head.fraction.len() as u32);
        if product % divisor != 0 {
            return Err(inexact());
        }
        let part = u64::try_from(product / divisor).map_err(|_| too_large())?;
        whole.checked_add(part).ok_or_else(too_large)
    }

    /// The error for a number without a unit.
    pub fn no_unit(&self, text: &str) -> UnitError {
        let text = shown(text);
        let example = format!("{text} {}", self.unit);
        UnitError::NoUnit { text, example }
    }

    /// The error for a unit that is not in `units`.
    pub fn unknown(
        &self,
        text: &str,
        unit: &str,
        hint: Option<String>,
        units: &[&'static str],
    ) -> UnitError {
        let hint = hint.unwrap_or_else(|| match super::nearest(unit, units.iter().copied()) {
            Some(near) => format!("the nearest is {near:?}"),
            None => format!("write one of {}", units.join(", ")),
        });
        UnitError::UnknownUnit { text: shown(text), unit: shown(unit), of: self.of, hint }
    }
}

/// Prints `value` / `factor` in decimal, without trailing zeros. `factor` is a power of ten.
pub(super) fn fixed(value: u64, factor: u64) -> String {
    let (whole, part) = (value / factor, value % factor);
    if part == 0 {
        return whole.to_string();
    }
    let width = factor.ilog10() as usize;
    let digits = format!("{part:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}
