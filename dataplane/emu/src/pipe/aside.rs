// SPDX-License-Identifier: Apache-2.0
//! Frames that are held back, so that others overtake them ([`crate::reorder`]).

use super::*;

impl Pipe {
    /// By how much the next frame is held back, if it is.
    #[inline(never)]
    pub(super) fn held_back(&mut self) -> Option<Nanos> {
        self.cold.reorder.as_mut().and_then(Reorder::holds_back)
    }

    /// Lets the frame at the head of the queue, of `len` bytes, which arrived at `arrived` and
    /// leaves the queue at `finish`, come out at `due`, past those that follow it.
    #[inline(never)]
    pub(super) fn hold_back<B: Buffer>(
        &mut self,
        store: &mut Store<B>,
        (arrived, finish): (Instant, Instant),
        due: Instant,
        len: u32,
    ) {
        // After a change to less, together with those that were held back before it.
        let due = due.max(self.cold.aside_last);
        self.cold.aside_last = due;
        if store.prefix() != 0 {
            self.close_shim(store, arrived, due);
        }
        let Cold { aside, aside_last, dropped, .. } = &mut *self.cold;
        if self.fifo.set_aside(store, aside, *aside_last).is_err() {
            self.held -= u64::from(len);
            dropped[DropReason::Overload as usize].add(len);
            if self.tapped {
                let place = self.fifo.place_queued();
                self.see(store, Point::Dropped(DropReason::Overload), finish, place, len);
            }
            self.fifo.depart(store, None);
        } else if self.aside_due == Instant::MAX {
            self.aside_due = *aside_last;
        }
    }

    /// Whether a frame that is held back comes before those in the delay line.
    #[inline]
    pub(super) fn is_aside_first(&self) -> bool {
        self.aside_due != Instant::MAX
            && match self.fifo.head() {
                Some(Head::Due(due)) => self.aside_due < due,
                Some(Head::Lost) => false,
                None => true,
            }
    }

    /// The first frame that is held back has been sent.
    #[cold]
    pub(super) fn sent_aside<B: Buffer>(&mut self, store: &mut Store<B>) {
        self.cold.aside.pop(store);
        self.aside_due = match self.cold.aside.head() {
            Some(Head::Due(due)) => due,
            _ => Instant::MAX,
        };
    }
}
