// SPDX-License-Identifier: Apache-2.0
//! How many bytes a frame takes on the link below: what the shaper counts.

/// Encapsulation by the lower layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Bytes added to each frame first; may be negative.
    pub overhead: i32,
    /// The least of frame and overhead together.
    pub min_frame: u32,
    /// How the sum is carried.
    pub link_layer: LinkLayer,
}

/// How the lower layer carries bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLayer {
    /// As they are.
    #[default]
    Plain,
    /// In cells of 53 bytes with 48 of payload, the last one padded (ITU-T I.361, I.363.5): ADSL.
    Atm,
    /// With a byte more for each 64 begun (64/65-octet encoding, IEEE 802.3 clause 61.3): VDSL2.
    Ptm,
}

impl Framing {
    /// Adds `overhead` bytes only.
    #[must_use]
    pub const fn plain(overhead: i32) -> Self {
        Self { overhead, min_frame: 0, link_layer: LinkLayer::Plain }
    }

    /// Bytes on the link of a frame of `len` bytes; at least one. Never fewer than the frame and
    /// the overhead have.
    #[must_use]
    #[inline]
    pub fn bytes(self, len: u32) -> u64 {
        const CELL: u64 = 53;
        const PAYLOAD: u64 = 48;
        const BLOCK: u64 = 64;
        let bytes = i64::from(len).saturating_add(i64::from(self.overhead));
        let bytes = bytes.max(self.min_frame.into()).max(1).unsigned_abs();
        match self.link_layer {
            LinkLayer::Plain => bytes,
            LinkLayer::Atm => bytes.div_ceil(PAYLOAD) * CELL,
            LinkLayer::Ptm => bytes + bytes.div_ceil(BLOCK),
        }
    }
}

impl From<i32> for Framing {
    fn from(overhead: i32) -> Self {
        Self::plain(overhead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atm_fills_whole_cells() {
        let atm = Framing { overhead: 26, link_layer: LinkLayer::Atm, ..Framing::default() };
        // A full frame with PPPoE over LLC/SNAP takes 1540 bytes of AAL5: 33 cells.
        assert_eq!(atm.bytes(1514), 33 * 53);
        assert_eq!(atm.bytes(1558), 33 * 53, "to the last byte of the last cell");
        assert_eq!(atm.bytes(1559), 34 * 53);
        // A bare acknowledgement of 54 bytes takes two.
        assert_eq!(atm.bytes(54), 2 * 53);
        assert_eq!(Framing { overhead: -100, ..atm }.bytes(60), 53, "never none");
    }

    #[test]
    fn short_frame_counts_as_minimum_frame() {
        let least = Framing { min_frame: 64, ..Framing::plain(4) };
        assert_eq!([34, 60, 61, 1514].map(|len| least.bytes(len)), [64, 64, 65, 1518]);
        let in_cells = Framing { link_layer: LinkLayer::Atm, ..least };
        assert_eq!(in_cells.bytes(34), 2 * 53, "before it is carried in cells");
    }

    #[test]
    fn ptm_adds_a_byte_per_started_64() {
        let ptm = Framing { link_layer: LinkLayer::Ptm, ..Framing::default() };
        assert_eq!([1, 64, 65, 1536].map(|len| ptm.bytes(len)), [2, 65, 67, 1560]);
    }

    #[test]
    fn plain_adds_the_overhead_and_leaves_at_least_a_byte() {
        assert_eq!(Framing::plain(18).bytes(1514), 1532);
        assert_eq!(Framing::plain(-2000).bytes(1514), 1);
    }
}
