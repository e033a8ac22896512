// SPDX-License-Identifier: Apache-2.0
//! Reports of a pipe to the observer.
//!
//! Each function returns at once if the observer has been taken away meanwhile.

use crate::frame::Buffer;
use crate::observe::{Event, Scheduled, Scope, Subject};
use crate::store::{Fifo, Place};
use crate::tag::Tag;
use crate::units::Instant;

use super::{Cold, Pipe, Shared};

impl Pipe {
    fn subject(&self, len: u32) -> Subject {
        let Cold { client, index, direction, .. } = *self.cold;
        Subject { client, index, direction, len }
    }

    /// A frame arrives with `tag`. Returns the tag to store with it.
    #[inline(never)]
    pub(super) fn observe_arrival<B: Buffer>(
        &self,
        shared: &mut Shared<B>,
        at: Instant,
        tag: &[u8],
        (frame, len): (&[u8], u32),
    ) -> Tag {
        let mut tag = Tag::new(tag);
        if let Some(observer) = &mut shared.observer {
            observer.arrived(at, &self.subject(len), &mut tag, frame);
        }
        tag
    }

    /// Something happened to a frame that is held.
    #[inline(never)]
    pub(super) fn observe<B: Buffer>(
        &self,
        shared: &mut Shared<B>,
        event: Event,
        at: Instant,
        place: Option<Place>,
        len: u32,
    ) {
        let Some((place, observer)) = place.zip(shared.observer.as_mut()) else { return };
        let subject = self.subject(len);
        shared.store.look(place, |tag, frame| observer.happened(event, at, &subject, tag, frame));
    }

    /// Something happened to a frame that is not held.
    #[inline(never)]
    pub(super) fn observe_outside<B: Buffer>(
        &self,
        shared: &mut Shared<B>,
        event: Event,
        at: Instant,
        tag: &[u8],
        (frame, len): (&[u8], u32),
    ) {
        if let Some(observer) = &mut shared.observer {
            observer.happened(event, at, &self.subject(len), tag, frame);
        }
    }

    /// The frame at the head of the queue, which arrived at `arrived`, will leave at `due`.
    /// The plan under which it leaves the queue decides what is done behind the egress.
    #[inline(never)]
    pub(super) fn observe_schedule<B: Buffer>(
        &self,
        shared: &mut Shared<B>,
        arrived: Instant,
        due: Instant,
        len: u32,
    ) {
        let queued = self.fifo.place_queued();
        let Some((place, observer)) = queued.zip(shared.observer.as_mut()) else { return };
        let scheduled = Scheduled { arrived, due, loss: self.cold.loss };
        let subject = self.subject(len);
        shared.store.edit_tag(place, |tag| observer.scheduled(&scheduled, &subject, tag));
    }

    /// The frame at the head of a delay line will be offered to the egress.
    #[inline(never)]
    pub(super) fn observe_offer<B: Buffer>(&self, shared: &mut Shared<B>, fifo: &Fifo) {
        let Some((place, observer)) = fifo.place_due().zip(shared.observer.as_mut()) else {
            return;
        };
        shared.store.look(place, |tag, frame| {
            let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            observer.offered(&self.subject(len), tag, frame);
        });
    }

    #[inline]
    pub fn set_scope(&mut self, scope: Scope) {
        let observed = matches!(scope, Scope::Frames | Scope::Everything);
        let reports = matches!(scope, Scope::Schedule | Scope::Everything);
        if (self.observed, self.reports_schedule) != (observed, reports) {
            (self.observed, self.reports_schedule) = (observed, reports);
            self.look_for_special();
        }
    }
}
