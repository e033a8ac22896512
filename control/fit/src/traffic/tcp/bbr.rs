// SPDX-License-Identifier: Apache-2.0
//! BBR v1 (N. Cardwell et al., "BBR: congestion-based congestion control", CACM 2017;
//! draft-cardwell-iccrg-bbr-congestion-control-00), with the choices of Linux
//! (`net/ipv4/tcp_bbr.c`).
//!
//! Differs from Linux in that it has no detection of policers, and in that its estimates are
//! floating-point numbers of segments per second.

use super::control::{Acked, Control, Phase, RateSample, Window};

/// 2 / ln 2.
const HIGH_GAIN: f64 = 2885.0 / 1000.0;
const DRAIN_GAIN: f64 = 1000.0 / 2885.0;
/// Gains of ProbeBW, a phase each.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const WINDOW_GAIN: f64 = 2.0;
/// Round trips of the filter of the bandwidth.
const BANDWIDTH_ROUNDS: u64 = 10;
const LEAST_RTT_WINDOW_NS: u64 = 10_000_000_000;
const PROBE_RTT_NS: u64 = 200_000_000;
const LEAST_WINDOW: u32 = 4;
/// The pipe is full if the bandwidth did not grow by this factor in so many rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Share of the bandwidth at which it paces.
const PACING_MARGIN: f64 = 0.99;
const INITIAL_WINDOW: u32 = 10;
/// Rounds of one of both windows of the excess of acknowledgements.
const EXCESS_ROUNDS: u64 = 5;
/// The allowance for it in the window is at most the data sent in this time.
const EXCESS_S: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

#[derive(Debug)]
pub struct Bbr {
    mode: Mode,
    /// Segments per second.
    pacing: f64,
    pacing_gain: f64,
    window_gain: f64,
    /// Recent samples with their rounds, the largest first and then ever younger ones.
    samples: Vec<(u64, f64)>,
    rounds: u64,
    round_end: u64,
    round_started: bool,
    full_bandwidth: f64,
    full_rounds: u32,
    full: bool,
    cycle: usize,
    random: u64,
    cycle_at: u64,
    least_rtt: u64,
    least_rtt_at: u64,
    probe_rtt_end: Option<u64>,
    probe_rtt_round: bool,
    prior_window: u32,
    prior_phase: Phase,
    conserves: bool,
    has_rtt: bool,
    /// Whether the window allows for acknowledgements that come in lumps (Linux 5.1 and later).
    lumps: bool,
    excess: [u32; 2],
    excess_index: usize,
    excess_rounds: u64,
    epoch_at: u64,
    epoch_acked: u64,
}

impl Bbr {
    /// `phase` is the seed of the first phases of ProbeBW. With `lumps`, as Linux 5.1
    /// and later.
    #[must_use]
    pub fn new(phase: u64, lumps: bool, now: u64, rtt: u64) -> Self {
        let mut bbr = Self {
            mode: Mode::Startup,
            pacing: 0.0,
            pacing_gain: HIGH_GAIN,
            window_gain: HIGH_GAIN,
            samples: Vec::new(),
            rounds: 0,
            round_end: 0,
            round_started: false,
            full_bandwidth: 0.0,
            full_rounds: 0,
            full: false,
            cycle: 0,
            random: phase,
            cycle_at: 0,
            least_rtt: rtt,
            least_rtt_at: now,
            probe_rtt_end: None,
            probe_rtt_round: false,
            prior_window: 0,
            prior_phase: Phase::Open,
            conserves: false,
            has_rtt: false,
            lumps,
            excess: [0; 2],
            excess_index: 0,
            excess_rounds: 0,
            epoch_at: now,
            epoch_acked: 0,
        };
        bbr.pacing = HIGH_GAIN * f64::from(INITIAL_WINDOW) / (rtt as f64 / 1e9);
        bbr
    }

    fn bandwidth(&self) -> f64 {
        self.samples.first().map_or(0.0, |(_, rate)| *rate)
    }

    /// Segments in flight for `gain` times the bandwidth-delay product.
    fn product(&self, gain: f64) -> f64 {
        if self.least_rtt == u64::MAX {
            return f64::from(INITIAL_WINDOW);
        }
        (self.bandwidth() * self.least_rtt as f64 / 1e9 * gain).ceil()
    }

    /// With room for bursts of offloads (`bbr_quantization_budget`).
    fn target(&self, gain: f64) -> u32 {
        let burst = (self.pacing / 1024.0).clamp(2.0, 45.0).floor();
        let segments = self.product(gain) + 3.0 * burst;
        let even = ((segments as u32) + 1) & !1;
        let probes = self.mode == Mode::ProbeBandwidth && self.cycle == 0;
        even + if probes { 2 } else { 0 }
    }

    fn sample(&mut self, rate: f64) {
        let rounds = self.rounds;
        self.samples.retain(|(round, other)| *other > rate && rounds - round < BANDWIDTH_ROUNDS);
        self.samples.push((rounds, rate));
    }

    fn take_rate(&mut self, a: &Acked, rate: &RateSample) {
        self.round_started = false;
        if rate.prior_delivered >= self.round_end {
            self.round_end = a.total_delivered;
            self.rounds += 1;
            self.round_started = true;
            self.conserves = false;
        }
        if rate.interval > 0 {
            self.sample(rate.delivered as f64 * 1e9 / rate.interval as f64);
        }
    }

    /// How many acknowledgements came beyond the bandwidth (`bbr_update_ack_aggregation`).
    fn take_excess(&mut self, a: &Acked, window: u32) {
        if !self.lumps || a.delivered == 0 {
            return;
        }
        if self.round_started {
            self.excess_rounds += 1;
            if self.excess_rounds >= EXCESS_ROUNDS {
                self.excess_rounds = 0;
                self.excess_index ^= 1;
                self.excess[self.excess_index] = 0;
            }
        }
        let elapsed = (a.now - self.epoch_at) as f64 / 1e9;
        let mut expected = self.bandwidth() * elapsed;
        if self.epoch_acked as f64 <= expected
            || self.epoch_acked + u64::from(a.delivered) >= 1 << 20
        {
            (self.epoch_acked, self.epoch_at, expected) = (0, a.now, 0.0);
        }
        self.epoch_acked += u64::from(a.delivered);
        let excess = ((self.epoch_acked as f64 - expected).max(0.0) as u32).min(window);
        let slot = &mut self.excess[self.excess_index];
        *slot = (*slot).max(excess);
    }

    fn take_cycle(&mut self, a: &Acked) {
        if self.mode != Mode::ProbeBandwidth {
            return;
        }
        let long = a.now - self.cycle_at > self.least_rtt;
        let over = match self.pacing_gain {
            gain if gain > 1.0 => long && (a.lost > 0 || a.prior_in_flight >= self.target(gain)),
            gain if gain < 1.0 => long || a.prior_in_flight <= self.target(1.0),
            _ => long,
        };
        if over {
            self.advance_cycle(a.now);
        }
    }

    fn advance_cycle(&mut self, now: u64) {
        self.cycle = (self.cycle + 1) % CYCLE.len();
        self.cycle_at = now;
    }

    fn check_full(&mut self) {
        if self.full || !self.round_started {
            return;
        }
        let bandwidth = self.bandwidth();
        if bandwidth >= self.full_bandwidth * FULL_GROWTH {
            (self.full_bandwidth, self.full_rounds) = (bandwidth, 0);
            return;
        }
        self.full_rounds += 1;
        self.full = self.full_rounds >= FULL_ROUNDS;
    }

    fn check_drain(&mut self, a: &Acked) {
        if self.mode == Mode::Startup && self.full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && a.in_flight <= self.target(1.0) {
            self.probe_bandwidth(a.now);
        }
    }

    fn probe_bandwidth(&mut self, now: u64) {
        self.mode = Mode::ProbeBandwidth;
        // The first phase is any but the one that drains (Knuth's MMIX generator).
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.cycle = 7 - ((self.random >> 33) % 7) as usize;
        self.advance_cycle(now);
    }

    fn take_rtt(&mut self, a: &Acked, w: &mut Window) {
        let expired = a.now > self.least_rtt_at + LEAST_RTT_WINDOW_NS;
        if let Some(rtt) = a.rtt
            && (rtt < self.least_rtt || expired)
        {
            (self.least_rtt, self.least_rtt_at) = (rtt, a.now);
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_window(w.size);
            self.probe_rtt_end = None;
        }
        if self.mode == Mode::ProbeRtt {
            match self.probe_rtt_end {
                None if a.in_flight <= LEAST_WINDOW => {
                    self.probe_rtt_end = Some(a.now + PROBE_RTT_NS);
                    self.probe_rtt_round = false;
                    self.round_end = a.total_delivered;
                }
                Some(end) => {
                    self.probe_rtt_round |= self.round_started;
                    if self.probe_rtt_round && a.now > end {
                        self.least_rtt_at = a.now;
                        w.size = w.size.max(self.prior_window);
                        if self.full {
                            self.probe_bandwidth(a.now);
                        } else {
                            self.mode = Mode::Startup;
                        }
                    }
                }
                None => {}
            }
        }
    }

    fn update_gains(&mut self) {
        (self.pacing_gain, self.window_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth => (CYCLE[self.cycle], WINDOW_GAIN),
            Mode::ProbeRtt => (1.0, 1.0),
        };
    }

    fn update_pacing(&mut self, a: &Acked, w: &Window) {
        if !self.has_rtt && a.srtt > 0 {
            self.has_rtt = true;
            self.pacing = HIGH_GAIN * f64::from(w.size) / (a.srtt as f64 / 1e9);
        }
        let rate = self.bandwidth() * self.pacing_gain * PACING_MARGIN;
        if self.full || rate > self.pacing {
            self.pacing = rate.max(1.0);
        }
    }

    fn save_window(&mut self, size: u32) {
        let fresh = self.prior_phase == Phase::Open && self.mode != Mode::ProbeRtt;
        self.prior_window = if fresh { size } else { self.prior_window.max(size) };
    }

    fn update_window(&mut self, a: &Acked, w: &mut Window) {
        if a.delivered > 0 && !self.recover(a, w) {
            let mut target = self.target(self.window_gain);
            if self.lumps && self.full {
                let most = (self.bandwidth() * EXCESS_S) as u32;
                target += self.excess[0].max(self.excess[1]).min(most);
            }
            if self.full {
                w.size = (w.size + a.delivered).min(target);
            } else if w.size < target || a.total_delivered < u64::from(INITIAL_WINDOW) {
                w.size += a.delivered;
            }
            w.size = w.size.max(LEAST_WINDOW);
        }
        if self.mode == Mode::ProbeRtt {
            w.size = w.size.min(LEAST_WINDOW);
        }
    }

    /// The window in recovery (`bbr_set_cwnd_to_recover_or_restore`); whether it is final.
    fn recover(&mut self, a: &Acked, w: &mut Window) -> bool {
        if a.lost > 0 {
            w.size = w.size.saturating_sub(a.lost).max(1);
        }
        if a.phase == Phase::Recovery && self.prior_phase != Phase::Recovery {
            self.conserves = true;
            self.round_end = a.total_delivered;
            w.size = a.in_flight + a.delivered;
        } else if self.prior_phase != Phase::Open && a.phase == Phase::Open {
            w.size = w.size.max(self.prior_window);
            self.conserves = false;
        }
        self.prior_phase = a.phase;
        if self.conserves {
            w.size = w.size.max(a.in_flight + a.delivered);
        }
        self.conserves
    }
}

impl Control for Bbr {
    fn acked(&mut self, a: &Acked, w: &mut Window) {
        if let Some(rate) = &a.rate {
            self.take_rate(a, rate);
        } else {
            self.round_started = false;
        }
        self.take_excess(a, w.size);
        self.take_cycle(a);
        self.check_full();
        self.check_drain(a);
        self.take_rtt(a, w);
        self.update_gains();
        self.update_pacing(a, w);
        self.update_window(a, w);
    }

    fn reduces(&mut self, w: &Window) -> u32 {
        self.save_window(w.size);
        w.threshold
    }

    fn times_out(&mut self, _: u64, _: u32) {
        self.prior_phase = Phase::Timeout;
        self.full_bandwidth = 0.0;
        self.round_started = true;
    }

    fn pacing(&self) -> Option<f64> {
        Some(self.pacing)
    }

    fn owns_recovery(&self) -> bool {
        true
    }
}
