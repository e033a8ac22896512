// SPDX-License-Identifier: Apache-2.0
//! The shim between switch and box, byte by byte. It is an independent implementation, so that
//! errors shared by the other parts are found. docs/p4.md specifies the format.

/// Destination and source MAC, and the local experimental EtherType.
pub const OUTER: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
/// Bytes before the inner frame.
pub const LENGTH: usize = 32;
/// Flag by which the box requests a mark.
pub const MARK: u8 = 1;

pub const FORWARD: u8 = 0;
pub const RETURN: u8 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shim {
    /// Version of the format, 1.
    pub version: u8,
    /// [`FORWARD`] or [`RETURN`].
    pub direction: u8,
    /// [`MARK`] or none.
    pub flags: u8,
    /// A client's number, or 0.
    pub client: u16,
    /// Epoch of client numbers and timestamps.
    pub epoch: u16,
    /// Index of the loss that the switch draws by, or 0.
    pub loss: u16,
    /// 48 bits of ticks.
    pub stamp: u64,
    pub planned: u32,
}

impl Shim {
    #[must_use]
    pub fn new(direction: u8, client: u16, epoch: u16) -> Self {
        Self { version: 1, direction, client, epoch, ..Self::default() }
    }

    /// A frame with a shim.
    #[must_use]
    pub fn wrap(&self, inner: &[u8]) -> Vec<u8> {
        let mut frame = OUTER.to_vec();
        frame.extend([self.version << 4 | self.direction << 3, self.flags]);
        for field in [self.client, self.epoch, self.loss] {
            frame.extend(field.to_be_bytes());
        }
        frame.extend(&self.stamp.to_be_bytes()[2..]);
        frame.extend(self.planned.to_be_bytes());
        frame.extend(inner);
        frame
    }

    /// Parses a frame with a shim. None if it has another format; reserved bits must be zero.
    #[must_use]
    pub fn unwrap(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (shim, inner) = frame.strip_prefix(&OUTER)?.split_at_checked(LENGTH - OUTER.len())?;
        let half = |at: usize| u16::from_be_bytes([shim[at], shim[at + 1]]);
        let wide = |from: usize, to: usize| {
            shim[from..to].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        };
        let read = Self {
            version: shim[0] >> 4,
            direction: shim[0] >> 3 & 1,
            flags: shim[1],
            client: half(2),
            epoch: half(4),
            loss: half(6),
            stamp: wide(8, 14),
            planned: u32::try_from(wide(14, 18)).ok()?,
        };
        (read.wrap(inner) == frame).then_some((read, inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shim_round_trips_and_reserved_bits_are_rejected() {
        let shim = Shim {
            version: 1,
            direction: RETURN,
            flags: MARK,
            client: 0x0123,
            epoch: 0x4567,
            loss: 0x89ab,
            stamp: 0x0102_0304_0506,
            planned: 0xfedc_ba98,
        };
        let frame = shim.wrap(&[0xaa; 14]);
        let written =
            [0x18, 1, 1, 0x23, 0x45, 0x67, 0x89, 0xab, 1, 2, 3, 4, 5, 6, 0xfe, 0xdc, 0xba, 0x98];
        assert_eq!((frame.len(), &frame[14..LENGTH]), (46, &written[..]));
        assert_eq!(Shim::unwrap(&frame), Some((shim, &[0xaa; 14][..])));
        let mut reserved = frame.clone();
        reserved[14] |= 4;
        assert_eq!(Shim::unwrap(&reserved), None);
        assert_eq!(Shim::unwrap(&frame[..31]), None);
    }
}
