// SPDX-License-Identifier: Apache-2.0
//! The shim: the header that a P4 switch puts before each frame for the box, and the fields in
//! which the box answers (docs/p4.md).
//!
//! An outer Ethernet header, so that any port carries it, and 18 bytes; the host's frame
//! follows as it was. Numbers are big endian.
//!
//! | byte | bits | field | from the switch | to the switch |
//! |---|---|---|---|---|
//! | 0 | 48 | destination, [`DESTINATION`] | | stays |
//! | 6 | 48 | source, [`SOURCE`] | | stays |
//! | 12 | 16 | EtherType, [`ETHERTYPE`]: IEEE local experimental 1 | | stays |
//! | 14 | 4 | version, 1 | | stays |
//! | 14 | 1 | direction: 0 forward, 1 return | | stays |
//! | 14 | 3 | reserved | 0, not looked at | stays |
//! | 15 | 8 | flags: 0x01 the switch is to mark the packet | 0, not looked at | written |
//! | 16 | 16 | client's number | 0: to be classified here | written |
//! | 18 | 16 | epoch of number and stamp | | stays |
//! | 20 | 16 | loss by which the switch draws, 0: none | 0, not looked at | written |
//! | 22 | 48 | stamp: when it came to the switch, in ticks | | stays |
//! | 28 | 32 | planned: ticks from arrival to when it is due, modulo 2³² | | written |
//!
//! A client's number is its index in the engine and one more, if that is below [`Tick::numbers`]. It
//! is believed only in the epoch of the current plan (docs/adr/0031): a frame with any other number
//! is classified as if it had none. So a wrong number has no effect.

use emu::classify::{ETHERNET, payload};
use emu::units::{Direction, Instant};

/// Bytes of the shim with its outer header.
pub const SHIM: u32 = 32;
/// Field of the outer header.
pub const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Field of the outer header.
pub const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Field of the outer header.
pub const ETHERTYPE: u16 = 0x88b5;

const VERSION: u8 = 1;
const RETURN: u8 = 0x08;
const MARK: u8 = 0x01;

pub type Bytes = [u8; SHIM as usize];

/// The unit of a switch's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// As the behavioral model counts.
    Microsecond,
    Nanosecond,
}

impl Tick {
    /// Client numbers are below this: the cells of a switch's counters and of its chains.
    #[inline]
    #[must_use]
    pub fn numbers(self) -> u32 {
        match self {
            Self::Microsecond => 4096,
            Self::Nanosecond => 2048,
        }
    }

    /// Clients that have a number: those with a lower index than this.
    #[inline]
    #[must_use]
    pub fn clients(self) -> u32 {
        self.numbers() - 1
    }

    /// Whole ticks from one instant to another, modulo 2³²: never more than there are.
    #[inline]
    #[must_use]
    pub fn between(self, from: Instant, to: Instant) -> u32 {
        let nanos = to.since(from).0;
        match self {
            Self::Microsecond => (nanos / 1_000) as u32,
            Self::Nanosecond => nanos as u32,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shim {
    pub direction: Direction,
    /// Asks the switch to mark the packet.
    pub mark: bool,
    /// The client's number; zero: none.
    pub client: u16,
    /// Epoch of number and stamp; zero: neither is believed.
    pub epoch: u16,
    /// Number of the figures by which the switch draws a loss; zero: it does not.
    pub loss: u16,
    /// Time of arrival at the switch, in ticks, modulo 2⁴⁸.
    pub stamp: u64,
    /// Ticks from arrival at the box to the due time, modulo 2³².
    pub planned: u32,
}

impl Shim {
    /// A frame's shim and the frame behind it; none if it has none, or one that is cut or of
    /// another version.
    #[inline]
    #[must_use]
    pub fn read(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (b, inner) = frame.split_first_chunk::<{ SHIM as usize }>()?;
        if u16::from_be_bytes([b[12], b[13]]) != ETHERTYPE || b[14] >> 4 != VERSION {
            return None;
        }
        let word = |at: usize| u16::from_be_bytes([b[at], b[at + 1]]);
        let shim = Self {
            direction: if b[14] & RETURN == 0 { Direction::Forward } else { Direction::Return },
            mark: b[15] & MARK != 0,
            client: word(16),
            epoch: word(18),
            loss: word(20),
            stamp: u64::from_be_bytes([0, 0, b[22], b[23], b[24], b[25], b[26], b[27]]),
            planned: u32::from_be_bytes([b[28], b[29], b[30], b[31]]),
        };
        Some((shim, inner))
    }

    #[must_use]
    pub fn to_bytes(self) -> Bytes {
        let mut b = [0; SHIM as usize];
        b[..6].copy_from_slice(&DESTINATION);
        b[6..12].copy_from_slice(&SOURCE);
        b[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
        b[14] = VERSION << 4 | if self.direction == Direction::Return { RETURN } else { 0 };
        b[15] = if self.mark { MARK } else { 0 };
        b[16..18].copy_from_slice(&self.client.to_be_bytes());
        b[18..20].copy_from_slice(&self.epoch.to_be_bytes());
        b[20..22].copy_from_slice(&self.loss.to_be_bytes());
        b[22..28].copy_from_slice(&self.stamp.to_be_bytes()[2..]);
        b[28..].copy_from_slice(&self.planned.to_be_bytes());
        b
    }

    /// The index of the client that it names; none if it names none.
    #[inline]
    #[must_use]
    pub fn index(&self, tick: Tick) -> Option<u32> {
        let number = u32::from(self.client);
        number.checked_sub(1).filter(|_| number < tick.numbers())
    }
}

/// The number of the client with an index; zero: it has none.
#[must_use]
pub fn number(client: u32, tick: Tick) -> u16 {
    let number = client.saturating_add(1);
    u16::try_from(number).ok().filter(|_| number < tick.numbers()).unwrap_or(0)
}

/// Whether the switch reads as far as the frame's packet: behind two VLAN tags at most.
#[must_use]
pub fn sees_packet(frame: &[u8]) -> bool {
    payload(frame).1 <= ETHERNET + 8
}

/// Clears the requests to the switch in the shim of a frame that arrived.
#[inline]
pub fn open(b: &mut Bytes) {
    b[15] = 0;
}

/// Asks the switch to mark the packet.
#[inline]
pub fn mark(b: &mut Bytes) {
    b[15] |= MARK;
}

/// Writes the fields for the switch in the shim of a frame that will leave.
#[inline]
pub fn close(b: &mut Bytes, client: u16, loss: u16, planned: u32) {
    b[16..18].copy_from_slice(&client.to_be_bytes());
    b[20..22].copy_from_slice(&loss.to_be_bytes());
    b[28..32].copy_from_slice(&planned.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu::units::Nanos;
    use proptest::prelude::*;

    fn direction(back: bool) -> Direction {
        if back { Direction::Return } else { Direction::Forward }
    }

    proptest! {
        #[test]
        fn shim_round_trips(
            back: bool, mark: bool, client: u16, epoch: u16, loss: u16, stamp in 0..1_u64 << 48,
            planned: u32, frame: Vec<u8>,
        ) {
            let shim = Shim { direction: direction(back), mark, client, epoch, loss, stamp, planned };
            let bytes = [&shim.to_bytes()[..], &frame].concat();
            prop_assert_eq!(Shim::read(&bytes), Some((shim, &frame[..])));
        }

        #[test]
        fn invalid_shim_is_rejected(mut frame: Vec<u8>, ethertype: u16, version in 0..16_u8) {
            let cut = frame.len() < SHIM as usize;
            if frame.len() > 14 {
                frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
                frame[14] = version << 4;
            }
            let is_one = !cut && ethertype == ETHERTYPE && version == VERSION;
            prop_assert_eq!(Shim::read(&frame).is_some(), is_one);
        }

        #[test]
        fn box_writes_only_its_fields(
            back: bool, bytes: [u8; 32], client: u16, loss: u16, planned: u32,
        ) {
            let came = Shim {
                direction: direction(back),
                mark: true,
                client: 1,
                epoch: u16::from_be_bytes([bytes[0], bytes[1]]),
                loss: 9,
                stamp: u64::from(u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]])),
                planned: 9,
            };
            let mut b = came.to_bytes();
            open(&mut b);
            close(&mut b, client, loss, planned);
            let expected = Shim { mark: false, client, loss, planned, ..came };
            prop_assert_eq!(Shim::read(&b), Some((expected, &[][..])));
            mark(&mut b);
            prop_assert_eq!(Shim::read(&b), Some((Shim { mark: true, ..expected }, &[][..])));
        }

        #[test]
        fn planned_is_rounded_down_to_ticks(from: u32, span: u32) {
            let (from, nanos) = (Instant(from.into()), Nanos(span.into()));
            let micros = u64::from(Tick::Microsecond.between(from, from + nanos));
            prop_assert!(micros * 1_000 <= nanos.0 && nanos.0 < (micros + 1) * 1_000);
            prop_assert_eq!(Tick::Nanosecond.between(from, from + nanos), span);
        }
    }

    #[test]
    fn layout_matches_switch() {
        let shim = Shim {
            direction: Direction::Return,
            mark: true,
            client: 0x0203,
            epoch: 0x0405,
            loss: 0x0607,
            stamp: 0x0809_0a0b_0c0d,
            planned: 0x0e0f_1011,
        };
        let expected = [
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, 0x18, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
            11, 12, 13, 14, 15, 16, 17,
        ];
        assert_eq!(shim.to_bytes(), expected);
    }

    #[test]
    fn number_names_an_index_below_the_switchs_counters() {
        let index = |client, tick| {
            let direction = Direction::Forward;
            let (mark, epoch, loss, stamp, planned) = (false, 7, 0, 0, 0);
            Shim { direction, mark, client, epoch, loss, stamp, planned }.index(tick)
        };
        let tick = Tick::Microsecond;
        assert_eq!([0, 1, 4095, 4096].map(|c| index(c, tick)), [None, Some(0), Some(4094), None]);
        assert_eq!(index(2048, Tick::Nanosecond), None);
        let numbers = [0, 2047, 4094, 4095, 70_000, u32::MAX];
        assert_eq!(numbers.map(|client| number(client, tick)), [1, 2048, 4095, 0, 0, 0]);
        assert_eq!(number(2046, Tick::Nanosecond), 2047);
        assert_eq!(number(2047, Tick::Nanosecond), 0);
    }
}
