// SPDX-License-Identifier: Apache-2.0
//! A terminal: its bursts, its requests and the grants that are on their way.

use std::collections::VecDeque;

use crate::rng::{Stage, Stream, StreamKey};
use crate::units::{Instant, NANOS_PER_SEC, Nanos};

use super::{AccessPlan, AccessStats, Bursts, Others, RateRequests};

/// The answer to a request.
#[derive(Clone, Copy, Debug)]
struct Grant {
    /// The superframe from which on it applies.
    from: u64,
    /// In bytes.
    volume: u64,
    /// In bit/s.
    rate: u64,
}

/// A rate that was granted.
#[derive(Clone, Copy, Debug, Default)]
struct Granted {
    /// In bit/s.
    rate: u64,
    /// The superframe after its last one.
    until: u64,
    /// What it has for the burst that is not complete, in bit-nanoseconds. It counts at the next rate too.
    carried: u64,
}

impl Granted {
    /// Whole bursts of superframe `n`.
    fn bursts(&mut self, plan: &AccessPlan, n: u64) -> u64 {
        if n >= self.until {
            return 0;
        }
        plan.next_bursts(self.rate.into(), &mut self.carried)
    }
}

#[derive(Clone, Debug)]
pub struct Terminal {
    plan: AccessPlan,
    /// Start of superframe 0.
    phase: Instant,
    /// The superframe in which it sends next, or has sent last.
    number: u64,
    /// The superframe after the last one whose bursts were assigned.
    assigned: u64,
    /// Bytes of the bursts of `number` that are left, if they were assigned.
    bytes: u64,
    /// Bytes of the frame in service, and those of them that are left.
    whole: u64,
    left: u64,
    grants: VecDeque<Grant>,
    granted: Granted,
    /// Volume that was granted and is not used up, in bytes.
    volume: u64,
    /// First superframe in which it may send a request.
    may_ask: u64,
    /// The rate that was requested last, in bit/s.
    requested: u64,
    /// Whether the first request after a pause has come through.
    known: bool,
    /// Since when the rate of arrivals is measured: a superframe, at most the last request's, the bytes
    /// served since, and those that waited then.
    asked_at: u64,
    served: u64,
    waited: u64,
    /// Terminals outside the lab that share the peak; not used in a carrier, which has its own.
    others: Option<Box<Others>>,
    random: Stream,
    stats: AccessStats,
}

impl Terminal {
    /// A terminal that logs on with its first frame. The phase of its superframes is drawn from `at` on.
    pub fn new(plan: AccessPlan, key: StreamKey, at: Instant) -> Self {
        let under_way = usize::try_from(plan.under_way()).unwrap_or(usize::MAX);
        Self {
            plan,
            phase: at + Stream::new(key, Stage::Slot, 0).below(plan.superframe),
            number: 0,
            assigned: 0,
            bytes: 0,
            whole: 0,
            left: 0,
            grants: VecDeque::with_capacity(under_way + 2),
            granted: Granted::default(),
            volume: 0,
            may_ask: 0,
            requested: 0,
            known: false,
            served: 0,
            waited: 0,
            asked_at: 0,
            others: plan.others.map(|it| Box::new(Others::new(it, key, None))),
            random: Stream::new(key, Stage::Access, 0),
            stats: AccessStats::default(),
        }
    }

    /// Takes other parameters. If only the peak differs, all requests and grants stay.
    pub fn replan(self, plan: AccessPlan, key: StreamKey, at: Instant) -> Self {
        if plan.is_as(&self.plan) {
            return Self { plan, ..self };
        }
        let fresh = Self::new(plan, key, at);
        if plan.superframe != self.plan.superframe {
            return fresh;
        }
        let Self { phase, number, assigned, random, .. } = self;
        Self { phase, number, assigned, asked_at: number, random, ..fresh }
    }

    /// Takes the superframes of a carrier. The first one begins at `phase`. All requests and grants end.
    pub fn align(&mut self, phase: Instant) {
        self.phase = phase;
        self.grants.clear();
        self.granted = Granted::default();
        (self.number, self.assigned, self.may_ask) = (0, 0, 0);
        (self.bytes, self.volume, self.known) = (0, 0, false);
        self.measure(0, 0);
        if let Some(others) = &mut self.others {
            others.restart();
        }
    }

    pub fn plan(&self) -> &AccessPlan {
        &self.plan
    }

    pub fn stats(&self) -> AccessStats {
        self.stats
    }

    /// The accounts until now; they begin again.
    pub fn take_stats(&mut self) -> AccessStats {
        std::mem::take(&mut self.stats)
    }

    /// Start of a superframe.
    fn starts(&self, number: u64) -> Instant {
        self.phase + Nanos(number.saturating_mul(self.plan.superframe.0))
    }

    /// The first superframe after `t`.
    fn after(&self, t: Instant) -> u64 {
        match t.0.checked_sub(self.phase.0) {
            Some(past) => past / self.plan.superframe.0.max(1) + 1,
            None => 0,
        }
    }

    /// Bytes in bursts that a frame of `bytes` takes.
    fn cost(&self, bytes: u64) -> u64 {
        let burst = u64::from(self.plan.burst.max(1));
        if self.plan.packs { bytes } else { bytes.div_ceil(burst).saturating_mul(burst) }
    }

    /// A frame of `bytes` arrives at `at`, and none waits. Returns the start of the next superframe.
    pub fn start(&mut self, at: Instant, bytes: u64) -> Instant {
        self.follow(bytes);
        let number = self.after(at).max(self.number);
        if let Some(log_on) = self.plan.log_on {
            let idle = self.starts(number).since(self.starts(self.number));
            if !self.is_on() || idle > log_on.after {
                self.known = false;
                self.may_ask = number + self.plan.superframes(log_on.delay);
            }
        }
        self.number = number;
        self.starts(number)
    }

    /// Whether it has ever sent.
    fn is_on(&self) -> bool {
        self.assigned > 0
    }

    /// The next frame, of `bytes`, is first.
    #[inline]
    pub fn follow(&mut self, bytes: u64) {
        self.whole = self.cost(bytes);
        self.left = self.whole;
    }

    /// Bytes of the frame in service that are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The superframe starts, or continues with another frame. Returns whether the frame in service is
    /// complete and leaves; else [`Terminal::wait`] follows.
    #[inline]
    pub fn send(&mut self) -> bool {
        if self.assigned <= self.number {
            self.assign();
        }
        let sent = self.bytes.min(self.left);
        self.bytes -= sent;
        self.left -= sent;
        self.served += sent;
        self.stats.used += sent;
        self.left == 0
    }

    /// The superframe ends with so many frames of `bytes` each, on average, in the queue, that in service
    /// included. Returns the start of the next one.
    pub fn wait(&mut self, frames: u32, bytes: u64) -> Instant {
        let waiting = self.cost(bytes).saturating_mul(frames.into());
        self.ask(waiting.saturating_sub(self.whole).saturating_add(self.left));
        self.number += 1;
        self.starts(self.number)
    }

    /// All frames have left in this superframe.
    pub fn rest(&mut self) {
        if self.assigned > self.number {
            self.ask(0);
        }
    }

    /// Assigns the bursts of this superframe: all that the terminal may have.
    #[inline(never)]
    fn assign(&mut self) {
        let n = self.number;
        let passed = n - self.assigned;
        // Grants of superframes that passed without frames are lost.
        if passed > 0 {
            self.ask_meanwhile();
            let peak = self.plan.bytes_of(self.plan.peak.get(), n);
            self.volume = self.volume.saturating_sub(passed.saturating_mul(peak));
        }
        let mut bursts = self.wanted(n, true);
        if let Some(others) = &mut self.others {
            bursts = others.leave(bursts, &self.plan, n);
        }
        self.take(n, bursts);
    }

    /// The most bursts that it may have in superframe `n`, by its grants. `waits`: frames wait. Called once for
    /// each superframe.
    pub fn wanted(&mut self, n: u64, waits: bool) -> Bursts {
        let burst = u64::from(self.plan.burst.max(1));
        let mut left = self.plan.bursts_of(self.plan.peak.get(), n);
        self.collect(n, left.saturating_mul(burst));
        let unasked = |bursts: u32| if waits { u64::from(bursts) } else { 0 };
        let rate = self.granted.bursts(&self.plan, n);
        let volume = self.volume.div_ceil(burst);
        Bursts([unasked(self.plan.constant), rate, volume, unasked(self.plan.free)].map(|bursts| {
            let bursts = bursts.min(left);
            left -= bursts;
            bursts
        }))
    }

    /// Takes the answers to requests that apply from superframe `n` on, or applied before.
    fn collect(&mut self, n: u64, peak: u64) {
        while let Some(grant) = self.grants.front().copied().filter(|grant| grant.from <= n) {
            self.grants.pop_front();
            let lost = (n - grant.from).saturating_mul(peak);
            self.volume = self.volume.saturating_add(grant.volume.saturating_sub(lost));
            if let Some(RateRequests { timeout, .. }) = self.plan.rate {
                let until = grant.from + self.plan.superframes(timeout);
                self.granted = Granted { rate: grant.rate, until, ..self.granted };
            }
        }
    }

    /// Frames wait at the start of superframe `n`, and these are its bursts.
    pub fn take(&mut self, n: u64, bursts: Bursts) {
        // The measured rate of arrivals includes neither a long pause nor arrivals before it.
        if n - self.assigned >= self.plan.request_interval() {
            self.measure(n.saturating_sub(self.plan.request_interval()), 0);
        }
        self.assigned = n + 1;
        self.use_volume(bursts);
        self.bytes = bursts.total().saturating_mul(self.plan.burst.into());
        self.stats.granted += self.bytes;
    }

    /// No frame waits at the start of superframe `n`: its bursts are lost.
    pub fn pass(&mut self, n: u64, bursts: Bursts) {
        self.use_volume(bursts);
        if self.may_ask <= n && self.known && self.has_rate() {
            self.ask_without_frames(n);
        }
    }

    /// Whether a grant or a request for one lasts beyond superframe `n`.
    pub fn is_served_after(&self, n: u64) -> bool {
        let has_rate = self.granted.rate > 0 && self.granted.until > n + 1;
        let asks = self.known && self.has_rate();
        has_rate || asks || self.volume > 0 || !self.grants.is_empty()
    }

    fn use_volume(&mut self, bursts: Bursts) {
        let bytes = bursts.volume().saturating_mul(self.plan.burst.into());
        self.volume = self.volume.saturating_sub(bytes);
    }

    /// `waiting` bytes are left after this superframe: sends a request, if it may.
    fn ask(&mut self, waiting: u64) {
        let n = self.number;
        if n < self.may_ask {
            return;
        }
        let rate = self.rate_to_ask(n, waiting);
        let volume = self.volume_to_ask(waiting);
        let ends = rate == 0 && self.has_rate();
        if (rate, volume) == (0, 0) && !ends {
            self.measure(n, waiting);
            return;
        }
        self.stats.requests += 1;
        let round_trip = self.plan.round_trip();
        if let Some(contention) = self.plan.contention.filter(|_| !self.known)
            && !self.random.chance(contention.success)
        {
            self.stats.collisions += 1;
            let backoff = self.random.below(Nanos(u64::from(contention.backoff) + 1)).0;
            self.may_ask = n + round_trip + backoff;
            return;
        }
        self.known = true;
        self.request(n, waiting, Grant { from: n + round_trip, volume, rate });
    }

    /// A request of superframe `n` is on its way.
    fn request(&mut self, n: u64, waiting: u64, grant: Grant) {
        let interval = self.plan.request_interval();
        let of_rate = bytes_in(grant.rate, interval.saturating_mul(self.plan.superframe.0));
        self.stats.asked = self.stats.asked.saturating_add(grant.volume).saturating_add(of_rate);
        self.may_ask = n + interval;
        self.measure(n, waiting);
        self.requested = grant.rate;
        self.grants.push_back(grant);
    }

    /// Begins to measure the rate of arrivals after superframe `n`, with `waiting` bytes.
    fn measure(&mut self, n: u64, waiting: u64) {
        (self.asked_at, self.served, self.waited) = (n, 0, waiting);
    }

    /// The requests of superframes that have passed without frames: one for the rate of the frames before,
    /// and one that ends it.
    fn ask_meanwhile(&mut self) {
        for _ in 0..2 {
            if self.may_ask >= self.number || !self.known || !self.has_rate() {
                return;
            }
            self.ask_without_frames(self.may_ask);
        }
    }

    /// Sends a request of superframe `n` while no frame waits.
    fn ask_without_frames(&mut self, n: u64) {
        let rate = self.rate_to_ask(n, 0);
        self.stats.requests += 1;
        self.request(n, 0, Grant { from: n + self.plan.round_trip(), volume: 0, rate });
    }

    /// Whether a rate was granted, or will be.
    fn has_rate(&self) -> bool {
        match self.grants.back() {
            Some(last) => last.rate > 0,
            None => self.granted.rate > 0,
        }
    }

    /// Bytes that come in each superframe without a request.
    fn constant(&self) -> u64 {
        u64::from(self.plan.constant) * u64::from(self.plan.burst)
    }

    /// The rate to ask for in superframe `n`, in bit/s: less what comes without a request, and while bytes
    /// wait for nothing else, enough for a burst until the next one.
    fn rate_to_ask(&self, n: u64, waiting: u64) -> u64 {
        let (plan, constant) = (&self.plan, self.constant());
        let Some(rates) = &plan.rate else { return 0 };
        let span = n.saturating_sub(self.asked_at).max(1).saturating_mul(plan.superframe.0);
        let arrived = (self.served + waiting).saturating_sub(self.waited);
        let asked = asked_rate(rates, arrived, span, waiting);
        let asked = asked.saturating_sub(bit_rate(constant, plan.superframe.0));
        let asked = if arrived > 0 { asked.max(self.fallen(rates, span)) } else { asked };
        if waiting == 0 || constant > 0 || plan.volume.is_some() {
            return asked;
        }
        let renewed = plan.superframes(plan.interval.min(rates.timeout)).max(1);
        let least = bit_rate(plan.burst.into(), renewed.saturating_mul(plan.superframe.0)) + 1;
        asked.max(least).min(rates.max.get())
    }

    /// What is left of the rate that was requested last after `span`, in ns.
    fn fallen(&self, rates: &RateRequests, span: u64) -> u64 {
        let left = u128::from(rates.decay.0.saturating_sub(span));
        let fallen = u128::from(self.requested) * left / u128::from(rates.decay.0.max(1));
        u64::try_from(fallen).unwrap_or(u64::MAX)
    }

    /// The volume to ask for: what waits and was not asked for, less what comes in a round trip without.
    fn volume_to_ask(&self, waiting: u64) -> u64 {
        let Some(most) = self.plan.volume else { return 0 };
        let round_trip = self.plan.round_trip();
        let asked =
            self.grants.iter().map(|grant| grant.volume).fold(self.volume, u64::saturating_add);
        let granted = if self.number < self.granted.until { self.granted.rate } else { 0 };
        let span = round_trip.saturating_mul(self.plan.superframe.0);
        let comes =
            self.constant().saturating_mul(round_trip).saturating_add(bytes_in(granted, span));
        let wanted = waiting.saturating_sub(asked).saturating_sub(comes);
        wanted.min(most.get().saturating_sub(asked))
    }
}

/// Bytes at a rate in bit/s in a time in ns, rounded down.
fn bytes_in(rate: u64, time: u64) -> u64 {
    let bytes = u128::from(rate) * u128::from(time) / (8 * u128::from(NANOS_PER_SEC));
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Bytes in a time in ns as bit/s, rounded down.
fn bit_rate(bytes: u64, time: u64) -> u64 {
    let rate = u128::from(bytes) * 8 * u128::from(NANOS_PER_SEC) / u128::from(time.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The rate asked for, in bit/s, with `arrived` bytes in a span in ns and `waiting` bytes.
fn asked_rate(rates: &RateRequests, arrived: u64, span: u64, waiting: u64) -> u64 {
    let arrivals = (u128::from(bit_rate(arrived, span)) * u128::from(rates.gain)) >> 16;
    let arrivals = u64::try_from(arrivals).unwrap_or(u64::MAX);
    let waiting = if rates.drain == Nanos::ZERO { 0 } else { bit_rate(waiting, rates.drain.0) };
    arrivals.saturating_add(waiting).min(rates.max.get())
}
