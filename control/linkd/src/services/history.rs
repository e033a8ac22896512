// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.History`: past and current totals of links.

use crate::caller::Caller;
use crate::history::{COARSE, FINE, History};
use crate::links::Links;
use crate::refusal;
use crate::watching::Watching;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::history_server;
use proto::{LINK_METADATA, MAIN_LINK, link_id};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
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

#[tonic::async_trait]
impl history_server::History for HistoryService {
    async fn get_history(
        &self,
        request: Request<pb::GetHistoryRequest>,
    ) -> Result<Response<pb::GetHistoryResponse>, Status> {
        // A link that is not there is an error, one without samples is not.
        self.links.of(&request)?;
        let name = request.metadata().get(LINK_METADATA).and_then(|name| name.to_str().ok());
        let name = name.map_or(MAIN_LINK, link_id);
        let pb::GetHistoryRequest { interval_ns, after_ns } = *request.get_ref();
        let is_fine = match Duration::from_nanos(interval_ns) {
            Duration::ZERO | COARSE => false,
            FINE => true,
            _ => return Err(refusal::field("interval_ns", "give 1 s, 100 ms, or 0 for 1 s")),
        };
        let samples = self.history.of(name, is_fine, after_ns);
        Ok(Response::new(pb::GetHistoryResponse { samples }))
    }

    type WatchLinksStream = ReceiverStream<Result<pb::WatchLinksResponse, Status>>;

    async fn watch_links(
        &self,
        request: Request<pb::WatchLinksRequest>,
    ) -> Result<Response<Self::WatchLinksStream>, Status> {
        let permit = self.watching.permit(&Caller::of(&request))?;
        let mut stopping = self.watching.ending(&request);
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
        let history = self.history.clone();
        let mut rounds = history.rounds();
        let watcher = history.watch(interval);
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let _held = (permit, watcher);
            // The first message has what there is.
            let (mut seen, mut sent) = (0, None);
            rounds.mark_changed();
            loop {
                tokio::select! {
                    changed = rounds.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                    () = stopping.stopped() => {
                        let _ = sender.try_send(Err(stopping.status()));
                        return;
                    }
                }
                let (round, now) = (*rounds.borrow_and_update(), Instant::now());
                // A little early, so that a round that comes early is not left out.
                let early = FINE / 2;
                if sent.is_some_and(|sent| now.duration_since(sent) + early < interval) {
                    continue;
                }
                let samples = history.since(seen).into_iter();
                let samples = samples.filter(|(name, _)| links.is_empty() || links.contains(name));
                let samples: Vec<_> = samples.map(|(_, sample)| sample).collect();
                if samples.is_empty() {
                    continue;
                }
                (seen, sent) = (round, Some(now));
                // The next one goes when the caller has taken this one.
                let sending = sender.send(Ok(pb::WatchLinksResponse { samples }));
                tokio::select! {
                    sent = sending => if sent.is_err() { return },
                    () = stopping.stopped() => return,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
