// SPDX-License-Identifier: Apache-2.0
//! The channel: outages of the radio link, after the shaper.
//!
//! A frame that leaves the shaper while any class of outages is in an episode is
//! lost. It has used its share of the link's capacity, as a frame lost on the air
//! has; queue drops have not. Isolated losses are a class of short episodes of
//! fixed length, because a ping log cannot tell one lost frame from an outage
//! shorter than its interval: the length is a stated prior (docs/modelling.md).
//! In a fade ([`crate::episode::fade`]) the outages of all classes are more frequent. Other
//! outages lie around the boundaries of a period ([`crate::episode::boundary`]).
//!
//! Differs from `tc-netem`'s loss in that the state follows time and not the
//! frames. Its losses per frame exist too ([`crate::loss`]), for comparison, and runs
//! that are dropped by count ([`crate::drop_run`]); a frame that several of them hit counts as
//! lost to the outage, else as dropped by count.

use crate::drop_run::{DropRun, DropRunPlan};
use crate::episode::boundary::{Boundaries, BoundaryPlan};
use crate::episode::fade::{FadePlan, Fades};
use crate::episode::{EpisodePlan, Episodes};
use crate::held::{Held, HeldPlan};
use crate::loss::{Loss, LossPlan};
use crate::memory::prefetch_slice;
use crate::rng::{Stage, Stream, StreamKey};
use crate::stats::DropReason;
use crate::units::Instant;

/// The parameters of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelPlan<'a> {
    pub outages: &'a [EpisodePlan],
    pub fade: Option<FadePlan>,
    /// Outages at the boundaries of a period.
    pub boundary: Option<BoundaryPlan>,
    /// Loss of single frames.
    pub loss: LossPlan,
    /// Probabilities of loss of single frames over time.
    pub loss_trace: Option<&'a HeldPlan>,
    pub drop_run: Option<DropRunPlan>,
}

#[derive(Clone, Debug)]
#[repr(C)]
pub struct Channel {
    /// No frame is lost before this, so that the processes need not be asked.
    clear_until: Instant,
    processes: Box<Processes>,
}

#[derive(Clone, Debug, Default)]
struct Processes {
    classes: Vec<Episodes>,
    /// The classes have copies of this cursor. It is never ahead of them.
    fades: Option<Fades>,
    boundaries: Option<Boundaries>,
    loss: Option<Loss>,
    trace: Option<LossTrace>,
    run: Option<DropRun>,
}

/// Losses with a probability that is listed for steps of equal length.
#[derive(Clone, Debug)]
struct LossTrace {
    process: Held,
    draws: Stream,
}

impl LossTrace {
    fn new(plan: &HeldPlan, key: StreamKey, at: Instant, start: Instant) -> Self {
        let stream = |class| Stream::new(key, Stage::LossTrace, class);
        Self { process: Held::new(plan.clone(), stream(1), at, start), draws: stream(0) }
    }

    /// Draws once per frame.
    fn loses(&mut self, t: Instant) -> bool {
        self.process.advance(t);
        self.draws.raw() < self.process.value()
    }
}

impl Channel {
    /// The processes start at `at`. Periods since a start count from `start`.
    #[must_use]
    pub fn new(plan: &ChannelPlan<'_>, key: StreamKey, at: Instant, start: Instant) -> Self {
        let processes = Box::default();
        let mut c = Self { clear_until: Instant::ZERO, processes };
        c.replan(plan, key, at, start);
        c
    }

    /// Takes a new plan from `at` on. Classes are compared by position; a class with unchanged
    /// parameters and fades continues.
    pub fn replan(&mut self, plan: &ChannelPlan<'_>, key: StreamKey, at: Instant, start: Instant) {
        self.clear_until = Instant::ZERO;
        let Processes { classes, fades, boundaries, loss, trace, run } = &mut *self.processes;
        if trace.as_ref().map(|t| t.process.plan()) != plan.loss_trace {
            *trace = plan.loss_trace.map(|p| LossTrace::new(p, key, at, start));
        }
        *loss = match loss.take() {
            Some(loss) => loss.replanned(plan.loss, key),
            None => Loss::new(plan.loss, key),
        };
        *run = DropRun::replanned(run.take(), plan.drop_run);
        let stays = fades.as_ref().map(Fades::plan) == plan.fade;
        if !stays {
            *fades = plan.fade.map(|f| Fades::new(f, Stream::new(key, Stage::Fade, 0), at));
        }
        if boundaries.as_ref().map(Boundaries::plan) != plan.boundary {
            *boundaries = plan.boundary.map(|b| Boundaries::new(b, key, at, start));
        }
        let fades = fades.as_ref();
        classes.truncate(plan.outages.len());
        classes.reserve_exact(plan.outages.len() - classes.len());
        for (i, p) in plan.outages.iter().enumerate() {
            match classes.get_mut(i) {
                Some(c) if c.plan() == *p && stays => {}
                Some(c) => c.replan(fades.cloned(), *p, at),
                None => {
                    let class = u8::try_from(i).unwrap_or(u8::MAX);
                    let stream = Stream::new(key, Stage::Channel, class);
                    classes.push(Episodes::among(fades.cloned(), *p, stream, at));
                }
            }
        }
    }

    /// Hints that it will be replanned soon.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_slice::<_, 8>(std::slice::from_ref(&*self.processes));
    }

    /// The same for its classes of outages, once the first hint has been followed.
    #[inline]
    pub(crate) fn prefetch_classes(&self) {
        prefetch_slice::<_, 24>(&self.processes.classes);
    }

    /// Why a frame that leaves the shaper at `t` is lost, if it is.
    #[inline(always)]
    pub fn lose(&mut self, t: Instant) -> Option<DropReason> {
        if t < self.clear_until { None } else { self.may_lose(t) }
    }

    /// As [`Channel::lose`], for a frame that the processes have to be asked about.
    #[inline(never)]
    fn may_lose(&mut self, t: Instant) -> Option<DropReason> {
        // Drawn and counted for every frame, so that neither depends on the outages.
        let Processes { loss, trace, run, .. } = &mut *self.processes;
        let lost = loss.as_mut().is_some_and(Loss::lose);
        let lost = trace.as_mut().is_some_and(|trace| trace.loses(t)) || lost;
        let in_run = run.as_mut().is_some_and(DropRun::drops);
        if self.is_out(t) {
            Some(DropReason::Outage)
        } else if in_run {
            Some(DropReason::Scheduled)
        } else if lost {
            Some(DropReason::Loss)
        } else {
            None
        }
    }

    /// Whether there is an outage at `t`.
    pub fn is_out(&mut self, t: Instant) -> bool {
        // Every class is asked, so that all advance to `t`.
        let Processes { classes, boundaries, loss, trace, run, .. } = &mut *self.processes;
        let reconfigured = boundaries.as_mut().is_some_and(|b| b.covers(t));
        let out = classes.iter_mut().fold(reconfigured, |out, c| c.covers(t) | out);
        if let Some(trace) = trace {
            trace.process.advance(t);
        }
        self.clear_until = if out || loss.is_some() || trace.is_some() || run.is_some() {
            Instant::ZERO
        } else {
            let boundary = boundaries.iter().map(Boundaries::start);
            classes.iter().map(Episodes::start).chain(boundary).min().unwrap_or(Instant::MAX)
        };
        out
    }

    /// Advances the processes to `at`.
    pub fn keep_up(&mut self, at: Instant) {
        self.is_out(at);
        if let Some(f) = &mut self.processes.fades {
            f.covers(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientKey;
    use crate::episode::DurationLaw;
    use crate::plan::PipePlan;
    use crate::units::{Direction, Nanos, Probability};

    fn key(seed: u64) -> StreamKey {
        StreamKey { seed, client: ClientKey::Default, direction: Direction::Forward, epoch: 0 }
    }

    fn new(plan: &PipePlan, key: StreamKey, at: Instant) -> Channel {
        Channel::new(&plan.channel(true), key, at, Instant::ZERO)
    }

    fn with(outages: &[EpisodePlan]) -> PipePlan {
        PipePlan { outages: outages.to_vec(), ..PipePlan::transparent() }
    }

    fn fading(outages: &[EpisodePlan], fade: FadePlan) -> PipePlan {
        PipePlan { fade: Some(fade), ..with(outages) }
    }

    const FADE: FadePlan =
        FadePlan { interval: Nanos::from_secs(3), duration: Nanos::from_secs(1), factor: 20.0 };

    #[test]
    fn share_of_time_in_outage_matches_theory() {
        // Alternating renewal: D / (I + D) = 1/11. Over n = 1e6 s / 11 s cycles the
        // time out has a relative error of about sqrt(2 / n); allow five of them.
        let plan = EpisodePlan {
            interval: Nanos::from_secs(10),
            duration: Nanos::from_secs(1),
            law: DurationLaw::Exponential,
        };
        let mut c = new(&with(&[plan]), key(3), Instant::ZERO);
        let n = 2_000_000_u64;
        let out = (0..n).filter(|i| c.is_out(Instant(i * 500_000_000))).count();
        let share = out as f64 / n as f64;
        let tolerance = 5.0 * (2.0_f64 / (1e6 / 11.0)).sqrt() / 11.0;
        assert!((share - 1.0 / 11.0).abs() < tolerance, "{share}");
    }

    #[test]
    fn loss_trace_loses_by_the_probability_of_its_step() {
        let one = Probability::ONE.raw();
        let steps = HeldPlan::steps(Nanos::from_millis(10), [0, one, one / 4]);
        let plan = PipePlan { loss_trace: Some(steps), ..PipePlan::transparent() };
        let mut c = new(&plan, key(3), Instant::ZERO);
        let mut lost = [0_u32; 3];
        let n = 300_000_u64;
        for i in 0..n {
            let fate = c.lose(Instant(i * 1_000_000));
            assert!(matches!(fate, None | Some(DropReason::Loss)));
            lost[(i / 10 % 3) as usize] += u32::from(fate.is_some());
        }
        assert_eq!(lost[..2], [0, 100_000]);
        // Binomial: a standard deviation of 137.
        assert!(lost[2].abs_diff(25_000) < 5 * 137, "{lost:?}");
    }

    #[test]
    fn outages_do_not_depend_on_number_of_reads() {
        let plan = EpisodePlan {
            interval: Nanos::from_millis(700),
            duration: Nanos::from_millis(40),
            law: DurationLaw::Fixed,
        };
        let mut often = new(&with(&[plan]), key(9), Instant::ZERO);
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
    fn change_does_not_depend_on_earlier_reads() {
        let a = EpisodePlan {
            interval: Nanos::from_millis(50),
            duration: Nanos::from_millis(20),
            law: DurationLaw::Exponential,
        };
        let b = EpisodePlan { interval: Nanos::from_millis(80), ..a };
        let mut looked_at = new(&with(&[a]), key(5), Instant::ZERO);
        let mut left_alone = looked_at.clone();
        let at = Instant(3_000_000_000);
        for i in 0..3_000 {
            looked_at.is_out(Instant(i * 1_000_000));
        }
        for c in [&mut looked_at, &mut left_alone] {
            c.replan(&with(&[b]).channel(true), key(5), at, Instant::ZERO);
        }
        for i in 3_000..6_000 {
            let t = Instant(i * 1_000_000);
            assert_eq!(looked_at.is_out(t), left_alone.is_out(t), "at {t}");
        }
    }

    #[test]
    fn class_added_again_is_a_new_process() {
        let a = EpisodePlan {
            interval: Nanos::from_secs(10),
            duration: Nanos::from_millis(500),
            law: DurationLaw::Fixed,
        };
        let first_outage = |epoch| {
            let mut c = new(&with(&[]), key(5), Instant::ZERO);
            c.replan(
                &with(&[a]).channel(true),
                StreamKey { epoch, ..key(5) },
                Instant::ZERO,
                Instant::ZERO,
            );
            (0..).map(|i| Instant(i * 100_000_000)).find(|t| c.is_out(*t)).unwrap()
        };
        assert_eq!(first_outage(1), first_outage(1));
        assert_ne!(first_outage(1), first_outage(2));
    }

    #[test]
    fn unchanged_class_continues_over_change() {
        let a = EpisodePlan {
            interval: Nanos::from_millis(50),
            duration: Nanos::from_millis(20),
            law: DurationLaw::Exponential,
        };
        let b = EpisodePlan { interval: Nanos::from_secs(3600), ..a };
        let mut changed = new(&with(&[a]), key(5), Instant::ZERO);
        let mut kept = changed.clone();
        changed.replan(&with(&[a, b]).channel(true), key(5), Instant(1_000_000), Instant::ZERO);
        let first = |c: &mut Channel| {
            (1..2_000).map(|i| c.is_out(Instant(i * 1_000_000))).collect::<Vec<_>>()
        };
        assert_eq!(first(&mut changed), first(&mut kept));
    }

    /// With exponential outages the regime and the outage are a Markov process. With λ and
    /// λ' the intensities in the clear and in a fade, μ that of an outage's end, α and β
    /// those of a fade's start and end, the shares d and d' of time in outage in the clear
    /// and in a fade solve
    ///
    /// ```text
    /// λ (β / (α + β) − d) + β d' = (μ + α) d
    /// λ' (α / (α + β) − d') + α d = (μ + β) d'
    /// ```
    #[test]
    fn share_of_time_in_outage_with_fades_matches_theory() {
        let outage = EpisodePlan {
            interval: Nanos::from_secs(10),
            duration: Nanos::from_millis(400),
            law: DurationLaw::Exponential,
        };
        let (lambda, mu) = (1.0 / 10.0, 1.0 / 0.4);
        let (alpha, beta) = (1.0 / 3.0, 1.0);
        let faded = lambda * FADE.factor;
        let (clear, fade) = (beta / (alpha + beta), alpha / (alpha + beta));
        // (λ + μ + α) d − β d' = λ clear;  −α d + (λ' + μ + β) d' = λ' fade.
        let (a, b) = (lambda + mu + alpha, faded + mu + beta);
        let d = (lambda * clear * b + beta * faded * fade) / (a * b - alpha * beta);
        let d_fade = (faded * fade * a + alpha * lambda * clear) / (a * b - alpha * beta);
        let mut c = new(&fading(&[outage], FADE), key(3), Instant::ZERO);
        let (n, step) = (8_000_000_u64, 100_000_000);
        let out = (0..n).filter(|i| c.is_out(Instant(i * step))).count();
        let share = out as f64 / n as f64;
        // The number of outages in a cycle of 4 s has less than a geometric one's variance,
        // and so has the time out: a relative error of at most sqrt(3 / cycles).
        let cycles = (n * step) as f64 / 4e9;
        let stated = d + d_fade;
        assert!((share - stated).abs() < 5.0 * stated * (3.0 / cycles).sqrt(), "{share} {stated}");
        // Fades matter: without them it would be 0.4 / 10.4.
        assert!(stated > 3.0 * 0.4 / 10.4, "{stated}");
    }

    #[test]
    fn fades_do_not_depend_on_number_of_reads() {
        let short = EpisodePlan {
            interval: Nanos::from_millis(700),
            duration: Nanos::from_millis(40),
            law: DurationLaw::Fixed,
        };
        let long = EpisodePlan { interval: Nanos::from_secs(60), ..short };
        let plan = fading(&[short, long], FADE);
        let mut often = new(&plan, key(9), Instant::ZERO);
        let mut seldom = often.clone();
        for i in 0..1_000_000_u64 {
            let t = Instant(i * 1_000_000);
            let out = often.is_out(t);
            if i % 7 == 0 {
                often.keep_up(t);
            }
            if i % 997 == 0 {
                assert_eq!(out, seldom.is_out(t), "at {t}");
            }
        }
    }

    #[test]
    fn all_classes_see_one_regime_of_fades() {
        // Outages all but certain in a fade and all but absent in the clear: where one
        // class is out, the other is within moments.
        let fade = FadePlan { factor: 1e6, ..FADE };
        let class = EpisodePlan {
            interval: Nanos::from_secs(10_000),
            duration: Nanos::from_millis(90),
            law: DurationLaw::Fixed,
        };
        let other = EpisodePlan { duration: Nanos::from_millis(91), ..class };
        let at = Instant(1_000_000_000_000);
        let plan = fading(&[class, class], fade);
        let mut c = new(&plan, key(4), Instant::ZERO);
        let plan = fading(&[class, other, other], fade);
        c.replan(&plan.channel(true), StreamKey { epoch: 1, ..key(4) }, at, Instant::ZERO);
        let (mut apart, mut out) = ([0; 2], 0);
        for i in 0..1_000_000_u64 {
            let t = at + Nanos::from_millis(i);
            let [stays, changed, added] = [0, 1, 2].map(|i| c.processes.classes[i].covers(t));
            out += u32::from(stays);
            apart[0] += u32::from(changed != stays);
            apart[1] += u32::from(added != stays);
        }
        // A quarter of the time. Apart by all but an outage's length at each of 250 fades'
        // ends, and by 10 ms before each outage.
        assert!((200_000..300_000).contains(&out), "{out}");
        assert!(apart.iter().all(|a| *a < 2 * (250 * 91 + out / 9)), "{apart:?}");
    }

    #[test]
    fn class_continues_over_change_if_fades_do() {
        let a = EpisodePlan {
            interval: Nanos::from_millis(50),
            duration: Nanos::from_millis(20),
            law: DurationLaw::Exponential,
        };
        let b = EpisodePlan { interval: Nanos::from_secs(3600), ..a };
        let outs = |plan: &PipePlan| {
            let mut c = new(&fading(&[a], FADE), key(5), Instant::ZERO);
            c.replan(
                &plan.channel(true),
                StreamKey { epoch: 1, ..key(5) },
                Instant(1_000_000),
                Instant::ZERO,
            );
            (1..20_000)
                .map(|i| c.processes.classes[0].covers(Instant(i * 1_000_000)))
                .collect::<Vec<_>>()
        };
        let kept = outs(&fading(&[a], FADE));
        assert_eq!(outs(&fading(&[a, b], FADE)), kept);
        assert_eq!(
            outs(&PipePlan { packet_loss: Probability::ONE.into(), ..fading(&[a], FADE) }),
            kept
        );
        assert_ne!(outs(&fading(&[a], FadePlan { factor: 2.0, ..FADE })), kept);
        assert_ne!(outs(&with(&[a])), kept);
    }

    #[test]
    fn losses_are_independent_with_stated_probability() {
        let plan =
            PipePlan { packet_loss: Probability::new(0.1).into(), ..PipePlan::transparent() };
        let mut c = new(&plan, key(1), Instant::ZERO);
        let n = 1_000_000_u64;
        let lost: Vec<bool> = (0..n).map(|i| c.lose(Instant(i)).is_some()).collect();
        let within = |hits: usize, n: f64, p: f64| {
            assert!((hits as f64 - n * p).abs() < 5.0 * (n * p * (1.0 - p)).sqrt(), "{hits}");
        };
        within(lost.iter().filter(|l| **l).count(), n as f64, 0.1);
        // Pairs that do not overlap.
        within(lost.chunks(2).filter(|w| w[0] && w[1]).count(), n as f64 / 2.0, 0.01);
        let mut c = new(&PipePlan::transparent(), key(1), Instant::ZERO);
        assert_eq!(c.lose(Instant(1)), None);
        let lossy = PipePlan { packet_loss: Probability::ONE.into(), ..plan };
        c.replan(&lossy.channel(true), key(1), Instant(1), Instant::ZERO);
        assert_eq!(c.lose(Instant(1)), Some(DropReason::Loss));
    }

    #[test]
    fn frame_with_loss_and_outage_counts_as_outage() {
        let outage = EpisodePlan {
            interval: Nanos::from_millis(10),
            duration: Nanos::from_millis(10),
            law: DurationLaw::Fixed,
        };
        let loss =
            PipePlan { packet_loss: Probability::new(0.3).into(), ..PipePlan::transparent() };
        let both = PipePlan { outages: vec![outage], ..loss.clone() };
        let mut loss = new(&loss, key(1), Instant::ZERO);
        let mut both = new(&both, key(1), Instant::ZERO);
        let mut outages = 0;
        for i in 0..10_000 {
            let t = Instant(i * 1_000_000);
            match both.lose(t) {
                Some(DropReason::Outage) => {
                    outages += 1;
                    loss.lose(t);
                }
                fate => assert_eq!(fate, loss.lose(t)),
            }
        }
        assert!(outages > 1_000, "{outages}");
    }
}
