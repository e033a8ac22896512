// SPDX-License-Identifier: Apache-2.0
//! Numbers that look random and are the same in every run: SplitMix64 (G. L. Steele, D. Lea,
//! C. H. Flood, "Fast Splittable Pseudorandom Number Generators", 2014) at a given place of its
//! sequence.

/// The word at a place; the first one is at 1.
pub const fn word(place: u64) -> u64 {
    let z = place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number from 0 to 1 for each `number`.
pub const fn unit(number: u64) -> f64 {
    (word(number.wrapping_add(1)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_reference() {
        // The sequence of the authors' generator with a seed of zero.
        assert_eq!([word(1), word(2)], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }
}
