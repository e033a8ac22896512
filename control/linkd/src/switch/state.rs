// SPDX-License-Identifier: Apache-2.0
//! The state of the switch as `SwitchState`, and the sums for metrics.

use super::{Look, SHIM_BYTES, Split, StageDecision};
use ::switch::{Count, Counts, Egress, Fates, Histogram, Mirrored, Phase, PortDrops};
use emu::units::{ByDirection, Direction};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;

/// A fate: its name, and whether the counted frames had a shim.
type Fate = (&'static str, bool, fn(&Fates) -> Count);

const FATES: [Fate; 8] = [
    ("received", false, |f| f.received),
    ("returned", true, |f| f.returned),
    ("delivered", true, |f| f.delivered),
    ("lost", true, |f| f.lost),
    ("gated", true, |f| f.gated),
    ("marked", true, |f| f.marked),
    ("stale", true, |f| f.stale),
    ("unknown_loss", true, |f| f.unknown_loss),
];

/// A fate of frames without a client.
type PortFate = (&'static str, fn(&PortDrops) -> Count);

const PORT_FATES: [PortFate; 5] = [
    ("unknown_port", |p| p.unknown_port),
    ("no_shim", |p| p.no_shim),
    ("wrong_direction", |p| p.wrong_direction),
    ("cut", |p| p.cut),
    ("no_box", |p| p.no_box),
];

/// Frames by fate, of all clients, forward and return; bytes without shims.
pub(crate) fn counts(look: &Look) -> Vec<pb::SwitchCount> {
    let Counts { clients, ports, .. } = &*look.counts;
    let of_clients = FATES.iter().map(|(fate, has_shim, of)| {
        let sum = |direction: Direction| {
            let counts = clients.values().map(|client| of(&client[direction]));
            let Count { packets, bytes } = sum(counts);
            let shims = if *has_shim { packets.saturating_mul(SHIM_BYTES) } else { 0 };
            Some(pb::Count { packets, bytes: bytes.saturating_sub(shims) })
        };
        pb::SwitchCount {
            fate: (*fate).to_owned(),
            forward_count: sum(Direction::Forward),
            return_count: sum(Direction::Return),
        }
    });
    let of_ports = PORT_FATES.iter().map(|(fate, of)| {
        let sum = |direction: Direction| {
            let counts = ports.iter().filter(|(port, _)| way(look, **port) == direction);
            let Count { packets, bytes } = sum(counts.map(|(_, drops)| of(drops)));
            Some(pb::Count { packets, bytes })
        };
        pb::SwitchCount {
            fate: (*fate).to_owned(),
            forward_count: sum(Direction::Forward),
            return_count: sum(Direction::Return),
        }
    });
    of_clients.chain(of_ports).collect()
}

/// The direction of frames that enter at a port.
fn way(look: &Look, port: u16) -> Direction {
    let declared = &look.declared;
    let port = u32::from(port);
    let from_box = declared.boxes.iter().any(|of| of.wan_port == port);
    let is_return = from_box || declared.client_ports.contains(&port);
    if is_return { Direction::Return } else { Direction::Forward }
}

fn sum(counts: impl Iterator<Item = Count>) -> Count {
    counts.fold(Count::default(), Count::plus)
}

/// Whether it has its program and its tables.
pub(crate) fn is_ready(look: &Look) -> bool {
    look.standing.as_ref().is_ok_and(|standing| standing.phase == Phase::Ready)
}

/// The complete state, for the current `plan` and the possible `split` of its profile.
pub(crate) fn state(
    look: &Look,
    plan: Option<(&Split, Option<&dp::Offload>)>,
    gates: Vec<pb::Gate>,
) -> pb::SwitchState {
    let Look { declared, standing, counts: counted, .. } = look;
    let target = match declared.target() {
        dp::SwitchTarget::Bmv2 => "bmv2",
        dp::SwitchTarget::Swx => "swx",
        dp::SwitchTarget::Tofino => "tofino",
        dp::SwitchTarget::Unspecified => "unspecified",
    };
    let ByDirection([forward_transit, return_transit]) = &counted.transit;
    let ByDirection([forward_excess, return_excess]) = &counted.lateness;
    let state = pb::SwitchState {
        address: declared.address.clone(),
        target: target.to_owned(),
        stages: plan.map(|(split, in_force)| stages(split, in_force)).unwrap_or_default(),
        counts: counts(look),
        forward_transit: histogram(forward_transit),
        return_transit: histogram(return_transit),
        forward_excess: histogram(forward_excess),
        return_excess: histogram(return_excess),
        early: counted.early,
        gates,
        ports: ports(counted),
        wires: look.wires.clone(),
        mirror: declared.mirror_port.map(|port| mirror(port, look)),
        ..Default::default()
    };
    let standing = match standing {
        Ok(standing) => standing,
        Err(why) => {
            let phase = pb::SwitchPhase::Lost as i32;
            return pb::SwitchState { phase, message: why.clone(), ..state };
        }
    };
    let phase = match standing.phase {
        Phase::Lost => pb::SwitchPhase::Lost,
        Phase::Taken => pb::SwitchPhase::Taken,
        Phase::Restoring => pb::SwitchPhase::Restoring,
        Phase::Ready => pb::SwitchPhase::Ready,
    };
    let seconds = standing.since.elapsed().as_secs().saturating_mul(1_000_000_000);
    let since = profile::format_duration(seconds);
    let message = match standing.message.as_str() {
        "" => format!("for {since}"),
        why => format!("for {since}: {why}"),
    };
    pb::SwitchState {
        phase: phase as i32,
        message,
        clients: standing.clients,
        entries: standing.entries,
        restored_ns: u64::try_from(standing.restored.as_nanos()).unwrap_or(u64::MAX),
        program: standing.program.clone(),
        ..state
    }
}

fn count(Count { packets, bytes }: Count) -> Option<pb::Count> {
    Some(pb::Count { packets, bytes })
}

fn mirror(port: u32, look: &Look) -> pb::SwitchMirror {
    let Mirrored { at_box, at_hosts, sent } = look.counts.mirrored;
    pb::SwitchMirror {
        port,
        mirror: Some(look.mirror.clone()),
        forward_at_box: count(at_box[Direction::Forward]),
        return_at_box: count(at_box[Direction::Return]),
        forward_at_hosts: count(at_hosts[Direction::Forward]),
        return_at_hosts: count(at_hosts[Direction::Return]),
        sent: count(sent),
    }
}

fn ports(counts: &Counts) -> Vec<pb::SwitchPort> {
    let port = |(port, egress): (&u16, &Egress)| pb::SwitchPort {
        port: (*port).into(),
        to_hosts: egress.to_hosts,
        given: count(egress.given),
        sent: count(egress.sent),
    };
    counts.egress.iter().map(port).collect()
}

fn histogram(of: &Histogram) -> Option<pb::TimeHistogram> {
    let Histogram { bounds, counts } = of;
    let message = pb::TimeHistogram { bounds_ns: bounds.clone(), counts: counts.clone() };
    (!counts.is_empty()).then_some(message)
}

/// Where the stages of the current plan run, which may differ from the possible split.
fn stages(split: &Split, in_force: Option<&dp::Offload>) -> Vec<pb::Stage> {
    let in_force = in_force.copied().unwrap_or_default();
    let stage = |decision: &StageDecision| {
        let StageDecision { stage, direction, in_switch, reason } = decision;
        let runs_in_switch = match (*stage, direction) {
            // With matches it has no client of this epoch.
            ("classification", _) => in_force.epoch != 0 && !split.has_matches,
            ("marking", _) => in_force.marks && *in_switch,
            ("loss", pb::Direction::Return) => in_force.return_loss != 0,
            ("loss", _) => in_force.forward_loss != 0,
            _ => false,
        };
        let reason = match (in_switch, runs_in_switch) {
            (true, false) => "the plan in force is from before the switch was ready".to_owned(),
            (false, true) => format!("by the plan in force, though {reason}"),
            _ => reason.clone(),
        };
        let place = if runs_in_switch { pb::StagePlace::Switch } else { pb::StagePlace::Dataplane };
        let (name, direction) = ((*stage).to_owned(), *direction as i32);
        pb::Stage { name, direction, place: place as i32, reason }
    };
    split.decisions.iter().map(stage).collect()
}

#[cfg(test)]
mod tests {
    use super::super::split::{Stages, split};
    use super::*;

    const ALL: Stages =
        Stages { ready: true, classifies: true, matches: false, loses: true, marks: true };

    fn profile() -> pb::Profile {
        let pipe = || Some(pb::Pipe { packet_loss: 0.5, ..Default::default() });
        pb::Profile { forward_pipe: pipe(), return_pipe: pipe(), ..Default::default() }
    }

    fn place(stages: &[pb::Stage], name: &str, direction: pb::Direction) -> (bool, String) {
        let found = stages.iter().find(|s| s.name == name && s.direction() == direction).unwrap();
        (found.place() == pb::StagePlace::Switch, found.reason.clone())
    }

    #[test]
    fn a_stage_is_where_the_plan_in_force_has_it() {
        let in_force = dp::Offload { epoch: 7, forward_loss: 1, ..Default::default() };
        let found = stages(&split(&profile(), ALL), Some(&in_force));
        assert!(place(&found, "classification", pb::Direction::Return).0);
        assert!(place(&found, "loss", pb::Direction::Forward).0);
        let (in_switch, reason) = place(&found, "loss", pb::Direction::Return);
        assert!(!in_switch && reason.contains("before the switch was ready"), "{reason}");
        assert!(!place(&found, "queue", pb::Direction::Forward).0);
        let unready = split(&profile(), Stages { ready: false, ..ALL });
        let (in_switch, reason) =
            place(&stages(&unready, Some(&in_force)), "loss", pb::Direction::Forward);
        assert!(in_switch && reason.contains("though the switch is not ready"), "{reason}");
        let matches = split(&profile(), Stages { matches: true, ..ALL });
        let found = stages(&matches, Some(&in_force));
        let (in_switch, reason) = place(&found, "classification", pb::Direction::Forward);
        assert!(!in_switch && reason.starts_with("clients have matches"), "{reason}");
        assert!(stages(&unready, None).iter().all(|s| s.place() == pb::StagePlace::Dataplane));
    }

    #[test]
    fn frames_are_summed_by_fate_and_their_bytes_are_those_of_inner_frames() {
        let count = |packets, bytes| Count { packets, bytes };
        let fates = Fates { received: count(10, 1_000), lost: count(2, 264), ..Fates::default() };
        let client = ByDirection([fates, Fates { received: count(1, 60), ..Fates::default() }]);
        let drops = PortDrops { cut: count(3, 30), ..PortDrops::default() };
        let counts = Counts {
            clients: [(0, client), (9, client)].into(),
            ports: [(1, drops), (2, drops), (4, drops)].into(),
            ..Counts::default()
        };
        let declared = dp::Switch {
            boxes: vec![dp::SwitchBox { wan_port: 1, client_port: 2 }],
            wan_ports: vec![3],
            client_ports: vec![4],
            ..Default::default()
        };
        let (standing, mirror) = (Err("none".into()), pb::Mirror::default());
        let look = Look { declared, mirror, standing, counts: counts.into(), wires: Vec::new() };
        let state = state(&look, None, Vec::new());
        let of = |fate: &str| {
            let found = state.counts.iter().find(|count| count.fate == fate).unwrap();
            (found.forward_count.unwrap(), found.return_count.unwrap())
        };
        let inner = |packets, bytes| pb::Count { packets, bytes };
        assert_eq!(of("received"), (inner(20, 2_000), inner(2, 120)));
        assert_eq!(of("lost"), (inner(4, 400), inner(0, 0)));
        assert_eq!(of("cut"), (inner(3, 30), inner(6, 60)));
        assert_eq!((state.phase(), state.message.as_str()), (pb::SwitchPhase::Lost, "none"));
    }
}
