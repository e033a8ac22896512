// SPDX-License-Identifier: Apache-2.0
//! Requests changes of the dataplane, one at a time, and keeps profiles and the lease.
//!
//! The dataplane owns the link. What [`Saver`] keeps of it serves to restore a dataplane that was
//! restarted, and for nothing else.

mod boxes;
mod lease;
mod profiles;
mod restore;
mod switch;
mod update;

pub(crate) use boxes::BoxService;
pub(crate) use switch::SwitchService;
pub(crate) use update::{Find, lock_all, update_links};

use crate::audit::{Audit, Line};
use crate::caller::Caller;
use crate::certificates::Listed;
use crate::dataplane::Dataplane;
use crate::events::Events;
use crate::leases::{Leases, Now};
use crate::stalls::{Clocks, Stalls};
use crate::state::Saver;
use profile::Catalog;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::{MAIN_LINK, link_id, link_name};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard, watch};
use tonic::{Code, Response, Status};

/// Changes without an answer that are remembered.
const UNANSWERED: usize = 64;
/// How long the answer to a change waits until its event is published.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(1);

/// Files of stored profiles that are not in the catalog yet, by name.
type Unread = BTreeMap<String, PathBuf>;

/// A link, as all services share it. Clones share it.
#[derive(Clone)]
pub(crate) struct Control(Arc<Shared>);

struct Shared {
    /// Resource name of the link; empty for `main`.
    link: String,
    /// Of all links.
    catalog: Arc<RwLock<Catalog>>,
    /// The files of stored profiles that are not in the catalog yet, by name.
    unread: Arc<Mutex<Unread>>,
    dataplane: Dataplane,
    events: Events,
    saver: Saver,
    audit: Audit,
    stalls: Stalls,
    /// One change at a time: without it, concurrent patches would abort each other.
    changing: Mutex<Changing>,
    /// The lease is another one, or has another end.
    lease_changed: watch::Sender<()>,
    /// Tokens of renewals that have arrived and wait for `changing`.
    renewing: std::sync::Mutex<Vec<String>>,
    /// Sequence of the last event of the dataplane that was published.
    published: watch::Sender<u64>,
    /// Changes that the dataplane did not answer in time.
    unanswered: std::sync::Mutex<VecDeque<Unanswered>>,
    /// The scenario of another link that changes this one.
    visitor: std::sync::Mutex<Option<Visitor>>,
    certificates: Listed,
}

/// A scenario of another link.
#[derive(Clone)]
pub(crate) struct Visitor {
    /// Of its own link.
    pub dataplane: Dataplane,
    /// Zero: not known, because linkd was restarted before the dataplane answered.
    pub run: u64,
    /// Token of the lease of the link that it visits; empty: there was none.
    pub token: String,
}

/// State behind the lock on changes.
#[derive(Debug, Default)]
pub(crate) struct Changing {
    pub leases: Leases,
    /// The offload that the dataplane refused, with its instance and generation.
    pub unmatched: Option<(u64, u64, dp::Offload)>,
}

/// A change that the dataplane may still make.
#[derive(Debug)]
struct Unanswered {
    id: String,
    what: String,
    caller: Caller,
}

impl Control {
    /// Drives the link `main` of a dataplane with the profiles of a catalog, and of files that are
    /// read on demand. Starts from a saved state.
    pub fn new(
        catalog: Catalog,
        unread: Unread,
        dataplane: Dataplane,
        events: Events,
        saver: Saver,
        audit: Audit,
        clocks: Clocks,
    ) -> Self {
        let profiles = (Arc::new(RwLock::new(catalog)), Arc::new(Mutex::new(unread)));
        Self::of(String::new(), profiles, dataplane, events, saver, audit, Stalls::of(clocks))
    }

    /// Another link of the same dataplane, with this resource name, from its saved state.
    pub fn beside(&self, link: String, saver: Saver) -> Self {
        let Shared { catalog, unread, dataplane, events, audit, stalls, .. } = &*self.0;
        let dataplane = dataplane.of_link(&link, events.clone());
        let (profiles, events) = ((catalog.clone(), unread.clone()), events.clone());
        Self::of(link, profiles, dataplane, events, saver, audit.clone(), stalls.clone())
    }

    fn of(
        link: String,
        (catalog, unread): (Arc<RwLock<Catalog>>, Arc<Mutex<Unread>>),
        dataplane: Dataplane,
        events: Events,
        saver: Saver,
        audit: Audit,
        stalls: Stalls,
    ) -> Self {
        let leases = Leases::from_state(&saver.state(), Now::read(&stalls));
        Self(Arc::new(Shared {
            link,
            catalog,
            unread,
            dataplane,
            events,
            saver,
            audit,
            stalls,
            changing: Mutex::new(Changing { leases, ..Changing::default() }),
            lease_changed: watch::Sender::new(()),
            renewing: std::sync::Mutex::default(),
            published: watch::Sender::new(0),
            unanswered: std::sync::Mutex::default(),
            visitor: std::sync::Mutex::default(),
            certificates: Listed::default(),
        }))
    }

    /// Name of the link, without "links/".
    pub fn name(&self) -> &str {
        if self.0.link.is_empty() { MAIN_LINK } else { link_id(&self.0.link) }
    }

    /// The last certificates of this link.
    pub fn certificates(&self) -> &Listed {
        &self.0.certificates
    }

    pub fn dataplane(&self) -> &Dataplane {
        &self.0.dataplane
    }

    /// Both clocks, and for how long linkd stood still.
    fn now(&self) -> Now {
        Now::read(&self.0.stalls)
    }

    /// Watches whether linkd stands still, until dropped.
    pub async fn watch_stalls(&self) {
        self.0.stalls.watch().await;
    }

    /// Waits until no other change is in progress.
    pub async fn changing(&self) -> MutexGuard<'_, Changing> {
        self.0.changing.lock().await
    }

    /// Publishes an event of this link.
    pub fn publish(&self, mut event: pb::Event) {
        event.link.clone_from(&self.0.link);
        self.0.events.publish(event);
    }

    /// Publishes an event of linkd.
    pub fn tell(&self, kind: pb::EventKind, who: &str, subject: &str, message: impl Into<String>) {
        let (who, subject, message) = (who.to_owned(), subject.to_owned(), message.into());
        let kind = kind as i32;
        self.publish(pb::Event { kind, who, subject, message, ..Default::default() });
    }

    /// A remark for as long as the state cannot be written.
    pub fn unsaved(&self) -> Option<String> {
        self.state_failure().borrow().as_ref().map(|why| {
            format!(
                "linkd cannot write its state ({why}): a restart of linkd would not find this link"
            )
        })
    }

    /// Why the state cannot be written; none while it can.
    pub fn state_failure(&self) -> watch::Receiver<Option<String>> {
        self.0.saver.failure()
    }

    /// Keeps a change that the dataplane made, and waits for its event.
    async fn applied(&self, changing: &mut Changing, answer: dp::LinkChanged) -> pb::Link {
        let dp::LinkChanged { applied, remarks, repeated, plan, sequence } = answer;
        let (generation, instance) =
            (applied.unwrap_or_default().generation, self.0.saver.state().instance);
        if let Some(plan) = plan.as_ref().filter(|_| !repeated) {
            self.keep_link(plan, applied.unwrap_or_default());
            let mut published = self.0.published.subscribe();
            let published = published.wait_for(|published| *published >= sequence);
            let _ = tokio::time::timeout(PUBLISHED_WITHIN, published).await;
            // The change itself was applied.
            if let Err(status) = self.match_switch(changing, plan, generation, instance).await {
                tracing::warn!(why = status.message(), "cannot offload to the switch");
            }
            // The owners of new clients belong into the switch before their next frames; a silent one
            // delays nothing.
            let dataplane = self.0.dataplane.clone();
            tokio::spawn(async move { dataplane.meet_clients().await });
        }
        let dp::Plan { profile, seed, .. } = plan.unwrap_or_default();
        let name = link_name(self.name());
        pb::Link { name, profile, seed, applied, remarks }
    }

    /// Remembers a change that the dataplane did not answer in time, and may still make.
    fn expect(&self, id: String, what: String, caller: Caller) {
        let mut unanswered = self.unanswered();
        if unanswered.len() == UNANSWERED {
            unanswered.pop_front();
        }
        unanswered.push_back(Unanswered { id, what, caller });
    }

    fn unanswered(&self) -> std::sync::MutexGuard<'_, VecDeque<Unanswered>> {
        self.0.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A snapshot. With `mark` another span begins after it, which ends the run of the holder of
    /// a lease: only they may ask for that.
    pub async fn stats(&self, caller: &Caller, mark: bool) -> Result<pb::Stats, Status> {
        if !mark {
            return self.0.dataplane.run_stats(false).await;
        }
        // Until then the lease cannot be acquired.
        let changing = self.changing().await;
        changing.leases.check(caller)?;
        self.0.dataplane.run_stats(true).await
    }

    /// Publishes an event of the dataplane.
    pub fn forward(&self, instance: u64, sequence: u64, mut event: pb::Event, id: &str) {
        let late = {
            let mut unanswered = self.unanswered();
            let place = unanswered.iter().position(|it| !id.is_empty() && it.id == id);
            place.and_then(|place| unanswered.remove(place))
        };
        if let Some(Unanswered { what, caller, .. }) = late {
            let rest = event.message.strip_prefix(&*what).unwrap_or(&event.message);
            event.message = format!("{what}, after its deadline{rest}");
            let message = format!("{what}, after its deadline");
            let (link, message) = (&*link_name(self.name()), &*message);
            let (call, generation) = (caller.call, event.generation);
            let line = Line { call, link, generation, message, ..Line::of("late", &caller, "") };
            // A failure is logged, and refuses the next change.
            let _ = self.0.audit.write(&line);
        }
        if event.kind() == pb::EventKind::ScenarioStep && event.generation.is_some() {
            self.0.dataplane.switches().nudge();
        }
        self.publish(event);
        self.0.saver.update(|state| {
            (state.sequence_instance, state.sequence) = (instance, sequence);
        });
        self.0.published.send_replace(sequence);
    }

    /// The events of the dataplane start again at `sequence`.
    pub fn follow_from(&self, sequence: u64) {
        self.0.published.send_replace(sequence);
    }

    /// Sequence of the last event of the dataplane that was published.
    pub fn published(&self) -> u64 {
        *self.0.published.borrow()
    }

    pub fn saver(&self) -> &Saver {
        &self.0.saver
    }
}

/// Runs a change to completion, even if the caller disconnects: otherwise the current link, the disk
/// and the audit log could differ.
pub(crate) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<Response<T>, Status> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(Status::internal("linkd failed: please report this")))
        .map(Response::new)
}

/// Whether the dataplane did not answer.
pub(crate) fn is_away(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
}

fn unrandom(error: getrandom::Error) -> Status {
    Status::internal(format!("cannot draw a random number: {error}"))
}

/// Not UNAVAILABLE: that means to reach linkd by another address or to retry.
pub(crate) fn unwritten(error: std::io::Error) -> Status {
    Status::failed_precondition(format!(
        "linkd cannot write to the directory of its --state: {error}; make room on the disk, or \
         correct the directory's permissions, then try again"
    ))
}
