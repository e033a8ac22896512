// SPDX-License-Identifier: Apache-2.0
//! The Internet checksum (RFC 1071).

/// The ones' complement sum of `bytes` as big-endian words, added to `sum`. An odd last byte is the
/// upper half of a word, so only the last part of a message may have an odd length. A message with
/// its right checksum in it has the sum 0xffff.
#[must_use]
pub fn add(sum: u16, bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let mut total = u64::from(sum);
    for word in words {
        total += u64::from(u16::from_be_bytes(*word));
    }
    if let [last] = rest {
        total += u64::from(*last) << 8;
    }
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    // At most 16 bits are left.
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_matches_example_of_rfc_1071() {
        // Section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(add(0, &bytes), 0xddf2);
        assert_eq!(add(add(0, &bytes[..4]), &bytes[4..]), 0xddf2, "in parts");
        assert_eq!(add(0, &bytes[..7]), add(0, &[&bytes[..7], &[0]].concat()), "odd length");
        assert_eq!(add(0, &[0xff; 20_000]), 0xffff);
    }
}
