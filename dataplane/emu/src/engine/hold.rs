// SPDX-License-Identifier: Apache-2.0
//! Clients that move here from another emulator, or away to one.

use thiserror::Error;

use super::{DEFAULT, Engine, pipe_id};
use crate::client::ClientKey;
use crate::frame::Buffer;
use crate::pipe::{Look, MAX_HOLD};
use crate::units::{ByDirection, Direction, Instant, Nanos};

/// What a visit does to a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Nothing.
    #[default]
    Keep,
    /// Its frames stay in its queues for this long, at most [`MAX_HOLD`], or until the hold ends. A
    /// client that does not exist is made.
    Begin(Nanos),
    /// They leave, and none is due before these instants.
    End(ByDirection<Instant>),
}

/// Why a client cannot be on hold.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HoldError {
    #[error("there is no slot for client `{0}`: start the dataplane with more --max-clients")]
    NoSlot(ClientKey),
    #[error("client `{0}` is in a beam, which cannot be on hold: take the beam out of the plan")]
    Beam(ClientKey),
    #[error("`{0}` is not a client that can move: name one with rules, or an address")]
    Fixed(ClientKey),
}

impl<B: Buffer> Engine<B> {
    /// Begins or ends a hold of a client at `now`, and says what it has then; nothing of a client that
    /// does not exist.
    ///
    /// # Errors
    /// If it cannot be on hold. Then nothing changes.
    pub fn visit(
        &mut self,
        now: Instant,
        key: ClientKey,
        hold: Hold,
    ) -> Result<ByDirection<Look>, HoldError> {
        self.now = self.now.max(now);
        let begins = matches!(hold, Hold::Begin(_));
        if begins && !matches!(key, ClientKey::Ip(_) | ClientKey::Named(_)) {
            return Err(HoldError::Fixed(key));
        }
        let client = match self.index.get(key) {
            Some(client) => client,
            None if begins => match self.place(key, Direction::Return) {
                DEFAULT => return Err(HoldError::NoSlot(key)),
                client => client,
            },
            None => return Ok(ByDirection::default()),
        };
        let ids = Direction::BOTH.map(|d| pipe_id(client, d));
        if begins && ids.iter().any(|id| self.slots[*id as usize].pipe.is_in_beam()) {
            return Err(HoldError::Beam(key));
        }
        let now = self.now;
        let mut looks = ByDirection::default();
        for direction in Direction::BOTH {
            let id = ids[direction as usize];
            self.advance_beam_of(id, now);
            self.catch_up(id);
            let pipe = &mut self.slots[id as usize].pipe;
            match hold {
                Hold::Keep => pipe.serve_until(&mut self.shared, now),
                Hold::Begin(span) => {
                    pipe.hold(&mut self.shared, now, now + span.min(MAX_HOLD));
                }
                Hold::End(due) => pipe.end_hold(&mut self.shared, now, due[direction]),
            }
            looks[direction] = pipe.look_at();
            self.reschedule(id);
        }
        Ok(looks)
    }
}
