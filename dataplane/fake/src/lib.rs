// SPDX-License-Identifier: Apache-2.0
//! A dataplane without packets, for the tests of linkd and linkctl.
//!
//! It changes links and executes scenarios with the code of the real one (crate `owner`), answers the
//! statistics that it was given, and fails on request.

mod service;

use owner::{
    Controllers, Current, History, Link, Merged, Order, Outcomes, Owned, Proposal, Schedule,
    Service, Terms, subject,
};
use proto::MAIN_LINK;
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_server::DataplaneServer;
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::time::Instant;
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
    /// All changes of the current plan, whether executed or refused.
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
}

#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// The plan after it.
    pub plan: dp::Plan,
    /// It restarts the random processes.
    pub restart: bool,
    /// The pipes, forward and return, with a drop run that starts again.
    pub arm: [bool; 2],
    /// As in `LinkChange`, or of a step.
    pub expected_generation: Option<u64>,
    /// As in `LinkChange`.
    pub lossy: bool,
    /// Instant, of a step of a scenario or of the request.
    pub at_ns: Option<u64>,
}

/// A fake dataplane; clones share their state.
#[derive(Clone, Debug, Default)]
pub struct FakeDataplane(Arc<Mutex<State>>);

/// A link of a fake, from its start to its end.
#[derive(Clone)]
struct Instance(Arc<Shared>);

struct Shared {
    name: String,
    fake: FakeDataplane,
    history: History,
    /// Changes that wait for their instants: their generations, and what ends them.
    waiting: Mutex<Vec<(u64, oneshot::Sender<()>)>>,
}

impl Instance {
    fn owned(name: &str, fake: FakeDataplane) -> Owned<Self> {
        let history = History::new(fake.state().current());
        let (name, waiting) = (name.to_owned(), Mutex::default());
        Owned::new(Self(Arc::new(Shared { name, fake, history, waiting })))
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(u64, oneshot::Sender<()>)>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the plan that a test has written into the state as the current one.
    fn adopt(&self) {
        let Some(mut plans) = self.0.history.plans_now() else { return };
        let state = self.0.fake.state();
        let current = &plans.current;
        let same = state.generation == current.applied.generation
            && state.plan.as_ref().is_none_or(|plan| *plan == current.plan);
        if !same && plans.schedule.is_empty() {
            plans.current = state.current();
        }
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
        let service = self.service();
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

    /// `dataplane.v1` of a dataplane that is started with this state.
    #[must_use]
    pub fn service(&self) -> DataplaneServer<impl dp::dataplane_server::Dataplane + use<>> {
        // After a start there is one link.
        let (named, links) = Default::default();
        {
            let mut state = self.state();
            (state.named, state.links) = (named, links);
            state.rules = pb::LinkRules::default();
        }
        let main = Instance::owned(MAIN_LINK, self.clone());
        let controllers = self.state().controllers.clone();
        let links = Links { main, named: Arc::default() };
        DataplaneServer::new(Service::controlled(links, controllers))
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

    /// Whether it takes a plan.
    fn check(&mut self, what: &str, plan: &dp::Plan, terms: &Terms) -> Result<(), Status> {
        if let Some(status) = &self.refuse {
            return Err(status.clone());
        }
        if self.interlopers > 0 {
            self.interlopers -= 1;
            self.generation += 1;
            owner::check_generation(self.generation, terms.expected)?;
        }
        let profile = plan.profile.clone().unwrap_or_default();
        profile::validate(&profile).map_err(|found| owner::invalid(what, &found))?;
        if let Some(Err(found)) = plan.clients.as_ref().map(clients::check) {
            return Err(owner::invalid(what, &found));
        }
        if let Some(excess) = self.excess.as_ref().filter(|_| !terms.lossy) {
            let numbers = [("needed_bytes".to_owned(), "9600".to_owned())];
            let details = ErrorDetails::with_error_info("OUTSIDE_ENVELOPE", "linkemu", numbers);
            let code = Code::FailedPrecondition;
            return Err(Status::with_error_details(code, excess, details));
        }
        Ok(())
    }
}

impl Link for Instance {
    type Ready = Attempt;
    /// With when it took effect, if an instant was asked for.
    type Outcome = (Attempt, Option<u64>);

    fn name(&self) -> &str {
        &self.0.name
    }

    fn now_ns(&self) -> u64 {
        self.0.fake.now_ns()
    }

    fn utc(&self, time_ns: u64) -> SystemTime {
        let now = self.now_ns();
        let ahead = Duration::from_nanos(time_ns.saturating_sub(now));
        SystemTime::now() + ahead - Duration::from_nanos(now.saturating_sub(time_ns))
    }

    fn history(&self) -> &History {
        &self.0.history
    }

    fn instant(&self, asked_ns: u64, _: &Schedule) -> u64 {
        asked_ns.max(self.now_ns())
    }

    async fn prepare(&self, proposal: Proposal<'_>) -> Result<(Current, Attempt), Status> {
        let Proposal { change, terms, merged: Merged { plan, restart, arm } } = proposal;
        let Terms { expected: expected_generation, lossy, at_ns, .. } = *terms;
        let attempt =
            Attempt { plan: plan.clone(), restart, arm, expected_generation, lossy, at_ns };
        let mut state = self.0.fake.state();
        if let Err(status) = state.check(subject(change), &plan, terms) {
            state.applies.push(attempt);
            return Err(status);
        }
        let applied = pb::Applied { lossy: state.excess.is_some(), ..Default::default() };
        let remarks = state.excess.iter().cloned().collect();
        Ok((Current { plan, applied, remarks }, attempt))
    }

    async fn take_back(&self, generations: RangeInclusive<u64>) -> Result<Option<u64>, Status> {
        let mut waiting = self.waiting();
        let first = waiting.iter().map(|it| it.0).find(|it| generations.contains(it));
        let first = first.unwrap_or(*generations.end() + 1);
        waiting.retain(|it| it.0 < first);
        Ok(Some(first))
    }

    fn commit(
        orders: Vec<Order<Self>>,
        at_ns: Option<u64>,
    ) -> Result<Outcomes<(Attempt, Option<u64>)>, Status> {
        let mut waits = Vec::with_capacity(orders.len());
        for Order { link, ready, generation, .. } in orders {
            let (now_ns, late) = {
                let state = link.0.fake.state();
                (state.now_ns(), state.late)
            };
            let (end, ended) = oneshot::channel();
            link.waiting().push((generation, end));
            let at_ns = at_ns.map(|at| at.max(now_ns) + late.as_nanos() as u64);
            let wait = Duration::from_nanos(at_ns.unwrap_or(0).saturating_sub(now_ns));
            let until = Instant::now() + wait;
            waits.push(async move {
                tokio::select! {
                    biased;
                    _ = ended => return Err(Status::aborted("withdrawn")),
                    () = tokio::time::sleep_until(until) => {}
                }
                link.waiting().retain(|it| it.0 != generation);
                Ok((ready, at_ns))
            });
        }
        Ok(Box::pin(async move {
            let mut outcomes = Vec::with_capacity(waits.len());
            for wait in waits {
                outcomes.push(wait.await?);
            }
            Ok(outcomes)
        }))
    }

    async fn conclude(
        &self,
        next: Current,
        (attempt, at_ns): (Attempt, Option<u64>),
        _: &Schedule,
    ) -> Result<Current, Status> {
        let mut state = self.0.fake.state();
        state.applies.push(attempt);
        (state.plan, state.lossy) = (Some(next.plan), next.applied.lossy);
        state.generation = next.applied.generation;
        // Once an instant was requested, changes take effect by this clock.
        let known = state.effective_ns.map(|_| state.now_ns());
        state.effective_ns = at_ns.or(known);
        Ok(state.current())
    }

    async fn complete<T: Send + 'static>(
        &self,
        _: Duration,
        work: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> Result<T, Status> {
        let (stall, hesitation) = {
            let state = self.0.fake.state();
            (state.stall, state.hesitation)
        };
        if let Some(stall) = stall {
            tokio::spawn(async move {
                tokio::time::sleep(stall).await;
                work.await.map(drop)
            });
            return Err(Status::unavailable("a worker stands still"));
        }
        let done = owner::to_its_end(work).await;
        tokio::time::sleep(hesitation).await;
        done
    }
}
