// SPDX-License-Identifier: Apache-2.0
//! Sizes, in bytes.

use super::decimal::{Kind, fixed};
use super::{UnitError, shown};

const KIND: Kind = Kind {
    of: "size",
    smallest: "bytes",
    unit: "MB",
    example: "36 MB",
    limit: || format_size(u64::MAX),
};

const SI: [(&str, u64); 5] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("B", 1)];

const BINARY: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Parses a size: `36 MB` (10^6 bytes), `1MiB` (2^20 bytes), `1518 B`. Returns bytes.
///
/// # Errors
/// If the text is not a size, or not a whole number of bytes.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let head = KIND.head(text, text)?;
    let unit = head.rest.trim_end();
    if unit.is_empty() {
        return Err(KIND.no_unit(text));
    }
    let known = SI.iter().chain(&BINARY).find(|(name, _)| *name == unit);
    match known {
        Some((_, factor)) => KIND.value(text, &head, *factor),
        None => Err(unknown(text, unit)),
    }
}

fn unknown(text: &str, unit: &str) -> UnitError {
    let hint = match unit {
        "KB" | "K" | "k" => Some("write kB (1000 bytes) or KiB (1024 bytes)".to_owned()),
        "Mb" | "Gb" | "kb" | "b" | "bit" | "kbit" | "Mbit" | "Gbit" => {
            Some("that is bits; sizes are in bytes, such as \"36 MB\"".to_owned())
        }
        _ => None,
    };
    let units: Vec<_> = SI.iter().chain(&BINARY).map(|(name, _)| *name).rev().collect();
    KIND.unknown(text, unit, hint, &units)
}

/// Prints a size so that [`parse_size`] returns the same value, in the shorter of decimal and
/// binary units.
pub fn format_size(bytes: u64) -> String {
    let (unit, factor) = SI.into_iter().find(|u| bytes >= u.1).unwrap_or(("B", 1));
    let decimal = format!("{} {unit}", fixed(bytes, factor));
    let whole = BINARY.into_iter().find(|u| bytes > 0 && bytes.is_multiple_of(u.1));
    match whole.map(|(unit, factor)| format!("{} {unit}", bytes / factor)) {
        Some(binary) if binary.len() < decimal.len() => binary,
        _ => decimal,
    }
}

/// Parses the bytes that a lower layer adds to each frame. May be negative: `-14 B`.
///
/// # Errors
/// If the text is not a size with an optional sign, or out of range.
pub fn parse_overhead(text: &str) -> Result<i32, UnitError> {
    let trimmed = text.trim();
    let (negative, size) = match trimmed.strip_prefix('-') {
        Some(size) => (true, size),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    if size.trim().parse::<u64>().is_ok() {
        let text = shown(text);
        return Err(UnitError::NoUnit { example: format!("{text} B"), text });
    }
    let bytes = i64::try_from(parse_size(size)?).unwrap_or(i64::MAX);
    i32::try_from(if negative { -bytes } else { bytes })
        .map_err(|_| UnitError::TooLarge { text: shown(text), limit: format!("{} B", i32::MAX) })
}

/// Prints an overhead so that [`parse_overhead`] returns the same value.
pub fn format_overhead(bytes: i32) -> String {
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        parse_size(text).unwrap_err().to_string()
    }

    #[test]
    fn decimal_and_binary_units_are_parsed() {
        assert_eq!(parse_size("36 MB"), Ok(36_000_000));
        assert_eq!(parse_size("1.5MiB"), Ok(1_572_864));
        assert_eq!(parse_size("64 KiB"), Ok(65_536));
        assert_eq!(parse_size("1518 B"), Ok(1_518));
        assert_eq!(parse_size("0.1 kB"), Ok(100));
    }

    #[test]
    fn errors_name_the_value_and_the_remedy() {
        assert_eq!(message("36"), "36 has no unit: write a unit, such as \"36 MB\"");
        assert!(message("36 Mb").contains("bits"));
        assert!(message("36 KB").contains("KiB"));
        assert!(message("36 mb").contains("the nearest is \"MB\""), "{}", message("36 mb"));
        assert!(message("-36 MB").contains("negative"));
        assert!(message("0.1 B").contains("whole number of bytes"));
        assert!(message("99999999 TB").contains("more than the largest"));
        assert!(parse_overhead("20").unwrap_err().to_string().contains("\"20 B\""));
        assert!(parse_overhead("3 GB").unwrap_err().to_string().contains("2147483647 B"));
    }

    #[test]
    fn overhead_has_a_sign() {
        assert_eq!(parse_overhead("-14 B"), Ok(-14));
        assert_eq!(parse_overhead("+20B"), Ok(20));
        assert_eq!(parse_overhead("0 B"), Ok(0));
    }

    #[test]
    fn sizes_print_in_the_shorter_unit() {
        assert_eq!(format_size(36_000_000), "36 MB");
        assert_eq!(format_size(1 << 20), "1 MiB");
        assert_eq!(format_size(1_518), "1.518 kB");
        assert_eq!(format_size(0), "0 B");
    }
}
