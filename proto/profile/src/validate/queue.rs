// SPDX-License-Identifier: Apache-2.0
//! Rules of a queue.

use crate::limits::CO_DEL_TARGET_NS;
use crate::{Violations, format_duration, format_size};
use proto::linkemu::v1 as pb;

pub(super) fn check(found: &mut Violations, path: &str, queue: &pb::Queue) {
    let at = |field: &str| format!("{path}.{field}");
    if queue.ecn && !queue.has_aqm() {
        let message = "tail drop marks nothing: choose random_drop, red, codel or pie, or leave \
                       ecn out";
        found.push(at("ecn"), message);
    }
    if let Some(it) = &queue.random_drop {
        within(found, at("random_drop.threshold"), it.threshold_bytes, queue.limit_bytes);
        if it.early_threshold_bytes > it.threshold_bytes {
            let message = format!(
                "{} is above threshold, {}: lower early_threshold or raise threshold",
                format_size(it.early_threshold_bytes),
                format_size(it.threshold_bytes)
            );
            found.push(at("random_drop.early_threshold"), message);
        }
    }
    if let Some(it) = &queue.red {
        red(found, &at("red"), it, queue.limit_bytes);
    }
    if let Some(it) = &queue.codel {
        codel(found, &at("codel"), it);
    }
}

/// Reports a threshold above the queue limit.
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
    if it.min_bytes >= it.max_bytes {
        let message = format!(
            "{} is not below max, {}: lower min or raise max",
            format_size(it.min_bytes),
            format_size(it.max_bytes)
        );
        found.push(format!("{path}.min"), message);
    }
    within(found, format!("{path}.max"), it.max_bytes, limit);
}

fn codel(found: &mut Violations, path: &str, it: &pb::CoDel) {
    if it.target_ns > it.interval_ns && CO_DEL_TARGET_NS.contains(&it.target_ns) {
        let message = format!(
            "{} is above the interval of {}: CoDel's target is 5 to 10 % of it",
            format_duration(it.target_ns),
            format_duration(it.interval_ns)
        );
        found.push(format!("{path}.target"), message);
    }
}
