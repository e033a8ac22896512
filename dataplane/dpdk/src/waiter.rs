// SPDX-License-Identifier: Apache-2.0
//! Sleeping until a packet arrives, for an idle worker.
//!
//! `net_af_packet` ports are waited on through their sockets. No other driver used here can wake a
//! thread, so with any other port the sleep is short. Moved to the worker thread.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::Duration;

/// Longest sleep if one of the ports cannot wake the thread.
const BLIND_SLEEP: Duration = Duration::from_micros(50);
/// Longest sleep while a socket reports an error, for example an interface that is down.
const ERROR_SLEEP: Duration = Duration::from_millis(1);

/// Waits for packets on a set of receive queues.
#[derive(Default)]
pub struct Waiter {
    polls: Vec<libc::pollfd>,
    owned: Vec<OwnedFd>,
    blind: bool,
}

impl Waiter {
    /// A waiter without sockets; it only sleeps.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A waiter for the `sockets` of one queue. Empty if its driver cannot wake the thread.
    pub(crate) fn of_queue(sockets: &[OwnedFd]) -> io::Result<Self> {
        let mut waiter = Self { blind: sockets.is_empty(), ..Self::default() };
        for socket in sockets {
            waiter.watch(socket.try_clone()?);
        }
        Ok(waiter)
    }

    /// Combines both waiters.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.polls.extend(other.polls);
        self.owned.extend(other.owned);
        self.blind |= other.blind;
        self
    }

    /// Also wakes when `fd` is readable, for example an eventfd of the control thread. The caller
    /// keeps a duplicate to read it.
    pub fn watch(&mut self, fd: OwnedFd) {
        self.polls.push(libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        self.owned.push(fd);
    }

    /// The descriptors waited on. The waiter owns them.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.owned.iter().map(AsRawFd::as_raw_fd)
    }

    /// True if some queue cannot wake the thread, so that [`wait`](Self::wait) sleeps at most 50
    /// µs.
    #[must_use]
    pub const fn is_blind(&self) -> bool {
        self.blind
    }

    /// Sleeps until a packet arrives, `timeout` expires or a signal arrives. Returns true if a
    /// packet arrived or a watched descriptor is readable. Wake-ups may be spurious or late: poll
    /// the queues in either case.
    pub fn wait(&mut self, timeout: Duration) -> bool {
        let timeout = if self.blind { timeout.min(BLIND_SLEEP) } else { timeout };
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let count = self.polls.len() as libc::nfds_t;
        // SAFETY: `polls` holds `count` valid entries, `owned` keeps their descriptors open;
        // `time` is valid; no signal mask is given.
        let ready = unsafe {
            libc::ppoll(self.polls.as_mut_ptr(), count, &raw const time, std::ptr::null())
        };
        if ready <= 0 {
            return false;
        }
        if self.polls.iter().any(|poll| poll.revents & libc::POLLIN != 0) {
            return true;
        }
        // Only errors: ppoll would return immediately until they are cleared.
        for poll in self.polls.iter().filter(|poll| poll.revents != 0) {
            clear_error(poll.fd);
        }
        thread::sleep(timeout.min(ERROR_SLEEP));
        false
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("owned", &self.owned).field("blind", &self.blind).finish()
    }
}

/// Reads a socket's pending error, which clears it.
fn clear_error(fd: RawFd) {
    let mut error: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `error` is writable for `len` bytes; other descriptors give ENOTSOCK.
    unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &raw mut len,
        );
    }
}

/// Sets the calling thread's timer slack to 1 ns instead of the default 50 µs.
///
/// # Errors
/// The system error if it does not support the setting.
pub fn minimise_timer_slack() -> io::Result<()> {
    nix::sys::prctl::set_timerslack(1).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    #[test]
    fn queue_without_wakeup_bounds_the_sleep() {
        let mut waiter = Waiter::new().and(Waiter::of_queue(&[]).unwrap());
        assert!(waiter.is_blind());
        let start = Instant::now();
        assert!(!waiter.wait(Duration::from_secs(3600)));
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn watched_descriptor_wakes_the_waiter() {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let mut waiter = Waiter::new();
        waiter.watch(reader.into());
        assert!(!waiter.wait(Duration::from_millis(1)));
        writer.write_all(b"x").unwrap();
        assert!(waiter.wait(Duration::from_secs(3600)));
    }

    #[test]
    fn timer_slack_can_be_minimised() {
        minimise_timer_slack().unwrap();
    }
}
