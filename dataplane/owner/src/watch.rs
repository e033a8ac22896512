// SPDX-License-Identifier: Apache-2.0
//! The stream of `dataplane.v1.Dataplane.Watch`.

use crate::{Entry, Journal, Link, Next, Scenarios};
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::watch_response::What;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

type Sender = mpsc::Sender<Result<dp::WatchResponse, Status>>;

/// Sends the events after `after`, or from now on, and each status of the scenario after the events
/// that happened before it.
#[must_use]
pub fn watch<L: Link>(
    journal: Journal<Entry>,
    scenarios: Scenarios<L>,
    after: Option<u64>,
) -> ReceiverStream<Result<dp::WatchResponse, Status>> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        // It ends with its receiver.
        let _ = send(&journal, &scenarios, after, &sender).await;
    });
    ReceiverStream::new(receiver)
}

async fn send<L: Link>(
    journal: &Journal<Entry>,
    scenarios: &Scenarios<L>,
    after: Option<u64>,
    sender: &Sender,
) -> Option<()> {
    let (mut last, mut changes) = (journal.last(), scenarios.changes());
    let mut after = after.unwrap_or(*last.borrow()).min(*last.borrow());
    changes.mark_changed();
    loop {
        tokio::select! {
            _ = last.changed() => {}
            _ = changes.changed() => {}
            () = sender.closed() => return None,
        }
        // Read before the events, so that the events of this status are sent first.
        let status = scenarios.status();
        loop {
            match journal.next(after) {
                Next::Entry(sequence, Entry { event, id }) => {
                    let what = Some(What::Event(event));
                    sender.send(Ok(dp::WatchResponse { sequence, what, id })).await.ok()?;
                    after = sequence;
                }
                Next::Gone(oldest) => after = oldest - 1,
                Next::Nothing => break,
            }
        }
        let what = Some(What::Scenario(status));
        sender.send(Ok(dp::WatchResponse { what, ..Default::default() })).await.ok()?;
    }
}
