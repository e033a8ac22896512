// SPDX-License-Identifier: Apache-2.0
//! What a tap sees of the pipe's frames.

use super::*;

impl Pipe {
    pub(super) fn sighting(
        &self,
        point: Point,
        at: Instant,
        number: Option<u64>,
        len: u32,
    ) -> Sighting {
        let Cold { client, direction, .. } = *self.cold;
        Sighting { at, client, direction, point, number, len }
    }

    /// Lets the tap see a frame that arrives, if there is a tap; its tag then.
    #[inline(never)]
    pub(super) fn see_arrival<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        at: Instant,
        frame: &[u8],
        len: u32,
    ) -> Option<u32> {
        if store.tap().is_none() {
            // It has been taken away.
            self.tapped = false;
            return None;
        }
        let (tag, number) = store.next_tag();
        let seen = self.sighting(Point::Ingress, at, Some(number), len);
        store.tap_mut()?.see(seen, frame);
        Some(tag)
    }

    /// Lets the tap see a frame that is held, if there is a tap.
    #[inline(never)]
    pub(super) fn see<B: Buffer>(
        &self,
        store: &mut Store<B>,
        point: Point,
        at: Instant,
        place: Option<Place>,
        len: u32,
    ) {
        let Some((place, mut tap)) = place.zip(store.lift_tap()) else { return };
        store.show(place, |frame, number| tap.see(self.sighting(point, at, number, len), frame));
        store.lower_tap(tap);
    }

    /// Lets the tap see the frame at the head of a delay line, which will be offered to the
    /// egress.
    #[inline(never)]
    pub(super) fn see_offer<B: Buffer>(&self, store: &mut Store<B>, fifo: &Fifo) {
        let Some((place, mut tap)) = fifo.place_due().zip(store.lift_tap()) else { return };
        store.show(place, |frame, number| {
            let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            tap.offer(self.sighting(Point::Egress, Instant::ZERO, number, len), frame);
        });
        store.lower_tap(tap);
    }

    /// Whether the store's tap, if it has one, sees its frames.
    #[inline]
    #[must_use]
    pub fn is_tapped(&self) -> bool {
        self.tapped
    }

    /// Whether the store's tap sees its frames from here on.
    #[inline]
    pub fn set_tapped(&mut self, tapped: bool) {
        self.tapped = tapped;
    }
}
