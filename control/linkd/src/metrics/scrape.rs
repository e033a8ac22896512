// SPDX-License-Identifier: Apache-2.0
//! A scrape: its requests to the dataplane, its deadline, and how concurrent scrapes share it.

use super::clients::Choice;
use super::export::{self, Scrape};
use super::steady::Steady;
use crate::dataplane::Dataplane;
use crate::state::Saver;
use hyper::body::Bytes;
use proto::dataplane::v1 as dp;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use tonic::Status;
use view::Snapshot;

/// For the dataplane's answers; less than the 10 s after which Prometheus gives up.
const DEADLINE: Duration = Duration::from_secs(3);

type Shared = OnceCell<Result<Bytes, fmt::Error>>;

pub(super) struct Scraper {
    dataplane: Dataplane,
    saver: Saver,
    /// The scrape in work, if there is one.
    current: Mutex<Weak<Shared>>,
    kept: Mutex<Kept>,
}

/// State between two scrapes.
struct Kept {
    choice: Choice,
    steady: Steady,
    /// Whether the dataplane answered, if it was ever asked.
    up: Option<bool>,
}

impl Scraper {
    /// Up to `clients` clients are exported each for itself.
    pub fn new(dataplane: Dataplane, saver: Saver, clients: usize) -> Self {
        let kept = Kept { choice: Choice::new(clients), steady: Steady::default(), up: None };
        Self { dataplane, saver, current: Mutex::new(Weak::new()), kept: Mutex::new(kept) }
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
        let asked = async {
            let stats = self.dataplane.stats(false).await?;
            // Labels, without which the scrape still succeeds.
            Ok((stats, self.dataplane.plan().await.ok(), self.dataplane.describe().await.ok()))
        };
        let answer = match tokio::time::timeout(DEADLINE, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::deadline_exceeded(format!(
                "the dataplane did not answer within {DEADLINE:?}"
            ))),
        };
        let switch = self.dataplane.switches().look().await;
        let is_saved = self.saver.has_directory().then(|| self.saver.failure().borrow().is_none());
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.note(&answer);
        let scrape = match answer {
            Err(_) => {
                let seconds = start.elapsed().as_secs_f64();
                Scrape { switch, is_saved, seconds, ..Scrape::default() }
            }
            Ok((mut stats, plan, description)) => {
                if switch.is_some() {
                    kept.steady.hold(&mut stats);
                }
                let stats = kept.choice.reduce(Snapshot::from(stats));
                let plan = plan.and_then(|answer| answer.plan);
                let dp::DescribeResponse { version, dpdk, .. } = description.unwrap_or_default();
                let seconds = start.elapsed().as_secs_f64();
                Scrape { stats: Some(stats), plan, version, dpdk, switch, is_saved, seconds }
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
