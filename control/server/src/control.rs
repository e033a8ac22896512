// SPDX-License-Identifier: Apache-2.0
//! Puts changes in force, one at a time, whoever asks for them.

use crate::answers::{Answers, Named};
use crate::audit::{Audit, Line};
use crate::caller::Caller;
use crate::dataplane::{Dataplane, Taken};
use crate::events::Events;
use crate::given;
use crate::leases::{Leases, Now};
use crate::matches::Matches;
use crate::patch::Patch;
use crate::refusal;
use crate::scenarios::interrupted;
use crate::state::{self, Saver};
use profile::{Catalog, Profile, Violations};
use proto::dataplane::v1 as dp;
use proto::linkd::v1::State;
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::{Mutex, MutexGuard, watch};
use tonic::{Code, Response, Status};

/// The seed before anyone gave one.
pub(crate) const FIRST_SEED: u64 = 1;
/// How often a change is tried when others come between.
const TRIES: u32 = 8;

/// What all services share; clones are the same one.
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
    /// What linkd has put in force for the switch's sake.
    matches: Matches,
}

/// What only who changes the link looks at.
#[derive(Debug, Default)]
pub(crate) struct Changing {
    pub leases: Leases,
    answers: Answers,
    /// The dataplane that cannot be brought back to the last link: that is said once.
    hopeless: Option<u64>,
    /// What the dataplane did not let the switch do: so is that.
    pub unmatched: Option<(u64, u64, dp::Offload)>,
    /// The last change, if the dataplane did not say in time whether it made it.
    unanswered: Option<Unanswered>,
}

/// A change that the dataplane may yet make.
#[derive(Debug)]
struct Unanswered {
    instance: u64,
    /// Its generation, if it is made.
    generation: u64,
    plan: dp::Plan,
    what: &'static str,
    caller: Caller,
}

/// The kind of a change, and its caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cause<'a> {
    pub what: &'static str,
    pub caller: &'a Caller,
}

/// What linkd has last known to be in force, and on which dataplane.
struct Known {
    plan: Option<dp::Plan>,
    instance: u64,
    generation: u64,
}

/// A change of the link: from what is in force to what is to be.
type Compile<'a> = dyn Fn(Option<dp::Plan>) -> Result<dp::Plan, Status> + Send + Sync + 'a;

impl Control {
    /// Drives a dataplane with the profiles of a catalog and of files that are read when they are
    /// needed, and goes on from a saved state.
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
            matches: Matches::default(),
        }))
    }

    /// The profiles that can be set by name, without those that are not read yet.
    pub fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.0.catalog.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The dataplane.
    pub fn dataplane(&self) -> &Dataplane {
        &self.0.dataplane
    }

    /// Waits for whoever is changing something.
    pub async fn changing(&self) -> MutexGuard<'_, Changing> {
        self.0.changing.lock().await
    }

    /// Says that something has happened.
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
        // One at a time, so that two never read the same; who asks for another one waits for one.
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
            Some(Requested::Inline(message)) => self.unnamed(Profile::try_from(message)).await,
            Some(Requested::Toml(text)) => self.unnamed(given::text(text).await?).await,
        }
    }

    /// A profile that is given whole.
    async fn unnamed(&self, read: Result<Profile, Violations>) -> Result<pb::Profile, Status> {
        let profile = read.map_err(|found| refusal::invalid("the profile", &found))?;
        self.check_name(&profile).await?;
        Ok(profile.into_proto())
    }

    /// Another profile under a known name would be taken for the known one.
    async fn check_name(&self, profile: &Profile) -> Result<(), Status> {
        self.read(profile.name()).await;
        match self.catalog().get(profile.name()) {
            Some(known) if known != profile => {
                let mut found = Violations::default();
                let name = profile.name();
                found.push("name", format!("{name:?} is the name of another profile that linkd has: give this one a name of its own"));
                Err(refusal::invalid("the profile", &found))
            }
            _ => Ok(()),
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

    /// Removes a stored profile.
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

    /// Replaces the whole link.
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
            let profile = self.requested(profile).await?;
            let terms = dp::ApplyRequest {
                restart: true,
                expected_generation,
                lossy,
                ..Default::default()
            };
            self.change(cause, named, terms, &whole(&profile, seed)).await
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
            let patch =
                Patch::try_from(&request).map_err(|found| refusal::invalid("the patch", &found))?;
            let compile = |in_force: Option<dp::Plan>| {
                let mut plan = in_force.ok_or_else(refusal::no_link)?;
                let link = plan.profile.take().ok_or_else(refusal::no_link)?;
                let link =
                    patch.apply(&link).map_err(|found| refusal::invalid("the patch", &found))?;
                Ok(dp::Plan { profile: Some(link), ..plan })
            };
            let pb::PatchLinkRequest { expected_generation, lossy, .. } = request;
            let (arm_forward, arm_return) = patch.arms();
            let terms = dp::ApplyRequest {
                expected_generation,
                lossy,
                arm_forward,
                arm_return,
                ..Default::default()
            };
            self.change(cause, named, terms, &compile).await
        };
        let answer = changing.await;
        self.note(cause, &answer);
        answer
    }

    /// Puts a change in force on the terms of a request without a plan, if the caller may
    /// change the link. One that has a name and was made is not made again.
    pub async fn change(
        &self,
        cause: Cause<'_>,
        named: Option<Named>,
        mut terms: dp::ApplyRequest,
        compile: &Compile<'_>,
    ) -> Result<pb::ChangeResponse, Status> {
        let mut changing = self.changing().await;
        if let Some(named) = &named {
            if let Some(answer) = changing.answers.to(named)? {
                return Ok(answer);
            }
            terms.key = named.key();
        }
        changing.leases.check(cause.caller)?;
        let mut answer = self.apply(&mut changing, cause, terms, compile).await?;
        if let Some(named) = named {
            changing.answers.keep(named, answer.clone());
        }
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

    /// Changes what is in force, unless another change came between; then again, if the
    /// caller did not say what to expect. Whoever calls it keeps others from changing.
    ///
    /// It begins with what linkd has last known to be in force: the dataplane refuses that
    /// where it is not true any more, and only then it is asked.
    async fn apply(
        &self,
        changing: &mut Changing,
        cause: Cause<'_>,
        terms: dp::ApplyRequest,
        compile: &Compile<'_>,
    ) -> Result<pb::ChangeResponse, Status> {
        let dataplane = &self.0.dataplane;
        let expected = terms.expected_generation;
        if let Some(known) = self.known()
            && expected.is_none_or(|expected| expected == known.generation)
            // What is wrong is said of what is in force.
            && let Ok(plan) = compile(known.plan)
        {
            let expected_generation = Some(known.generation);
            let expected_instance = known.instance;
            let terms =
                dp::ApplyRequest { expected_generation, expected_instance, ..terms.clone() };
            match self.put_in_force(changing, cause, terms, plan, known.instance).await {
                Ok(Some(answer)) => return Ok(answer),
                Err(status) if is_away(&status) => return Err(status),
                // Made before, or not fit for a link that may not be in force.
                Ok(None) | Err(_) => {}
            }
        }
        let mut tries = 1;
        loop {
            let current = dataplane.plan(&terms.key).await?;
            if self.bring_back(changing, &current).await? {
                continue;
            }
            let generation = current.applied.map(|applied| applied.generation);
            if let Some(applied) = current.made {
                // Also by what linkd has done to it since.
                let same = self.matches().after(current.instance, applied.generation);
                let last = generation == Some(same);
                let plan = current.plan.filter(|_| last).unwrap_or_default();
                return Ok(pb::ChangeResponse {
                    applied: Some(applied),
                    profile: plan.profile,
                    seed: plan.seed,
                    remarks: if last { current.remarks } else { Vec::new() },
                    repeated: true,
                });
            }
            if let (Some(expected), Some(in_force)) = (expected, generation)
                && expected != in_force
            {
                return Err(refusal::other_generation(expected, in_force));
            }
            let instance = current.instance;
            let plan = compile(current.plan)?;
            let expected_generation = expected.or(generation);
            let terms = dp::ApplyRequest { expected_generation, ..terms.clone() };
            match self.put_in_force(changing, cause, terms, plan, instance).await {
                Ok(Some(answer)) => return Ok(answer),
                // Made by now: how is read above.
                Ok(None) => {}
                Err(status)
                    if status.code() == Code::Aborted && expected.is_none() && tries < TRIES =>
                {
                    tries += 1;
                    // The next step of a dense scenario would come between again.
                    dataplane.take_back().await?;
                }
                Err(status) => return Err(status),
            }
        }
    }

    /// What was last known to be in force, if somebody has chosen it.
    fn known(&self) -> Option<Known> {
        let kept = self.0.saver.state();
        let is_chosen = kept.generation > 0 && kept.instance > 0 && kept.plan.is_some();
        let State { plan, instance, generation, .. } = kept;
        is_chosen.then_some(Known { plan, instance, generation })
    }

    /// Asks the dataplane to put a plan in force on the terms of a request without one, and
    /// keeps it; none if the change had been made before, under the same key.
    async fn put_in_force(
        &self,
        changing: &mut Changing,
        Cause { what, caller }: Cause<'_>,
        terms: dp::ApplyRequest,
        plan: dp::Plan,
        instance: u64,
    ) -> Result<Option<pb::ChangeResponse>, Status> {
        let request = dp::ApplyRequest { plan: Some(plan.clone()), ..terms };
        let request = self.0.dataplane.offloaded(request, instance).await;
        let expected = request.expected_generation;
        let answer = self.0.dataplane.apply(request).await;
        changing.unanswered = match &answer {
            Err(status) if is_away(status) => expected.map(|expected| {
                let (generation, plan, caller) = (expected + 1, plan.clone(), caller.clone());
                Unanswered { instance, generation, plan, what, caller }
            }),
            _ => None,
        };
        let Taken { applied, remarks, repeated } = answer?;
        if repeated {
            return Ok(None);
        }
        let dp::Plan { profile, seed, .. } = plan.clone();
        self.0.saver.update(|state| {
            state.plan = Some(plan);
            state.lossy = applied.lossy;
            state.generation = applied.generation;
        });
        let applied = Some(applied);
        Ok(Some(pb::ChangeResponse { applied, profile, seed, remarks, repeated }))
    }

    /// A snapshot. With `mark` another span begins after it, which ends the run of the holder of
    /// a lease: only they may ask for that.
    pub async fn stats(&self, caller: &Caller, mark: bool) -> Result<pb::Stats, Status> {
        if !mark {
            return self.0.dataplane.stats(false).await;
        }
        // Until it is done nobody acquires the link.
        let changing = self.changing().await;
        changing.leases.check(caller)?;
        self.0.dataplane.stats(true).await
    }

    /// Sees what is in force, and keeps that. A dataplane that was started anew, and knows
    /// nothing, is brought back to the last link; then true.
    ///
    /// # Errors
    /// If the dataplane went away meanwhile.
    pub async fn bring_back(
        &self,
        changing: &mut Changing,
        in_force: &dp::GetPlanResponse,
    ) -> Result<bool, Status> {
        let Shared { dataplane, saver, .. } = &*self.0;
        let dp::GetPlanResponse { plan, applied, instance, .. } = in_force;
        let (instance, applied) = (*instance, applied.unwrap_or_default());
        let kept = saver.state();
        let is_new = instance != kept.instance && applied.generation == 0;
        self.tell_unanswered(changing, in_force);
        let Some(last) = kept.plan.filter(|_| is_new) else {
            if (instance, applied.generation) != (kept.instance, kept.generation) {
                saver.update(|state| {
                    state.instance = instance;
                    state.generation = applied.generation;
                    state.lossy = applied.lossy;
                    // What it begins with is nobody's choice.
                    if applied.generation > 0 {
                        state.plan = plan.clone();
                    }
                });
            }
            return Ok(false);
        };
        if changing.hopeless == Some(instance) {
            return Ok(false);
        }
        let message = "it has lost what was in force";
        self.tell(pb::EventKind::DataplaneRestarted, "", "", message);
        let request = dp::ApplyRequest {
            plan: Some(last.clone()),
            restart: true,
            expected_generation: Some(0),
            lossy: kept.lossy,
            ..Default::default()
        };
        let request = dataplane.offloaded(request, instance).await;
        match dataplane.apply(request).await {
            Ok(Taken { applied, remarks, .. }) => {
                saver.update(|state| {
                    state.instance = instance;
                    state.generation = applied.generation;
                });
                let dp::Plan { profile, seed, .. } = last;
                let applied = Some(applied);
                let change =
                    pb::ChangeResponse { applied, profile, seed, remarks, repeated: false };
                self.note_as(pb::EventKind::LinkRestored, "the last link is back", "", &change);
                Ok(true)
            }
            // Somebody was quicker; what they have set counts.
            Err(status) if status.code() == Code::Aborted => Ok(true),
            Err(status) if is_away(&status) => Err(status),
            Err(status) => {
                changing.hopeless = Some(instance);
                let name = last.profile.unwrap_or_default().name;
                self.tell(pb::EventKind::LinkNotRestored, "", &name, status.message());
                Ok(false)
            }
        }
    }

    /// Remembers the step of a scenario that the dataplane may yet make, as `generation`.
    pub async fn step_unanswered(
        &self,
        instance: u64,
        generation: u64,
        plan: dp::Plan,
        caller: &Caller,
    ) {
        let (what, caller) = ("a step of a scenario", caller.clone());
        self.changing().await.unanswered =
            Some(Unanswered { instance, generation, plan, what, caller });
    }

    /// Tells of a change that the dataplane made after its deadline.
    fn tell_unanswered(&self, changing: &mut Changing, in_force: &dp::GetPlanResponse) {
        let dp::GetPlanResponse { plan, applied, instance, remarks, .. } = in_force;
        let (Some(plan), Some(applied)) = (plan, applied) else { return };
        // It may be made later, while nothing else is.
        let decided =
            |it: &mut Unanswered| it.instance != *instance || it.generation <= applied.generation;
        let Some(it) = changing.unanswered.take_if(decided) else { return };
        // Changes are made one at a time: only a step of a scenario can have its generation.
        let link = |plan: &dp::Plan| dp::Plan { offload: None, ..plan.clone() };
        let is_it = (it.instance, it.generation) == (*instance, applied.generation);
        if !is_it || link(&it.plan) != link(plan) {
            return;
        }
        let dp::Plan { profile, seed, .. } = it.plan;
        let remarks = remarks.clone();
        let change =
            pb::ChangeResponse { applied: Some(*applied), profile, seed, remarks, repeated: false };
        let what = format!("{}, after its deadline", it.what);
        self.note_as(pb::EventKind::LinkChanged, &what, &it.caller.name, &change);
        let (call, generation) = (it.caller.call, Some(applied.generation));
        let line = Line { call, generation, message: &what, ..Line::of("late", &it.caller, "") };
        // That it cannot be written is logged, and refuses the next change.
        let _ = self.0.audit.write(&line);
    }

    /// What linkd has put in force for the switch's sake.
    pub fn matches(&self) -> &Matches {
        &self.0.matches
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
        let (mut generation, mut message) = (None, "the link stays as it is".to_owned());
        if !name.is_empty() {
            let returned = match self.named(&name).await {
                Ok(profile) => {
                    let terms = dp::ApplyRequest { restart: true, ..Default::default() };
                    let compile = whole(profile.as_proto(), None);
                    self.apply(changing, cause, terms, &compile).await
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

    /// Tells when the lease is another one, or has another end.
    pub fn lease_changes(&self) -> watch::Receiver<()> {
        self.0.lease_changed.subscribe()
    }

    /// Keeps what a scenario's step has put in force.
    pub fn keep_link(&self, plan: &dp::Plan, applied: &pb::Applied) {
        self.0.saver.update(|state| {
            // Whoever changed the link after it has kept that.
            if applied.generation > state.generation {
                state.plan = Some(plan.clone());
                state.lossy = applied.lossy;
                state.generation = applied.generation;
            }
        });
    }

    /// Keeps how far a scenario has come, until it is over.
    pub fn keep_scenario(&self, state: Option<&pb::ScenarioState>) {
        let kept = state.map(|state| pb::ScenarioState { next: Vec::new(), ..state.clone() });
        self.0.saver.update(|state| state.scenario = kept);
    }

    /// Tells of a scenario that the last linkd left unfinished, once.
    pub async fn tell_interrupted(&self) {
        if let Some(event) = self.0.saver.state().scenario.as_ref().and_then(interrupted) {
            self.0.events.publish(event);
            self.keep_scenario(None);
            if let Err(error) = self.0.saver.save().await {
                tracing::error!(%error, "the end of a scenario is not on the disk");
            }
        }
    }

    /// Notes a change and who asked for it.
    pub fn note(&self, cause: Cause<'_>, answer: &Result<pb::ChangeResponse, Status>) {
        let Cause { what, caller } = cause;
        match answer {
            Ok(change) if change.repeated => {
                tracing::info!(what, who = caller.name, from = caller.from, "sent again");
            }
            Ok(change) => self.note_as(pb::EventKind::LinkChanged, what, &caller.name, change),
            Err(status) => {
                let Caller { name: who, from, .. } = caller;
                tracing::info!(what, who, from, code = ?status.code(), why = status.message(), "refused");
            }
        }
    }

    /// Notes a change.
    pub fn note_as(&self, kind: pb::EventKind, what: &str, who: &str, change: &pb::ChangeResponse) {
        let pb::Applied { generation, effective_ns, effective_utc, lossy } =
            change.applied.unwrap_or_default();
        let profile = change.profile.as_ref().map_or("", |profile| &profile.name);
        let lossy = if lossy { ", lossy" } else { "" };
        self.0.events.publish(pb::Event {
            utc: effective_utc,
            time_ns: Some(effective_ns),
            kind: kind as i32,
            who: who.to_owned(),
            subject: profile.to_owned(),
            message: format!("{what}: generation {generation}, seed {}{lossy}", change.seed),
            generation: Some(generation),
            ..Default::default()
        });
    }
}

/// Runs a change to completion, even if the caller disconnects: otherwise what is in force, on
/// disk and in the audit log could differ.
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

/// Not UNAVAILABLE, which tells a caller to reach linkd another way or to send the request again.
fn unwritten(error: std::io::Error) -> Status {
    Status::failed_precondition(format!(
        "linkd cannot write to the directory of its --state: {error}; make room on the disk, or \
         correct the directory's permissions, then try again"
    ))
}

/// A whole profile in place of what is in force, with the seed in force unless another is
/// given, and the clients that are.
fn whole(
    profile: &pb::Profile,
    seed: Option<u64>,
) -> impl Fn(Option<dp::Plan>) -> Result<dp::Plan, Status> + Send + Sync {
    move |in_force| {
        let in_force =
            in_force.unwrap_or_else(|| dp::Plan { seed: FIRST_SEED, ..Default::default() });
        let (profile, seed) = (Some(profile.clone()), seed.unwrap_or(in_force.seed));
        Ok(dp::Plan { profile, seed, ..in_force })
    }
}
