// SPDX-License-Identifier: Apache-2.0
//! Frames that are held back, so that others overtake them ([`crate::reorder`]).

use crate::frame::Buffer;
use crate::reorder::Reorder;
use crate::stats::DropReason;
use crate::store::Head;
use crate::units::{Instant, Nanos};

use super::{Pipe, Shared};

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
        shared: &mut Shared<B>,
        (arrived, finish): (Instant, Instant),
        due: Instant,
        len: u32,
    ) {
        // After a change to less, together with those that were held back before it.
        let due = due.max(self.cold.aside_last);
        self.cold.aside_last = due;
        if self.reports_schedule {
            self.observe_schedule(shared, arrived, due, len);
        }
        if self.fifo.set_aside(&mut shared.store, &mut self.cold.aside, due).is_err() {
            self.drop_queued(shared, finish, DropReason::Overload, len);
        } else if self.aside_due == Instant::MAX {
            self.aside_due = due;
            self.look_for_special();
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
    pub(super) fn sent_aside<B: Buffer>(&mut self, shared: &mut Shared<B>) {
        self.cold.aside.pop(&mut shared.store);
        self.aside_due = match self.cold.aside.head() {
            Some(Head::Due(due)) => due,
            _ => Instant::MAX,
        };
        self.look_for_special();
    }
}
