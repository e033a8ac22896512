// SPDX-License-Identifier: Apache-2.0
//! Rules of rates that vary and of periodic reconfiguration.

use super::ascending;
use crate::{Violations, format_duration, format_probability};
use proto::linkemu::v1 as pb;

pub(super) fn check(found: &mut Violations, path: &str, pipe: &pb::Pipe) {
    if let Some(it) = &pipe.capacity {
        let path = format!("{path}.capacity");
        constant_rate(found, &path, pipe);
        capacity(found, &path, it);
    }
    if let Some(it) = &pipe.reconfiguration {
        let path = format!("{path}.reconfiguration");
        if !it.shares.is_empty() {
            constant_rate(found, &format!("{path}.shares"), pipe);
        }
        reconfiguration(found, &path, it);
    }
}

/// Reports shares of a rate that is not constant.
fn constant_rate(found: &mut Violations, path: &str, pipe: &pb::Pipe) {
    let remedy = "give a rate such as rate = \"144 Mbit/s\", or leave out the shares of it";
    if pipe.rate_trace.is_some() {
        found.push(path, format!("a rate trace varies by itself: {remedy}"));
    } else if pipe.rate_bps.is_none() {
        found.push(path, format!("there is no rate of which a share could remain: {remedy}"));
    }
}

fn capacity(found: &mut Violations, path: &str, it: &pb::Capacity) {
    // The variance of a share with this mean is below that of a share that is zero or one.
    let most = (it.mean * (1.0 - it.mean)).sqrt();
    if it.spread > 0.0 && it.spread >= most {
        let message = format!(
            "{} is too much for shares from 0 % to 100 % with a mean of {}: write less than {}",
            format_probability(it.spread),
            format_probability(it.mean),
            format_probability(most)
        );
        found.push(format!("{path}.spread"), message);
    }
}

fn reconfiguration(found: &mut Violations, path: &str, it: &pb::Reconfiguration) {
    let at = |field: &str| format!("{path}.{field}");
    let period = format_duration(it.period_ns);
    if it.phase_ns >= it.period_ns {
        let message = format!(
            "{} is not below the period of {period}: write the rest, {}",
            format_duration(it.phase_ns),
            format_duration(it.phase_ns.checked_rem(it.period_ns).unwrap_or(0))
        );
        found.push(at("phase"), message);
    }
    let outage = (it.outage_probability > 0.0, it.outage_ns > 0);
    if it.outage_ns > it.period_ns {
        let message = format!(
            "{} is longer than the period of {period}: write a shorter outage",
            format_duration(it.outage_ns)
        );
        found.push(at("outage"), message);
    } else if outage == (true, false) {
        found.push(at("outage"), "missing: give outage = \"80 ms\" or the like");
    } else if outage == (false, true) {
        let message = "missing: give outage_probability = \"20 %\" or the like";
        found.push(at("outage_probability"), message);
    }
    if it.delays_ns.is_empty() && it.shares.is_empty() && outage == (false, false) {
        let message = "nothing changes at the boundaries: give delays, shares, or an outage with \
                       its outage_probability";
        found.push(path, message);
    }
    if it.values() == pb::ValueOrder::Drawn {
        ascending(found, &at("delays"), &it.delays_ns);
        if let Some(i) = it.shares.windows(2).position(|w| w[1] < w[0]) {
            let [before, share] = [i, i + 1].map(|i| format_probability(it.shares[i]));
            let message =
                format!("{share} is below the one before, {before}: write them ascending");
            found.push(format!("{}[{}]", at("shares"), i + 1), message);
        }
    }
}
