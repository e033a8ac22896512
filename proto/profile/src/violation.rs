// SPDX-License-Identifier: Apache-2.0
//! Faults of a profile and their places.

use std::fmt;

/// A place in a TOML text. Line and column start at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Field path, such as `forward.queue.limit`; empty for the whole profile.
    pub path: String,
    pub message: String,
    /// Place in the TOML text, if there is one.
    pub place: Option<Place>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column }) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// All faults of a profile: first of single values, in field order, then of several values
/// together. Never empty in an `Err`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    pub fn push(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Violation { path: path.into(), message: message.into(), place: None });
    }

    pub(crate) fn push_at(&mut self, path: &str, message: impl Into<String>, place: Place) {
        let (path, message) = (path.to_owned(), message.into());
        self.0.push(Violation { path, message, place: Some(place) });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Violation> {
        self.0.iter()
    }

    /// `Ok` without faults.
    ///
    /// # Errors
    /// All faults.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// One fault per line in the format of compilers: `FILE:LINE:COLUMN: PATH: MESSAGE`.
    pub fn in_file(&self, file: &str) -> String {
        let line = |v: &Violation| {
            let place = v.place.map_or(String::new(), |p| format!("{}:{}:", p.line, p.column));
            format!("{file}:{place} {}", Violation { place: None, ..v.clone() })
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, violation) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            violation.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Violations {}

impl IntoIterator for Violations {
    type Item = Violation;
    type IntoIter = std::vec::IntoIter<Violation>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Violations {
    type Item = &'a Violation;
    type IntoIter = std::slice::Iter<'a, Violation>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
