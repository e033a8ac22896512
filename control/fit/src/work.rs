// SPDX-License-Identifier: Apache-2.0
//! Progress of a fit or a verification, and its cancellation from another thread.
//!
//! [`observe`] runs a computation of this crate with an [`Observer`]. The observer belongs to the
//! thread: functions of this crate report to it and ask it, and their signatures stay free of it.
//! After a cancellation they end early with results that mean nothing, which [`observe`] discards.
//! Without an observer, no progress is reported, and work cannot be cancelled.

use std::cell::RefCell;
use std::sync::Arc;

/// Watches a computation. Its methods are called up to millions of times a second, on the thread of
/// the computation: they must not block.
pub trait Observer: Send + Sync {
    /// `done` is the share of the whole computation, 0 to 1. It does not fall.
    fn progress(&self, step: Step, done: f64);
    /// Whether to end early.
    fn is_cancelled(&self) -> bool;
}

/// What a computation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    Reading,
    Periods,
    Losses,
    Delays,
    Playing,
    Comparing,
}

impl Step {
    pub const ALL: [Self; 6] =
        [Self::Reading, Self::Periods, Self::Losses, Self::Delays, Self::Playing, Self::Comparing];

    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Reading => "reading the log",
            Self::Periods => "looking for periods",
            Self::Losses => "fitting losses",
            Self::Delays => "fitting delays",
            Self::Playing => "playing the link in virtual time",
            Self::Comparing => "comparing",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was cancelled")]
pub struct Cancelled;

struct Scope {
    observer: Arc<dyn Observer>,
    /// Part of the whole that the present phase is.
    phase: (f64, f64),
    step: Step,
    /// Part of the whole that the present step is.
    part: (f64, f64),
}

thread_local! {
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// Restores the previous observer, also after a panic.
struct Restore(Option<Scope>);

impl Drop for Restore {
    fn drop(&mut self) {
        SCOPE.set(self.0.take());
    }
}

/// Runs a computation on this thread with an observer.
///
/// # Errors
/// [`Cancelled`] if the observer has cancelled it, at its end at the latest.
pub fn observe<T>(
    observer: Arc<dyn Observer>,
    computation: impl FnOnce() -> T,
) -> Result<T, Cancelled> {
    let (phase, step) = ((0.0, 1.0), Step::Reading);
    let scope = Scope { observer: observer.clone(), phase, step, part: phase };
    let restore = Restore(SCOPE.replace(Some(scope)));
    let result = computation();
    drop(restore);
    if observer.is_cancelled() { Err(Cancelled) } else { Ok(result) }
}

/// What follows on this thread is this part of the whole, as shares of it.
pub fn phase(from: f64, to: f64) {
    SCOPE.with_borrow_mut(|scope| {
        if let Some(scope) = scope {
            scope.phase = (from, to);
        }
    });
}

/// A step begins, which is this part of the phase.
pub(crate) fn step(step: Step, from: f64, to: f64) {
    SCOPE.with_borrow_mut(|scope| {
        if let Some(scope) = scope {
            let (start, end) = scope.phase;
            let at = |share: f64| start + share * (end - start);
            (scope.step, scope.part) = (step, (at(from), at(to)));
            scope.observer.progress(step, scope.part.0);
        }
    });
}

/// Reports a share of the present step.
pub(crate) fn done(share: f64) {
    SCOPE.with_borrow(|scope| {
        if let Some(Scope { observer, step, part: (from, to), .. }) = scope {
            observer.progress(*step, from + share.clamp(0.0, 1.0) * (to - from));
        }
    });
}

pub(crate) fn is_cancelled() -> bool {
    SCOPE.with_borrow(|scope| scope.as_ref().is_some_and(|scope| scope.observer.is_cancelled()))
}

/// # Errors
/// If the computation of this thread was cancelled.
pub(crate) fn ongoing() -> Result<(), Cancelled> {
    if is_cancelled() { Err(Cancelled) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[derive(Default)]
    struct Notes(Mutex<Vec<(Step, f64)>>, AtomicBool);

    impl Observer for Notes {
        fn progress(&self, step: Step, done: f64) {
            self.0.lock().unwrap().push((step, done));
        }
        fn is_cancelled(&self) -> bool {
            self.1.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn progress_is_a_share_of_the_whole_and_only_within_the_scope() {
        let notes = Arc::new(Notes::default());
        let result = observe(notes.clone(), || {
            phase(0.5, 1.0);
            step(Step::Losses, 0.0, 0.5);
            done(0.5);
            done(7.0);
            is_cancelled()
        });
        assert_eq!(result, Ok(false));
        done(1.0);
        let expected = [0.5, 0.625, 0.75].map(|share| (Step::Losses, share));
        assert_eq!(*notes.0.lock().unwrap(), expected);
    }

    #[test]
    fn result_of_a_cancelled_computation_is_discarded() {
        let notes = Arc::new(Notes::default());
        let result = observe(notes.clone(), || {
            notes.1.store(true, Ordering::Relaxed);
            is_cancelled()
        });
        assert_eq!(result, Err(Cancelled));
        assert!(!is_cancelled());
        let panicked = std::panic::catch_unwind(|| observe(notes, || panic!("as it is")));
        assert!(panicked.is_err() && !is_cancelled());
    }
}
