// SPDX-License-Identifier: Apache-2.0
//! Release: frames that are due go to the egress, pipe by pipe.
//!
//! A release does a bounded amount of work. That the egress took no frame does not mean that none is
//! due: the visited pipes may have had only records of lost frames. [`Released::more`] tells, and
//! [`Engine::next_deadline`].

use crate::client::ClientKey;
use crate::frame::{Buffer, Frame, NoBuffer};
use crate::store::Held;
use crate::tag::Tagged;
use crate::units::{ByDirection, Direction, Instant, Nanos};
use crate::wheel::Wheel;

use super::lateness::Counted;
use super::ready::Ready;
use super::{Engine, LOOKS, QUANTUM, SERVED, SERVICE_LINES, SETTLED, Slot};

#[derive(Debug)]
pub struct Departure<'a, B = NoBuffer> {
    pub client: &'a ClientKey,
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

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// Frames that the egress took.
    pub frames: usize,
    /// Whether more may be due at the same instant that the egress has not refused: the budget is spent,
    /// the work of a release is bounded, or the visited pipes had only records of lost frames.
    pub more: bool,
}

impl Slot {
    /// Inserts the pipe `id`, which is not ready, into the wheel if its next deadline is before those that
    /// the wheel knows.
    #[inline]
    fn schedule(&mut self, wheel: &mut Wheel, id: u32, deadline: Instant) {
        if deadline < self.scheduled {
            if self.scheduled != Instant::MAX {
                (self.later, self.has_later) = (self.scheduled, true);
            }
            self.scheduled = deadline;
            wheel.insert(id, deadline);
        }
    }

    /// As [`Engine::reschedule`], of the pipe `id`.
    #[inline(always)]
    pub(super) fn reschedule(&mut self, wheel: &mut Wheel, ready: &Ready, id: u32) {
        let deadline = self.pipe.deadline();
        if deadline < self.scheduled && !ready.contains(id) {
            self.schedule(wheel, id, deadline);
        }
    }
}

/// The way of frames to the egress in a release at `now`.
struct Outlet {
    now: Instant,
    /// When frames are offered; read again after `unread` frames.
    offered: Instant,
    unread: usize,
}

impl Outlet {
    /// Offers a frame. Returns how late it was taken; nothing if it was refused.
    #[inline(always)]
    fn offer<B: Buffer>(
        &mut self,
        egress: &mut impl Egress<B>,
        lateness: &mut Counted,
        (client, direction): (&ClientKey, Direction),
        due: Instant,
        (frame, tagged, _): Held<'_, B>,
    ) -> Option<Nanos> {
        if self.unread == 0 {
            self.offered = egress.now(self.now).max(self.now);
            self.unread = QUANTUM;
        }
        self.unread -= 1;
        if !egress.offer(Departure { client, direction, due, frame, tagged }) {
            return None;
        }
        let late = self.offered.since(due);
        lateness.count(late);
        Some(late)
    }
}

/// The egress has refused a frame of `direction`.
#[cold]
#[inline(never)]
fn refuse<B>(refused: &mut ByDirection<bool>, egress: &impl Egress<B>, direction: Direction) {
    refused[direction] = egress.is_full(direction);
}

impl<B: Buffer> Engine<B> {
    /// Offers up to `budget` frames that are due at `now` to `egress`, pipe by pipe
    /// in turns of a few frames. Returns the number taken. After 0 frames more can be due:
    /// [`Engine::next_deadline`] tells.
    pub fn release(&mut self, now: Instant, budget: usize, egress: &mut impl Egress<B>) -> usize {
        self.release_some(now, None, budget, egress).frames
    }

    /// As [`Engine::release`], of `only` one direction if there is one: nothing of the other one is
    /// advanced, and all pipes take pending changes first. Repeated until there is no `more`, it misses
    /// nothing that is due.
    #[inline(always)]
    pub(crate) fn release_some(
        &mut self,
        now: Instant,
        only: Option<Direction>,
        budget: usize,
        egress: &mut impl Egress<B>,
    ) -> Released {
        self.now = self.now.max(now);
        let now = self.now;
        if only.is_some() {
            self.settle_all();
        }
        self.expire(now);
        let mut more = false;
        if self.beams.lagging() > 0 {
            more = self.serve_beams(now, only);
            // Frames that have left a beam may be due.
            self.expire(now);
        }
        let mut sent = 0;
        let mut refused = ByDirection(Direction::BOTH.map(|d| only.is_some_and(|only| only != d)));
        let mut outlet = Outlet { now, offered: now, unread: 0 };
        if self.oldest != self.version {
            self.prefetch_changes_of_due();
        }
        // Each ready pipe is visited; one with more frames is visited again while the
        // budgets last.
        let (mut looked, mut vain, mut served) = (0, 0, 0);
        // Whether one of those without result can give more: it had only records of lost frames.
        let mut unfinished = false;
        while sent < budget && looked < self.ready.len() && vain < LOOKS && served < SERVED {
            self.look_ahead();
            let Some(id) = self.ready.next() else { break };
            let direction = Direction::BOTH[id as usize % 2];
            let slot = &mut self.slots[id as usize];
            let behind = slot.version != self.version;
            if behind && self.settled >= SETTLED {
                // The pipes after it wait as well: to look for one without a pending change would take long.
                self.ready.back();
                break;
            }
            if refused[direction] {
                self.ready.again(id);
                looked += 1;
                // Those of the other direction are not bounded: behind them are some of this one.
                vain += usize::from(only.is_none_or(|only| only == direction));
                continue;
            }
            let slot = if behind || slot.asked != self.observer {
                self.catch_up_late(id);
                &mut self.slots[id as usize]
            } else {
                slot
            };
            let Self { shared, lateness, ready, wheel, .. } = self;
            let Slot { client, pipe, .. } = slot;
            let turn = QUANTUM.min(budget - sent);
            served += pipe.look(shared, now, SERVED - served);
            let from = (&*client, direction);
            let (n, is_refused) = if pipe.is_plain() {
                pipe.release_run(shared, now, turn, |due, held| {
                    outlet.offer(egress, lateness, from, due, held)
                })
            } else {
                pipe.release_each(shared, now, turn, &mut |due, held| {
                    outlet.offer(egress, lateness, from, due, held)
                })
            };
            if is_refused {
                refuse(&mut refused, egress, direction);
            }
            sent += n;
            if n > 0 {
                (looked, unfinished) = (0, false);
            } else {
                vain += 1;
            }
            let deadline = pipe.deadline();
            if deadline <= now {
                ready.again(id);
                looked += usize::from(n == 0);
                unfinished |= n == 0 && !is_refused;
            } else {
                ready.leave(id);
                if slot.scheduled <= now {
                    let is_known = std::mem::take(&mut slot.has_later) && slot.later > now;
                    slot.scheduled = if is_known { slot.later } else { Instant::MAX };
                }
                slot.schedule(wheel, id, deadline);
            }
        }
        more |= unfinished || looked < self.ready.len();
        self.settle();
        self.settled = 0;
        Released { frames: sent, more }
    }

    #[cold]
    #[inline(never)]
    fn prefetch_changes_of_due(&self) {
        let next = self.ready.upcoming(SETTLED as usize);
        next.iter().for_each(|id| self.prefetch_slot::<SERVICE_LINES>(*id));
        self.prefetch_changes(next.iter().copied());
    }

    /// Takes events that are due at `now` out of the wheel.
    pub(super) fn expire(&mut self, now: Instant) {
        let Self { wheel, ready, beams, .. } = self;
        ready.rewind();
        wheel.expire(now, |id| {
            if !ready.add(id) {
                beams.lag(id - ready.room() as u32);
            }
        });
    }

    #[inline]
    pub(super) fn look_ahead(&self) {
        if let Some(id) = self.ready.ahead(6) {
            self.prefetch_slot::<1>(id);
        }
        if let Some(id) = self.ready.ahead(3) {
            self.slots[id as usize].pipe.prefetch_head(&self.shared.store);
        }
    }

    /// Inserts a pipe into the wheel for its next deadline. It may expire earlier, and too
    /// often, which is harmless.
    #[inline(always)]
    pub(super) fn reschedule(&mut self, id: u32) {
        let Self { slots, ready, wheel, .. } = self;
        slots[id as usize].reschedule(wheel, ready, id);
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
