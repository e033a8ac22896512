// SPDX-License-Identifier: Apache-2.0
//! What a process tells the service manager that started it: sd_notify(3), `Type=notify` and
//! `WatchdogSec=` of systemd.service(5).
//!
//! Without a service manager (no `NOTIFY_SOCKET`) nothing is told and nothing fails.

use std::time::Duration;

use sd_notify::NotifyState;

/// Reports that the process is ready, with a line of status.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(&line(status))]);
}

/// Reports a line of status.
pub fn status(status: &str) {
    tell(&[NotifyState::Status(&line(status))]);
}

/// Tells that the process is about to end.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// Tells that the process does its work. Who does not say so for as long as the watchdog waits
/// is killed.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// How often to tell [`alive`]: twice as often as the watchdog asks for; nothing if there is none.
#[must_use]
pub fn period() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2).filter(|period| !period.is_zero())
}

/// That the service manager does not listen is for the log, and no reason to end.
fn tell(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager does not listen at NOTIFY_SOCKET");
    }
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
