// SPDX-License-Identifier: Apache-2.0
//! Decides which stage of a link runs in the dataplane, and which in the P4 switch.
//!
//! A pure function of the profile and of the permitted stages. A stage goes to the switch only if
//! it behaves there exactly as in the dataplane:
//!
//! - Probabilities are those of the dataplane, multiples of 2⁻³² below 1
//!   ([`emu::units::Probability`]): an event happens if a random 32 bit number is below.
//! - No later stage may depend on the losses. Reordering draws for each packet that leaves the
//!   channel, so with reordering the dataplane loses.
//! - The Gilbert-Elliott chain advances with each packet, in the dataplane also with packets of an
//!   outage or a drop run. The switch does not see these.
//! - The dataplane corrupts packets that were not lost, and after marking: with corruption, the
//!   dataplane does both.
//! - The four-state model needs more state than the switch has per packet.

use ::switch::Loss;
use emu::units::Probability;
use proto::linkemu::v1 as pb;

/// The stages that the switch may run; none unless it is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stages {
    /// It answers, and has its program and tables.
    pub ready: bool,
    /// It may assign packets to clients.
    pub classifies: bool,
    /// The clients have matches.
    pub matches: bool,
    /// It loses packets.
    pub loses: bool,
    /// It marks packets.
    pub marks: bool,
}

/// A stage, where it runs, and why there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StageDecision {
    pub stage: &'static str,
    pub direction: pb::Direction,
    pub in_switch: bool,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    /// For both directions, in the order of a packet's path.
    pub decisions: Vec<StageDecision>,
    pub forward: Loss,
    pub back: Loss,
    pub marks: bool,
    /// The clients have matches, so the dataplane classifies.
    pub has_matches: bool,
}

/// A stage in the switch, or in the dataplane, and why.
type Place = Result<&'static str, &'static str>;

const NOT_READY: &str = "the switch is not ready";
const MATCHES: &str = "clients have matches, which the tables of the switch cannot express";
const FORBIDDEN: &str = "the box's file does not let the switch do it";

/// Stages that hold packets or look at the clock.
const DATAPLANES: [(&str, &str); 4] = [
    ("queue", "the switch cannot hold packets by the byte, nor by client for so long"),
    ("rate", "it serves the queue, which is in the dataplane"),
    ("outages", "they are a function of time, drawn when a packet leaves the shaper"),
    ("delay", "the switch cannot hold packets"),
];

/// Decides stage by stage.
pub(crate) fn split(profile: &pb::Profile, stages: Stages) -> Split {
    let mut split = Split { has_matches: stages.matches, ..Split::default() };
    let none = pb::Pipe::default();
    for (direction, pipe) in [
        (pb::Direction::Forward, &profile.forward_pipe),
        (pb::Direction::Return, &profile.return_pipe),
    ] {
        let pipe = pipe.as_ref().unwrap_or(&none);
        let loss = losing(pipe, stages);
        let marking = marking(pipe, stages);
        split.marks |= marking.is_ok();
        *(match direction {
            pb::Direction::Return => &mut split.back,
            _ => &mut split.forward,
        }) = loss.unwrap_or_default();
        let lost = loss.map(|_| "drawn for each packet on its way back from the box");
        let [queue, rate, outages, delay] = DATAPLANES.map(|(stage, why)| (stage, Err(why)));
        let places: [(&'static str, Place); 7] = [
            ("classification", classification(stages)),
            queue,
            ("marking", marking),
            rate,
            outages,
            ("loss", lost),
            delay,
        ];
        split.decisions.extend(places.map(|(stage, place)| StageDecision {
            stage,
            direction,
            in_switch: place.is_ok(),
            reason: place.unwrap_or_else(|why| why).to_owned(),
        }));
    }
    split
}

fn allowed(stages: Stages, this: bool) -> Result<(), &'static str> {
    match (this, stages.ready) {
        (false, _) => Err(FORBIDDEN),
        (true, false) => Err(NOT_READY),
        (true, true) => Ok(()),
    }
}

fn classification(stages: Stages) -> Place {
    if stages.matches {
        return Err(MATCHES);
    }
    allowed(stages, stages.classifies)?;
    Ok("clients that have a number are told by the switch; the dataplane tells the others")
}

fn marking(pipe: &pb::Pipe, stages: Stages) -> Place {
    let queue = pipe.queue.unwrap_or_default();
    let chooses = queue.random_drop.is_some()
        || queue.red.is_some()
        || queue.codel.is_some()
        || queue.pie.is_some();
    if !queue.ecn || !chooses {
        return Err("the queue marks nothing");
    }
    if pipe.corrupt > 0.0 {
        return Err("packets are corrupted after they were marked");
    }
    allowed(stages, stages.marks)?;
    Ok("the queue chooses packets, and the switch sets their mark")
}

/// The losses in the switch, or the reason against.
fn losing(pipe: &pb::Pipe, stages: Stages) -> Result<Loss, &'static str> {
    let losing = if let Some(chain) = pipe.gilbert_elliott {
        allowed(stages, stages.loses)?;
        if !pipe.outages.is_empty() {
            return Err("the chain moves on with packets that an outage takes, too");
        }
        if pipe.drop_run.is_some() {
            return Err("the chain moves on with packets that the drop run takes, too");
        }
        let pb::GilbertElliott { to_bad, to_good, loss_in_bad, loss_in_good } = chain;
        let figures = [to_bad, to_good, loss_in_bad, loss_in_good].map(below_one);
        match figures {
            [Some(to_bad), Some(to_good), Some(loss_in_bad), Some(loss_in_good)] => {
                Loss::GilbertElliott { to_bad, to_good, loss_in_bad, loss_in_good }
            }
            _ => return Err(ONE),
        }
    } else if pipe.four_state_loss.is_some() {
        return Err("the switch has no chain of four states");
    } else {
        match below_one(pipe.packet_loss) {
            Some(0) => return Err("there is no loss per packet"),
            Some(p) => {
                allowed(stages, stages.loses)?;
                Loss::Independent(p)
            }
            None => {
                allowed(stages, stages.loses)?;
                return Err(ONE);
            }
        }
    };
    if pipe.reorder.is_some() {
        return Err("reordering draws for each packet that was not lost");
    }
    if pipe.corrupt > 0.0 {
        return Err("packets are corrupted that were not lost");
    }
    Ok(losing)
}

const ONE: &str = "a probability is 1, and the switch compares with 32 bits: 2^-32 less at most";

/// As the dataplane has it, in 2⁻³²; none if it is 1.
fn below_one(p: f64) -> Option<u32> {
    u32::try_from(Probability::new(p).raw()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Stages =
        Stages { ready: true, classifies: true, matches: false, loses: true, marks: true };
    const GE: pb::GilbertElliott =
        pb::GilbertElliott { to_bad: 0.25, to_good: 0.5, loss_in_bad: 0.75, loss_in_good: 0.0 };

    fn profile(forward: pb::Pipe) -> pb::Profile {
        let (forward_pipe, return_pipe) = (Some(forward), Some(pb::Pipe::default()));
        pb::Profile { forward_pipe, return_pipe, ..Default::default() }
    }

    /// The place of a forward stage.
    fn stage(pipe: pb::Pipe, stages: Stages, stage: &str) -> (bool, String, Split) {
        let split = split(&profile(pipe), stages);
        let is = |d: &&StageDecision| d.stage == stage && d.direction == pb::Direction::Forward;
        let found = split.decisions.iter().find(is).unwrap();
        (found.in_switch, found.reason.clone(), split.clone())
    }

    fn loss(pipe: pb::Pipe) -> (Loss, String) {
        let (in_switch, reason, split) = stage(pipe, ALL, "loss");
        assert_eq!(in_switch, split.forward != Loss::None);
        (split.forward, reason)
    }

    fn independent(p: f64) -> pb::Pipe {
        pb::Pipe { packet_loss: p, ..Default::default() }
    }

    fn chain(chain: pb::GilbertElliott) -> pb::Pipe {
        pb::Pipe { gilbert_elliott: Some(chain), ..Default::default() }
    }

    #[test]
    fn independent_loss_runs_in_the_switch_with_the_dataplanes_figures() {
        assert_eq!(loss(independent(0.25)).0, Loss::Independent(1 << 30));
        for p in [0.01, 1e-9, 0.999_999_999] {
            let raw = Probability::new(p).raw();
            assert_eq!(loss(independent(p)).0, Loss::Independent(u32::try_from(raw).unwrap()));
        }
    }

    #[test]
    fn no_loss_is_no_ones_and_a_certain_one_is_the_dataplanes() {
        for p in [0.0, 1e-12] {
            let (losing, reason) = loss(independent(p));
            assert_eq!((losing, reason.as_str()), (Loss::None, "there is no loss per packet"));
        }
        for p in [1.0, 1.0 - 1e-12] {
            let (losing, reason) = loss(independent(p));
            assert!(losing == Loss::None && reason.contains("probability is 1"), "{reason}");
        }
    }

    #[test]
    fn gilbert_and_elliotts_chain_runs_in_the_switch_where_it_sees_every_packet() {
        let expected = Loss::GilbertElliott {
            to_bad: 1 << 30,
            to_good: 1 << 31,
            loss_in_bad: 3 << 30,
            loss_in_good: 0,
        };
        assert_eq!(loss(chain(GE)).0, expected);
        let outages = vec![pb::Outage::default()];
        let (losing, reason) = loss(pb::Pipe { outages, ..chain(GE) });
        assert!(losing == Loss::None && reason.contains("outage"), "{reason}");
        let drop_run = Some(pb::DropRun::default());
        let (losing, reason) = loss(pb::Pipe { drop_run, ..chain(GE) });
        assert!(losing == Loss::None && reason.contains("drop run"), "{reason}");
        for certain in [
            pb::GilbertElliott { to_bad: 1.0, ..GE },
            pb::GilbertElliott { to_good: 1.0, ..GE },
            pb::GilbertElliott { loss_in_bad: 1.0, ..GE },
            pb::GilbertElliott { loss_in_good: 1.0, ..GE },
        ] {
            let (losing, reason) = loss(chain(certain));
            assert!(losing == Loss::None && reason.contains("probability is 1"), "{reason}");
        }
    }

    #[test]
    fn independent_loss_does_not_mind_outages_and_drop_runs() {
        let outages = vec![pb::Outage::default()];
        let drop_run = Some(pb::DropRun::default());
        let pipe = pb::Pipe { outages, drop_run, ..independent(0.5) };
        assert_eq!(loss(pipe).0, Loss::Independent(1 << 31));
    }

    #[test]
    fn four_states_run_in_the_dataplane() {
        let four_state_loss = Some(pb::FourStateLoss::default());
        let (losing, reason) = loss(pb::Pipe { four_state_loss, ..independent(0.5) });
        assert!(losing == Loss::None && reason.contains("four states"), "{reason}");
    }

    #[test]
    fn where_packets_are_reordered_the_dataplane_loses() {
        let reorder = Some(pb::Reorder::default());
        for pipe in [independent(0.5), chain(GE)] {
            let (losing, reason) = loss(pb::Pipe { reorder, ..pipe });
            assert!(losing == Loss::None && reason.contains("reordering"), "{reason}");
        }
    }

    #[test]
    fn where_packets_are_corrupted_the_dataplane_loses_and_marks() {
        for pipe in [independent(0.5), chain(GE)] {
            let corrupted = pb::Pipe { corrupt: 0.1, ..pipe.clone() };
            assert_ne!(loss(pipe).0, Loss::None);
            let (losing, reason) = loss(corrupted);
            assert!(losing == Loss::None && reason.contains("corrupted"), "{reason}");
        }
        let corrupted = pb::Pipe { corrupt: 0.1, ..marks(true) };
        let (in_switch, reason, split) = stage(corrupted, ALL, "marking");
        assert!(!in_switch && !split.marks && reason.contains("corrupted"), "{reason}");
    }

    #[test]
    fn each_direction_is_decided_for_itself() {
        let reorder = Some(pb::Reorder::default());
        let both = pb::Profile {
            forward_pipe: Some(pb::Pipe { reorder, ..independent(0.5) }),
            return_pipe: Some(independent(0.25)),
            ..Default::default()
        };
        let split = split(&both, ALL);
        assert_eq!((split.forward, split.back), (Loss::None, Loss::Independent(1 << 30)));
    }

    fn marks(ecn: bool) -> pb::Pipe {
        let queue = pb::Queue { ecn, codel: Some(pb::CoDel::default()), ..Default::default() };
        pb::Pipe { queue: Some(queue), ..Default::default() }
    }

    #[test]
    fn a_queue_that_marks_has_the_switch_mark() {
        let (in_switch, _, split) = stage(marks(true), ALL, "marking");
        assert!(in_switch && split.marks);
        let tail = pb::Queue { ecn: true, ..Default::default() };
        let tail = pb::Pipe { queue: Some(tail), ..Default::default() };
        for pipe in [marks(false), tail, pb::Pipe::default()] {
            let (in_switch, reason, split) = stage(pipe, ALL, "marking");
            assert!(!in_switch && !split.marks && reason.contains("marks nothing"), "{reason}");
        }
    }

    #[test]
    fn the_switch_does_what_the_boxs_file_lets_it_and_only_if_it_is_ready() {
        let pipe = pb::Pipe { queue: marks(true).queue, ..independent(0.5) };
        let without = |change: fn(&mut Stages)| {
            let mut stages = ALL;
            change(&mut stages);
            stages
        };
        for (name, forbidden) in [
            ("classification", without(|s| s.classifies = false)),
            ("loss", without(|s| s.loses = false)),
            ("marking", without(|s| s.marks = false)),
        ] {
            assert!(stage(pipe.clone(), ALL, name).0, "{name}");
            let (in_switch, reason, _) = stage(pipe.clone(), forbidden, name);
            assert!(!in_switch && reason == FORBIDDEN, "{name}: {reason}");
            let (in_switch, reason, split) =
                stage(pipe.clone(), without(|s| s.ready = false), name);
            assert!(!in_switch && reason == NOT_READY, "{name}: {reason}");
            assert_eq!((split.forward, split.marks), (Loss::None, false));
        }
    }

    #[test]
    fn clients_with_matches_are_classified_by_the_dataplane() {
        let matches = Stages { matches: true, ..ALL };
        let (in_switch, reason, _) = stage(pb::Pipe::default(), matches, "classification");
        assert!(!in_switch && reason == MATCHES, "{reason}");
        assert!(stage(pb::Pipe::default(), ALL, "classification").0);
    }

    #[test]
    fn what_holds_packets_or_looks_at_the_clock_runs_in_the_dataplane_and_says_why() {
        let split = split(&profile(pb::Pipe::default()), ALL);
        assert_eq!(split.decisions.len(), 14);
        for (stage, _) in DATAPLANES {
            let of_stage: Vec<_> = split.decisions.iter().filter(|d| d.stage == stage).collect();
            assert_eq!(of_stage.len(), 2, "{stage}");
            assert!(of_stage.iter().all(|d| !d.in_switch && !d.reason.is_empty()), "{stage}");
        }
    }
}
