// SPDX-License-Identifier: Apache-2.0
//! What a process tells the service manager that started it: sd_notify(3), `Type=notify` and
//! `WatchdogSec=` of systemd.service(5).
//!
//! Without a service manager (no `NOTIFY_SOCKET`) nothing is told and nothing fails.

use std::io;
use std::time::Duration;

use sd_notify::NotifyState;

/// Tells that the process serves, and what it does, in words.
///
/// # Errors
/// If the service manager does not listen: it takes the start for failed, and ends the process.
pub fn ready(status: &str) -> io::Result<()> {
    sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&line(status))])
}

/// Tells what the process does, in words.
///
/// # Errors
/// If the service manager does not listen.
pub fn status(status: &str) -> io::Result<()> {
    sd_notify::notify(&[NotifyState::Status(&line(status))])
}

/// Tells that the process is about to end.
///
/// # Errors
/// If the service manager does not listen.
pub fn stopping() -> io::Result<()> {
    sd_notify::notify(&[NotifyState::Stopping, NotifyState::Status("stopping")])
}

/// Tells that the process does its work. Who does not say so for as long as the watchdog waits
/// is killed.
///
/// # Errors
/// If the service manager does not listen.
pub fn alive() -> io::Result<()> {
    sd_notify::notify(&[NotifyState::Watchdog])
}

/// How often to tell [`alive`]: twice as often as the watchdog asks for; nothing if there is none.
#[must_use]
pub fn period() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|period| !period.is_zero())
}

/// A state is a line: what follows a line break would be one of its own.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn words_bring_in_no_other_state() {
        assert_eq!(line("serves /tmp/a\nREADY=1\r\n"), "serves /tmp/a READY=1  ");
    }
}
