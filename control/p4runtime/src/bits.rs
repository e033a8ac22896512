// SPDX-License-Identifier: Apache-2.0
//! Numbers of a given width in P4Runtime's encoding: big endian, in the fewest bytes, one byte for
//! zero (P4Runtime 1.3, section 8.4). Longer forms are accepted when decoding, because the
//! specification allows older servers to send them.

/// Encodes `value` in the fewest bytes.
#[must_use]
pub fn encode(value: u128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len() - 1);
    bytes.get(first..).unwrap_or_default().to_vec()
}

/// Decodes a number. `None` if there are no bytes or more than `width` bits are set.
#[must_use]
pub fn decode(bytes: &[u8], width: u32) -> Option<u128> {
    if bytes.is_empty() {
        return None;
    }
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let digits = bytes.get(first..)?;
    let mut whole = [0; 16];
    let at = whole.len().checked_sub(digits.len())?;
    whole.get_mut(at..)?.copy_from_slice(digits);
    let value = u128::from_be_bytes(whole);
    fits(value, width).then_some(value)
}

/// True if `value` fits `width` bits.
#[must_use]
pub fn fits(value: u128, width: u32) -> bool {
    u128::BITS - value.leading_zeros() <= width
}

/// The mask of a prefix: the top `length` of `width` bits are set.
#[must_use]
pub fn prefix(length: u32, width: u32) -> u128 {
    let ones = |bits: u32| u128::MAX.checked_shr(u128::BITS - bits.min(128)).unwrap_or(0);
    ones(width) & !ones(width.saturating_sub(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_encode_in_the_fewest_bytes() {
        assert_eq!(encode(0), [0]);
        assert_eq!(encode(0x63), [0x63]);
        assert_eq!(encode(0x100), [1, 0]);
        assert_eq!(encode(u128::MAX), [0xff; 16]);
    }

    #[test]
    fn empty_or_too_wide_bytes_do_not_decode() {
        assert_eq!(decode(&[], 9), None);
        assert_eq!(decode(&[2, 0], 9), None);
        assert_eq!(decode(&[1; 17], 128), None);
        assert_eq!(decode(&[0, 0, 1, 0xff], 9), Some(511));
        assert_eq!(decode(&[0; 40], 1), Some(0));
    }

    #[test]
    fn prefix_mask_starts_at_the_top_bit() {
        assert_eq!(prefix(0, 32), 0);
        assert_eq!(prefix(8, 32), 0xff00_0000);
        assert_eq!(prefix(32, 32), 0xffff_ffff);
        assert_eq!(prefix(128, 128), u128::MAX);
        assert_eq!(prefix(1, 128), 1 << 127);
        assert_eq!(prefix(40, 32), 0xffff_ffff);
    }

    proptest! {
        #[test]
        fn encoded_number_decodes(value: u128, zeros in 0usize..20) {
            let mut bytes = vec![0; zeros];
            bytes.extend(encode(value));
            prop_assert_eq!(decode(&bytes, 128), Some(value));
        }

        #[test]
        fn any_bytes_decode_without_panic(bytes: Vec<u8>, width in 0u32..200) {
            if let Some(value) = decode(&bytes, width) {
                prop_assert!(fits(value, width));
            }
        }
    }
}
