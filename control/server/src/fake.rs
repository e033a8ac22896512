// SPDX-License-Identifier: Apache-2.0
//! A dataplane without packets, for the tests of linkd and linkctl: it takes
//! plans, counts generations and answers the statistics that it was given.

use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_server::{Dataplane, DataplaneServer};
use proto::linkemu::v1 as pb;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// When its clock began, which never stands still: of all fakes of a process the same.
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What a box's file says of a bmv2 switch at this address.
#[must_use]
pub fn declared_switch(address: &str) -> dp::Switch {
    dp::Switch {
        address: address.into(),
        device: 1,
        target: dp::SwitchTarget::Bmv2 as i32,
        election: 1,
        box_wan_port: 1,
        box_client_port: 2,
        wan_ports: vec![3],
        client_ports: vec![4],
        classifies: true,
        loses: true,
        marks: true,
        program: String::new(),
    }
}

/// What the fake holds; tests read and write it.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// In force.
    pub plan: Option<dp::Plan>,
    /// Of the plan in force.
    pub generation: u64,
    /// All that was asked for, whether taken or not.
    pub applies: Vec<dp::ApplyRequest>,
    /// So many changes of someone else come between, one before each Apply.
    pub interlopers: u32,
    /// What GetStats answers, with the generation filled in.
    pub stats: pb::Stats,
    /// Marks that were asked for.
    pub marks: u64,
    /// GetStats that were asked for.
    pub reads: u64,
    /// How long GetStats takes.
    pub pause: Duration,
    /// What Apply answers instead of taking a plan.
    pub refuse: Option<Status>,
    /// How long after it took a plan Apply says so.
    pub hesitation: Duration,
    /// Apply answers UNAVAILABLE at once, and takes the plan so much later: a worker stands still.
    pub stall: Option<Duration>,
    /// What Describe says that there is.
    pub room: Option<pb::Room>,
    /// Why no plan fits: what is not allowed to be lossy is refused, all else is.
    pub excess: Option<String>,
    /// Whether the plan in force is.
    pub lossy: bool,
    /// What Describe says of a P4 switch; without one, no plan may need it.
    pub switch: Option<dp::Switch>,
    /// Another number is a dataplane that was started anew.
    pub instance: u64,
    /// The changes that had a key.
    pub made: HashMap<String, pb::Applied>,
    /// When the plan in force took effect, once one was asked for at an instant.
    pub effective_ns: Option<u64>,
    /// Every change at an instant takes effect this much after it could.
    pub late: Duration,
    /// What Capture answers, chunk by chunk; then it ends.
    pub capture: Vec<pb::CaptureChunk>,
    /// It does not end, but waits until the caller goes away.
    pub capture_waits: bool,
    /// Captures that go on.
    pub capturing: u32,
    /// What was asked to be captured.
    pub captures: Vec<pb::CaptureRequest>,
    /// Changes that wait for their instants.
    waiting: Vec<Waiting>,
    entered: u64,
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
    /// Its state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its clock: time since its first use in this process, and an hour.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        3_600_000_000_000 + STARTED.elapsed().as_nanos() as u64
    }

    /// As the real one: holds a change to the generation that will be, and lets it wait.
    async fn wait(&self, at_ns: u64, expected: Option<u64>) -> Result<(), Status> {
        let now = self.now_ns();
        if at_ns > now + 10_000_000_000 || at_ns + 1_000_000_000 < now {
            return Err(Status::out_of_range("at_ns is out of bounds"));
        }
        let (id, late) = {
            let mut state = self.state();
            let tip = state.waiting.last().map_or(state.generation, |last| last.generation);
            if expected.is_some_and(|expected| expected != tip) {
                return Err(Status::aborted(format!("generation {tip} will be in force")));
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

    /// Whether a change that waits is the next one, which then waits no more.
    fn leave(&self, id: u64) -> Result<bool, Status> {
        let waiting = &mut self.state().waiting;
        match waiting.iter().position(|waiting| waiting.id == id) {
            None => Err(Status::aborted("taken back")),
            Some(0) => {
                waiting.remove(0);
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// Takes a plan, or does not.
    async fn take(&self, request: dp::ApplyRequest) -> Result<Response<dp::ApplyResponse>, Status> {
        let arrived = self.now_ns();
        if let Some(at_ns) = request.at_ns {
            self.wait(at_ns, request.expected_generation).await?;
        }
        let mut state = self.state();
        state.applies.push(request.clone());
        if let Some(status) = &state.refuse {
            return Err(status.clone());
        }
        if let Some(applied) = state.made.get(&request.key) {
            let applied = Some(*applied);
            return Ok(Response::new(dp::ApplyResponse {
                applied,
                repeated: true,
                ..Default::default()
            }));
        }
        if state.interlopers > 0 {
            state.interlopers -= 1;
            state.generation += 1;
        }
        if ![0, state.instance].contains(&request.expected_instance) {
            return Err(Status::aborted(format!("instance {} is here", state.instance)));
        }
        if request.expected_generation.is_some_and(|expected| expected != state.generation) {
            let in_force = state.generation;
            return Err(Status::aborted(format!("generation {in_force} is in force")));
        }
        if let Some(excess) = state.excess.as_ref().filter(|_| !request.lossy) {
            let numbers = [("needed_bytes".to_owned(), "9600".to_owned())];
            let details = ErrorDetails::with_error_info("OUTSIDE_ENVELOPE", "linkemu", numbers);
            let code = Code::FailedPrecondition;
            return Err(Status::with_error_details(code, excess, details));
        }
        let offload = request.plan.as_ref().and_then(|plan| plan.offload);
        if offload.is_some() && state.switch.is_none() {
            return Err(Status::failed_precondition("there is no switch"));
        }
        state.lossy = state.excess.is_some();
        state.plan = request.plan;
        state.generation += 1;
        if request.at_ns.is_none() {
            // They came after it, and expected another link.
            state.waiting.clear();
        }
        // Who has once asked for an instant goes by this clock.
        let late = state.late.as_nanos() as u64;
        state.effective_ns = match (request.at_ns, state.effective_ns) {
            (Some(at), _) => Some(at.max(arrived) + late),
            (None, known) => known.map(|_| self.now_ns()),
        };
        let (applied, remarks) = (state.applied(), state.remarks());
        if !request.key.is_empty() {
            state.made.insert(request.key, applied);
        }
        let applied = Some(applied);
        Ok(Response::new(dp::ApplyResponse { applied, remarks, repeated: false }))
    }

    /// Serves `dataplane.v1` at a path, whatever is there, in a thread of its own.
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
        let service = DataplaneServer::new(self.clone());
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

#[tonic::async_trait]
impl Dataplane for FakeDataplane {
    type ControlStream = Pin<Box<dyn Stream<Item = Result<dp::ControlResponse, Status>> + Send>>;

    async fn control(
        &self,
        _: Request<dp::ControlRequest>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        // Whoever asks; until they are gone.
        let token = tokio_stream::once(Ok(dp::ControlResponse { token: 1 }));
        Ok(Response::new(Box::pin(token.chain(tokio_stream::pending()))))
    }

    async fn describe(
        &self,
        _: Request<dp::DescribeRequest>,
    ) -> Result<Response<dp::DescribeResponse>, Status> {
        let state = self.state();
        let (room, instance, switch) = (state.room, state.instance, state.switch.clone());
        let version = "fake".into();
        let described =
            dp::DescribeResponse { version, room, instance, switch, ..Default::default() };
        Ok(Response::new(described))
    }

    async fn apply(
        &self,
        request: Request<dp::ApplyRequest>,
    ) -> Result<Response<dp::ApplyResponse>, Status> {
        let stall = self.state().stall;
        if let Some(stall) = stall {
            let (fake, request) = (self.clone(), request.into_inner());
            tokio::spawn(async move {
                tokio::time::sleep(stall).await;
                fake.take(request).await
            });
            return Err(Status::unavailable("a worker stands still"));
        }
        let answer = self.take(request.into_inner()).await;
        let hesitation = self.state().hesitation;
        tokio::time::sleep(hesitation).await;
        answer
    }

    async fn get_plan(
        &self,
        request: Request<dp::GetPlanRequest>,
    ) -> Result<Response<dp::GetPlanResponse>, Status> {
        let state = self.state();
        let (applied, remarks) = (Some(state.applied()), state.remarks());
        let made = state.made.get(&request.get_ref().key).copied();
        let (plan, instance) = (state.plan.clone(), state.instance);
        let (time_ns, utc) = (Some(self.now_ns()), Some(SystemTime::now().into()));
        Ok(Response::new(dp::GetPlanResponse {
            plan,
            applied,
            remarks,
            made,
            instance,
            time_ns,
            utc,
            ports: Vec::new(),
            unplaced: 0,
        }))
    }

    async fn take_back(
        &self,
        _: Request<dp::TakeBackRequest>,
    ) -> Result<Response<dp::TakeBackResponse>, Status> {
        let changes = std::mem::take(&mut self.state().waiting).len() as u32;
        Ok(Response::new(dp::TakeBackResponse { changes }))
    }

    async fn get_stats(
        &self,
        request: Request<dp::GetStatsRequest>,
    ) -> Result<Response<pb::Stats>, Status> {
        let pause = {
            let mut state = self.state();
            state.reads += 1;
            state.pause
        };
        tokio::time::sleep(pause).await;
        let mut state = self.state();
        state.marks += u64::from(request.get_ref().mark);
        let (generation, lossy) = (state.generation, state.lossy);
        Ok(Response::new(pb::Stats { generation, lossy, ..state.stats.clone() }))
    }

    type CaptureStream = ReceiverStream<Result<pb::CaptureChunk, Status>>;

    async fn capture(
        &self,
        request: Request<pb::CaptureRequest>,
    ) -> Result<Response<Self::CaptureStream>, Status> {
        let mut state = self.state();
        state.captures.push(request.into_inner());
        if let Some(status) = &state.refuse {
            return Err(status.clone());
        }
        let (chunks, waits) = (state.capture.clone(), state.capture_waits);
        let (sender, receiver) = mpsc::channel(1);
        state.capturing += 1;
        let fake = self.clone();
        tokio::spawn(async move {
            for chunk in chunks {
                if sender.send(Ok(chunk)).await.is_err() {
                    break;
                }
            }
            if waits {
                sender.closed().await;
            }
            fake.state().capturing -= 1;
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
