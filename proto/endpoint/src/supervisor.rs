// SPDX-License-Identifier: Apache-2.0
//! Notifications to the service manager: sd_notify(3), `Type=notify` and `WatchdogSec=` of
//! systemd.service(5).
//!
//! Without a service manager (no `NOTIFY_SOCKET`) nothing is sent and nothing fails.

use std::time::Duration;

use sd_notify::NotifyState;

/// Reports that the process is ready, with a status line.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(&line(status))]);
}

pub fn status(status: &str) {
    tell(&[NotifyState::Status(&line(status))]);
}

/// Reports that the process is about to end.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// Resets the watchdog. systemd kills a process that does not call this within the watchdog's time.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// Interval between calls of [`alive`]: half the watchdog's time. `None` without a watchdog.
#[must_use]
pub fn period() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|period| !period.is_zero())
}

/// A failed notification is logged; it is no reason to end.
fn tell(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager does not listen at NOTIFY_SOCKET");
    }
}

/// One state is one line: text after a line break would be a second state.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn status_text_cannot_inject_another_state() {
        assert_eq!(line("serves /tmp/a\nREADY=1\r\n"), "serves /tmp/a READY=1  ");
    }
}
