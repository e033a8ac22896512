// SPDX-License-Identifier: Apache-2.0
//! The rules of a queue.

use super::range;
use crate::Violations;
use crate::limits::*;
use crate::units::{format_duration, format_probability, format_size};
use proto::linkemu::v1 as pb;

pub(super) fn check(found: &mut Violations, path: &str, queue: &pb::Queue) {
    let at = |field: &str| format!("{path}.{field}");
    let limit = queue.limit_bytes;
    if limit < FRAME_BYTES {
        let message = format!(
            "{} is less than one full frame: write at least \"{FRAME_BYTES} B\"",
            format_size(limit)
        );
        found.push(at("limit"), message);
    } else {
        range(found, at("limit"), limit, &QUEUE_BYTES, format_size);
    }
    let laws = [
        ("random_drop", queue.random_drop.is_some()),
        ("red", queue.red.is_some()),
        ("codel", queue.codel.is_some()),
        ("pie", queue.pie.is_some()),
    ];
    let mut given = laws.into_iter().filter(|(_, given)| *given).map(|(name, _)| name);
    match given.next() {
        None if queue.ecn => {
            let message = "tail drop marks nothing: choose random_drop, red, codel or pie, or \
                           leave ecn out";
            found.push(at("ecn"), message);
        }
        None => {}
        Some(first) => {
            for other in given {
                let message = format!("{first} is given as well: leave out one of both");
                found.push(at(other), message);
            }
        }
    }
    if let Some(it) = &queue.random_drop {
        random_drop(found, &at("random_drop"), it, limit);
    }
    if let Some(it) = &queue.red {
        red(found, &at("red"), it, limit);
    }
    if let Some(it) = &queue.codel {
        codel(found, &at("codel"), it);
    }
    if let Some(it) = &queue.pie {
        pie(found, &at("pie"), it);
    }
}

fn random_drop(found: &mut Violations, path: &str, it: &pb::RandomDrop, limit: u64) {
    within(found, format!("{path}.threshold"), it.threshold_bytes, limit);
    for (field, p) in [
        ("probability_at_threshold", it.probability_at_threshold),
        ("probability_at_limit", it.probability_at_limit),
    ] {
        range(found, format!("{path}.{field}"), p, &(0.0..=1.0), format_probability);
    }
}

/// A threshold that no queue reaches is a mistake.
fn within(found: &mut Violations, path: String, threshold: u64, limit: u64) {
    if threshold > limit {
        let message = format!(
            "{} is above the queue's limit of {}: lower the threshold or raise the limit",
            format_size(threshold),
            format_size(limit)
        );
        found.push(path, message);
    }
}

fn red(found: &mut Violations, path: &str, it: &pb::Red, limit: u64) {
    let at = |field: &str| format!("{path}.{field}");
    if it.min_bytes >= it.max_bytes {
        let message = format!(
            "{} is not below max, {}: lower min or raise max",
            format_size(it.min_bytes),
            format_size(it.max_bytes)
        );
        found.push(at("min"), message);
    }
    within(found, at("max"), it.max_bytes, limit);
    range(found, at("probability"), it.probability_at_max, &MARKING, format_probability);
    range(found, at("weight"), it.weight, &WEIGHT, format_probability);
    range(found, at("packet"), it.packet_bytes, &PACKET_BYTES, |n| format_size(n.into()));
}

fn codel(found: &mut Violations, path: &str, it: &pb::CoDel) {
    let at = |field: &str| format!("{path}.{field}");
    range(found, at("target"), it.target_ns, &TARGET_NS, format_duration);
    range(found, at("interval"), it.interval_ns, &CODEL_NS, format_duration);
    if it.target_ns > it.interval_ns && TARGET_NS.contains(&it.target_ns) {
        let message = format!(
            "{} is above the interval of {}: CoDel's target is 5 to 10 % of it",
            format_duration(it.target_ns),
            format_duration(it.interval_ns)
        );
        found.push(at("target"), message);
    }
}

fn pie(found: &mut Violations, path: &str, it: &pb::Pie) {
    let at = |field: &str| format!("{path}.{field}");
    range(found, at("target"), it.target_ns, &TARGET_NS, format_duration);
    range(found, at("update"), it.update_ns, &UPDATE_NS, format_duration);
    range(found, at("alpha"), it.alpha_hz, &GAIN_HZ, |hz| hz);
    range(found, at("beta"), it.beta_hz, &GAIN_HZ, |hz| hz);
    range(found, at("max_burst"), it.max_burst_ns, &EXTRA_NS, format_duration);
}
