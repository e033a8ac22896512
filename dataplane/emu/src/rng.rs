// SPDX-License-Identifier: Apache-2.0
//! Seeded random streams, one per (client, direction, stage, class, epoch).
//!
//! A stream is ChaCha8 (D. J. Bernstein, 2008; `rand_chacha`). Its output is
//! the same on every machine and version. Its 32-byte key is the tuple itself,
//! not a hash of it, so that two streams are never the same one and the draws of
//! a client depend neither on other clients nor on the worker that it lives on.
//!
//! Variates are drawn by inversion, one 64-bit word each, so that a stream's
//! position depends on the number of events alone. Logarithms and powers come
//! from `libm`, which gives the same bits everywhere. Variates are drawn per
//! event (an outage, an episode, a hold); the only draws per frame are [`Stream::chance`],
//! [`Stream::raw`] and [`Stream::exponential_fixed`].

use std::sync::LazyLock;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::client::ClientKey;
use crate::units::{Direction, Nanos, Probability};

/// The stage that a stream belongs to. The numbers are part of what a seed means:
/// they are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    Aqm = 1,
    Channel = 2,
    /// The phase of the transmission slots.
    Slot = 3,
    Excursion = 4,
    /// The delay that varies all the time.
    Body = 5,
    /// The fades in which outages are more frequent.
    Fade = 6,
    Loss = 7,
    Duplicate = 8,
    Corrupt = 9,
    Reorder = 10,
    /// The regime in which excursions of a class are more frequent.
    Regime = 11,
    /// Reconfigurations: the delay of each period.
    Level = 12,
    /// Reconfigurations: the outages at the boundaries.
    Boundary = 13,
    /// Shares of the rate, by process.
    Share = 14,
    /// Losses by a trace.
    LossTrace = 15,
    /// Delays of a trace, which are not drawn.
    DelayTrace = 16,
    /// Phantom frames, by law of arrivals.
    Cross = 17,
    /// Requests for capacity in contention.
    Access = 18,
    /// Terminals outside the lab that compete with a client.
    Others = 19,
    /// Those that compete for a carrier, by its number.
    CarrierOthers = 20,
}

/// The common part of the keys of a pipe's streams.
#[derive(Clone, Copy, Debug)]
pub struct StreamKey {
    pub seed: u64,
    pub client: ClientKey,
    pub direction: Direction,
    /// Changes of the plan since its random processes began: a process that is added
    /// by a change differs from the one before.
    pub epoch: u32,
}

#[derive(Clone, Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream of one stage; `class` tells several processes of a stage apart.
    #[must_use]
    pub fn new(key: StreamKey, stage: Stage, class: u8) -> Self {
        let mut k = [0; 32];
        k[..8].copy_from_slice(&key.seed.to_le_bytes());
        k[8..25].copy_from_slice(&key.client.to_bytes());
        k[25] = key.direction as u8;
        k[26] = stage as u8;
        k[27] = class;
        k[28..].copy_from_slice(&key.epoch.to_le_bytes());
        Self(ChaCha8Rng::from_seed(k))
    }

    /// True with probability `p`.
    #[inline]
    pub fn chance(&mut self, p: Probability) -> bool {
        self.raw() < p.raw()
    }

    /// Uniform on 0 to 2³² − 1: below a probability's [`Probability::raw`] with that
    /// probability.
    #[inline]
    pub fn raw(&mut self) -> u64 {
        u64::from(self.0.next_u32())
    }

    /// Uniform on (0, 1], with 53 bits.
    #[allow(clippy::cast_precision_loss)]
    pub fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / 9_007_199_254_740_992.0
    }

    /// Uniform on `0..span`; zero if `span` is zero.
    #[allow(clippy::cast_possible_truncation)]
    pub fn below(&mut self, span: Nanos) -> Nanos {
        Nanos(((u128::from(self.0.next_u64()) * u128::from(span.0)) >> 64) as u64)
    }

    /// By inversion of a table of quantiles at equally spaced probabilities from 0 to 1,
    /// linear between them, in integers. Of an empty table it is zero; where a table
    /// falls, it stays.
    #[allow(clippy::cast_possible_truncation)]
    pub fn quantile(&mut self, table: &[u64]) -> u64 {
        let gaps = table.len().saturating_sub(1);
        // The word as a fraction of 2⁶⁴, in gaps: the high half is which, the low one
        // how far into it.
        let at = u128::from(self.0.next_u64()) * gaps as u128;
        let (gap, into) = ((at >> 64) as usize, at & u128::from(u64::MAX));
        let low = table.get(gap).copied().unwrap_or_default();
        let width = table.get(gap + 1).map_or(0, |high| high.saturating_sub(low));
        low.saturating_add(((u128::from(width) * into) >> 64) as u64)
    }

    /// Exponential with mean 2³², in integers, with a relative error below 10⁻⁶. Two words.
    pub fn exponential_fixed(&mut self) -> u64 {
        // -ln u, where u is 2^-halvings times a number uniform on ½ to 1.
        let halvings = u64::from(self.0.next_u64().leading_zeros());
        halvings * LN_2 + self.quantile(&*LAST_HALF)
    }

    /// Exponential with the given mean, rounded to a nanosecond.
    pub fn exponential(&mut self, mean: Nanos) -> Nanos {
        to_nanos(-libm::log(self.unit()) * to_f64(mean))
    }
}

/// ln 2 in units of 2⁻³².
const LN_2: u64 = 2_977_044_472;

/// Quantiles of -ln u for u uniform on ½ to 1, in units of 2⁻³².
static LAST_HALF: LazyLock<[u64; 1025]> = LazyLock::new(|| {
    std::array::from_fn(|i| {
        let u = 1.0 - to_f64(Nanos(i as u64)) / 2048.0;
        to_nanos(-libm::log(u) * 4_294_967_296.0).0
    })
});

/// The generalized Pareto variate (J. Pickands, 1975) at the upper quantile `u`:
/// `location` + `scale` × (u^-`shape` − 1) / `shape`; an exponential where `shape`
/// is zero.
#[must_use]
pub fn generalized_pareto(u: f64, location: Nanos, scale: Nanos, shape: f64) -> Nanos {
    let excess =
        if libm::fabs(shape) < 1e-9 { -libm::log(u) } else { (libm::pow(u, -shape) - 1.0) / shape };
    location + to_nanos(excess * to_f64(scale))
}

#[allow(clippy::cast_precision_loss)]
fn to_f64(n: Nanos) -> f64 {
    n.0 as f64
}

// A float-to-integer `as` saturates and takes NaN to zero.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn to_nanos(x: f64) -> Nanos {
    Nanos(libm::round(x) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(seed: u64, stage: Stage) -> Stream {
        let key =
            StreamKey { seed, client: ClientKey::Default, direction: Direction::Forward, epoch: 0 };
        Stream::new(key, stage, 0)
    }

    #[test]
    fn streams_are_independent_and_repeat() {
        let draw = |mut s: Stream| (0..4).map(|_| s.below(Nanos(u64::MAX)).0).collect::<Vec<_>>();
        assert_eq!(draw(stream(1, Stage::Aqm)), draw(stream(1, Stage::Aqm)));
        assert_ne!(draw(stream(1, Stage::Aqm)), draw(stream(2, Stage::Aqm)));
        assert_ne!(draw(stream(1, Stage::Aqm)), draw(stream(1, Stage::Channel)));
    }

    /// A change of these figures changes what every published seed means.
    #[test]
    fn seed_gives_recorded_draws() {
        let mut s = stream(1, Stage::Channel);
        let drawn: Vec<u64> = (0..3).map(|_| s.exponential(Nanos::from_secs(1)).0).collect();
        assert_eq!(drawn, [680_503_789, 2_235_631_934, 328_340_935]);
    }

    #[test]
    fn draws_follow_any_table_of_quantiles() {
        let mut s = stream(1, Stage::Body);
        let mut all = |table: &[u64]| {
            let drawn: Vec<u64> = (0..1000).map(|_| s.quantile(table)).collect();
            (*drawn.iter().min().unwrap(), *drawn.iter().max().unwrap())
        };
        assert_eq!(all(&[]), (0, 0));
        assert_eq!(all(&[7]), (7, 7));
        assert_eq!(all(&[7, 3]), (7, 7));
        let (low, high) = all(&[u64::MAX - 10, u64::MAX]);
        assert!(low >= u64::MAX - 10 && low < high);
    }

    #[test]
    fn variates_have_the_moments_of_their_laws() {
        // The mean of n draws lies within 5 standard errors of its law's mean.
        const N: u32 = 100_000;
        let root = f64::from(N).sqrt();
        let mut s = stream(7, Stage::Excursion);
        let mean =
            |f: &mut dyn FnMut() -> Nanos| (0..N).map(|_| to_f64(f())).sum::<f64>() / f64::from(N);
        let m = mean(&mut || s.exponential(Nanos(1_000_000)));
        assert!((m - 1e6).abs() < 5.0 * 1e6 / root, "exponential {m}");
        // scale / (1 − shape) above the location; variance scale² / ((1 − ξ)² (1 − 2ξ)).
        let (scale, shape) = (1e6, 0.2);
        let m = mean(&mut || generalized_pareto(s.unit(), Nanos(500), Nanos(1_000_000), shape));
        let sd = scale / ((1.0 - shape) * (1.0 - 2.0 * shape).sqrt());
        assert!((m - 500.0 - scale / (1.0 - shape)).abs() < 5.0 * sd / root, "pareto {m}");
        let m = mean(&mut || Nanos(s.exponential_fixed()));
        assert!((m / 4_294_967_296.0 - 1.0).abs() < 5.0 / root, "exponential, fixed {m}");
        // Two gaps of probability 1/2 each, uniform on 0 to 1 and on 1 to 4: mean 1.5,
        // second moment (1/3 + 7) / 2, so the variance is 17/12.
        let table = [0, 1_000_000, 4_000_000];
        let m = mean(&mut || Nanos(s.quantile(&table)));
        assert!((m - 1.5e6).abs() < 5.0 * 1e6 * (17.0_f64 / 12.0).sqrt() / root, "quantile {m}");
        let hits = (0..N).filter(|_| s.chance(Probability::new(0.3))).count();
        let sd = (f64::from(N) * 0.21).sqrt();
        assert!((hits as f64 - 0.3 * f64::from(N)).abs() < 5.0 * sd, "chance {hits}");
    }
}
