// SPDX-License-Identifier: Apache-2.0
//! The law of round trips: what the emulator's delay stage gives probes, in closed form.
//!
//! An episode of duration d and extra delay a raises the delay by more than x < a for
//! d + (a − x): when it ends, the extra delay falls as fast as time passes. Durations
//! are exponential; extra delays are generalized Pareto, cut at a maximum. From this
//! follow, for a class of episodes, the share of time raised above x, and the share in
//! which it is raised above x₁ and, a lag later, still above x₂.

use std::num::NonZeroUsize;
use std::sync::LazyLock;

use gauss_quad::GaussLegendre;

/// Nodes of the integrals; the integrands are smooth.
const NODES: NonZeroUsize = NonZeroUsize::new(10).unwrap();
pub(super) static RULE: LazyLock<GaussLegendre> = LazyLock::new(|| GaussLegendre::new(NODES));

/// In a regime, spans between episodes are at least this part of an episode.
const LEAST_BETWEEN: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Excursions {
    /// Mean time from the end of an episode to the start of the next.
    pub interval: f64,
    /// Mean duration of an episode.
    pub duration: f64,
    pub location: f64,
    /// Scale of the extra delay beyond it.
    pub scale: f64,
    /// Shape; zero is exponential.
    pub shape: f64,
    /// Extra delays are cut to this.
    pub max: f64,
    /// Periods with more episodes; `interval` is that outside of them.
    pub regime: Option<Regime>,
}

/// Periods in which the spans between episodes pass faster by a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regime {
    /// Mean time from the end of a period to the start of the next.
    pub interval: f64,
    /// Mean duration of a period.
    pub duration: f64,
    pub factor: f64,
}

/// The mean of a function over held values, at so many of them.
fn mean(quantiles: &[f64], values: u32, f: impl Fn(f64) -> f64) -> f64 {
    let at = |i: u32| super::body::quantile(quantiles, (f64::from(i) + 0.5) / f64::from(values));
    (0..values).map(|i| f(at(i))).sum::<f64>() / f64::from(values)
}

impl Excursions {
    /// The probability that an episode's extra delay is above `a`.
    #[must_use]
    pub fn survival(&self, a: f64) -> f64 {
        let z = (a - self.location) / self.scale;
        if a >= self.max {
            0.0
        } else if z <= 0.0 {
            1.0
        } else if self.shape.abs() < 1e-6 {
            (-z).exp()
        } else {
            (1.0 + self.shape * z).max(0.0).powf(-1.0 / self.shape)
        }
    }

    /// The extra delay that an episode exceeds with probability `u`.
    #[must_use]
    pub fn amplitude(&self, u: f64) -> f64 {
        let excess = if self.shape.abs() < 1e-6 {
            -u.ln()
        } else {
            (u.powf(-self.shape) - 1.0) / self.shape
        };
        (self.location + self.scale * excess).min(self.max)
    }

    /// The integral of the survival from `x` to the maximum.
    #[must_use]
    pub fn excess(&self, x: f64) -> f64 {
        if x >= self.max {
            return 0.0;
        }
        let below = (self.location.min(self.max) - x).max(0.0);
        let from = x.max(self.location);
        if from >= self.max {
            return below;
        }
        // The tail beyond `a`, were it not cut.
        let tail = |a: f64| {
            let z = (a - self.location) / self.scale;
            if self.shape.abs() < 1e-6 {
                self.scale * (-z).exp()
            } else {
                let base = (1.0 + self.shape * z).max(0.0);
                self.scale / (1.0 - self.shape) * base.powf(1.0 - 1.0 / self.shape)
            }
        };
        below + (tail(from) - tail(self.max)).max(0.0)
    }

    /// The share of time in which the delay is raised by more than `x`.
    #[must_use]
    pub fn share(&self, x: f64) -> f64 {
        let raised = self.duration * self.survival(x) + self.excess(x);
        (raised * self.rate()).min(1.0)
    }

    /// The share in which one episode raises it above `x1` and, `lag` later, above `x2`.
    /// The levels differ by less than the lag.
    #[must_use]
    pub fn joint(&self, x1: f64, x2: f64, lag: f64) -> f64 {
        // From this extra delay on, the rest of the fall alone lasts for the lag.
        let k = x2 + lag;
        let m = x1.max(x2);
        if m >= self.max {
            return 0.0;
        }
        let d = self.duration;
        let lasting = |a: f64| if a >= k { d + a - k } else { d * ((a - k) / d).exp() };
        let mut sum = lasting(m) * self.survival(m) + self.excess(m.max(k));
        // The rest lies within a few durations below k, and within a few scales above m.
        let (from, to) = (m.max(k - 12.0 * d), k.min(self.max));
        if from < to {
            let f = |a: f64| ((a - k) / d).exp() * self.survival(a);
            let knee = (from + 3.0 * self.scale).min(from.midpoint(to));
            sum += RULE.integrate(from, knee, f) + RULE.integrate(knee, to, f);
        }
        sum * self.rate()
    }

    /// Episodes per second, outside of the regime and in it.
    #[must_use]
    pub fn rates(&self) -> [f64; 2] {
        let factor = self.regime.map_or(1.0, |r| r.factor);
        [self.interval, self.interval / factor].map(|interval| 1.0 / (interval + self.duration))
    }

    /// Episodes per second in the long run.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let [clear, busy] = self.rates();
        let share = self.regime.map_or(0.0, |r| r.duration / (r.interval + r.duration));
        clear + share * (busy - clear)
    }

    /// The same episodes in the long run, more of them in a regime: `factor` times as many per
    /// second, as far as episodes and the least spans between them have room.
    #[must_use]
    pub fn among(self, interval: f64, duration: f64, factor: f64) -> Self {
        let share = duration / (interval + duration);
        let clear = 1.0 / (self.rate() / (1.0 + share * (factor - 1.0))) - self.duration;
        let clear = clear.max(self.interval);
        let busy = (clear + self.duration) / factor - self.duration;
        let factor = clear / busy.max(LEAST_BETWEEN * self.duration);
        let regime = Some(Regime { interval, duration, factor: factor.max(1.0) });
        Self { interval: clear, regime, ..self }
    }

    /// Episodes per second with an extra delay above `x`.
    #[must_use]
    pub fn episodes(&self, x: f64) -> f64 {
        self.survival(x) * self.rate()
    }
}

/// The part of the delay that varies all the time.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// The wait for a slot, uniform up to the period.
    Slot {
        period: f64,
        /// Whether probes come so regularly that the waits of two follow from the lag.
        regular: bool,
    },
    /// Held values: quantiles at equally spaced probabilities, and the mean time for
    /// which one is held. One value alone is a constant.
    Held { quantiles: Vec<f64>, correlation: f64 },
}

impl Body {
    #[must_use]
    pub fn top(&self) -> f64 {
        match self {
            Self::Slot { period, .. } => *period,
            Self::Held { quantiles, .. } => quantiles.last().copied().unwrap_or(0.0),
        }
    }
}

/// The law of round trips.
#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    pub base: f64,
    /// The part that varies all the time.
    pub body: Body,
    /// Classes of excursions; where several are on, the largest counts.
    pub excursions: Vec<Excursions>,
}

impl Law {
    /// The probability of a round trip above `y`.
    #[must_use]
    pub fn exceedance(&self, y: f64) -> f64 {
        let x = y - self.base;
        match &self.body {
            Body::Slot { period, .. } => {
                let inside = x.clamp(0.0, *period);
                let raised = RULE.integrate(0.0, inside, |w| 1.0 - self.quiet(x - w));
                (raised + period - inside) / period
            }
            Body::Held { quantiles, .. } => {
                mean(quantiles, 24, |v| if v > x { 1.0 } else { 1.0 - self.quiet(x - v) })
            }
        }
    }

    /// The probability that no class raises the delay by more than `x`.
    fn quiet(&self, x: f64) -> f64 {
        self.excursions.iter().map(|e| 1.0 - e.share(x)).product()
    }

    /// The probability that of two probes, `lag` apart, both have a round trip above `y`,
    /// which is above the body.
    #[must_use]
    pub fn joint(&self, y: f64, lag: f64) -> f64 {
        match &self.body {
            Body::Slot { period, regular: true } => {
                // The second wait is shorter by the lag, or longer by the rest of a slot.
                let less = lag.rem_euclid(*period);
                let pair = |w1: f64, w2: f64| self.both(y, w1, w2, lag + w2 - w1);
                let before = RULE.integrate(0.0, less, |w| pair(w, w - less + period));
                let after = RULE.integrate(less, *period, |w| pair(w, w - less));
                (before + after) / period
            }
            Body::Slot { period, regular: false } => {
                let second = |w1: f64| {
                    RULE.integrate(0.0, *period, |w2| self.both(y, w1, w2, lag + w2 - w1))
                };
                RULE.integrate(0.0, *period, second) / (period * period)
            }
            Body::Held { quantiles, correlation } => {
                let same = (-lag / correlation).exp();
                let held = mean(quantiles, 6, |v| self.both(y, v, v, lag));
                // The mean over both of two independent values is near the value at their means.
                let middle = mean(quantiles, 24, |v| v);
                let apart = mean(quantiles, 6, |v| self.both(y, v, middle, lag));
                same * held + (1.0 - same) * apart
            }
        }
    }

    fn both(&self, y: f64, w1: f64, w2: f64, lag: f64) -> f64 {
        let (x1, x2) = ((y - self.base - w1).max(0.0), (y - self.base - w2).max(0.0));
        let (mut first, mut second, mut neither) = (1.0, 1.0, 1.0);
        for e in &self.excursions {
            let (r1, r2) = (e.share(x1), e.share(x2));
            let same = e.joint(x1, x2, lag);
            first *= 1.0 - r1;
            second *= 1.0 - r2;
            // By one episode, or by one that is over and another that began since.
            let both = same + (r1 - same).max(0.0) * (r2 - same).max(0.0);
            neither *= 1.0 - r1 - r2 + both.min(r1.min(r2));
        }
        1.0 - first - second + neither
    }

    /// The round trip that is exceeded with probability `p`.
    #[must_use]
    pub fn quantile(&self, p: f64) -> f64 {
        let far = self.excursions.iter().map(|e| e.max).fold(0.0, f64::max);
        let (mut low, mut high) = (self.base, self.base + self.body.top() + far);
        for _ in 0..60 {
            let middle = low.midpoint(high);
            if self.exceedance(middle) > p { low = middle } else { high = middle }
        }
        high
    }
}
