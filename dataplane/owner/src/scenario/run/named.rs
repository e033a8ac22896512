// SPDX-License-Identifier: Apache-2.0
//! The other links that a scenario changes.
//!
//! A step that names links changes them and the scenario's own link at one instant, or none. It
//! cannot be withdrawn: it is handed over alone, [`LINKS_LEAD_NS`] before its instant.

use super::{Halt, Run, Way, joined};
use crate::{Changes, Current, Link, LinkChange, Made, Refusal, Source, Terms, stale_message};
use proto::dataplane::v1 as dp;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;
use tokio::sync::watch;

/// Time to compile the plans of all links. The links accept no other change meanwhile.
pub(super) const LINKS_LEAD_NS: u64 = 50_000_000;

/// Another link that the scenario changes.
pub(in crate::scenario) struct Named<L> {
    link: L,
    /// Generation of the last change by another caller.
    others: watch::Receiver<u64>,
    /// After the last step that was applied.
    generation: u64,
    /// The link before the scenario.
    before: Current,
}

impl<L: Link> Named<L> {
    /// A link as it is before the scenario.
    pub async fn new(link: L) -> Self {
        let others = link.history().other_changes();
        let before = link.current().await;
        Self { generation: before.applied.generation, link, others, before }
    }
}

/// A step's results: of the scenario's own link, and of others by name.
#[derive(Debug)]
pub(super) struct Outcome {
    pub own: Made,
    pub named: Vec<(String, Made)>,
}

impl From<Made> for Outcome {
    fn from(own: Made) -> Self {
        Self { own, named: Vec::new() }
    }
}

/// Waits for a change of a named link by another caller.
pub(super) async fn changed<L>(named: &mut BTreeMap<String, Named<L>>) {
    let changes = named.values_mut().map(|named| Box::pin(named.others.changed()));
    let mut changes: Vec<_> = changes.collect();
    poll_fn(|context| {
        match changes.iter_mut().any(|change| change.as_mut().poll(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

impl<L: Link> Run<L> {
    /// Hands over a change of the own link together with those of others.
    pub(super) fn send_links(&self, step: &dp::Step, own: dp::Change, at_ns: u64) -> Way {
        let cause = {
            let state = self.state.borrow();
            let what = format!("scenario {}, step {}", state.name, step.index);
            dp::Cause { what, who: state.who.clone(), ..Default::default() }
        };
        let lossy = self.options.lossy;
        let (mut names, mut changes) = (
            Vec::new(),
            vec![LinkChange {
                link: self.link.clone(),
                change: own,
                terms: Terms {
                    expected: Some(self.progress.generation),
                    lossy,
                    ..Terms::of(Source::Scenario)
                },
            }],
        );
        for dp::StepLink { link: name, change } in &step.links {
            let Some(Named { link, generation, .. }) = self.named.get(name) else { continue };
            names.push(name.clone());
            changes.push(LinkChange {
                link: link.clone(),
                change: change.clone().unwrap_or_default(),
                terms: Terms {
                    expected: Some(*generation),
                    lossy,
                    ..Terms::of(Source::OtherScenario(cause.clone()))
                },
            });
        }
        Way::Change(tokio::spawn(async move {
            let made = L::change_links(changes, Some(at_ns)).await?;
            outcome(names, made)
        }))
    }

    /// Keeps the generations of named links after a step.
    pub(super) fn made_links(&mut self, made: &[(String, Made)]) {
        for (name, made) in made {
            if let Some(named) = self.named.get_mut(name) {
                named.generation = made.applied.generation;
            }
        }
    }

    /// Ends the scenario if another caller has changed a named link and that is not tolerated.
    pub(super) fn check_links(&self, tolerate: bool) -> Result<(), Halt> {
        for (name, named) in &self.named {
            let current = *named.others.borrow();
            if !tolerate && current > named.generation {
                return Err(Halt::because(format!(
                    "link `{name}`: {}: somebody else changed it (--tolerate-changes goes on)",
                    stale_message(named.generation, current)
                )));
            }
        }
        Ok(())
    }

    pub(super) async fn read_links(&mut self) {
        for named in self.named.values_mut() {
            named.generation = named.link.current().await.applied.generation;
        }
    }

    /// Applies the named links from before the scenario, with the change that restores the own link.
    pub(super) async fn restore_links(
        &mut self,
        own: dp::Change,
        terms: Terms,
    ) -> Result<Made, Refusal> {
        let strict = terms.expected.is_some();
        let (mut names, mut changes) =
            (Vec::new(), vec![LinkChange { link: self.link.clone(), change: own, terms }]);
        let who = self.state.borrow().who.clone();
        let cause = dp::Cause { what: "the end of a scenario".into(), who, ..Default::default() };
        for (name, Named { link, generation, before, .. }) in &self.named {
            let dp::Plan { profile, seed, .. } = before.plan.clone();
            names.push(name.clone());
            changes.push(LinkChange {
                link: link.clone(),
                change: dp::Change { profile, seed: Some(seed), ..Default::default() },
                terms: Terms {
                    expected: strict.then_some(*generation),
                    lossy: self.options.lossy || before.applied.lossy,
                    ..Terms::of(Source::OtherScenario(cause.clone()))
                },
            });
        }
        let restored = tokio::spawn(async move {
            let made = L::change_links(changes, None).await?;
            outcome(names, made)
        });
        let Outcome { own, named } = joined(restored).await?;
        self.made_links(&named);
        Ok(own)
    }
}

fn outcome(names: Vec<String>, made: Vec<Made>) -> Result<Outcome, Refusal> {
    let mut made = made.into_iter();
    let own = made.next().ok_or_else(|| Refusal::Refused("no answer".to_owned()))?;
    Ok(Outcome { own, named: names.into_iter().zip(made).collect() })
}
