// SPDX-License-Identifier: Apache-2.0
//! From the protos' plan to the core's.
//!
//! Requests are checked whole before anything of them is used: the same check that
//! `linkctl profile check` makes, and the core's own.

use emu::aqm::{QueuePlan, RandomDrop};
use emu::delay::{DelayPlan, ExcursionPlan};
use emu::episode::{DurationLaw, EpisodePlan};
use emu::plan::{PipePlan, Plan};
use emu::units::{BitRate, ByDirection, Nanos, Probability};
use profile::Violations;
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;

/// Compiles a plan that came over the wire.
///
/// # Errors
/// Every field that is missing or out of its range.
pub fn compile(plan: &pb::Plan) -> Result<Plan, Violations> {
    let profile = plan.profile.clone().unwrap_or_default();
    profile::validate(&profile)?;
    // What validation has let through is there.
    let forward = profile.forward_pipe.unwrap_or_default();
    let back = profile.return_pipe.unwrap_or_default();
    Ok(Plan { seed: plan.seed, pipes: ByDirection([pipe(&forward), pipe(&back)]) })
}

fn pipe(p: &model::Pipe) -> PipePlan {
    let queue = p.queue.unwrap_or_default();
    let delay = p.delay.clone().unwrap_or_default();
    PipePlan {
        rate: p.rate_bps.map_or(BitRate::Unlimited, BitRate::bps),
        overhead: p.overhead_bytes,
        queue: QueuePlan {
            limit: queue.limit_bytes,
            random_drop: queue.random_drop.map(|r| RandomDrop {
                threshold: r.threshold_bytes,
                at_threshold: Probability::new(r.probability_at_threshold),
                at_limit: Probability::new(r.probability_at_limit),
            }),
        },
        outages: p.outages.iter().map(outage).collect(),
        delay: DelayPlan {
            base: Nanos(delay.base_ns),
            slot: Nanos(delay.slot_ns),
            excursions: delay.excursions.iter().map(excursion).collect(),
        },
    }
}

fn outage(o: &model::Outage) -> EpisodePlan {
    EpisodePlan {
        interval: Nanos(o.interval_ns),
        duration: Nanos(o.duration_ns),
        law: match o.law() {
            model::DurationLaw::Fixed => DurationLaw::Fixed,
            _ => DurationLaw::Exponential,
        },
    }
}

fn excursion(e: &model::Excursion) -> ExcursionPlan {
    ExcursionPlan {
        interval: Nanos(e.interval_ns),
        duration: Nanos(e.duration_ns),
        location: Nanos(e.location_ns),
        scale: Nanos(e.scale_ns),
        shape: e.shape,
        max: Nanos(e.max_ns),
    }
}
