// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Links`, and which link a request is about.
//!
//! A link is a [`Control`] with its scenarios and its tasks. The dataplane owns the links. linkd
//! keeps their state to add them again to a restarted dataplane ([`Links::meet`]).

mod moves;

use crate::caller::Caller;
use crate::control::{Changing, Control, is_away, lock_all, to_its_end, unwritten};
use crate::events::Events;
use crate::refusal;
use crate::scenarios::{Scenarios, follow};
use crate::watching::Watching;
use moves::{Moves, moves};
use profile::counted;
use proto::dataplane::v1 as dp;
use proto::linkd::v1::State;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::links_server;
use proto::{MAIN_LINK, link_id, link_name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::AbortHandle;
use tonic::{Code, Request, Response, Status};

/// A link with its tasks, which end with it.
#[derive(Clone)]
pub(crate) struct Lane {
    pub control: Control,
    pub scenarios: Scenarios,
    /// Sequence of the dataplane's last event before the last look at it.
    looked: Arc<AtomicU64>,
    _tasks: Arc<Tasks>,
}

struct Tasks(Vec<AbortHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// The links. Clones share them.
#[derive(Clone)]
pub(crate) struct Links(Arc<Shared>);

struct Shared {
    main: Lane,
    events: Events,
    watching: Watching,
    /// By name, without "links/".
    others: RwLock<BTreeMap<String, Lane>>,
    /// One change of the links at a time; the dataplane that they were last compared with.
    changing: Mutex<u64>,
}

impl Links {
    /// The link `main` and those that were kept.
    pub fn new(
        control: Control,
        scenarios: Scenarios,
        events: Events,
        watching: Watching,
        kept: BTreeMap<String, State>,
    ) -> Self {
        let main = Lane {
            control,
            scenarios,
            looked: Arc::default(),
            _tasks: Arc::new(Tasks(Vec::new())),
        };
        let (others, changing) = (RwLock::default(), Mutex::default());
        let this = Self(Arc::new(Shared { main, events, watching, others, changing }));
        for (name, state) in kept {
            if let Err(status) = this.begin(&name, state) {
                tracing::error!(name, why = status.message(), "a link is not kept");
            }
        }
        let controls = this.controls();
        for lane in std::iter::once(this.main()).chain(this.others().values()) {
            if let Some(run) = lane.control.saver().state().scenario {
                lane.scenarios.visit(&run, &controls);
            }
        }
        this
    }

    pub fn main(&self) -> &Lane {
        &self.0.main
    }

    /// All links but `main`, by their names without "links/".
    pub fn others(&self) -> BTreeMap<String, Lane> {
        self.0.others.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The controls of all links, by their names without "links/".
    fn controls(&self) -> BTreeMap<String, Control> {
        let others = self.others().into_iter().map(|(name, lane)| (name, lane.control));
        others.chain([(MAIN_LINK.to_owned(), self.0.main.control.clone())]).collect()
    }

    /// The link that a request names: `main` if the name is empty.
    ///
    /// # Errors
    /// NOT_FOUND.
    pub fn of(&self, name: &str) -> Result<Lane, Status> {
        match name {
            "" => Ok(self.0.main.clone()),
            name => self.get(name),
        }
    }

    /// The control of the link that a request names, as [`Self::of`].
    ///
    /// # Errors
    /// NOT_FOUND.
    pub fn control(&self, name: &str) -> Result<Control, Status> {
        Ok(self.of(name)?.control)
    }

    /// The control of the link with a name, with or without "links/".
    ///
    /// # Errors
    /// NOT_FOUND.
    pub fn named(&self, name: &str) -> Result<Control, Status> {
        Ok(self.get(name)?.control)
    }

    fn get(&self, name: &str) -> Result<Lane, Status> {
        let name = link_id(name);
        if name == MAIN_LINK {
            return Ok(self.0.main.clone());
        }
        let others = self.0.others.read().unwrap_or_else(PoisonError::into_inner);
        others.get(name).cloned().ok_or_else(|| {
            let known = std::iter::once(MAIN_LINK).chain(others.keys().map(String::as_str));
            let known: Vec<_> = known.take(20).collect();
            Status::not_found(format!(
                "there is no link `{}`: the links are {}; add one with `linkctl link add`",
                refusal::clip(name),
                known.join(", ")
            ))
        })
    }

    /// Begins to keep a link that the dataplane has, or will have.
    fn begin(&self, name: &str, state: State) -> Result<Lane, Status> {
        let Shared { main, events, watching, others, .. } = &*self.0;
        let saver = main.control.saver().of_link(name, state).map_err(unwritten)?;
        let control = main.control.beside(link_name(name), saver.clone());
        let scenarios = Scenarios::new(control.clone(), watching.clone());
        let tasks = [
            tokio::spawn({
                let control = control.clone();
                async move { control.watch_lease().await }
            }),
            tokio::spawn({
                let (scenarios, events) = (scenarios.clone(), events.clone());
                async move { follow(&scenarios, &events).await }
            }),
            tokio::spawn(async move { saver.run().await }),
        ];
        let tasks = tasks.iter().map(|task| task.abort_handle()).collect();
        let lane =
            Lane { control, scenarios, looked: Arc::default(), _tasks: Arc::new(Tasks(tasks)) };
        let mut others = others.write().unwrap_or_else(PoisonError::into_inner);
        others.insert(name.to_owned(), lane.clone());
        Ok(lane)
    }

    /// Compares the links with those of a dataplane that is not known yet: adds those that it does
    /// not have, with their rules and their profiles, and keeps those that are not known here. Of a
    /// dataplane that is known, keeps what steps of scenarios have changed.
    ///
    /// # Errors
    /// If the dataplane does not answer; it is tried again then.
    pub async fn meet(&self, instance: u64) -> Result<(), Status> {
        let mut met = self.0.changing.lock().await;
        if *met == instance {
            return self.keep_up().await;
        }
        let dataplane = self.0.main.control.dataplane();
        let found = dataplane.list_links().await?;
        let there: Vec<&str> = found.links.iter().map(|link| link_id(&link.name)).collect();
        // Links that others pass come first.
        let mut others: Vec<_> = self.others().into_iter().collect();
        others.sort_by_key(|(_, lane)| {
            lane.control.saver().state().link.is_some_and(|link| !link.via.is_empty())
        });
        for (name, lane) in others {
            if there.contains(&name.as_str()) {
                continue;
            }
            if let Err(status) = restored(&lane, instance).await {
                if is_away(&status) {
                    return Err(status);
                }
                let kind = pb::EventKind::LinkNotRestored;
                lane.control.tell(kind, "", &name, status.message());
            }
        }
        for link in found.links.iter().filter(|link| link_id(&link.name) != MAIN_LINK) {
            let name = link_id(&link.name);
            if self.get(name).is_err() {
                let link = Some(link.clone());
                self.begin(name, State { link, ..State::default() })?;
            }
        }
        for lane in self.others().values() {
            let mut changing = lane.control.changing().await;
            if let Err(status) = lane.control.look(&mut changing).await
                && is_away(&status)
            {
                return Err(status);
            }
        }
        *met = instance;
        Ok(())
    }

    /// Looks at the links with events since the last look, and keeps their plans.
    async fn keep_up(&self) -> Result<(), Status> {
        for lane in self.others().values() {
            let published = lane.control.published();
            if lane.looked.swap(published, Ordering::Relaxed) == published {
                continue;
            }
            let mut changing = lane.control.changing().await;
            if let Err(status) = lane.control.look(&mut changing).await
                && is_away(&status)
            {
                // Again, when it is back.
                lane.looked.store(0, Ordering::Relaxed);
                return Err(status);
            }
        }
        Ok(())
    }

    async fn list(&self) -> Result<Vec<pb::NamedLink>, Status> {
        let found = self.0.main.control.dataplane().list_links().await?;
        let mut links = found.links;
        for link in &mut links {
            if let Ok(lane) = self.get(&link.name) {
                let changing = lane.control.changing().await;
                let held = changing.leases.0.as_ref();
                link.holder = held.map(|held| held.lease.holder.clone()).unwrap_or_default();
            }
        }
        Ok(links)
    }

    async fn create(
        &self,
        caller: &Caller,
        request: pb::CreateLinkRequest,
    ) -> Result<pb::NamedLink, Status> {
        let pb::CreateLinkRequest { link_id, link } = request;
        let link = pb::NamedLink { name: link_name(&link_id), ..link.unwrap_or_default() };
        let met = self.0.changing.lock().await;
        let main = &self.0.main.control;
        // Their leases stay as they are until the link is there.
        let mut taken_from = BTreeMap::from([(MAIN_LINK.to_owned(), main.clone())]);
        let via = proto::link_id(&link.via);
        if let Ok(shared) = self.named(via) {
            taken_from.insert(via.to_owned(), shared);
        }
        let locked = lock_all(&taken_from).await;
        for (name, changing) in &locked {
            changing.leases.check_taking(caller, || match *name {
                MAIN_LINK => format!("a new link takes its memory from `{MAIN_LINK}`"),
                shared => {
                    format!("the packets of `{}` would pass `{shared}`", refusal::clip(&link_id))
                }
            })?;
        }
        let dataplane = main.dataplane();
        let request = dp::AddLinkRequest { link: Some(link), expected_instance: *met };
        let link = dataplane.add_link(request).await?;
        let state = State { link: Some(link.clone()), instance: *met, ..State::default() };
        let begun = self.begin(&link_id, state);
        let saved = match &begun {
            Ok(lane) => lane.control.saver().save().await.map_err(unwritten),
            Err(status) => Err(status.clone()),
        };
        if let Err(status) = saved {
            // Nothing is half-done.
            let name = link.name.clone();
            let request = dp::RemoveLinkRequest { name, expected_instance: *met };
            dataplane.remove_link(request).await?;
            self.forget(&link_id).await;
            return Err(status);
        }
        let lane = begun?;
        let message = format!(
            "{} for packets, up to {}",
            view::size(link.memory_bytes),
            counted(link.clients, "client", "clients")
        );
        lane.control.tell(pb::EventKind::LinkAdded, &caller.name, &link_id, message);
        if locked.get(MAIN_LINK).is_some_and(|changing| changing.leases.0.is_some()) {
            let size = view::size(link.memory_bytes);
            let message = format!("it has {size} of the memory of `{MAIN_LINK}`");
            main.tell(pb::EventKind::LinkAdded, &caller.name, &link_id, message);
        }
        Ok(link)
    }

    async fn delete(&self, caller: &Caller, name: &str) -> Result<(), Status> {
        let met = self.0.changing.lock().await;
        let lane = self.get(name)?;
        let name = link_id(name).to_owned();
        let found = self.0.main.control.dataplane().list_links().await?;
        let all = self.controls();
        // A change of the link waits until it is gone, and is refused then.
        let locked = lock_all(&all).await;
        let changing = |name: &str| locked.get(name).map(|changing| &changing.leases);
        changing(&name).map_or(Ok(()), |leases| leases.check(caller))?;
        let itself = found.links.iter().find(|link| link_id(&link.name) == name);
        let via = itself.map_or("", |link| link_id(&link.via));
        if let Some(leases) = changing(via) {
            leases.check_taking(caller, || format!("`{name}` is a client of `{via}`"))?;
        }
        let before = found.rules.unwrap_or_default().rules;
        let moves = moves(&name, &[], &found.links, &before, &leased(&locked));
        let request = dp::RemoveLinkRequest { name: link_name(&name), expected_instance: *met };
        match self.0.main.control.dataplane().remove_link(request).await {
            // A dataplane that was restarted may never have had it.
            Err(status) if status.code() != Code::NotFound => return Err(status),
            _ => {}
        }
        drop(locked);
        self.forget(&name).await;
        lane.control.tell(pb::EventKind::LinkRemoved, &caller.name, &name, "its memory is free");
        tell_moves(&all, caller, &name, &moves);
        Ok(())
    }

    /// Replaces the rules of a link. Packets of a leased link move only to its holder.
    async fn set_rules(
        &self,
        caller: &Caller,
        name: &str,
        request: pb::SetLinkRulesRequest,
    ) -> Result<pb::LinkRules, Status> {
        // No link is added or removed, and no rules are set, until these are.
        let met = self.0.changing.lock().await;
        let control = self.named(name)?;
        let found = self.0.main.control.dataplane().list_links().await?;
        let all = self.controls();
        let locked = lock_all(&all).await;
        let leases = locked.values().map(|changing| &changing.leases);
        if let Some(own) = locked.get(name) {
            own.leases.check_among(leases, caller)?;
        }
        let pb::SetLinkRulesRequest { rules, expected_generation, .. } = request;
        let before = found.rules.unwrap_or_default().rules;
        let moves = moves(name, &rules, &found.links, &before, &leased(&locked));
        for (from, rule) in &moves.from {
            if let Some(changing) = locked.get(from.as_str()) {
                let what = || format!("{rule} takes packets of `{from}`");
                changing.leases.check_taking(caller, what)?;
            }
        }
        let count = rules.len();
        let request = dp::SetLinkRulesRequest {
            rules: rules.clone(),
            expected_generation,
            expected_instance: *met,
        };
        let answer = control.dataplane().set_link_rules(request).await?;
        control.saver().update(|state| state.rules = rules);
        let message =
            format!("{}, generation {}", counted(count, "rule", "rules"), answer.generation);
        control.tell(pb::EventKind::LinkRulesChanged, &caller.name, "", message);
        tell_moves(&all, caller, name, &moves);
        Ok(answer)
    }

    async fn forget(&self, name: &str) {
        self.0.others.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        if let Err(error) = self.0.main.control.saver().forget(name.to_owned()).await {
            tracing::error!(%error, name, "the state of a link that was removed is still on disk");
        }
    }
}

/// Adds a link to a dataplane that was restarted, with its rules.
async fn restored(lane: &Lane, instance: u64) -> Result<(), Status> {
    let State { link, rules, .. } = lane.control.saver().state();
    let request = dp::AddLinkRequest { link, expected_instance: instance };
    lane.control.dataplane().add_link(request).await?;
    if rules.is_empty() {
        return Ok(());
    }
    let expected_instance = instance;
    let request = dp::SetLinkRulesRequest { rules, expected_instance, ..Default::default() };
    lane.control.dataplane().set_link_rules(request).await.map(drop)
}

/// The names of the links with a lease.
fn leased<'a>(locked: &BTreeMap<&'a str, MutexGuard<'_, Changing>>) -> BTreeSet<&'a str> {
    let is_leased = |changing: &Changing| changing.leases.0.is_some();
    locked.iter().filter(|(_, changing)| is_leased(changing)).map(|(name, _)| *name).collect()
}

/// Tells the holders of leases that packets of their links move to or from `link`.
fn tell_moves(all: &BTreeMap<String, Control>, caller: &Caller, link: &str, moves: &Moves) {
    let tell = |name: &str, message: String| {
        if let Some(control) = all.get(name) {
            control.tell(pb::EventKind::LinkRulesChanged, &caller.name, link, message);
        }
    };
    for (name, rule) in &moves.from {
        tell(name, format!("`{link}` takes packets of this link: {rule}"));
    }
    for (name, rule) in &moves.to {
        tell(name, format!("this link gets packets of `{link}`: it no longer has {rule}"));
    }
}

#[tonic::async_trait]
impl links_server::Links for Links {
    async fn list_links(
        &self,
        _: Request<pb::ListLinksRequest>,
    ) -> Result<Response<pb::ListLinksResponse>, Status> {
        let links = self.list().await?;
        Ok(Response::new(pb::ListLinksResponse { links }))
    }

    async fn create_link(
        &self,
        request: Request<pb::CreateLinkRequest>,
    ) -> Result<Response<pb::NamedLink>, Status> {
        let (caller, this) = (Caller::of(&request), self.clone());
        let request = request.into_inner();
        to_its_end(async move { this.create(&caller, request).await }).await
    }

    async fn delete_link(
        &self,
        request: Request<pb::DeleteLinkRequest>,
    ) -> Result<Response<pb::DeleteLinkResponse>, Status> {
        let (caller, this) = (Caller::of(&request), self.clone());
        let name = request.into_inner().name;
        to_its_end(async move {
            this.delete(&caller, &name).await?;
            Ok(pb::DeleteLinkResponse {})
        })
        .await
    }

    async fn get_link_rules(
        &self,
        _: Request<pb::GetLinkRulesRequest>,
    ) -> Result<Response<pb::LinkRules>, Status> {
        let found = self.0.main.control.dataplane().list_links().await?;
        Ok(Response::new(found.rules.unwrap_or_default()))
    }

    async fn set_link_rules(
        &self,
        request: Request<pb::SetLinkRulesRequest>,
    ) -> Result<Response<pb::LinkRules>, Status> {
        let (caller, this) = (Caller::of(&request), self.clone());
        let request = request.into_inner();
        let control = self.control(&request.link)?;
        to_its_end(async move { this.set_rules(&caller, control.name(), request).await }).await
    }
}
