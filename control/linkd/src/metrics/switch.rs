// SPDX-License-Identifier: Apache-2.0
//! The P4 switch's families. Without a switch they are absent.

use super::export::{Family, Labels, NS, one};
use crate::switch::{self, Look};
use ::switch::Histogram;
use emu::units::ByDirection;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge};
use std::fmt;

/// Buckets that a histogram has at most.
const BUCKETS: usize = 64;
const DIRECTIONS: [&str; 2] = ["forward", "return"];

pub(super) fn encode(e: &mut DescriptorEncoder<'_>, look: &Look) -> fmt::Result {
    let up = f64::from(u8::from(switch::is_ready(look)));
    one(e, "switch_up", "Whether the P4 switch has its program and its tables", Gauge, up)?;
    if let Ok(standing) = &look.standing {
        let help = "Entries of all tables of the P4 switch";
        one(e, "switch_entries", help, Gauge, f64::from(standing.entries))?;
        let help = "Seconds that the last restoration of the P4 switch took";
        one(e, "switch_restore_seconds", help, Gauge, standing.restored.as_secs_f64())?;
    }
    let counts = switch::counts(look);
    let series = counts.iter().flat_map(|count| {
        let values = [count.forward_count, count.return_count];
        DIRECTIONS.into_iter().zip(values).map(|(direction, value)| {
            let packets = value.unwrap_or_default().packets as f64;
            ([("direction", direction), ("fate", count.fate.as_str())], packets)
        })
    });
    Family("switch_frames_total", "Frames by what the P4 switch did with them", Counter)
        .write(e, series)?;
    let egress = look.counts.egress.iter().flat_map(|(port, egress)| {
        let to = if egress.to_hosts { "hosts" } else { "box" };
        [("given", egress.given), ("sent", egress.sent)].map(|(count, value)| {
            let labels =
                [("port", port.to_string()), ("to", to.to_owned()), ("count", count.to_owned())];
            (labels, value.packets as f64)
        })
    });
    let egress: Vec<_> = egress.collect();
    let series = egress.iter().map(|(labels, value)| {
        (labels.each_ref().map(|(name, label)| (*name, label.as_str())), *value)
    });
    let help = "Frames that the P4 switch's pipeline gave to a port, and that its egress sent";
    Family("switch_egress_frames_total", help, Counter).write(e, series)?;
    let help = "Time from a frame's arrival at the P4 switch to its way back from the box";
    histograms(e, "switch_transit_seconds", help, &look.counts.transit)?;
    let help = "Time that frames were away from the P4 switch beyond what the emulator meant";
    histograms(e, "switch_excess_seconds", help, &look.counts.lateness)?;
    let help = "Frames that came back to the P4 switch sooner than the emulator meant";
    one(e, "switch_early_total", help, Counter, look.counts.early as f64)
}

/// The switch has no sum of times: it is not a number.
fn histograms(
    e: &mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &'static str,
    of: &ByDirection<Histogram>,
) -> fmt::Result {
    let mut family = e.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (direction, Histogram { bounds, counts }) in DIRECTIONS.into_iter().zip(&of.0) {
        // One more than bounds, unless it was never read.
        if counts.len() != bounds.len() + 1 || counts.len() > BUCKETS {
            continue;
        }
        let labels: Labels<'_> = &[("direction", direction)];
        let bounds = bounds.iter().map(|ns| *ns as f64 * NS).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(counts.iter().copied()).collect();
        let count = counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
            f64::NAN,
            count,
            &buckets,
            None,
        )?;
    }
    Ok(())
}
