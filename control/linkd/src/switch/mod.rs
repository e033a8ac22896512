// SPDX-License-Identifier: Apache-2.0
//! The P4 switch between the hosts and the box, where the box's file says that there is one.
//!
//! The dataplane says so (`Describe`), and says another one if it was started with another
//! file; [`Switches`] then holds a session with it. Nothing here needs the switch to be there:
//! without it, plans are whole, statistics are the dataplane's, and the API says why.

mod account;
mod clients;
mod config;
mod mirror;
mod split;
pub(crate) mod state;
mod wires;

pub(crate) use split::{Split, StageDecision};
pub(crate) use state::{counts, is_ready};

use crate::events::Events;
use ::switch::{Counts, Error, Loss, News, Phase, Status as Standing, Switch};
use account::{Account, Away, Reading};
use config::config;
use emu::units::{ByDirection, Direction};
use mirror::Mirrored;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use split::{Stages, split};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use wires::{Around, Witness};

/// Deadline of a change's requests to the switch. The session gives up earlier.
const DEADLINE: Duration = Duration::from_secs(3);
/// Deadline for the switch's counters; after it, the last ones count.
const READ_DEADLINE: Duration = Duration::from_secs(2);
/// For frames in flight between box and switch, and longer than counters are kept.
const SETTLE: Duration = Duration::from_millis(150);
/// Additional bytes of a frame from the box.
const SHIM_BYTES: u64 = shim::SHIM as u64;

/// The switch that there is, if there is one; clones are the same.
#[derive(Clone)]
pub(crate) struct Switches(Arc<Shared>);

struct Shared {
    events: Events,
    place: RwLock<Place>,
    /// The switch became ready or was lost: the current plan has to be checked.
    news: Arc<Notify>,
}

#[derive(Clone, Default)]
struct Place {
    /// The dataplane that was asked last.
    instance: Option<u64>,
    current: Option<Arc<Current>>,
}

/// A switch and the session with it.
struct Current {
    declared: dp::Switch,
    /// The session, or the error.
    session: Result<Switch, String>,
    account: Mutex<Books>,
    gates: Mutex<Gates>,
    mirror: Mutex<Mirrored>,
    /// Held while gates or copies are changed.
    moving: tokio::sync::Mutex<()>,
}

/// State between two reads of the counters.
#[derive(Default)]
struct Books {
    account: Account,
    counts: Arc<Counts>,
    witness: Witness,
    /// A mismatch of the counters was logged.
    said: bool,
}

/// Closed gates by the names of their clients: a dataplane that was restarted has other numbers for
/// them.
#[derive(Default)]
struct Gates {
    /// As it is asked for. Empty: of all clients.
    closed: BTreeSet<(String, Direction)>,
    /// Numbers of the existing clients.
    numbers: BTreeMap<String, u16>,
}

/// The directions that are meant.
fn ways(direction: pb::Direction) -> Vec<Direction> {
    match direction {
        pb::Direction::Forward => vec![Direction::Forward],
        pb::Direction::Return => vec![Direction::Return],
        pb::Direction::Unspecified => Direction::BOTH.to_vec(),
    }
}

fn message(way: Direction) -> pb::Direction {
    match way {
        Direction::Forward => pb::Direction::Forward,
        Direction::Return => pb::Direction::Return,
    }
}

/// State and counters of the switch.
#[derive(Debug)]
pub(crate) struct Look {
    pub declared: dp::Switch,
    /// Frames that are copied, as it was asked for.
    pub mirror: pb::Mirror,
    /// Or why there is no session.
    pub standing: Result<Standing, String>,
    pub counts: Arc<Counts>,
    /// Frames at both ends of its wires to the box.
    pub wires: Vec<pb::SwitchWire>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Switches {
    pub fn new(events: Events) -> Self {
        let (place, news) = (RwLock::default(), Arc::default());
        Self(Arc::new(Shared { events, place, news }))
    }

    fn place(&self) -> Place {
        self.0.place.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn current(&self) -> Option<Arc<Current>> {
        self.place().current
    }

    /// Waits until the switch is ready, or is so no longer.
    pub async fn news(&self) {
        self.0.news.notified().await;
    }

    /// Requests a look at the current plan, if the switch could do a part of it.
    pub fn nudge(&self) {
        if self.is_ready() {
            self.0.news.notify_one();
        }
    }

    /// Whether this dataplane has not said yet what switch there is.
    pub fn must_ask(&self, instance: u64) -> bool {
        self.place().instance != Some(instance)
    }

    /// Takes a dataplane's description: keeps the session, starts another one, or ends it.
    pub fn described(&self, described: &dp::DescribeResponse) {
        let dp::DescribeResponse { instance, switch: declared, .. } = described;
        let mut place = self.0.place.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = place.instance.replace(*instance) != Some(*instance);
        if place.current.as_ref().map(|current| &current.declared) != declared.as_ref() {
            // The old one ends with its last user.
            place.current = declared.clone().map(|declared| Arc::new(self.begin(declared)));
        }
        if let Some(current) = &place.current {
            let mut books = locked(&current.account);
            (books.account, books.witness) = Default::default();
            if is_new {
                locked(&current.gates).numbers.clear();
                locked(&current.mirror).forget_numbers();
            }
        }
    }

    fn begin(&self, declared: dp::Switch) -> Current {
        let session = match config(&declared) {
            Ok(config) => {
                // Not the switches themselves, which hold the session.
                let (events, news) = (self.0.events.clone(), self.0.news.clone());
                let address = declared.address.clone();
                Ok(Switch::start(config, move |heard| {
                    tell(&events, &address, heard);
                    news.notify_one();
                }))
            }
            Err(why) => {
                let message = format!("it cannot be used: {why}");
                let event = event(pb::EventKind::SwitchLost, &declared.address, message.clone());
                self.0.events.publish(event);
                Err(message)
            }
        };
        let (account, gates, mirror, moving) = Default::default();
        Current { declared, session, account, gates, mirror, moving }
    }

    pub fn is_declared(&self) -> bool {
        self.current().is_some()
    }

    /// Whether it can be used.
    pub fn is_ready(&self) -> bool {
        self.current().is_some_and(|current| current.stages().ready)
    }

    /// A link, split between the dataplane and the switch, if there is one.
    pub fn split(&self, profile: &pb::Profile, said: Option<&pb::Clients>) -> Option<Split> {
        let matches = said.is_some_and(clients::have_matches);
        self.current().map(|current| split(profile, Stages { matches, ..current.stages() }))
    }

    /// Prepares the switch for its part of a plan of this dataplane. When this returns, the switch
    /// has the entries. None if there is no switch, or it does nothing.
    pub async fn offload(
        &self,
        instance: u64,
        said: Option<&pb::Clients>,
        profile: Option<&pb::Profile>,
    ) -> Option<dp::Offload> {
        let Place { instance: known, current } = self.place();
        let current = current.filter(|_| known == Some(instance))?;
        let stages = current.stages();
        if !stages.ready {
            return None;
        }
        let Split { forward, back, marks, .. } =
            profile.map(|profile| split(profile, stages)).unwrap_or_default();
        let rules = said.map_or_else(|| clients::hash(&pb::Clients::default()), clients::hash);
        let asked = current.session.as_ref().ok()?.offload(instance, rules, forward, back);
        let offload = tokio::time::timeout(DEADLINE, asked).await.ok()?;
        if offload.epoch == 0 {
            return None;
        }
        Some(dp::Offload {
            epoch: offload.epoch.into(),
            forward_loss: slot(forward, offload.forward_loss),
            return_loss: slot(back, offload.return_loss),
            marks: offload.marks && marks,
        })
    }

    /// Reports which offload the current plan uses.
    pub fn in_use(&self, offload: Option<&dp::Offload>) {
        let current = self.current();
        let Some(Ok(session)) = current.as_ref().map(|current| &current.session) else { return };
        let offload = offload.copied().unwrap_or_default();
        let number = |number: u32| u16::try_from(number).unwrap_or_default();
        session.in_use(&::switch::Offload {
            epoch: number(offload.epoch),
            forward_loss: number(offload.forward_loss),
            return_loss: number(offload.return_loss),
            marks: offload.marks,
        });
    }

    /// Says which clients there are and who owns them, and closes the gates of those that came.
    pub async fn meet(
        &self,
        instance: u64,
        said: &pb::Clients,
        stats: &pb::Stats,
        owners: &dp::Owners,
    ) {
        let Place { instance: known, current } = self.place();
        let Some(current) = current.filter(|_| known == Some(instance)) else { return };
        let numbers = clients::numbers(stats);
        if let Ok(session) = &current.session {
            if let Some(owners) = clients::owners(owners)
                && let Err(error) = session.set_owners(owners)
            {
                tracing::error!(%error, "the owners of the group are not those of the switch");
            }
            let owned = clients::Owned::new(owners, stats, session.cells());
            let known = clients::known(said, &numbers, &owned);
            session.set_clients(instance, clients::hash(said), known);
            locked(&current.gates).numbers = numbers;
            locked(&current.mirror).meet(said, stats);
            current.renumber(session).await;
            current.renumber_copies(session).await;
        }
    }

    /// Waits until the switch has what it was told of clients and owners.
    ///
    /// # Errors
    /// Why it does not have it.
    pub async fn written(&self) -> Result<(), String> {
        let current = self.current().ok_or("there is none")?;
        let session = current.session.as_ref().map_err(Clone::clone)?;
        session.written().await.map_err(|error| error.to_string())
    }

    /// Closes or opens a gate, of all clients if none is named.
    ///
    /// # Errors
    /// In words, if there is no such client or the switch does not do it.
    pub async fn set_gate(
        &self,
        client: &str,
        direction: pb::Direction,
        closed: bool,
    ) -> Result<(), tonic::Status> {
        let current = self.current().ok_or_else(none_there)?;
        let session = current.session.as_ref().map_err(tonic::Status::unavailable)?;
        let _one_at_a_time = current.moving.lock().await;
        let gate = |way| (client.to_owned(), way);
        let known = locked(&current.gates).numbers.get(client).copied();
        let number = match (client, known) {
            ("", _) => None,
            (_, Some(number)) => Some(number),
            // It waits for its client, and needs to no longer.
            (_, None) if !closed && current.give_up(client, direction) => return Ok(()),
            (name, None) => {
                return Err(tonic::Status::not_found(format!(
                    "the switch knows no client {:?}: it knows those that have had a frame \
                     (linkctl clients list)",
                    crate::refusal::clip(name)
                )));
            }
        };
        let mut refused = None;
        for way in ways(direction) {
            let set = session.set_gate(number, Some(way), closed).await;
            let gates = &mut locked(&current.gates).closed;
            match (set.is_ok(), closed) {
                (true, true) => drop(gates.insert(gate(way))),
                (true, false) => drop(gates.remove(&gate(way))),
                (false, _) => {}
            }
            refused = refused.or(set.err());
        }
        refused.map_or(Ok(()), |error| Err(status_of(&error)))
    }

    /// Reads the switch's counters. To be done before the dataplane is asked for its own. A run that begins
    /// needs those of `now`: losses that older ones lack would be of the run.
    pub async fn read(&self, now: bool) -> Option<Taken> {
        let Place { instance, current } = self.place();
        let current = current?;
        let counts = current.counts(now).await;
        // Counters of another instance say nothing about this one.
        let counts = if instance == Some(counts.instance) { counts } else { Arc::default() };
        Some(Taken { current, counts })
    }

    /// Whether its counters have yet to be compared with those of the dataplane.
    pub fn must_begin(&self) -> bool {
        self.current().is_some_and(|current| current.must_begin())
    }

    /// State and counters of the switch; none without a switch.
    pub async fn look(&self) -> Option<Look> {
        let current = self.current()?;
        let counts = current.counts(false).await;
        let standing = current.session.as_ref().map(Switch::status).map_err(Clone::clone);
        let mirror = locked(&current.mirror).asked.clone();
        let wires = locked(&current.account).witness.wires();
        Some(Look { declared: current.declared.clone(), mirror, standing, counts, wires })
    }

    /// The gates that are closed in the switch, of clients that there are.
    pub fn gates(&self) -> Vec<pb::Gate> {
        let Some(current) = self.current() else { return Vec::new() };
        let Ok(session) = &current.session else { return Vec::new() };
        let gates = locked(&current.gates);
        let names: HashMap<u16, &String> = gates.numbers.iter().map(|(k, v)| (*v, k)).collect();
        let stand = session.status().gates;
        let named: BTreeSet<(&str, Direction)> = stand
            .into_iter()
            .filter_map(|(number, way)| {
                let name = number.map_or(Some(""), |n| names.get(&n).map(|name| name.as_str()));
                name.map(|name| (name, way))
            })
            .collect();
        let mut shown: Vec<pb::Gate> = Vec::new();
        for (client, way) in named {
            match shown.last_mut() {
                // Forward comes before return.
                Some(last) if last.client == client => last.direction = 0,
                _ => {
                    let (client, direction) = (client.to_owned(), message(way) as i32);
                    shown.push(pb::Gate { client, direction });
                }
            }
        }
        shown
    }
}

impl Current {
    fn stages(&self) -> Stages {
        let dp::Switch { classifies, loses, marks, .. } = self.declared;
        let ready =
            self.session.as_ref().is_ok_and(|session| session.status().phase == Phase::Ready);
        Stages { ready, classifies, matches: false, loses, marks }
    }

    /// Since when it is ready, if it is.
    fn ready_since(&self) -> Option<Instant> {
        let standing = self.session.as_ref().map(Switch::status).ok();
        standing.filter(|it| it.phase == Phase::Ready).map(|it| it.since)
    }

    /// Whether it is ready, and its counters have not been compared with those of the dataplane since.
    fn must_begin(&self) -> bool {
        let since = self.ready_since();
        since.is_some_and(|since| locked(&self.account).witness.must_begin(since))
    }

    /// At most 100 ms old, or read `now`; those of its last answer if it does not answer.
    async fn counts(&self, now: bool) -> Arc<Counts> {
        let Ok(session) = &self.session else { return Arc::default() };
        if !self.stages().ready {
            return locked(&self.account).counts.clone();
        }
        let read = async { if now { session.counts_now().await } else { session.counts().await } };
        match tokio::time::timeout(READ_DEADLINE, read).await {
            Ok(counts) => {
                let counts = Arc::new(counts);
                locked(&self.account).counts = counts.clone();
                counts
            }
            Err(_) => locked(&self.account).counts.clone(),
        }
    }

    /// Forgets gates of a client that there is not; true if there were any.
    fn give_up(&self, client: &str, direction: pb::Direction) -> bool {
        let closed = &mut locked(&self.gates).closed;
        let ways = ways(direction);
        let before = closed.len();
        closed.retain(|(name, way)| name != client || !ways.contains(way));
        closed.len() < before
    }

    /// Moves gates to the numbers of their clients. The rest is done at the next look.
    async fn renumber(&self, session: &Switch) {
        let _one_at_a_time = self.moving.lock().await;
        let stand: BTreeSet<_> = session
            .status()
            .gates
            .into_iter()
            .filter_map(|(number, way)| number.map(|number| (number, way)))
            .collect();
        let due: BTreeSet<_> = {
            let Gates { closed, numbers } = &*locked(&self.gates);
            let number = |(name, way): &(String, Direction)| numbers.get(name).map(|n| (*n, *way));
            closed.iter().filter_map(number).collect()
        };
        let open = stand.difference(&due).map(|gate| (*gate, false));
        let close = due.difference(&stand).map(|gate| (*gate, true));
        for ((number, way), closed) in open.chain(close) {
            if let Err(error) = session.set_gate(Some(number), Some(way), closed).await {
                tracing::warn!(number, closed, %error, "a gate of the switch");
                return;
            }
        }
    }
}

/// The switch's counters, read before the dataplane's.
pub(crate) struct Taken {
    current: Arc<Current>,
    counts: Arc<Counts>,
}

impl Taken {
    /// The dataplane that it counted for, if it is known.
    pub fn instance(&self) -> Option<u64> {
        Some(self.counts.instance).filter(|instance| *instance > 0)
    }

    /// Adds the view of the switch to the run of these statistics, which were read after it, once its entries
    /// have been compared with those that were written.
    pub async fn add_witness(&self, stats: &mut pb::Stats, marks: bool) {
        let current = &self.current;
        let Ok(session) = &current.session else { return };
        let soon = match current.must_begin() {
            true => Some(Arc::new(session.counts_now().await)),
            false => None,
        };
        let check = async {
            // One that is not ready answers nothing.
            let is_ready = current.ready_since().is_some();
            is_ready && tokio::time::timeout(READ_DEADLINE, session.check()).await == Ok(true)
        };
        let ((), checked) = tokio::join!(tokio::time::sleep(SETTLE), check);
        let after = current.counts(false).await;
        let soon = soon.unwrap_or_else(|| after.clone());
        let is_known = self.counts.ready && soon.ready && after.ready && checked;
        let since = current.ready_since().filter(|_| is_known);
        let around = Around { before: &self.counts, soon: &soon, after: &after };
        locked(&current.account).witness.add(stats, around, since, marks);
    }

    /// Moves what the switch lost and gated from sent to dropped, in the statistics that were
    /// asked for after it was read.
    pub fn merge(&self, stats: &mut pb::Stats, marks: bool) {
        let mut books = locked(&self.current.account);
        let over = books.account.merge(stats, &reading(&self.counts), marks);
        if over > 0 && !std::mem::replace(&mut books.said, true) {
            tracing::warn!(
                packets = over,
                "the switch has lost more than the dataplane gave it: its counters are of another \
                 time"
            );
        }
    }
}

/// Packets that the switch dropped, by client and direction; bytes without shims.
fn reading(counts: &Counts) -> Reading {
    let inner = |count: ::switch::Count| pb::Count {
        packets: count.packets,
        bytes: count.bytes.saturating_sub(count.packets.saturating_mul(SHIM_BYTES)),
    };
    let mut reading = Reading::new();
    for (number, ByDirection([forward, back])) in &counts.clients {
        for (direction, fates) in [(pb::Direction::Forward, forward), (pb::Direction::Return, back)]
        {
            let away = Away { lost: inner(fates.lost), gated: inner(fates.gated) };
            if away != Away::default() {
                reading.insert((*number, direction), away);
            }
        }
    }
    reading
}

/// Publishes a report of the session as an event.
fn tell(events: &Events, address: &str, news: News) {
    let (kind, message) = match news {
        News::Ready { took, pushed, entries } => {
            let program = if pushed { "given its program and " } else { "given " };
            let took = profile::format_duration(whole_ms(took));
            let entries = profile::counted(entries, "entry", "entries");
            let message = format!("ready after {took}: {program}{entries}");
            (pb::EventKind::SwitchReady, message)
        }
        News::Lost { why } => (pb::EventKind::SwitchLost, format!("it does not answer: {why}")),
        News::Limits { what } => {
            let message = match what.is_empty() {
                true => "it does all of its work again".to_owned(),
                false => what,
            };
            (pb::EventKind::SwitchLimited, message)
        }
        News::Repaired { what } => {
            let message = format!(
                "another one had changed its entries ({what}): they were written again; until then packets may \
                 have been lost or impaired otherwise"
            );
            (pb::EventKind::SwitchRepaired, message)
        }
        News::Taken { by } => {
            let message = format!("another one is its primary controller: {by}");
            (pb::EventKind::SwitchTaken, message)
        }
    };
    events.publish(event(kind, address, message));
}

fn event(kind: pb::EventKind, address: &str, message: String) -> pb::Event {
    let (kind, subject) = (kind as i32, address.to_owned());
    pb::Event { kind, subject, message, ..Default::default() }
}

/// A number for a loss that is one: without, the dataplane draws.
fn slot(loss: Loss, number: u16) -> u32 {
    if loss == Loss::None { 0 } else { number.into() }
}

pub(crate) fn none_there() -> tonic::Status {
    tonic::Status::failed_precondition(
        "this box has no P4 switch: [switch] in the box's file (linkd-dataplane --box) says that \
         there is one",
    )
}

fn status_of(error: &Error) -> tonic::Status {
    let message = crate::refusal::clip(&error.to_string());
    match error {
        Error::NotReady(_) | Error::Ended | Error::Switch(_) => tonic::Status::unavailable(message),
        Error::Client { .. } | Error::Owner { .. } | Error::NoMirror | Error::Mirrors { .. } => {
            tonic::Status::failed_precondition(message)
        }
    }
}

/// Shorter than a person reads.
fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1).saturating_mul(1_000_000)
}
