// SPDX-License-Identifier: Apache-2.0
//! Changes to parts of a link: a field mask, read once and applied to one or both
//! pipes.

use profile::{PATCHED, Part, Violations, format_size, nearest, validate};
use prost_types::FieldMask;
use proto::linkemu::v1 as pb;

/// What a mask may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Rate,
    RateTrace,
    Overhead,
    LinkLayer,
    PacketLoss,
    GilbertElliott,
    FourStateLoss,
    DropRun,
    Duplicate,
    Corrupt,
    Reorder,
    Queue,
    QueueLimit,
    RandomDrop,
    Red,
    CoDel,
    Pie,
    Ecn,
    Outages,
    Fade,
    Delay,
    DelayBase,
    DelaySlot,
    Body,
    Excursions,
}

const FIELDS: [(&str, Field); 25] = [
    ("rate_bps", Field::Rate),
    ("rate_trace", Field::RateTrace),
    ("overhead_bytes", Field::Overhead),
    ("link_layer", Field::LinkLayer),
    ("packet_loss", Field::PacketLoss),
    ("gilbert_elliott", Field::GilbertElliott),
    ("four_state_loss", Field::FourStateLoss),
    ("drop_run", Field::DropRun),
    ("duplicate", Field::Duplicate),
    ("corrupt", Field::Corrupt),
    ("reorder", Field::Reorder),
    ("queue", Field::Queue),
    ("queue.limit_bytes", Field::QueueLimit),
    ("queue.random_drop", Field::RandomDrop),
    ("queue.red", Field::Red),
    ("queue.codel", Field::CoDel),
    ("queue.pie", Field::Pie),
    ("queue.ecn", Field::Ecn),
    ("outages", Field::Outages),
    ("fade", Field::Fade),
    ("delay", Field::Delay),
    ("delay.base_ns", Field::DelayBase),
    ("delay.slot_ns", Field::DelaySlot),
    ("delay.body", Field::Body),
    ("delay.excursions", Field::Excursions),
];

/// Paths of a mask; more name something twice.
const PATHS: usize = 32;

/// A checked request: which fields of which pipes become what.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    forward: bool,
    back: bool,
    fields: Vec<Field>,
    values: pb::Pipe,
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
        let fields = fields(&mut found, request.mask.as_ref());
        let Some(values) = request.pipe.clone() else {
            found.push("pipe", "missing: give the new values of what the mask names");
            return Err(found);
        };
        // A part whose message is absent would silently become zero.
        for (field, parent, present) in [
            (Field::QueueLimit, "pipe.queue", values.queue.is_some()),
            (Field::Ecn, "pipe.queue", values.queue.is_some()),
            (Field::DelayBase, "pipe.delay", values.delay.is_some()),
            (Field::DelaySlot, "pipe.delay", values.delay.is_some()),
        ] {
            if fields.contains(&field) && !present {
                found.push(parent, "missing, though the mask names a part of it: give it");
            }
        }
        found.into_result()?;
        Ok(Self { forward, back, fields, values })
    }
}

fn fields(found: &mut Violations, mask: Option<&FieldMask>) -> Vec<Field> {
    let names = || FIELDS.iter().map(|(name, _)| *name);
    let paths = mask.map_or(&[][..], |mask| &mask.paths);
    if paths.is_empty() {
        let all = names().collect::<Vec<_>>().join(", ");
        found.push("mask", format!("names nothing to change: name some of {all}"));
    }
    if paths.len() > PATHS {
        found.push("mask", format!("{} paths are more than {PATHS}: name each once", paths.len()));
        return Vec::new();
    }
    let mut fields = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        match FIELDS.iter().find(|(name, _)| name == path) {
            Some((_, field)) => fields.push(*field),
            None => {
                let near = nearest(path, names()).unwrap_or("rate_bps");
                let path = crate::refusal::clip(path);
                let message = format!("{path:?} is no part of a pipe: the nearest is {near:?}");
                found.push(format!("mask.paths[{i}]"), message);
            }
        }
    }
    fields
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
                self.change(pipe);
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
        let arms = self.names(Field::DropRun);
        (arms && self.forward, arms && self.back)
    }

    /// What cannot stay beside a value that is given, and is not named by the mask,
    /// goes: a rate trace beside a rate and the other way round, a fade without outages,
    /// another model of the same.
    fn change(&self, pipe: &mut pb::Pipe) {
        let values = &self.values;
        let delay = values.delay.clone().unwrap_or_default();
        for field in &self.fields {
            match field {
                Field::Rate => {
                    pipe.rate_bps = values.rate_bps;
                    if !self.names(Field::RateTrace) {
                        pipe.rate_trace = None;
                    }
                }
                Field::RateTrace => {
                    pipe.rate_trace = values.rate_trace.clone();
                    if pipe.rate_trace.is_some() && !self.names(Field::Rate) {
                        pipe.rate_bps = None;
                    }
                }
                Field::Overhead => pipe.overhead_bytes = values.overhead_bytes,
                Field::LinkLayer => pipe.link_layer = values.link_layer,
                Field::PacketLoss => {
                    pipe.packet_loss = values.packet_loss;
                    self.replace_losses(pipe, pipe.packet_loss != 0.0);
                }
                Field::GilbertElliott => {
                    pipe.gilbert_elliott = values.gilbert_elliott;
                    self.replace_losses(pipe, pipe.gilbert_elliott.is_some());
                }
                Field::FourStateLoss => {
                    pipe.four_state_loss = values.four_state_loss;
                    self.replace_losses(pipe, pipe.four_state_loss.is_some());
                }
                Field::DropRun => pipe.drop_run = values.drop_run,
                Field::Duplicate => pipe.duplicate = values.duplicate,
                Field::Corrupt => pipe.corrupt = values.corrupt,
                Field::Reorder => pipe.reorder = values.reorder,
                Field::Queue => pipe.queue = values.queue,
                Field::QueueLimit => {
                    let limit = values.queue.unwrap_or_default().limit_bytes;
                    pipe.queue.get_or_insert_default().limit_bytes = limit;
                }
                Field::RandomDrop | Field::Red | Field::CoDel | Field::Pie | Field::Ecn => {
                    let values = values.queue.unwrap_or_default();
                    self.change_aqm(*field, pipe.queue.get_or_insert_default(), &values);
                }
                Field::Outages => {
                    pipe.outages = values.outages.clone();
                    if pipe.outages.is_empty() && !self.names(Field::Fade) {
                        pipe.fade = None;
                    }
                }
                Field::Fade => pipe.fade = values.fade,
                Field::Delay => pipe.delay = values.delay.clone(),
                Field::DelayBase => pipe.delay.get_or_insert_default().base_ns = delay.base_ns,
                Field::DelaySlot => pipe.delay.get_or_insert_default().slot_ns = delay.slot_ns,
                Field::Body => pipe.delay.get_or_insert_default().body = delay.body.clone(),
                Field::Excursions => {
                    pipe.delay.get_or_insert_default().excursions = delay.excursions.clone();
                }
            }
        }
        // With the last AQM the marks go.
        let aqms = [Field::RandomDrop, Field::Red, Field::CoDel, Field::Pie];
        if let Some(queue) = &mut pipe.queue
            && aqms.into_iter().any(|aqm| self.names(aqm))
            && !self.names(Field::Ecn)
            && !queue.has_aqm()
        {
            queue.ecn = false;
        }
    }

    /// Of the AQMs one that is given replaces those that the mask does not name.
    fn change_aqm(&self, field: Field, queue: &mut pb::Queue, values: &pb::Queue) {
        match field {
            Field::RandomDrop => queue.random_drop = values.random_drop,
            Field::Red => queue.red = values.red,
            Field::CoDel => queue.codel = values.codel,
            Field::Pie => queue.pie = values.pie,
            _ => queue.ecn = values.ecn,
        }
        let given = [
            queue.random_drop.is_some() && field == Field::RandomDrop,
            queue.red.is_some() && field == Field::Red,
            queue.codel.is_some() && field == Field::CoDel,
            queue.pie.is_some() && field == Field::Pie,
        ];
        if given.contains(&true) {
            let keeps = |other| field == other || self.names(other);
            queue.random_drop = queue.random_drop.filter(|_| keeps(Field::RandomDrop));
            queue.red = queue.red.filter(|_| keeps(Field::Red));
            queue.codel = queue.codel.filter(|_| keeps(Field::CoDel));
            queue.pie = queue.pie.filter(|_| keeps(Field::Pie));
        }
    }

    /// Of the models of loss per packet, one that is given replaces those that the mask does
    /// not name.
    fn replace_losses(&self, pipe: &mut pb::Pipe, given: bool) {
        if !given {
            return;
        }
        if !self.names(Field::PacketLoss) {
            pipe.packet_loss = 0.0;
        }
        if !self.names(Field::GilbertElliott) {
            pipe.gilbert_elliott = None;
        }
        if !self.names(Field::FourStateLoss) {
            pipe.four_state_loss = None;
        }
    }

    fn names(&self, field: Field) -> bool {
        self.fields.contains(&field)
    }

    /// A limit below the threshold in force is refused in words that fit: the
    /// threshold is none of the request's values.
    fn check_threshold(&self, found: &mut Violations, path: &str, pipe: &pb::Pipe) {
        let given = [Field::Queue, Field::RandomDrop, Field::Red];
        let Some(queue) = &pipe.queue else { return };
        let random_drop = queue.random_drop.map(|drop| ("random drop", drop.threshold_bytes));
        let red = queue.red.map(|red| ("RED", red.max_bytes));
        let Some((name, threshold)) = random_drop.or(red) else { return };
        if threshold > queue.limit_bytes
            && self.names(Field::QueueLimit)
            && !given.iter().any(|field| self.names(*field))
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
