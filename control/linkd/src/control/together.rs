// SPDX-License-Identifier: Apache-2.0
//! A change of several links at one instant, or of none.
//!
//! The locks on the changes of all links are taken in the order of the links' names. The dataplane
//! decides; each link then has its own saved state, event and lines in the audit log.

use super::{Cause, Changing, Control, Terms, is_away, new_id, patch, request};
use crate::audit::Line;
use crate::authorisation::{name, unaudited};
use crate::caller::Caller;
use crate::leases::Leases;
use crate::named::Named;
use crate::refusal;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::link_change::Change;
use proto::{MAIN_LINK, link_id, link_name};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::MutexGuard;
use tonic::{Code, Status};

const METHOD: &str = "linkemu.v1.Linkemu/ChangeLinks";

/// The change of one link.
struct Wanted {
    /// Without "links/".
    name: String,
    control: Control,
    /// About this link.
    caller: Caller,
    what: &'static str,
    change: dp::Change,
    terms: Terms,
    /// For its event.
    id: String,
}

impl Wanted {
    fn request(&self, named: Option<&Named>) -> dp::LinkApply {
        let Self { control, caller, what, change, terms, id, .. } = self;
        let expected_instance = control.saver().state().instance;
        let cause = Cause { what, caller };
        let request = dp::ApplyRequest {
            expected_instance,
            ..request(cause, id, named, change.clone(), *terms)
        };
        dp::LinkApply { link: link_name(&self.name), request: Some(request) }
    }

    fn note(&self, line: Line<'_>) -> Result<(), Status> {
        let line = Line { call: self.caller.call, ..line };
        self.control.0.audit.write(&line).map_err(|error| unaudited(&error))
    }

    fn line(&self, event: &'static str) -> Line<'_> {
        Line::of(event, &self.caller, METHOD)
    }
}

/// Finds a link by its name, with or without "links/": NOT_FOUND.
pub(crate) type Find<'a> = &'a (dyn Fn(&str) -> Result<Control, Status> + Send + Sync);

/// Changes several links, if the caller may change each of them.
///
/// # Errors
/// If no link was changed; the message names the link that refuses.
pub(crate) async fn change_links(
    find: Find<'_>,
    caller: &Caller,
    request: pb::ChangeLinksRequest,
) -> Result<pb::ChangeLinksResponse, Status> {
    refusal::check_request_id(&request.request_id)?;
    let named = Named::new("ChangeLinks", &caller.name, &request.request_id, &request);
    let wanted = wanted(find, caller, request.changes).await?;
    for wanted in &wanted {
        wanted.note(wanted.line("asked"))?;
    }
    let answer = change_wanted(find, caller, named.as_ref(), &wanted).await;
    for (n, wanted) in wanted.iter().enumerate() {
        let changed = answer.as_ref().ok().and_then(|answer| answer.changes.get(n));
        let applied = changed.and_then(|it| it.change.as_ref()?.applied);
        let generation = applied.map(|applied| applied.generation);
        let status = answer.as_ref().err();
        let code = status.map_or(Code::Ok, Status::code);
        let (code, message) = (name(code), status.map_or("", Status::message));
        let line = Line { generation, code: &code, message, ..wanted.line("answered") };
        // A failure is logged, and refuses the next change.
        let _ = wanted.note(line);
    }
    answer
}

/// The changes that a request asks for.
async fn wanted(
    find: Find<'_>,
    caller: &Caller,
    changes: Vec<pb::LinkChange>,
) -> Result<Vec<Wanted>, Status> {
    if changes.is_empty() {
        return Err(refusal::field("changes", "none: give the change of each link"));
    }
    let (mut wanted, mut names) = (Vec::with_capacity(changes.len()), BTreeSet::new());
    for (n, pb::LinkChange { link, change }) in changes.into_iter().enumerate() {
        let refused = |message: &str| refusal::field(&format!("changes[{n}]"), message);
        let control = find(&link)?;
        let name = link_id(&link).to_owned();
        if !names.insert(name.clone()) {
            let message = format!("link `{name}` is named twice: give one change of each link");
            return Err(refused(&message));
        }
        let of_link = |status| owner::of_link(&name, &status);
        let (what, change, expected_generation, lossy, request_id) = match change {
            None => return Err(refused("missing: give `set_profile` or `patch_link`")),
            Some(Change::SetProfile(set)) => {
                let change = control.replacement(set.profile, set.seed).await;
                let change = change.map_err(of_link)?;
                ("set profile", change, set.expected_generation, set.lossy, set.request_id)
            }
            Some(Change::PatchLink(mut set)) => {
                let request_id = std::mem::take(&mut set.request_id);
                let (expected_generation, lossy) = (set.expected_generation, set.lossy);
                let change = patch(set).map_err(of_link)?;
                ("patch link", change, expected_generation, lossy, request_id)
            }
        };
        if !request_id.is_empty() {
            return Err(refused("has a `request_id`: give the whole request one"));
        }
        let (terms, id) = (Terms { expected_generation, lossy }, new_id()?);
        let caller = Caller { link: link_name(&name), ..caller.clone() };
        wanted.push(Wanted { name, control, caller, what, change, terms, id });
    }
    Ok(wanted)
}

async fn change_wanted(
    find: Find<'_>,
    caller: &Caller,
    named: Option<&Named>,
    wanted: &[Wanted],
) -> Result<pb::ChangeLinksResponse, Status> {
    let links = wanted.iter().map(|it| (it.name.clone(), it.control.clone())).collect();
    let mut locked = lock_all(&links).await;
    let leases: Vec<(&str, &Leases)> =
        locked.iter().map(|(name, held)| (*name, &held.leases)).collect();
    Leases::check_links(&leases, caller)?;
    let mut changing: Vec<_> =
        wanted.iter().filter_map(|it| locked.remove(it.name.as_str())).collect();
    if wanted.iter().any(|it| it.control.saver().state().instance == 0) {
        look(wanted, &mut changing).await?;
    }
    let main = find(MAIN_LINK)?;
    let dataplane = main.dataplane();
    let requests = || wanted.iter().map(|wanted| wanted.request(named)).collect();
    let mut answer = dataplane.apply_links(requests()).await;
    if answer.as_ref().is_err_and(|status| status.code() == Code::Aborted) {
        let instance = dataplane.plan().await?.instance;
        if wanted.iter().any(|it| it.control.saver().state().instance != instance) {
            look(wanted, &mut changing).await?;
            answer = dataplane.apply_links(requests()).await;
        }
    }
    if answer.as_ref().is_err_and(is_away) {
        for Wanted { control, id, what, caller, .. } in wanted {
            control.expect(id.clone(), what, caller);
        }
    }
    let mut changes = Vec::with_capacity(wanted.len());
    for ((wanted, changing), made) in wanted.iter().zip(&mut changing).zip(answer?) {
        let mut change = wanted.control.applied(changing, made).await;
        change.remarks.extend(wanted.control.unsaved());
        let (link, change) = (link_name(&wanted.name), Some(change));
        changes.push(pb::LinkChanged { link, change });
    }
    let made = || changes.iter().filter_map(|changed| changed.change.as_ref());
    let last = made().filter_map(|change| change.applied).max_by_key(|it| it.effective_ns);
    let pb::Applied { effective_ns, effective_utc, .. } = last.unwrap_or_default();
    let repeated = made().all(|change| change.repeated);
    Ok(pb::ChangeLinksResponse { changes, effective_ns, effective_utc, repeated })
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

async fn look(wanted: &[Wanted], changing: &mut [MutexGuard<'_, Changing>]) -> Result<(), Status> {
    for (wanted, changing) in wanted.iter().zip(changing) {
        let looked = wanted.control.look(changing).await;
        looked.map_err(|status| owner::of_link(&wanted.name, &status))?;
    }
    Ok(())
}
