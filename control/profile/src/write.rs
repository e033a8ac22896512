// SPDX-License-Identifier: Apache-2.0
//! A profile as TOML.
//!
//! The structs below are the layout of the file; what is absent is left out.

use crate::Rate;
use crate::units::{format_duration, format_overhead, format_probability, format_size};
use proto::linkemu::v1 as pb;
use serde::Serialize;

#[derive(Serialize)]
struct File<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    source: &'a str,
    forward: Option<Pipe>,
    r#return: Option<Pipe>,
}

#[derive(Serialize)]
struct Pipe {
    rate: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<String>,
    queue: Option<Queue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outages: Vec<Outage>,
    delay: Option<Delay>,
}

#[derive(Serialize)]
struct Queue {
    limit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    random_drop: Option<RandomDrop>,
}

#[derive(Serialize)]
struct RandomDrop {
    threshold: String,
    probability_at_threshold: String,
    probability_at_limit: String,
}

#[derive(Serialize)]
struct Outage {
    interval: String,
    duration: String,
    law: &'static str,
}

#[derive(Serialize)]
struct Delay {
    base: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    excursions: Vec<Excursion>,
}

#[derive(Serialize)]
struct Excursion {
    interval: String,
    duration: String,
    location: String,
    scale: String,
    shape: f64,
    max: String,
}

/// Writes a valid profile.
pub(crate) fn profile(profile: &pb::Profile) -> String {
    let file = File {
        name: &profile.name,
        description: &profile.description,
        source: &profile.source,
        forward: profile.forward_pipe.as_ref().map(pipe),
        r#return: profile.return_pipe.as_ref().map(pipe),
    };
    // Strings, floats, structs and sequences of structs: TOML has all of them, so
    // this does not fail.
    toml::to_string(&file).unwrap_or_default()
}

fn pipe(pipe: &pb::Pipe) -> Pipe {
    Pipe {
        rate: Rate::from_bps(pipe.rate_bps).to_string(),
        overhead: (pipe.overhead_bytes != 0).then(|| format_overhead(pipe.overhead_bytes)),
        queue: pipe.queue.as_ref().map(|queue| Queue {
            limit: format_size(queue.limit_bytes),
            random_drop: queue.random_drop.as_ref().map(|drop| RandomDrop {
                threshold: format_size(drop.threshold_bytes),
                probability_at_threshold: format_probability(drop.probability_at_threshold),
                probability_at_limit: format_probability(drop.probability_at_limit),
            }),
        }),
        outages: pipe.outages.iter().map(outage).collect(),
        delay: pipe.delay.as_ref().map(|delay| Delay {
            base: format_duration(delay.base_ns),
            slot: (delay.slot_ns != 0).then(|| format_duration(delay.slot_ns)),
            excursions: delay.excursions.iter().map(excursion).collect(),
        }),
    }
}

fn outage(outage: &pb::Outage) -> Outage {
    Outage {
        interval: format_duration(outage.interval_ns),
        duration: format_duration(outage.duration_ns),
        law: match outage.law() {
            pb::DurationLaw::Fixed => "fixed",
            pb::DurationLaw::Exponential | pb::DurationLaw::Unspecified => "exponential",
        },
    }
}

fn excursion(excursion: &pb::Excursion) -> Excursion {
    Excursion {
        interval: format_duration(excursion.interval_ns),
        duration: format_duration(excursion.duration_ns),
        location: format_duration(excursion.location_ns),
        scale: format_duration(excursion.scale_ns),
        shape: excursion.shape,
        max: format_duration(excursion.max_ns),
    }
}
