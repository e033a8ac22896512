// SPDX-License-Identifier: Apache-2.0
//! Accounts, and regular visits to idle clients.

use crate::frame::Buffer;
use crate::stats::{ClientStats, Snapshot};
use crate::units::{ByDirection, Direction, Instant};

use super::{Engine, pipe_id};

impl<B: Buffer> Engine<B> {
    /// Advances one client to `now`, another one on each call. An automatic client that
    /// has been idle for [`Limits::idle`](super::Limits) expires.
    pub fn keep_up(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.kept_up = (self.kept_up + 1) % self.clients();
        for d in Direction::BOTH {
            let id = pipe_id(self.kept_up as u32, d);
            self.advance_beam_of(id, self.now);
            self.catch_up(id);
            self.slots[id as usize].pipe.keep_up(&mut self.shared, self.now);
            self.reschedule(id);
        }
        self.expire_if_idle(self.kept_up as u32);
    }

    /// Whether the last visit of [`Engine::keep_up`] ended a turn through all clients.
    pub(crate) fn kept_all_up(&self) -> bool {
        self.kept_up == 0
    }

    /// Writes the accounts at `now` into `out`; with `mark`, resets the high-water
    /// marks and the lateness.
    pub fn snapshot(&mut self, now: Instant, mark: bool, out: &mut Snapshot) {
        out.clients.clear();
        self.snapshot_some(now, usize::MAX, mark, out);
    }

    /// As [`Engine::snapshot`], but in parts: each call adds up to `most` clients to
    /// `out`, each with its accounts at that call's `now`. Returns whether
    /// it is complete.
    pub fn snapshot_some(
        &mut self,
        now: Instant,
        most: usize,
        mark: bool,
        out: &mut Snapshot,
    ) -> bool {
        self.now = self.now.max(now);
        self.advance_beams(self.now);
        if out.clients.is_empty() {
            self.reported = 0;
        }
        let end = self.clients().min(self.reported.saturating_add(most));
        for client in self.reported..end {
            if self.is_vacant(client) {
                continue;
            }
            let pipes = Direction::BOTH.map(|d| {
                let id = pipe_id(client as u32, d);
                self.catch_up(id);
                let pipe = &mut self.slots[id as usize].pipe;
                pipe.serve_until(&mut self.shared, self.now);
                let stats = pipe.stats();
                if mark {
                    pipe.mark();
                }
                self.reschedule(id);
                stats
            });
            let key = self.slots[2 * client].client;
            let index = Some(client as u32);
            out.clients.push(ClientStats { key, index, pipes: ByDirection(pipes) });
        }
        self.reported = end;
        if end < self.clients() {
            return false;
        }
        self.reported = 0;
        out.clients.extend(self.expired.stats(mark));
        out.at = self.now;
        out.generation = self.generation;
        out.lateness = self.lateness.quantiles();
        out.malformed = self.malformed;
        out.unplaced = self.unplaced;
        out.store_capacity = self.shared.store.capacity();
        out.store_used = self.shared.store.used();
        out.store_used_max = self.shared.store.used_max();
        out.buffers = self.shared.store.buffers();
        if mark {
            self.lateness.reset();
            self.shared.store.mark();
        }
        true
    }
}
