// SPDX-License-Identifier: Apache-2.0
//! A link as linkctl shows it: TOML for people, stable JSON for programs.

mod losses;
mod queue;

use crate::change;
use crate::cli::{Cli, Output};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output;
use crate::switch;
use losses::{DropRunView, FourStateLossView, GilbertElliottView, ReorderView};
use profile::Profile;
use proto::linkemu::v1 as pb;
use queue::QueueView;
use serde::Serialize;
use view::instant;

#[derive(Serialize)]
struct View<'a> {
    generation: u64,
    effective_ns: u64,
    effective_utc: Option<String>,
    seed: u64,
    profile: Option<&'a str>,
    lossy: bool,
    remarks: &'a [String],
    link: Option<ProfileView<'a>>,
    /// Where each stage runs; null: there is no P4 switch.
    stages: Option<Vec<view::Stage>>,
}

/// A profile in JSON.
#[derive(Debug, Serialize)]
pub struct ProfileView<'a> {
    name: &'a str,
    group: &'a str,
    description: &'a str,
    source: &'a str,
    forward: Option<PipeView>,
    r#return: Option<PipeView>,
    /// Null: not fitted to a measurement, or patched since.
    provenance: Option<ProvenanceView<'a>>,
}

#[derive(Debug, Serialize)]
struct PipeView {
    /// Null: not limited, or by a trace.
    rate_bps: Option<u64>,
    rate_trace: Option<RateTraceView>,
    overhead_bytes: i32,
    /// "atm" or "ptm"; null: frames as they are.
    link_layer: Option<&'static str>,
    packet_loss: f64,
    gilbert_elliott: Option<GilbertElliottView>,
    four_state_loss: Option<FourStateLossView>,
    drop_run: Option<DropRunView>,
    duplicate: f64,
    corrupt: f64,
    reorder: Option<ReorderView>,
    queue: QueueView,
    outages: Vec<OutageView>,
    fade: Option<FadeView>,
    delay: DelayView,
}

#[derive(Debug, Serialize)]
struct RateTraceView {
    step_ns: u64,
    rates_bps: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct OutageView {
    interval_ns: u64,
    duration_ns: u64,
    law: &'static str,
}

#[derive(Debug, Serialize)]
struct FadeView {
    interval_ns: u64,
    duration_ns: u64,
    factor: f64,
}

#[derive(Debug, Serialize)]
struct DelayView {
    base_ns: u64,
    slot_ns: u64,
    body: Option<BodyView>,
    excursions: Vec<ExcursionView>,
}

#[derive(Debug, Serialize)]
struct BodyView {
    correlation_ns: u64,
    quantiles_ns: Vec<u64>,
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

#[derive(Debug, Serialize)]
struct ProvenanceView<'a> {
    source: &'a str,
    format: &'a str,
    sha256: &'a str,
    samples: u64,
    lost: u64,
    interval_ns: u64,
    estimates: Vec<EstimateView<'a>>,
    goodness: Vec<GoodnessView<'a>>,
    unidentified: &'a [String],
    remarks: &'a [String],
}

/// An estimate of a profile's provenance in JSON.
#[derive(Debug, Serialize)]
pub struct EstimateView<'a> {
    parameter: &'a str,
    value: &'a str,
    low: &'a str,
    high: &'a str,
    method: &'a str,
}

/// A test in a profile's provenance in JSON.
#[derive(Debug, Serialize)]
pub struct GoodnessView<'a> {
    test: &'a str,
    statistic: f64,
    degrees_of_freedom: f64,
    p_value: f64,
}

/// `linkctl show`.
pub async fn show(cli: &Cli) -> Result<(), Failure> {
    let connection = Connection::open(cli).await?;
    let link =
        connection.call(|mut c| async move { c.get_link(pb::GetLinkRequest {}).await }).await?;
    let pb::Link { profile, seed, applied, remarks } = link;
    let applied = applied.unwrap_or_default();
    let stages = switch::places(&connection).await?;
    if cli.output == Output::Json {
        return output::json(&View {
            generation: applied.generation,
            effective_ns: applied.effective_ns,
            effective_utc: instant::utc(applied.effective_utc.as_ref()),
            seed,
            profile: profile.as_ref().map(|profile| profile.name.as_str()),
            lossy: applied.lossy,
            remarks: &remarks,
            link: profile.as_ref().map(ProfileView::from),
            stages,
        });
    }
    match profile {
        None => {
            output::text("# no profile is in force: set one, such as `linkctl set profile viasat2`")
        }
        Some(profile) => {
            let since = instant::applied(&applied, "since");
            let toml = toml(profile)?;
            let remarks = change::remarks(applied.lossy, &remarks);
            let remarks: String = remarks.map(|line| format!("# {line}\n")).collect();
            let places = match stages {
                Some(stages) => format!("# Where its stages run:\n{}", switch::comments(&stages)),
                None => String::new(),
            };
            output::text(&format!("# In force: {since}; seed {seed}.\n{remarks}{places}{toml}"))
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
            group: &profile.group,
            description: &profile.description,
            source: &profile.source,
            forward: profile.forward_pipe.as_ref().map(PipeView::from),
            r#return: profile.return_pipe.as_ref().map(PipeView::from),
            provenance: profile.provenance.as_ref().map(ProvenanceView::from),
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
            rate_trace: pipe.rate_trace.as_ref().map(|trace| RateTraceView {
                step_ns: trace.step_ns,
                rates_bps: trace.rates_bps.clone(),
            }),
            overhead_bytes: pipe.overhead_bytes,
            link_layer: profile::link_layer(pipe.link_layer()),
            packet_loss: pipe.packet_loss,
            gilbert_elliott: pipe.gilbert_elliott.map(GilbertElliottView::from),
            four_state_loss: pipe.four_state_loss.map(FourStateLossView::from),
            drop_run: pipe.drop_run.map(DropRunView::from),
            duplicate: pipe.duplicate,
            corrupt: pipe.corrupt,
            reorder: pipe.reorder.map(ReorderView::from),
            queue: queue.into(),
            outages: pipe.outages.iter().map(outage).collect(),
            fade: pipe.fade.map(|fade| FadeView {
                interval_ns: fade.interval_ns,
                duration_ns: fade.duration_ns,
                factor: fade.factor,
            }),
            delay: DelayView {
                base_ns: delay.base_ns,
                slot_ns: delay.slot_ns,
                body: delay.body.as_ref().map(|body| BodyView {
                    correlation_ns: body.correlation_ns,
                    quantiles_ns: body.quantiles_ns.clone(),
                }),
                excursions: delay.excursions.iter().map(excursion).collect(),
            },
        }
    }
}

impl<'a> From<&'a pb::Estimate> for EstimateView<'a> {
    fn from(estimate: &'a pb::Estimate) -> Self {
        let pb::Estimate { parameter, value, low, high, method } = estimate;
        Self { parameter, value, low, high, method }
    }
}

impl<'a> From<&'a pb::Goodness> for GoodnessView<'a> {
    fn from(goodness: &'a pb::Goodness) -> Self {
        let pb::Goodness { test, statistic, degrees_of_freedom, p_value } = goodness;
        Self {
            test,
            statistic: *statistic,
            degrees_of_freedom: *degrees_of_freedom,
            p_value: *p_value,
        }
    }
}

impl<'a> From<&'a pb::Provenance> for ProvenanceView<'a> {
    fn from(provenance: &'a pb::Provenance) -> Self {
        Self {
            source: &provenance.source,
            format: &provenance.format,
            sha256: &provenance.sha256,
            samples: provenance.samples,
            lost: provenance.lost,
            interval_ns: provenance.interval_ns,
            estimates: provenance.estimates.iter().map(EstimateView::from).collect(),
            goodness: provenance.goodness.iter().map(GoodnessView::from).collect(),
            unidentified: &provenance.unidentified,
            remarks: &provenance.remarks,
        }
    }
}
