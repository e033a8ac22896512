// SPDX-License-Identifier: Apache-2.0
//! The calls of `linkemu.v1`.

use crate::dataplane::{Dataplane, Taken};
use crate::patch::Patch;
use crate::refusal;
use profile::{Catalog, Profile, Violations};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::linkemu_server::Linkemu;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, mpsc, watch};
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Code, Request, Response, Status};

/// The seed before anyone gave one.
const FIRST_SEED: u64 = 1;
/// How often a change is tried when others come between.
const TRIES: u32 = 8;
/// Statistics streams at once.
const WATCHERS: usize = 64;
/// Of a statistics stream, in nanoseconds: 10 ms to 1 h.
const WATCH_NS: std::ops::RangeInclusive<u64> = 10_000_000..=3_600_000_000_000;
const WATCH_DEFAULT_NS: u64 = 1_000_000_000;

/// Answers the calls.
pub(crate) struct Service {
    catalog: Catalog,
    dataplane: Dataplane,
    /// One change at a time: without it, concurrent patches would abort each other.
    change: Mutex<()>,
    watchers: Arc<Semaphore>,
    stopping: watch::Receiver<bool>,
}

impl Service {
    /// Serves a catalog and drives a dataplane until `stopping` is true.
    pub fn new(catalog: Catalog, dataplane: Dataplane, stopping: watch::Receiver<bool>) -> Self {
        let watchers = Arc::new(Semaphore::new(WATCHERS));
        Self { catalog, dataplane, change: Mutex::new(()), watchers, stopping }
    }

    fn named(&self, name: &str) -> Result<&Profile, Status> {
        self.catalog.get(name).ok_or_else(|| refusal::no_profile(name, self.catalog.nearest(name)))
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
        match self.catalog.get(profile.name()) {
            Some(known) if known != profile => {
                let mut found = Violations::default();
                let name = profile.name();
                found.push("name", format!("{name:?} is the name of another profile that linkd has: give this one a name of its own"));
                Err(refusal::invalid("the profile", &found))
            }
            _ => Ok(()),
        }
    }

    /// Reads what is in force, changes it, and puts it in force on the terms of a request
    /// without a plan, unless another change came between; then again, if the caller did
    /// not say what to expect.
    async fn change(
        &self,
        terms: dp::ApplyRequest,
        compile: impl Fn(Option<dp::Plan>) -> Result<dp::Plan, Status>,
    ) -> Result<pb::ChangeResponse, Status> {
        let expected = terms.expected_generation;
        let _one_at_a_time = self.change.lock().await;
        let mut tries = 1;
        loop {
            let current = self.dataplane.plan().await?;
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
            match self.dataplane.apply(request).await {
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
}

/// Notes a change and who asked for it.
fn note(what: &str, peer: Option<u32>, answer: &Result<pb::ChangeResponse, Status>) {
    match answer {
        Ok(change) => {
            let applied = change.applied.unwrap_or_default();
            let pb::Applied { generation, lossy, .. } = applied;
            let profile = change.profile.as_ref().map_or("", |profile| &profile.name);
            tracing::info!(what, peer, generation, profile, seed = change.seed, lossy, "changed");
        }
        Err(status) => {
            tracing::info!(what, peer, code = ?status.code(), why = status.message(), "refused");
        }
    }
}

fn peer<T>(request: &Request<T>) -> Option<u32> {
    let info = request.extensions().get::<UdsConnectInfo>()?;
    info.peer_cred.map(|credentials| credentials.uid())
}

#[tonic::async_trait]
impl Linkemu for Service {
    async fn list_profiles(
        &self,
        _: Request<pb::ListProfilesRequest>,
    ) -> Result<Response<pb::ListProfilesResponse>, Status> {
        let profiles = self.catalog.iter().map(|entry| entry.profile.as_proto().clone()).collect();
        Ok(Response::new(pb::ListProfilesResponse { profiles }))
    }

    async fn get_profile(
        &self,
        request: Request<pb::GetProfileRequest>,
    ) -> Result<Response<pb::Profile>, Status> {
        let profile = self.named(&request.get_ref().name)?;
        Ok(Response::new(profile.as_proto().clone()))
    }

    async fn set_profile(
        &self,
        request: Request<pb::SetProfileRequest>,
    ) -> Result<Response<pb::ChangeResponse>, Status> {
        let peer = peer(&request);
        let pb::SetProfileRequest { profile, seed, expected_generation, lossy } =
            request.into_inner();
        let answer = match self.requested(profile) {
            Err(status) => Err(status),
            Ok(profile) => {
                let compile = |in_force: Option<dp::Plan>| {
                    let seed = seed.or(in_force.map(|plan| plan.seed)).unwrap_or(FIRST_SEED);
                    Ok(dp::Plan { profile: Some(profile.clone()), seed })
                };
                let terms =
                    dp::ApplyRequest { restart: true, expected_generation, lossy, plan: None };
                self.change(terms, compile).await
            }
        };
        note("set profile", peer, &answer);
        answer.map(Response::new)
    }

    async fn patch_link(
        &self,
        request: Request<pb::PatchLinkRequest>,
    ) -> Result<Response<pb::ChangeResponse>, Status> {
        let peer = peer(&request);
        let request = request.into_inner();
        let answer = match Patch::try_from(&request) {
            Err(found) => Err(refusal::invalid("the patch", &found)),
            Ok(patch) => {
                let compile = |in_force: Option<dp::Plan>| {
                    let plan = in_force.ok_or_else(refusal::no_link)?;
                    let link = plan.profile.ok_or_else(refusal::no_link)?;
                    let link = patch
                        .apply(&link)
                        .map_err(|found| refusal::invalid("the patch", &found))?;
                    Ok(dp::Plan { profile: Some(link), seed: plan.seed })
                };
                let pb::PatchLinkRequest { expected_generation, lossy, .. } = request;
                let terms =
                    dp::ApplyRequest { restart: false, expected_generation, lossy, plan: None };
                self.change(terms, compile).await
            }
        };
        note("patch link", peer, &answer);
        answer.map(Response::new)
    }

    async fn get_link(&self, _: Request<pb::GetLinkRequest>) -> Result<Response<pb::Link>, Status> {
        let dp::GetPlanResponse { plan, applied, remarks } = self.dataplane.plan().await?;
        let dp::Plan { profile, seed } = plan.unwrap_or_default();
        Ok(Response::new(pb::Link { profile, seed, applied, remarks }))
    }

    async fn get_stats(
        &self,
        request: Request<pb::GetStatsRequest>,
    ) -> Result<Response<pb::Stats>, Status> {
        self.dataplane.stats(request.get_ref().mark).await.map(Response::new)
    }

    async fn get_room(&self, _: Request<pb::GetRoomRequest>) -> Result<Response<pb::Room>, Status> {
        self.dataplane.room().await.map(Response::new)
    }

    type WatchStatsStream = ReceiverStream<Result<pb::Stats, Status>>;

    async fn watch_stats(
        &self,
        request: Request<pb::WatchStatsRequest>,
    ) -> Result<Response<Self::WatchStatsStream>, Status> {
        let interval_ns = match request.get_ref().interval_ns {
            0 => WATCH_DEFAULT_NS,
            ns if WATCH_NS.contains(&ns) => ns,
            ns => {
                let message = format!(
                    "{} is outside of 10 ms to 1 h: give one within, or 0 for 1 s",
                    profile::format_duration(ns)
                );
                return Err(refusal::field("interval_ns", message));
            }
        };
        let permit = self.watchers.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!("{WATCHERS} watch already: stop one of them"))
        })?;
        let (sender, receiver) = mpsc::channel(1);
        let dataplane = self.dataplane.clone();
        let mut stopping = self.stopping.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let mut ticks = tokio::time::interval(Duration::from_nanos(interval_ns));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = sender.closed() => return,
                    _ = stopping.wait_for(|stopping| *stopping) => {
                        let _ = sender.try_send(Err(Status::unavailable("linkd is shutting down")));
                        return;
                    }
                }
                let snapshot = dataplane.stats(false).await;
                let last = snapshot.is_err();
                if sender.send(snapshot).await.is_err() || last {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
