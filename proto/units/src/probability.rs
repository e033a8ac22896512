// SPDX-License-Identifier: Apache-2.0
//! Probabilities, 0 to 1, written in percent.
//!
//! The decimal point is moved in the text, not by a division. So "10 %" is the double nearest to
//! 0.1, and every printed double is parsed to the same value.

use super::{UnitError, shown};

const EXAMPLE: &str = "10 %";

/// Parses a probability in percent: `10 %`, `0.02%`, `1e-6 %`. Does not check the range.
///
/// # Errors
/// If the text is not a decimal number followed by `%`.
pub fn parse_probability(text: &str) -> Result<f64, UnitError> {
    let no_number = || UnitError::NoNumber { text: shown(text), example: EXAMPLE.into() };
    let trimmed = text.trim();
    let Some(number) = trimmed.strip_suffix('%').map(str::trim_end) else {
        return Err(if trimmed.parse::<f64>().is_ok() {
            UnitError::NoUnit { text: shown(text), example: format!("{} %", shown(text)) }
        } else {
            no_number()
        });
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| no_number())?),
        None => (number, 0),
    };
    if mantissa.starts_with('-') {
        return Err(UnitError::Negative { text: shown(text) });
    }
    let decimal = mantissa.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !decimal || !mantissa.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(no_number());
    }
    let shifted = format!("{mantissa}e{}", exponent.saturating_sub(2));
    shifted.parse().map_err(|_| no_number())
}

/// Prints a probability so that [`parse_probability`] returns the same value. It must be finite and
/// not negative.
pub fn format_probability(probability: f64) -> String {
    if !probability.is_finite() || probability == 0.0 {
        return format!("{} %", probability.abs());
    }
    // The shortest digits that identify this double: d.ddde±x.
    let scientific = format!("{probability:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent = exponent.parse::<i32>().unwrap_or(0) + 2;
    if !(-6..=9).contains(&exponent) || probability < 0.0 {
        return format!("{mantissa}e{exponent} %");
    }
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    let point = exponent + 1;
    if point <= 0 {
        let zeros = "0".repeat(point.unsigned_abs() as usize);
        return format!("0.{zeros}{digits} %");
    }
    let point = point as usize;
    if digits.len() <= point {
        format!("{digits}{} %", "0".repeat(point - digits.len()))
    } else {
        format!("{}.{} %", &digits[..point], &digits[point..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_parsed_and_printed_exactly() {
        for (text, value) in [
            ("10 %", 0.1),
            ("0 %", 0.0),
            ("100 %", 1.0),
            ("0.02 %", 0.0002),
            ("33.3 %", 0.333),
            ("1e-7 %", 1e-9),
            ("0.000001 %", 1e-8),
        ] {
            assert_eq!(parse_probability(text), Ok(value));
            assert_eq!(format_probability(value), text);
        }
        assert_eq!(parse_probability("5%"), Ok(0.05));
    }

    #[test]
    fn probability_without_percent_is_refused() {
        let message = |text: &str| parse_probability(text).unwrap_err().to_string();
        assert_eq!(message("0.1"), "0.1 has no unit: write a unit, such as \"0.1 %\"");
        assert!(message("-1 %").contains("negative"));
        for text in ["NaN %", "inf %", "%", "1.2.3 %", "1e99999999999 %", "e5 %", "ten %"] {
            assert!(message(text).contains("10 %"), "{text}: {}", message(text));
        }
    }
}
