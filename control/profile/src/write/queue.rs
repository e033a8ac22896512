// SPDX-License-Identifier: Apache-2.0
//! A queue as TOML.

use super::Toml;
use crate::units::{format_duration, format_probability, format_size};
use proto::linkemu::v1 as pb;
use serde::Serialize;

#[derive(Serialize)]
struct Queue {
    limit: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ecn: bool,
}

#[derive(Serialize)]
struct RandomDrop {
    threshold: String,
    probability_at_threshold: String,
    probability_at_limit: String,
}

#[derive(Serialize)]
struct Red {
    min: String,
    max: String,
    probability: String,
    weight: String,
    packet: String,
    gentle: bool,
}

#[derive(Serialize)]
struct CoDel {
    target: String,
    interval: String,
}

#[derive(Serialize)]
struct Pie {
    target: String,
    update: String,
    alpha: f64,
    beta: f64,
    max_burst: String,
}

impl Toml {
    pub(super) fn queue(&mut self, path: &str, queue: &pb::Queue) {
        self.table(path, &Queue { limit: format_size(queue.limit_bytes), ecn: queue.ecn });
        if let Some(it) = &queue.random_drop {
            let keys = RandomDrop {
                threshold: format_size(it.threshold_bytes),
                probability_at_threshold: format_probability(it.probability_at_threshold),
                probability_at_limit: format_probability(it.probability_at_limit),
            };
            self.table(&format!("{path}.random_drop"), &keys);
        }
        if let Some(it) = &queue.red {
            let keys = Red {
                min: format_size(it.min_bytes),
                max: format_size(it.max_bytes),
                probability: format_probability(it.probability_at_max),
                weight: format_probability(it.weight),
                packet: format_size(it.packet_bytes.into()),
                gentle: it.gentle,
            };
            self.table(&format!("{path}.red"), &keys);
        }
        if let Some(it) = &queue.codel {
            let target = format_duration(it.target_ns);
            let keys = CoDel { target, interval: format_duration(it.interval_ns) };
            self.table(&format!("{path}.codel"), &keys);
        }
        if let Some(it) = &queue.pie {
            let keys = Pie {
                target: format_duration(it.target_ns),
                update: format_duration(it.update_ns),
                alpha: it.alpha_hz,
                beta: it.beta_hz,
                max_burst: format_duration(it.max_burst_ns),
            };
            self.table(&format!("{path}.pie"), &keys);
        }
    }
}
