// SPDX-License-Identifier: Apache-2.0
//! A queue in JSON: as the messages of `linkemu.v1` have it.

use proto::linkemu::v1 as pb;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct QueueView {
    limit_bytes: u64,
    /// Null in all of these: tail drop.
    random_drop: Option<RandomDropView>,
    red: Option<RedView>,
    codel: Option<CoDelView>,
    pie: Option<PieView>,
    ecn: bool,
}

#[derive(Debug, Serialize)]
struct RandomDropView {
    threshold_bytes: u64,
    probability_at_threshold: f64,
    probability_at_limit: f64,
}

#[derive(Debug, Serialize)]
struct RedView {
    min_bytes: u64,
    max_bytes: u64,
    probability_at_max: f64,
    weight: f64,
    packet_bytes: u32,
    gentle: bool,
}

#[derive(Debug, Serialize)]
struct CoDelView {
    target_ns: u64,
    interval_ns: u64,
}

#[derive(Debug, Serialize)]
struct PieView {
    target_ns: u64,
    update_ns: u64,
    alpha_hz: f64,
    beta_hz: f64,
    max_burst_ns: u64,
}

impl From<pb::Queue> for QueueView {
    fn from(queue: pb::Queue) -> Self {
        Self {
            limit_bytes: queue.limit_bytes,
            random_drop: queue.random_drop.map(|it| RandomDropView {
                threshold_bytes: it.threshold_bytes,
                probability_at_threshold: it.probability_at_threshold,
                probability_at_limit: it.probability_at_limit,
            }),
            red: queue.red.map(|it| RedView {
                min_bytes: it.min_bytes,
                max_bytes: it.max_bytes,
                probability_at_max: it.probability_at_max,
                weight: it.weight,
                packet_bytes: it.packet_bytes,
                gentle: it.gentle,
            }),
            codel: queue
                .codel
                .map(|it| CoDelView { target_ns: it.target_ns, interval_ns: it.interval_ns }),
            pie: queue.pie.map(|it| PieView {
                target_ns: it.target_ns,
                update_ns: it.update_ns,
                alpha_hz: it.alpha_hz,
                beta_hz: it.beta_hz,
                max_burst_ns: it.max_burst_ns,
            }),
            ecn: queue.ecn,
        }
    }
}
