// SPDX-License-Identifier: Apache-2.0
//! Tags: opaque bytes that travel with a frame from its arrival to its fate.

use std::ops::{Deref, DerefMut};

/// The longest tag, in bytes.
pub const MAX_TAG: usize = 40;
/// Bytes of the part of a tag that tells port pairs apart, where there are several.
pub const PAIR_TAG: u32 = 4;

/// A tag outside of the store. Its length is a multiple of 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    len: usize,
    bytes: [u8; MAX_TAG],
}

impl Tag {
    /// Padded with zeros to a multiple of 4; bytes beyond [`MAX_TAG`] are cut off.
    #[inline]
    #[must_use]
    pub fn new(tag: &[u8]) -> Self {
        let n = tag.len().min(MAX_TAG);
        let mut bytes = [0; MAX_TAG];
        bytes[..n].copy_from_slice(&tag[..n]);
        Self { len: n.next_multiple_of(4), bytes }
    }

    /// Puts `word` before the tag, if there is room.
    pub fn prepend(&mut self, word: [u8; 4]) {
        if self.len + word.len() <= MAX_TAG {
            self.bytes.copy_within(..self.len, word.len());
            self.bytes[..word.len()].copy_from_slice(&word);
            self.len += word.len();
        }
    }
}

impl Deref for Tag {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Tag {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// The tag of a frame that leaves, and for a copied frame the frame behind it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tagged<'a> {
    whole: &'a [u8],
    tag: usize,
}

impl<'a> Tagged<'a> {
    #[inline]
    pub(crate) fn new(whole: &'a [u8], tag: usize) -> Self {
        Self { whole, tag }
    }

    /// Empty if the frame has none.
    #[inline]
    #[must_use]
    pub fn tag(&self) -> &'a [u8] {
        &self.whole[..self.tag]
    }

    /// The tag and, in one piece with it, the bytes of a copied frame.
    #[inline]
    #[must_use]
    pub fn whole(&self) -> &'a [u8] {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_padded_and_a_word_goes_before_it() {
        let mut tag = Tag::new(&[1, 2, 3, 4, 5]);
        assert_eq!(*tag, [1, 2, 3, 4, 5, 0, 0, 0]);
        tag.prepend([9; 4]);
        assert_eq!(*tag, [9, 9, 9, 9, 1, 2, 3, 4, 5, 0, 0, 0]);
        let mut full = Tag::new(&[7; 50]);
        full.prepend([9; 4]);
        assert_eq!(*full, [7; MAX_TAG]);
        assert!(Tag::new(&[]).is_empty());
    }
}
