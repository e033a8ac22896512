// SPDX-License-Identifier: Apache-2.0
//! Words of messages about files.

/// A text from a file as errors show it: short, and on one line.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    const CHARS: usize = 100;
    // A character has at most four bytes.
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * CHARS)]);
    let head = head.trim_end();
    match head.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}...", &head[..end]),
        None => head.to_string(),
    }
}
