// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.History`: past and current totals of links.

use crate::history::{COARSE, FINE, History};
use crate::links::Links;
use crate::refusal;
use crate::watching::{Messages, Watching};
use futures_util::stream::unfold;
use proto::link_id;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::history_server;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// Intervals of WatchLinks: 100 ms to 1 h.
const WATCH_NS: std::ops::RangeInclusive<u64> = 100_000_000..=3_600_000_000_000;
/// Links that one watcher may name.
const LINKS: usize = 64;

pub(crate) struct HistoryService {
    pub links: Links,
    pub history: History,
    pub watching: Watching,
}

/// The last message of a watcher.
struct Last {
    round: u64,
    sent: Option<Instant>,
}

#[tonic::async_trait]
impl history_server::History for HistoryService {
    async fn get_history(
        &self,
        request: Request<pb::GetHistoryRequest>,
    ) -> Result<Response<pb::GetHistoryResponse>, Status> {
        let pb::GetHistoryRequest { interval_ns, after_ns, link } = request.into_inner();
        // A link that is not there is an error, one without samples is not.
        let control = self.links.control(&link)?;
        let is_fine = match Duration::from_nanos(interval_ns) {
            Duration::ZERO | COARSE => false,
            FINE => true,
            _ => return Err(refusal::field("interval_ns", "give 1 s, 100 ms, or 0 for 1 s")),
        };
        let samples = self.history.of(control.name(), is_fine, after_ns);
        Ok(Response::new(pb::GetHistoryResponse { samples }))
    }

    type WatchLinksStream = Messages<pb::WatchLinksResponse>;

    async fn watch_links(
        &self,
        request: Request<pb::WatchLinksRequest>,
    ) -> Result<Response<Self::WatchLinksStream>, Status> {
        let watch = self.watching.begin(&request)?;
        let pb::WatchLinksRequest { interval_ns, links } = request.into_inner();
        let interval = match interval_ns {
            0 => COARSE,
            ns if WATCH_NS.contains(&ns) => Duration::from_nanos(ns),
            ns => {
                let message = format!(
                    "{} is outside of 100 ms to 1 h: give one within, or 0 for 1 s",
                    profile::format_duration(ns)
                );
                return Err(refusal::field("interval_ns", message));
            }
        };
        if links.len() > LINKS {
            let message = format!("{} are more than {LINKS}: name none for all", links.len());
            return Err(refusal::field("links", message));
        }
        for link in &links {
            self.links.named(link)?;
        }
        let links: BTreeSet<String> = links.iter().map(|link| link_id(link).to_owned()).collect();
        let links = Arc::new(links);
        let history = self.history.clone();
        let mut rounds = history.rounds();
        let watcher = history.watch(interval);
        let last = Last { round: 0, sent: None };
        // The first message has what there is.
        rounds.mark_changed();
        let state = (history, watcher, rounds, last);
        let samples = unfold(state, move |(history, watcher, mut rounds, mut last)| {
            let links = links.clone();
            async move {
                loop {
                    rounds.changed().await.ok()?;
                    let (round, now) = (*rounds.borrow_and_update(), Instant::now());
                    // A little early, so that a round that comes early is not left out.
                    let early = FINE / 2;
                    if last.sent.is_some_and(|sent| now.duration_since(sent) + early < interval) {
                        continue;
                    }
                    let samples = history.since(last.round).into_iter();
                    let is_asked = |name: &String| links.is_empty() || links.contains(name);
                    let samples = samples.filter(|(name, _)| is_asked(name));
                    let samples: Vec<_> = samples.map(|(_, sample)| sample).collect();
                    if !samples.is_empty() {
                        last = Last { round, sent: Some(now) };
                        let message = Ok(pb::WatchLinksResponse { samples });
                        return Some((message, (history, watcher, rounds, last)));
                    }
                }
            }
        });
        Ok(watch.answer(samples))
    }
}
