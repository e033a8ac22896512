// SPDX-License-Identifier: Apache-2.0
//! Quantities in few columns: rounded, for people. Units are in the column's head.

pub const UNKNOWN: &str = "-";

/// Three significant digits and a decimal prefix, in at most five columns: `0`, `7`,
/// `1.23k`, `144M`. Values between 0 and 1 have one digit.
pub fn si(value: f64) -> String {
    const PREFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    if !value.is_finite() || value < 0.0 {
        return UNKNOWN.into();
    }
    if value < 0.05 {
        return "0".into();
    }
    if value < 0.95 {
        return format!("{value:.1}");
    }
    let (mut scaled, mut prefix) = (value, 0);
    // 999.5 rounds up into the next prefix.
    while scaled >= 999.5 && prefix + 1 < PREFIXES.len() {
        scaled /= 1e3;
        prefix += 1;
    }
    let digits = match (prefix, scaled) {
        (0, _) => 0,
        (_, x) if x < 9.995 => 2,
        (_, x) if x < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{}", PREFIXES[prefix])
}

/// A time in at most seven columns: `0`, `850us`, `1.5ms`, `600ms`, `12.3s`, `>1h`.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() || s < 0.0 => UNKNOWN.into(),
        s if s < 0.5e-9 => "0".into(),
        s if s < 999.5e-9 => format!("{:.0}ns", s * 1e9),
        s if s < 999.5e-6 => format!("{:.0}us", s * 1e6),
        s if s < 99.95e-3 => format!("{:.1}ms", s * 1e3),
        s if s < 999.5e-3 => format!("{:.0}ms", s * 1e3),
        s if s < 3_600.0 => format!("{s:.1}s"),
        _ => ">1h".into(),
    }
}

/// The name in at most `width` columns: its start and its end, for addresses differ there.
/// Non-printable characters of a name are not sent to the terminal.
pub fn cut(name: &str, width: usize) -> String {
    let clean: Vec<char> =
        name.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
    if clean.len() <= width {
        return clean.into_iter().collect();
    }
    if width < 3 {
        return clean.into_iter().take(width).collect();
    }
    let tail = (width - 1) / 2;
    let head = width - 1 - tail;
    let end = &clean[clean.len() - tail..];
    clean[..head].iter().chain(['~'].iter()).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits_and_a_prefix() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "0"),
            (0.4, "0.4"),
            (0.95, "1"),
            (7.0, "7"),
            (999.4, "999"),
            (999.5, "1.00k"),
            (1_234.0, "1.23k"),
            (9_995.0, "10.0k"),
            (144e6, "144M"),
            (18_200_000.0, "18.2M"),
            (1e21, "1000E"),
            (-1.0, "-"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(si(value), text, "{value}");
        }
    }

    #[test]
    fn no_quantity_is_wider_than_its_column() {
        let mut value = 0.001_f64;
        while value < 1.8e19 {
            for v in [value, value * 0.999, value * 9.995] {
                assert!(si(v).len() <= 5, "{v}: {}", si(v));
                assert!(time(v * 1e-9).len() <= 7, "{v}: {}", time(v * 1e-9));
            }
            value *= 1.37;
        }
    }

    #[test]
    fn times_have_a_unit() {
        for (seconds, text) in [
            (0.0, "0"),
            (5e-9, "5ns"),
            (850e-6, "850us"),
            (1.5e-3, "1.5ms"),
            (0.6, "600ms"),
            (0.9996, "1.0s"),
            (12.34, "12.3s"),
            (1e5, ">1h"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(time(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn a_long_name_keeps_both_its_ends() {
        assert_eq!(cut("10.0.0.2", 8), "10.0.0.2");
        assert_eq!(cut("2001:db8::1234:5678", 10), "2001:~5678");
        assert_eq!(cut("10.0.0.2", 2), "10");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(cut("a\x1b[31mb", 8), "a?[31mb");
    }
}
