// SPDX-License-Identifier: Apache-2.0
//! The log of a daemon.

use std::io::{IsTerminal, stderr};
use tracing_subscriber::EnvFilter;

/// Writes events to standard error, with colours on a terminal. Call it once.
pub fn to_stderr(filter: EnvFilter) {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .init();
}
