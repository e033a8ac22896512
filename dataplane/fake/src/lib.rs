// SPDX-License-Identifier: Apache-2.0
//! A dataplane without packets, for the tests of linkd and linkctl.
//!
//! It merges changes and executes scenarios with the code of the real one (crate `owner`), counts
//! generations, answers the statistics that it was given, and fails on request.

mod service;

use owner::{
    Controllers, Current, Entry, Journal, Link, LinkChange, Made, Merged, Owned, Refusal,
    Request as Keyed, Service, Terms,
};
use proto::MAIN_LINK;
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_server::DataplaneServer;
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The start of its clock, the same for all fakes of a process.
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The description of a bmv2 switch at this address, as from a box file.
#[must_use]
pub fn declared_switch(address: &str) -> dp::Switch {
    dp::Switch {
        address: address.into(),
        device: 1,
        target: dp::SwitchTarget::Bmv2 as i32,
        election: 1,
        boxes: vec![dp::SwitchBox { wan_port: 1, client_port: 2 }],
        wan_ports: vec![3],
        client_ports: vec![4],
        mirror_port: Some(5),
        classifies: true,
        loses: true,
        marks: true,
        program: String::new(),
        sharing: 1,
        tls: None,
        format: dp::SwitchFormat::Unspecified as i32,
    }
}

/// State of the fake. Tests read and write it.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub plan: Option<dp::Plan>,
    /// Generation of the current plan.
    pub generation: u64,
    /// All requested changes, whether made or refused.
    pub applies: Vec<Attempt>,
    pub offloads: Vec<dp::SetOffloadRequest>,
    /// Number of changes by another caller, one before each Apply.
    pub interlopers: u32,
    /// The answer to GetStats, except for the generation.
    pub stats: pb::Stats,
    /// Marks that were asked for.
    pub marks: u64,
    /// GetStats that were asked for.
    pub reads: u64,
    pub pause: Duration,
    /// The answer to Apply instead of a change.
    pub refuse: Option<Status>,
    /// How long after it took a plan Apply says so.
    pub hesitation: Duration,
    /// Apply answers UNAVAILABLE immediately, and makes the change that much later, like a stalled
    /// worker.
    pub stall: Option<Duration>,
    /// Resources in the answer to Describe.
    pub room: Option<pb::Room>,
    /// Why plans do not fit: they are refused unless they may be lossy.
    pub excess: Option<String>,
    /// Whether the current plan is lossy.
    pub lossy: bool,
    /// A P4 switch in the answer to Describe. Without one, plans with an offload are refused.
    pub switch: Option<dp::Switch>,
    /// Another number means a restarted dataplane.
    pub instance: u64,
    /// The changes that had a key.
    pub made: Vec<(Keyed, Made)>,
    /// When the current plan took effect, after the first change with an instant.
    pub effective_ns: Option<u64>,
    /// Every change at an instant takes effect this much after it could.
    pub late: Duration,
    /// Chunks of a capture; then it ends.
    pub capture: Vec<pb::CaptureChunk>,
    /// It does not end, but waits until the caller goes away.
    pub capture_waits: bool,
    /// Captures in progress.
    pub capturing: u32,
    pub captures: Vec<pb::CaptureRequest>,
    /// Links beside `main`, as they were added, and their state.
    pub named: BTreeMap<String, pb::NamedLink>,
    pub links: BTreeMap<String, FakeDataplane>,
    pub rules: pb::LinkRules,
    /// Its clock less that of other fakes.
    pub skew_ns: i64,
    /// Calls of HoldClients, each with its time on the clock of all fakes.
    pub holds: Vec<(u64, dp::HoldClient)>,
    /// Answers to LookAtClients, by client; of others it has no packets.
    pub looks: BTreeMap<String, dp::ClientLook>,
    /// Clients asked for in LookAtClients.
    pub looked: u64,
    /// Calls of Withdraw.
    pub withdrawals: u64,
    /// Changes need the token of its controller, if there is one.
    pub controllers: Controllers,
    /// Ports in the answer to Describe.
    pub ports: Vec<dp::Port>,
    /// Changes that wait for their instants.
    waiting: Vec<Waiting>,
    entered: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// The plan after it; none if it could not be merged.
    pub plan: Option<dp::Plan>,
    /// It restarts the random processes.
    pub restart: bool,
    /// The pipes, forward and return, with a drop run that starts again.
    pub arm: [bool; 2],
    /// As in `ApplyRequest`, or of a step.
    pub expected_generation: Option<u64>,
    /// As in `ApplyRequest`.
    pub lossy: bool,
    /// Instant, of a step of a scenario or of the request.
    pub at_ns: Option<u64>,
}

/// A change that waits for its instant.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u64,
    generation: u64,
}

/// A fake dataplane; clones share their state.
#[derive(Clone, Debug, Default)]
pub struct FakeDataplane(Arc<Mutex<State>>);

/// A link of a fake, from its start to its end.
#[derive(Clone)]
struct Instance {
    name: String,
    fake: FakeDataplane,
    journal: Journal<Entry>,
    others: watch::Sender<u64>,
}

impl Instance {
    fn owned(name: &str, fake: FakeDataplane) -> Owned<Self> {
        let (journal, others) = (Journal::default(), watch::Sender::new(0));
        let instance = Self { name: name.to_owned(), fake, journal: journal.clone(), others };
        Owned::new(instance, journal)
    }
}

/// The links of a fake.
#[derive(Clone)]
struct Links {
    main: Owned<Instance>,
    named: Arc<Mutex<BTreeMap<String, Owned<Instance>>>>,
}

/// A fake that serves a socket; dropping it ends that, with all connections.
#[derive(Debug)]
pub struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl FakeDataplane {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its clock: that of all fakes, and its skew.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state().now_ns()
    }

    /// The clock of all fakes: time since the first use in this process, and an hour.
    #[must_use]
    pub fn common_ns() -> u64 {
        3_600_000_000_000 + STARTED.elapsed().as_nanos() as u64
    }

    fn withdraw(&self) {
        self.state().waiting.clear();
    }

    /// Serves `dataplane.v1` at a path in a separate thread, and replaces the file there.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn serve(&self, path: &Path) -> io::Result<Running> {
        // There is no instant without a socket where another one serves.
        let new = path.with_extension("new");
        let listener = std::os::unix::net::UnixListener::bind(&new)?;
        std::fs::rename(new, path)?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // A dataplane that was started anew has one link.
        let (named, links) = Default::default();
        {
            let mut state = self.state();
            (state.named, state.links) = (named, links);
            state.rules = pb::LinkRules::default();
        }
        let main = Instance::owned(MAIN_LINK, self.clone());
        let controllers = self.state().controllers.clone();
        let service = Service::controlled(Links { main, named: Arc::default() }, controllers);
        let service = DataplaneServer::new(service);
        let (stop, stopped) = oneshot::channel::<()>();
        // The end of the runtime ends the connections.
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = UnixListener::from_std(listener) else { return };
                let serving = tonic::transport::Server::builder()
                    .add_service(service)
                    .serve_with_incoming(UnixListenerStream::new(listener));
                tokio::select! {
                    _ = serving => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Running { stop: Some(stop), thread: Some(thread) })
    }
}

impl State {
    fn now_ns(&self) -> u64 {
        FakeDataplane::common_ns().saturating_add_signed(self.skew_ns)
    }

    fn applied(&self) -> pb::Applied {
        let effective_ns =
            self.effective_ns.unwrap_or(self.generation * 1_000_000_000 + 345_678_901);
        let seconds = 1_790_000_000 + (effective_ns / 1_000_000_000) as i64;
        let utc = prost_types::Timestamp { seconds, nanos: 5 };
        let (generation, lossy) = (self.generation, self.lossy);
        pb::Applied { generation, effective_ns, effective_utc: Some(utc), lossy }
    }

    fn current(&self) -> Current {
        let plan = self.plan.clone().unwrap_or(dp::Plan { seed: 1, ..Default::default() });
        Current { plan, applied: self.applied(), remarks: self.remarks() }
    }

    fn remarks(&self) -> Vec<String> {
        self.excess.iter().filter(|_| self.lossy).cloned().collect()
    }
}

impl Instance {
    /// Waits for the instant of a change, as the real dataplane does.
    async fn wait(&self, at_ns: u64, expected: Option<u64>) -> Result<(), Status> {
        let now = self.fake.now_ns();
        owner::check_ahead(now, at_ns)?;
        let (id, late) = {
            let mut state = self.fake.state();
            let tip = state.waiting.last().map_or(state.generation, |last| last.generation);
            owner::check_generation(tip, expected)?;
            state.entered += 1;
            let id = state.entered;
            state.waiting.push(Waiting { id, generation: tip + 1 });
            (id, state.late)
        };
        tokio::time::sleep(Duration::from_nanos(at_ns.saturating_sub(now)) + late).await;
        // A timer does not keep the order of equal instants.
        while !self.leave(id)? {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Whether a waiting change is the next one, which then waits no longer.
    fn leave(&self, id: u64) -> Result<bool, Status> {
        let waiting = &mut self.fake.state().waiting;
        match waiting.iter().position(|waiting| waiting.id == id) {
            None => Err(Status::cancelled("withdrawn")),
            Some(0) => {
                waiting.remove(0);
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// Makes a change or refuses it.
    fn take(&self, change: &dp::Change, attempt: Attempt, arrived: u64) -> Result<Current, Status> {
        let mut state = self.fake.state();
        let current = state.current().plan;
        let what = owner::subject(change);
        let merged = owner::merge(change, current).map_err(|error| error.status(what));
        let plan = merged.as_ref().ok().map(|merged| merged.plan.clone());
        let (restart, arm) =
            merged.as_ref().map_or_else(|_| Default::default(), |m| (m.restart, m.arm));
        state.applies.push(Attempt { plan, restart, arm, ..attempt.clone() });
        if let Some(status) = &state.refuse {
            return Err(status.clone());
        }
        if state.interlopers > 0 {
            state.interlopers -= 1;
            state.generation += 1;
        }
        owner::check_generation(state.generation, attempt.expected_generation)?;
        let Merged { plan, .. } = merged?;
        let profile = plan.profile.clone().unwrap_or_default();
        profile::validate(&profile).map_err(|found| owner::invalid(what, &found))?;
        if let Some(Err(found)) = plan.clients.as_ref().map(clients::check) {
            return Err(owner::invalid(what, &found));
        }
        if let Some(excess) = state.excess.as_ref().filter(|_| !attempt.lossy) {
            let numbers = [("needed_bytes".to_owned(), "9600".to_owned())];
            let details = ErrorDetails::with_error_info("OUTSIDE_ENVELOPE", "linkemu", numbers);
            let code = Code::FailedPrecondition;
            return Err(Status::with_error_details(code, excess, details));
        }
        state.lossy = state.excess.is_some();
        state.plan = Some(plan);
        state.generation += 1;
        if attempt.at_ns.is_none() {
            // They were to follow another link.
            state.waiting.clear();
        }
        // Once an instant was requested, changes take effect by this clock.
        let late = state.late.as_nanos() as u64;
        state.effective_ns = match (attempt.at_ns, state.effective_ns) {
            (Some(at), _) => Some(at.max(arrived) + late),
            (None, known) => known.map(|_| state.now_ns()),
        };
        Ok(state.current())
    }

    /// With its own state, journal and watchers.
    fn copy(&self) -> Self {
        let (journal, others) = (Journal::default(), watch::Sender::new(0));
        let fake = FakeDataplane(Arc::new(Mutex::new(self.fake.state().clone())));
        Self { name: self.name.clone(), fake, journal, others }
    }

    /// Makes the change of a request at its instant, or refuses it at once.
    async fn apply_at(&self, at_ns: u64, change: dp::Change, terms: Terms) -> Result<Made, Status> {
        // On a copy first. The generation is checked against those that wait.
        let expected = terms.expected;
        let terms = Terms { expected: None, ..terms };
        self.copy().make(change.clone(), terms.clone())?;
        self.wait(at_ns, expected).await?;
        self.make(change, terms)
    }

    /// Makes a change or refuses it.
    fn make(&self, change: dp::Change, terms: Terms) -> Result<Made, Status> {
        let request = &terms.request;
        let made = self.fake.state().made.iter().find(|(it, _)| it.key == request.key).cloned();
        match made {
            Some((known, _)) if known != *request => return Err(owner::Reused.into()),
            Some((_, made)) => return Ok(Made { repeated: true, ..made }),
            None => {}
        }
        self.enter(change, terms, self.fake.now_ns())
    }

    /// Makes a change whose request is new, and which arrived at an instant.
    fn enter(&self, change: dp::Change, terms: Terms, arrived: u64) -> Result<Made, Status> {
        let Terms { source, at_ns, expected, lossy, request } = terms;
        let attempt = Attempt { expected_generation: expected, lossy, at_ns, ..Default::default() };
        let next = self.take(&change, attempt, arrived)?;
        let sequence = owner::publish(&self.journal, &self.others, &source, &next);
        let Current { plan, applied, remarks } = next;
        let plan = Some(Arc::new(plan));
        let made = Made { applied, remarks, repeated: false, plan, sequence };
        if !request.key.is_empty() {
            self.fake.state().made.push((request, made.clone()));
        }
        Ok(made)
    }
}

impl Link for Instance {
    fn name(&self) -> &str {
        &self.name
    }

    fn now_ns(&self) -> u64 {
        self.fake.now_ns()
    }

    fn utc(&self, time_ns: u64) -> SystemTime {
        let now = self.fake.now_ns();
        let ahead = Duration::from_nanos(time_ns.saturating_sub(now));
        SystemTime::now() + ahead - Duration::from_nanos(now.saturating_sub(time_ns))
    }

    async fn apply(&self, change: dp::Change, mut terms: Terms) -> Result<Made, Refusal> {
        let arrived = self.fake.now_ns();
        if let Some(at_ns) = terms.at_ns {
            self.wait(at_ns, terms.expected.take()).await?;
        }
        Ok(self.enter(change, terms, arrived)?)
    }

    async fn apply_links(
        changes: Vec<LinkChange<Self>>,
        at_ns: Option<u64>,
    ) -> Result<Vec<Made>, Refusal> {
        let now = changes.first().map_or(0, |it| it.link.fake.now_ns());
        tokio::time::sleep(Duration::from_nanos(at_ns.unwrap_or(0).saturating_sub(now))).await;
        let made = together(changes, at_ns, now);
        made.map_err(|(_, status)| status.into())
    }

    async fn withdraw(&self) -> Result<(), String> {
        self.fake.withdraw();
        Ok(())
    }

    async fn current(&self) -> Result<Current, String> {
        Ok(self.fake.state().current())
    }

    fn other_changes(&self) -> watch::Receiver<u64> {
        self.others.subscribe()
    }
}

/// Makes changes of several links that arrived at an instant, or none.
fn together(
    changes: Vec<LinkChange<Instance>>,
    at_ns: Option<u64>,
    arrived: u64,
) -> Result<Vec<Made>, (Instance, Status)> {
    let enter = |on: &Instance, change, terms| {
        let made = match at_ns {
            None => on.make(change, terms),
            Some(_) => on.enter(change, Terms { at_ns, ..terms }, arrived),
        };
        made.map_err(|status| (on.clone(), status))
    };
    // On copies first.
    for LinkChange { link, change, terms } in &changes {
        enter(&link.copy(), change.clone(), terms.clone())?;
    }
    changes.into_iter().map(|it| enter(&it.link, it.change, it.terms)).collect()
}
