// SPDX-License-Identifier: Apache-2.0
//! Loss of packets, drawn once per packet: each for itself, or in runs of packets.
//!
//! - *Independent*: every packet with the same probability.
//! - *Gilbert–Elliott* (E. N. Gilbert, 1960; E. O. Elliott, 1963): a good and a bad state
//!   with a probability of loss each, and a move between them after each packet.
//! - *Four states* (S. Salsano, F. Ludovici, A. Ordine, "Definition of a general and
//!   intuitive loss model for packet networks and its implementation in the Netem module in
//!   the Linux kernel", 2012): gaps with isolated losses (state 4), and bursts in which runs
//!   that are lost (3) take turns with runs that arrive (2).
//!
//! Both chains are those of `tc-netem` (`net/sched/sch_netem.c`), step by step: the first
//! decides a packet by the state that it finds, the second by the state that it leads to.
//! Differs in that a comparison that netem makes with `<` on both sides of a bound has no
//! gap here, and in that the draws are of the pipe's own stream.
//!
//! Not how radio links lose: losses here follow the packets and not the time. Every packet
//! takes the same number of draws, whatever happens to it.

use crate::rng::{Stage, Stream, StreamKey};
use crate::units::Probability;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossPlan {
    #[default]
    None,
    Independent(Probability),
    /// By a good and a bad state.
    GilbertElliott(GilbertElliott),
    /// By gaps and bursts.
    FourState(FourState),
}

/// The model of Gilbert and Elliott. `tc-netem`'s `gemodel p r 1-h 1-k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GilbertElliott {
    /// From good to bad, after a packet: *p*.
    pub to_bad: Probability,
    /// From bad to good, after a packet: *r*.
    pub to_good: Probability,
    pub loss_in_bad: Probability,
    pub loss_in_good: Probability,
}

/// The model of four states: the probabilities of its moves. `tc-netem`'s
/// `state p13 p31 p32 p23 p14`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FourState {
    /// From a gap into a burst, with a loss.
    pub p13: Probability,
    /// From a lost run in a burst to a gap.
    pub p31: Probability,
    /// From a lost run in a burst to one that arrives.
    pub p32: Probability,
    /// From a run that arrives in a burst to one that is lost.
    pub p23: Probability,
    /// An isolated loss in a gap.
    pub p14: Probability,
}

impl From<Probability> for LossPlan {
    fn from(p: Probability) -> Self {
        if p == Probability::ZERO { Self::None } else { Self::Independent(p) }
    }
}

/// Where a chain is. Gilbert and Elliott's has the first and the third state only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Gap,
    Arriving,
    Lost,
    Isolated,
}

/// A process that loses packets.
#[derive(Clone, Debug)]
pub struct Loss {
    plan: LossPlan,
    stream: Stream,
    state: State,
}

impl Loss {
    /// The process of a plan, in a gap; none if nothing is lost.
    #[must_use]
    pub fn new(plan: LossPlan, key: StreamKey) -> Option<Self> {
        // Each model draws from its own stream.
        let class = match plan {
            LossPlan::None => return None,
            LossPlan::Independent(_) => 0,
            LossPlan::GilbertElliott(_) => 1,
            LossPlan::FourState(_) => 2,
        };
        let stream = Stream::new(key, Stage::Loss, class);
        Some(Self { plan, stream, state: State::Gap })
    }

    /// The process under another plan: the same one with other figures, where the model
    /// stays.
    #[must_use]
    pub fn replanned(self, plan: LossPlan, key: StreamKey) -> Option<Self> {
        let stays = std::mem::discriminant(&plan) == std::mem::discriminant(&self.plan);
        if stays { Some(Self { plan, ..self }) } else { Self::new(plan, key) }
    }

    /// Whether the next packet is lost.
    #[inline]
    pub fn lose(&mut self) -> bool {
        match self.plan {
            LossPlan::None => false,
            LossPlan::Independent(p) => self.stream.chance(p),
            LossPlan::GilbertElliott(g) => self.gilbert_elliott(g),
            LossPlan::FourState(f) => self.four_state(f),
        }
    }

    fn gilbert_elliott(&mut self, g: GilbertElliott) -> bool {
        let (loss, leave, other) = match self.state {
            State::Gap => (g.loss_in_good, g.to_bad, State::Lost),
            _ => (g.loss_in_bad, g.to_good, State::Gap),
        };
        if self.stream.chance(leave) {
            self.state = other;
        }
        self.stream.chance(loss)
    }

    fn four_state(&mut self, f: FourState) -> bool {
        let u = self.stream.raw();
        let below = |p: Probability| u < p.raw();
        let below_both = |p: Probability, q: Probability| u < p.raw() + q.raw();
        self.state = match self.state {
            State::Gap if below(f.p14) => State::Isolated,
            State::Gap if below_both(f.p14, f.p13) => State::Lost,
            State::Gap | State::Isolated => State::Gap,
            State::Arriving if below(f.p23) => State::Lost,
            State::Arriving => State::Arriving,
            State::Lost if below(f.p32) => State::Arriving,
            State::Lost if below_both(f.p32, f.p31) => State::Gap,
            State::Lost => State::Lost,
        };
        matches!(self.state, State::Lost | State::Isolated)
    }
}

#[cfg(test)]
mod tests;
