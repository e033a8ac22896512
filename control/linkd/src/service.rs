// SPDX-License-Identifier: Apache-2.0
//! The calls of `linkemu.v1.Linkemu`.

use crate::caller::Caller;
use crate::clients;
use crate::control::{to_its_end, update_links};
use crate::given;
use crate::links::Links;
use crate::refusal;
use crate::watching::{Messages, Watching};
use futures_util::stream::unfold;
use profile::{Entry, Origin};
use prost::Message;
use proto::dataplane::v1 as dp;
use proto::link_name;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::linkemu_server::Linkemu;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tonic::{Request, Response, Status};

/// Intervals of a statistics stream: 10 ms to 1 h.
const WATCH_NS: std::ops::RangeInclusive<u64> = 10_000_000..=3_600_000_000_000;
const WATCH_DEFAULT_NS: u64 = 1_000_000_000;
/// Size of the profiles in one answer, unless it is a single one.
const LIST_BYTES: usize = 1 << 20;

pub(crate) struct Service {
    pub links: Links,
    pub watching: Watching,
}

#[tonic::async_trait]
impl Linkemu for Service {
    async fn list_profiles(
        &self,
        request: Request<pb::ListProfilesRequest>,
    ) -> Result<Response<pb::ListProfilesResponse>, Status> {
        self.links.main().control.read_all().await;
        // The name after which the page begins.
        let after = request.into_inner().page_token;
        let catalog = self.links.main().control.catalog();
        let (mut answer, mut bytes) = (pb::ListProfilesResponse::default(), 0);
        for Entry { profile, origin } in catalog.iter().filter(|it| *it.profile.name() > *after) {
            bytes += profile.as_proto().encoded_len();
            if bytes > LIST_BYTES && !answer.profiles.is_empty() {
                answer.next_page_token =
                    answer.profiles.last().map_or(String::new(), |last| last.name.clone());
                break;
            }
            if *origin == Origin::Stored {
                answer.stored.push(profile.name().to_owned());
            }
            answer.profiles.push(profile.as_proto().clone());
        }
        Ok(Response::new(answer))
    }

    async fn get_profile(
        &self,
        request: Request<pb::GetProfileRequest>,
    ) -> Result<Response<pb::Profile>, Status> {
        let profile = self.links.main().control.named(&request.get_ref().name).await?;
        Ok(Response::new(profile.into_proto()))
    }

    async fn put_profile(
        &self,
        request: Request<pb::PutProfileRequest>,
    ) -> Result<Response<pb::PutProfileResponse>, Status> {
        let (caller, control) = (Caller::of(&request), self.links.main().control.clone());
        let pb::PutProfileRequest { profile, replace, toml } = request.into_inner();
        let profile = given::profile(profile, toml).await?;
        let profile = profile.map_err(|found| refusal::invalid("the profile", &found))?;
        to_its_end(async move {
            let replaced = control.put_profile(&caller, profile.clone(), replace).await?;
            Ok(pb::PutProfileResponse { profile: Some(profile.into_proto()), replaced })
        })
        .await
    }

    async fn delete_profile(
        &self,
        request: Request<pb::DeleteProfileRequest>,
    ) -> Result<Response<pb::DeleteProfileResponse>, Status> {
        let (caller, control) = (Caller::of(&request), self.links.main().control.clone());
        let name = request.into_inner().name;
        to_its_end(async move {
            control.delete_profile(&caller, &name).await?;
            Ok(pb::DeleteProfileResponse {})
        })
        .await
    }

    async fn validate_profile(
        &self,
        request: Request<pb::ValidateProfileRequest>,
    ) -> Result<Response<pb::ValidateProfileResponse>, Status> {
        let pb::ValidateProfileRequest { profile, toml } = request.into_inner();
        let found = given::profile(profile, toml).await?.err().unwrap_or_default();
        let violation = |v: &profile::Violation| {
            let (path, message) = (refusal::clip(&v.path), refusal::clip(&v.message));
            let place = |n: usize| u32::try_from(n).unwrap_or(0);
            let (line, column) = v.place.map_or((0, 0), |p| (place(p.line), place(p.column)));
            pb::Violation { path, message, line, column }
        };
        let violations = found.iter().map(violation).collect();
        Ok(Response::new(pb::ValidateProfileResponse { violations }))
    }

    async fn update_links(
        &self,
        request: Request<pb::UpdateLinksRequest>,
    ) -> Result<Response<pb::UpdateLinksResponse>, Status> {
        let (caller, links) = (Caller::of(&request), self.links.clone());
        let request = request.into_inner();
        to_its_end(async move { update_links(&|name| links.control(name), &caller, request).await })
            .await
    }

    async fn get_link(
        &self,
        request: Request<pb::GetLinkRequest>,
    ) -> Result<Response<pb::Link>, Status> {
        let control = self.links.control(&request.get_ref().name)?;
        let in_force = control.dataplane().plan().await?;
        let dp::GetPlanResponse { plan, applied, mut remarks, .. } = in_force;
        remarks.extend(control.unsaved());
        let dp::Plan { profile, seed, .. } = plan.unwrap_or_default();
        let name = link_name(control.name());
        Ok(Response::new(pb::Link { name, profile, seed, applied, remarks }))
    }

    async fn get_stats(
        &self,
        request: Request<pb::GetStatsRequest>,
    ) -> Result<Response<pb::Stats>, Status> {
        let caller = Caller::of(&request);
        let control = self.links.control(&request.get_ref().link)?;
        let mark = request.get_ref().mark;
        let stats = control.stats(&caller, mark).await?;
        // The end of a run. Without a span there was none.
        if mark {
            let limits = pb::GetCertificateRequest::default();
            let _ = control.certificates().evaluate(&stats, &limits, &caller, mark);
        }
        Ok(Response::new(stats))
    }

    async fn get_room(
        &self,
        request: Request<pb::GetRoomRequest>,
    ) -> Result<Response<pb::Room>, Status> {
        self.links.control(&request.get_ref().link)?.dataplane().room().await.map(Response::new)
    }

    async fn get_version(
        &self,
        _: Request<pb::GetVersionRequest>,
    ) -> Result<Response<pb::GetVersionResponse>, Status> {
        let version = env!("CARGO_PKG_VERSION").into();
        Ok(Response::new(pb::GetVersionResponse { version }))
    }

    async fn get_clients(
        &self,
        request: Request<pb::GetClientsRequest>,
    ) -> Result<Response<pb::GetClientsResponse>, Status> {
        self.links.control(&request.get_ref().link)?.clients().await.map(Response::new)
    }

    type ListClientsStream = clients::Listing;

    async fn list_clients(
        &self,
        request: Request<pb::ListClientsRequest>,
    ) -> Result<Response<Self::ListClientsStream>, Status> {
        self.links.control(&request.get_ref().link)?.list_clients().await.map(Response::new)
    }

    type WatchStatsStream = Messages<pb::Stats>;

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
        let watch = self.watching.begin(&request)?;
        let dataplane = self.links.control(&request.get_ref().link)?.dataplane().clone();
        let mut ticks = tokio::time::interval(Duration::from_nanos(interval_ns));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let stats = unfold((ticks, dataplane), |(mut ticks, dataplane)| async move {
            ticks.tick().await;
            Some((dataplane.stats(false).await, (ticks, dataplane)))
        });
        Ok(watch.answer(stats))
    }
}
