// SPDX-License-Identifier: Apache-2.0
//! CUBIC (RFC 9438) with HyStart, with the choices of Linux (`net/ipv4/tcp_cubic.c`, 6.x).
//!
//! Where Linux differs from the RFC, this follows Linux: the window grows by at most one segment
//! per two acknowledged ones, the time of a round trip is added to the age of the epoch, and HyStart
//! (S. Ha, I. Rhee, "Taming the elephants", 2011) ends slow start at a train of acknowledgements
//! longer than half of the least round trip or at a round whose least round trip is 4 to 16 ms above
//! it. Differs from Linux in that times are exact, not in jiffies.

use super::control::{Acked, Control, Window};

/// Segments per second³, RFC 9438 §4.1.
const C: f64 = 0.4;
/// Multiplicative decrease: 717 / 1024 in Linux.
const BETA: f64 = 717.0 / 1024.0;
/// Windows below which HyStart is off.
const LOW_WINDOW: u32 = 16;
/// Samples of a round before its least round trip counts.
const SAMPLES: u32 = 8;
/// Acknowledgements closer than this belong to a train.
const TRAIN_GAP_NS: u64 = 2_000_000;
const DELAY_NS: std::ops::RangeInclusive<u64> = 4_000_000..=16_000_000;
/// Delays this soon after an epoch began are not samples.
const SETTLE_NS: u64 = 1_000_000_000;
/// `cnt` is computed again after this time, or when the window changed: HZ / 32.
const UPDATE_NS: u64 = 31_250_000;

#[derive(Debug, Default)]
pub struct Cubic {
    count: f64,
    last_max: f64,
    last_window: u32,
    last_time: u64,
    origin: f64,
    k_s: f64,
    delay_min: Option<u64>,
    epoch: Option<u64>,
    acked: f64,
    /// Window of a Reno flow.
    reno: f64,
    /// Acknowledged segments that have not yet raised the window.
    credit: f64,
    hystart: HyStart,
}

#[derive(Debug, Default)]
struct HyStart {
    found: bool,
    begun: bool,
    round_start: u64,
    last_ack: u64,
    end: u32,
    least: Option<u64>,
    samples: u32,
}

impl HyStart {
    fn reset(&mut self, now: u64, end: u32) {
        let found = self.found;
        *self =
            Self { found, begun: true, round_start: now, last_ack: now, end, ..Self::default() };
    }

    /// Whether slow start ends.
    fn ends(&mut self, acked: &Acked, size: u32, delay: u64, delay_min: u64) -> bool {
        if !self.begun || acked.una > self.end {
            self.reset(acked.now, acked.next);
        }
        if size < LOW_WINDOW {
            return false;
        }
        if acked.now.saturating_sub(self.last_ack) <= TRAIN_GAP_NS {
            self.last_ack = acked.now;
            // Without pacing, half of the least round trip.
            if acked.now - self.round_start > delay_min / 2 {
                self.found = true;
            }
        }
        let least = self.least.map_or(delay, |least| least.min(delay));
        self.least = Some(least);
        if self.samples < SAMPLES {
            self.samples += 1;
        } else if least > delay_min + (delay_min / 8).clamp(*DELAY_NS.start(), *DELAY_NS.end()) {
            self.found = true;
        }
        self.found
    }
}

impl Cubic {
    /// Segments to acknowledge per segment of growth.
    fn update(&mut self, now: u64, window: u32, acked: u32) {
        self.acked += f64::from(acked);
        if self.last_window == window && now - self.last_time <= UPDATE_NS {
            return;
        }
        let w = f64::from(window);
        (self.last_window, self.last_time) = (window, now);
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.epoch = Some(now);
                self.acked = f64::from(acked);
                self.reno = w;
                if self.last_max <= w {
                    (self.k_s, self.origin) = (0.0, w);
                } else {
                    self.k_s = ((self.last_max - w) / C).cbrt();
                    self.origin = self.last_max;
                }
                now
            }
        };
        let t = (now - epoch + self.delay_min.unwrap_or(0)) as f64 / 1e9;
        let target = self.origin + C * (t - self.k_s).powi(3);
        self.count = if target > w { w / (target - w) } else { 100.0 * w };
        if self.last_max == 0.0 {
            self.count = self.count.min(20.0);
        }
        // A Reno flow would have grown this far: 3 (1 − β) / (1 + β) segments a window.
        let per = w * (1.0 + BETA) / (3.0 * (1.0 - BETA));
        let steps = (self.acked / per).floor();
        self.acked -= steps * per;
        self.reno += steps;
        if self.reno > w {
            self.count = self.count.min(w / (self.reno - w));
        }
        self.count = self.count.max(2.0);
    }
}

impl Control for Cubic {
    fn acked(&mut self, acked: &Acked, w: &mut Window) {
        if let Some(delay) = acked.rtt
            && self.epoch.is_none_or(|epoch| acked.now - epoch >= SETTLE_NS)
        {
            let least = self.delay_min.map_or(delay, |least| least.min(delay));
            self.delay_min = Some(least);
            if !self.hystart.found
                && w.in_slow_start()
                && self.hystart.ends(acked, w.size, delay, least)
            {
                w.threshold = w.size;
            }
        }
        if acked.reduces || !acked.limited || acked.delivered == 0 {
            return;
        }
        let mut n = acked.delivered;
        if w.in_slow_start() {
            let size = w.size.saturating_add(n).min(w.threshold);
            n -= size - w.size;
            w.size = size;
            if n == 0 {
                return;
            }
        }
        self.update(acked.now, w.size, n);
        // The kernel's `tcp_cong_avoid_ai`.
        if self.credit >= self.count {
            self.credit = 0.0;
            w.size += 1;
        }
        self.credit += f64::from(n);
        if self.credit >= self.count {
            let steps = (self.credit / self.count).floor();
            self.credit -= steps * self.count;
            w.size += steps as u32;
        }
    }

    fn reduces(&mut self, w: &Window) -> u32 {
        self.epoch = None;
        let size = f64::from(w.size);
        // Fast convergence, RFC 9438 §4.7.
        self.last_max = if size < self.last_max { size * (1.0 + BETA) / 2.0 } else { size };
        ((size * BETA) as u32).max(2)
    }

    fn times_out(&mut self, now: u64, next: u32) {
        *self = Self::default();
        self.hystart.reset(now, next);
    }
}
