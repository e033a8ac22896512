// SPDX-License-Identifier: Apache-2.0
//! What a step changes of both directions.

use profile::Part;
use std::fmt;

/// Parts of a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// Of the forward pipe.
    pub forward: Option<Part>,
    /// Of the return pipe.
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
