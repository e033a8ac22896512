// SPDX-License-Identifier: Apache-2.0
//! Merges a change into a plan. The result is validated where it is compiled.

use crate::invalid;
use profile::{PATCHED, Violations, format_size};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tonic::Status;

/// Why a change cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The change itself breaks rules.
    #[error("{0}")]
    Invalid(#[from] Violations),
    /// There is no profile that could be patched.
    #[error("no profile is set yet: set one first, such as `linkctl set profile viasat2`")]
    NoLink,
}

impl ChangeError {
    /// As the answer to a request: INVALID_ARGUMENT with the rules that `what` breaks, or
    /// FAILED_PRECONDITION.
    #[must_use]
    pub fn status(&self, what: &str) -> Status {
        match self {
            Self::Invalid(found) => invalid(what, found),
            Self::NoLink => Status::failed_precondition(self.to_string()),
        }
    }
}

/// A plan after a change, and how it is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// The plan after the change.
    pub plan: dp::Plan,
    /// The random processes start again.
    pub restart: bool,
    /// The pipes, forward and return, with a drop run that starts again.
    pub arm: [bool; 2],
}

/// The subject of a change, for messages.
#[must_use]
pub fn subject(change: &dp::Change) -> &'static str {
    match change {
        dp::Change { parts, .. } if !parts.is_empty() => "the patch",
        dp::Change { profile: None, clients: Some(_), .. } => "the list of clients",
        _ => "the profile",
    }
}

/// Merges a change into a plan.
///
/// # Errors
/// [`ChangeError`]; the plan's values are not checked.
pub fn merge(change: &dp::Change, current: dp::Plan) -> Result<Merged, ChangeError> {
    let dp::Change { profile, parts, seed, clients, restart } = change;
    let mut plan = current;
    let mut arm = [false; 2];
    let before = plan.profile.clone();
    if let Some(profile) = profile {
        plan.profile = Some(profile.clone());
    }
    for part in parts {
        let link = plan.profile.as_mut().ok_or(ChangeError::NoLink)?;
        let patch = Patch::try_from(part)?;
        patch.apply(link)?;
        for (arm, arms) in arm.iter_mut().zip(patch.arms()) {
            *arm |= arms;
        }
    }
    plan.seed = seed.unwrap_or(plan.seed);
    let renumbers = clients.as_ref().is_some_and(|new| plan.clients.as_ref() != Some(new));
    if let Some(clients) = clients {
        if plan.profile.is_none() {
            return Err(ChangeError::NoLink);
        }
        plan.clients = Some(clients.clone());
    }
    plan.offload =
        plan.offload.filter(|_| !renumbers).map(|offload| match before == plan.profile {
            true => offload,
            false => dp::Offload { epoch: offload.epoch, ..Default::default() },
        });
    Ok(Merged { plan, restart: *restart, arm })
}

/// A checked part: new values of one pipe or of both.
struct Patch {
    chosen: [bool; 2],
    change: profile::Patch,
}

impl TryFrom<&dp::Part> for Patch {
    type Error = Violations;

    fn try_from(part: &dp::Part) -> Result<Self, Violations> {
        let mut found = Violations::default();
        let chosen = match pb::Direction::try_from(part.direction) {
            Ok(pb::Direction::Forward) => [true, false],
            Ok(pb::Direction::Return) => [false, true],
            Ok(pb::Direction::Unspecified) => [true, true],
            Err(_) => {
                let given = part.direction;
                found.push(
                    "direction",
                    format!(
                        "{given} is no direction: give forward (1), return (2), or none for both"
                    ),
                );
                [false, false]
            }
        };
        let paths = part.mask.as_ref().map_or(&[][..], |mask| &mask.paths);
        if part.pipe.is_none() {
            found.push("pipe", "missing: give the new values of what the mask names");
        }
        let values = part.pipe.clone().unwrap_or_default();
        match profile::Patch::new(&values, paths) {
            Ok(change) if found.is_empty() => Ok(Self { chosen, change }),
            Ok(_) => Err(found),
            Err(more) => {
                // Without a pipe, everything in it is missing.
                let more = more
                    .into_iter()
                    .filter(|it| part.pipe.is_some() || !it.path.starts_with("pipe."));
                more.for_each(|it| found.push(it.path, it.message));
                Err(found)
            }
        }
    }
}

impl Patch {
    /// Changes a link, marks its name and removes its provenance: it is not the fitted link any
    /// longer.
    fn apply(&self, link: &mut pb::Profile) -> Result<(), Violations> {
        let mut found = Violations::default();
        let pipes = [("forward", &mut link.forward_pipe), ("return", &mut link.return_pipe)];
        for ((path, pipe), chosen) in pipes.into_iter().zip(self.chosen) {
            if chosen {
                let pipe = pipe.get_or_insert_default();
                self.change.apply(pipe);
                self.check_threshold(&mut found, path, pipe);
            }
        }
        found.into_result()?;
        if !link.name.ends_with(PATCHED) {
            link.name.push(PATCHED);
        }
        link.provenance = None;
        Ok(())
    }

    /// A mask that names the drop run arms it, also if it is the current one.
    fn arms(&self) -> [bool; 2] {
        let arms = self.change.names("drop_run");
        self.chosen.map(|chosen| arms && chosen)
    }

    /// Refuses a limit below the current threshold with a separate message, because the threshold
    /// is not in the request.
    fn check_threshold(&self, found: &mut Violations, path: &str, pipe: &pb::Pipe) {
        let given = ["queue", "queue.random_drop", "queue.red"];
        let Some(queue) = &pipe.queue else { return };
        let random_drop = queue.random_drop.map(|drop| ("random drop", drop.threshold_bytes));
        let red = queue.red.map(|red| ("RED", red.max_bytes));
        let Some((name, threshold)) = random_drop.or(red) else { return };
        if threshold > queue.limit_bytes
            && self.change.names("queue.limit_bytes")
            && !given.iter().any(|path| self.change.names(path))
        {
            let message = format!(
                "{} is below the current threshold of {name}, {}: set both, limit and threshold, \
                 or ask for tail drop",
                format_size(queue.limit_bytes),
                format_size(threshold)
            );
            found.push(format!("{path}.queue.limit"), message);
        }
    }
}

#[cfg(test)]
mod tests;
