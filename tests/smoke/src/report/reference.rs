// SPDX-License-Identifier: Apache-2.0
//! The figures of SAT20: S. Claypool, J. Chung, M. Claypool, "Measurements Comparing
//! TCP Cubic and TCP BBR over a Satellite Network", CCNC 2021.

/// A mean and its standard deviation.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub mean: f64,
    /// The standard deviation over rounds.
    pub sd: f64,
}

/// Results of SAT20 for a congestion control in steady state.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    /// Throughput in Mbit/s (Table I).
    pub mbps: Figure,
    /// Round-trip time in ms (Table II).
    pub rtt_ms: Figure,
}

/// Idle round-trip times of 24 July 2020 in ms, digitised: p5, p50, p95.
pub const IDLE_RTT_MS: [f64; 3] = [576.0, 597.3, 616.0];

/// The steady state of a congestion control, if SAT20 has it.
#[must_use]
pub fn steady(cc: &str) -> Option<Steady> {
    let (mbps, rtt_ms) = match cc {
        "cubic" => ((123.3, 17.0), (821.0, 206.0)),
        "bbr" => ((112.9, 12.2), (780.0, 125.0)),
        _ => return None,
    };
    let figure = |(mean, sd)| Figure { mean, sd };
    Some(Steady { mbps: figure(mbps), rtt_ms: figure(rtt_ms) })
}
