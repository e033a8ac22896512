// SPDX-License-Identifier: Apache-2.0
//! The header between the ports and the pipeline, before each frame: `port_h` of p4src/pna/port.p4.

/// Length, bytes.
pub const LENGTH: usize = 32;
/// Length of the longest headers that a program extracts after this one, bytes: a shim, an Ethernet
/// header, two tags and an IPv6 header, and a look at the next byte. Shorter frames are padded.
pub const EXTRACTED: usize = 32 + 14 + 8 + 40 + 1;

/// The counter of frames that each port has taken, packets and bytes by port. The program declares it for
/// the P4Info, and the ports count it: the pipeline does not know what a port takes.
pub const SENT: &str = "linkemu.sent";

/// What a port says about a frame that it has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub port: u16,
    /// Without padding, bytes.
    pub length: u16,
    /// Time of arrival, microseconds.
    pub now: u64,
    /// Two random words.
    pub draws: u64,
    /// Order of arrival in a burst. SWX finishes frames in another order.
    pub order: u16,
}

impl Received {
    /// Writes the header. The pipeline sets the fields that are zero.
    pub fn write(&self, out: &mut [u8; LENGTH]) {
        *out = [0; LENGTH];
        let (port, rest) = out.split_at_mut(2);
        port.copy_from_slice(&self.port.to_be_bytes());
        let (length, rest) = rest.split_at_mut(2);
        length.copy_from_slice(&self.length.to_be_bytes());
        let (now, rest) = rest.split_at_mut(6);
        now.copy_from_slice(&self.now.to_be_bytes()[2..]);
        rest[..8].copy_from_slice(&self.draws.to_be_bytes());
        rest[20..].copy_from_slice(&self.order.to_be_bytes());
    }
}

/// What the pipeline decides about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// As received, without padding, bytes.
    pub length: u16,
    pub to_port: u16,
    /// Multicast group instead of a port; 0: none.
    pub to_group: u16,
    /// Multicast group that gets a copy; 0: none.
    pub to_mirror: u16,
    /// The digest, if there is one.
    pub learn: Option<Learn>,
    pub order: u16,
}

/// An unknown host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Learn {
    pub port: u16,
    pub mac: u64,
    pub direction: u8,
}

impl Decided {
    /// Reads the header.
    #[must_use]
    pub fn read(from: &[u8; LENGTH]) -> Self {
        let word = |at: usize| u16::from_be_bytes([from[at], from[at + 1]]);
        let mac = from[24..30].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let learn = Learn { port: word(0), mac, direction: from[23] };
        Self {
            length: word(2),
            to_port: word(18),
            to_group: from[20].into(),
            learn: (from[22] == 1).then_some(learn),
            to_mirror: from[21].into(),
            order: word(30),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_the_layout_of_the_program() {
        let mut bytes = [0xff; LENGTH];
        let received =
            Received { port: 7, length: 0x102, now: 0x0a0b_0c0d_0e0f, draws: 1 << 32, order: 9 };
        received.write(&mut bytes);
        assert_eq!(bytes[..10], [0, 7, 1, 2, 10, 11, 12, 13, 14, 15]);
        assert_eq!(bytes[10..18], [0, 0, 0, 1, 0, 0, 0, 0]);
        let (to_port, to_group, to_mirror, learn) = (0, 0, 0, None);
        let nothing = Decided { length: 0x102, to_port, to_group, to_mirror, learn, order: 9 };
        assert_eq!(Decided::read(&bytes), nothing);
        bytes[18..30].copy_from_slice(&[0, 3, 1, 5, 1, 1, 2, 0, 0, 0, 0, 9]);
        let learn = Some(Learn { port: 7, mac: 0x0200_0000_0009, direction: 1 });
        let all = Decided { to_port: 3, to_group: 1, to_mirror: 5, learn, ..nothing };
        assert_eq!(Decided::read(&bytes), all);
    }
}
