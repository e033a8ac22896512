// SPDX-License-Identifier: Apache-2.0
//! Release: frames that are due go to the egress, pipe by pipe.

use crate::client::ClientKey;
use crate::frame::{Buffer, Frame, NoBuffer};
use crate::memory::prefetch_lines;
use crate::store::Head;
use crate::tag::Tagged;
use crate::units::{ByDirection, Direction, Instant};

use super::{Engine, LOOKS, QUANTUM, RELEASE_LINES, SERVED, SETTLED, Slot};

#[derive(Debug)]
pub struct Departure<'a, B = NoBuffer> {
    pub client: ClientKey,
    pub direction: Direction,
    /// When it was due.
    pub due: Instant,
    pub frame: Frame<'a, B>,
    pub tagged: Tagged<'a>,
}

impl<B: Buffer> Departure<'_, B> {
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.frame.bytes()
    }
}

/// The destination of frames.
pub trait Egress<B = NoBuffer> {
    /// Takes a frame, or refuses it with `false`: then the frame stays at the head of its
    /// pipe and is offered again. An implementation that accepts the frame takes its buffer
    /// out.
    fn offer(&mut self, departure: Departure<'_, B>) -> bool;

    /// After a refusal: whether all frames of the direction will be refused. If not, other pipes'
    /// frames are still offered.
    fn is_full(&self, _direction: Direction) -> bool {
        true
    }

    /// The time at which the next frames are offered, to compute their lateness.
    /// `turn`, the time of the turn, unless there is a clock.
    fn now(&mut self, turn: Instant) -> Instant {
        turn
    }
}

impl<B, F: FnMut(Departure<'_, B>) -> bool> Egress<B> for F {
    fn offer(&mut self, departure: Departure<'_, B>) -> bool {
        self(departure)
    }
}

impl<B: Buffer> Engine<B> {
    /// Offers up to `budget` frames that are due at `now` to `egress`, pipe by pipe
    /// in turns of a few frames. Returns the number taken.
    pub fn release(&mut self, now: Instant, budget: usize, egress: &mut impl Egress<B>) -> usize {
        self.release_some(now, None, budget, egress)
    }

    /// As [`Engine::release`], of `only` one direction if there is one: nothing of the other one is
    /// advanced, and all pipes take pending changes first, so that nothing that is due is missed.
    pub(crate) fn release_some(
        &mut self,
        now: Instant,
        only: Option<Direction>,
        budget: usize,
        egress: &mut impl Egress<B>,
    ) -> usize {
        self.now = self.now.max(now);
        let now = self.now;
        if only.is_some() {
            self.settle_all();
        }
        self.expire(now);
        if self.beams.lagging() > 0 {
            self.serve_beams(now, only);
            // Frames that have left a beam may be due.
            self.expire(now);
        }
        let mut sent = 0;
        let mut refused = ByDirection(Direction::BOTH.map(|d| only.is_some_and(|only| only != d)));
        // Frames are offered at `offered`, which is read again after `unread` frames.
        let (mut offered, mut unread) = (now, 0);
        // Each ready pipe is visited; one with more frames is visited again while the
        // budgets last.
        let (mut looked, mut vain, mut served) = (0, 0, 0);
        while sent < budget && looked < self.ready.len() && vain < LOOKS && served < SERVED {
            self.look_ahead();
            let Some(id) = self.ready.pop_front() else { break };
            let direction = Direction::BOTH[id as usize % 2];
            // A pipe with a pending change may have to wait for a later turn.
            let behind = self.slots[id as usize].version != self.version;
            if refused[direction] || behind && self.settled >= SETTLED {
                self.ready.push_back(id);
                looked += 1;
                vain += 1;
                continue;
            }
            self.catch_up(id);
            let Slot { client, pipe, .. } = &mut self.slots[id as usize];
            let turn = QUANTUM.min(budget - sent);
            served += pipe.look(&mut self.shared, now, SERVED - served);
            pipe.prefetch_kept(&self.shared.store, now, turn);
            let mut n = 0;
            while n < turn
                && let Some(head) = pipe.due(now)
            {
                if unread == 0 {
                    offered = egress.now(now).max(now);
                    unread = QUANTUM;
                }
                n += 1;
                unread -= 1;
                let Head::Due(due) = head else {
                    pipe.clear(&mut self.shared);
                    continue;
                };
                let Some((frame, tagged, len)) = pipe.frame(&mut self.shared) else { break };
                if !egress.offer(Departure { client: *client, direction, due, frame, tagged }) {
                    refused[direction] = egress.is_full(direction);
                    n -= 1;
                    break;
                }
                let late = offered.since(due);
                self.lateness.count(late);
                pipe.sent(&mut self.shared, len, offered, late);
            }
            sent += n;
            if n > 0 {
                looked = 0;
            } else {
                vain += 1;
            }
            if pipe.deadline().is_some_and(|d| d <= now) {
                self.ready.push_back(id);
                looked += usize::from(n == 0);
            } else {
                self.is_ready[id as usize] = false;
                let slot = &mut self.slots[id as usize];
                if slot.scheduled <= now {
                    slot.scheduled = if slot.later > now { slot.later } else { Instant::MAX };
                    slot.later = Instant::MAX;
                }
                self.reschedule(id);
            }
        }
        self.settle();
        self.settled = 0;
        sent
    }

    /// Takes events that are due at `now` out of the wheel.
    pub(super) fn expire(&mut self, now: Instant) {
        let Self { wheel, ready, is_ready, beams, .. } = self;
        wheel.expire(now, |id| match is_ready.get_mut(id as usize) {
            Some(is_ready) => {
                if !std::mem::replace(is_ready, true) {
                    ready.push_back(id);
                }
            }
            None => beams.lag(id - is_ready.len() as u32),
        });
    }

    #[inline]
    pub(super) fn look_ahead(&self) {
        if let Some(id) = self.ready.get(6) {
            prefetch_lines(&self.slots, *id as usize, RELEASE_LINES);
        }
        if let Some(id) = self.ready.get(3) {
            self.slots[*id as usize].pipe.prefetch_head(&self.shared.store);
        }
    }

    /// Inserts a pipe into the wheel for its next deadline. It may expire earlier, and too
    /// often, which is harmless.
    #[inline(always)]
    pub(super) fn reschedule(&mut self, id: u32) {
        if self.is_ready[id as usize] {
            return;
        }
        let slot = &mut self.slots[id as usize];
        if let Some(t) = slot.pipe.deadline()
            && t < slot.scheduled
        {
            slot.later = slot.scheduled;
            slot.scheduled = t;
            self.wheel.insert(id, t);
        }
    }

    /// The next time at which there is something to release; refused frames and a pending
    /// change of a pipe count as due now.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let changes = self.oldest != self.version;
        let now = !self.ready.is_empty() || self.beams.lagging() > 0 || changes;
        if now { Some(self.now) } else { self.wheel.next_deadline() }
    }
}
