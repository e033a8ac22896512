// SPDX-License-Identifier: Apache-2.0
//! Puts changes in force, one at a time, whoever asks for them.

use crate::caller::Caller;
use crate::dataplane::{Dataplane, Taken};
use crate::events::Events;
use crate::patch::Patch;
use crate::refusal;
use profile::{Catalog, Profile, Violations};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use std::sync::Arc;
use tokio::sync::Mutex;
use tonic::{Code, Status};

/// The seed before anyone gave one.
const FIRST_SEED: u64 = 1;
/// How often a change is tried when others come between.
const TRIES: u32 = 8;

/// What all services share; clones are the same one.
#[derive(Clone)]
pub(crate) struct Control(Arc<Shared>);

struct Shared {
    catalog: Catalog,
    dataplane: Dataplane,
    events: Events,
    /// One change at a time: without it, concurrent patches would abort each other.
    change: Mutex<()>,
}

impl Control {
    /// Drives a dataplane with the profiles of a catalog.
    pub fn new(catalog: Catalog, dataplane: Dataplane, events: Events) -> Self {
        Self(Arc::new(Shared { catalog, dataplane, events, change: Mutex::new(()) }))
    }

    /// The profiles that can be set by name.
    pub fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    /// The dataplane.
    pub fn dataplane(&self) -> &Dataplane {
        &self.0.dataplane
    }

    /// A profile by its name.
    pub fn named(&self, name: &str) -> Result<&Profile, Status> {
        let catalog = &self.0.catalog;
        catalog.get(name).ok_or_else(|| refusal::no_profile(name, catalog.nearest(name)))
    }

    fn requested(
        &self,
        profile: Option<pb::set_profile_request::Profile>,
    ) -> Result<pb::Profile, Status> {
        use pb::set_profile_request::Profile as Requested;
        match profile {
            None => Err(refusal::field("profile", "missing: give a name or a whole profile")),
            Some(Requested::Name(name)) => Ok(self.named(&name)?.as_proto().clone()),
            Some(Requested::Inline(message)) => {
                let profile = Profile::try_from(message)
                    .map_err(|found| refusal::invalid("the profile", &found))?;
                self.check_name(&profile)?;
                Ok(profile.into_proto())
            }
        }
    }

    /// Another profile under a known name would be taken for the known one.
    fn check_name(&self, profile: &Profile) -> Result<(), Status> {
        match self.0.catalog.get(profile.name()) {
            Some(known) if known != profile => {
                let mut found = Violations::default();
                let name = profile.name();
                found.push("name", format!("{name:?} is the name of another profile that linkd has: give this one a name of its own"));
                Err(refusal::invalid("the profile", &found))
            }
            _ => Ok(()),
        }
    }

    /// Replaces the whole link.
    pub async fn set_profile(
        &self,
        caller: &Caller,
        request: pb::SetProfileRequest,
    ) -> Result<pb::ChangeResponse, Status> {
        let pb::SetProfileRequest { profile, seed, expected_generation, lossy } = request;
        let changing = async {
            let profile = self.requested(profile)?;
            let compile = |in_force: Option<dp::Plan>| {
                let seed = seed.or(in_force.map(|plan| plan.seed)).unwrap_or(FIRST_SEED);
                Ok(dp::Plan { profile: Some(profile.clone()), seed })
            };
            let terms = dp::ApplyRequest { restart: true, expected_generation, lossy, plan: None };
            self.change(terms, compile).await
        };
        let answer = changing.await;
        self.note("set profile", caller, &answer);
        answer
    }

    /// Changes parts of the link.
    pub async fn patch_link(
        &self,
        caller: &Caller,
        request: pb::PatchLinkRequest,
    ) -> Result<pb::ChangeResponse, Status> {
        let changing = async {
            let patch =
                Patch::try_from(&request).map_err(|found| refusal::invalid("the patch", &found))?;
            let compile = |in_force: Option<dp::Plan>| {
                let plan = in_force.ok_or_else(refusal::no_link)?;
                let link = plan.profile.ok_or_else(refusal::no_link)?;
                let link =
                    patch.apply(&link).map_err(|found| refusal::invalid("the patch", &found))?;
                Ok(dp::Plan { profile: Some(link), seed: plan.seed })
            };
            let pb::PatchLinkRequest { expected_generation, lossy, .. } = request;
            let terms = dp::ApplyRequest { restart: false, expected_generation, lossy, plan: None };
            self.change(terms, compile).await
        };
        let answer = changing.await;
        self.note("patch link", caller, &answer);
        answer
    }

    /// Reads what is in force, changes it, and puts it in force on the terms of a request
    /// without a plan, unless another change came between; then again, if the caller did
    /// not say what to expect.
    async fn change(
        &self,
        terms: dp::ApplyRequest,
        compile: impl Fn(Option<dp::Plan>) -> Result<dp::Plan, Status>,
    ) -> Result<pb::ChangeResponse, Status> {
        let Shared { dataplane, change, .. } = &*self.0;
        let expected = terms.expected_generation;
        let _one_at_a_time = change.lock().await;
        let mut tries = 1;
        loop {
            let current = dataplane.plan().await?;
            let generation = current.applied.map(|applied| applied.generation);
            if let (Some(expected), Some(in_force)) = (expected, generation)
                && expected != in_force
            {
                return Err(refusal::other_generation(expected, in_force));
            }
            let plan = compile(current.plan)?;
            let expected_generation = expected.or(generation);
            let plan_sent = Some(plan.clone());
            let request = dp::ApplyRequest { plan: plan_sent, expected_generation, ..terms };
            match dataplane.apply(request).await {
                Err(status)
                    if status.code() == Code::Aborted && expected.is_none() && tries < TRIES =>
                {
                    tries += 1;
                }
                Err(status) => return Err(status),
                Ok(Taken { applied, remarks }) => {
                    let (dp::Plan { profile, seed }, applied) = (plan, Some(applied));
                    return Ok(pb::ChangeResponse { applied, profile, seed, remarks });
                }
            }
        }
    }

    /// Notes a change and who asked for it.
    fn note(&self, what: &str, caller: &Caller, answer: &Result<pb::ChangeResponse, Status>) {
        let Caller { name: who, from, .. } = caller;
        match answer {
            Ok(change) => {
                let pb::Applied { generation, effective_ns, effective_utc, lossy } =
                    change.applied.unwrap_or_default();
                let profile = change.profile.as_ref().map_or("", |profile| &profile.name);
                let lossy = if lossy { ", lossy" } else { "" };
                self.0.events.publish(pb::Event {
                    utc: effective_utc,
                    time_ns: Some(effective_ns),
                    kind: pb::EventKind::LinkChanged as i32,
                    who: who.clone(),
                    subject: profile.to_owned(),
                    message: format!(
                        "{what}: generation {generation}, seed {}{lossy}",
                        change.seed
                    ),
                    generation: Some(generation),
                    ..Default::default()
                });
            }
            Err(status) => {
                tracing::info!(what, who, from, code = ?status.code(), why = status.message(), "refused");
            }
        }
    }
}
