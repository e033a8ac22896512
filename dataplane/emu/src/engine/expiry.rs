// SPDX-License-Identifier: Apache-2.0
//! Which addresses become clients, and when those clients expire.
//!
//! A client is made for an address that is seen on the client side: as the source of an IP packet,
//! or when it is resolved for a host on the `wan` side. So a scan from there makes no clients.
//!
//! [`Engine::keep_up`] looks at one client after another, so that packets pay nothing for it. A
//! client that has expired and comes back is a new one: its random streams are others than those
//! that it had before, until a restart of the random processes.

use crate::classify::resolved_client;
use crate::client::ClientKey;
use crate::frame::Buffer;
use crate::stats::{ClientStats, PipeStats};
use crate::units::{ByDirection, Direction, Instant, Nanos};

use super::{DEFAULT, Engine, FIXED, pipe_id};

/// When a packet last arrived for a client, to the resolution of [`Engine::keep_up`]'s visits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Activity {
    /// Packets that had arrived at the last visit, both directions.
    received: u64,
    at: Instant,
}

/// The clients that have expired.
#[derive(Debug, Default)]
pub(super) struct Expired {
    /// Number of clients that have expired.
    clients: u32,
    /// Number of clients that have expired since the last restart of the random processes.
    pub(super) since_restart: u32,
    /// The sum of their accounts.
    pipes: ByDirection<PipeStats>,
    /// Client numbers that are free.
    pub(super) vacant: Vec<u32>,
}

impl Expired {
    /// Their accounts, if any client has expired; with `mark`, resets the high-water marks.
    pub(super) fn stats(&mut self, mark: bool) -> Option<ClientStats> {
        let stats = ClientStats { key: ClientKey::Expired, index: None, pipes: self.pipes };
        if mark {
            self.pipes.0.iter_mut().for_each(|pipe| pipe.queue_max_bytes = 0);
        }
        (self.clients > 0).then_some(stats)
    }
}

impl<B: Buffer> Engine<B> {
    /// The client of a key that no client has: a new one if there may be, else the default one.
    pub(super) fn place(&mut self, key: ClientKey, direction: Direction) -> u32 {
        if !self.may_be_made(key, direction) {
            return DEFAULT;
        }
        if !self.has_slot(key) {
            self.unplaced[direction] += 1;
            return DEFAULT;
        }
        self.admit(key)
    }

    /// A frame that is not impaired came from the client side. If it resolves an address, that
    /// is a client from now on.
    pub(super) fn resolve(&mut self, frame: &[u8], pair: u8) {
        let direction = Direction::Return;
        let Some(key) = resolved_client(frame, direction) else { return };
        let key = self.owner(key, direction, frame, pair);
        let is_new = self.index.get(key).is_none();
        // A reply without a free slot is not counted as unplaced: later packets of the client are.
        if is_new && self.may_be_made(key, direction) && self.has_slot(key) {
            self.admit(key);
        }
    }

    /// Whether a frame of this direction makes a client of the key, where there is a slot.
    fn may_be_made(&self, key: ClientKey, direction: Direction) -> bool {
        let few = self.rules.automatic.is_none_or(|most| self.automatic < most);
        match key {
            ClientKey::Ip(_) => direction == Direction::Return && few,
            ClientKey::Named(_) => true,
            ClientKey::Bypass | ClientKey::Default | ClientKey::Expired => false,
        }
    }

    /// Whether there is a slot for one more client. Those of clients that rules name are not
    /// given to others.
    fn has_slot(&self, key: ClientKey) -> bool {
        let left = self.limits.clients.saturating_sub(self.rules.reserved);
        let is_automatic = matches!(key, ClientKey::Ip(_));
        let used = self.clients() - self.expired.vacant.len();
        used < (self.limits.clients + FIXED) as usize && (!is_automatic || self.automatic < left)
    }

    /// Expires a client that has been idle for [`Limits::idle`](super::Limits) and holds nothing. It
    /// was brought up to this instant before.
    pub(super) fn expire_if_idle(&mut self, client: u32) {
        let ids = Direction::BOTH.map(|d| pipe_id(client, d) as usize);
        let ClientKey::Ip(address) = self.slots[ids[0]].client else { return };
        let received = ids.map(|id| self.slots[id].pipe.received()).iter().sum();
        let activity = &mut self.activity[client as usize];
        if activity.received != received {
            *activity = Activity { received, at: self.now };
        }
        let is_empty =
            |id: &usize| self.slots[*id].pipe.is_empty() && self.beams.is_away(*id as u32);
        // A report that is being written in parts may have this client's accounts already.
        let stays = self.limits.idle == Nanos::ZERO
            || self.limits.offloaded > 0
            || self.reported > 0
            || self.now.since(activity.at) < self.limits.idle;
        if stays || !ids.iter().all(is_empty) {
            return;
        }
        for (sum, id) in self.expired.pipes.0.iter_mut().zip(ids) {
            let slot = &mut self.slots[id];
            *sum = sum.plus(&slot.pipe.stats());
            slot.pipe.retire(&mut self.shared);
            slot.client = ClientKey::Expired;
        }
        self.index.remove(address);
        self.automatic -= 1;
        self.expired.clients += 1;
        self.expired.since_restart += 1;
        self.expired.vacant.push(client);
    }

    /// Frames of clients that there was no slot for.
    #[must_use]
    pub fn unplaced(&self) -> u64 {
        self.unplaced.0.iter().sum()
    }

    /// Whether a client's slot is vacant.
    pub(super) fn is_vacant(&self, client: usize) -> bool {
        self.slots[2 * client].client == ClientKey::Expired
    }

    /// Begins the record of a client that was just made.
    pub(super) fn begin_activity(&mut self, client: u32) {
        let activity = Activity { received: 0, at: self.now };
        match self.activity.get_mut(client as usize) {
            Some(before) => *before = activity,
            None => self.activity.push(activity),
        }
    }
}
