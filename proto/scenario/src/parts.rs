// SPDX-License-Identifier: Apache-2.0
//! The parts of both directions that a step changes.

use profile::Part;
use std::fmt;

/// Parts of a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    pub forward: Option<Part>,
    pub back: Option<Part>,
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.forward, &self.back) {
            (Some(forward), Some(back)) if forward == back => write!(f, "both: {forward}"),
            (Some(forward), Some(back)) => write!(f, "forward: {forward}; return: {back}"),
            (Some(forward), None) => write!(f, "forward: {forward}"),
            (None, Some(back)) => write!(f, "return: {back}"),
            (None, None) => Ok(()),
        }
    }
}
