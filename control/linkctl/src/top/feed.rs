// SPDX-License-Identifier: Apache-2.0
//! The sources of the view: linkd's stream of statistics, the link whenever its generation
//! changes, and every [`LOOK`] its certificate, lease and scenario. Lost connections are retried.

use crate::connection::Connection;
use crate::context::Place;
use crate::failure::Failure;
use crate::top::model::{Event, Scenario, Use};
use proto::linkemu::v1 as pb;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tonic::{Code, Response};

/// Between one try and the next.
const AGAIN: Duration = Duration::from_millis(500);
/// A stream without news for so long, above four intervals, is taken for dead.
const SILENT: Duration = Duration::from_secs(20);

/// Interval between readings of certificate, lease and scenario.
const LOOK: Duration = Duration::from_secs(2);

/// Sends events until the receiver is closed.
pub async fn feed(linkd: Place, interval_ns: u64, events: Sender<Event>) {
    tokio::join!(watch_stats(&linkd, interval_ns, &events), watch_use(&linkd, &events));
}

/// Reads certificate, lease and scenario. `watch_stats` reports a lost connection.
async fn watch_use(linkd: &Place, events: &Sender<Event>) {
    loop {
        if let Ok(connection) = Connection::viewing(linkd).await {
            while let Some(used) = asked(&connection).await {
                if events.send(Event::Use(used)).await.is_err() {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        if events.is_closed() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// `None` if linkd does not answer.
async fn asked(connection: &Connection) -> Option<Use> {
    let link = connection.link();
    let lease = async {
        match connection.leases().get_lease(pb::GetLeaseRequest { link }).await {
            // No active lease.
            Err(status) if status.code() == Code::NotFound => {
                Ok(Response::new(pb::Lease::default()))
            }
            answer => answer,
        }
    };
    let lease = connection.answer(lease).await.ok()?;
    let state = connection.scenario().await.ok()?;
    // There is no certificate before the first mark or without a dataplane.
    let mut certificates = connection.certificates();
    let request = pb::GetCertificateRequest { link: connection.link(), ..Default::default() };
    let certificate = certificates.get_certificate(request);
    let certificate = connection.answer(certificate).await.ok();
    let failed = certificate.map(|it| {
        it.criteria.into_iter().filter(|criterion| !criterion.holds).map(|it| it.name).collect()
    });
    let holder = (!lease.holder.is_empty()).then_some(lease.holder);
    Some(Use { failed, holder, scenario: Scenario::of(&state) })
}

async fn watch_stats(linkd: &Place, interval_ns: u64, events: &Sender<Event>) {
    loop {
        let why = match stream(linkd, interval_ns, events).await {
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
    let request = pb::WatchStatsRequest { interval_ns, link: connection.link() };
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
            let link = connection.get_link().await?;
            generation = Some(stats.generation);
            if events.send(Event::Link(link.into())).await.is_err() {
                return Ok(());
            }
        }
        if events.send(Event::Stats(Box::new(stats))).await.is_err() {
            return Ok(());
        }
    }
}
