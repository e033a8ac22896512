// SPDX-License-Identifier: Apache-2.0
//! Rules of cross traffic.

use crate::Violations;
use crate::limits::*;
use proto::linkemu::v1 as pb;
use units::Rate;

/// Most phantom frames per second while they arrive.
const FRAMES_HZ: u128 = 1_000_000;

pub(super) fn check(found: &mut Violations, path: &str, cross: &pb::CrossTraffic, pipe: &pb::Pipe) {
    if cross.rate_bps == 0 {
        let message = "is down, so that nothing arrives: write a rate, or leave out cross_traffic";
        found.push(format!("{path}.rate"), message);
    }
    if pipe.rate_bps.is_none() && pipe.rate_trace.is_none() {
        let message = "consumes nothing, because the rate is unlimited: write a rate, or \
                       cross_traffic = \"none\"";
        found.push(path, message);
    }
    // Values out of range are reported elsewhere.
    let (mut on, mut cycle) = (1, 1);
    if let Some(it) = &cross.on_off {
        if !ON_OFF_ON_NS.contains(&it.on_ns) || !ON_OFF_OFF_NS.contains(&it.off_ns) {
            return;
        }
        (on, cycle) = (u128::from(it.on_ns), u128::from(it.on_ns) + u128::from(it.off_ns));
    }
    if !CROSS_TRAFFIC_RATE_BPS.contains(&cross.rate_bps)
        || !CROSS_TRAFFIC_FRAME_BYTES.contains(&cross.frame_bytes)
    {
        return;
    }
    let most = FRAMES_HZ * 8 * u128::from(cross.frame_bytes) * on / cycle;
    if u128::from(cross.rate_bps) > most {
        let rate = |bps| Rate::from_bps(Some(bps));
        let message = format!(
            "{} of frames of {} B, while they arrive, are more than {FRAMES_HZ} frames per second: \
             write at most {}, or longer frames",
            rate(cross.rate_bps),
            cross.frame_bytes,
            rate(u64::try_from(most).unwrap_or(u64::MAX))
        );
        found.push(format!("{path}.rate"), message);
    }
}
