// SPDX-License-Identifier: Apache-2.0
//! The last 4096 events of the link and its controllers, and their watchers.

use crate::watching::{Messages, Watching};
use futures_util::stream::unfold;
use owner::{Journal, Next};
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::events_server;
use std::time::SystemTime;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

/// The events. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Events(Journal<pb::Event>);

impl Events {
    pub fn new() -> Self {
        Self(Journal::default())
    }

    /// Numbers an event, gives it the time if it has none, and wakes all watchers.
    pub fn publish(&self, mut event: pb::Event) {
        event.utc.get_or_insert_with(|| SystemTime::now().into());
        let kind = event.kind().as_str_name().trim_start_matches("EVENT_KIND_");
        self.0.push(|sequence| {
            event.sequence = sequence;
            let pb::Event { who, subject, message, .. } = &event;
            tracing::info!(sequence, kind, who, subject, "{message}");
            event
        });
    }

    /// The sequence of the last one, to wait for the next.
    pub fn last(&self) -> watch::Receiver<u64> {
        self.0.last()
    }

    /// The event after `after`.
    pub fn next(&self, after: u64) -> Next<pb::Event> {
        self.0.next(after)
    }
}

fn gone(event: u64, oldest: u64) -> Status {
    Status::data_loss(format!(
        "event {event} is gone, {oldest} is the oldest that is kept: watch from there, and read faster"
    ))
}

pub(crate) struct Service {
    pub events: Events,
    pub watching: Watching,
}

#[tonic::async_trait]
impl events_server::Events for Service {
    type WatchEventsStream = Messages<pb::Event>;

    async fn watch_events(
        &self,
        request: Request<pb::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let watch = self.watching.begin(&request)?;
        let events = self.events.clone();
        let mut last = events.last();
        let newest = *last.borrow_and_update();
        let pb::WatchEventsRequest { after, once } = request.into_inner();
        let after = match after {
            None => newest,
            Some(0) => events.0.before_all(),
            Some(after) if after > newest => {
                return Err(Status::out_of_range(format!(
                    "event {after} has not happened, {newest} is the last: linkd was started \
                     anew; watch from 0"
                )));
            }
            Some(after) => after,
        };
        let next =
            unfold((events, last, Some(after)), move |(events, mut last, after)| async move {
                let after = after?;
                loop {
                    match events.next(after) {
                        Next::Entry(_, event) => {
                            let after = Some(event.sequence);
                            return Some((Ok(event), (events, last, after)));
                        }
                        Next::Gone(oldest) => {
                            let gone = gone(after + 1, oldest);
                            return Some((Err(gone), (events, last, None)));
                        }
                        Next::Nothing if once => return None,
                        Next::Nothing => last.changed().await.ok()?,
                    }
                }
            });
        Ok(watch.answer(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_numbered_and_gets_the_time() {
        let events = Events::new();
        for n in 0..3 {
            events.publish(pb::Event { subject: n.to_string(), ..Default::default() });
        }
        let Next::Entry(_, event) = events.next(1) else { panic!("the second one") };
        assert_eq!((event.sequence, event.subject.as_str()), (2, "1"));
        assert!(event.utc.is_some());
    }
}
