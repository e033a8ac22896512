// SPDX-License-Identifier: Apache-2.0
//! The current plan.

use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;

/// A plan that is current, or will be.
#[derive(Clone, Debug)]
pub struct Current {
    pub plan: pb::Plan,
    /// Its generation, and when it was applied.
    pub applied: model::Applied,
    /// Why it is lossy, if it is, and which of its settings have no effect.
    pub remarks: Vec<String>,
}
