// SPDX-License-Identifier: Apache-2.0
//! Durations, in nanoseconds.

use super::UnitError;
use super::decimal::{Kind, fixed};

const KIND: Kind = Kind {
    of: "time",
    smallest: "nanoseconds",
    unit: "ms",
    example: "275 ms",
    limit: || format_duration(u64::MAX),
};

const S: u64 = 1_000_000_000;
const UNITS: [&str; 9] = ["ns", "us", "µs", "ms", "s", "min", "h", "d", "w"];

fn factor(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // Both the micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" | "second" | "seconds" => S,
        "min" | "minute" | "minutes" => 60 * S,
        "h" | "hour" | "hours" => 3_600 * S,
        "d" | "day" | "days" => 86_400 * S,
        "w" | "week" | "weeks" => 7 * 86_400 * S,
        _ => return None,
    })
}

/// Parses a duration of one or more terms: `275 ms`, `0.1ms`, `3 h 3 min`. Returns nanoseconds.
///
/// # Errors
/// If the text is not a duration, or not a whole number of nanoseconds.
pub fn parse_duration(text: &str) -> Result<u64, UnitError> {
    let mut sum = 0_u64;
    let mut left = text;
    loop {
        let head = KIND.head(text, left)?;
        let end = head.rest.find(|c: char| !c.is_alphabetic()).unwrap_or(head.rest.len());
        let (unit, rest) = head.rest.split_at(end);
        if unit.is_empty() && rest.is_empty() {
            return Err(KIND.no_unit(text));
        }
        let Some(factor) = factor(unit) else {
            let unit = if unit.is_empty() { rest } else { unit };
            let hint = (unit == "m").then(|| "write min (minutes) or ms (milliseconds)".into());
            return Err(KIND.unknown(text, unit, hint, &UNITS));
        };
        let term = KIND.value(text, &head, factor)?;
        sum = sum.checked_add(term).ok_or_else(|| UnitError::TooLarge {
            text: super::shown(text),
            limit: (KIND.limit)(),
        })?;
        left = rest.trim();
        if left.is_empty() {
            return Ok(sum);
        }
    }
}

/// Prints a duration so that [`parse_duration`] returns the same value.
pub fn format_duration(ns: u64) -> String {
    if ns < S {
        let (unit, factor) = match ns {
            0 => ("ms", 1_000_000),
            1..1_000 => ("ns", 1),
            1_000..1_000_000 => ("µs", 1_000),
            _ => ("ms", 1_000_000),
        };
        return format!("{} {unit}", fixed(ns, factor));
    }
    let mut terms = Vec::new();
    let mut left = ns;
    for (unit, factor) in [("d", 86_400 * S), ("h", 3_600 * S), ("min", 60 * S)] {
        if left >= factor {
            terms.push(format!("{} {unit}", left / factor));
            left %= factor;
        }
    }
    if left > 0 {
        terms.push(format!("{} s", fixed(left, S)));
    }
    terms.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        parse_duration(text).unwrap_err().to_string()
    }

    #[test]
    fn duration_terms_add_up() {
        assert_eq!(parse_duration("275 ms"), Ok(275_000_000));
        assert_eq!(parse_duration("0.1ms"), Ok(100_000));
        assert_eq!(parse_duration("3 h 3 min"), Ok(10_980 * S));
        assert_eq!(parse_duration("1h30min15s"), Ok(5_415 * S));
        assert_eq!(parse_duration("43 µs"), Ok(43_000));
        assert_eq!(parse_duration("365 d"), Ok(365 * 86_400 * S));
    }

    #[test]
    fn errors_name_the_value_and_the_remedy() {
        assert_eq!(message("275"), "275 has no unit: write a unit, such as \"275 ms\"");
        assert!(message("5 m").contains("min (minutes) or ms"));
        assert!(message("1 2 s").contains("not a unit"), "{}", message("1 2 s"));
        assert!(message("3 h 3").contains("no unit"), "{}", message("3 h 3"));
        assert!(message("0.5 ns").contains("whole number of nanoseconds"));
        assert!(message("213504 d").contains("more than the largest"));
        assert!(message("18446744073709551615s 1000000000ns").contains("more than"));
        assert!(message("-1 s").contains("negative"));
        assert!(message("275 msec").contains("the nearest is \"ms\""));
    }

    #[test]
    fn durations_print_in_natural_units() {
        assert_eq!(format_duration(275_000_000), "275 ms");
        assert_eq!(format_duration(100_000), "100 µs");
        assert_eq!(format_duration(10_996 * S + S / 2), "3 h 3 min 16.5 s");
        assert_eq!(format_duration(0), "0 ms");
        assert_eq!(format_duration(7 * 86_400 * S), "7 d");
    }
}
