// SPDX-License-Identifier: Apache-2.0
//! A link as its owner sees it: a plan that changes, on a clock.

use crate::{History, Merged, Request, Schedule, ScheduleError, check_ahead};
use futures_util::future::BoxFuture;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tonic::{Code, Status};

const NO_RESULT: &str = "the request ended without a result: please report this, with the log";

/// A link, with what its executor does: prepare plans, execute them, and take them back.
///
/// Merging, generations, keys, the order of changes and their withdrawal are in [`Changes`](crate::Changes),
/// the same for workers, boxes and tests.
pub trait Link: Clone + Send + Sync + 'static {
    /// What the executor made of a plan, to commit it.
    type Ready: Send;

    /// What the executor says of a plan that it has committed, before [`Self::conclude`].
    type Outcome: Send;

    /// Without "links/".
    fn name(&self) -> &str;

    /// Nanoseconds since the dataplane started.
    fn now_ns(&self) -> u64;

    /// The same instant in UTC.
    fn utc(&self, time_ns: u64) -> SystemTime;

    /// Its plans.
    fn history(&self) -> &History;

    /// Checks the instant of a change that arrived at another one.
    ///
    /// # Errors
    /// [`ScheduleError`].
    fn check_instant(&self, arrived_ns: u64, at_ns: u64) -> Result<(), ScheduleError> {
        check_ahead(arrived_ns, at_ns)
    }

    /// The instant at which a change is made that is asked for `asked_ns`: then, or as soon as possible.
    /// Pending changes after it are withdrawn.
    fn instant(&self, asked_ns: u64, schedule: &Schedule) -> u64;

    /// Compiles a plan and checks that it fits. Changes nothing. Returns the plan with why it is lossy,
    /// if it is.
    fn prepare(
        &self,
        proposal: Proposal<'_>,
    ) -> impl Future<Output = Result<(Current, Self::Ready), Status>> + Send;

    /// Makes room for a plan that was prepared.
    fn settle(
        &self,
        _: &mut Current,
        _: &Self::Ready,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        std::future::ready(Ok(()))
    }

    /// Takes back the pending changes of these generations, except those that it has made already.
    /// Returns the first generation that it took back; none if their outcomes tell.
    fn take_back(
        &self,
        generations: RangeInclusive<u64>,
    ) -> impl Future<Output = Result<Option<u64>, Status>> + Send;

    /// Has plans of several links executed at one instant: without one, as soon as possible. Commits keep
    /// the order of the calls, if each future is polled before the next call. Returns the outcomes in the
    /// order of the links.
    ///
    /// # Errors
    /// If none will be executed.
    fn commit(
        orders: Vec<Order<Self>>,
        at_ns: Option<u64>,
    ) -> Result<Outcomes<Self::Outcome>, Status>;

    /// Learns that a plan is the current one. Returns it with its instant and all remarks.
    ///
    /// # Errors
    /// If it was not executed after all.
    fn conclude(
        &self,
        next: Current,
        outcome: Self::Outcome,
        schedule: &Schedule,
    ) -> impl Future<Output = Result<Current, Status>> + Send;

    /// Completes work, also when its caller has gone. Callers may wait less long.
    ///
    /// # Errors
    /// Those of the work, and UNAVAILABLE while the executor stands still.
    fn complete<T: Send + 'static>(
        &self,
        _ahead: Duration,
        work: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> impl Future<Output = Result<T, Status>> + Send {
        to_its_end(work)
    }
}

/// Completes work, also when its caller has gone. It begins at once.
///
/// # Errors
/// Those of the work.
pub fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> impl Future<Output = Result<T, Status>> + Send {
    let work = tokio::spawn(work);
    async { work.await.unwrap_or_else(|_| Err(Status::internal(NO_RESULT))) }
}

/// The outcomes of plans that were committed together, or the error of all.
pub type Outcomes<T> = BoxFuture<'static, Result<Vec<T>, Status>>;

/// A plan that a change leads to.
#[derive(Debug)]
pub struct Proposal<'a> {
    pub change: &'a dp::Change,
    pub terms: &'a Terms,
    pub merged: Merged,
}

/// A plan that a link is to execute.
#[derive(Debug)]
pub struct Order<L: Link> {
    pub link: L,
    pub ready: L::Ready,
    pub generation: u64,
    /// Changes are pending that come before it.
    pub follows: bool,
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
