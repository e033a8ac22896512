// SPDX-License-Identifier: Apache-2.0
//! The steps of a scenario, as they are written.

use crate::parts::Parts;
use crate::ramp::Ramp;
use profile::format_duration;
use proto::linkemu::v1 as pb;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// When a step begins, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// After the beginning of the steps that it is among.
    At(u64),
    /// After the end of the step before it.
    After(u64),
}

/// A step as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub when: When,
    pub label: String,
    pub what: What,
    pub links: Links,
}

/// Changes of other links at the instant of a step, by the name of the link.
pub type Links = Arc<BTreeMap<String, Action>>;

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// One step of the timeline.
    One(Action),
    /// Values one after the other.
    Ramp(Arc<Ramp>),
    /// Steps again and again; without a number, without end.
    Repeat { times: Option<u64>, step: Arc<[Step]> },
}

/// The effect of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing: it marks an instant.
    Mark,
    /// Sets a profile by name. Its random processes restart.
    Profile(String),
    /// Changes parts of the link, both directions at one instant.
    Patch(Arc<Parts>),
    /// Waits for an event, which delays all later steps.
    Wait(Wait),
}

/// A wait for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub event: pb::EventKind,
    /// The event's subject; empty: any.
    pub subject: String,
    /// For how long at most.
    pub timeout_ns: u64,
    /// Whether the scenario continues after the timeout.
    pub go_on: bool,
}

/// The name of an event's kind as scenarios write it, such as `link_changed`.
pub(crate) fn event_name(kind: pb::EventKind) -> String {
    kind.as_str_name().trim_start_matches("EVENT_KIND_").to_lowercase()
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mark => f.write_str("mark"),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::Patch(parts) => parts.fmt(f),
            Self::Wait(Wait { event, subject, timeout_ns, .. }) => {
                write!(f, "wait for {}", event_name(*event))?;
                if !subject.is_empty() {
                    write!(f, " of {subject}")?;
                }
                write!(f, ", at most {}", format_duration(*timeout_ns))
            }
        }
    }
}

/// Number and length of steps; none if endless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub steps: Option<u64>,
    pub length_ns: Option<u64>,
}

impl What {
    /// Number and length of its steps, saturating.
    pub fn extent(&self) -> Extent {
        match self {
            Self::One(_) => Extent { steps: Some(1), length_ns: Some(0) },
            Self::Ramp(ramp) => {
                Extent { steps: Some(ramp.points()), length_ns: Some(ramp.over_ns) }
            }
            Self::Repeat { times, step } => {
                let (pass, times) = (extent(step), *times);
                let all = |one: Option<u64>| Some(one?.saturating_mul(times?));
                Extent { steps: all(pass.steps), length_ns: all(pass.length_ns) }
            }
        }
    }
}

/// How much steps one after the other come to.
pub(crate) fn extent(steps: &[Step]) -> Extent {
    let nothing = Extent { steps: Some(0), length_ns: Some(0) };
    steps.iter().fold(nothing, Extent::with)
}

impl Extent {
    /// Number and length with one more step.
    pub fn with(self, step: &Step) -> Self {
        let one = step.what.extent();
        let begin = match step.when {
            When::At(at) => Some(at),
            When::After(after) => self.length_ns.map(|end| end.saturating_add(after)),
        };
        let add = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        Self { steps: add(self.steps, one.steps), length_ns: add(begin, one.length_ns) }
    }
}

/// Shows all actions that are written, each once, in their order.
pub(crate) fn each<'a>(steps: &'a [Step], show: &mut impl FnMut(&'a Action)) {
    for step in steps {
        step.links.values().for_each(&mut *show);
        match &step.what {
            What::One(action) => show(action),
            What::Ramp(_) => {}
            What::Repeat { step, .. } => each(step, show),
        }
    }
}

/// The names of all other links that steps change.
pub(crate) fn links(steps: &[Step]) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for step in steps {
        names.extend(step.links.keys().map(String::as_str));
        if let What::Repeat { step, .. } = &step.what {
            names.extend(links(step));
        }
    }
    names
}
