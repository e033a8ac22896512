// SPDX-License-Identifier: Apache-2.0
//! Events that come more often in some periods: clear times, and busy times.
//!
//! The instants are taken as a Markov-modulated Poisson process with two states (W. Fischer,
//! K. Meier-Hellstern, "The Markov-modulated Poisson process (MMPP) cookbook", 1993): its
//! likelihood is a product of 2×2 matrix exponentials, known in closed form. It is preferred
//! to a plain Poisson process only where BIC says so.
//!
//! Times are in seconds.

use crate::interval::Interval;
use crate::numeric::{Maximum, maximise, profile_interval};

/// Fewer events do not tell busy times.
pub const LEAST_EVENTS: usize = 30;
/// Among more, busy times are not looked for: it would take minutes.
pub const MOST_EVENTS: usize = 20_000;
/// Parameters that busy times cost: interval, duration, factor.
const COST: f64 = 3.0;
/// How much better than a constant rate BIC must be: "very strong" (R. E. Kass,
/// A. E. Raftery, "Bayes Factors", 1995).
const MARGIN: f64 = 10.0;

/// Instants of events, ascending, within stretches of observed time.
#[derive(Clone, Copy, Debug)]
pub struct Events<'a> {
    pub begins_s: &'a [f64],
    pub stretches_s: &'a [(f64, f64)],
}

/// Busy times of events; all times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BusyTimes {
    /// Events per second in clear times.
    pub clear_rate: Interval,
    /// How many times more there are in a busy time.
    pub factor: Interval,
    /// Mean clear time between busy times.
    pub interval: Interval,
    /// Mean duration of a busy time.
    pub duration: Interval,
    /// By how much BIC prefers busy times to a constant rate.
    pub bic_gain: f64,
}

impl BusyTimes {
    /// The mean rate in units of that in clear times.
    #[must_use]
    pub fn mean_multiplier(&self) -> f64 {
        let busy = self.duration.value / (self.duration.value + self.interval.value);
        1.0 + busy * (self.factor.value - 1.0)
    }

    /// The mean interval in clear times: the estimate is `value`. Its confidence interval combines
    /// those of the mean interval of all events and of their rate in clear times.
    #[must_use]
    pub fn clear_interval(&self, mean: Interval, value: f64) -> Interval {
        let rate = self.clear_rate;
        let wide =
            |end: f64, clear: f64| (end / mean.value).ln().hypot((clear / rate.value).ln()).exp();
        let (low, high) = (wide(mean.low, rate.high), wide(mean.high, rate.low));
        Interval { value, low: value / low, high: value * high }
    }
}

/// A Poisson process with a rate that changes between two values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modulation {
    /// Events per second in clear and in busy times.
    pub rates: [f64; 2],
    /// Mean clear time between busy times.
    pub interval: f64,
    /// Mean duration of a busy time.
    pub duration: f64,
}

struct Process {
    rates: [f64; 2],
    /// The generator less the rates of events: m = half · 1 + n, and exp(m t) =
    /// e^(half t) (cosh(d t) · 1 + sinh(d t)/d · n).
    half: f64,
    n: [[f64; 2]; 2],
    d: f64,
}

/// Distribution of the state, and the likelihood so far.
struct Forward {
    state: [f64; 2],
    log: f64,
}

impl Process {
    /// Time passes without an event.
    fn pass(&self, f: &mut Forward, t: f64) {
        let e = (-2.0 * self.d * t).exp();
        let (c, s) = ((1.0 + e) / 2.0, (1.0 - e) / (2.0 * self.d));
        let [v0, v1] = f.state;
        f.state = [
            v0 * (c + s * self.n[0][0]) + v1 * s * self.n[1][0],
            v0 * s * self.n[0][1] + v1 * (c + s * self.n[1][1]),
        ];
        f.log += (self.half + self.d) * t;
        f.normalise();
    }

    fn event(&self, f: &mut Forward) {
        f.state = [f.state[0] * self.rates[0], f.state[1] * self.rates[1]];
        f.normalise();
    }
}

impl Forward {
    fn normalise(&mut self) {
        let sum = (self.state[0] + self.state[1]).max(f64::MIN_POSITIVE);
        self.log += sum.ln();
        self.state = self.state.map(|v| v / sum);
    }
}

impl Modulation {
    fn process(&self) -> Process {
        let (a, b) = (1.0 / self.interval, 1.0 / self.duration);
        let rates = self.rates;
        let (m0, m1) = (-a - rates[0], -b - rates[1]);
        let half = (m0 + m1) / 2.0;
        let d = ((m0 - m1) / 2.0).hypot((a * b).sqrt()).max(f64::MIN_POSITIVE);
        Process { rates, half, n: [[m0 - half, a], [b, m1 - half]], d }
    }

    /// At a random time.
    fn start(&self) -> Forward {
        let busy = self.duration / (self.interval + self.duration);
        Forward { state: [1.0 - busy, busy], log: 0.0 }
    }

    /// The logarithm of the probability that no event comes in a span, from a random time on.
    #[must_use]
    pub fn none(&self, span: f64) -> f64 {
        let mut forward = self.start();
        self.process().pass(&mut forward, span);
        forward.log
    }
}

/// `at` has the logarithms of: rate in clear times, factor, interval, duration.
fn log_likelihood(events: &Events, at: &[f64]) -> f64 {
    let [rate, factor, interval, duration] = [at[0].exp(), at[1].exp(), at[2].exp(), at[3].exp()];
    let modulation = Modulation { rates: [rate, rate * factor], interval, duration };
    let process = modulation.process();
    let mut log = 0.0;
    let mut begins = events.begins_s.iter().copied().peekable();
    for (from, to) in events.stretches_s {
        let mut forward = modulation.start();
        let mut now = *from;
        while let Some(t) = begins.next_if(|t| t <= to) {
            process.pass(&mut forward, t - now);
            process.event(&mut forward);
            now = t;
        }
        process.pass(&mut forward, to - now);
        log += forward.log;
    }
    log
}

/// Busy times, if the events determine them.
#[must_use]
pub fn estimate(events: &Events) -> Option<BusyTimes> {
    let n = events.begins_s.len();
    let observed: f64 = events.stretches_s.iter().map(|(from, to)| to - from).sum();
    if !(LEAST_EVENTS..=MOST_EVENTS).contains(&n) || observed <= 0.0 {
        return None;
    }
    let constant = n as f64 * ((n as f64 / observed).ln() - 1.0);
    let between = observed / n as f64;
    // A busy time has more events, holds several, and is seen several times.
    let f = |at: &[f64]| {
        let bounded = at[1] >= 0.0
            && at[3] >= between.ln() - 3.0
            && at[2].max(at[3]) <= observed.ln()
            && at[1] <= 1e4_f64.ln();
        if bounded { log_likelihood(events, at) } else { f64::NEG_INFINITY }
    };
    let mut best: Option<Maximum> = None;
    for factor in [5.0_f64, 40.0] {
        for share in [0.02, 0.15] {
            for times in [5.0, 30.0, 150.0] {
                let cycle: f64 = observed / times;
                let clear = 1.0 / (between * (1.0 + share * (factor - 1.0)));
                let start = [
                    clear.ln(),
                    factor.ln(),
                    (cycle * (1.0 - share)).ln(),
                    (cycle * share).max(between).ln(),
                ];
                let found = maximise(&f, &start, 0.5);
                if best.as_ref().is_none_or(|b| found.value > b.value) {
                    best = Some(found);
                }
            }
        }
    }
    let best = best?;
    let bic_gain = 2.0 * (best.value - constant) - COST * (n as f64).ln();
    if bic_gain < MARGIN {
        return None;
    }
    let parameter = |i: usize| {
        let (low, high) = profile_interval(&f, &best, i);
        Interval { value: best.at[i], low, high }.map(f64::exp)
    };
    Some(BusyTimes {
        clear_rate: parameter(0),
        factor: parameter(1),
        interval: parameter(2),
        duration: parameter(3),
        bic_gain,
    })
}
