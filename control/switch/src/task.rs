// SPDX-License-Identifier: Apache-2.0
//! The task of a session: the only one that speaks with the switch.
//!
//! Connect → wait to be the primary → restore → serve, and again from the first when the
//! switch is lost, from the second when another one is its primary. A switch is lost when the
//! stream ends, when it does not answer a question that is put to it once a second, or when
//! it has another program than ours: one that was restarted may be back at once.

use crate::accounts::Accounts;
use crate::config::Config;
use crate::desired::Desired;
use crate::handle::{Request, Said as Clients, Shared};
use crate::model::{Client, DEFAULT, Error, Loss, News, Offload, Phase};
use crate::slots::Slots;
use crate::standing::Standing;
use crate::{names, timing::Timing};
use emu::units::Direction;
use p4runtime::session::DigestConfig;
use p4runtime::{Error as P4Error, News as Said, P4Info, Session, Stream, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Hosts that are told of together, how long the first waits for others, and after what time
/// one is told of again whose list we have not acknowledged.
const DIGEST: DigestConfig =
    DigestConfig { wait: Duration::from_millis(10), list: 64, repeat: Duration::from_secs(1) };

/// Why a session ends.
enum End {
    /// The switch is lost.
    Lost(P4Error),
    /// Another one is its primary, as the stream says.
    Taken(String),
    /// It takes no orders from us, and the stream has not said so.
    Denied(String),
    /// Nobody holds a handle.
    Closed,
}

impl From<P4Error> for End {
    fn from(error: P4Error) -> Self {
        match error {
            P4Error::NotPrimary { message } => Self::Denied(message),
            error => Self::Lost(error),
        }
    }
}

/// All that the task has.
pub struct Task {
    config: Config,
    timing: Timing,
    info: Arc<P4Info>,
    cookie: u64,
    desired: Desired,
    standing: Standing,
    accounts: Accounts,
    shared: Arc<Shared>,
    requests: mpsc::Receiver<Request>,
    told: Box<dyn Fn(News) + Send + Sync>,
    /// Since when the switch is not ready.
    away: Instant,
    /// What the plan in force uses.
    in_use: Offload,
    /// What was told at last.
    said: Option<Phase>,
    /// Whether the switch still has counts of a former dataplane.
    uncleared: bool,
    /// Whether it was said which clients the dataplane has: only these are looked at.
    knows_clients: bool,
}

impl Task {
    /// Serves the requests until nobody holds a handle.
    pub async fn run(
        config: Config,
        timing: Timing,
        shared: Arc<Shared>,
        requests: mpsc::Receiver<Request>,
        told: Box<dyn Fn(News) + Send + Sync>,
    ) {
        let info = P4Info::decode(&config.program.p4info);
        let info = info.and_then(|info| names::check(&info).map(|()| info));
        let info = match info {
            Ok(info) => Arc::new(info),
            Err(error) => {
                // No switch can be used with it: requests are not answered from here on.
                shared.set_phase(Phase::Lost, error.to_string());
                told(News::Lost { why: error.to_string() });
                return;
            }
        };
        let cookie = config.program.cookie();
        let accounts = Accounts::new(&config);
        let mut desired = Desired::new(epoch(0));
        desired.slots = Slots::beginning_at(epoch(0));
        let (away, in_use) = (Instant::now(), Offload::default());
        let standing = Standing::default();
        let mut task = Self {
            config,
            timing,
            info,
            cookie,
            desired,
            standing,
            accounts,
            shared,
            requests,
            told,
            away,
            in_use,
            said: None,
            uncleared: false,
            knows_clients: false,
        };
        task.sessions().await;
    }

    async fn sessions(&mut self) {
        let target = Target {
            address: self.config.address.clone(),
            device: self.config.device,
            election: self.config.election,
        };
        let mut wait = self.timing.first_wait;
        while !self.requests.is_closed() {
            let connected = Session::connect(&target, Arc::clone(&self.info)).await;
            let end = match connected {
                Ok((session, mut stream)) => {
                    let session = session.with_patience(self.timing.patience);
                    let began = Instant::now();
                    let end = self.session(&session, &mut stream).await;
                    if began.elapsed() > self.timing.poll {
                        wait = self.timing.first_wait;
                    }
                    end
                }
                Err(error) => End::Lost(error),
            };
            match end {
                End::Closed => return,
                End::Lost(why) => self.lost(why.to_string()),
                End::Taken(by) | End::Denied(by) => self.taken(by),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(self.timing.poll);
        }
    }

    /// From the election to the end of a session.
    async fn session(&mut self, session: &Session, stream: &mut Stream) -> End {
        let mut denied = false;
        loop {
            let end = match self.elected(session, stream, denied).await {
                Ok(()) => match self.ready(session).await {
                    Ok(()) => self.serve(session, stream).await,
                    Err(end) => end,
                },
                Err(end) => end,
            };
            denied = matches!(end, End::Denied(_));
            match end {
                End::Taken(by) | End::Denied(by) => self.taken(by),
                end => return end,
            }
        }
    }

    /// Waits to be the primary. Where an order was denied, the stream says soon by whom, or
    /// never: then a new one says how it is.
    async fn elected(
        &mut self,
        session: &Session,
        stream: &mut Stream,
        mut denied: bool,
    ) -> Result<(), End> {
        loop {
            let said = tokio::time::timeout(self.timing.poll, stream.next()).await;
            match said {
                Ok(Ok(Said::Primary)) => return Ok(()),
                Ok(Ok(Said::Backup { primary, message })) => {
                    denied = false;
                    self.taken(another(primary, &message));
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(End::Lost(error)),
                Err(_) if self.requests.is_closed() => return Err(End::Closed),
                Err(_) if denied => {
                    let what = "orders with \"not primary\", and names no other primary".into();
                    return Err(End::Lost(P4Error::Strange { what }));
                }
                Err(_) => session.cookie().await.map(drop)?,
            }
        }
    }

    fn lost(&mut self, why: String) {
        self.shared.set_phase(Phase::Lost, why.clone());
        self.say(Phase::Lost, News::Lost { why });
    }

    fn taken(&mut self, by: String) {
        self.shared.set_phase(Phase::Taken, by.clone());
        self.say(Phase::Taken, News::Taken { by });
    }

    /// Tells what was not told at last.
    fn say(&mut self, phase: Phase, news: News) {
        let before = self.said.replace(phase);
        if before == Some(Phase::Ready) {
            self.away = Instant::now();
        }
        if before != Some(phase) {
            (self.told)(news);
        }
    }

    /// Makes the switch be as it should, whatever it is.
    async fn ready(&mut self, session: &Session) -> Result<(), End> {
        self.shared.set_phase(Phase::Restoring, String::new());
        let pushed = self.restore(session).await?;
        let took = self.away.elapsed();
        self.shared.set_restored(took);
        // All are told.
        let _slow = self.publish();
        self.said = Some(Phase::Ready);
        (self.told)(News::Ready { took, pushed, entries: self.standing.entries() });
        Ok(())
    }

    async fn restore(&mut self, session: &Session) -> Result<bool, End> {
        let mut found = None;
        if session.cookie().await? == Some(self.cookie) {
            found = match Standing::read(session).await {
                Ok(found) => Some(found),
                // Its program is ours, and its entries are not: it begins anew.
                Err(P4Error::Entry(_) | P4Error::NoProgram { .. }) => None,
                Err(other) => return Err(other.into()),
            };
        }
        let pushed = found.is_none();
        if let Some(found) = found {
            self.adopt(&found);
            self.standing = found;
        } else {
            let program = &self.config.program;
            session.push(&program.device, &program.p4info, self.cookie).await?;
            self.accounts.restart();
            self.standing = Standing::default();
            // Its clock has begun anew: stamps from before are not to be believed.
            self.desired.epoch = epoch(self.desired.epoch);
            // What stood there is gone, and nobody will say again what was to stay.
            self.desired.clients.get_or_insert_default();
        }
        self.write_groups(session).await?;
        self.write(session, &names::FIRST).await?;
        self.write_clients(session).await?;
        self.write(session, &names::LAST).await?;
        if pushed {
            self.uncleared = false;
        }
        self.clear(session).await?;
        Ok(pushed)
    }

    /// Takes in what is to stay of what is found.
    fn adopt(&mut self, found: &Standing) {
        let now = Instant::now();
        let ours = (self.desired.epoch, self.desired.instance, self.desired.rules);
        let epoch = Desired::epoch_of(found.table(names::PORTS), &self.config);
        match epoch {
            // We said so before, or a linkd before us did and we know no other.
            Some(found @ (epoch, instance, rules)) if ours.1 == 0 || found == ours => {
                if ours.1 == 0 && instance != 0 {
                    self.desired.clients = None;
                }
                let Desired { epoch: e, instance: i, rules: r, .. } = &mut self.desired;
                (*e, *i, *r) = (epoch, instance, rules);
            }
            // Numbers of another epoch, in entries that are deleted before the new one is
            // written.
            _ => self.desired.epoch = self::epoch(self.desired.epoch),
        }
        for entry in found.table(names::LOSS).values() {
            self.desired.slots.adopt(entry, now);
        }
        for entry in found.table(names::HOSTS).values() {
            self.desired.hosts.adopt(entry, &self.config.host_ports);
        }
    }

    async fn write_groups(&mut self, session: &Session) -> Result<(), P4Error> {
        let mut groups = BTreeMap::new();
        for direction in Direction::BOTH {
            let ports = self.config.host_ports.outgoing()[direction];
            let ports: BTreeSet<u32> = ports.iter().map(|port| u32::from(*port)).collect();
            if !ports.is_empty() {
                groups.insert(names::group(direction), ports);
            }
        }
        self.standing.write_groups(session, groups, DIGEST).await
    }

    /// Makes these tables be as they should, in this order.
    async fn write(&mut self, session: &Session, tables: &[&'static str]) -> Result<(), End> {
        for table in tables {
            if let Some(desired) = self.desired.entries(table, &self.config) {
                self.standing.write(session, table, &desired).await?;
            }
        }
        if self.standing.wrong().contains(&names::PORTS) {
            // Nothing passes as it should.
            let what = self.standing.refusals();
            return Err(End::Lost(P4Error::Strange { what }));
        }
        Ok(())
    }

    /// Makes the tables that name clients be as they should, or lets none of them name one:
    /// where one rule is missing, another client's answers in its place.
    async fn write_clients(&mut self, session: &Session) -> Result<(), End> {
        self.desired.withheld = None;
        let Some(why) = self.try_clients(session).await? else { return Ok(()) };
        tracing::warn!("the switch knows no client: {why}");
        self.desired.withheld = Some(why);
        self.empty_clients(session).await
    }

    /// Says why not.
    async fn try_clients(&mut self, session: &Session) -> Result<Option<String>, End> {
        for table in names::CLIENTS {
            let desired = self.desired.entries(table, &self.config);
            let (wanted, size) = (desired.map_or(0, |all| all.len() as u64), self.size(table));
            if wanted > size {
                return Ok(Some(format!(
                    "{table} holds {size} entries, and the rules of the clients need {wanted}: \
                     the box classifies until there are fewer"
                )));
            }
        }
        for table in names::CLIENTS {
            self.write(session, &[table]).await?;
            if self.standing.wrong().contains(&table) {
                let refusals = self.standing.refusals();
                return Ok(Some(format!("the box classifies, since {refusals}")));
            }
        }
        Ok(None)
    }

    /// Lets no client stand there, from the last to be looked for to the first.
    async fn empty_clients(&mut self, session: &Session) -> Result<(), End> {
        for table in names::CLIENTS.into_iter().rev() {
            self.standing.write(session, table, &BTreeMap::new()).await?;
        }
        if names::CLIENTS.iter().any(|table| self.standing.wrong().contains(table)) {
            // What stands there would be believed.
            let what = self.standing.refusals();
            return Err(End::Lost(P4Error::Strange { what }));
        }
        Ok(())
    }

    /// Says how the switch is while it is ready, and since when it did not answer if somebody
    /// waited for it in vain.
    fn publish(&self) -> Option<Duration> {
        let (entries, clients) = (self.standing.entries(), self.desired.client_count(&self.config));
        let gates = self.desired.gates.iter().copied().collect();
        self.shared.set_figures(entries, clients, gates);
        let refusals = Some(self.standing.refusals()).filter(|refusals| !refusals.is_empty());
        let said: Vec<_> = self.desired.withheld.iter().cloned().chain(refusals).collect();
        self.shared.set_phase(Phase::Ready, said.join("; "));
        self.shared.answers()
    }

    /// While all is well.
    async fn serve(&mut self, session: &Session, stream: &mut Stream) -> End {
        let mut tick = tokio::time::interval(self.timing.poll);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tick.reset();
        let mut retried = Instant::now();
        loop {
            let shared = Arc::clone(&self.shared);
            let done = tokio::select! {
                said = stream.next() => match said {
                    Ok(said) => self.heard(session, stream, said).await,
                    Err(error) => Err(End::Lost(error)),
                },
                request = self.requests.recv() => match request {
                    Some(request) => self.answer(session, request).await,
                    None => Err(End::Closed),
                },
                () = shared.told() => self.take(session).await,
                _ = tick.tick() => {
                    let retry = retried.elapsed() >= self.timing.retry;
                    if retry {
                        retried = Instant::now();
                    }
                    self.look(session, retry).await
                }
            };
            match done {
                Ok(()) => {
                    if let Some(took) = self.publish() {
                        let entries = self.standing.entries();
                        (self.told)(News::Ready { took, pushed: false, entries });
                    }
                }
                Err(end) => return end,
            }
        }
    }

    async fn heard(&mut self, session: &Session, stream: &Stream, said: Said) -> Result<(), End> {
        match said {
            Said::Primary => Ok(()),
            Said::Backup { primary, message } => Err(End::Taken(another(primary, &message))),
            Said::Digests { digest, list, rows } => {
                let size = self.size(names::HOSTS).min(self.size(names::SOURCES));
                let ports = &self.config.host_ports;
                let mut learned = false;
                for row in &rows {
                    learned |= self.desired.hosts.learn(row, ports, size);
                }
                if learned {
                    self.write(session, &[names::HOSTS, names::SOURCES]).await?;
                }
                stream.acknowledge(digest, list);
                Ok(())
            }
            Said::Complaint(what) => {
                tracing::warn!("the switch complains: {what}");
                Ok(())
            }
        }
    }

    fn size(&self, table: &str) -> u64 {
        self.info.table(table).map_or(0, |table| table.size)
    }

    async fn answer(&mut self, session: &Session, request: Request) -> Result<(), End> {
        match request {
            // Who asked has stopped waiting.
            Request::Offload { reply, .. } if reply.is_closed() => Ok(()),
            Request::Gate { reply, .. } if reply.is_closed() => Ok(()),
            Request::Counts { reply } if reply.is_closed() => Ok(()),
            Request::Offload { instance, rules, forward, return_, reply } => {
                let losses = [forward, return_];
                let offload = self.offload(session, (instance, rules), losses).await?;
                // Slots of one who went away are collected as all others.
                let _gone = reply.send(offload);
                Ok(())
            }
            Request::Gate { client, direction, closed, reply } => {
                let before = self.desired.gates.clone();
                let done = self.gate(session, client, direction, closed).await;
                let said = match &done {
                    Ok(refused) if refused.is_empty() => Ok(()),
                    Ok(refused) => Err(Error::NotReady(refused.clone())),
                    Err(End::Lost(error)) => Err(Error::Switch(error.clone())),
                    Err(End::Taken(by) | End::Denied(by)) => Err(Error::NotReady(by.clone())),
                    Err(End::Closed) => Err(Error::Ended),
                };
                let failed = said.is_err();
                if reply.send(said).is_err() || failed {
                    // Nobody knows of it, so it does not come into force later either.
                    self.desired.gates = before;
                    done?;
                    return self.write(session, &[names::GATES]).await;
                }
                Ok(())
            }
            Request::Counts { reply } => {
                let read = self.accounts.read(session).await;
                let tick = self.config.target.tick();
                let ready = read.is_ok() && self.knows_clients;
                let counts = self.accounts.counts(self.desired.instance, tick, ready);
                self.shared.set_counts(counts);
                let _gone = reply.send(());
                read.map_err(End::from)
            }
        }
    }

    async fn offload(
        &mut self,
        session: &Session,
        (instance, rules): (u64, u64),
        losses: [Loss; 2],
    ) -> Result<Offload, End> {
        if (self.desired.instance, self.desired.rules) != (instance, rules) {
            self.begin(session, instance, rules).await?;
        }
        let stages = self.config.stages;
        let mut numbers = [0; 2];
        if stages.loses {
            let (size, now) = (self.size(names::LOSS), Instant::now());
            for (number, loss) in numbers.iter_mut().zip(losses) {
                *number = self.desired.slots.number(loss, size, now).unwrap_or(0);
            }
            self.write(session, &[names::LOSS]).await?;
            let standing = self.standing.table(names::LOSS);
            for number in &mut numbers {
                // One that was refused may stand there with the figures that it had.
                let stands = self.desired.slots.entry(*number);
                if stands.is_none_or(|entry| standing.get(&entry.key) != Some(&entry)) {
                    *number = 0;
                }
            }
        }
        let [forward_loss, return_loss] = numbers;
        let epoch = self.desired.epoch;
        Ok(Offload { epoch, forward_loss, return_loss, marks: stages.marks })
    }

    /// Begins with another dataplane, which numbers its clients anew, or with other rules of
    /// the same: entries of clients go before the epoch does. What was counted for a number
    /// is another client's only in another dataplane.
    async fn begin(&mut self, session: &Session, instance: u64, rules: u64) -> Result<(), End> {
        let renumbered = self.desired.instance != instance;
        (self.desired.instance, self.desired.rules) = (instance, rules);
        if renumbered {
            // To clear all counters takes a time.
            self.shared.set_phase(Phase::Restoring, String::new());
            self.knows_clients = false;
            // Also if the switch is lost half-way.
            (self.accounts, self.uncleared) = (Accounts::new(&self.config), true);
            // A number above these is another client's: who knows its name sets its gate again.
            let gates = &mut self.desired.gates;
            gates.retain(|(client, _)| client.is_none_or(|number| number <= DEFAULT));
        }
        self.desired.clients = Some(Vec::new());
        self.desired.withheld = None;
        self.empty_clients(session).await?;
        // The next linkd takes counts for those of the dataplane that ports are of.
        self.clear(session).await?;
        self.desired.epoch = epoch(self.desired.epoch);
        self.write(session, &[names::GATES, names::PORTS]).await?;
        // Before the answer: who has it finds the switch ready.
        self.shared.set_phase(Phase::Ready, self.standing.refusals());
        Ok(())
    }

    /// Lets the switch count from zero.
    async fn clear(&mut self, session: &Session) -> Result<(), End> {
        if self.uncleared {
            crate::accounts::clear(session).await?;
            self.uncleared = false;
        }
        Ok(())
    }

    async fn gate(
        &mut self,
        session: &Session,
        client: Option<u16>,
        direction: Option<Direction>,
        closed: bool,
    ) -> Result<String, End> {
        for one in Direction::BOTH.into_iter().filter(|one| direction.is_none_or(|d| d == *one)) {
            let gate = (client, one);
            if closed {
                self.desired.gates.insert(gate);
            } else {
                self.desired.gates.remove(&gate);
            }
        }
        self.write(session, &[names::GATES]).await?;
        let wrong = self.standing.wrong().contains(&names::GATES);
        Ok(if wrong { self.standing.refusals() } else { String::new() })
    }

    /// Takes what was said and needs no answer.
    async fn take(&mut self, session: &Session) -> Result<(), End> {
        let (clients, in_use) = self.shared.take();
        if let Some(offload) = in_use {
            self.in_use = offload;
            self.use_slots();
        }
        match clients {
            Some(Clients { instance, rules, clients })
                if (instance, rules) == (self.desired.instance, self.desired.rules) =>
            {
                self.clients(session, clients).await
            }
            _ => Ok(()),
        }
    }

    async fn clients(&mut self, session: &Session, mut clients: Vec<Client>) -> Result<(), End> {
        let counted = names::counted(&self.info);
        for client in clients.iter_mut().filter(|client| client.number >= counted) {
            // The switch would count it as nobody's.
            client.number = 0;
        }
        self.accounts.know(clients.iter().map(|client| client.number));
        self.knows_clients = true;
        let clients = Some(clients);
        if self.desired.clients == clients {
            return Ok(());
        }
        self.desired.clients = clients;
        self.write_clients(session).await
    }

    fn use_slots(&mut self) {
        let Offload { forward_loss, return_loss, .. } = self.in_use;
        self.desired.slots.used([forward_loss, return_loss], Instant::now());
    }

    /// Once in a while: whether the switch is there and has our program, and what is to go.
    async fn look(&mut self, session: &Session, retry: bool) -> Result<(), End> {
        if session.cookie().await? != Some(self.cookie) {
            let message = "it was restarted, or given another one".into();
            return Err(End::Lost(P4Error::NoProgram { message }));
        }
        self.use_slots();
        if self.desired.slots.collect(self.timing.idle, Instant::now()) {
            self.write(session, &[names::LOSS]).await?;
        }
        let wrong = self.standing.wrong();
        if retry && !wrong.is_empty() {
            self.write(session, &wrong).await?;
        }
        if retry && self.desired.withheld.is_some() {
            self.write_clients(session).await?;
        }
        Ok(())
    }
}

/// Who is the primary, in words.
fn another(primary: Option<u128>, message: &str) -> String {
    let number = primary.map_or(String::new(), |n| format!(", number {n}"));
    format!("another controller{number} ({message})")
}

/// Another epoch than this one, drawn: a number that two linkds do not both begin with.
fn epoch(other: u16) -> u16 {
    loop {
        let mut bytes = [0; 2];
        // Without the system's random numbers, the next is as good: it must only be another.
        let drawn = match getrandom::fill(&mut bytes) {
            Ok(()) => u16::from_be_bytes(bytes),
            Err(_) => other.wrapping_add(1).max(1),
        };
        if drawn != 0 && drawn != other {
            return drawn;
        }
    }
}
