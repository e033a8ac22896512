// SPDX-License-Identifier: Apache-2.0
//! Intervals of estimates.

/// An estimate with its 95 % interval; an end that the data do not bound is infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// All of it under a monotonic function, whichever way that goes.
    #[must_use]
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (f(self.low), f(self.high));
        Self { value: f(self.value), low: a.min(b), high: a.max(b) }
    }

    /// With the ends of another interval, if they are further out.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high), ..self }
    }

    /// Whether it covers `x`.
    #[must_use]
    pub fn covers(&self, x: f64) -> bool {
        self.low <= x && x <= self.high
    }
}
