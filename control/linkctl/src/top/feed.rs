// SPDX-License-Identifier: Apache-2.0
//! Where the news come from: linkd's stream of statistics, and the link whenever another
//! generation is in force. Whoever goes away is asked again until he is back.

use crate::connection::{Connection, Place};
use crate::failure::Failure;
use crate::top::model::Event;
use proto::linkemu::v1 as pb;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use view::Snapshot;

/// Between one try and the next.
const AGAIN: Duration = Duration::from_millis(500);
/// A stream without news for so long, above four intervals, is taken for dead.
const SILENT: Duration = Duration::from_secs(20);

/// Sends events until nobody takes them.
pub async fn feed(linkd: Place, interval_ns: u64, events: Sender<Event>) {
    loop {
        let why = match stream(&linkd, interval_ns, &events).await {
            Ok(()) => "linkd ended the stream".to_owned(),
            Err(failure) => failure.message().to_owned(),
        };
        if events.send(Event::Away(why)).await.is_err() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn stream(linkd: &Place, interval_ns: u64, events: &Sender<Event>) -> Result<(), Failure> {
    let connection = Connection::viewing(linkd).await?;
    let request = pb::WatchStatsRequest { interval_ns };
    let mut stream = connection.call(|mut c| async move { c.watch_stats(request).await }).await?;
    let patience = SILENT + Duration::from_nanos(interval_ns).saturating_mul(4);
    let mut generation = None;
    loop {
        let Ok(message) = tokio::time::timeout(patience, stream.message()).await else {
            return Err(Failure::failed("silent", format!("linkd was silent for {patience:?}")));
        };
        let Some(stats) = message.map_err(|status| connection.failure(&status))? else {
            return Ok(());
        };
        if generation != Some(stats.generation) {
            let request = pb::GetLinkRequest {};
            let link = connection.call(|mut c| async move { c.get_link(request).await }).await?;
            generation = Some(stats.generation);
            if events.send(Event::Link(link.into())).await.is_err() {
                return Ok(());
            }
        }
        if events.send(Event::Stats(Box::new(Snapshot::from(stats)))).await.is_err() {
            return Ok(());
        }
    }
}
