// SPDX-License-Identifier: Apache-2.0
//! The one way by which links change: all of a request at one instant, or none.
//!
//! The locks on the changes of all links are taken in the order of the links' names. The dataplane
//! decides; each link then has its own saved state and event.

use super::{Changing, Control, is_away};
use crate::caller::Caller;
use crate::given;
use crate::leases::Leases;
use crate::named::Named;
use crate::refusal;
use owner::{MOST_LINKS, MOST_PARTS};
use profile::{Part, Violations};
use proto::dataplane::v1 as dp;
use proto::link_name;
use proto::linkemu::v1 as pb;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::MutexGuard;
use tonic::{Code, Status};

/// Finds a link by its name, with or without "links/"; `main` if it is empty.
pub(crate) type Find<'a> = &'a (dyn Fn(&str) -> Result<Control, Status> + Send + Sync);

/// The change of one link.
pub(super) struct Update {
    control: Control,
    /// For its event, such as "set profile".
    what: String,
    change: dp::Change,
    expected_generation: Option<u64>,
    lossy: bool,
    /// Of its event.
    id: String,
}

impl Update {
    /// Whatever the generation of the link is, and only inside of its envelope.
    pub fn new(control: Control, what: &str, change: dp::Change) -> Result<Self, Status> {
        let id = getrandom::u64().map_err(super::unrandom)?;
        let id = format!("{id:016x}");
        let what = what.to_owned();
        Ok(Self { control, what, change, expected_generation: None, lossy: false, id })
    }

    fn request(&self, caller: &Caller, named: Option<&Named>) -> dp::LinkChange {
        let Self { control, what, change, expected_generation, lossy, id } = self;
        let (what, who, id) = (what.clone(), caller.name.clone(), id.clone());
        dp::LinkChange {
            link: link_name(control.name()),
            change: Some(change.clone()),
            cause: Some(dp::Cause { what, who, id, ..Default::default() }),
            expected_generation: *expected_generation,
            lossy: *lossy,
            key: named.map_or_else(String::new, Named::key),
            fingerprint: named.map_or_else(String::new, Named::fingerprint),
            expected_instance: control.saver().state().instance,
            at_ns: None,
        }
    }
}

/// Changes links, if the caller may change each of them.
///
/// # Errors
/// If no link was changed; the message names the link that refuses, if there are several.
pub(crate) async fn update_links(
    find: Find<'_>,
    caller: &Caller,
    request: pb::UpdateLinksRequest,
) -> Result<pb::UpdateLinksResponse, Status> {
    let answer = updated(find, caller, request).await;
    let Caller { name: who, from, .. } = caller;
    match &answer {
        Ok(answer) if answer.repeated => tracing::info!(who, from, "sent again"),
        Ok(_) => {}
        Err(status) => {
            tracing::info!(who, from, code = ?status.code(), why = status.message(), "refused");
        }
    }
    answer
}

async fn updated(
    find: Find<'_>,
    caller: &Caller,
    request: pb::UpdateLinksRequest,
) -> Result<pb::UpdateLinksResponse, Status> {
    refusal::check_request_id(&request.request_id)?;
    let named = Named::new("UpdateLinks", &caller.name, &request.request_id, &request);
    let updates = updates(find, request.updates).await?;
    let links = updates.iter().map(|it| (it.control.name().to_owned(), it.control.clone()));
    let links = links.collect();
    let mut locked = lock_all(&links).await;
    let leases: Vec<(&str, &Leases)> =
        locked.iter().map(|(name, held)| (*name, &held.leases)).collect();
    Leases::check_links(&leases, caller)?;
    let mut held: Vec<_> =
        updates.iter().filter_map(|it| locked.remove(it.control.name())).collect();
    let mut held: Vec<_> = held.iter_mut().map(|held| &mut **held).collect();
    let mut answer = Box::pin(make(caller, named.as_ref(), &updates, &mut held)).await?;
    for (link, update) in answer.links.iter_mut().zip(&updates) {
        link.remarks.extend(update.control.unsaved());
    }
    Ok(answer)
}

/// The changes that a request asks for, of different links.
async fn updates(find: Find<'_>, asked: Vec<pb::LinkUpdate>) -> Result<Vec<Update>, Status> {
    let n = asked.len();
    if !(1..=MOST_LINKS).contains(&n) {
        let message = format!("{n} are not 1 to {MOST_LINKS}: give the change of each link");
        return Err(refusal::field("updates", message));
    }
    let (mut updates, mut names) = (Vec::with_capacity(n), BTreeSet::new());
    for (place, update) in asked.into_iter().enumerate() {
        let control = find(&update.link)?;
        let name = control.name().to_owned();
        let refused =
            |field: &str, why: &str| refusal::field(&format!("updates[{place}]{field}"), why);
        if !names.insert(name.clone()) {
            let why = format!("`{name}` is named twice: give one change of each link");
            return Err(refused(".link", &why));
        }
        let parts = [
            (update.profile.is_some(), "set profile"),
            (!update.pipes.is_empty(), "patch link"),
            (update.clients.is_some(), "set clients"),
        ];
        let parts: Vec<_> = parts.iter().filter(|(is_given, _)| *is_given).collect();
        let what = parts.iter().map(|(_, what)| *what).collect::<Vec<_>>().join(", ");
        if what.is_empty() {
            return Err(refused("", "changes nothing: give `profile`, `pipes` or `clients`"));
        }
        let pipes = update.pipes.len();
        if pipes > MOST_PARTS {
            let why = format!("{pipes} are more than {MOST_PARTS}: give new values in fewer parts");
            return Err(refused(".pipes", &why));
        }
        let (expected_generation, lossy) = (update.expected_generation, update.lossy);
        let change = control.change(update).await;
        let change = change.map_err(|status| owner::among(n, &name, status))?;
        let update = Update::new(control, &what, change)?;
        updates.push(Update { expected_generation, lossy, ..update });
    }
    Ok(updates)
}

/// Makes changes of links, which are `held`, in the order of `updates`. A dataplane that was restarted is
/// restored to the last links first.
pub(super) async fn make(
    caller: &Caller,
    named: Option<&Named>,
    updates: &[Update],
    held: &mut [&mut Changing],
) -> Result<pb::UpdateLinksResponse, Status> {
    let instance = |it: &Update| it.control.saver().state().instance;
    let Some(first) = updates.first() else { return Ok(pb::UpdateLinksResponse::default()) };
    if updates.iter().any(|it| instance(it) == 0) {
        look(updates, held).await?;
    }
    let dataplane = first.control.dataplane();
    let changes = || updates.iter().map(|it| it.request(caller, named)).collect();
    let mut answer = dataplane.apply(changes()).await;
    if answer.as_ref().is_err_and(|status| status.code() == Code::Aborted) {
        let current = dataplane.plan().await?.instance;
        if updates.iter().any(|it| instance(it) != current) {
            look(updates, held).await?;
            answer = dataplane.apply(changes()).await;
        }
    }
    if answer.as_ref().is_err_and(is_away) {
        for Update { control, id, what, .. } in updates {
            control.expect(id.clone(), what.clone(), caller.clone());
        }
    }
    let made = answer?;
    let repeated = made.iter().all(|it| it.repeated);
    let mut links = Vec::with_capacity(updates.len());
    for ((update, held), made) in updates.iter().zip(held).zip(made) {
        links.push(update.control.applied(held, made).await);
    }
    Ok(pb::UpdateLinksResponse { links, repeated })
}

async fn look(updates: &[Update], held: &mut [&mut Changing]) -> Result<(), Status> {
    for (Update { control, .. }, held) in updates.iter().zip(held) {
        let looked = control.look(held).await;
        looked.map_err(|status| owner::among(updates.len(), control.name(), status))?;
    }
    Ok(())
}

impl Control {
    /// What a request asks for.
    async fn change(&self, update: pb::LinkUpdate) -> Result<dp::Change, Status> {
        let pb::LinkUpdate { profile, pipes, clients, .. } = update;
        let parts = pipes.into_iter().map(part).collect::<Result<_, _>>()?;
        let mut change = dp::Change { parts, clients, ..Default::default() };
        if let Some(pb::ProfileUpdate { profile, seed }) = profile {
            change.profile = Some(self.requested(profile).await?);
            (change.seed, change.restart) = (seed, true);
        }
        Ok(change)
    }
}

/// The part of a pipe in a request. TOML is read here, everything else is checked by the dataplane.
fn part(update: pb::PipeUpdate) -> Result<dp::Part, Status> {
    let pb::PipeUpdate { direction, pipe, mask, toml } = update;
    if toml.is_empty() {
        return Ok(dp::Part { direction, pipe, mask });
    }
    let mut found = Violations::default();
    if pipe.is_some() || mask.is_some() {
        found.push("toml", "given beside `pipe` or `mask`: give one or the other");
    }
    let read = found.into_result().and_then(|()| Part::from_toml(&toml));
    let read = read.map_err(|found| refusal::invalid("the patch", &found))?;
    Ok(given::part(direction, &read))
}

/// Waits until no other change of these links is in progress. All callers lock in the order of names.
pub(crate) async fn lock_all(
    links: &BTreeMap<String, Control>,
) -> BTreeMap<&str, MutexGuard<'_, Changing>> {
    let mut locked = BTreeMap::new();
    for (name, control) in links {
        locked.insert(name.as_str(), control.changing().await);
    }
    locked
}
