// SPDX-License-Identifier: Apache-2.0
//! Fades: a slow regime over the outages of a channel.
//!
//! Clear and faded times alternate ([`crate::episode`]), and in a fade outages come more
//! often by a factor; how long they last is the same. Excursions of the delay have regimes of
//! the same kind ([`crate::delay`]). This is a doubly stochastic process
//! of D. R. Cox ("Some statistical methods connected with series of events", 1955) with
//! two states, as Gilbert's and Elliott's models of a channel, in time.
//!
//! The quiet span before an outage is drawn as ever and is then consumed: at the pace of
//! the clock in the clear, and `factor` times as fast in a fade (docs/adr/0004). Paces are
//! multiples of 2⁻³² and the rest is counted in 2⁻³² ns, so that nothing is lost at
//! the regime's boundaries.
//!
//! All classes of a pipe see one regime, each through its own cursor: cursors derive
//! from one stream and are functions of time, so they agree.

use super::{DurationLaw, EpisodePlan, Episodes};
use crate::rng::Stream;
use crate::units::{Instant, Nanos};

pub const MAX_FACTOR: f64 = 1e6;

/// The pace of the clock.
const PACE: u64 = 1 << 32;

/// The parameters of the fades of a pipe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FadePlan {
    /// Mean time from the end of one fade to the start of the next; exponential.
    pub interval: Nanos,
    pub duration: Nanos,
    /// By how much outages are more frequent in a fade: 1 to [`MAX_FACTOR`].
    pub factor: f64,
}

impl FadePlan {
    /// How long a quiet span is if all of it is in a fade.
    #[must_use]
    pub fn shortened(&self, quiet: Nanos) -> Nanos {
        Quiet::from(quiet).at(pace(self.factor))
    }
}

/// A cursor over the fades of a pipe.
#[derive(Clone, Debug)]
pub struct Fades {
    plan: FadePlan,
    /// Pace in a fade.
    pace: u64,
    regime: Episodes,
}

/// Rest of a quiet span, in 2⁻³² ns of clear time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiet(u128);

/// Progress of a quiet span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumed {
    /// The span ends at this instant.
    At(Instant),
    /// The regime changes at this instant, and this rest is left then.
    Until(Instant, Quiet),
}

impl From<Nanos> for Quiet {
    fn from(n: Nanos) -> Self {
        Self(u128::from(n.0) << 32)
    }
}

impl Quiet {
    /// The time that it takes at `pace`.
    fn at(self, pace: u64) -> Nanos {
        Nanos(u64::try_from(self.0.div_ceil(u128::from(pace))).unwrap_or(u64::MAX))
    }
}

impl Fades {
    /// Fades of which the first is still to come at `at`.
    #[must_use]
    pub fn new(plan: FadePlan, stream: Stream, at: Instant) -> Self {
        let FadePlan { interval, duration, factor } = plan;
        let law = DurationLaw::Exponential;
        let regime = Episodes::new(EpisodePlan { interval, duration, law }, stream, at);
        Self { plan, pace: pace(factor), regime }
    }

    #[must_use]
    pub fn plan(&self) -> FadePlan {
        self.plan
    }

    /// Whether there is a fade at `t`. `t` never goes back, here and below.
    pub fn covers(&mut self, t: Instant) -> bool {
        self.regime.covers(t)
    }

    /// Consumes a quiet span from `from` on, up to the next boundary of the regime.
    pub fn consume(&mut self, from: Instant, quiet: Quiet) -> Consumed {
        let (pace, until) = if self.covers(from) {
            (self.pace, self.regime.end())
        } else {
            (PACE, self.regime.start())
        };
        let room = u128::from(until.since(from).0) * u128::from(pace);
        if quiet.0 > room {
            return Consumed::Until(until, Quiet(quiet.0 - room));
        }
        Consumed::At(from + quiet.at(pace))
    }
}

// A float-to-integer `as` takes NaN to zero.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn pace(factor: f64) -> u64 {
    (libm::round(factor.clamp(1.0, MAX_FACTOR) * 4_294_967_296.0) as u64).max(PACE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::rng::{Stage, StreamKey};
    use crate::units::Direction;

    fn key() -> StreamKey {
        StreamKey { seed: 3, client: ClientKey::Default, direction: Direction::Forward, epoch: 0 }
    }

    fn fades(factor: f64) -> Fades {
        let (interval, duration) = (Nanos::from_secs(60), Nanos::from_secs(20));
        let stream = Stream::new(key(), Stage::Fade, 0);
        Fades::new(FadePlan { interval, duration, factor }, stream, Instant::ZERO)
    }

    /// Counts the outages and the quiet time, in the clear and in fades, exactly.
    #[test]
    fn outage_rates_in_and_out_of_fades_match_plan() {
        let plan = EpisodePlan {
            interval: Nanos::from_secs(10),
            duration: Nanos::from_millis(700),
            law: DurationLaw::Exponential,
        };
        let factor = 12.5;
        let stream = Stream::new(key(), Stage::Channel, 0);
        let mut p = Episodes::among(Some(fades(factor)), plan, stream, Instant::ZERO);
        let mut cursor = fades(factor);
        let mut outages = [0.0; 2];
        let mut quiet = [0.0; 2];
        let mut last_end = Instant::ZERO;
        while last_end < Instant(2_000_000 * 1_000_000_000) {
            let (start, end) = (p.start(), p.end());
            // The quiet span, by its pieces in and out of fades.
            let mut at = last_end;
            while at < start {
                let fading = cursor.covers(at);
                let until = if fading { cursor.regime.end() } else { cursor.regime.start() };
                let piece = until.min(start);
                quiet[usize::from(fading)] += piece.since(at).0 as f64;
                at = piece;
                if piece == start && end > start {
                    outages[usize::from(fading)] += 1.0;
                }
            }
            last_end = end;
            p.next();
        }
        for (i, rate) in [1.0 / 10e9, factor / 10e9].into_iter().enumerate() {
            // The number less the exposure is a martingale: a Poisson number's variance.
            let stated = quiet[i] * rate;
            assert!(stated > 40_000.0, "{stated}");
            let tolerance = 5.0 * stated.sqrt();
            assert!((outages[i] - stated).abs() < tolerance, "{i}: {} of {stated}", outages[i]);
        }
    }

    #[test]
    fn fade_of_factor_one_changes_nothing() {
        for law in [DurationLaw::Exponential, DurationLaw::Fixed] {
            let plan =
                EpisodePlan { interval: Nanos::from_secs(7), duration: Nanos::from_secs(1), law };
            let stream = Stream::new(key(), Stage::Channel, 0);
            let mut plain = Episodes::new(plan, stream.clone(), Instant::ZERO);
            let mut faded = Episodes::among(Some(fades(1.0)), plan, stream, Instant::ZERO);
            for i in 0..1_000_000 {
                let t = Instant(i * 10_000_000);
                assert_eq!(plain.covers(t), faded.covers(t), "at {t}");
            }
        }
    }

    #[test]
    fn no_quiet_time_is_lost_at_boundaries() {
        let mut f = fades(3.3);
        let pace = u128::from(f.pace);
        // As much as a whole clear span, a whole fade and 5 ns of the next span take.
        let (start, end) = (f.regime.start(), f.regime.end());
        let whole = (u128::from(start.0) << 32) + u128::from(end.since(start).0) * pace;
        let quiet = Quiet(whole + (5 << 32));
        let Consumed::Until(a, quiet) = f.consume(Instant::ZERO, quiet) else { panic!() };
        let Consumed::Until(b, quiet) = f.consume(a, quiet) else { panic!() };
        assert_eq!((a, b), (start, end));
        assert_eq!(f.consume(b, quiet), Consumed::At(end + Nanos(5)));
        assert_eq!(f.consume(end, Quiet(0)), Consumed::At(end));
        let mut last =
            Fades::new(f.plan(), Stream::new(key(), Stage::Fade, 0), Instant(u64::MAX - 1));
        let consumed = last.consume(Instant::MAX, Quiet::from(Nanos(u64::MAX)));
        assert_eq!(consumed, Consumed::Until(Instant::MAX, Quiet::from(Nanos(u64::MAX))));
    }

    #[test]
    fn invalid_factor_is_clamped() {
        assert_eq!(pace(f64::NAN), PACE);
        assert_eq!(pace(-1.0), PACE);
        assert_eq!(pace(f64::INFINITY), 1_000_000 << 32);
        assert_eq!(pace(2.5), 5 << 31);
    }
}
