// SPDX-License-Identifier: Apache-2.0
//! A link as linkctl shows it: TOML for people, stable JSON for programs.

use crate::cli::{Cli, Output};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output;
use profile::Profile;
use proto::linkemu::v1 as pb;
use serde::Serialize;
use view::instant;

#[derive(Serialize)]
struct View<'a> {
    generation: u64,
    effective_ns: u64,
    effective_utc: Option<String>,
    seed: u64,
    profile: Option<&'a str>,
    link: Option<ProfileView<'a>>,
}

/// A profile in JSON.
#[derive(Debug, Serialize)]
pub struct ProfileView<'a> {
    name: &'a str,
    description: &'a str,
    source: &'a str,
    forward: Option<PipeView>,
    r#return: Option<PipeView>,
}

#[derive(Debug, Serialize)]
struct PipeView {
    /// Null: not limited.
    rate_bps: Option<u64>,
    overhead_bytes: i32,
    queue: QueueView,
    outages: Vec<OutageView>,
    delay: DelayView,
}

#[derive(Debug, Serialize)]
struct QueueView {
    limit_bytes: u64,
    /// Null: tail drop.
    random_drop: Option<RandomDropView>,
}

#[derive(Debug, Serialize)]
struct RandomDropView {
    threshold_bytes: u64,
    probability_at_threshold: f64,
    probability_at_limit: f64,
}

#[derive(Debug, Serialize)]
struct OutageView {
    interval_ns: u64,
    duration_ns: u64,
    law: &'static str,
}

#[derive(Debug, Serialize)]
struct DelayView {
    base_ns: u64,
    slot_ns: u64,
    excursions: Vec<ExcursionView>,
}

#[derive(Debug, Serialize)]
struct ExcursionView {
    interval_ns: u64,
    duration_ns: u64,
    location_ns: u64,
    scale_ns: u64,
    shape: f64,
    max_ns: u64,
}

/// `linkctl show`.
pub async fn show(cli: &Cli) -> Result<(), Failure> {
    let connection = Connection::open(&cli.socket).await?;
    let link =
        connection.call(|mut c| async move { c.get_link(pb::GetLinkRequest {}).await }).await?;
    let pb::Link { profile, seed, applied } = link;
    let applied = applied.unwrap_or_default();
    if cli.output == Output::Json {
        return output::json(&View {
            generation: applied.generation,
            effective_ns: applied.effective_ns,
            effective_utc: instant::utc(applied.effective_utc.as_ref()),
            seed,
            profile: profile.as_ref().map(|profile| profile.name.as_str()),
            link: profile.as_ref().map(ProfileView::from),
        });
    }
    match profile {
        None => {
            output::text("# no profile is in force: set one, such as `linkctl set profile viasat2`")
        }
        Some(profile) => {
            let since = instant::applied(&applied, "since");
            let toml = toml(profile)?;
            output::text(&format!("# In force: {since}; seed {seed}.\n{toml}"))
        }
    }
}

/// What linkd sent, as TOML.
pub fn toml(profile: pb::Profile) -> Result<String, Failure> {
    let understood = Profile::try_from(profile).map_err(|violations| {
        Failure::invalid("linkd sent a profile that this linkctl does not understand", violations)
    })?;
    Ok(understood.to_toml())
}

impl<'a> From<&'a pb::Profile> for ProfileView<'a> {
    fn from(profile: &'a pb::Profile) -> Self {
        Self {
            name: &profile.name,
            description: &profile.description,
            source: &profile.source,
            forward: profile.forward_pipe.as_ref().map(PipeView::from),
            r#return: profile.return_pipe.as_ref().map(PipeView::from),
        }
    }
}

impl From<&pb::Pipe> for PipeView {
    fn from(pipe: &pb::Pipe) -> Self {
        let queue = pipe.queue.unwrap_or_default();
        let delay = pipe.delay.clone().unwrap_or_default();
        let outage = |outage: &pb::Outage| OutageView {
            interval_ns: outage.interval_ns,
            duration_ns: outage.duration_ns,
            law: match outage.law() {
                pb::DurationLaw::Exponential => "exponential",
                pb::DurationLaw::Fixed => "fixed",
                pb::DurationLaw::Unspecified => "unspecified",
            },
        };
        let excursion = |excursion: &pb::Excursion| ExcursionView {
            interval_ns: excursion.interval_ns,
            duration_ns: excursion.duration_ns,
            location_ns: excursion.location_ns,
            scale_ns: excursion.scale_ns,
            shape: excursion.shape,
            max_ns: excursion.max_ns,
        };
        Self {
            rate_bps: pipe.rate_bps,
            overhead_bytes: pipe.overhead_bytes,
            queue: QueueView {
                limit_bytes: queue.limit_bytes,
                random_drop: queue.random_drop.map(|drop| RandomDropView {
                    threshold_bytes: drop.threshold_bytes,
                    probability_at_threshold: drop.probability_at_threshold,
                    probability_at_limit: drop.probability_at_limit,
                }),
            },
            outages: pipe.outages.iter().map(outage).collect(),
            delay: DelayView {
                base_ns: delay.base_ns,
                slot_ns: delay.slot_ns,
                excursions: delay.excursions.iter().map(excursion).collect(),
            },
        }
    }
}
