// SPDX-License-Identifier: Apache-2.0
//! A link as its owner sees it: a plan that changes, on a clock.

use crate::Request;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use std::future::Future;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;
use tonic::{Code, Status};

/// A link that can be changed, and the clock of its changes.
pub trait Link: Clone + Send + Sync + 'static {
    /// Without "links/".
    fn name(&self) -> &str;

    /// Nanoseconds since the dataplane started.
    fn now_ns(&self) -> u64;

    /// The same instant in UTC.
    fn utc(&self, time_ns: u64) -> SystemTime;

    /// Merges a change into the plan that will be current at its instant, and applies it, however
    /// long that takes. Changes keep the order in which the futures are polled first. Resolves when
    /// the change was applied or withdrawn.
    fn apply(
        &self,
        change: dp::Change,
        terms: Terms,
    ) -> impl Future<Output = Result<Made, Refusal>> + Send;

    /// Applies changes of several links at one instant, or none, however long that takes. Resolves
    /// when they were applied, with the results in their order. They cannot be withdrawn.
    fn apply_links(
        changes: Vec<LinkChange<Self>>,
        at_ns: Option<u64>,
    ) -> impl Future<Output = Result<Vec<Made>, Refusal>> + Send;

    /// Withdraws the changes that wait for their instants.
    fn withdraw(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// The current plan, after changes that are being made.
    fn current(&self) -> impl Future<Output = Result<Current, String>> + Send;

    /// The generation of the last change that no scenario made, and each change of it.
    fn other_changes(&self) -> watch::Receiver<u64>;
}

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
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub source: Source,
    /// On the dataplane's clock; none: immediately, which withdraws pending changes.
    pub at_ns: Option<u64>,
    /// The generation that must be current at that instant.
    pub expected: Option<u64>,
    /// Accept a plan outside of the envelope.
    pub lossy: bool,
    pub request: Request,
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
        Self { source, at_ns: None, expected: None, lossy: false, request: Request::default() }
    }
}

/// The change of one link, alone or among others. Changes of several links have one instant, which is
/// not in their terms.
#[derive(Clone, Debug)]
pub struct LinkChange<L> {
    pub link: L,
    pub change: dp::Change,
    pub terms: Terms,
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

impl From<Made> for dp::ApplyResponse {
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
