// SPDX-License-Identifier: Apache-2.0
//! A bounded log of events, with watchers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Entries that are kept for late watchers.
const KEPT: usize = 4096;

/// The last 4096 entries. Clones share them.
#[derive(Clone, Debug)]
pub struct Journal<T> {
    kept: Arc<Mutex<VecDeque<T>>>,
    /// Sequence of the last entry; the first one has 1.
    last: watch::Sender<u64>,
}

/// The answer to a watcher.
#[derive(Clone, Debug, PartialEq)]
pub enum Next<T> {
    /// The entry, with its sequence.
    Entry(u64, T),
    /// The oldest entry that is kept has this sequence.
    Gone(u64),
    /// It has not happened yet.
    Nothing,
}

impl<T> Default for Journal<T> {
    fn default() -> Self {
        Self { kept: Arc::default(), last: watch::Sender::new(0) }
    }
}

impl<T: Clone> Journal<T> {
    fn kept(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an entry, which `make` may number, and wakes all watchers. Returns its sequence.
    pub fn push(&self, make: impl FnOnce(u64) -> T) -> u64 {
        let mut kept = self.kept();
        let sequence = *self.last.borrow() + 1;
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(make(sequence));
        self.last.send_replace(sequence);
        sequence
    }

    /// The sequence of the last entry, and each change of it.
    #[must_use]
    pub fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// The entry that follows the sequence `after`.
    #[must_use]
    pub fn next(&self, after: u64) -> Next<T> {
        let kept = self.kept();
        let oldest = *self.last.borrow() + 1 - kept.len() as u64;
        if after + 1 < oldest {
            return Next::Gone(oldest);
        }
        let place = usize::try_from(after + 1 - oldest).unwrap_or(usize::MAX);
        kept.get(place).map_or(Next::Nothing, |entry| Next::Entry(after + 1, entry.clone()))
    }

    /// The sequence before the oldest entry that is kept.
    #[must_use]
    pub fn before_all(&self) -> u64 {
        // Locks in the order of `push`: the entries, then the sequence.
        let kept = self.kept();
        *self.last.borrow() - kept.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watcher_gets_each_entry_once_and_learns_of_lost_ones() {
        let journal = Journal::default();
        assert_eq!(journal.next(0), Next::Nothing);
        for n in 1..=3 {
            assert_eq!(journal.push(|sequence| sequence * 10), n);
        }
        assert_eq!((journal.next(0), journal.next(2)), (Next::Entry(1, 10), Next::Entry(3, 30)));
        assert_eq!((journal.next(3), journal.next(u64::MAX - 1)), (Next::Nothing, Next::Nothing));
        for _ in 0..KEPT {
            journal.push(|sequence| sequence);
        }
        assert_eq!((journal.next(2), journal.before_all()), (Next::Gone(4), 3));
        assert_eq!(journal.next(3), Next::Entry(4, 4));
    }

    #[test]
    fn watchers_and_a_writer_do_not_block_each_other() {
        const ENTRIES: u64 = 200_000;
        let journal = Journal::default();
        let (done, ended) = std::sync::mpsc::channel();
        let writer = journal.clone();
        std::thread::spawn({
            let done = done.clone();
            move || {
                for _ in 0..ENTRIES {
                    writer.push(|sequence| sequence);
                }
                done.send(())
            }
        });
        std::thread::spawn(move || {
            while journal.next(journal.before_all()) != Next::Entry(ENTRIES, ENTRIES)
                && *journal.last().borrow() < ENTRIES
            {}
            done.send(())
        });
        for _ in 0..2 {
            ended.recv_timeout(std::time::Duration::from_secs(60)).expect("a thread is blocked");
        }
    }
}
