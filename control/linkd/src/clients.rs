// SPDX-License-Identifier: Apache-2.0
//! The client rules, and the clients with their accounts.
//!
//! They are part of the current plan, like the profile: a change of either keeps the other, and
//! both take effect in one generation at one instant.

use crate::control::Control;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use tonic::Status;

/// Clients in a message of a listing.
const PART: usize = 512;

/// The messages of a listing.
pub(crate) type Listing =
    tokio_stream::Iter<std::vec::IntoIter<Result<pb::ListClientsResponse, Status>>>;

impl Control {
    pub async fn clients(&self) -> Result<pb::GetClientsResponse, Status> {
        let dp::GetPlanResponse { plan, applied, .. } = self.dataplane().plan().await?;
        let clients = plan.unwrap_or_default().clients.unwrap_or_default();
        Ok(pb::GetClientsResponse { clients: Some(clients), applied })
    }

    pub async fn list_clients(&self) -> Result<Listing, Status> {
        let part =
            |clients: &[pb::ClientState]| Ok(pb::ListClientsResponse { clients: clients.to_vec() });
        let parts: Vec<_> = self.all_clients().await?.chunks(PART).map(part).collect();
        Ok(tokio_stream::iter(parts))
    }

    /// Every client, those that have had no frame yet last.
    async fn all_clients(&self) -> Result<Vec<pb::ClientState>, Status> {
        let said = self.clients().await?.clients.unwrap_or_default();
        let shares: HashMap<&str, (&str, u32)> =
            said.clients.iter().map(|c| (c.name.as_str(), (c.beam.as_str(), c.weight))).collect();
        let others = said.automatic.as_ref().map_or(("", 0), |a| (a.beam.as_str(), a.weight));
        let stats = self.dataplane().stats(false).await?;
        let mut silent: BTreeSet<&str> = said.clients.iter().map(|c| c.name.as_str()).collect();
        let mut all: Vec<_> = stats
            .clients
            .into_iter()
            .map(|stats| {
                let kind = kind(&stats.client);
                let removed = !silent.remove(&*stats.client) && kind == pb::ClientKind::Named;
                let own = shares.get(&*stats.client).copied();
                let (beam, weight) = share(match kind {
                    pb::ClientKind::Bypass => ("", 0),
                    _ => own.unwrap_or(others),
                });
                pb::ClientState {
                    beam,
                    weight,
                    kind: kind as i32,
                    removed,
                    forward_account: Some(account(stats.forward_pipe)),
                    return_account: Some(account(stats.return_pipe)),
                    client: stats.client,
                }
            })
            .collect();
        all.extend(silent.into_iter().map(|name| {
            let (beam, weight) = share(shares.get(name).copied().unwrap_or_default());
            pb::ClientState {
                client: name.to_owned(),
                kind: pb::ClientKind::Named as i32,
                forward_account: Some(account(None)),
                return_account: Some(account(None)),
                removed: false,
                beam,
                weight,
            }
        }));
        Ok(all)
    }
}

/// Without a weight it is 1.
fn share((beam, weight): (&str, u32)) -> (String, u32) {
    (beam.to_owned(), if beam.is_empty() { 0 } else { weight.max(1) })
}

fn kind(client: &str) -> pb::ClientKind {
    match client {
        "bypass" => pb::ClientKind::Bypass,
        "default" => pb::ClientKind::Default,
        // A name is never an address.
        name if name.parse::<IpAddr>().is_ok() => pb::ClientKind::Automatic,
        _ => pb::ClientKind::Named,
    }
}

fn account(pipe: Option<pb::PipeStats>) -> pb::ClientAccount {
    let pipe = pipe.unwrap_or_default();
    pb::ClientAccount {
        received: Some(pipe.received()),
        sent: Some(pipe.sent()),
        dropped: Some(pipe.dropped_total()),
        held: Some(pipe.held()),
        duplicated: Some(pipe.duplicated()),
        generated: Some(pipe.generated()),
    }
}
