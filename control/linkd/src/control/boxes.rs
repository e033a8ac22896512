// SPDX-License-Identifier: Apache-2.0
//! `linkemu.v1.Boxes`: the boxes of a group, and moves of clients between them.
//!
//! A move has three steps: the new owner holds the client's frames, the switch gives it the frames, and
//! the former owner serves what it holds. The dataplane of the group does the first and the last one,
//! which it also does by itself after a while if linkd ends in between.

use super::{Control, to_its_end};
use crate::caller::Caller;
use crate::refusal;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::boxes_server;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::{Request, Response, Status};

/// Clients of a request.
const CLIENTS: usize = 4096;
/// For the switch to take the new owners: longer than its session waits, and shorter than a hold.
const WRITTEN_WITHIN: Duration = Duration::from_secs(8);

pub(crate) struct BoxService(pub Control);

impl Control {
    async fn boxes(&self) -> Result<Vec<pb::EmulatorBox>, Status> {
        let listed = self.dataplane().list_boxes().await?;
        Ok(listed.boxes.into_iter().map(shown).collect())
    }

    /// Moves clients, all those of one destination together.
    async fn move_clients(
        &self,
        caller: &Caller,
        request: pb::MoveClientsRequest,
    ) -> Result<pb::MoveClientsResponse, Status> {
        // A long queue must delay no change of the link, so the lock is not held meanwhile.
        self.changing().await.leases.check(caller)?;
        let listed = self.dataplane().list_boxes().await?;
        let mut answer = pb::MoveClientsResponse::default();
        for (to, clients) in self.destinations(&listed, request).await? {
            let moved = u32::try_from(clients.len()).unwrap_or(u32::MAX);
            let request = dp::BeginMoveRequest { clients, to, who: caller.name.clone() };
            let dp::BeginMoveResponse { r#move } = self.dataplane().begin_move(request).await?;
            let written = self.write_owners().await;
            // Also where the switch did not take them: nobody holds frames for longer than needed.
            let request = dp::FinishMoveRequest { r#move };
            let finished = self.dataplane().finish_move(request).await?;
            written?;
            answer.moved += moved;
            answer.held_ns = answer.held_ns.max(finished.held_ns);
            answer.abandoned += finished.abandoned;
        }
        Ok(answer)
    }

    /// The clients that move, by the name of their new owner.
    async fn destinations(
        &self,
        listed: &dp::ListBoxesResponse,
        request: pb::MoveClientsRequest,
    ) -> Result<BTreeMap<String, Vec<String>>, Status> {
        let pb::MoveClientsRequest { clients, from, to } = request;
        let place = |field: &str, name: &str| {
            let found = listed.boxes.iter().position(|it| it.name == name);
            found.ok_or_else(|| {
                let names: Vec<_> = listed.boxes.iter().map(|it| it.name.as_str()).collect();
                let message = format!(
                    "no box is named {:?}: there are {}",
                    refusal::clip(name),
                    names.join(", ")
                );
                refusal::field(field, message)
            })
        };
        let owners = self.owners(listed).await?;
        let mut moving: Vec<(String, usize)> = match (&*from, clients.is_empty()) {
            ("", true) => {
                return Err(refusal::field("clients", "none: name clients, or the box `from`"));
            }
            (from, true) => {
                let from = place("from", from)?;
                let own = owners.iter().filter(|(_, owner)| **owner == from);
                own.map(|(name, owner)| (name.clone(), *owner)).collect()
            }
            (_, false) if !from.is_empty() => {
                let message = "given beside `clients`: give one or the other";
                return Err(refusal::field("from", message));
            }
            _ => {
                let owned = |name: String| match owners.get(&name) {
                    Some(owner) => Ok((name, *owner)),
                    None => Err(Status::not_found(format!(
                        "no client is named {:?}: see `linkctl clients list`",
                        refusal::clip(&name)
                    ))),
                };
                clients.into_iter().map(owned).collect::<Result<_, _>>()?
            }
        };
        moving.sort();
        moving.dedup();
        if moving.len() > CLIENTS {
            let message = format!("{} are more than {CLIENTS}: move them in parts", moving.len());
            return Err(refusal::field("clients", message));
        }
        let to = match &*to {
            "" => None,
            name => Some(place("to", name)?),
        };
        let mut load: Vec<Option<u32>> =
            listed.boxes.iter().map(|it| it.up.then_some(it.clients)).collect();
        let mut by_owner: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (client, owner) in moving {
            let least = || {
                let up = load.iter().enumerate().filter_map(|(n, load)| Some((n, (*load)?)));
                // Those that leave a box that is up may also stay.
                let others = up.filter(|(n, _)| *n != owner);
                others.min_by_key(|(_, load)| *load).map(|(n, _)| n)
            };
            let Some(to) = to.or_else(least) else {
                return Err(Status::failed_precondition(
                    "no other box is up: see `linkctl group show`",
                ));
            };
            if to == owner {
                continue;
            }
            if let Some(Some(load)) = load.get_mut(to) {
                *load += 1;
            }
            if let Some(it) = listed.boxes.get(to) {
                by_owner.entry(it.name.clone()).or_default().push(client);
            }
        }
        Ok(by_owner)
    }

    /// The owner of each client that can move: of those with an entry, and of those that were seen.
    async fn owners(
        &self,
        listed: &dp::ListBoxesResponse,
    ) -> Result<BTreeMap<String, usize>, Status> {
        let dp::Owners { default_box, buckets, clients, .. } =
            listed.owners.clone().unwrap_or_default();
        let stats = self.dataplane().own_stats(false).await?;
        let mut owners = BTreeMap::new();
        for client in stats.clients {
            let Ok(address) = client.client.parse() else { continue };
            let bucket = usize::from(::switch::bucket(address));
            let owner = buckets.get(bucket).map_or(default_box, |owner| u32::from(*owner));
            owners.insert(client.client, owner as usize);
        }
        let entries = clients.into_iter().map(|it| (it.client, it.owner as usize));
        owners.extend(entries);
        Ok(owners)
    }

    /// Gives the switch the current owners, and waits until it has them.
    async fn write_owners(&self) -> Result<(), Status> {
        let switches = self.dataplane().switches();
        self.dataplane().meet_clients().await?;
        let written = tokio::time::timeout(WRITTEN_WITHIN, switches.written()).await;
        let refused = match written {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(why)) => why,
            Err(_) => format!("it did not answer within {WRITTEN_WITHIN:?}"),
        };
        Err(Status::unavailable(format!(
            "the switch does not have the new owners: {refused}. Frames go to the former ones until it \
             has; see `linkctl switch show`"
        )))
    }
}

fn shown(it: dp::Box) -> pb::EmulatorBox {
    pb::EmulatorBox {
        name: it.name,
        address: it.address,
        up: it.up,
        message: it.message,
        workers: it.workers,
        clock_offset_ns: it.clock_offset_ns,
        clock_error_ns: it.clock_error_ns,
        current: it.current,
        clients: it.clients,
        packets_per_second: it.packets_per_second,
    }
}

#[tonic::async_trait]
impl boxes_server::Boxes for BoxService {
    async fn list_boxes(
        &self,
        _: Request<pb::ListBoxesRequest>,
    ) -> Result<Response<pb::ListBoxesResponse>, Status> {
        Ok(Response::new(pb::ListBoxesResponse { boxes: self.0.boxes().await? }))
    }

    async fn move_clients(
        &self,
        request: Request<pb::MoveClientsRequest>,
    ) -> Result<Response<pb::MoveClientsResponse>, Status> {
        let (caller, control) = (Caller::of(&request), self.0.clone());
        let request = request.into_inner();
        to_its_end(async move { Box::pin(control.move_clients(&caller, request)).await }).await
    }
}
