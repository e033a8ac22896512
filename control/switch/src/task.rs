// SPDX-License-Identifier: Apache-2.0
//! The task of a session. It alone communicates with the switch.
//!
//! Connect → wait to become the primary → restore → serve. It starts over when the switch is lost,
//! and waits again when another controller becomes the primary. The switch is lost when the stream
//! ends, when it does not answer the query sent once a second, or when it has another program. A
//! restarted switch may be reachable again immediately.

use crate::accounts::Accounts;
use crate::cells::Cells;
use crate::config::Config;
use crate::desired::Desired;
use crate::model::{News, Offload, Phase};
use crate::shared::{Request, Shared};
use crate::slots::Slots;
use crate::standing::Standing;
use crate::{names, timing::Timing};
use p4runtime::{Error as P4Error, P4Info, Session, Stream, StreamEvent, Target};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

mod checking;
mod reading;
mod requests;
mod restore;

use checking::Checks;
use reading::Readings;

/// Hosts that are learned within this time are written together, because a write compares whole tables.
const LEARN: Duration = Duration::from_millis(20);

enum End {
    Lost(P4Error),
    /// Another controller is the primary, as reported by the stream.
    Taken(String),
    /// The switch refuses our writes, but the stream has not reported another primary.
    Denied(String),
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
    report: Box<dyn Fn(News) + Send + Sync>,
    /// Offload of the current plan.
    in_use: Offload,
    /// Last phase reported as an event.
    reported: Option<Phase>,
    /// What the switch cannot do, as reported last.
    limits: String,
    /// When the first of the hosts was learned that are not written yet.
    learned: Option<Instant>,
    /// True if the switch still has counts of a previous dataplane.
    uncleared: bool,
    /// True if the dataplane's client list is known. Only listed clients are counted.
    knows_clients: bool,
    /// Entries that another controller changed, since the start.
    foreign: u64,
    /// True if the owners were set; otherwise those of the switch are adopted.
    knows_owners: bool,
}

impl Task {
    /// Serves requests until all handles are dropped.
    pub async fn run(
        config: Config,
        timing: Timing,
        shared: Arc<Shared>,
        requests: mpsc::Receiver<Request>,
        report: Box<dyn Fn(News) + Send + Sync>,
    ) {
        let info = P4Info::decode(&config.program.p4info);
        let checked = info.map_err(names::CheckError::from).and_then(|info| {
            names::check(&info, config.target)?;
            Ok(info)
        });
        let info = match checked {
            Ok(info) => Arc::new(info),
            Err(error) => {
                // The program is unusable with any switch: requests are no longer answered.
                shared.set_phase(Phase::Lost, error.to_string());
                report(News::Lost { why: error.to_string() });
                return;
            }
        };
        shared.set_program(info.package().to_string());
        let cookie = config.program.cookie();
        let cells = Cells::of(&config);
        let accounts = Accounts::new(&config, cells);
        let mut desired = Desired::new(epoch(0), cells);
        desired.slots = Slots::beginning_at(epoch(0));
        let in_use = Offload::default();
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
            report,
            in_use,
            reported: None,
            limits: String::new(),
            learned: None,
            uncleared: false,
            knows_clients: false,
            foreign: 0,
            knows_owners: false,
        };
        task.sessions().await;
    }

    async fn sessions(&mut self) {
        let target = Target {
            address: self.config.address.clone(),
            tls: self.config.tls.clone(),
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

    /// Runs from the election to the end of a session.
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

    /// Waits to become the primary. After a refused write the stream soon reports the primary, or
    /// never does; in the latter case a new stream is opened.
    async fn elected(
        &mut self,
        session: &Session,
        stream: &mut Stream,
        mut denied: bool,
    ) -> Result<(), End> {
        loop {
            let event = tokio::time::timeout(self.timing.poll, stream.next()).await;
            match event {
                Ok(Ok(StreamEvent::Primary)) => return Ok(()),
                Ok(Ok(StreamEvent::Backup { primary, message })) => {
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

    /// Reports a change of phase once.
    fn say(&mut self, phase: Phase, news: News) {
        if self.reported.replace(phase) != Some(phase) {
            (self.report)(news);
        }
    }

    /// Publishes the state while the switch is ready, and reports a change of what it cannot do. Returns
    /// the time without an answer if a request timed out.
    fn publish(&mut self) -> Option<Duration> {
        let (entries, clients) = (self.standing.entries(), self.desired.client_count(&self.config));
        self.shared.set_figures(entries, clients);
        let Desired { gates, mirrors, .. } = &self.desired;
        let (gates, mirrors) = (gates.iter().copied().collect(), mirrors.iter().copied().collect());
        self.shared.set_selected(gates, mirrors);
        if !self.standing.wrong().contains(&names::BUCKETS) {
            self.shared.set_owned(self.desired.owners.clone());
        }
        let refusals = Some(self.standing.refusals()).filter(|refusals| !refusals.is_empty());
        let full = self.desired.hosts.is_full().then(|| {
            format!(
                "it knows {} hosts, the most: frames to others leave at all ports of their side",
                self.most_hosts()
            )
        });
        let unchecked = Some(self.standing.unchecked()).filter(|unchecked| !unchecked.is_empty());
        let limits = self.desired.withheld.iter().cloned().chain(refusals).chain(full);
        let limits: Vec<_> = limits.chain(unchecked).collect();
        let limits = limits.join("; ");
        self.shared.set_phase(Phase::Ready, limits.clone());
        if self.limits != limits {
            (self.report)(News::Limits { what: limits.clone() });
            self.limits = limits;
        }
        self.shared.answers()
    }

    async fn serve(&mut self, session: &Session, stream: &mut Stream) -> End {
        let mut tick = tokio::time::interval(self.timing.poll);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tick.reset();
        let mut retried = Instant::now();
        let mut readings = Readings::default();
        let mut checks = Checks::new(retried);
        loop {
            let is_due = checks.begun().elapsed() >= self.timing.check;
            checks.begin(session, &self.standing, is_due);
            readings.begin(session, self.desired.instance, &self.accounts);
            let shared = Arc::clone(&self.shared);
            let done = tokio::select! {
                event = stream.next() => match event {
                    Ok(event) => self.heard(stream, event),
                    Err(error) => Err(End::Lost(error)),
                },
                request = self.requests.recv() => match request {
                    Some(request) => {
                        self.answer(session, &mut readings, &mut checks, request).await
                    }
                    None => Err(End::Closed),
                },
                () = shared.changed() => self.take(session).await,
                read = readings.end() => self.publish_counts(read),
                checked = checks.end() => self.compare(session, checked).await,
                () = due(self.learned.map(|since| since + LEARN)) => {
                    self.learned = None;
                    self.write(session, &[names::HOSTS, names::SOURCES]).await
                }
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
                        (self.report)(News::Ready { took, pushed: false, entries });
                    }
                }
                Err(end) => return end,
            }
        }
    }

    fn heard(&mut self, stream: &Stream, event: StreamEvent) -> Result<(), End> {
        match event {
            StreamEvent::Primary => Ok(()),
            StreamEvent::Backup { primary, message } => Err(End::Taken(another(primary, &message))),
            StreamEvent::Digests { digest, list, rows } => {
                let (size, now) = (self.most_hosts(), Instant::now());
                let ports = &self.config.host_ports;
                let mut learned = false;
                for row in &rows {
                    learned |= self.desired.hosts.learn(row, ports, size, now);
                }
                if learned {
                    self.learned.get_or_insert(now);
                }
                stream.acknowledge(digest, list);
                Ok(())
            }
            StreamEvent::Complaint(what) => {
                tracing::warn!("the switch complains: {what}");
                Ok(())
            }
        }
    }

    fn size(&self, table: &str) -> u64 {
        self.info.table(table).map_or(0, |table| table.size)
    }

    fn most_hosts(&self) -> u64 {
        self.size(names::HOSTS).min(self.size(names::SOURCES))
    }

    fn use_slots(&mut self) {
        let Offload { forward_loss, return_loss, .. } = self.in_use;
        self.desired.slots.used([forward_loss, return_loss], Instant::now());
    }

    /// Periodic check: the switch answers and has our program; expired losses and hosts are removed
    /// and rejected entries are retried.
    async fn look(&mut self, session: &Session, retry: bool) -> Result<(), End> {
        if session.cookie().await? != Some(self.cookie) {
            let message = "it was restarted, or given another one".into();
            return Err(End::Lost(P4Error::NoProgram { message }));
        }
        self.use_slots();
        if self.desired.slots.collect(self.timing.idle, Instant::now()) {
            self.write(session, &[names::LOSS]).await?;
        }
        let size = self.most_hosts();
        if self.desired.hosts.age(&self.timing.ageing, size, Instant::now()) {
            self.write(session, &[names::HOSTS, names::SOURCES]).await?;
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

/// Ends at an instant; never without one.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Describes the primary for a message.
fn another(primary: Option<u128>, message: &str) -> String {
    let number = primary.map_or(String::new(), |n| format!(", number {n}"));
    format!("another controller{number} ({message})")
}

/// Draws an epoch that differs from `other`, so that two linkds do not start with the same one.
fn epoch(other: u16) -> u16 {
    loop {
        let mut bytes = [0; 2];
        // Without random numbers the next number serves: it only has to differ.
        let drawn = match getrandom::fill(&mut bytes) {
            Ok(()) => u16::from_be_bytes(bytes),
            Err(_) => other.wrapping_add(1).max(1),
        };
        if drawn != 0 && drawn != other {
            return drawn;
        }
    }
}
