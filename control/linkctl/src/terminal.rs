// SPDX-License-Identifier: Apache-2.0
//! The terminal: its width, warnings and a spinner on standard error.

use comfy_table::Table;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Least width that text is arranged for.
const NARROW: u16 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// Returns the columns of the terminal that a stream is connected to, if it is.
pub fn width(stream: Stream) -> Option<u16> {
    let mut table = Table::new();
    if stream == Stream::Err {
        table.use_stderr();
    }
    table.width().map(|width| width.max(NARROW))
}

/// Prints a line to standard error; failures are ignored.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints remarks as warnings to standard error.
pub fn warn(remarks: &[String]) {
    for remark in remarks {
        say(&format!("warning: {remark}"));
    }
}

/// Starts a bar, which is hidden unless standard error is a terminal.
pub fn bar(message: &str) -> ProgressBar {
    let bar = spinner(message);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent} %, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Starts a spinner, which is hidden unless standard error is a terminal.
pub fn spinner(message: &str) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::hidden()
    };
    bar.set_style(ProgressStyle::default_spinner());
    bar.set_message(message.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
