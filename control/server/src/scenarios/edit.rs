// SPDX-License-Identifier: Apache-2.0
//! A step's change of the link, and what a whole scenario would come to.

use crate::patch::Patch;
use crate::refusal;
use profile::{Part, Violations};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use scenario::{Action, Item, Parts, Timeline};
use std::collections::BTreeMap;
use tonic::Status;

/// Steps that are tried on paper before a scenario starts.
const TRIED: usize = 1_000;

/// A change of the link.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    /// The whole link.
    Profile(Box<pb::Profile>),
    /// Parts of it.
    Patch(Vec<Patch>),
}

impl Edit {
    /// What an action changes; none if it changes nothing.
    pub fn of(
        action: &Action,
        profiles: &BTreeMap<String, pb::Profile>,
    ) -> Result<Option<Self>, Violations> {
        match action {
            Action::Mark | Action::Wait(_) => Ok(None),
            Action::Profile(name) => match profiles.get(name) {
                Some(profile) => Ok(Some(Self::Profile(Box::new(profile.clone())))),
                None => {
                    let mut found = Violations::default();
                    found.push("profile", format!("no profile is named {name:?}"));
                    Err(found)
                }
            },
            Action::Patch(parts) => {
                let Parts { forward, back } = &**parts;
                let ways = [(pb::Direction::Forward, forward), (pb::Direction::Return, back)];
                let patch = |(direction, part): (pb::Direction, &Option<Part>)| {
                    part.as_ref().map(|part| Patch::try_from(&request(direction, part)))
                };
                let patches: Result<Vec<_>, _> = ways.into_iter().filter_map(patch).collect();
                patches.map(|patches| Some(Self::Patch(patches)))
            }
        }
    }

    /// The link after it.
    fn link(&self, link: Option<pb::Profile>) -> Result<pb::Profile, Status> {
        match self {
            Self::Profile(profile) => Ok((**profile).clone()),
            Self::Patch(patches) => {
                let link = link.ok_or_else(refusal::no_link)?;
                let change = |link, patch: &Patch| patch.apply(&link);
                patches
                    .iter()
                    .try_fold(link, change)
                    .map_err(|found| refusal::invalid("the step", &found))
            }
        }
    }

    /// The plan after it.
    pub fn plan(&self, in_force: Option<dp::Plan>, seed: Option<u64>) -> Result<dp::Plan, Status> {
        let mut plan = in_force
            .unwrap_or_else(|| dp::Plan { seed: crate::control::FIRST_SEED, ..Default::default() });
        let profile = Some(self.link(plan.profile.take())?);
        let seed = seed.unwrap_or(plan.seed);
        Ok(dp::Plan { profile, seed, ..plan })
    }

    /// The pipes, forward and return, whose drop run begins anew.
    pub fn arms(&self) -> (bool, bool) {
        match self {
            Self::Profile(_) => (false, false),
            Self::Patch(patches) => patches.iter().map(Patch::arms).fold(
                (false, false),
                |(forward, back), (also_forward, also_back)| {
                    (forward || also_forward, back || also_back)
                },
            ),
        }
    }

    /// Whether the random processes start anew.
    pub fn restarts(&self) -> bool {
        matches!(self, Self::Profile(_))
    }
}

fn request(direction: pb::Direction, part: &Part) -> pb::PatchLinkRequest {
    let paths = part.paths.iter().map(|path| (*path).to_owned()).collect();
    pb::PatchLinkRequest {
        direction: direction as i32,
        pipe: Some(part.pipe.clone()),
        mask: Some(prost_types::FieldMask { paths }),
        ..Default::default()
    }
}

/// A step in words, `shift_ns` later than its timeline has it.
pub(super) fn planned(item: &Item, shift_ns: u64) -> pb::PlannedStep {
    let Item { index, at_ns, label, action } = item;
    let (index, after_ns) = (*index, at_ns.saturating_add(shift_ns));
    pb::PlannedStep { index, after_ns, label: label.clone(), action: action.to_string() }
}

/// Makes the first steps on paper, from a link: what cannot be is told before it starts.
/// Whether there is memory and time for each is not: that is the dataplane's to say.
pub(super) fn rehearse(
    timeline: Timeline,
    mut link: Option<pb::Profile>,
    profiles: &BTreeMap<String, pb::Profile>,
) -> Result<(), Status> {
    for (index, item) in timeline.take(TRIED).enumerate() {
        let refuse = |why: &str| {
            let message = format!("step {index} cannot be: {}", refusal::clip(why));
            refusal::field("scenario", message)
        };
        let item = item.map_err(|error| refuse(&error.to_string()))?;
        let edit = Edit::of(&item.action, profiles).map_err(|found| refuse(&found.to_string()))?;
        if let Some(edit) = edit {
            link = Some(edit.link(link).map_err(|status| refuse(status.message()))?);
        }
    }
    Ok(())
}
