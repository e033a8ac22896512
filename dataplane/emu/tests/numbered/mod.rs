// SPDX-License-Identifier: Apache-2.0
//! Frames that are known again by their number.

/// A frame of `len` bytes that carries its number.
pub fn frame(len: u16, number: u32) -> Vec<u8> {
    let mut f = vec![number as u8; usize::from(len)];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&(len - 14).to_be_bytes());
    f[30..34].copy_from_slice(&[10, 0, 0, 1]);
    f[34..38].copy_from_slice(&number.to_be_bytes());
    f
}
