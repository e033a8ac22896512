// SPDX-License-Identifier: Apache-2.0
//! The state of a link that the dataplane owns, apart from packets and workers.
//!
//! - [`merge`] applies a change to a plan, and [`Schedule`] has the changes that wait for their instants.
//! - [`Scenarios`] executes an uploaded scenario on the clock of a [`Link`].
//! - [`Journal`] keeps the last events for watchers.
//! - [`Controllers`] has the one caller that may change something, and [`Span`] the counts since a mark.
//! - [`Service`] serves `dataplane.v1`.
//!
//! Nothing here knows DPDK or the workers. An [`Executor`] has the links and makes their changes: the
//! dataplane by its workers, linkd-group by its boxes, and the fake dataplane of the tests of linkd.

mod change;
mod changes;
mod controller;
mod journal;
mod keys;
mod link;
mod plans;
mod scenario;
mod schedule;
mod service;
mod span;
mod status;
mod terms;
mod watch;

pub use change::{ChangeError, Merged, merge, subject};
pub use changes::Changes;
pub use controller::{Controllers, Held};
pub use journal::{Journal, Next};
pub use keys::{Keys, Request, Reused};
pub use link::{Link, LinkChange, Order, Outcomes, Proposal, to_its_end};
pub use plans::{History, Plans};
pub use scenario::Scenarios;
pub use schedule::{Schedule, ScheduleError, check_ahead, check_passed, withdrawn};
pub use service::{Executor, MOST_LINKS, MOST_PARTS, Owned, Service};
pub use span::Span;
pub use status::{among, clip, invalid, of_link};
pub use terms::{Chain, Current, Made, Refusal, Source, Terms};
pub use watch::watch;

use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tonic::Status;

/// An event with the id of its cause, as `dataplane.v1.WatchResponse` has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Without a sequence: [`Journal`] numbers it.
    pub event: pb::Event,
    /// As in `dataplane.v1.Cause`.
    pub id: String,
}

/// The event of a change that was applied.
fn changed(cause: &dp::Cause, plan: &dp::Plan, applied: &pb::Applied) -> Entry {
    let pb::Applied { generation, effective_ns, effective_utc, lossy } = *applied;
    let kind = match cause.kind() {
        pb::EventKind::Unspecified => pb::EventKind::LinkChanged,
        kind => kind,
    };
    let (what, seed) = (&cause.what, plan.seed);
    let lossy = if lossy { ", lossy" } else { "" };
    let event = pb::Event {
        utc: effective_utc,
        time_ns: Some(effective_ns),
        kind: kind as i32,
        who: cause.who.clone(),
        subject: plan.profile.as_ref().map_or("", |profile| &profile.name).to_owned(),
        message: format!("{what}: generation {generation}, seed {seed}{lossy}"),
        generation: Some(generation),
        ..Default::default()
    };
    Entry { event, id: cause.id.clone() }
}

/// Another caller has changed the link meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: somebody else changed the link; look at it (`linkctl show`), then decide",
    stale_message(*expected, *current)
)]
pub struct Stale {
    pub expected: u64,
    pub current: u64,
}

impl From<Stale> for Status {
    fn from(stale: Stale) -> Self {
        Self::aborted(stale.to_string())
    }
}

/// Checks that a generation is the expected one, if one is expected.
///
/// # Errors
/// [`Stale`].
pub fn check_generation(current: u64, expected: Option<u64>) -> Result<(), Stale> {
    match expected {
        Some(expected) if expected != current => Err(Stale { expected, current }),
        _ => Ok(()),
    }
}

/// A change that was made for another generation.
#[must_use]
pub fn stale_message(expected: u64, current: u64) -> String {
    format!("generation {expected} was expected and {current} is current")
}
