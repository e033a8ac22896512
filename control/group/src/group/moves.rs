// SPDX-License-Identifier: Apache-2.0
//! Moves of clients to another box, without loss and without a packet that overtakes another.
//!
//! ```text
//!  begin:  the new owner holds the clients' frames, and the owners change
//!          (linkd writes the owners to the switch)
//!  finish: nothing has arrived at the former owner for 20 ms
//!          its queue of the client is empty: every packet has its due time
//!          the new owner serves the client, with nothing due before the former owner's last packet
//! ```
//!
//! Each client is served again as soon as it is ready itself. What a box that is down held is lost.
//!
//! A linkd-group that ends in mid-move leaves the holds. The next one finds them and finishes the moves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use profile::{counted, format_duration};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tokio::sync::OnceCell;
use tokio::time::sleep;
use tonic::Status;

use crate::connect::Client;
use crate::group::{Group, names};
use crate::member::{Member, SILENT};

/// Clients of one move.
const CLIENTS: usize = 4096;
/// How long the new owner holds frames, and a move may take.
const HOLD: Duration = Duration::from_secs(10);
/// From one look at the former owner to the next.
const LOOK: Duration = Duration::from_millis(2);
/// Time without an arrival after which no frame is in flight to the former owner.
const QUIET_NS: u64 = 20_000_000;
/// Time after the move at which late arrivals at the former owner are counted.
const LATER: Duration = Duration::from_secs(1);
/// Moves that are known.
const KEPT: usize = 64;

/// The moves of a group.
#[derive(Debug, Default)]
pub struct Moves(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    begun: u64,
    moves: BTreeMap<u64, Arc<Move>>,
    /// Clients that are still moving.
    moving: BTreeSet<String>,
}

#[derive(Debug)]
struct Move {
    who: String,
    /// Each with its former owner.
    clients: Vec<(String, usize)>,
    to: usize,
    /// When the new owner began to hold them.
    held_since_ns: u64,
    finished: OnceCell<Result<dp::FinishMoveResponse, Status>>,
}

impl Moves {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that the former owner still serves.
struct Leaving {
    client: String,
    /// Packets received in both directions, and the time of the last change of that number.
    received: Option<([u64; 2], u64)>,
}

/// A client that can be served again: none of its packets is due before these instants on the former owner's
/// clock.
struct Ready {
    client: String,
    due_ns: Option<[u64; 2]>,
}

impl Group {
    /// Makes a box the owner of clients, and has it hold their frames.
    ///
    /// # Errors
    /// If the request is not valid, the box is down, or a client is being moved already.
    pub async fn begin_move(
        &self,
        request: dp::BeginMoveRequest,
    ) -> Result<dp::BeginMoveResponse, Status> {
        self.applied()?;
        let group = self.clone();
        // The hold and the owners change together, even if the caller leaves.
        let work = tokio::spawn(async move { group.begin(request).await });
        work.await.unwrap_or_else(|_| Err(Status::internal("the move ended without a result")))
    }

    async fn begin(&self, request: dp::BeginMoveRequest) -> Result<dp::BeginMoveResponse, Status> {
        let dp::BeginMoveRequest { clients, to, who } = request;
        if clients.len() > CLIENTS {
            return Err(Status::invalid_argument(format!(
                "clients: {} are more than {CLIENTS}: move them in several steps",
                clients.len()
            )));
        }
        let members = &self.0.members;
        let Some(new) = members.iter().find(|it| it.name == to) else {
            let known: Vec<_> = members.iter().map(|it| &*it.name).collect();
            return Err(Status::not_found(format!(
                "to: there is no box {:?}: the boxes are {}",
                owner::clip(&to),
                known.join(", ")
            )));
        };
        if !new.is_up() {
            let why = new.state().message.clone();
            return Err(Status::failed_precondition(format!("box {to} is down: {why}")));
        }
        // The plan does not change meanwhile.
        let plans = self.0.history.plans().await;
        let named: BTreeSet<_> = names(&plans.current.plan).into_iter().collect();
        let mut moved = Vec::new();
        {
            let (owners, state) = (self.owners(), self.0.moves.state());
            for client in clients.into_iter().collect::<BTreeSet<_>>() {
                let address = client.parse::<IpAddr>().ok().map(|it| it.to_string());
                if address.is_none() && !named.contains(&client) {
                    return Err(Status::not_found(format!(
                        "clients: {:?} is neither an address nor a client of the current list: see \
                         `linkctl clients list`",
                        owner::clip(&client)
                    )));
                }
                let client = address.unwrap_or(client);
                if state.moving.contains(&client) {
                    return Err(Status::failed_precondition(format!(
                        "client {client} is being moved: wait for the end of that move"
                    )));
                }
                let from = owners.of(&client);
                if from != new.place {
                    moved.push((client, from));
                }
            }
        }
        let held_since_ns = self.0.clock.now_ns();
        let hold_ns = u64::try_from(HOLD.as_nanos()).ok();
        let hold = |(client, _): &(String, usize)| dp::HoldClient {
            client: client.clone(),
            hold_ns,
            ..Default::default()
        };
        if !moved.is_empty() {
            let holds = moved.iter().map(hold).collect();
            hold_clients(new, holds).await.map_err(|status| refused(new, &status))?;
            self.owners().give(moved.iter().map(|(client, _)| &**client), new.place);
        }
        drop(plans);
        let finished = OnceCell::new();
        let (id, begun) =
            self.register(Move { who, clients: moved, to: new.place, held_since_ns, finished });
        tracing::info!(id, clients = begun.clients.len(), to, "move begins");
        let group = self.clone();
        tokio::spawn(async move {
            sleep(HOLD).await;
            if !begun.finished.initialized() {
                tracing::warn!(id, "nobody finished the move within {HOLD:?}");
                let _ = group.finish(&begun).await;
            }
        });
        Ok(dp::BeginMoveResponse { r#move: id })
    }

    fn register(&self, begun: Move) -> (u64, Arc<Move>) {
        let mut state = self.0.moves.state();
        state.begun += 1;
        let (id, begun) = (state.begun, Arc::new(begun));
        state.moving.extend(begun.clients.iter().map(|(client, _)| client.clone()));
        state.moves.insert(id, begun.clone());
        while state.moves.len() > KEPT {
            state.moves.pop_first();
        }
        (id, begun)
    }

    /// Finishes the moves that an earlier linkd-group began, and returns the clients with their new owners:
    /// the boxes that hold their frames. The former owner is the box that has the last packets of a client.
    pub(super) async fn resume_moves(&self) -> Vec<(String, usize)> {
        let mut resumed = Vec::new();
        for new in &self.0.members {
            let held = std::mem::take(&mut new.state().on_hold);
            let Some(since_ns) = held.iter().map(|it| it.since_ns).min() else { continue };
            let clients: Vec<_> = held.into_iter().map(|it| it.client).collect();
            resumed.extend(clients.iter().map(|client| (client.clone(), new.place)));
            let mut last = vec![None; clients.len()];
            for former in self.0.members.iter().filter(|it| it.place != new.place) {
                let Ok(looks) = look_at(former, clients.clone()).await else { continue };
                for (last, look) in last.iter_mut().zip(looks) {
                    let pipes =
                        [look.forward_pipe, look.return_pipe].map(Option::unwrap_or_default);
                    let queued = pipes.iter().any(|it| it.queued > 0);
                    let due_ns = pipes.iter().map(|it| it.last_due_ns).max().unwrap_or(0);
                    let found = (queued, former.offset().of_group(due_ns), former.place);
                    *last = (*last).max(Some(found));
                }
            }
            let from = |(client, last): (String, Option<(bool, u64, usize)>)| {
                Some((client, last.map(|(.., place)| place)?))
            };
            let (clients, to) =
                (clients.into_iter().zip(last).filter_map(from).collect(), new.place);
            let (who, finished) = (String::new(), OnceCell::new());
            let held_since_ns = new.offset().of_group(since_ns);
            let (id, begun) = self.register(Move { who, clients, to, held_since_ns, finished });
            tracing::info!(id, clients = begun.clients.len(), to = new.name, "move is resumed");
            let group = self.clone();
            tokio::spawn(async move {
                if let Err(error) = group.finish(&begun).await {
                    tracing::warn!(id, %error, "the move that was resumed has failed");
                }
            });
        }
        resumed
    }

    /// Waits until the former owners have served what they hold, and ends the hold.
    ///
    /// # Errors
    /// If the move is not known, or the new owner went down.
    pub async fn finish_move(&self, id: u64) -> Result<dp::FinishMoveResponse, Status> {
        let begun = self.0.moves.state().moves.get(&id).cloned();
        let Some(begun) = begun else {
            return Err(Status::not_found(format!(
                "move: {id} is not known: linkd-group was restarted, or {KEPT} moves began since"
            )));
        };
        let group = self.clone();
        let work = tokio::spawn(async move { group.finish(&begun).await });
        work.await.unwrap_or_else(|_| Err(Status::internal("the move ended without a result")))
    }

    /// Once; further calls have the result of the first one.
    async fn finish(&self, begun: &Arc<Move>) -> Result<dp::FinishMoveResponse, Status> {
        let finishing = begun.finished.get_or_init(|| async {
            let done = self.hand_over(begun).await;
            let mut state = self.0.moves.state();
            for (client, _) in &begun.clients {
                state.moving.remove(client);
            }
            done
        });
        finishing.await.clone()
    }

    async fn hand_over(&self, begun: &Arc<Move>) -> Result<dp::FinishMoveResponse, Status> {
        let new = &self.0.members[begun.to];
        let mut leaving: BTreeMap<usize, Vec<Leaving>> = BTreeMap::new();
        for (client, from) in &begun.clients {
            let client = Leaving { client: client.clone(), received: None };
            leaving.entry(*from).or_default().push(client);
        }
        let until_ns = begun.held_since_ns + u64::try_from(HOLD.as_nanos()).unwrap_or(u64::MAX);
        let mut response = dp::FinishMoveResponse::default();
        let mut left: BTreeMap<usize, BTreeMap<String, [u64; 2]>> = BTreeMap::new();
        let mut unfinished = 0;
        while !leaving.is_empty() {
            for (from, clients) in &mut leaving {
                let former = &self.0.members[*from];
                let now_ns = self.0.clock.now_ns();
                let (ready, lost) = match self.look(former, clients).await {
                    Ok(ready) => (ready, false),
                    Err(status) => {
                        tracing::warn!(box_ = former.name, "{}", former.words(&status));
                        (abandon(clients), true)
                    }
                };
                for ready in ready.iter().filter(|it| it.due_ns.is_some()) {
                    let received = ready_received(clients, &ready.client);
                    left.entry(*from).or_default().insert(ready.client.clone(), received);
                }
                clients.retain(|it| !ready.iter().any(|ready| ready.client == it.client));
                let mut ready = ready;
                if !lost && now_ns >= until_ns {
                    unfinished += clients.len();
                    ready.extend(abandon(clients));
                    clients.clear();
                }
                if ready.is_empty() {
                    continue;
                }
                if lost {
                    response.abandoned += u32::try_from(ready.len()).unwrap_or(u32::MAX);
                }
                self.release(former, new, &ready).await.map_err(|status| refused(new, &status))?;
                let held_ns = self.0.clock.now_ns() - begun.held_since_ns;
                response.held_ns = response.held_ns.max(held_ns);
            }
            leaving.retain(|_, clients| !clients.is_empty());
            if !leaving.is_empty() {
                sleep(LOOK).await;
            }
        }
        self.tell_moved(begun, response, unfinished);
        if !left.is_empty() {
            let (group, begun) = (self.clone(), begun.clone());
            tokio::spawn(async move { group.look_later(&begun, left).await });
        }
        Ok(response)
    }

    /// Looks at a former owner: clients that it has served.
    async fn look(&self, former: &Member, clients: &mut [Leaving]) -> Result<Vec<Ready>, Status> {
        let names = clients.iter().map(|it| it.client.clone()).collect();
        // What arrived until then is in the answer.
        let asked_ns = self.0.clock.now_ns();
        let looks = look_at(former, names).await?;
        let now_ns = self.0.clock.now_ns();
        let mut ready = Vec::new();
        for (client, look) in clients.iter_mut().zip(looks) {
            let pipes = [look.forward_pipe, look.return_pipe].map(Option::unwrap_or_default);
            let received = pipes.map(|it| it.received);
            match client.received {
                Some((before, since_ns)) if before == received => {
                    if asked_ns.saturating_sub(since_ns) >= QUIET_NS
                        && pipes.iter().all(|it| it.queued == 0)
                    {
                        let due_ns = Some(pipes.map(|it| it.last_due_ns));
                        ready.push(Ready { client: client.client.clone(), due_ns });
                    }
                }
                _ => client.received = Some((received, now_ns)),
            }
        }
        Ok(ready)
    }

    /// Ends the hold of clients at their new owner.
    async fn release(&self, former: &Member, new: &Member, ready: &[Ready]) -> Result<(), Status> {
        let (before, after) = (former.offset(), new.offset());
        let due_ns = |due_ns: u64| match due_ns {
            0 => 0,
            due_ns => after.of_box(before.of_group(due_ns)) + before.error_ns + after.error_ns,
        };
        let holds = ready.iter().map(|Ready { client, due_ns: due }| {
            let [forward_due_ns, return_due_ns] = due.unwrap_or_default().map(due_ns);
            dp::HoldClient { client: client.clone(), hold_ns: None, forward_due_ns, return_due_ns }
        });
        hold_clients(new, holds.collect()).await
    }

    fn tell_moved(&self, begun: &Move, done: dp::FinishMoveResponse, unfinished: usize) {
        if begun.clients.is_empty() {
            return;
        }
        let name = |place: usize| &*self.0.members[place].name;
        let from: BTreeSet<_> = begun.clients.iter().map(|(_, from)| name(*from)).collect();
        let from: Vec<_> = from.into_iter().collect();
        let mut message = format!(
            "{} moved from {} to {}; packets waited {} at most",
            counted(begun.clients.len(), "client", "clients"),
            from.join(", "),
            name(begun.to),
            format_duration(done.held_ns)
        );
        if done.abandoned > 0 {
            message += &format!(
                "; the former box of {} of them was down: what it held is lost",
                done.abandoned
            );
        }
        if unfinished > 0 {
            message += &format!(
                "; the former box still served {unfinished} of them after {} s: packets may be \
                 overtaken",
                HOLD.as_secs()
            );
        }
        self.tell(pb::EventKind::ClientsMoved, &begun.who, name(begun.to), message);
    }

    /// Reports frames that came to the former owner after it was quiet.
    async fn look_later(&self, begun: &Move, left: BTreeMap<usize, BTreeMap<String, [u64; 2]>>) {
        sleep(LATER).await;
        for (from, clients) in left {
            let former = &self.0.members[from];
            // Those that went back meanwhile may have packets there.
            let moved = |client: &String| self.owners().of(client) != from;
            let clients: Vec<_> = clients.into_iter().filter(|(client, _)| moved(client)).collect();
            let names = clients.iter().map(|(client, _)| client.clone()).collect();
            let Ok(looks) = look_at(former, names).await else { continue };
            let mut late = (0, 0);
            for ((_, before), look) in clients.iter().zip(looks) {
                let pipes = [look.forward_pipe, look.return_pipe].map(Option::unwrap_or_default);
                let came: u64 = pipes.map(|it| it.received).iter().sum();
                let more = came.saturating_sub(before.iter().sum());
                late = (late.0 + more, late.1 + u64::from(more > 0));
            }
            if late.0 > 0 {
                let message = format!(
                    "{} of {} still came to box {} more than {} ms after the others: they may have \
                     been overtaken",
                    counted(late.0, "packet", "packets"),
                    counted(late.1, "moved client", "moved clients"),
                    former.name,
                    QUIET_NS / 1_000_000
                );
                tracing::warn!("{message}");
                self.tell(pb::EventKind::ClientsMoved, &begun.who, &former.name, message);
            }
        }
    }
}

/// Clients that no longer wait for their former owner.
fn abandon(clients: &[Leaving]) -> Vec<Ready> {
    let ready = |it: &Leaving| Ready { client: it.client.clone(), due_ns: None };
    clients.iter().map(ready).collect()
}

fn ready_received(clients: &[Leaving], client: &str) -> [u64; 2] {
    let known = clients.iter().find(|it| it.client == client);
    known.and_then(|it| it.received).map_or([0; 2], |(received, _)| received)
}

async fn hold_clients(member: &Member, clients: Vec<dp::HoldClient>) -> Result<(), Status> {
    let call = |mut c: Client, request| async move { c.hold_clients(request).await };
    member.call(SILENT, dp::HoldClientsRequest { clients }, call).await.map(drop)
}

async fn look_at(member: &Member, clients: Vec<String>) -> Result<Vec<dp::ClientLook>, Status> {
    let call = |mut c: Client, request| async move { c.look_at_clients(request).await };
    let asked = clients.len();
    let answer = member.call(SILENT, dp::LookAtClientsRequest { clients }, call).await?;
    match answer.clients.len() == asked {
        true => Ok(answer.clients),
        false => Err(Status::internal(format!(
            "box {} answered for {} of {asked} clients",
            member.name,
            answer.clients.len()
        ))),
    }
}

/// A call to the new owner that failed.
fn refused(member: &Member, status: &Status) -> Status {
    Status::new(
        match std::error::Error::source(status) {
            None => status.code(),
            Some(_) => tonic::Code::Unavailable,
        },
        format!("box {}: {}", member.name, member.words(status)),
    )
}
