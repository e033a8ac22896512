// SPDX-License-Identifier: Apache-2.0
//! A scrape: its requests to the dataplane, its deadline, and how concurrent scrapes share it.

use super::clients::Choice;
use super::export::{self, OfLink, Scrape};
use super::steady::Steady;
use crate::links::Links;
use hyper::body::Bytes;
use proto::MAIN_LINK;
use proto::dataplane::v1 as dp;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use tonic::Status;

/// For the dataplane's answers; less than the 10 s after which Prometheus gives up.
const DEADLINE: Duration = Duration::from_secs(3);

type Shared = OnceCell<Result<Bytes, fmt::Error>>;

pub(super) struct Scraper {
    links: Links,
    /// Clients of each link that are exported each for itself.
    clients: usize,
    /// The scrape in work, if there is one.
    current: Mutex<Weak<Shared>>,
    kept: Mutex<Kept>,
}

/// State between two scrapes.
struct Kept {
    /// By link.
    choices: HashMap<String, Choice>,
    steady: Steady,
    /// Whether the dataplane answered, if it was ever asked.
    up: Option<bool>,
}

impl Scraper {
    /// Up to `clients` clients of each link are exported each for itself.
    pub fn new(links: Links, clients: usize) -> Self {
        let kept = Kept { choices: HashMap::new(), steady: Steady::default(), up: None };
        Self { links, clients, current: Mutex::new(Weak::new()), kept: Mutex::new(kept) }
    }

    /// The metrics. Concurrent scrapes share one answer.
    ///
    /// # Errors
    /// If they cannot be written.
    pub async fn scrape(&self) -> Result<Bytes, fmt::Error> {
        let shared = self.shared();
        shared.get_or_init(|| self.gather()).await.clone()
    }

    /// A scrape that has not ended.
    fn shared(&self) -> Arc<Shared> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scrape) = current.upgrade().filter(|scrape| !scrape.initialized()) {
            return scrape;
        }
        let scrape = Arc::new(Shared::new());
        *current = Arc::downgrade(&scrape);
        scrape
    }

    async fn gather(&self) -> Result<Bytes, fmt::Error> {
        let start = Instant::now();
        let main = &self.links.main().control;
        let dataplane = main.dataplane();
        let asked = async {
            let stats = dataplane.stats(false).await?;
            // Labels, without which the scrape still succeeds.
            let plan = dataplane.plan().await.ok();
            let mut links = vec![(MAIN_LINK.to_owned(), stats, plan)];
            for (name, lane) in self.links.others() {
                // One that was removed meanwhile has no figures.
                let dataplane = lane.control.dataplane();
                if let Ok(stats) = dataplane.own_stats(false).await {
                    links.push((name, stats, dataplane.plan().await.ok()));
                }
            }
            Ok((links, dataplane.describe().await.ok()))
        };
        let answer = match tokio::time::timeout(DEADLINE, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::deadline_exceeded(format!(
                "the dataplane did not answer within {DEADLINE:?}"
            ))),
        };
        let switch = dataplane.switches().look().await;
        let saver = main.saver();
        let is_saved = saver.has_directory().then(|| saver.failure().borrow().is_none());
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.note(&answer);
        let scrape = match answer {
            Err(_) => {
                let seconds = start.elapsed().as_secs_f64();
                Scrape { switch, is_saved, seconds, ..Scrape::default() }
            }
            Ok((links, description)) => {
                kept.choices.retain(|name, _| links.iter().any(|(link, ..)| link == name));
                let links = links.into_iter().map(|(name, mut stats, plan)| {
                    if switch.is_some() && name == MAIN_LINK {
                        kept.steady.hold(&mut stats);
                    }
                    let choice = kept.choices.entry(name.clone());
                    let choice = choice.or_insert_with(|| Choice::new(self.clients));
                    let exact = stats.sums().exact;
                    let stats = choice.reduce(stats);
                    OfLink { name, stats, exact, plan: plan.and_then(|answer| answer.plan) }
                });
                let links = links.collect();
                let dp::DescribeResponse { version, dpdk, .. } = description.unwrap_or_default();
                let seconds = start.elapsed().as_secs_f64();
                Scrape { links, version, dpdk, switch, is_saved, seconds }
            }
        };
        drop(kept);
        export::text(scrape).map(Bytes::from)
    }
}

impl Kept {
    /// Says when the dataplane begins or ceases to answer, once each.
    fn note<T>(&mut self, answer: &Result<T, Status>) {
        let up = answer.is_ok();
        match (self.up.replace(up), answer) {
            (Some(false), Ok(_)) => tracing::info!("metrics: the dataplane answers again"),
            (None | Some(true), Err(status)) => {
                tracing::warn!(why = status.message(), "metrics without the dataplane");
            }
            _ => {}
        }
    }
}
