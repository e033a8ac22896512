// SPDX-License-Identifier: Apache-2.0
//! A dataplane without packets, for the tests of linkd and linkctl.
//!
//! It merges changes and executes scenarios with the code of the real one (crate `owner`), counts
//! generations, answers the statistics that it was given, and fails on request.

mod service;

use owner::{
    Controllers, Entry, Journal, Link, LinkChange, Made, Merged, Refusal, Request as Keyed,
    Scenarios, Terms,
};
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_server::DataplaneServer;
use proto::linkemu::v1 as pb;
use proto::{LINK_METADATA, MAIN_LINK, link_id};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Status};
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
    pub made: Vec<(Keyed, dp::ApplyResponse)>,
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
    /// Its own name, as a link beside `main`.
    pub link: String,
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
    /// If set, changes need the token of its controller, as in the dataplane.
    pub controllers: Option<Controllers>,
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
    pub expected_instance: u64,
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

/// A fake from its start to its end.
#[derive(Clone)]
struct Instance {
    fake: FakeDataplane,
    journal: Journal<Entry>,
    others: watch::Sender<u64>,
}

/// A link of the fake.
#[derive(Clone)]
struct Lane {
    instance: Instance,
    scenarios: Scenarios<Instance>,
}

impl Lane {
    fn new(fake: FakeDataplane) -> Self {
        let (journal, others) = (Journal::default(), watch::Sender::new(0));
        let instance = Instance { fake, journal, others };
        let scenarios = Scenarios::new(instance.clone(), instance.journal.clone());
        Self { instance, scenarios }
    }
}

/// The service of a fake.
#[derive(Clone)]
struct Service {
    main: Lane,
    lanes: Arc<Mutex<BTreeMap<String, Lane>>>,
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
        let main = Lane::new(self.clone());
        let service = DataplaneServer::new(Service { main, lanes: Arc::default() });
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

    fn remarks(&self) -> Vec<String> {
        self.excess.iter().filter(|_| self.lossy).cloned().collect()
    }
}

/// Why a change is refused.
fn refusal(status: Status) -> Refusal {
    match status.code() {
        Code::Aborted | Code::Cancelled => Refusal::Stale(status.message().to_owned()),
        _ => Refusal::Refused(status.message().to_owned()),
    }
}

impl Instance {
    /// Waits for the instant of a change, as the real dataplane does.
    async fn wait(&self, at_ns: u64, expected: Option<u64>) -> Result<(), Status> {
        let now = self.fake.now_ns();
        if at_ns > now + 10_000_000_000 || at_ns + 1_000_000_000 < now {
            return Err(Status::out_of_range("at_ns is out of bounds"));
        }
        let (id, late) = {
            let mut state = self.fake.state();
            let tip = state.waiting.last().map_or(state.generation, |last| last.generation);
            if let Some(expected) = expected.filter(|expected| *expected != tip) {
                return Err(Status::aborted(owner::stale_message(expected, tip)));
            }
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
    fn take(
        &self,
        change: &dp::Change,
        attempt: Attempt,
        arrived: u64,
    ) -> Result<(dp::Plan, pb::Applied, Vec<String>), Status> {
        let mut state = self.fake.state();
        let current = state.plan.clone().unwrap_or(dp::Plan { seed: 1, ..Default::default() });
        let what = owner::subject(change);
        let merged = owner::merge(change, current).map_err(|error| match error {
            owner::ChangeError::Invalid(found) => owner::invalid(what, &found),
            no_link @ owner::ChangeError::NoLink => {
                Status::failed_precondition(no_link.to_string())
            }
        });
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
        if ![0, state.instance].contains(&attempt.expected_instance) {
            return Err(Status::aborted(format!("instance {} is here", state.instance)));
        }
        let generation = state.generation;
        if let Some(expected) = attempt.expected_generation.filter(|it| *it != generation) {
            return Err(Status::aborted(owner::stale_message(expected, generation)));
        }
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
        state.plan = Some(plan.clone());
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
        Ok((plan, state.applied(), state.remarks()))
    }

    /// With its own state, journal and watchers.
    fn copy(&self) -> Self {
        let (journal, others) = (Journal::default(), watch::Sender::new(0));
        let fake = FakeDataplane(Arc::new(Mutex::new(self.fake.state().clone())));
        Self { fake, journal, others }
    }

    /// Makes the changes of a request, or none.
    fn apply_links(
        changes: Vec<(Self, dp::ApplyRequest)>,
    ) -> Result<Vec<dp::ApplyResponse>, (Self, Status)> {
        // The same on copies first.
        for (link, request) in &changes {
            link.copy().apply(request.clone()).map_err(|status| (link.clone(), status))?;
        }
        let made = changes
            .into_iter()
            .map(|(link, request)| link.apply(request).map_err(|status| (link, status)));
        made.collect()
    }

    /// Makes the change of a request at its instant, or refuses it at once.
    async fn apply_at(
        &self,
        at_ns: u64,
        request: dp::ApplyRequest,
    ) -> Result<dp::ApplyResponse, Status> {
        // On a copy first. The generation is checked against those that wait.
        let tried = dp::ApplyRequest { expected_generation: None, ..request.clone() };
        self.copy().apply(tried)?;
        self.wait(at_ns, request.expected_generation).await?;
        self.apply(dp::ApplyRequest { expected_generation: None, ..request })
    }

    /// Makes the change of a request or refuses it.
    fn apply(&self, request: dp::ApplyRequest) -> Result<dp::ApplyResponse, Status> {
        let keyed = Keyed { key: request.key, fingerprint: request.fingerprint };
        let made = self.fake.state().made.iter().find(|(it, _)| it.key == keyed.key).cloned();
        match made {
            Some((known, _)) if known != keyed => {
                return Err(Status::already_exists(owner::Reused.to_string()));
            }
            Some((_, answer)) => return Ok(dp::ApplyResponse { repeated: true, ..answer }),
            None => {}
        }
        let change = request.change.ok_or_else(|| Status::invalid_argument("change: missing"))?;
        let attempt = Attempt {
            expected_generation: request.expected_generation,
            expected_instance: request.expected_instance,
            lossy: request.lossy,
            at_ns: request.at_ns,
            ..Default::default()
        };
        let (plan, applied, remarks) = self.take(&change, attempt, self.fake.now_ns())?;
        let entry = owner::changed(&request.cause.unwrap_or_default(), &plan, &applied);
        let sequence = self.journal.push(|_| entry);
        self.others.send_replace(applied.generation);
        let (applied, plan) = (Some(applied), Some(plan));
        let answer = dp::ApplyResponse { applied, remarks, repeated: false, plan, sequence };
        if !keyed.key.is_empty() {
            self.fake.state().made.push((keyed, answer.clone()));
        }
        Ok(answer)
    }
}

impl Link for Instance {
    fn now_ns(&self) -> u64 {
        self.fake.now_ns()
    }

    fn utc(&self, time_ns: u64) -> SystemTime {
        let now = self.fake.now_ns();
        let ahead = Duration::from_nanos(time_ns.saturating_sub(now));
        SystemTime::now() + ahead - Duration::from_nanos(now.saturating_sub(time_ns))
    }

    async fn apply(&self, change: dp::Change, terms: Terms) -> Result<Made, Refusal> {
        let Terms { at_ns, expected, lossy } = terms;
        let arrived = self.fake.now_ns();
        let mut expected_generation = expected;
        if let Some(at_ns) = at_ns {
            self.wait(at_ns, expected).await.map_err(refusal)?;
            expected_generation = None;
        }
        let attempt = Attempt { expected_generation, lossy, at_ns, ..Default::default() };
        let (plan, applied, _) = self.take(&change, attempt, arrived).map_err(refusal)?;
        Ok(Made { plan, applied })
    }

    async fn apply_links(
        changes: Vec<LinkChange<Self>>,
        at_ns: Option<u64>,
    ) -> Result<Vec<Made>, Refusal> {
        let now = changes.first().map_or(0, |it| it.link.fake.now_ns());
        tokio::time::sleep(Duration::from_nanos(at_ns.unwrap_or(0).saturating_sub(now))).await;
        let attempt = |it: &LinkChange<Self>| Attempt {
            expected_generation: it.expected,
            lossy: it.lossy,
            at_ns,
            ..Default::default()
        };
        // The same on copies first.
        for it in &changes {
            let copy = it.link.copy();
            copy.take(&it.change, attempt(it), now).map_err(refusal)?;
        }
        let mut made = Vec::new();
        for it in &changes {
            let (plan, applied, _) = it.link.take(&it.change, attempt(it), now).map_err(refusal)?;
            if let Some(cause) = &it.cause {
                let entry = owner::changed(cause, &plan, &applied);
                it.link.journal.push(|_| entry);
            }
            made.push(Made { plan, applied });
        }
        Ok(made)
    }

    async fn withdraw(&self) -> Result<(), String> {
        self.fake.withdraw();
        Ok(())
    }

    async fn current(&self) -> Result<Made, String> {
        let state = self.fake.state();
        Ok(Made { plan: state.plan.clone().unwrap_or_default(), applied: state.applied() })
    }

    fn other_changes(&self) -> watch::Receiver<u64> {
        self.others.subscribe()
    }
}

impl Service {
    fn lanes(&self) -> MutexGuard<'_, BTreeMap<String, Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link that a request is about.
    fn lane<T>(&self, request: &Request<T>) -> Result<Lane, Status> {
        let name = request.metadata().get(LINK_METADATA).and_then(|name| name.to_str().ok());
        self.named(name.unwrap_or(MAIN_LINK))
    }

    fn named(&self, name: &str) -> Result<Lane, Status> {
        match link_id(name) {
            MAIN_LINK => Ok(self.main.clone()),
            name => self.lanes().get(name).cloned().ok_or_else(|| {
                Status::not_found(format!("there is no link `{name}`: the links are {MAIN_LINK}"))
            }),
        }
    }
}
