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
//! A client's number names its worker and its index there ([`Numbers`]), if that is below the box's
//! share of [`Tick::numbers`]. It is believed only in the epoch of the current plan (docs/adr/0029): a frame with
//! any other number is classified as if it had none. So a wrong number has no effect.

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

/// Clients that each worker has, and that are one in the sum: bypass and default.
const FIXED: u32 = 2;

/// The numbers of the clients of one of several workers. The fixed clients have 1 and 2, whatever the
/// worker; then those of all workers take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub tick: Tick,
    /// Numbers are below this.
    pub room: u32,
    /// At least 1.
    pub workers: u16,
    pub worker: u16,
}

impl Numbers {
    /// Of the first of several workers of a box, which has the switch for itself.
    #[must_use]
    pub fn of_first(tick: Tick, workers: u16) -> Self {
        Self { tick, room: tick.numbers(), workers, worker: 0 }
    }

    /// Those of one of several boxes behind the switch: it has a power of two of its counters for each.
    #[must_use]
    pub fn shared_by(self, boxes: u32) -> Self {
        Self { room: self.tick.numbers() / boxes.max(1).next_power_of_two(), ..self }
    }

    /// Those of another worker.
    #[must_use]
    pub fn of(self, worker: u16) -> Self {
        Self { worker, ..self }
    }

    /// Clients of each worker that have a number: those with a lower index than this.
    #[must_use]
    pub fn clients(self) -> u32 {
        let others = self.room.saturating_sub(1 + FIXED);
        FIXED + others / u32::from(self.workers.max(1))
    }

    /// The number of the client with an index on this worker; zero: it has none.
    #[inline]
    #[must_use]
    pub fn number(self, index: u32) -> u16 {
        let number = match index.checked_sub(FIXED) {
            None => index + 1,
            Some(_) if index >= self.clients() => return 0,
            Some(other) => {
                FIXED + 1 + other * u32::from(self.workers.max(1)) + u32::from(self.worker)
            }
        };
        u16::try_from(number).unwrap_or(0)
    }

    /// The worker that a number names, and the index there; none if it names no client of one worker
    /// alone.
    #[inline]
    #[must_use]
    pub fn place(self, number: u16) -> Option<(u16, u32)> {
        let other = u32::from(number).checked_sub(FIXED + 1)?;
        let workers = u32::from(self.workers.max(1));
        let index = FIXED + other / workers;
        (index < self.clients()).then_some(((other % workers) as u16, index))
    }

    /// The index on this worker that a number names; none if it names none here.
    #[inline]
    #[must_use]
    pub fn index(self, number: u16) -> Option<u32> {
        if self.workers <= 1 && (1..=FIXED as u16).contains(&number) {
            return Some(u32::from(number) - 1);
        }
        self.place(number).filter(|(worker, _)| *worker == self.worker).map(|(_, index)| index)
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
        let only = Numbers::of_first(Tick::Microsecond, 1);
        assert_eq!([0, 1, 4095, 4096].map(|n| only.index(n)), [None, Some(0), Some(4094), None]);
        let numbers = [0, 2047, 4094, 4095, 70_000, u32::MAX];
        assert_eq!(numbers.map(|index| only.number(index)), [1, 2048, 4095, 0, 0, 0]);
        let only = Numbers::of_first(Tick::Nanosecond, 1);
        assert_eq!((only.index(2048), only.number(2046), only.number(2047)), (None, 2047, 0));
    }

    proptest! {
        #[test]
        fn number_names_one_worker_and_index(
            workers in 1..=16_u16, of in 0..16_u16, boxes in 1..=8_u32, index in 0..5_000_u32,
            number: u16,
        ) {
            let numbers = Numbers::of_first(Tick::Microsecond, workers).shared_by(boxes);
            let numbers = numbers.of(of % workers);
            prop_assert!(numbers.room * boxes <= 4096);
            let own = numbers.number(index);
            prop_assert_eq!(own != 0, index < numbers.clients());
            prop_assert!(u32::from(own) < numbers.room);
            if index < FIXED {
                // Every worker has these, so they name none of several.
                prop_assert_eq!(u32::from(own), index + 1);
                prop_assert_eq!(numbers.index(own), (workers == 1).then_some(index));
            } else if own != 0 {
                prop_assert_eq!(numbers.place(own), Some((numbers.worker, index)));
                prop_assert_eq!(numbers.index(own), Some(index));
            }
            if let Some((worker, index)) = numbers.place(number) {
                prop_assert!(worker < workers);
                prop_assert_eq!(numbers.of(worker).number(index), number);
            }
        }
    }
}
