// SPDX-License-Identifier: Apache-2.0
//! The link of a profile in virtual time, for segments that carry no bytes.
//!
//! The emulation core classifies and serves frames of true length, but keeps a [`Segment`] in place
//! of their bytes, so that a flow of 1 GB copies nothing. The core may mark or corrupt a frame in
//! place; the receiver drops a frame with a wrong bit, as a checksum would.

use emu::engine::{Departure, Engine, Limits};
use emu::frame::{Buffer, Frame};
use emu::units::{Direction, Instant};
use proto::dataplane::v1::Plan;

use super::tcp::Ack;
use crate::verify::PlayError;
use profile::Profile;

/// Bytes of a frame with a full segment: 14 of Ethernet, 52 of IPv4 and TCP with timestamps.
pub const FULL: u16 = 1514;
/// Bytes of the store. Records of kept frames take 16 bytes each.
const MEMORY: usize = 16 << 20;
/// Frames in the link at most; more than 100 MB of full ones.
const FRAMES: u32 = 1 << 17;
/// Frames of a burst that are handed over at once.
const BURST: usize = 32;
/// The address of the first client of the test beds. The link draws by address, so with the same
/// seed a flow of the model and a flow of real hosts meet the same link.
const CLIENT: [u8; 4] = [10, 77, 0, 10];
/// Template of frames: IPv4 between the client's address and itself, as it is the client's in
/// either direction. The rest is padding, so that one template serves all lengths.
static CLEAN: [u8; FULL as usize] = template();

const fn template() -> [u8; FULL as usize] {
    let mut f = [0; FULL as usize];
    f[12] = 8;
    f[14] = 0x45;
    f[17] = 40;
    f[22] = 64;
    f[23] = 6;
    let mut byte = 0;
    while byte < 4 {
        f[26 + byte] = CLIENT[byte];
        f[30 + byte] = CLIENT[byte];
        byte += 1;
    }
    f
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// SYN with ACK of the server, or its answer.
    Handshake,
    /// A full segment of data, by its number.
    Data(u32),
    Ack(Ack),
}

/// A frame in the link.
#[derive(Debug)]
pub struct Segment {
    pub content: Content,
    /// Bytes of the frame.
    len: u16,
    /// Copy of the frame's bytes once something has changed them.
    changed: Option<Vec<u8>>,
}

impl Segment {
    pub fn new(content: Content) -> Self {
        let len = match &content {
            Content::Handshake => 74,
            Content::Data(_) => FULL,
            Content::Ack(ack) => 66 + ack.option_bytes(),
        };
        Self { content, len, changed: None }
    }
}

impl Buffer for Segment {
    fn bytes(&self) -> &[u8] {
        match &self.changed {
            Some(bytes) => bytes,
            None => &CLEAN[..usize::from(self.len)],
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let len = usize::from(self.len);
        self.changed.get_or_insert_with(|| CLEAN[..len].to_vec())
    }
}

/// Both directions of a client's link.
#[derive(Debug)]
pub struct Path {
    engine: Engine<Segment>,
    burst: Vec<Option<Segment>>,
}

impl Path {
    /// The link of a profile, from time zero.
    ///
    /// # Errors
    /// If the profile cannot be played.
    pub fn new(profile: &Profile, seed: u64) -> Result<Self, PlayError> {
        let profile = Some(profile.as_proto().clone());
        let plan = compile::compile(&Plan { profile, seed, ..Plan::default() })?;
        let limits =
            Limits { copy_break: 0, buffers: FRAMES, ..Limits::copying(MEMORY, 2, FULL.into()) };
        let engine = Engine::new(limits, plan, Instant::ZERO)
            .map_err(|error| PlayError::Engine(error.to_string()))?;
        Ok(Self { engine, burst: Vec::with_capacity(BURST) })
    }

    /// Puts a frame into the burst of this instant.
    pub fn send(&mut self, now: Instant, direction: Direction, content: Content) {
        self.burst.push(Some(Segment::new(content)));
        if self.burst.len() == BURST {
            self.flush(now, direction);
        }
    }

    /// Hands the burst to the link.
    pub fn flush(&mut self, now: Instant, direction: Direction) {
        if !self.burst.is_empty() {
            self.engine.arrive_burst(now, direction, &mut self.burst);
            // What was copied or dropped is still there.
            self.burst.clear();
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        self.engine.next_deadline()
    }

    /// Appends the frames that leave until `now`, with the instants at which they were due, in the
    /// order of each direction.
    pub fn release(&mut self, now: Instant, into: &mut Vec<(Direction, Content)>) {
        self.engine.release(now, usize::MAX, &mut |d: Departure<'_, Segment>| {
            let Frame::Buffer(buffer) = d.frame else { return true };
            if let Some(segment) = buffer.take()
                && segment.changed.is_none()
            {
                into.push((d.direction, segment.content));
            }
            true
        });
    }
}
