// SPDX-License-Identifier: Apache-2.0
//! How a change is asked for, and what comes of it.

use crate::Request;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tonic::{Code, Status};

/// A plan that is current, or will be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Current {
    pub plan: dp::Plan,
    /// Its generation, and when it was applied.
    pub applied: pb::Applied,
    /// Why it is lossy, if it is, and which of its settings have no effect.
    pub remarks: Vec<String>,
}

/// Who changes a link.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The controller. The change is an event.
    Controller(dp::Cause),
    /// The scenario of the link, which reports its steps itself.
    Scenario,
    /// The scenario of another link. The change is an event.
    OtherScenario(dp::Cause),
}

impl Source {
    /// The cause of the event, if the change is one.
    #[must_use]
    pub fn cause(&self) -> Option<&dp::Cause> {
        match self {
            Self::Controller(cause) | Self::OtherScenario(cause) => Some(cause),
            Self::Scenario => None,
        }
    }
}

/// How a change is applied.
#[derive(Clone, Debug)]
pub struct Terms {
    pub source: Source,
    /// On the dataplane's clock; none: immediately, which withdraws pending changes.
    pub at_ns: Option<u64>,
    /// The generation that must be current at that instant.
    pub expected: Option<u64>,
    /// Accept a plan outside of the envelope.
    pub lossy: bool,
    pub request: Request,
    pub chain: Chain,
}

/// Changes that are made in their order: if one of them is refused or withdrawn, so are those after it.
/// A generation that is expected would not tell, since another caller's change may have that number
/// then. Clones are the same chain.
#[derive(Clone, Debug, Default)]
pub struct Chain(Arc<AtomicBool>);

impl Chain {
    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::of(Source::Controller(dp::Cause::default()))
    }
}

impl Terms {
    /// Immediately, whatever is current, and only inside of the envelope.
    #[must_use]
    pub fn of(source: Source) -> Self {
        let (request, chain) = (Request::default(), Chain::default());
        Self { source, at_ns: None, expected: None, lossy: false, request, chain }
    }
}

/// A change that was made, now or before under the same key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Made {
    pub applied: pb::Applied,
    /// As of [`Current`].
    pub remarks: Vec<String>,
    /// It was made before.
    pub repeated: bool,
    /// The plan after it; none if it is not known any longer.
    pub plan: Option<Arc<dp::Plan>>,
    /// Sequence of its event.
    pub sequence: u64,
}

impl From<Made> for dp::LinkChanged {
    fn from(made: Made) -> Self {
        let Made { applied, remarks, repeated, plan, sequence } = made;
        let plan = plan.map(Arc::unwrap_or_clone);
        Self { applied: Some(applied), remarks, repeated, plan, sequence }
    }
}

/// Why a change was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was withdrawn, or another generation is current. It can be applied again.
    Stale(String),
    /// The link cannot be changed like that.
    Refused(String),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        match status.code() {
            Code::Aborted | Code::Cancelled => Self::Stale(message),
            _ => Self::Refused(message),
        }
    }
}
