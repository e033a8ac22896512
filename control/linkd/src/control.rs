// SPDX-License-Identifier: Apache-2.0
//! Requests changes of the dataplane, one at a time, and keeps profiles and the lease.
//!
//! The dataplane owns the link. What [`Saver`] keeps of it serves to restore a dataplane that was
//! restarted, and for nothing else.

use crate::audit::{Audit, Line};
use crate::caller::Caller;
use crate::dataplane::Dataplane;
use crate::events::Events;
use crate::given;
use crate::leases::{Leases, Now};
use crate::named::Named;
use crate::refusal;
use crate::state::{self, Saver};
use profile::{Catalog, Part, Profile, Violations};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard, watch};
use tonic::{Code, Response, Status};

/// Changes without an answer that are remembered.
const UNANSWERED: usize = 64;
/// How long the answer to a change waits until its event is published.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(1);

/// State that all services share. Clones share it.
#[derive(Clone)]
pub(crate) struct Control(Arc<Shared>);

struct Shared {
    catalog: RwLock<Catalog>,
    /// The files of stored profiles that are not in the catalog yet, by name.
    unread: Mutex<BTreeMap<String, PathBuf>>,
    dataplane: Dataplane,
    events: Events,
    saver: Saver,
    audit: Audit,
    /// One change at a time: without it, concurrent patches would abort each other.
    changing: Mutex<Changing>,
    /// The lease is another one, or has another end.
    lease_changed: watch::Sender<()>,
    /// Sequence of the last event of the dataplane that was published.
    published: watch::Sender<u64>,
    /// Changes that the dataplane did not answer in time.
    unanswered: std::sync::Mutex<VecDeque<Unanswered>>,
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
    what: &'static str,
    caller: Caller,
}

/// How a change is made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub expected_generation: Option<u64>,
    pub lossy: bool,
}

/// The kind of a change, and its caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cause<'a> {
    pub what: &'static str,
    pub caller: &'a Caller,
}

impl Control {
    /// Drives a dataplane with the profiles of a catalog, and of files that are read on demand.
    /// Starts from a saved state.
    pub fn new(
        catalog: Catalog,
        unread: BTreeMap<String, PathBuf>,
        dataplane: Dataplane,
        events: Events,
        saver: Saver,
        audit: Audit,
    ) -> Self {
        let leases = Leases::from_state(&saver.state(), Now::read());
        Self(Arc::new(Shared {
            catalog: RwLock::new(catalog),
            unread: Mutex::new(unread),
            dataplane,
            events,
            saver,
            audit,
            changing: Mutex::new(Changing { leases, ..Changing::default() }),
            lease_changed: watch::Sender::new(()),
            published: watch::Sender::new(0),
            unanswered: std::sync::Mutex::default(),
        }))
    }

    /// The profiles that can be set by name, without those that are not read yet.
    pub fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.0.catalog.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn dataplane(&self) -> &Dataplane {
        &self.0.dataplane
    }

    /// Waits until no other change is in progress.
    pub async fn changing(&self) -> MutexGuard<'_, Changing> {
        self.0.changing.lock().await
    }

    pub fn publish(&self, event: pb::Event) {
        self.0.events.publish(event);
    }

    /// Publishes an event of linkd.
    pub fn tell(&self, kind: pb::EventKind, who: &str, subject: &str, message: impl Into<String>) {
        let (who, subject, message) = (who.to_owned(), subject.to_owned(), message.into());
        let kind = kind as i32;
        self.0.events.publish(pb::Event { kind, who, subject, message, ..Default::default() });
    }

    /// Reads the stored profiles that are not in the catalog yet.
    pub async fn read_all(&self) {
        loop {
            let Some(name) = self.0.unread.lock().await.keys().next().cloned() else { return };
            self.read(&name).await;
        }
    }

    /// Reads a stored profile if it is not in the catalog yet.
    async fn read(&self, name: &str) {
        // One reader at a time, so that no file is read twice.
        let mut unread = self.0.unread.lock().await;
        let Some(path) = unread.get(name).cloned() else { return };
        let this = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let profile = state::read_profile(&path)?;
            let mut catalog = this.0.catalog.write().unwrap_or_else(PoisonError::into_inner);
            let put = catalog.put(profile, false);
            put.map(drop).map_err(|error| format!("a stored profile is left out: {error}"))
        });
        match reading.await {
            Ok(Ok(())) => {}
            Ok(Err(damage)) => self.tell(pb::EventKind::StateDamaged, "", name, damage),
            Err(error) => tracing::error!(%error, name, "a stored profile cannot be read"),
        }
        unread.remove(name);
    }

    /// A profile by its name.
    pub async fn named(&self, name: &str) -> Result<Profile, Status> {
        self.read(name).await;
        let catalog = self.catalog();
        let found = catalog.get(name).cloned();
        found.ok_or_else(|| refusal::no_profile(name, catalog.nearest(name)))
    }

    async fn requested(
        &self,
        profile: Option<pb::set_profile_request::Profile>,
    ) -> Result<pb::Profile, Status> {
        use pb::set_profile_request::Profile as Requested;
        match profile {
            None => {
                Err(refusal::field("profile", "missing: give a name, a whole profile, or `toml`"))
            }
            Some(Requested::Name(name)) => Ok(self.named(&name).await?.into_proto()),
            Some(Requested::Inline(message)) => self.unnamed(message).await,
            Some(Requested::Toml(text)) => {
                let read = given::text(text).await?;
                let profile = read.map_err(|found| refusal::invalid("the profile", &found))?;
                self.unnamed(profile.into_proto()).await
            }
        }
    }

    /// A profile of the request. Another profile under a known name would be taken for the known
    /// one.
    async fn unnamed(&self, profile: pb::Profile) -> Result<pb::Profile, Status> {
        let name = &profile.name;
        self.read(name).await;
        match self.catalog().get(name) {
            Some(known) if *known.as_proto() != profile => {
                let mut found = Violations::default();
                found.push(
                    "name",
                    format!(
                        "{name:?} is the name of another profile that linkd has: give this one a \
                         name of its own"
                    ),
                );
                Err(refusal::invalid("the profile", &found))
            }
            _ => Ok(profile),
        }
    }

    /// Stores a profile; true if another one had its name.
    pub async fn put_profile(
        &self,
        caller: &Caller,
        profile: Profile,
        replace: bool,
    ) -> Result<bool, Status> {
        self.read_all().await;
        let changing = self.changing().await;
        let mut catalog = self.catalog().clone();
        let replaced = catalog.put(profile.clone(), replace).map_err(refusal::not_stored)?;
        if replaced {
            changing.leases.check_profile(caller, profile.name())?;
        }
        let stored = profile.clone();
        let put = self.0.saver.on_disk(move |directory| directory.put_profile(&stored));
        put.await.map_err(unwritten)?;
        *self.0.catalog.write().unwrap_or_else(PoisonError::into_inner) = catalog;
        let message = if replaced { "in place of another one" } else { "stored" };
        self.tell(pb::EventKind::ProfileStored, &caller.name, profile.name(), message);
        Ok(replaced)
    }

    pub async fn delete_profile(&self, caller: &Caller, name: &str) -> Result<(), Status> {
        self.read_all().await;
        let changing = self.changing().await;
        self.named(name).await?;
        changing.leases.check_profile(caller, name)?;
        let mut catalog = self.catalog().clone();
        catalog.remove(name).map_err(refusal::not_stored)?;
        let deleted = name.to_owned();
        let delete = self.0.saver.on_disk(move |directory| directory.delete_profile(&deleted));
        delete.await.map_err(unwritten)?;
        *self.0.catalog.write().unwrap_or_else(PoisonError::into_inner) = catalog;
        self.tell(pb::EventKind::ProfileDeleted, &caller.name, name, "deleted");
        Ok(())
    }

    pub async fn set_profile(
        &self,
        caller: &Caller,
        request: pb::SetProfileRequest,
    ) -> Result<pb::ChangeResponse, Status> {
        let cause = Cause { what: "set profile", caller };
        let named = Named::new("SetProfile", &caller.name, &request.request_id, &request);
        let pb::SetProfileRequest { profile, seed, expected_generation, lossy, request_id } =
            request;
        let changing = async {
            refusal::check_request_id(&request_id)?;
            let profile = Some(self.requested(profile).await?);
            let change = dp::Change { profile, seed, restart: true, ..Default::default() };
            let terms = Terms { expected_generation, lossy };
            self.change(cause, named, change, terms).await
        };
        let answer = changing.await;
        self.note(cause, &answer);
        answer
    }

    /// Changes parts of the link.
    pub async fn patch_link(
        &self,
        caller: &Caller,
        request: pb::PatchLinkRequest,
    ) -> Result<pb::ChangeResponse, Status> {
        let cause = Cause { what: "patch link", caller };
        let named = Named::new("PatchLink", &caller.name, &request.request_id, &request);
        let changing = async {
            refusal::check_request_id(&request.request_id)?;
            let pb::PatchLinkRequest { expected_generation, lossy, .. } = request;
            let part = part(request)?;
            let change = dp::Change { parts: vec![part], ..Default::default() };
            let terms = Terms { expected_generation, lossy };
            self.change(cause, named, change, terms).await
        };
        let answer = changing.await;
        self.note(cause, &answer);
        answer
    }

    /// Makes a change, if the caller may change the link.
    pub async fn change(
        &self,
        cause: Cause<'_>,
        named: Option<Named>,
        change: dp::Change,
        terms: Terms,
    ) -> Result<pb::ChangeResponse, Status> {
        let mut changing = self.changing().await;
        changing.leases.check(cause.caller)?;
        let mut answer = self.apply(&mut changing, cause, named, change, terms).await?;
        answer.remarks.extend(self.unsaved());
        Ok(answer)
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

    /// Makes a change of the dataplane's plan. A dataplane that was restarted is restored to the last
    /// link first.
    async fn apply(
        &self,
        changing: &mut Changing,
        Cause { what, caller }: Cause<'_>,
        named: Option<Named>,
        change: dp::Change,
        terms: Terms,
    ) -> Result<pb::ChangeResponse, Status> {
        let Shared { dataplane, saver, .. } = &*self.0;
        if saver.state().instance == 0 {
            self.look(changing).await?;
        }
        let id = format!("{:016x}", getrandom::u64().map_err(unrandom)?);
        let request = |instance| dp::ApplyRequest {
            change: Some(change.clone()),
            cause: Some(dp::Cause {
                what: what.to_owned(),
                who: caller.name.clone(),
                id: id.clone(),
                ..Default::default()
            }),
            expected_generation: terms.expected_generation,
            lossy: terms.lossy,
            key: named.as_ref().map_or_else(String::new, Named::key),
            fingerprint: named.as_ref().map_or_else(String::new, Named::fingerprint),
            expected_instance: instance,
        };
        let instance = saver.state().instance;
        let mut answer = dataplane.apply(request(instance)).await;
        if answer.as_ref().is_err_and(|status| status.code() == Code::Aborted)
            && dataplane.plan().await?.instance != instance
        {
            self.look(changing).await?;
            answer = dataplane.apply(request(saver.state().instance)).await;
        }
        if answer.as_ref().is_err_and(is_away) {
            let mut unanswered = self.unanswered();
            if unanswered.len() == UNANSWERED {
                unanswered.pop_front();
            }
            unanswered.push_back(Unanswered { id, what, caller: caller.clone() });
        }
        let dp::ApplyResponse { applied, remarks, repeated, plan, sequence } = answer?;
        let (generation, instance) =
            (applied.unwrap_or_default().generation, saver.state().instance);
        if let Some(plan) = plan.as_ref().filter(|_| !repeated) {
            self.keep_link(plan, applied.unwrap_or_default());
            let mut published = self.0.published.subscribe();
            let published = published.wait_for(|published| *published >= sequence);
            let _ = tokio::time::timeout(PUBLISHED_WITHIN, published).await;
            // The change itself was applied.
            if let Err(status) = self.match_switch(changing, plan, generation, instance).await {
                tracing::warn!(why = status.message(), "cannot offload to the switch");
            }
        }
        let dp::Plan { profile, seed, .. } = plan.unwrap_or_default();
        Ok(pb::ChangeResponse { applied, profile, seed, remarks, repeated })
    }

    fn unanswered(&self) -> std::sync::MutexGuard<'_, VecDeque<Unanswered>> {
        self.0.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the current plan and keeps it. Restores a dataplane that was restarted, lets the switch
    /// do its part, and stops a scenario without a lease.
    pub async fn look(&self, changing: &mut Changing) -> Result<dp::GetPlanResponse, Status> {
        let mut current = self.0.dataplane.plan().await?;
        self.0.dataplane.meet(current.instance).await?;
        if self.bring_back(&current).await? {
            current = self.0.dataplane.plan().await?;
            self.bring_back(&current).await?;
        }
        self.settle_scenario(&changing.leases).await;
        let generation = current.applied.unwrap_or_default().generation;
        let plan = current.plan.clone().unwrap_or_default();
        self.match_switch(changing, &plan, generation, current.instance).await?;
        Ok(current)
    }

    /// A snapshot. With `mark` another span begins after it, which ends the run of the holder of
    /// a lease: only they may ask for that.
    pub async fn stats(&self, caller: &Caller, mark: bool) -> Result<pb::Stats, Status> {
        if !mark {
            return self.0.dataplane.stats(false).await;
        }
        // Until then the lease cannot be acquired.
        let changing = self.changing().await;
        changing.leases.check(caller)?;
        self.0.dataplane.stats(true).await
    }

    /// Keeps what the dataplane answered. One that was restarted is restored to the last link; then
    /// true.
    ///
    /// # Errors
    /// If the dataplane does not answer.
    async fn bring_back(&self, current: &dp::GetPlanResponse) -> Result<bool, Status> {
        let Shared { dataplane, saver, .. } = &*self.0;
        let dp::GetPlanResponse { plan, applied, instance, .. } = current;
        let (instance, applied) = (*instance, applied.unwrap_or_default());
        let kept = saver.state();
        let is_new = instance != kept.instance;
        if is_new && kept.instance != 0 && kept.scenario.is_some() {
            self.end_scenario("the dataplane was restarted, and the scenario ended with it");
        }
        let is_empty = is_new && applied.generation == 0;
        let Some(last) = kept.plan.filter(|_| is_empty) else {
            if (instance, applied.generation) != (kept.instance, kept.generation) {
                saver.update(|state| {
                    state.instance = instance;
                    state.generation = applied.generation;
                    state.lossy = applied.lossy;
                    // A dataplane's initial plan was not set by a caller.
                    if applied.generation > 0 {
                        state.plan = plan.clone();
                    }
                });
            }
            return Ok(false);
        };
        let message = "it has lost what was in force";
        self.tell(pb::EventKind::DataplaneRestarted, "", "", message);
        let dp::Plan { profile, seed, clients, .. } = last;
        let name = profile.as_ref().map_or("", |profile| &profile.name).to_owned();
        let change =
            dp::Change { profile, seed: Some(seed), clients, restart: true, ..Default::default() };
        let cause = dp::Cause {
            what: "the last link is back".to_owned(),
            kind: pb::EventKind::LinkRestored as i32,
            ..Default::default()
        };
        let request = dp::ApplyRequest {
            change: Some(change),
            cause: Some(cause),
            expected_generation: Some(0),
            lossy: kept.lossy,
            expected_instance: instance,
            ..Default::default()
        };
        match dataplane.apply(request).await {
            Ok(dp::ApplyResponse { applied, .. }) => {
                saver.update(|state| {
                    state.instance = instance;
                    state.generation = applied.unwrap_or_default().generation;
                });
                Ok(true)
            }
            // Another change was faster, and counts.
            Err(status) if status.code() == Code::Aborted => Ok(true),
            Err(status) if is_away(&status) => Err(status),
            Err(status) => {
                // Not tried again with this dataplane.
                saver.update(|state| {
                    (state.instance, state.generation) = (instance, 0);
                });
                self.tell(pb::EventKind::LinkNotRestored, "", &name, status.message());
                Ok(false)
            }
        }
    }

    /// Publishes an event of the dataplane.
    pub fn forward(&self, instance: u64, sequence: u64, mut event: pb::Event, id: &str) {
        let late = {
            let mut unanswered = self.unanswered();
            let place = unanswered.iter().position(|it| !id.is_empty() && it.id == id);
            place.and_then(|place| unanswered.remove(place))
        };
        if let Some(Unanswered { what, caller, .. }) = late {
            let rest = event.message.strip_prefix(what).unwrap_or(&event.message);
            event.message = format!("{what}, after its deadline{rest}");
            let message = format!("{what}, after its deadline");
            let (call, generation, message) = (caller.call, event.generation, &*message);
            let line = Line { call, generation, message, ..Line::of("late", &caller, "") };
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

    pub fn saver(&self) -> &Saver {
        &self.0.saver
    }

    /// Ends the lease that runs, and returns the link as it says; gives the generation of
    /// that. Where the dataplane does not answer, the lease stays.
    pub async fn end_lease(
        &self,
        changing: &mut Changing,
        kind: pb::EventKind,
        who: &str,
    ) -> Result<Option<u64>, Status> {
        let Some(held) = &changing.leases.0 else { return Ok(None) };
        let holder = held.lease.holder.clone();
        let name = held.lease.return_profile.clone();
        let linkd = Caller::linkd();
        let cause = Cause { what: "the end of a lease", caller: &linkd };
        // Otherwise a step could follow the return of the link.
        self.settle_scenario(&Leases(None)).await;
        let (mut generation, mut message) = (None, "the link stays as it is".to_owned());
        if !name.is_empty() {
            let returned = match self.named(&name).await {
                Ok(profile) => {
                    let profile = Some(profile.into_proto());
                    let change = dp::Change { profile, restart: true, ..Default::default() };
                    self.apply(changing, cause, None, change, Terms::default()).await
                }
                Err(status) => Err(status),
            };
            match &returned {
                Err(status) if is_away(status) => {
                    return Err(status.clone());
                }
                Err(status) => {
                    message = format!("the link cannot return to {name}: {}", status.message());
                }
                Ok(change) => {
                    generation = change.applied.map(|applied| applied.generation);
                    message = format!("the link returns to {name}");
                    self.note(cause, &returned);
                }
            }
        }
        changing.leases.0 = None;
        if let Err(status) = self.save_lease(&changing.leases).await {
            tracing::error!(why = status.message(), "the end of a lease is not on the disk");
        }
        self.tell(kind, who, &holder, message);
        Ok(generation)
    }

    /// Saves the lease, and waits until it is on the disk.
    pub async fn save_lease(&self, leases: &Leases) -> Result<(), Status> {
        self.keep_lease(leases);
        self.0.saver.save().await.map_err(unwritten)
    }

    /// Saves the lease soon, and wakes who waits for its end.
    pub fn keep_lease(&self, leases: &Leases) {
        self.0.saver.update(|state| leases.to_state(state));
        self.0.lease_changed.send_replace(());
    }

    /// Reports when the lease is another one, or has another end.
    pub fn lease_changes(&self) -> watch::Receiver<()> {
        self.0.lease_changed.subscribe()
    }

    /// Keeps a plan that was applied.
    fn keep_link(&self, plan: &dp::Plan, applied: pb::Applied) {
        self.0.saver.update(|state| {
            if applied.generation > state.generation {
                state.plan = Some(plan.clone());
                state.lossy = applied.lossy;
                state.generation = applied.generation;
            }
        });
    }

    /// Stops the scenario if its caller may not change the link any longer.
    pub async fn settle_scenario(&self, leases: &Leases) {
        let Some(run) = self.0.saver.state().scenario else { return };
        let lease = Some(run.token).filter(|token| !token.is_empty());
        let Err(lost) = leases.check(&Caller { lease, ..Caller::linkd() }) else { return };
        let reason = format!("it lost the link: {}", lost.message());
        match self.0.dataplane.stop_scenario(&reason, false).await {
            Ok(_) => self.0.saver.update(|state| state.scenario = None),
            // It has ended.
            Err(status) if status.code() == Code::FailedPrecondition => {}
            Err(status) => tracing::warn!(why = status.message(), "cannot stop the scenario yet"),
        }
    }

    /// Reports that the scenario ended with its dataplane.
    fn end_scenario(&self, message: &str) {
        let Some(run) = self.0.saver.state().scenario else { return };
        self.0.saver.update(|state| state.scenario = None);
        self.publish(pb::Event {
            kind: pb::EventKind::ScenarioStopped as i32,
            who: run.who,
            subject: run.name,
            message: message.to_owned(),
            scenario_run: run.run,
            ..Default::default()
        });
    }

    /// Logs a change or its refusal.
    pub fn note(&self, cause: Cause<'_>, answer: &Result<pb::ChangeResponse, Status>) {
        let Cause { what, caller } = cause;
        let Caller { name: who, from, .. } = caller;
        match answer {
            Ok(change) if change.repeated => tracing::info!(what, who, from, "sent again"),
            Ok(_) => {}
            Err(status) => {
                tracing::info!(what, who, from, code = ?status.code(), why = status.message(), "refused");
            }
        }
    }
}

/// The part of a request. TOML is read here, everything else is checked by the dataplane.
fn part(request: pb::PatchLinkRequest) -> Result<dp::Part, Status> {
    let pb::PatchLinkRequest { direction, pipe, mask, toml, .. } = request;
    if toml.is_empty() {
        return Ok(dp::Part { direction, pipe, mask });
    }
    let mut found = Violations::default();
    if pipe.is_some() || mask.is_some() {
        found.push("toml", "given beside `pipe` or `mask`: give one or the other");
    }
    let read = found.into_result().and_then(|()| Part::from_toml(&toml));
    let read = read.map_err(|found| refusal::invalid("the patch", &found))?;
    Ok(crate::scenarios::part(direction, &read))
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
fn unwritten(error: std::io::Error) -> Status {
    Status::failed_precondition(format!(
        "linkd cannot write to the directory of its --state: {error}; make room on the disk, or \
         correct the directory's permissions, then try again"
    ))
}
