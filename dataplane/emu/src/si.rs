// SPDX-License-Identifier: Apache-2.0
//! Quantities for people: three digits and an SI prefix.
//!
//! Needs are rounded up and upper bounds are rounded down, so that a
//! value that is copied from a message does what the message says.

use crate::units::Nanos;

const PREFIXES: [&str; 7] = ["n", "µ", "m", "", "k", "M", "G"];
/// The place of the unit itself among the prefixes.
const ONE: usize = 3;

/// Which way to round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Up,
    Down,
}

/// Bytes, such as "9.6 GB".
#[must_use]
pub fn bytes(bytes: u64, round: Round) -> String {
    shown(bytes, ONE, round, "B")
}

/// A rate in bit/s, such as "2.5 Gbit/s".
#[must_use]
pub fn rate(bps: u64, round: Round) -> String {
    shown(bps, ONE, round, "bit/s")
}

/// A time, such as "112 ms".
#[must_use]
pub fn time(time: Nanos, round: Round) -> String {
    shown(time.0, 0, round, "s")
}

/// A count, such as "16.7 M".
#[must_use]
pub fn count(count: u64, round: Round) -> String {
    shown(count, ONE, round, "").trim_end().to_owned()
}

fn shown(value: u64, unit: usize, round: Round, name: &str) -> String {
    // To three digits.
    let mut grain = 1_u64;
    while value / grain >= 1_000 {
        grain *= 10;
    }
    let value = match round {
        Round::Down => value / grain * grain,
        Round::Up => value.div_ceil(grain).saturating_mul(grain),
    };
    let (mut prefix, mut factor) = (unit, 1_u64);
    let last = if unit == 0 { ONE } else { PREFIXES.len() - 1 };
    while prefix < last && value / factor >= 1_000 {
        (prefix, factor) = (prefix + 1, factor * 1_000);
    }
    let (whole, rest) = (value / factor, value % factor);
    let digits = factor.ilog10() as usize;
    let decimals = format!("{rest:0digits$}");
    let decimals = decimals.trim_end_matches('0');
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{whole}{point}{decimals} {}{name}", PREFIXES[prefix])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_digits_are_shown_and_no_zeros_that_say_nothing() {
        assert_eq!(bytes(9_600_000_000, Round::Up), "9.6 GB");
        assert_eq!(bytes(9_600_000_001, Round::Up), "9.61 GB");
        assert_eq!(bytes(9_609_999_999, Round::Down), "9.6 GB");
        assert_eq!(bytes(0, Round::Up), "0 B");
        assert_eq!(bytes(999_999, Round::Up), "1 MB");
        assert_eq!(bytes(12_345_000_000_000, Round::Down), "12300 GB");
        assert_eq!(rate(2_500_000_000, Round::Down), "2.5 Gbit/s");
        assert_eq!(time(Nanos(112_345_678), Round::Down), "112 ms");
        assert_eq!(time(Nanos(1_870_000_000), Round::Down), "1.87 s");
        assert_eq!(time(Nanos(1_234_567_890_123), Round::Down), "1230 s");
        assert_eq!(count(16_700_000, Round::Up), "16.7 M");
        assert_eq!(count(17, Round::Up), "17");
    }

    proptest! {
        #[test]
        fn rounding_follows_direction(value in any::<u64>()) {
            let read = |text: String| {
                let (number, unit) = text.split_once(' ').unwrap();
                let factor = match unit { "B" => 1e0, "kB" => 1e3, "MB" => 1e6, _ => 1e9 };
                number.parse::<f64>().unwrap() * factor
            };
            let (down, up) = (read(bytes(value, Round::Down)), read(bytes(value, Round::Up)));
            // A float has 53 bits.
            let slack = 1.0 + 1e-12;
            prop_assert!(down <= value as f64 * slack && value as f64 <= up * slack);
            prop_assert!(up <= down * 1.0101 * slack + 1.0);
        }
    }
}
