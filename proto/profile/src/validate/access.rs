// SPDX-License-Identifier: Apache-2.0
//! Rules of capacity on demand.

use crate::Violations;
use crate::limits::*;
use proto::linkemu::v1 as pb;
use units::Rate;

/// Most requests under way.
const REQUESTS: u64 = 256;

pub(super) fn check(found: &mut Violations, path: &str, access: &pb::Access, pipe: &pb::Pipe) {
    let at = |field: &str| format!("{path}.access{field}");
    // A part may be of either direction.
    if path == "forward" {
        let message = "is for the return direction, from the terminals: leave it out here";
        found.push(at(""), message);
    }
    let varies = [
        ("capacity", pipe.capacity.is_some()),
        ("rate_trace", pipe.rate_trace.is_some()),
        (
            "reconfiguration.shares",
            pipe.reconfiguration.as_ref().is_some_and(|it| !it.shares.is_empty()),
        ),
        ("cross_traffic", pipe.cross_traffic.is_some()),
    ];
    for (other, _) in varies.iter().filter(|(_, is_given)| *is_given) {
        let message = format!("does not go with {other}: leave out one of them");
        found.push(at(""), message);
    }
    if pipe.rate_bps.is_none() && pipe.rate_trace.is_none() {
        let message = "assigns a part of the rate, and that is unlimited: write a rate";
        found.push(at(""), message);
    }
    if pipe.delay.as_ref().is_some_and(|delay| delay.slot_ns > 0) {
        let message = "packets would wait twice: leave out delay.slot, superframe takes its place";
        found.push(at(".superframe"), message);
    }
    if access.rate_requests.as_ref().is_some_and(|it| it.max_bps == 0) {
        let message =
            "is down, so that nothing is requested: write a rate, or leave out rate_requests";
        found.push(at(".rate_requests.max"), message);
    }
    let asks = access.rate_requests.is_some() || access.volume_bytes > 0;
    if access.constant == 0 && access.free == 0 && !asks {
        let message = "no packet could leave: write constant, free, rate_requests or volume";
        found.push(at(""), message);
    }
    // Values out of range are reported elsewhere.
    if !ACCESS_SUPERFRAME_NS.contains(&access.superframe_ns)
        || !ACCESS_BURST_BYTES.contains(&access.burst_bytes)
    {
        return;
    }
    let superframes = |ns: u64| ns.div_ceil(access.superframe_ns).max(1);
    let round_trip = superframes(access.request_delay_ns.saturating_add(access.plan_delay_ns));
    let under_way = round_trip / superframes(access.request_interval_ns) + 1;
    if under_way > REQUESTS {
        let message = format!(
            "{under_way} requests would be under way, more than {REQUESTS}: write a longer interval"
        );
        found.push(at(".request_interval"), message);
    }
    let least =
        (u128::from(access.burst_bytes) * 8_000_000_000).div_ceil(u128::from(access.superframe_ns));
    if let Some(bps) = pipe.rate_bps.filter(|bps| *bps > 0 && u128::from(*bps) < least) {
        let rate = |bps| Rate::from_bps(Some(bps));
        let message = format!(
            "the rate of {} is less than a burst of {} B per superframe: write at least {} or \
             shorter bursts",
            rate(bps),
            access.burst_bytes,
            rate(u64::try_from(least).unwrap_or(u64::MAX))
        );
        found.push(at(".burst"), message);
    }
}
