// SPDX-License-Identifier: Apache-2.0
//! Standard output. If its reader is gone, the command ends without an error.

use crate::failure::Failure;
use prost::{Message, Name};
use serde::Serialize;
use std::io::{ErrorKind, Write};

pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::failed("output", format!("cannot write to standard output: {error}")),
    })
}

/// A text; a line feed is added if it does not end in one.
pub fn text(text: &str) -> Result<(), Failure> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    bytes(format!("{text}{end}").as_bytes())
}

/// A message as one line of JSON.
pub fn message<M: Message + Name>(message: &M) -> Result<(), Failure> {
    json(&proto::json(message))
}

/// A value as one line of JSON.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value)
        .map_err(|error| Failure::failed("internal", format!("cannot write JSON: {error}")))?;
    text(&line)
}
