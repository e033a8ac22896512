// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a profile, and where.

use std::fmt;

/// A place in a TOML text; both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, such as `forward.queue.limit`; empty if it is the whole.
    pub path: String,
    /// The value, the limit and what to do.
    pub message: String,
    /// Where it is written, if it was read from TOML.
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

/// All that is wrong with a profile: of single values, in the order of the fields, and then of
/// several together; never empty in an `Err`.
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Violation> {
        self.0.iter()
    }

    /// `Ok` if there is none.
    ///
    /// # Errors
    /// Itself, if there is any.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    /// One a line in the form of compilers: `FILE:LINE:COLUMN: PATH: MESSAGE`.
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
