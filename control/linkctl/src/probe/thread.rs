// SPDX-License-Identifier: Apache-2.0
//! A blocking sender or reflector in its own thread, with its reports and signals.
//!
//! Reports go through a channel that holds the latest one, so that a blocked terminal delays neither
//! thread.

use crate::failure::Failure;
use ::probe::{Error, LogError, Stop};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

pub enum Event<R> {
    Report(R),
    Interrupt,
}

/// Waits for the thread; passes reports on to `on`, and signals to `stop`.
pub async fn drive<T, R: Copy>(
    mut thread: tokio::task::JoinHandle<Result<T, Error>>,
    mut reports: watch::Receiver<R>,
    mut signals: Signals,
    stop: &Stop,
    mut on: impl FnMut(Event<R>),
) -> Result<T, Failure> {
    loop {
        tokio::select! {
            result = &mut thread => {
                let result = result.map_err(|error| Failure::failed("internal", error.to_string()))?;
                return result.map_err(failure);
            }
            Ok(()) = reports.changed() => {
                let report = *reports.borrow_and_update();
                on(Event::Report(report));
            }
            () = signals.next() => {
                stop.request();
                on(Event::Interrupt);
            }
        }
    }
}

pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub fn new() -> Result<Self, Failure> {
        let of = |kind| {
            let failed =
                |error| Failure::failed("internal", format!("cannot take signals: {error}"));
            signal(kind).map_err(failed)
        };
        Ok(Self {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

pub fn stop() -> Result<Stop, Failure> {
    Stop::new().map_err(|error| Failure::failed("internal", format!("cannot start: {error}")))
}

pub fn failure(error: Error) -> Failure {
    let code = match &error {
        Error::Plan(_) => return Failure::usage(error.to_string()),
        Error::Resolve(_) => "not_found",
        Error::Log(LogError::Exists(_)) => "already_exists",
        Error::Log(LogError::Different { .. } | LogError::Foreign { .. } | LogError::Busy(_)) => {
            "failed_precondition"
        }
        _ => "io",
    };
    Failure::failed(code, error.to_string())
}
