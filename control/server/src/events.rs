// SPDX-License-Identifier: Apache-2.0
//! What has happened: the last [`KEPT`] events, and who waits for the next one.

use crate::caller::Caller;
use crate::watching::Watching;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::events_server;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Events that are kept for who comes late.
const KEPT: usize = 4096;

/// The events; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    kept: Arc<Mutex<VecDeque<pb::Event>>>,
    /// The sequence of the last one.
    last: watch::Sender<u64>,
}

/// What a watcher gets next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Event(Box<pb::Event>),
    /// The oldest that is kept is this one, not the one asked for.
    Gone(u64),
    Nothing,
}

impl Events {
    /// None so far.
    pub fn new() -> Self {
        Self { kept: Arc::default(), last: watch::Sender::new(0) }
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<pb::Event>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers an event, gives it the time if it has none, and tells all who wait.
    pub fn publish(&self, mut event: pb::Event) {
        let mut kept = self.kept();
        event.sequence = *self.last.borrow() + 1;
        event.utc.get_or_insert_with(|| SystemTime::now().into());
        let kind = event.kind().as_str_name().trim_start_matches("EVENT_KIND_");
        let pb::Event { sequence, who, subject, message, .. } = &event;
        tracing::info!(sequence, kind, who, subject, "{message}");
        if kept.len() == KEPT {
            kept.pop_front();
        }
        let sequence = event.sequence;
        kept.push_back(event);
        self.last.send_replace(sequence);
    }

    /// The sequence of the last one, to wait for the next.
    pub fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// The one that follows `after`.
    pub fn next(&self, after: u64) -> Next {
        let kept = self.kept();
        let Some(oldest) = kept.front().map(|event| event.sequence) else { return Next::Nothing };
        if after + 1 < oldest {
            return Next::Gone(oldest);
        }
        let place = usize::try_from(after + 1 - oldest).unwrap_or(usize::MAX);
        kept.get(place).map_or(Next::Nothing, |event| Next::Event(Box::new(event.clone())))
    }

    /// The sequence before the oldest that is kept.
    fn before_all(&self) -> u64 {
        self.kept().front().map_or(0, |event| event.sequence - 1)
    }
}

/// The service.
pub(crate) struct Service {
    pub events: Events,
    pub watching: Watching,
}

#[tonic::async_trait]
impl events_server::Events for Service {
    type WatchEventsStream = ReceiverStream<Result<pb::Event, Status>>;

    async fn watch_events(
        &self,
        request: Request<pb::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let permit = self.watching.permit(&Caller::of(&request))?;
        let mut stopping = self.watching.ending(&request);
        let events = self.events.clone();
        let mut last = events.last.subscribe();
        let newest = *last.borrow_and_update();
        let pb::WatchEventsRequest { after, once } = request.into_inner();
        let mut after = match after {
            None => newest,
            Some(0) => events.before_all(),
            Some(after) if after > newest => {
                return Err(Status::out_of_range(format!(
                    "event {after} has not happened, {newest} is the last: linkd was started \
                     anew; watch from 0"
                )));
            }
            Some(after) => after,
        };
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            let _permit = permit;
            loop {
                let answer = match events.next(after) {
                    Next::Event(event) => {
                        after = event.sequence;
                        Ok(*event)
                    }
                    Next::Gone(oldest) => Err(Status::data_loss(format!(
                        "event {} is gone, {oldest} is the oldest that is kept: watch from \
                         there, and read faster",
                        after + 1
                    ))),
                    Next::Nothing if once => return,
                    Next::Nothing => {
                        tokio::select! {
                            _ = last.changed() => {}
                            () = sender.closed() => return,
                            () = stopping.stopped() => {
                                let _ = sender.try_send(Err(stopping.status()));
                                return;
                            }
                        }
                        continue;
                    }
                };
                let ends = answer.is_err();
                if sender.send(answer).await.is_err() || ends {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_what_is_gone_is_said() {
        let events = Events::new();
        assert_eq!(events.next(0), Next::Nothing);
        for n in 0..KEPT + 3 {
            events.publish(pb::Event { subject: n.to_string(), ..Default::default() });
        }
        assert_eq!(events.next(0), Next::Gone(4));
        assert_eq!(events.before_all(), 3);
        let Next::Event(event) = events.next(3) else { panic!("the oldest") };
        assert_eq!((event.sequence, event.subject.as_str()), (4, "3"));
        assert!(event.utc.is_some());
        assert_eq!(events.next(KEPT as u64 + 3), Next::Nothing);
    }
}
