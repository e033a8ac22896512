// SPDX-License-Identifier: Apache-2.0
//! Decimal numbers as logs write them, read exactly into whole units.
//!
//! A float holds the nanoseconds since 1970 only to 256 of them, so the digits are
//! taken as they are. Digits below the unit are rounded half away from zero.

/// Digits that are taken; those after them are finer than anything that is measured.
/// Nanoseconds since 1970 have 19, and every number of 19 fits into 64 bits.
const DIGITS: u32 = 19;

/// A number as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    pub value: i64,
    /// The value of its last digit is `10^-decimals`.
    pub decimals: i32,
}

/// Reads a decimal number with an optional sign, fraction and exponent, and gives it in
/// a smaller unit, `factor` of them per written unit: with a factor of 1,000,000,
/// milliseconds in nanoseconds. `None` if it is no number, or too large.
pub fn decimal(text: &[u8], factor: u64) -> Option<Decimal> {
    let (negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (mut mantissa, mut digits, mut scale) = (0_u64, 0_u32, 0_i32);
    let (mut any, mut point, mut exponent) = (false, false, 0_i32);
    for (at, byte) in unsigned.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                any = true;
                if digits < DIGITS {
                    mantissa = mantissa * 10 + u64::from(byte - b'0');
                    digits += u32::from(mantissa > 0);
                    scale += i32::from(point);
                } else if !point {
                    return None;
                }
            }
            b'.' if !point => point = true,
            b'e' | b'E' if any => {
                let text = std::str::from_utf8(&unsigned[at + 1..]).ok()?;
                exponent = text.parse().ok().filter(|e: &i32| e.abs() < 1_000)?;
                break;
            }
            _ => return None,
        }
    }
    let decimals = scale - exponent;
    let value = any.then(|| scaled(mantissa, decimals, factor)).flatten()?;
    Some(Decimal { value: if negative { -value } else { value }, decimals })
}

/// `mantissa × factor / 10^decimals`, rounded.
fn scaled(mantissa: u64, decimals: i32, factor: u64) -> Option<i64> {
    if mantissa == 0 {
        return Some(0);
    }
    let power = 10_u64.checked_pow(decimals.unsigned_abs());
    let exact = match power {
        // Nearly always: no division of 128 bits.
        Some(power) if decimals >= 0 && factor.is_multiple_of(power) => {
            mantissa.checked_mul(factor / power)
        }
        Some(power) if decimals >= 0 => {
            let sum = u128::from(mantissa) * u128::from(factor) + u128::from(power / 2);
            u64::try_from(sum / u128::from(power)).ok()
        }
        Some(power) => mantissa.checked_mul(power).and_then(|v| v.checked_mul(factor)),
        // Twenty decimals and more of a number of nineteen digits.
        None if decimals > 0 => {
            let power = 10_u128.checked_pow(decimals.unsigned_abs()).unwrap_or(u128::MAX);
            u64::try_from(u128::from(mantissa) * u128::from(factor) / power).ok()
        }
        None => None,
    };
    exact.and_then(|value| i64::try_from(value).ok())
}

/// The steps of numbers that were written with the units of `factor` below: the finest
/// decimal place of any of them.
#[derive(Clone, Debug)]
pub struct Steps {
    factor: u64,
    decimals: i32,
    /// The largest power of ten, up to `factor`, that divides all of them.
    divisor: u64,
    count: u64,
}

impl Steps {
    pub fn new(factor: u64) -> Self {
        Self { factor, decimals: 0, divisor: factor, count: 0 }
    }

    pub fn see(&mut self, number: Decimal) {
        self.decimals = self.decimals.max(number.decimals);
        self.count += 1;
        while self.divisor > 1 && !number.value.unsigned_abs().is_multiple_of(self.divisor) {
            self.divisor /= 10;
        }
    }

    /// The step: the last written decimal place. If a hundred numbers or more all have zeros in
    /// the last places, the last nonzero place: padding is no precision.
    pub fn step(&self) -> u64 {
        let written = place(self.factor, self.decimals);
        if self.count >= 100 { written.max(self.divisor) } else { written }
    }
}

/// The value of a decimal place, in the units of which `factor` make one; at least one.
pub fn place(factor: u64, decimals: i32) -> u64 {
    let power = u32::try_from(decimals.max(0)).ok().and_then(|d| 10_u64.checked_pow(d));
    power.map_or(1, |power| (factor / power).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000_000_000;

    fn value(text: &str, factor: u64) -> Option<i64> {
        decimal(text.as_bytes(), factor).map(|d| d.value)
    }

    #[test]
    fn numbers_are_read_exactly() {
        assert_eq!(value("598.123456", MS), Some(598_123_456));
        assert_eq!(value("1795283678.707028", S), Some(1_795_283_678_707_028_000));
        assert_eq!(value("1725927977397135872", 1), Some(1_725_927_977_397_135_872));
        assert_eq!(value("-1725927977397135873", 1), Some(-1_725_927_977_397_135_873));
        assert_eq!(value("1725927977.397135873", S), Some(1_725_927_977_397_135_873));
        assert_eq!(value("1725927977397.135873", MS), Some(1_725_927_977_397_135_873));
        assert_eq!(value("9223372036854775807", 1), Some(i64::MAX));
        assert_eq!(value("0.0000005", MS), Some(1), "half a nanosecond is rounded up");
        assert_eq!(value("0.00000049", MS), Some(0));
        assert_eq!(value("5.981234567890123456789e-1", S), Some(598_123_457));
        assert_eq!(value("1e3", 1), Some(1_000));
        assert_eq!(value("-0.5", MS), Some(-500_000));
        assert_eq!(value(".5", MS), Some(500_000));
        assert_eq!(value("+7.", 1), Some(7));
        assert_eq!(value("1e-300", S), Some(0));
        assert_eq!(value("0e300", S), Some(0));
        assert_eq!(value("1e-21", S), Some(0));
    }

    #[test]
    fn invalid_or_too_large_number_is_none() {
        for text in ["", ".", "-", "1 2", "1,5", "0x10", "nan", "inf", "e5", "1e", "1e9999", "--1"]
        {
            assert_eq!(value(text, 1), None, "{text}");
        }
        assert_eq!(value("1234567890123456789012", 1), None);
        assert_eq!(value("9223372036854775808", 1), None);
        assert_eq!(value("9999999999999999999", 1), None);
        assert_eq!(value("10000000000", S), None, "more than 292 years of nanoseconds");
        assert_eq!(value("1e18", S), None);
    }

    #[test]
    fn decimals_are_kept_as_written() {
        let decimals = |text: &str| decimal(text.as_bytes(), MS).unwrap().decimals;
        assert_eq!(decimals("598"), 0);
        assert_eq!(decimals("598.120"), 3);
        assert_eq!(decimals("1.5e-3"), 4);
    }

    #[test]
    fn steps_are_kept_except_padding() {
        let mut steps = Steps::new(MS);
        steps.see(decimal(b"598.000", MS).unwrap());
        assert_eq!(steps.step(), 1_000);
        for _ in 0..100 {
            steps.see(decimal(b"598.000", MS).unwrap());
        }
        assert_eq!(steps.step(), MS);
        steps.see(decimal(b"598.250", MS).unwrap());
        assert_eq!(steps.step(), 10_000);
    }

    proptest! {
        #[test]
        fn bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..40),
                             factor in 1_u64..=S) {
            let _ = decimal(&text, factor);
        }

        #[test]
        fn whole_nanoseconds_read_back(ns in -i64::MAX..=i64::MAX) {
            let text = format!("{}{}.{:09}", if ns < 0 { "-" } else { "" },
                ns.unsigned_abs() / S, ns.unsigned_abs() % S);
            prop_assert_eq!(value(&text, S), Some(ns));
        }
    }
}
