// SPDX-License-Identifier: Apache-2.0
//! The group: its boxes, the current plan, and who owns which client.
//!
//! | state | owner |
//! |---|---|
//! | plan, packets and counts of a box | its dataplane |
//! | owners, generation of the group, running scenario | this process |
//! | leases, audit log, certificates, the switch's tables | linkd |
//!
//! Before all boxes have answered once, every request is refused: the ports of a box in the switch are
//! known from its answer alone. Then [`Group::settle`] takes the plan of the boxes, if all agree.

pub mod changes;
mod moves;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use changes::Tip;
use moves::Moves;
use owner::{Current, Entry, History, Span};
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tokio::sync::{Notify, Semaphore};
use tonic::Status;

use crate::accounts;
use crate::clock::{GroupClock, Offset};
use crate::connect::Dial;
use crate::description::{self, Described, disagreement};
use crate::file::GroupFile;
use crate::member::{Member, Reports};
use crate::owners::Owners;

/// From one reading of the statistics to the next, to see where a client receives packets.
const RECALL: Duration = Duration::from_millis(300);

/// The boxes of a group. Clones share them.
#[derive(Clone)]
pub struct Group(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub clock: GroupClock,
    /// Drawn at the start, never zero.
    pub instance: u64,
    pub members: Vec<Member>,
    pub history: History,
    /// The generation of each box, by place; none: it is behind.
    tips: Mutex<Vec<Option<Tip>>>,
    /// The plan that readers see; none before the group has settled.
    current: Mutex<Option<Current>>,
    owners: Mutex<Owners>,
    span: tokio::sync::Mutex<Span>,
    pub moves: Moves,
    pub capturing: Arc<Semaphore>,
    /// Why a box cannot be in this group, by place.
    faults: Mutex<BTreeMap<usize, String>>,
    /// A box was met, or refused.
    news: Notify,
}

impl Group {
    /// A group that knows nothing of its boxes yet. `instance` is random and not zero.
    #[must_use]
    pub fn new(file: GroupFile, instance: u64) -> Self {
        Self::over(file, instance, GroupClock::start(), &Dial::default())
    }

    /// The same on another clock, with boxes that are reached by another way.
    #[must_use]
    pub fn over(file: GroupFile, instance: u64, clock: GroupClock, dial: &Dial) -> Self {
        let count = file.boxes.len();
        let members = file.boxes.iter().enumerate();
        let members: Vec<_> =
            members.map(|(place, of)| Member::new(place, of, clock, dial.clone())).collect();
        Self(Arc::new(Shared {
            clock,
            instance,
            history: History::new(Current::default()),
            tips: Mutex::new(vec![None; count]),
            members,
            current: Mutex::new(None),
            owners: Mutex::new(Owners::new(count, file.owners)),
            span: tokio::sync::Mutex::new(Span::starting(clock.utc(0).into())),
            moves: Moves::default(),
            capturing: Arc::new(Semaphore::new(1)),
            faults: Mutex::default(),
            news: Notify::new(),
        }))
    }

    /// Keeps control of all boxes under a name, while polled.
    pub async fn keep(&self, name: &str) {
        let mut tasks = tokio::task::JoinSet::new();
        for place in 0..self.0.members.len() {
            let (group, name) = (self.clone(), name.to_owned());
            tasks.spawn(async move {
                let member = &group.0.members[place];
                member.keep(&name, &group).await;
            });
        }
        tasks.join_all().await;
    }

    /// Waits until every box has answered, then takes their plan if all agree. Otherwise the
    /// generation is zero, and linkd applies its last link.
    ///
    /// # Errors
    /// If boxes do not fit together.
    pub async fn settle(&self) -> Result<(), String> {
        loop {
            let news = self.0.news.notified();
            if let Some(fault) = self.faults().values().next() {
                return Err(fault.clone());
            }
            if self.unmet().is_empty() {
                break;
            }
            news.await;
        }
        let resumed = self.resume_moves().await;
        self.recall_owners().await;
        let mut plans = self.0.history.plans().await;
        let first = self.first_plan();
        let names = names(&first.plan);
        self.place(&names);
        for (client, place) in &resumed {
            self.owners().give([&**client], *place);
        }
        plans.current = first.clone();
        self.changed_span(&first).await;
        for member in &self.0.members {
            let mut state = member.state();
            state.has_gap = !state.is_up;
        }
        self.show(first);
        Ok(())
    }

    /// The plan of all boxes, at the highest of their generations; or that of the first one, at
    /// generation zero, if they differ or one of them was restarted.
    fn first_plan(&self) -> Current {
        let states: Vec<_> = self.0.members.iter().map(|it| it.state().plan.clone()).collect();
        let applied = |it: &dp::GetPlanResponse| it.applied.unwrap_or_default();
        let plan = states.first().and_then(|it| it.plan.clone()).unwrap_or_default();
        let agrees = |it: &dp::GetPlanResponse| same_link(&plan, it.plan.as_ref());
        let is_set = states.iter().all(|it| applied(it).generation > 0 && agrees(it));
        for (tip, state) in self.tips().iter_mut().zip(&states) {
            let (instance, generation) = (state.instance, applied(state).generation);
            *tip = agrees(state).then_some(Tip { instance, generation });
        }
        let pairs = states.iter().zip(&self.0.members);
        let effective_ns = pairs
            .map(|(state, member)| member.offset().of_group(applied(state).effective_ns))
            .max()
            .unwrap_or_default();
        let generation = match is_set {
            true => states.iter().map(|it| applied(it).generation).max().unwrap_or(0),
            false => 0,
        };
        let applied = pb::Applied {
            generation,
            effective_ns,
            effective_utc: Some(self.0.clock.utc(effective_ns).into()),
            lossy: states.iter().any(|it| applied(it).lossy),
        };
        // Of the linkd before this one: it sets the offload again.
        let plan = dp::Plan { offload: None, ..plan };
        Current { plan, applied, remarks: Vec::new() }
    }

    /// Finds which box owned a client before this process started, from the packets that the boxes
    /// have: the one that receives them now, or else holds some, or else has received the most.
    async fn recall_owners(&self) {
        let read = || -> Vec<_> {
            self.0.members.iter().map(|it| it.state().account.now().clone()).collect()
        };
        let before = read();
        tokio::time::sleep(RECALL).await;
        for member in &self.0.members {
            // Without a second reading the first one decides.
            let _ = member.read(false).await;
        }
        type Evidence = (u64, u64, u64);
        let mut best: BTreeMap<String, (Evidence, usize)> = BTreeMap::new();
        for (place, (now, before)) in read().iter().zip(&before).enumerate() {
            let sums = |stats: &pb::Stats| -> BTreeMap<String, (u64, u64)> {
                stats.clients.iter().map(|it| (it.client.clone(), packets(it))).collect()
            };
            let before = sums(before);
            for (client, (received, held)) in sums(now) {
                if ["bypass", "default", "expired"].contains(&&*client) || received == 0 {
                    continue;
                }
                let since = before.get(&client).map_or(0, |it| it.0);
                let evidence = (received.saturating_sub(since), held, received);
                let known = best.entry(client).or_insert((evidence, place));
                if evidence > known.0 {
                    *known = (evidence, place);
                }
            }
        }
        let mut owners = self.owners();
        for (client, (_, place)) in best {
            owners.remember(&client, place);
        }
    }

    /// Boxes that have not answered yet.
    fn unmet(&self) -> Vec<&Member> {
        self.0.members.iter().filter(|it| !it.state().was_up).collect()
    }

    fn faults(&self) -> MutexGuard<'_, BTreeMap<usize, String>> {
        self.0.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tips(&self) -> MutexGuard<'_, Vec<Option<Tip>>> {
        self.0.tips.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn owners(&self) -> MutexGuard<'_, Owners> {
        self.0.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a plan to readers.
    pub(crate) fn show(&self, current: Current) {
        *self.0.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(current);
    }

    pub(crate) async fn changed_span(&self, next: &Current) {
        let none = pb::Profile::default();
        let tolerance = profile::tolerance(next.plan.profile.as_ref().unwrap_or(&none));
        self.0.span.lock().await.changed(next.applied.lossy, tolerance);
    }

    /// The current plan.
    ///
    /// # Errors
    /// UNAVAILABLE before all boxes have answered once.
    pub fn shown(&self) -> Result<Current, Status> {
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone().ok_or_else(|| {
            let missing = self.unmet();
            let why = |it: &&Member| format!("{} ({})", it.name, it.state().message);
            let missing: Vec<_> = missing.iter().map(why).collect();
            Status::unavailable(format!(
                "the group begins when each box has answered once, and {} did not yet: start it, or \
                 remove it from the group file and restart linkd-group",
                if missing.is_empty() { "some".to_owned() } else { missing.join(", ") }
            ))
        })
    }

    /// Generation and instant of the current plan.
    ///
    /// # Errors
    /// As [`Group::shown`].
    pub(crate) fn applied(&self) -> Result<pb::Applied, Status> {
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        match current.as_ref().map(|it| it.applied) {
            Some(applied) => Ok(applied),
            None => {
                drop(current);
                self.shown().map(|it| it.applied)
            }
        }
    }

    /// The places of boxes that are up.
    pub(crate) fn up(&self) -> Vec<usize> {
        let members = self.0.members.iter();
        members.filter(|it| it.is_up()).map(|it| it.place).collect()
    }

    /// The names of the boxes that are up, and of the others.
    #[must_use]
    pub fn names(&self) -> (Vec<String>, Vec<String>) {
        let (up, down): (Vec<_>, Vec<_>) = self.0.members.iter().partition(|it| it.is_up());
        let names = |members: Vec<&Member>| members.iter().map(|it| it.name.clone()).collect();
        (names(up), names(down))
    }

    /// The boxes as one dataplane.
    ///
    /// # Errors
    /// UNAVAILABLE before all boxes have answered once, and while none is up.
    pub fn describe(&self) -> Result<dp::DescribeResponse, Status> {
        self.applied()?;
        if self.up().is_empty() {
            let each = self.0.members.iter();
            let each: Vec<_> =
                each.map(|it| format!("{}: {}", it.name, it.state().message)).collect();
            return Err(Status::unavailable(format!("no box is up: {}", each.join("; "))));
        }
        let known: Vec<_> = self.0.members.iter().map(|it| it.state().described.clone()).collect();
        let pairs = self.0.members.iter().zip(&known);
        let boxes: Vec<_> = pairs
            .filter_map(|(member, box_)| {
                Some(Described { name: &member.name, box_: box_.as_ref()? })
            })
            .collect();
        Ok(description::merge(&boxes, self.0.instance))
    }

    /// Client numbers of each box in the switch.
    fn numbers(&self) -> u32 {
        let switch = self.0.members.first().and_then(|it| it.state().described.clone());
        let switch = switch.and_then(|it| it.switch);
        description::numbers(switch.as_ref(), self.0.members.len())
    }

    /// The statistics of all boxes; with `mark`, another span begins after them. The last counts of a
    /// box that is down stay in the sum, and the span names it.
    ///
    /// # Errors
    /// As [`Group::describe`].
    pub async fn stats(&self, mark: bool) -> Result<pb::Stats, Status> {
        self.applied()?;
        // Held until the end, so that spans and marks are in order.
        let mut span = self.0.span.lock().await;
        let mut reads = tokio::task::JoinSet::new();
        for place in self.up() {
            let group = self.clone();
            reads.spawn(async move {
                let member = &group.0.members[place];
                let read = member.read(mark).await;
                if let Err(status) = &read {
                    tracing::warn!(box_ = member.name, "no statistics: {}", member.words(status));
                }
                read.is_err().then_some(place)
            });
        }
        let silent: Vec<_> = reads.join_all().await.into_iter().flatten().collect();
        for place in &silent {
            self.0.members[*place].state().has_gap = true;
        }
        let accounts: Vec<_> = self.0.members.iter().map(|it| it.state().account.clone()).collect();
        let names = self.0.members.iter().map(|it| &*it.name);
        let owners = self.owners().clone();
        let mut stats = accounts::sum(names.zip(&accounts), &owners, self.numbers());
        let applied = self.applied()?;
        let now_ns = self.0.clock.now_ns();
        stats.time_ns = now_ns;
        stats.utc = Some(self.0.clock.utc(now_ns).into());
        (stats.generation, stats.lossy) = (applied.generation, applied.lossy);
        let gaps = self.0.members.iter().filter(|it| it.state().has_gap);
        let gaps = gaps.map(|it| it.name.clone()).collect();
        let boxes = Some(pb::BoxSpan { gaps });
        let own = span.of(&stats, mark);
        // Boxes with reserved cores have the strict limits.
        let theirs = accounts.iter().filter_map(|it| it.now().span.as_ref()?.tolerance.as_ref());
        let tolerance = own.tolerance.map(|own| theirs.fold(own, profile::strictest));
        stats.span = Some(pb::Span { boxes, tolerance, ..own });
        if mark {
            for member in &self.0.members {
                let mut state = member.state();
                state.account.mark();
                state.has_gap = !state.is_up || silent.contains(&member.place);
            }
        }
        Ok(stats)
    }

    /// State and faults of the ports of all boxes.
    pub(crate) fn ports(&self) -> Vec<pb::PortState> {
        let ports = self.0.members.iter().flat_map(|member| {
            let ports = member.state().plan.ports.clone();
            ports.into_iter().map(|port| {
                let name = format!("{}.{}", port.name, member.name);
                pb::PortState { name, ..port }
            })
        });
        ports.collect()
    }

    /// Packets of clients without a slot.
    pub(crate) fn unplaced(&self) -> u64 {
        self.0.members.iter().map(|it| it.state().plan.unplaced).sum()
    }

    /// The boxes, in the order of the file.
    pub fn boxes(&self) -> Vec<dp::Box> {
        let tips = self.tips().clone();
        // A restarted box has another plan until its task has looked at it.
        let current = tips.iter().zip(&self.0.members);
        let current: Vec<_> =
            current.map(|(tip, it)| tip.is_some_and(|tip| tip.instance == it.instance())).collect();
        let loads = self.loads();
        let boxes = self.0.members.iter().zip(current).zip(loads);
        let boxes = boxes.map(|((member, current), clients)| {
            let offset = member.offset();
            let state = member.state();
            let described = state.described.as_ref();
            let clock_offset_ns = wall_offset_ns(&state.plan, offset, &self.0.clock);
            dp::Box {
                name: member.name.clone(),
                address: member.address.to_string(),
                up: state.is_up,
                message: state.message.clone(),
                instance: described.map_or(0, |it| it.instance),
                workers: described.and_then(|it| it.room).map_or(0, |room| room.workers),
                clock_offset_ns: clock_offset_ns.unwrap_or(0),
                clock_error_ns: offset.error_ns,
                current: state.is_up && current,
                clients: u32::try_from(clients).unwrap_or(u32::MAX),
                packets_per_second: state.rate,
            }
        });
        boxes.collect()
    }

    /// Clients that each box owns: those with an entry, and automatic ones that it has seen.
    pub(crate) fn loads(&self) -> Vec<usize> {
        let owners = self.owners().clone();
        let mut loads = owners.loads(self.0.members.len());
        for (place, member) in self.0.members.iter().enumerate() {
            let state = member.state();
            let automatic = state.account.now().clients.iter().filter(|it| {
                let address = it.client.parse::<std::net::IpAddr>();
                address.is_ok() && !owners.has(&it.client) && owners.of(&it.client) == place
            });
            loads[place] += automatic.count();
        }
        loads
    }

    /// Gives each of these clients that has no owner a box. True if there was one.
    pub(crate) fn place(&self, clients: &[String]) -> bool {
        let loads = self.loads().into_iter().zip(&self.0.members);
        let loads: Vec<_> = loads.map(|(load, it)| it.is_up().then_some(load)).collect();
        self.owners().place(clients.iter().map(String::as_str), loads)
    }

    pub(crate) fn tell(&self, kind: pb::EventKind, who: &str, subject: &str, message: String) {
        let time_ns = self.0.clock.now_ns();
        let event = pb::Event {
            utc: Some(self.0.clock.utc(time_ns).into()),
            time_ns: Some(time_ns),
            kind: kind as i32,
            who: who.to_owned(),
            subject: subject.to_owned(),
            message,
            ..Default::default()
        };
        self.0.history.journal().push(|_| Entry { event, id: String::new() });
    }
}

/// A box's wall clock less that of the group, in nanoseconds, from the box's last answer.
fn wall_offset_ns(plan: &dp::GetPlanResponse, offset: Offset, clock: &GroupClock) -> Option<i64> {
    let theirs = SystemTime::try_from(plan.utc?).ok()?;
    let ours = clock.utc(offset.of_group(plan.time_ns?));
    let signed = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    match theirs.duration_since(ours) {
        Ok(ahead) => Some(signed(ahead)),
        Err(behind) => Some(-signed(behind.duration())),
    }
}

impl Reports for Group {
    fn fits(&self, place: usize, described: &dp::DescribeResponse) -> Result<(), String> {
        let name = |place: usize| &*self.0.members[place].name;
        let new = Described { name: name(place), box_: described };
        let check = || {
            for (other, member) in self.0.members.iter().enumerate() {
                let state = member.state();
                let Some(known) = &state.described else { continue };
                let known = Described { name: name(other), box_: known };
                if other != place {
                    disagreement(known, new, self.0.members.len()).map_or(Ok(()), Err)?;
                } else if known.box_.switch != new.box_.switch {
                    return Err(format!(
                        "[switch] in the file of box {} has changed: restart linkd-group",
                        new.name
                    ));
                }
            }
            // With itself: whether it can be in a group at all.
            match self.0.members.len() {
                1 => description::unfit(new, 1).map_or(Ok(()), Err),
                _ => Ok(()),
            }
        };
        let fit = check();
        match &fit {
            Ok(()) => self.faults().remove(&place),
            Err(fault) => self.faults().insert(place, fault.clone()),
        };
        self.0.news.notify_waiters();
        fit
    }

    fn found(&self, member: &Member) {
        tracing::info!(box_ = member.name, address = %member.address, "box found");
        let message = {
            let state = member.state();
            let described = state.described.clone().unwrap_or_default();
            let workers = described.room.unwrap_or_default().workers;
            format!(
                "box {} answers: dataplane {}, workers: {workers}",
                member.name, described.version
            )
        };
        self.tell(pb::EventKind::BoxFound, "", &member.name, message);
        self.0.news.notify_waiters();
    }

    fn lost(&self, member: &Member, why: &str) {
        let clients = self.loads()[member.place];
        let name = &member.name;
        tracing::error!(box_ = name, clients, why, "box lost");
        let message = format!(
            "{why}; its {clients} clients are down: start the box again, or move them (linkctl group \
             move --from {name})"
        );
        self.tell(pb::EventKind::BoxLost, "", name, message);
    }

    async fn looked(&self, member: &Member) {
        self.catch_up(member).await;
    }
}

/// The names of clients in a plan.
pub(crate) fn names(plan: &dp::Plan) -> Vec<String> {
    let clients = plan.clients.iter().flat_map(|it| &it.clients);
    clients.map(|client| client.name.clone()).collect()
}

/// Whether two plans give packets the same fates; the offload does not matter.
pub(crate) fn same_link(plan: &dp::Plan, other: Option<&dp::Plan>) -> bool {
    let clients = |plan: &dp::Plan| plan.clients.clone().unwrap_or_default();
    other.is_some_and(|other| {
        plan.profile == other.profile && plan.seed == other.seed && clients(plan) == clients(other)
    })
}

/// Received and held packets over both directions.
fn packets(client: &pb::ClientStats) -> (u64, u64) {
    let pipes = [&client.forward_pipe, &client.return_pipe];
    let of = |count: Option<pb::Count>| count.unwrap_or_default().packets;
    pipes
        .into_iter()
        .flatten()
        .map(|it| (of(it.received), of(it.held)))
        .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}
