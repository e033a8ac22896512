// SPDX-License-Identifier: Apache-2.0
//! The sender: its segments in flight, lost segments, and the next segment to send.

use std::collections::{BTreeSet, VecDeque};

use super::control::{Acked, Control, Phase, RateSample, Window};
use super::ranges::Ranges;
use super::receiver::Ack;

/// RFC 6928, in segments.
pub const INITIAL_WINDOW: u32 = 10;
/// Selective acknowledgements before the first loss is believed (RFC 6675 §5).
const THRESHOLD: u32 = 3;
/// Linux's `TCP_RTO_MIN`, as a lower limit of the variation, and `TCP_RTO_MAX`.
const LEAST_VARIATION_NS: u64 = 200_000_000;
const LONGEST_TIMER_NS: u64 = 120_000_000_000;
/// A burst has the bytes that are sent in 1 ms, at most 64 KB (`tcp_tso_autosize`).
const BURSTS_PER_S: f64 = 1024.0;
const LONGEST_BURST: u32 = 45;

/// A segment that was sent and is not acknowledged cumulatively.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Number of its latest transmission.
    transmission: u64,
    at: u64,
    /// When it was sent first.
    begun: u64,
    /// State of the flow when it was sent, for delivery-rate samples.
    delivered: u64,
    delivered_at: u64,
    first_at: u64,
    retransmitted: bool,
    sacked: bool,
    in_flight: bool,
}

/// What an acknowledgement delivered.
#[derive(Clone, Copy, Debug, Default)]
struct Delivery {
    segments: u32,
    /// Round trip of the newest segment that was sent once.
    rtt: Option<u64>,
    newest: Option<Sent>,
}

/// Counters of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub transmissions: u64,
    pub recoveries: u32,
    pub timeouts: u32,
}

#[derive(Debug)]
pub struct Sender {
    control: Box<dyn Control>,
    window: Window,
    segments: VecDeque<Sent>,
    una: u32,
    next: u32,
    total: u32,
    /// Receive window in segments.
    receive_window: u32,
    sacked: Ranges,
    sacked_count: u32,
    /// Latest transmissions in order; those of delivered segments are stale.
    order: VecDeque<(u32, u64)>,
    /// Latest transmission that was delivered.
    newest: u64,
    lost: BTreeSet<u32>,
    in_flight: u32,
    limited: bool,
    phase: Phase,
    high: u32,
    reduction: Reduction,
    delivered: u64,
    delivered_at: u64,
    first_at: u64,
    least_rtt: u64,
    srtt: u64,
    variation: u64,
    backoff: u32,
    timer: Option<u64>,
    /// Pacing holds the next burst until then.
    paced: u64,
    pub sums: Sums,
}

/// Proportional rate reduction.
#[derive(Clone, Copy, Debug, Default)]
struct Reduction {
    prior: u32,
    delivered: u32,
    out: u32,
}

impl Sender {
    /// A sender of `total` segments, at most so many of them at first, and so many ahead of the cumulative
    /// acknowledgement at all. `rtt` is that of the handshake.
    #[must_use]
    pub fn new(
        control: Box<dyn Control>,
        total: u32,
        [initial_window, receive_window]: [u32; 2],
        now: u64,
        rtt: u64,
    ) -> Self {
        let mut sender = Self {
            control,
            window: Window { size: initial_window, threshold: u32::MAX },
            segments: VecDeque::new(),
            una: 0,
            next: 0,
            total,
            receive_window,
            sacked: Ranges::default(),
            sacked_count: 0,
            order: VecDeque::new(),
            newest: 0,
            lost: BTreeSet::new(),
            in_flight: 0,
            limited: false,
            phase: Phase::Open,
            high: 0,
            reduction: Reduction::default(),
            delivered: 0,
            delivered_at: now,
            first_at: now,
            least_rtt: u64::MAX,
            srtt: 0,
            variation: 0,
            backoff: 0,
            timer: None,
            paced: now,
            sums: Sums::default(),
        };
        sender.measure(rtt);
        sender
    }

    /// Whether all data is acknowledged.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.una == self.total
    }

    /// When it has to be called without an acknowledgement.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let paced = (self.has_work() && self.in_flight < self.window.size).then_some(self.paced);
        self.timer.into_iter().chain(paced).min()
    }

    #[must_use]
    pub fn window(&self) -> u32 {
        self.window.size
    }

    /// Takes an acknowledgement. Returns the time since the first transmission of the segment that it
    /// ends with, as captures show it (`tcp.analysis.ack_rtt` of Wireshark).
    pub fn acknowledge(&mut self, now: u64, ack: &Ack) -> Option<u64> {
        let prior_in_flight = self.in_flight;
        let una = self.una;
        let mut delivery = Delivery::default();
        let cumulative = self.take_cumulative(now, ack.next, &mut delivery);
        for (start, end) in ack.blocks {
            self.take_block(now, start.max(self.una)..end, &mut delivery);
        }
        if let Some(rtt) = delivery.rtt {
            self.measure(rtt);
        }
        let rate = delivery.newest.map(|newest| self.rate(now, &newest));
        let lost = self.detect_losses();
        let done = self.phase != Phase::Open && self.una >= self.high;
        if done {
            if self.phase == Phase::Recovery && !self.control.owns_recovery() {
                self.window.size = self.window.threshold;
            }
            self.phase = Phase::Open;
        }
        if self.phase == Phase::Open && !self.lost.is_empty() {
            self.begin_recovery();
        }
        let reduces = self.phase == Phase::Recovery && !self.control.owns_recovery();
        if reduces {
            self.reduce(delivery.segments, lost, self.una > una);
        }
        let acked = Acked {
            now,
            una: self.una,
            next: self.next,
            delivered: delivery.segments,
            lost,
            rtt: delivery.rtt,
            rate,
            total_delivered: self.delivered,
            in_flight: self.in_flight,
            prior_in_flight,
            limited: self.limited
                || self.window.in_slow_start() && self.window.size < 2 * prior_in_flight,
            phase: self.phase,
            reduces,
            srtt: self.srtt,
        };
        self.control.acked(&acked, &mut self.window);
        if delivery.segments > 0 {
            self.backoff = 0;
            self.restart_timer(now);
        }
        cumulative
    }

    fn take_cumulative(&mut self, now: u64, next: u32, delivery: &mut Delivery) -> Option<u64> {
        let mut rtt = None;
        while self.una < next {
            let Some(sent) = self.segments.pop_front() else { break };
            rtt = Some(now - sent.begun);
            if sent.sacked {
                self.sacked_count -= 1;
            } else {
                self.deliver(now, self.una, sent, delivery);
            }
            self.una += 1;
        }
        if !self.sacked.is_empty() {
            self.sacked.advance(self.una);
        }
        rtt
    }

    fn take_block(&mut self, now: u64, block: std::ops::Range<u32>, delivery: &mut Delivery) {
        if block.is_empty() || block.end > self.next {
            return;
        }
        let mut sacked = std::mem::take(&mut self.sacked);
        sacked.insert(block, |missing| {
            for number in missing {
                let Some(sent) = self.segments.get_mut((number - self.una) as usize) else {
                    continue;
                };
                let before = *sent;
                sent.sacked = true;
                sent.in_flight = false;
                self.sacked_count += 1;
                self.deliver(now, number, before, delivery);
            }
        });
        self.sacked = sacked;
    }

    /// A segment has arrived.
    #[inline]
    fn deliver(&mut self, now: u64, number: u32, sent: Sent, delivery: &mut Delivery) {
        delivery.segments += 1;
        self.delivered += 1;
        self.delivered_at = now;
        if sent.in_flight {
            self.in_flight -= 1;
        } else {
            self.lost.remove(&number);
        }
        self.newest = self.newest.max(sent.transmission);
        if delivery.newest.is_none_or(|newest| sent.transmission > newest.transmission) {
            delivery.newest = Some(sent);
        }
        if !sent.retransmitted {
            delivery.rtt = Some(now - sent.at);
        }
    }

    fn rate(&mut self, now: u64, newest: &Sent) -> RateSample {
        self.first_at = newest.at;
        let sending = newest.at - newest.first_at;
        let acking = now - newest.delivered_at;
        let interval = sending.max(acking);
        RateSample {
            prior_delivered: newest.delivered,
            delivered: self.delivered - newest.delivered,
            interval: if interval < self.least_rtt { 0 } else { interval },
        }
    }

    /// Every transmission before one that was delivered is lost, since the link keeps the order.
    /// Returns the number of newly lost segments.
    fn detect_losses(&mut self) -> u32 {
        let believed = self.sacked_count >= THRESHOLD || self.phase != Phase::Open;
        let mut lost = 0;
        while let Some((number, transmission)) = self.order.front().copied()
            && transmission < self.newest
        {
            let place = number.checked_sub(self.una).map(|i| i as usize);
            let sent = place.and_then(|i| self.segments.get_mut(i));
            if let Some(sent) = sent.filter(|s| s.in_flight && s.transmission == transmission) {
                if !believed {
                    break;
                }
                sent.in_flight = false;
                self.in_flight -= 1;
                self.lost.insert(number);
                lost += 1;
            }
            self.order.pop_front();
        }
        lost
    }

    fn begin_recovery(&mut self) {
        self.phase = Phase::Recovery;
        self.sums.recoveries += 1;
        self.high = self.next;
        self.reduction = Reduction { prior: self.window.size, ..Reduction::default() };
        let threshold = self.control.reduces(&self.window);
        if !self.control.owns_recovery() {
            self.window.threshold = threshold;
        }
    }

    /// RFC 6937 with the kernel's choice between its two bounds (`tcp_cwnd_reduction`).
    fn reduce(&mut self, delivered: u32, lost: u32, advanced: bool) {
        let r = &mut self.reduction;
        r.delivered += delivered;
        let threshold = self.window.threshold;
        let allowed = if self.in_flight > threshold {
            let share = u64::from(threshold) * u64::from(r.delivered);
            let target = share.div_ceil(u64::from(r.prior.max(1))) as u32;
            target.saturating_sub(r.out)
        } else {
            let bound = r.delivered.saturating_sub(r.out).max(delivered);
            let bound = bound + u32::from(advanced && lost == 0);
            bound.min(threshold - self.in_flight)
        };
        self.window.size = self.in_flight + allowed.max(u32::from(r.out == 0));
    }

    fn measure(&mut self, rtt: u64) {
        self.least_rtt = self.least_rtt.min(rtt);
        if self.srtt == 0 {
            (self.srtt, self.variation) = (rtt, rtt / 2);
        } else {
            let error = self.srtt.abs_diff(rtt);
            self.variation = (3 * self.variation + error) / 4;
            self.srtt = (7 * self.srtt + rtt) / 8;
        }
    }

    fn restart_timer(&mut self, now: u64) {
        self.timer = self.segments.front().map(|head| {
            let timer = self.srtt + (4 * self.variation).max(LEAST_VARIATION_NS);
            let timer = timer.saturating_mul(1 << self.backoff.min(16)).min(LONGEST_TIMER_NS);
            (head.at + timer).max(now + 1_000_000)
        });
    }

    /// The timer has expired: all that is not acknowledged is lost.
    fn time_out(&mut self, now: u64) {
        self.sums.timeouts += 1;
        if self.phase != Phase::Timeout || self.backoff == 0 {
            let threshold = self.control.reduces(&self.window);
            if !self.control.owns_recovery() {
                self.window.threshold = threshold;
            }
            self.control.times_out(now, self.next);
        }
        for (number, sent) in (self.una..).zip(&mut self.segments) {
            if !sent.sacked && sent.in_flight {
                sent.in_flight = false;
                self.in_flight -= 1;
                self.lost.insert(number);
            }
        }
        self.order.clear();
        self.window.size = self.in_flight + 1;
        self.phase = Phase::Timeout;
        self.high = self.next;
        self.backoff += 1;
        self.paced = now;
    }

    fn has_work(&self) -> bool {
        !self.lost.is_empty()
            || self.next < self.total && self.next - self.una < self.receive_window
    }

    /// Sends all segments that may leave at `now`, and calls `send` with the number of each segment.
    pub fn transmit(&mut self, now: u64, mut send: impl FnMut(u32)) {
        if self.timer.is_some_and(|at| at <= now) {
            self.time_out(now);
            self.restart_timer(now);
        }
        let rate = self.control.pacing();
        while self.in_flight < self.window.size && self.has_work() {
            let mut most = u32::MAX;
            if let Some(rate) = rate {
                if self.paced > now {
                    break;
                }
                most = ((rate / BURSTS_PER_S) as u32).clamp(2, LONGEST_BURST);
            }
            let mut sent = 0;
            while sent < most && self.in_flight < self.window.size {
                let Some(number) = self.choose() else { break };
                self.send(now, number);
                send(number);
                sent += 1;
            }
            if let Some(rate) = rate {
                let pause = f64::from(sent) / rate * 1e9;
                self.paced = self.paced.max(now) + pause as u64;
            }
        }
        self.limited = self.in_flight >= self.window.size;
        if self.timer.is_none() {
            self.restart_timer(now);
        }
    }

    /// The segment to send next: lost ones first.
    fn choose(&mut self) -> Option<u32> {
        if let Some(number) = self.lost.pop_first() {
            return Some(number);
        }
        self.has_work().then_some(self.next)
    }

    fn send(&mut self, now: u64, number: u32) {
        if self.segments.is_empty() {
            (self.first_at, self.delivered_at) = (now, now);
        }
        self.sums.transmissions += 1;
        let place = (number - self.una) as usize;
        let begun = self.segments.get(place).map_or(now, |sent| sent.begun);
        let sent = Sent {
            transmission: self.sums.transmissions,
            at: now,
            begun,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_at: self.first_at,
            retransmitted: number < self.next,
            sacked: false,
            in_flight: true,
        };
        if number == self.next {
            self.segments.push_back(sent);
            self.next += 1;
        } else if let Some(place) = self.segments.get_mut(place) {
            *place = sent;
        }
        self.order.push_back((number, sent.transmission));
        self.in_flight += 1;
        if self.phase == Phase::Recovery {
            self.reduction.out += 1;
        }
    }
}
