// SPDX-License-Identifier: Apache-2.0
//! Changes to parts of a link: a request, checked once and applied to one or both pipes.

use profile::{PATCHED, Part, Violations, format_size, validate};
use prost_types::FieldMask;
use proto::linkemu::v1 as pb;

/// A checked request: what becomes of which pipes.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    forward: bool,
    back: bool,
    change: profile::Patch,
}

impl TryFrom<&pb::PatchLinkRequest> for Patch {
    type Error = Violations;

    fn try_from(request: &pb::PatchLinkRequest) -> Result<Self, Violations> {
        let mut found = Violations::default();
        let (forward, back) = match pb::Direction::try_from(request.direction) {
            Ok(pb::Direction::Forward) => (true, false),
            Ok(pb::Direction::Return) => (false, true),
            Ok(pb::Direction::Unspecified) => (true, true),
            Err(_) => {
                let given = request.direction;
                found.push(
                    "direction",
                    format!(
                        "{given} is no direction: give forward (1), return (2), or none for both"
                    ),
                );
                (false, false)
            }
        };
        if !request.toml.is_empty() {
            if request.pipe.is_some() || request.mask.is_some() {
                found.push("toml", "given beside `pipe` or `mask`: give one or the other");
            }
            found.into_result()?;
            let part = Part::from_toml(&request.toml)?;
            let mask = FieldMask { paths: part.paths.iter().map(ToString::to_string).collect() };
            return Self::try_from(&pb::PatchLinkRequest {
                direction: request.direction,
                pipe: Some(part.pipe),
                mask: Some(mask),
                ..Default::default()
            });
        }
        let paths = request.mask.as_ref().map_or(&[][..], |mask| &mask.paths);
        if request.pipe.is_none() {
            found.push("pipe", "missing: give the new values of what the mask names");
        }
        let values = request.pipe.clone().unwrap_or_default();
        match profile::Patch::new(&values, paths) {
            Ok(change) if found.is_empty() => Ok(Self { forward, back, change }),
            Ok(_) => Err(found),
            Err(more) => {
                // Without a pipe all that is in it is missing.
                let more = more
                    .into_iter()
                    .filter(|it| request.pipe.is_some() || !it.path.starts_with("pipe."));
                more.for_each(|it| found.push(it.path, it.message));
                Err(found)
            }
        }
    }
}

impl Patch {
    /// The link with the patch applied, its name marked and without a provenance, if
    /// that is valid.
    pub fn apply(&self, link: &pb::Profile) -> Result<pb::Profile, Violations> {
        let mut link = link.clone();
        let mut found = Violations::default();
        for (chosen, path, pipe) in [
            (self.forward, "forward", &mut link.forward_pipe),
            (self.back, "return", &mut link.return_pipe),
        ] {
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
        // It is not the link that was fitted.
        link.provenance = None;
        validate(&link)?;
        Ok(link)
    }

    /// The pipes, forward and return, whose drop run begins anew: to name it arms it, also
    /// where it is the one in force.
    pub fn arms(&self) -> (bool, bool) {
        let arms = self.change.names("drop_run");
        (arms && self.forward, arms && self.back)
    }

    /// A limit below the threshold in force is refused in words that fit: the
    /// threshold is none of the request's values.
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
                "{} is below the threshold of {name} in force, {}: set both, limit and threshold, \
                 or ask for tail drop",
                format_size(queue.limit_bytes),
                format_size(threshold)
            );
            found.push(format!("{path}.queue.limit"), message);
        }
    }
}
