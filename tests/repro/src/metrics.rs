// SPDX-License-Identifier: Apache-2.0
//! Metrics of a transfer, by the definitions of a study ([`Definitions`]).
//!
//! Names have their unit: `_mbps` (10^6 bit/s of payload), `_ms`, `_s`, `_share`. A metric that a
//! transfer did not reach, such as the time of an object larger than it, is absent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::packets::Trace;
use crate::statistics::{mean, quantile};
use crate::study::Metrics as Definitions;

/// Values by name.
pub type Metrics = BTreeMap<String, f64>;

pub(crate) const QUANTILES: [(&str, f64); 7] = [
    ("p5", 0.05),
    ("p10", 0.1),
    ("p25", 0.25),
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p95", 0.95),
];

/// A transfer second by second, for plots. The first entry is the second from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub mbps: Vec<f64>,
    /// Mean round-trip time; absent in a second without samples.
    pub rtt_ms: Vec<Option<f64>>,
}

/// Computes all metrics that the definitions and the transfer permit.
#[must_use]
pub fn compute(trace: &Trace, definitions: &Definitions) -> Metrics {
    let mut all = Metrics::new();
    let bytes = trace.acked.last().map_or(0, |a| a.1);
    let duration = time_of(trace, bytes).unwrap_or_default();
    put(&mut all, "duration_s", Some(duration).filter(|d| *d > 0.0));
    put(&mut all, "goodput_mbps", rate(bytes, duration));
    put(&mut all, "retransmitted_share", retransmitted(trace, 0.0));

    let rtts = samples(trace, definitions.rtt_floor);
    spread(&mut all, "rtt", &rtts.iter().map(|r| r.1).collect::<Vec<_>>(), definitions);
    if let Some(from) = definitions.rtt_steady_from {
        let (early, late): (Vec<_>, Vec<_>) =
            rtts.iter().partition(|(at, _)| *at < from.as_secs_f64());
        let values = |part: &[(f64, f64)]| part.iter().map(|r| r.1).collect::<Vec<_>>();
        spread(&mut all, "startup_rtt", &values(&early), definitions);
        spread(&mut all, "steady_rtt", &values(&late), definitions);
    }
    for &size in &definitions.object_bytes {
        let name = format!("object_{}_s", size_name(size));
        let time = time_of(trace, size);
        put(&mut all, &name, time);
        let name = format!("object_{}", size_name(size));
        put(&mut all, &format!("{name}_mbps"), time.and_then(|t| rate(size, t)));
        let until = rtts.iter().filter(|(at, _)| time.is_some_and(|time| *at <= time));
        let until: Vec<f64> = until.map(|r| r.1 * 1e3).collect();
        put(&mut all, &format!("{name}_rtt_mean_ms"), mean(&until));
    }
    in_flight(&mut all);
    put(&mut all, "duplicate_ack_share", share(trace.duplicates, trace.acks));
    if let Some(size) = definitions.startup_bytes {
        put(&mut all, "startup_mbps", time_of(trace, size).and_then(|t| rate(size, whole(t))));
    }
    if let Some([from, to]) = definitions.steady_bytes {
        steady(&mut all, trace, from, to);
    }
    all
}

/// A transfer second by second.
#[must_use]
pub fn series(trace: &Trace, definitions: &Definitions) -> Series {
    let end = trace.acked.last().map_or(0, |a| a.0.ceil() as usize);
    let mut sums = vec![(0.0, 0usize); end];
    for (at, rtt) in samples(trace, definitions.rtt_floor) {
        if let Some((sum, count)) = sums.get_mut(at as usize) {
            *sum += rtt * 1e3;
            *count += 1;
        }
    }
    let rtt_ms = sums.into_iter().map(|(sum, n)| (n > 0).then(|| sum / n as f64)).collect();
    Series { mbps: per_second(trace, 0, end), rtt_ms }
}

/// `1mb`, `50mb`, or bytes (`20000b`).
fn size_name(bytes: u64) -> String {
    if bytes.is_multiple_of(1_000_000) {
        format!("{}mb", bytes / 1_000_000)
    } else {
        format!("{bytes}b")
    }
}

pub(crate) fn put(all: &mut Metrics, name: &str, value: Option<f64>) {
    if let Some(value) = value.filter(|v| v.is_finite()) {
        all.insert(name.to_owned(), value);
    }
}

/// Mean bytes in flight, by Little's law.
fn in_flight(all: &mut Metrics) {
    let bytes = || Some(all.get("goodput_mbps")? * all.get("rtt_mean_ms")? * 125.0);
    put(all, "in_flight_mean_bytes", bytes());
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

/// Mbit/s.
fn rate(bytes: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| bytes as f64 * 8e-6 / seconds)
}

/// The authors count in seconds: the second in which something happens has passed.
fn whole(seconds: f64) -> f64 {
    seconds.ceil()
}

/// When the client had received this many bytes without a gap.
fn time_of(trace: &Trace, bytes: u64) -> Option<f64> {
    let place = trace.acked.partition_point(|a| a.1 < bytes);
    trace.acked.get(place).map(|a| a.0)
}

/// Bytes received until a time.
fn bytes_at(trace: &Trace, at: f64) -> u64 {
    let place = trace.acked.partition_point(|a| a.0 < at);
    place.checked_sub(1).and_then(|p| trace.acked.get(p)).map_or(0, |a| a.1)
}

/// Mbit/s of each second.
fn per_second(trace: &Trace, from: usize, to: usize) -> Vec<f64> {
    (from..to)
        .map(|s| {
            let [before, after] = [s, s + 1].map(|s| bytes_at(trace, s as f64));
            (after - before) as f64 * 8e-6
        })
        .collect()
}

fn samples(trace: &Trace, floor: Option<Duration>) -> Vec<(f64, f64)> {
    let floor = floor.map_or(f64::NEG_INFINITY, |f| f.as_secs_f64());
    trace.rtts.iter().copied().filter(|(_, rtt)| *rtt > floor).collect()
}

/// Share of packets from a time on that were retransmissions.
fn retransmitted(trace: &Trace, from: f64) -> Option<f64> {
    let sent = &trace.sent[trace.sent.partition_point(|s| s.0 < from)..];
    let again = sent.iter().filter(|s| s.1).count();
    (!sent.is_empty()).then(|| again as f64 / sent.len() as f64)
}

/// Mean, quantiles and share of high values of round-trip times in seconds.
fn spread(all: &mut Metrics, name: &str, seconds: &[f64], definitions: &Definitions) {
    put(all, &format!("{name}_mean_ms"), mean(seconds).map(|m| m * 1e3));
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    for (label, p) in QUANTILES {
        put(all, &format!("{name}_{label}_ms"), quantile(&sorted, p).map(|q| q * 1e3));
    }
    if let Some(high) = definitions.rtt_high
        && !sorted.is_empty()
    {
        let below = sorted.partition_point(|&rtt| rtt < high.as_secs_f64());
        let share = (sorted.len() - below) as f64 / sorted.len() as f64;
        put(all, &format!("{name}_high_share"), Some(share));
    }
}

/// Throughput between two numbers of bytes: over whole seconds, its quantiles over seconds, and the
/// share of seconds with less than half of the median.
fn steady(all: &mut Metrics, trace: &Trace, from: u64, to: u64) {
    let (Some(start), Some(end)) = (time_of(trace, from), time_of(trace, to)) else { return };
    put(all, "steady_mbps", rate(to - from, whole(end) - whole(start)));
    put(all, "steady_retransmitted_share", retransmitted(trace, start));
    let mut seconds = per_second(trace, whole(start) as usize, end.floor() as usize);
    seconds.sort_by(f64::total_cmp);
    for (label, p) in QUANTILES {
        put(all, &format!("steady_second_{label}_mbps"), quantile(&seconds, p));
    }
    if let Some(median) = quantile(&seconds, 0.5) {
        let low = seconds.partition_point(|&mbps| mbps < median / 2.0);
        put(all, "steady_low_seconds_share", Some(low as f64 / seconds.len() as f64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 Mbit/s for 10 s, then 80 Mbit/s until 120 s; an acknowledgement each 10 ms, with a
    /// round-trip time of 600 ms that doubles at 30 s.
    fn trace() -> Trace {
        let mut trace = Trace::default();
        let mut bytes = 0;
        for tick in 1..=12_000_u32 {
            let at = f64::from(tick) / 100.0;
            bytes += if tick <= 1000 { 12_500 } else { 100_000 };
            trace.acked.push((at, bytes));
            trace.rtts.push((at, if at < 30.0 { 0.6 } else { 1.2 }));
            trace.rtts.push((at, 0.3));
            trace.sent.push((at, tick % 10 == 0 && at >= 60.0));
        }
        trace
    }

    fn definitions() -> Definitions {
        Definitions {
            from_iperf3: false,
            startup_bytes: Some(50_000_000),
            steady_bytes: Some([500_000_000, 1_000_000_000]),
            object_bytes: vec![1_000_000, 30_000_000, 2_000_000_000],
            rtt_floor: Some(Duration::from_millis(400)),
            rtt_steady_from: Some(Duration::from_secs(30)),
            rtt_high: Some(Duration::from_secs(1)),
        }
    }

    fn near(metrics: &Metrics, name: &str, value: f64) {
        let found = metrics.get(name).copied().unwrap_or(f64::NAN);
        assert!(
            (found - value).abs() < 1e-6 * value.abs().max(1.0),
            "{name}: {found}, not {value}"
        );
    }

    #[test]
    fn throughput_is_over_whole_seconds() {
        let metrics = compute(&trace(), &definitions());
        // 12.5 MB after 10 s; 50 MB after 13.75 s; 0.5 GB after 58.75 s; 1 GB after 108.75 s.
        near(&metrics, "startup_mbps", 400.0 / 14.0);
        near(&metrics, "steady_mbps", 4000.0 / 50.0);
    }

    #[test]
    fn object_times_are_exact_and_absent_beyond_the_transfer() {
        let metrics = compute(&trace(), &definitions());
        near(&metrics, "object_1mb_s", 0.8);
        near(&metrics, "object_30mb_s", 11.75);
        assert!(!metrics.contains_key("object_2000mb_s"));
        near(&metrics, "object_1mb_mbps", 10.0);
        near(&metrics, "object_1mb_rtt_mean_ms", 600.0);
    }

    #[test]
    fn round_trips_below_the_floor_do_not_count() {
        let metrics = compute(&trace(), &definitions());
        near(&metrics, "startup_rtt_mean_ms", 600.0);
        near(&metrics, "steady_rtt_mean_ms", 1200.0);
        near(&metrics, "steady_rtt_high_share", 1.0);
        near(&metrics, "startup_rtt_high_share", 0.0);
    }

    #[test]
    fn retransmissions_are_a_share_of_packets() {
        let metrics = compute(&trace(), &definitions());
        near(&metrics, "retransmitted_share", 601.0 / 12_000.0);
        near(&metrics, "steady_retransmitted_share", 601.0 / 6126.0);
    }

    #[test]
    fn series_has_each_second() {
        let series = series(&trace(), &definitions());
        assert_eq!((series.mbps.len(), series.rtt_ms.len()), (120, 120));
        assert!((series.mbps[5] - 10.0).abs() < 0.01 && (series.mbps[50] - 80.0).abs() < 0.01);
        assert!(series.rtt_ms[40].is_some_and(|r| (r - 1200.0).abs() < 1e-6));
    }

    #[test]
    fn empty_transfer_has_no_metrics() {
        assert_eq!(compute(&Trace::default(), &definitions()), Metrics::new());
    }
}
