// SPDX-License-Identifier: Apache-2.0
//! The plans of a link: the current one, those that pending changes will make current, and the
//! answers to requests that are known.

use crate::{
    Current, Entry, Journal, Keys, Made, Request, Reused, Schedule, Source, Terms, changed,
};
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard, watch};

/// Changes with a key that are known.
const KEYS: usize = 1024;

#[derive(Debug)]
pub struct Plans {
    pub current: Current,
    pub schedule: Schedule,
    known: Keys<Made>,
    journal: Journal<Entry>,
    /// Generation of the last change that no scenario made.
    others: watch::Sender<u64>,
}

impl Plans {
    /// Events of changes go to `journal`, generations of those that the scenario did not make to `others`.
    #[must_use]
    pub fn new(current: Current, journal: Journal<Entry>, others: watch::Sender<u64>) -> Self {
        Self { current, schedule: Schedule::default(), known: Keys::new(KEYS), journal, others }
    }

    /// The plan that will be current at an instant, with its generation.
    #[must_use]
    pub fn tip(&self, at_ns: u64) -> &Current {
        self.schedule.tip(at_ns).unwrap_or(&self.current)
    }

    /// The answer to the same request, if it was made before.
    ///
    /// # Errors
    /// [`Reused`].
    pub fn find(&self, request: &Request) -> Result<Option<Made>, Reused> {
        let known = self.known.find(request)?;
        Ok(known.map(|made| Made { repeated: true, ..made.clone() }))
    }

    /// Makes a plan that was applied the current one.
    pub fn enter(&mut self, next: Current, terms: Terms) -> Made {
        let entry = terms.source.cause().map(|it| changed(it, &next.plan, &next.applied));
        let sequence = entry.map_or(0, |entry| self.journal.push(|_| entry));
        if let Source::Controller(_) = terms.source {
            self.others.send_replace(next.applied.generation);
        }
        self.current = next;
        let Current { plan, applied, remarks } = self.current.clone();
        let made = Made { applied, remarks, repeated: false, plan: Some(Arc::new(plan)), sequence };
        self.known.keep_with_plan(terms.request, made.clone(), |made| &mut made.plan);
        made
    }
}

/// The plans of a link, and who is told of changes.
#[derive(Debug)]
pub struct History {
    plans: Mutex<Plans>,
    journal: Journal<Entry>,
    /// Generation of the last change that no scenario made.
    others: watch::Sender<u64>,
}

impl History {
    #[must_use]
    pub fn new(current: Current) -> Self {
        let (journal, others) = (Journal::default(), watch::Sender::new(0));
        let plans = Mutex::new(Plans::new(current, journal.clone(), others.clone()));
        Self { plans, journal, others }
    }

    /// The plans, also while a change is late. Without a change in progress: [`crate::Changes::settled`].
    pub async fn plans(&self) -> MutexGuard<'_, Plans> {
        self.plans.lock().await
    }

    /// The same, unless a change is in progress.
    #[must_use]
    pub fn plans_now(&self) -> Option<MutexGuard<'_, Plans>> {
        self.plans.try_lock().ok()
    }

    /// Events of the link.
    #[must_use]
    pub fn journal(&self) -> &Journal<Entry> {
        &self.journal
    }

    /// The generation of the last change that no scenario made, and each change of it.
    #[must_use]
    pub fn other_changes(&self) -> watch::Receiver<u64> {
        self.others.subscribe()
    }
}
