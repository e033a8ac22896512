// SPDX-License-Identifier: Apache-2.0
//! Plans: the parameters of every stage, compiled
//! and in integers.
//!
//! The control plane checks a plan; the core relies only on the checks that it needs to stay
//! within memory and time ([`crate::check`]).

use std::sync::Arc;

use crate::aqm::QueuePlan;
use crate::beam::{Beamed, BeamsPlan};
use crate::channel::ChannelPlan;
use crate::cross::CrossPlan;
use crate::delay::DelayPlan;
use crate::drop_run::DropRunPlan;
use crate::episode::EpisodePlan;
use crate::episode::boundary::BoundaryPlan;
use crate::episode::fade::FadePlan;
use crate::framing::Framing;
use crate::held::HeldPlan;
use crate::loss::LossPlan;
use crate::mtu::MtuPlan;
use crate::reorder::ReorderPlan;
use crate::rules::Rules;
use crate::shaper::RatePlan;
use crate::units::{BitRate, ByDirection, Nanos, Probability};

/// The resources of a dataplane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Clients, named and made for addresses, at most.
    pub clients: u32,
    /// Bit/s that come in at most in each direction.
    pub port_bps: u64,
    /// Length of the longest frame in bytes.
    pub frame: u32,
    /// Size of a worker's packet store in bytes.
    pub capacity: u64,
    /// Workers, each with a store of this size; all that comes may be for one of them.
    /// Zero counts as one.
    pub workers: u32,
    /// Bytes of the tag that is held with each frame, and counts nowhere else.
    pub tag: u32,
    /// Frames have a tag that an answer to them cannot have.
    pub unanswered: bool,
}

/// The part of a pipe that is done behind the egress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadPlan {
    /// Number of the figures by which packets are lost there; zero: the pipe's channel draws.
    pub loss: u16,
    /// Whether packets that the pipe's AQM chose are marked there, where possible.
    pub marks: bool,
}

/// The parameters of one pipe.
#[derive(Clone, Debug, PartialEq)]
pub struct PipePlan {
    /// Rate of the shaper.
    pub rate: RatePlan,
    /// Bytes that the shaper counts for each frame.
    pub framing: Framing,
    /// Longest packet that is carried; none: as long as a frame can be.
    pub mtu: Option<MtuPlan>,
    pub queue: QueuePlan,
    /// Phantom frames that compete for the queue and the rate.
    pub cross: Option<CrossPlan>,
    pub outages: Vec<EpisodePlan>,
    /// Episodes in which outages of all classes are more frequent.
    pub fade: Option<FadePlan>,
    /// Outages at the boundaries of a period.
    pub boundary: Option<BoundaryPlan>,
    /// How the channel loses single frames.
    pub packet_loss: LossPlan,
    /// Probabilities of loss of a frame over time, in multiples of 2⁻³².
    pub loss_trace: Option<HeldPlan>,
    /// Runs of frames that are dropped by count.
    pub drop_run: Option<DropRunPlan>,
    /// Duplication probability.
    pub duplicate: Probability,
    /// Probability that the channel flips a bit of a frame.
    pub corrupt: Probability,
    pub reorder: Option<ReorderPlan>,
    pub delay: DelayPlan,
    /// Applies to offloaded clients only ([`Limits`](crate::engine::Limits)).
    pub offload: OffloadPlan,
}

impl PipePlan {
    /// A pipe that passes everything at once; its queue never fills.
    #[must_use]
    pub fn transparent() -> Self {
        Self {
            rate: BitRate::Unlimited.into(),
            framing: Framing::default(),
            mtu: None,
            queue: QueuePlan::tail_drop(1 << 20),
            cross: None,
            outages: Vec::new(),
            fade: None,
            boundary: None,
            packet_loss: LossPlan::None,
            loss_trace: None,
            drop_run: None,
            duplicate: Probability::ZERO,
            corrupt: Probability::ZERO,
            reorder: None,
            delay: DelayPlan::default(),
            offload: OffloadPlan::default(),
        }
    }

    /// The cross traffic, if there is a rate that it can consume. With capacity on demand that is the
    /// terminal's alone.
    #[must_use]
    pub fn cross(&self) -> Option<CrossPlan> {
        self.cross.filter(|_| self.rate.max() != BitRate::Unlimited && !self.rate.is_on_demand())
    }

    /// The losses of single frames that are drawn here, for an offloaded client.
    #[must_use]
    pub fn drawn_loss(&self) -> LossPlan {
        if self.offload.loss == 0 { self.packet_loss } else { LossPlan::None }
    }

    /// The channel's part. With `draws` it draws the losses of single frames.
    #[must_use]
    pub fn channel(&self, draws: bool) -> ChannelPlan<'_> {
        ChannelPlan {
            outages: &self.outages,
            fade: self.fade,
            boundary: self.boundary,
            loss: if draws { self.packet_loss } else { LossPlan::None },
            loss_trace: self.loss_trace.as_ref(),
            drop_run: self.drop_run,
        }
    }
}

/// Parts of a pipe that a change leaves as they are: to replan them would do nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The AQM.
    pub queue: bool,
    pub channel: bool,
    /// The delay, except for its base.
    pub delay: bool,
    /// There are neither an MTU, duplicates, corruption, reordering nor cross traffic.
    pub extras: bool,
}

impl Kept {
    /// What a change without a restart keeps.
    #[must_use]
    pub fn between(before: &PipePlan, after: &PipePlan) -> Self {
        let has_extras = |plan: &PipePlan| {
            let PipePlan { mtu, duplicate, corrupt, reorder, .. } = plan;
            let chances = [duplicate, corrupt].iter().any(|p| **p != Probability::ZERO);
            mtu.is_some() || chances || reorder.is_some() || plan.cross().is_some()
        };
        Self {
            queue: before.queue == after.queue && !after.queue.watches(),
            channel: before.channel(true) == after.channel(true)
                && before.offload == after.offload
                && !after.drop_run.is_some_and(|run| run.arm),
            delay: before.delay.has_processes_of(&after.delay),
            extras: !has_extras(before) && !has_extras(after),
        }
    }
}

/// The parameters of every client's two pipes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Seed of all random streams.
    pub seed: u64,
    pub pipes: ByDirection<PipePlan>,
    pub beams: Arc<BeamsPlan>,
    /// Rules that assign frames to named clients.
    pub rules: Arc<Rules>,
    /// Clients that arriving frames name ([`Hint`](crate::frame::Hint)) are believed in this
    /// epoch; zero: in none.
    pub epoch: u16,
}

impl Plan {
    /// A plan that passes everything at once.
    #[must_use]
    pub fn transparent() -> Self {
        let pipes = ByDirection([PipePlan::transparent(), PipePlan::transparent()]);
        Self { seed: 1, pipes, beams: Arc::default(), rules: Arc::default(), epoch: 0 }
    }

    /// Sets the UTC of [`Instant::ZERO`](crate::units::Instant::ZERO), in nanoseconds since
    /// 1970, for periods with a phase in UTC.
    pub fn align(&mut self, zero: Nanos) {
        for pipe in &mut self.pipes.0 {
            if let RatePlan::Varying(varying) = &mut pipe.rate {
                varying.shares.iter_mut().flatten().for_each(|s| s.align(zero));
            }
            if let Some(boundary) = &mut pipe.boundary {
                boundary.grid.align(zero);
            }
            let delay = &mut pipe.delay;
            let held = [&mut delay.level, &mut delay.trace, &mut pipe.loss_trace];
            held.into_iter().flatten().for_each(|held| held.align(zero));
        }
    }

    /// What it says of its beams.
    pub(crate) fn beamed(&self) -> Beamed<'_> {
        let access = self.pipes.0.each_ref().map(|pipe| match &pipe.rate {
            RatePlan::Access(access) => Some(access),
            _ => None,
        });
        Beamed { beams: &self.beams, access: ByDirection(access), seed: self.seed }
    }

    /// The plan where clients are offloaded, or else with all of it done here.
    pub(crate) fn offloaded(mut self, offloaded: bool) -> Self {
        for pipe in &mut self.pipes.0 {
            if !offloaded {
                pipe.offload = OffloadPlan::default();
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm::AqmPlan;
    use crate::aqm::codel::CoDelPlan;

    fn kept(change: impl FnOnce(&mut PipePlan)) -> [bool; 4] {
        let before = PipePlan::transparent();
        let mut after = before.clone();
        change(&mut after);
        let Kept { queue, channel, delay, extras } = Kept::between(&before, &after);
        [queue, channel, delay, extras]
    }

    #[test]
    fn change_leaves_parts_with_equal_parameters() {
        assert_eq!(kept(|_| ()), [true; 4]);
        assert_eq!(kept(|plan| plan.delay.base = Nanos(1)), [true; 4]);
        assert_eq!(kept(|plan| plan.delay.slot = Nanos(1)), [true, true, false, true]);
        assert_eq!(kept(|plan| plan.queue.limit = 7), [false, true, true, true]);
        assert_eq!(kept(|plan| plan.corrupt = Probability::ONE), [true, true, true, false]);
        let loss = LossPlan::Independent(Probability::ONE);
        assert_eq!(kept(|plan| plan.packet_loss = loss), [true, false, true, true]);
    }

    #[test]
    fn armed_drop_run_begins_again_in_an_equal_plan() {
        let run = DropRunPlan { pass: 1, drop: 1, once: true, arm: true };
        let plan = PipePlan { drop_run: Some(run), ..PipePlan::transparent() };
        assert!(!Kept::between(&plan, &plan).channel);
    }

    #[test]
    fn queue_that_watches_its_head_is_told_of_each_change() {
        let mut plan = PipePlan::transparent();
        plan.queue.aqm = AqmPlan::CoDel(CoDelPlan { target: Nanos(5), interval: Nanos(100) });
        assert!(!Kept::between(&plan, &plan).queue);
    }
}
