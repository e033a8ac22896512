// SPDX-License-Identifier: Apache-2.0
//! What the thread of a job and the rest of linkd share: progress and cancellation, without a lock.

use fit::work::{Observer, Step};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Control {
    is_cancelled: AtomicBool,
    /// Place of the step in [`Step::ALL`].
    step: AtomicU8,
    /// Bits of the share that is done: for positive numbers their order is that of the numbers.
    done: AtomicU64,
}

impl Control {
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// The step in words, and the share of the job that is done.
    pub fn progress(&self) -> (&'static str, f64) {
        let step = Step::ALL.get(usize::from(self.step.load(Ordering::Relaxed)));
        let done = f64::from_bits(self.done.load(Ordering::Relaxed));
        // Coarser, so that watchers get no message for each thousandth.
        (step.map_or("", |step| step.words()), (done * 200.0).floor() / 200.0)
    }
}

impl Observer for Control {
    fn progress(&self, step: Step, done: f64) {
        self.step.store(step as u8, Ordering::Relaxed);
        self.done.fetch_max(done.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}
