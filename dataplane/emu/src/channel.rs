// SPDX-License-Identifier: Apache-2.0
//! The channel: outages of the radio link, after the shaper.
//!
//! A frame that leaves the shaper while any class of outages is in an episode is
//! lost. It has used its share of the link's capacity, as a frame lost on the air
//! has; queue drops have not. Isolated losses are a class of short episodes of
//! fixed length, because a ping log cannot tell one lost frame from an outage
//! shorter than its interval: the length is a stated prior (docs/modelling.md).
//!
//! Differs from `tc-netem`'s loss in that the state follows time and not the
//! frames.

use crate::episode::{EpisodePlan, Episodes};
use crate::rng::{Stage, Stream, StreamKey};
use crate::units::Instant;

/// The outage classes of one pipe.
#[derive(Clone, Debug)]
pub struct Channel {
    classes: Vec<Episodes>,
}

impl Channel {
    /// A channel whose processes start at `at`.
    #[must_use]
    pub fn new(plan: &[EpisodePlan], key: StreamKey, at: Instant) -> Self {
        let mut c = Self { classes: Vec::new() };
        c.replan(plan, key, at);
        c
    }

    /// Takes new classes from `at` on. They are compared place by place; one whose
    /// parameters stay goes on.
    pub fn replan(&mut self, plan: &[EpisodePlan], key: StreamKey, at: Instant) {
        self.classes.truncate(plan.len());
        for (i, p) in plan.iter().enumerate() {
            match self.classes.get_mut(i) {
                Some(c) if c.plan() == *p => {}
                Some(c) => c.replan(*p, at),
                None => {
                    let class = u8::try_from(i).unwrap_or(u8::MAX);
                    let stream = Stream::new(key, Stage::Channel, class);
                    self.classes.push(Episodes::new(*p, stream, at));
                }
            }
        }
    }

    /// Whether a frame that leaves the shaper at `t` is lost.
    #[inline]
    pub fn is_out(&mut self, t: Instant) -> bool {
        // Every class is asked, so that all advance alike.
        self.classes.iter_mut().fold(false, |out, c| c.covers(t) | out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::episode::DurationLaw;
    use crate::units::{Direction, Nanos};

    fn key(seed: u64) -> StreamKey {
        StreamKey { seed, client: ClientKey::Default, direction: Direction::Forward, epoch: 0 }
    }

    #[test]
    fn the_share_of_time_in_outage_is_the_process_s_own() {
        // Alternating renewal: D / (I + D) = 1/11. Over n = 1e6 s / 11 s cycles the
        // time out has a relative error of about sqrt(2 / n); allow five of them.
        let plan = EpisodePlan {
            interval: Nanos::from_secs(10),
            duration: Nanos::from_secs(1),
            law: DurationLaw::Exponential,
        };
        let mut c = Channel::new(&[plan], key(3), Instant::ZERO);
        let n = 2_000_000_u64;
        let out = (0..n).filter(|i| c.is_out(Instant(i * 500_000_000))).count();
        let share = out as f64 / n as f64;
        let tolerance = 5.0 * (2.0_f64 / (1e6 / 11.0)).sqrt() / 11.0;
        assert!((share - 1.0 / 11.0).abs() < tolerance, "{share}");
    }

    #[test]
    fn outages_do_not_depend_on_how_often_they_are_looked_at() {
        let plan = EpisodePlan {
            interval: Nanos::from_millis(700),
            duration: Nanos::from_millis(40),
            law: DurationLaw::Fixed,
        };
        let mut often = Channel::new(&[plan], key(9), Instant::ZERO);
        let mut seldom = often.clone();
        for i in 0..100_000_u64 {
            let t = Instant(i * 1_000_000);
            let out = often.is_out(t);
            if i % 97 == 0 {
                assert_eq!(out, seldom.is_out(t), "at {t}");
            }
        }
    }

    #[test]
    fn a_change_meets_the_same_process_whenever_it_was_looked_at() {
        let a = EpisodePlan {
            interval: Nanos::from_millis(50),
            duration: Nanos::from_millis(20),
            law: DurationLaw::Exponential,
        };
        let b = EpisodePlan { interval: Nanos::from_millis(80), ..a };
        let mut looked_at = Channel::new(&[a], key(5), Instant::ZERO);
        let mut left_alone = looked_at.clone();
        let at = Instant(3_000_000_000);
        for i in 0..3_000 {
            looked_at.is_out(Instant(i * 1_000_000));
        }
        for c in [&mut looked_at, &mut left_alone] {
            c.replan(&[b], key(5), at);
        }
        for i in 3_000..6_000 {
            let t = Instant(i * 1_000_000);
            assert_eq!(looked_at.is_out(t), left_alone.is_out(t), "at {t}");
        }
    }

    #[test]
    fn a_class_that_is_added_again_is_another_process() {
        let a = EpisodePlan {
            interval: Nanos::from_secs(10),
            duration: Nanos::from_millis(500),
            law: DurationLaw::Fixed,
        };
        let first_outage = |epoch| {
            let mut c = Channel::new(&[], key(5), Instant::ZERO);
            c.replan(&[a], StreamKey { epoch, ..key(5) }, Instant::ZERO);
            (0..).map(|i| Instant(i * 100_000_000)).find(|t| c.is_out(*t)).unwrap()
        };
        assert_eq!(first_outage(1), first_outage(1));
        assert_ne!(first_outage(1), first_outage(2));
    }

    #[test]
    fn a_class_that_stays_goes_on_over_a_change() {
        let a = EpisodePlan {
            interval: Nanos::from_millis(50),
            duration: Nanos::from_millis(20),
            law: DurationLaw::Exponential,
        };
        let b = EpisodePlan { interval: Nanos::from_secs(3600), ..a };
        let mut changed = Channel::new(&[a], key(5), Instant::ZERO);
        let mut kept = changed.clone();
        changed.replan(&[a, b], key(5), Instant(1_000_000));
        let first = |c: &mut Channel| {
            (1..2_000).map(|i| c.is_out(Instant(i * 1_000_000))).collect::<Vec<_>>()
        };
        assert_eq!(first(&mut changed), first(&mut kept));
    }
}
