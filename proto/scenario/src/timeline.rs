// SPDX-License-Identifier: Apache-2.0
//! The expansion of a scenario: its steps one after the other, each when it is asked for.
//!
//! The timeline follows the values that ramps begin at, so that every change that it gives
//! is whole. Instants never go back. A wait is taken to last no time: who waits adds what
//! it took to all that follows.

use crate::Scenario;
use crate::ramp::{Begun, Ramp, RampError};
use crate::step::{Action, Links, Step, What, When};
use profile::Part;
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A step of the timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// From 0.
    pub index: u64,
    /// From the start.
    pub at_ns: u64,
    /// Label from the file; may be empty.
    pub label: String,
    pub action: Action,
    /// Changes of other links at the same instant.
    pub links: Links,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let only_links = self.action == Action::Mark && !self.links.is_empty();
        let own = (!only_links).then(|| self.action.to_string());
        let links = self.links.iter().map(|(name, action)| format!("{name}: {action}"));
        let words: Vec<_> = own.into_iter().chain(links).collect();
        f.write_str(&words.join("; "))
    }
}

/// Steps that are being gone through.
#[derive(Clone, Debug)]
struct Frame {
    step: Arc<[Step]>,
    next: usize,
    /// The beginning of this pass, and the end of its last step.
    begin_ns: u64,
    end_ns: u64,
    /// Passes after this one; none: without end.
    left: Option<u64>,
}

/// A ramp that is being gone through.
#[derive(Clone, Debug)]
struct Ramping {
    ramp: Arc<Ramp>,
    begun: Begun,
    begin_ns: u64,
    label: String,
    next: u64,
}

/// The steps of a scenario, ascending by time. A clone looks ahead without moving it. After an
/// error there are no more steps.
#[derive(Clone, Debug)]
pub struct Timeline {
    frames: Vec<Frame>,
    ramping: Option<Ramping>,
    index: u64,
    /// Ramps so far that began at the current value of the link.
    ramps: u64,
    profiles: Arc<BTreeMap<String, pb::Profile>>,
    forward: Option<pb::Pipe>,
    back: Option<pb::Pipe>,
}

impl Timeline {
    /// The timeline of a scenario that begins at a link, with the profiles that it sets. After any
    /// other profile, ramps have no known first value.
    pub fn new(
        scenario: &Scenario,
        link: Option<&pb::Profile>,
        profiles: Arc<BTreeMap<String, pb::Profile>>,
    ) -> Self {
        let step = Arc::clone(&scenario.step);
        let frame = Frame { step, next: 0, begin_ns: 0, end_ns: 0, left: Some(0) };
        let mut timeline = Self {
            frames: vec![frame],
            ramping: None,
            index: 0,
            ramps: 0,
            profiles,
            forward: None,
            back: None,
        };
        timeline.observe(link);
        timeline
    }

    /// Another caller has changed the link: later ramps begin at its values.
    pub fn observe(&mut self, link: Option<&pb::Profile>) {
        let scalars = |pipe: Option<&pb::Pipe>| pipe.map(scalars);
        self.forward = scalars(link.and_then(|link| link.forward_pipe.as_ref()));
        self.back = scalars(link.and_then(|link| link.return_pipe.as_ref()));
    }

    /// Index of the next item.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Whether the next item begins a ramp at the current value of the link.
    pub fn begins_ramp(&self) -> bool {
        let mut ahead = self.clone();
        ahead.next();
        ahead.ramps > self.ramps
    }

    fn item(&mut self, at_ns: u64, label: String, action: Action, links: Links) -> Item {
        match &action {
            Action::Profile(name) => {
                let profiles = Arc::clone(&self.profiles);
                self.observe(profiles.get(name));
            }
            Action::Patch(parts) => {
                follow(&mut self.forward, parts.forward.as_ref());
                follow(&mut self.back, parts.back.as_ref());
            }
            Action::Mark | Action::Wait(_) => {}
        }
        let index = self.index;
        self.index += 1;
        Item { index, at_ns, label, action, links }
    }

    fn ramp(&mut self) -> Option<Item> {
        let ramping = self.ramping.as_mut()?;
        let Ramping { ramp, begun, begin_ns, label, next } = ramping;
        let (k, label) = (*next, label.clone());
        let at_ns = begin_ns.saturating_add(ramp.after_ns(k));
        let action = Action::Patch(Arc::new(ramp.parts(begun, k)));
        *next += 1;
        if k >= ramp.steps {
            self.ramping = None;
        }
        Some(self.item(at_ns, label, action, Links::default()))
    }
}

impl Iterator for Timeline {
    type Item = Result<Item, RampError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.ramp() {
                return Some(Ok(item));
            }
            let frame = self.frames.last_mut()?;
            let Some(step) = frame.step.get(frame.next).cloned() else {
                let end = frame.end_ns;
                if frame.left == Some(0) {
                    self.frames.pop();
                    if let Some(outer) = self.frames.last_mut() {
                        outer.end_ns = end;
                    }
                } else {
                    frame.left = frame.left.map(|left| left - 1);
                    (frame.next, frame.begin_ns) = (0, end);
                }
                continue;
            };
            frame.next += 1;
            let at = match step.when {
                When::At(at) => frame.begin_ns.saturating_add(at),
                When::After(after) => frame.end_ns.saturating_add(after),
            };
            frame.end_ns = at;
            match step.what {
                What::One(action) => {
                    return Some(Ok(self.item(at, step.label, action, step.links)));
                }
                What::Ramp(ramp) => {
                    frame.end_ns = at.saturating_add(ramp.over_ns);
                    match ramp.begin(self.forward.as_ref(), self.back.as_ref()) {
                        Ok(begun) => {
                            let next = u64::from(ramp.from.is_none());
                            self.ramps += next;
                            let label = step.label;
                            self.ramping = Some(Ramping { ramp, begun, begin_ns: at, label, next });
                        }
                        Err(error) => {
                            self.frames.clear();
                            return Some(Err(error));
                        }
                    }
                }
                What::Repeat { times, step } => {
                    let left = times.map(|times| times.saturating_sub(1));
                    self.frames.push(Frame { step, next: 0, begin_ns: at, end_ns: at, left });
                }
            }
        }
    }
}

/// The values of a pipe that ramps can begin at.
fn scalars(pipe: &pb::Pipe) -> pb::Pipe {
    pb::Pipe {
        rate_bps: pipe.rate_bps,
        // Whether there is one.
        rate_trace: pipe.rate_trace.as_ref().map(|_| pb::RateTrace::default()),
        packet_loss: pipe.packet_loss,
        queue: pipe.queue.map(|queue| pb::Queue { random_drop: None, ..queue }),
        delay: pipe.delay.as_ref().map(|delay| pb::Delay {
            base_ns: delay.base_ns,
            slot_ns: delay.slot_ns,
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Lets values follow a change.
fn follow(pipe: &mut Option<pb::Pipe>, part: Option<&Part>) {
    let Some(Part { pipe: values, paths }) = part else { return };
    let pipe = pipe.get_or_insert_default();
    for path in paths {
        let delay = || values.delay.clone().unwrap_or_default();
        match *path {
            "rate_bps" => (pipe.rate_bps, pipe.rate_trace) = (values.rate_bps, None),
            "rate_trace" => pipe.rate_trace = Some(pb::RateTrace::default()),
            "packet_loss" => pipe.packet_loss = values.packet_loss,
            "queue.limit_bytes" => {
                let limit_bytes = values.queue.unwrap_or_default().limit_bytes;
                pipe.queue = Some(pb::Queue { limit_bytes, ..Default::default() });
            }
            "delay.base_ns" => pipe.delay.get_or_insert_default().base_ns = delay().base_ns,
            "delay.slot_ns" => pipe.delay.get_or_insert_default().slot_ns = delay().slot_ns,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_has_changes_of_other_links_and_names_them() {
        let text = "name = \"it\"\n[[step]]\nrepeat = 2\n[[step.step]]\nprofile = \"lte\"\n\
                    links.b.both.rate = \"5 Mbit/s\"\nlinks.a.profile = \"geo-600\"\n\
                    [[step.step]]\nafter = \"1 s\"\nlinks.a.profile = \"starlink\"\n";
        let scenario = Scenario::from_toml(text).unwrap();
        assert_eq!(scenario.links().into_iter().collect::<Vec<_>>(), ["a", "b"]);
        let mut profiles = scenario.profiles();
        profiles.sort_unstable();
        assert_eq!(profiles, ["geo-600", "lte", "starlink"]);
        let items: Result<Vec<_>, _> = Timeline::new(&scenario, None, Arc::default()).collect();
        let words: Vec<_> = items.unwrap().iter().map(ToString::to_string).collect();
        let first = "profile lte; a: profile geo-600; b: both: rate 5 Mbit/s";
        assert_eq!(words, [first, "a: profile starlink", first, "a: profile starlink"]);
    }
}
