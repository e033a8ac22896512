// SPDX-License-Identifier: Apache-2.0
//! Beams: rates that several clients share, and their plan for the core.
//!
//! The core gives a client without a share the share of automatic clients. A named client without a
//! beam must have none. If automatic clients have a beam, it gets a share of an extra, unlimited
//! beam, which is the last one.

use emu::beam::{BeamPlan, BeamsPlan, MAX_BEAMS, MAX_WEIGHT, Share};
use emu::client::{ClientKey, ClientName, MAX_NAME};
use emu::framing::Framing;
use emu::units::{BitRate, ByDirection};
use profile::{PIPE_RATE_BPS, Rate, Violations, nearest};
use proto::linkemu::v1 as pb;
use units::shown;

/// Maximum number of beams: one less than in the core.
pub const BEAMS: usize = MAX_BEAMS - 1;
/// Maximum number of reported faults of beams.
const FAULTS: usize = 20;

/// Converts the beams of a message.
pub(crate) fn beams(clients: &pb::Clients, found: &mut Violations) -> BeamsPlan {
    let mut plan = BeamsPlan::default();
    let before = found.len();
    if clients.beams.len() > BEAMS {
        let message = format!("{} beams are more than {BEAMS}: merge some", clients.beams.len());
        found.push("beam", message);
        return plan;
    }
    for (n, beam) in clients.beams.iter().enumerate() {
        check(found, &format!("beam[{n}]"), beam, &clients.beams[..n]);
        let rates = [beam.forward_rate_bps, beam.return_rate_bps];
        let rate = ByDirection(rates.map(|bps| bps.map_or(BitRate::Unlimited, BitRate::bps)));
        plan.beams.push(BeamPlan { name: beam.name.clone(), rate, framing: Framing::default() });
    }
    if let Some(automatic) = &clients.automatic {
        let pb::Automatic { beam, weight, .. } = automatic;
        plan.automatic = share(found, "automatic", beam, *weight, &clients.beams);
    }
    let none = Share { beam: plan.beams.len() as u16, weight: 1 };
    for (n, client) in clients.clients.iter().enumerate() {
        if found.len() >= before + FAULTS {
            break;
        }
        let path = format!("client[{n}]");
        let own = share(found, &path, &client.beam, client.weight, &clients.beams);
        // A wrong name is reported elsewhere.
        let Ok(name) = client.name.parse::<ClientName>() else { continue };
        if let Some(share) = own.or(plan.automatic.map(|_| none)) {
            plan.shares.insert(ClientKey::Named(name), share);
        }
    }
    if plan.automatic.is_some() {
        let rate = ByDirection([BitRate::Unlimited; 2]);
        plan.beams.push(BeamPlan { name: String::new(), rate, framing: Framing::default() });
    }
    plan
}

fn check(found: &mut Violations, path: &str, beam: &pb::Beam, before: &[pb::Beam]) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name = &beam.name;
    if name.is_empty() {
        found.push(format!("{path}.name"), "missing: give the beam a name, such as \"b1\"");
    } else if name.len() > MAX_NAME || !name.chars().all(allowed) {
        let message = format!(
            "{:?} is no name: use 1 to {MAX_NAME} of A-Z, a-z, 0-9, '.', '_' and '-'",
            shown(name)
        );
        found.push(format!("{path}.name"), message);
    } else if let Some(other) = before.iter().position(|other| other.name == *name) {
        let message = format!("{name} is the name of beam[{other}] as well: choose another one");
        found.push(format!("{path}.name"), message);
    }
    let rates = [("forward_rate", beam.forward_rate_bps), ("return_rate", beam.return_rate_bps)];
    if rates.iter().all(|(_, bps)| bps.is_none()) {
        let message = "it limits neither direction: give it a forward_rate or a return_rate";
        found.push(path, message);
    }
    for (key, bps) in rates {
        let Some(bps) = bps.filter(|bps| *bps > 0 && !PIPE_RATE_BPS.contains(bps)) else {
            continue;
        };
        let [given, low, high] = [bps, *PIPE_RATE_BPS.start(), *PIPE_RATE_BPS.end()]
            .map(|bps| Rate::from_bps(Some(bps)));
        let message =
            format!("{given} is outside of {low} to {high}: give one within, or \"down\"");
        found.push(format!("{path}.{key}"), message);
    }
}

/// Weight 0 is an absent field and counts as 1.
fn share(
    found: &mut Violations,
    path: &str,
    beam: &str,
    weight: u32,
    beams: &[pb::Beam],
) -> Option<Share> {
    if beam.is_empty() {
        if weight > 0 {
            let message = "a weight is one in a beam: give the beam too, or leave it out";
            found.push(format!("{path}.weight"), message);
        }
        return None;
    }
    let known = beams.iter().position(|known| known.name == beam);
    if known.is_none() {
        let remedy = match nearest(beam, beams.iter().map(|beam| beam.name.as_str())) {
            Some(near) => format!("the nearest is {near:?}"),
            None => "add it as [[beam]]".to_owned(),
        };
        let message = format!("no beam is named {:?}: {remedy}", shown(beam));
        found.push(format!("{path}.beam"), message);
    }
    match u16::try_from(weight.max(1)) {
        Ok(weight) if weight <= MAX_WEIGHT => known.map(|beam| Share { beam: beam as u16, weight }),
        _ => {
            let message = format!("weight {weight} is none of 1 to {MAX_WEIGHT}: choose one");
            found.push(format!("{path}.weight"), message);
            None
        }
    }
}
