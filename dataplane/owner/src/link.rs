// SPDX-License-Identifier: Apache-2.0
//! A link as its owner sees it: a plan that changes, on a clock.

use crate::{Current, History, Merged, Schedule, ScheduleError, Terms, check_ahead};
use futures_util::future::BoxFuture;
use proto::dataplane::v1 as dp;
use std::future::Future;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};
use tonic::Status;

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

/// The change of one link, alone or among others. Changes of several links have one instant, which is
/// not in their terms.
#[derive(Clone, Debug)]
pub struct LinkChange<L> {
    pub link: L,
    pub change: dp::Change,
    pub terms: Terms,
}
