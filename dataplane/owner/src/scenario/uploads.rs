// SPDX-License-Identifier: Apache-2.0
//! The uploaded steps of a scenario that were not handed over yet, bounded in number and bytes.

use prost::Message;
use proto::dataplane::v1 as dp;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tonic::Status;

/// Steps that are kept at most.
const STEPS: usize = 4096;
/// Encoded bytes of them.
const BYTES: usize = 8 << 20;

/// The steps. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Uploads {
    kept: Arc<Mutex<Kept>>,
    extended: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Kept {
    steps: VecDeque<dp::Step>,
    bytes: usize,
    next_index: u64,
    /// Instant of the last step.
    last_ns: u64,
    complete: bool,
    /// The step that waits for an event.
    waiting: Option<dp::Step>,
}

impl Uploads {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The steps of a new run. If they are refused, nothing has changed.
    pub fn begin(&self, steps: Vec<dp::Step>, complete: bool) -> Result<(), Status> {
        let mut kept = Kept::default();
        kept.extend(steps, complete)?;
        *self.kept() = kept;
        Ok(())
    }

    /// Further steps. If they are refused, nothing has changed.
    pub fn extend(&self, steps: Vec<dp::Step>, complete: bool) -> Result<(), Status> {
        self.kept().extend(steps, complete)?;
        self.extended.notify_one();
        Ok(())
    }

    /// Waits for [`Self::extend`].
    pub async fn extended(&self) {
        self.extended.notified().await;
    }

    /// Index of the next step to upload; none if all are uploaded.
    pub fn next_index(&self) -> Option<u64> {
        let kept = self.kept();
        (!kept.complete).then_some(kept.next_index)
    }

    pub fn room(&self) -> u32 {
        let kept = self.kept();
        let room = STEPS.saturating_sub(kept.steps.len());
        let room = if kept.bytes < BYTES / 2 { room } else { 0 };
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// The next step and the ones after it.
    pub fn ahead(&self, count: usize) -> Vec<dp::Step> {
        self.kept().steps.iter().take(count).cloned().collect()
    }

    /// Instant of the next step.
    pub fn next_ns(&self) -> Option<u64> {
        self.kept().steps.front().map(|step| step.at_ns)
    }

    /// Whether the next step changes other links too.
    pub fn next_has_links(&self) -> bool {
        self.kept().steps.front().is_some_and(|step| !step.links.is_empty())
    }

    pub fn take(&self) -> Option<dp::Step> {
        let mut kept = self.kept();
        let step = kept.steps.pop_front()?;
        kept.bytes -= step.encoded_len();
        Some(step)
    }

    /// Returns steps that were taken and withdrawn, in their order.
    pub fn put_back(&self, steps: impl DoubleEndedIterator<Item = dp::Step>) {
        let mut kept = self.kept();
        for step in steps.rev() {
            kept.bytes += step.encoded_len();
            kept.steps.push_front(step);
        }
    }

    /// The step that waits for an event.
    pub fn waiting(&self) -> Option<dp::Step> {
        self.kept().waiting.clone()
    }

    pub fn set_waiting(&self, step: Option<dp::Step>) {
        self.kept().waiting = step;
    }
}

impl Kept {
    fn extend(&mut self, steps: Vec<dp::Step>, complete: bool) -> Result<(), Status> {
        let (mut next, mut last_ns) = (self.next_index, self.last_ns);
        if self.complete && !steps.is_empty() {
            return Err(Status::failed_precondition("steps: all steps were uploaded before"));
        }
        for step in &steps {
            if step.index != next {
                let given = step.index;
                return Err(Status::out_of_range(format!(
                    "steps: step {given} was given and step {next} is the next one"
                )));
            }
            if step.at_ns < last_ns {
                return Err(Status::invalid_argument(format!(
                    "steps: step {next} is earlier than the one before it"
                )));
            }
            (next, last_ns) = (next + 1, step.at_ns);
        }
        let bytes = self.bytes + steps.iter().map(Message::encoded_len).sum::<usize>();
        let count = self.steps.len() + steps.len();
        if count > STEPS || bytes > BYTES {
            return Err(Status::resource_exhausted(format!(
                "steps: {count} steps of {bytes} bytes in all are more than {STEPS} steps or \
                 {BYTES} bytes: upload fewer, and the rest when some have been made"
            )));
        }
        (self.next_index, self.last_ns, self.bytes) = (next, last_ns, bytes);
        self.complete |= complete;
        self.steps.extend(steps);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn step(index: u64, at_ns: u64) -> dp::Step {
        dp::Step { index, at_ns, ..Default::default() }
    }

    #[test]
    fn steps_out_of_order_are_refused_and_change_nothing() {
        let uploads = Uploads::default();
        uploads.begin(vec![step(0, 5)], false).unwrap();
        for (steps, code) in [
            (vec![step(1, 5), step(3, 6)], Code::OutOfRange),
            (vec![step(1, 5), step(2, 4)], Code::InvalidArgument),
            ((1..5_000).map(|n| step(n, n + 5)).collect(), Code::ResourceExhausted),
        ] {
            assert_eq!(uploads.extend(steps, true).unwrap_err().code(), code);
            assert_eq!((uploads.next_index(), uploads.room()), (Some(1), 4_095));
        }
        uploads.extend(vec![step(1, 5)], true).unwrap();
        assert_eq!(uploads.next_index(), None);
        assert_eq!(
            uploads.extend(vec![step(2, 5)], true).unwrap_err().code(),
            Code::FailedPrecondition
        );
    }

    #[test]
    fn withdrawn_steps_come_first_again() {
        let uploads = Uploads::default();
        uploads.begin((0..4).map(|n| step(n, n)).collect(), true).unwrap();
        let taken = [uploads.take().unwrap(), uploads.take().unwrap()];
        uploads.put_back(taken.into_iter());
        let indexes: Vec<_> = uploads.ahead(9).iter().map(|step| step.index).collect();
        assert_eq!(indexes, [0, 1, 2, 3]);
        while uploads.take().is_some() {}
        assert_eq!(uploads.kept().bytes, 0);
    }
}
