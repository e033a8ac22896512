// SPDX-License-Identifier: Apache-2.0
//! Compiles the items of a timeline to the steps that the dataplane executes.

use crate::given::part;
use crate::refusal;
use profile::{Part, Violations};
use prost::Message;
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::step::What;
use proto::linkemu::v1 as pb;
use scenario::{Action, Item, Parts, Timeline};
use std::collections::BTreeMap;
use tonic::Status;

/// Steps that are tried on paper before a scenario starts.
const TRIED: usize = 1_000;
/// Steps in one upload,
pub(super) const UPLOAD: usize = 1_024;
/// and their encoded bytes.
const UPLOAD_BYTES: usize = 1 << 20;

/// The change that an action makes; none if it makes none.
fn change(
    action: &Action,
    profiles: &BTreeMap<String, pb::Profile>,
) -> Result<Option<dp::Change>, Violations> {
    match action {
        Action::Mark | Action::Wait(_) => Ok(None),
        Action::Profile(name) => match profiles.get(name) {
            Some(profile) => {
                let profile = Some(profile.clone());
                Ok(Some(dp::Change { profile, restart: true, ..Default::default() }))
            }
            None => {
                let mut found = Violations::default();
                found.push("profile", format!("no profile is named {name:?}"));
                Err(found)
            }
        },
        Action::Patch(parts) => {
            let Parts { forward, back } = &**parts;
            let ways = [(pb::Direction::Forward, forward), (pb::Direction::Return, back)];
            let given = |(way, given): (pb::Direction, &Option<Part>)| {
                given.as_ref().map(|given| part(way as i32, given))
            };
            let parts = ways.into_iter().filter_map(given).collect();
            Ok(Some(dp::Change { parts, ..Default::default() }))
        }
    }
}

fn step(item: &Item, profiles: &BTreeMap<String, pb::Profile>) -> Result<dp::Step, Violations> {
    let Item { index, at_ns, label, action, links } = item;
    let what = match action {
        Action::Wait(wait) => Some(What::Wait(dp::Wait {
            event: wait.event as i32,
            subject: wait.subject.clone(),
            timeout_ns: wait.timeout_ns,
            go_on: wait.go_on,
        })),
        action => change(action, profiles)?.map(What::Change),
    };
    let (index, at_ns, label, action) = (*index, *at_ns, label.clone(), item.to_string());
    let change = |(name, action): (&String, &Action)| {
        let change = change(action, profiles)?;
        Ok(dp::StepLink { link: name.clone(), change })
    };
    let links = links.iter().map(change).collect::<Result<_, Violations>>()?;
    Ok(dp::Step { index, at_ns, label, action, what, links })
}

/// The next steps of a timeline, as many as fit into one upload, and whether they are the last
/// ones. With `hold`, they end before a ramp that begins at the current value of the link, unless
/// it is the first of them: another caller may change that value meanwhile.
pub(super) fn upload(
    timeline: &mut Timeline,
    profiles: &BTreeMap<String, pb::Profile>,
    hold: bool,
) -> Result<(Vec<dp::Step>, bool), Violations> {
    let (mut steps, mut bytes) = (Vec::new(), 0);
    while steps.len() < UPLOAD && bytes < UPLOAD_BYTES {
        if hold && !steps.is_empty() && timeline.begins_ramp() {
            return Ok((steps, false));
        }
        let Some(item) = timeline.next() else { return Ok((steps, true)) };
        let item = item.map_err(|error| {
            let mut found = Violations::default();
            found.push("step", error.to_string());
            found
        })?;
        let step = step(&item, profiles)?;
        bytes += step.encoded_len();
        steps.push(step);
    }
    let complete = timeline.clone().next().is_none();
    Ok((steps, complete))
}

/// An item in words.
pub(super) fn planned(item: &Item) -> pb::PlannedStep {
    let Item { index, at_ns, label, .. } = item;
    let (index, after_ns) = (*index, *at_ns);
    pb::PlannedStep { index, after_ns, label: label.clone(), action: item.to_string() }
}

/// Makes the first steps on paper, from the plans of the own link and of others by name, so that an
/// invalid one is reported before the scenario starts. Whether there is memory and time for each is
/// for the dataplane to decide.
pub(super) fn rehearse(
    timeline: Timeline,
    mut plan: dp::Plan,
    mut others: BTreeMap<String, dp::Plan>,
    profiles: &BTreeMap<String, pb::Profile>,
) -> Result<(), Status> {
    for (index, item) in timeline.take(TRIED).enumerate() {
        let refuse = |why: &str| {
            let message = format!("step {index} cannot be: {}", refusal::clip(why));
            refusal::field("scenario", message)
        };
        let item = item.map_err(|error| refuse(&error.to_string()))?;
        plan = on_paper(&item.action, plan, profiles).map_err(|why| refuse(&why))?;
        for (name, action) in item.links.iter() {
            let before = others.remove(name).unwrap_or_default();
            let after = on_paper(action, before, profiles);
            let after = after.map_err(|why| refuse(&format!("link `{name}`: {why}")))?;
            others.insert(name.clone(), after);
        }
    }
    Ok(())
}

/// The plan after an action, or why it is not valid.
fn on_paper(
    action: &Action,
    plan: dp::Plan,
    profiles: &BTreeMap<String, pb::Profile>,
) -> Result<dp::Plan, String> {
    let invalid = |found| refusal::invalid("the step", &found).message().to_owned();
    let Some(change) = change(action, profiles).map_err(|found| found.to_string())? else {
        return Ok(plan);
    };
    let plan = match owner::merge(&change, plan) {
        Ok(merged) => merged.plan,
        Err(error @ owner::ChangeError::NoLink) => return Err(error.to_string()),
        Err(owner::ChangeError::Invalid(found)) => return Err(invalid(found)),
    };
    plan.profile.as_ref().map_or(Ok(()), profile::validate).map_err(invalid)?;
    Ok(plan)
}
