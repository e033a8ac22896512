// SPDX-License-Identifier: Apache-2.0
//! The lengths of the frames.
//!
//! Frames are named by their length on the wire with FCS, as is usual (64 to 1518), and made
//! without it. IMIX is the "simple IMIX" of 7 : 4 : 1 frames of 64, 594 and 1518 bytes
//! (RFC 6985, section 4, and its tables of known mixes).

use std::fmt;

/// Bytes of the frame check sequence.
const FCS: u32 = 4;
/// One period of the mix: 7 of the first, 4 of the second and 1 of the third, spread out.
const IMIX_ORDER: [u8; 12] = [0, 1, 0, 0, 1, 0, 2, 0, 1, 0, 1, 0];
const IMIX: [u32; 3] = [64, 594, 1518];

/// The lengths of the frames of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sizes {
    /// All the same, in bytes with FCS.
    Fixed(u32),
    /// 7 : 4 : 1 of 64, 594 and 1518 bytes.
    Imix,
}

impl Sizes {
    /// The distinct lengths, in bytes without FCS.
    #[must_use]
    pub fn lengths(self) -> Vec<u32> {
        match self {
            Self::Fixed(with_fcs) => vec![with_fcs - FCS],
            Self::Imix => IMIX.map(|n| n - FCS).to_vec(),
        }
    }

    /// Which length follows which: indices into [`Sizes::lengths`], to be repeated.
    #[must_use]
    pub fn order(self) -> &'static [u8] {
        match self {
            Self::Fixed(_) => &[0],
            Self::Imix => &IMIX_ORDER,
        }
    }

    /// The mean of a value over the frames of the mix.
    #[must_use]
    pub fn mean(self, of: impl Fn(u32) -> f64) -> f64 {
        let (lengths, order) = (self.lengths(), self.order());
        order.iter().map(|i| of(lengths[usize::from(*i)])).sum::<f64>() / order.len() as f64
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(n) => write!(f, "{n}B"),
            Self::Imix => f.write_str("imix"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imix_is_7_to_4_to_1() {
        let count = |n| Sizes::Imix.order().iter().filter(|i| **i == n).count();
        assert_eq!([count(0), count(1), count(2)], [7, 4, 1]);
        assert_eq!(Sizes::Imix.lengths(), [60, 590, 1514]);
        // (7 × 60 + 4 × 590 + 1514) / 12
        assert!((Sizes::Imix.mean(f64::from) - 357.833).abs() < 1e-3);
    }

    #[test]
    fn the_smallest_frame_is_60_bytes_without_fcs() {
        assert_eq!(Sizes::Fixed(64).lengths(), [60]);
        assert_eq!(Sizes::Fixed(64).to_string(), "64B");
    }
}
