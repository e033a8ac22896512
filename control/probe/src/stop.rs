// SPDX-License-Identifier: Apache-2.0
//! Stops a blocking loop from another thread.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A request to stop one loop; a second request stops it without waiting. Clones share the request.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    requests: AtomicUsize,
    /// Wakes the loop out of its poll.
    reader: PipeReader,
    writer: PipeWriter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    None,
    /// Wait for the probes in flight.
    Finish,
    /// Abandon the probes in flight.
    Now,
}

impl Stop {
    /// Without a request.
    ///
    /// # Errors
    /// If the system has no pipe left.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self(Arc::new(Inner { requests: AtomicUsize::new(0), reader, writer })))
    }

    pub fn request(&self) {
        // The loop needs to be woken twice at most, and the pipe never fills.
        if self.0.requests.fetch_add(1, Ordering::Relaxed) < 2 {
            let _ = (&self.0.writer).write_all(&[0]);
        }
    }

    #[must_use]
    pub fn urgency(&self) -> Urgency {
        match self.0.requests.load(Ordering::Relaxed) {
            0 => Urgency::None,
            1 => Urgency::Finish,
            _ => Urgency::Now,
        }
    }

    /// Readable after a request until [`Self::woken`] is called.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.reader.as_fd()
    }

    /// Resets the wake-up. Blocks unless [`Self::fd`] is readable.
    pub(crate) fn woken(&self) {
        let _ = (&self.0.reader).read(&mut [0; 16]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_request_is_urgent_and_any_number_does_not_block() {
        let stop = Stop::new().unwrap();
        let same = stop.clone();
        assert_eq!(stop.urgency(), Urgency::None);
        same.request();
        assert_eq!(stop.urgency(), Urgency::Finish);
        (0..100_000).for_each(|_| same.request());
        assert_eq!(stop.urgency(), Urgency::Now);
    }
}
