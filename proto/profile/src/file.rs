// SPDX-License-Identifier: Apache-2.0
//! Files of TOML: profiles, scenarios and clients.

use crate::Violations;
use std::io::{self, Read};
use std::path::Path;

/// Error of a file that holds no valid profile, scenario or clients.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// Path as given.
        path: String,
        /// Error of the system.
        source: std::io::Error,
    },
    #[error("{path} {fault}:\n{}", violations.in_file(path))]
    Invalid {
        /// Path as given.
        path: String,
        /// Predicate of the message, such as "is not a valid profile".
        fault: &'static str,
        violations: Violations,
    },
}

/// Reads a file and parses its text, which is cut one byte after `limit` bytes.
///
/// # Errors
/// [`FileError`]; `fault` is the predicate of its message if `parse` fails.
pub fn parse_file<T>(
    path: &Path,
    limit: usize,
    fault: &'static str,
    parse: impl FnOnce(&str) -> Result<T, Violations>,
) -> Result<T, FileError> {
    let name = path.display().to_string();
    match read(path, limit) {
        Ok(text) => {
            parse(&text).map_err(|violations| FileError::Invalid { path: name, fault, violations })
        }
        Err(source) => Err(FileError::Io { path: name, source }),
    }
}

/// Reads the first `limit` bytes and one more, which shows that the file is longer.
fn read(path: &Path, limit: usize) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(limit as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
