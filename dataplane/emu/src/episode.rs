// SPDX-License-Identifier: Apache-2.0
//! Episodes in continuous time: an alternating renewal process (D. R. Cox,
//! "Renewal Theory", 1962, ch. 7).
//!
//! Quiet spans are exponential; episodes are exponential or of fixed length. The
//! process is a function of time, not of frames: a link that carries 5 frames per
//! second and one that carries 10 million see the same episodes. It is asked at
//! instants that never go back.
//!
//! Among fades ([`fade`]) the quiet spans are consumed piece by piece, at the
//! boundaries of the regime: each of these ends an episode of no length.

pub mod boundary;
pub mod fade;

use crate::rng::Stream;
use crate::units::{Instant, Nanos};
use fade::{Consumed, Fades, Quiet};

/// How the duration of an episode is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationLaw {
    /// Exponential, with the given mean.
    Exponential,
    Fixed,
}

/// The parameters of a process of episodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpisodePlan {
    /// Mean of the quiet span from one episode's end to the next one's start.
    pub interval: Nanos,
    /// Mean duration of an episode.
    pub duration: Nanos,
    /// The law of the durations.
    pub law: DurationLaw,
}

#[derive(Clone, Debug)]
pub struct Episodes {
    plan: EpisodePlan,
    stream: Stream,
    start: Instant,
    end: Instant,
    mark: f64,
    among: Option<Box<Among>>,
}

/// The fades that a process is among.
#[derive(Clone, Debug)]
struct Among {
    fades: Fades,
    /// The rest of the quiet span, and the duration of the episode after it.
    pending: Option<(Quiet, Nanos)>,
}

impl Episodes {
    /// A process that is quiet at `at`.
    #[must_use]
    pub fn new(plan: EpisodePlan, stream: Stream, at: Instant) -> Self {
        Self::among(None, plan, stream, at)
    }

    /// A process that is quiet at `at`, among fades if there are any.
    #[must_use]
    pub fn among(fades: Option<Fades>, plan: EpisodePlan, stream: Stream, at: Instant) -> Self {
        let mut p = Self { plan, stream, start: at, end: at, mark: 1.0, among: boxed(fades) };
        p.next();
        p
    }

    #[must_use]
    pub fn plan(&self) -> EpisodePlan {
        self.plan
    }

    /// Takes new parameters from `at` on: quiet at first, and with the stream
    /// continued.
    pub fn replan(&mut self, fades: Option<Fades>, plan: EpisodePlan, at: Instant) {
        // The stream continues from its state at `at`, no matter when it was last asked.
        while self.is_over(at) {
            self.next();
        }
        self.plan = plan;
        match (&mut self.among, fades) {
            (Some(among), Some(fades)) => **among = Among { fades, pending: None },
            (among, fades) => *among = boxed(fades),
        }
        self.end = at;
        self.next();
    }

    /// Whether `t` falls into an episode.
    #[inline]
    pub fn covers(&mut self, t: Instant) -> bool {
        while self.is_over(t) {
            self.next();
        }
        t >= self.start
    }

    /// Whether the episode that was asked for last is over at `t`. At the end of time
    /// none is.
    #[inline]
    #[must_use]
    pub fn is_over(&self, t: Instant) -> bool {
        t >= self.end && self.end < Instant::MAX
    }

    /// The start of the episode that covers, or comes after, the instant asked last.
    #[must_use]
    pub fn start(&self) -> Instant {
        self.start
    }

    /// The end of the episode that covers, or comes after, the instant asked last.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.end
    }

    /// That episode's mark, uniform on (0, 1]: its other random properties derive from
    /// this. It is drawn for every episode, seen or not, so that the stream does not
    /// depend on when the process is asked.
    #[must_use]
    pub fn mark(&self) -> f64 {
        self.mark
    }

    /// Advances to the next episode. [`Episodes::covers`] does this as far as necessary;
    /// this is for callers that must see each one.
    pub fn next(&mut self) {
        let Some(mut among) = self.among.take() else {
            let (quiet, lasts) = self.draw();
            self.start = self.end + quiet;
            self.end = self.start + lasts;
            return;
        };
        let (quiet, lasts) = among.pending.take().unwrap_or_else(|| {
            let (quiet, lasts) = self.draw();
            (quiet.into(), lasts)
        });
        (self.start, self.end) = match among.fades.consume(self.end, quiet) {
            Consumed::At(start) => (start, start + lasts),
            Consumed::Until(boundary, left) => {
                among.pending = Some((left, lasts));
                (boundary, boundary)
            }
        };
        self.among = Some(among);
    }

    /// The next quiet span and the duration of the episode after it.
    fn draw(&mut self) -> (Nanos, Nanos) {
        // A nanosecond at least, so that the process always gets on.
        let quiet = self.stream.exponential(self.plan.interval).max(Nanos(1));
        let lasts = match self.plan.law {
            DurationLaw::Exponential => self.stream.exponential(self.plan.duration),
            DurationLaw::Fixed => self.plan.duration,
        };
        self.mark = self.stream.unit();
        (quiet, lasts)
    }
}

fn boxed(fades: Option<Fades>) -> Option<Box<Among>> {
    fades.map(|fades| Box::new(Among { fades, pending: None }))
}
