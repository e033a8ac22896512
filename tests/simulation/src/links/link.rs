// SPDX-License-Identifier: Apache-2.0
//! A link with simulated workers.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use owner::{Current, History, Link, Merged, Order, Outcomes, Proposal, Schedule, withdrawn};
use proto::dataplane::v1 as dp;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;

use crate::requests::rates;

/// A change that was committed with less time left may be late.
const LEAD_NS: u64 = 2_000_000;

/// A plan that a worker executes.
#[derive(Clone, Debug, PartialEq)]
pub struct Executed {
    pub generation: u64,
    pub at_ns: u64,
    pub plan: Arc<dp::Plan>,
}

/// A change that waits in a worker.
#[derive(Debug)]
struct Waiting {
    executed: Executed,
    answer: oneshot::Sender<u64>,
}

#[derive(Debug)]
enum Command {
    Apply(Waiting),
    TakeBack(u64, oneshot::Sender<Vec<Waiting>>),
    /// It stands still for so long.
    Stall(Duration),
}

/// A worker as its link sees it.
#[derive(Clone, Debug)]
struct Worker {
    commands: mpsc::UnboundedSender<Command>,
    executed: Arc<Mutex<Vec<Executed>>>,
}

/// The clock of all links, in nanoseconds since the start of the history.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn now_ns(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn instant(self, at_ns: u64) -> Instant {
        self.0 + Duration::from_nanos(at_ns)
    }
}

/// A link of a simulated dataplane.
#[derive(Clone)]
pub struct SimLink(Arc<Shared>);

struct Shared {
    name: String,
    clock: Clock,
    history: History,
    workers: Vec<Worker>,
    random: Mutex<ChaCha8Rng>,
}

/// A rate towards the client that does not fit.
pub const REFUSED_BPS: u64 = 13_000;

impl SimLink {
    /// A link with a plan of generation 0 and `workers` workers, which are tasks of this runtime.
    pub fn new(name: &str, clock: Clock, workers: usize, plan: dp::Plan, seed: u64) -> Self {
        let first = Executed { generation: 0, at_ns: 0, plan: Arc::new(plan.clone()) };
        let workers = (0..workers).map(|number| {
            let (commands, queue) = mpsc::unbounded_channel();
            let executed = Arc::new(Mutex::new(vec![first.clone()]));
            let random = ChaCha8Rng::seed_from_u64(seed ^ (number as u64 + 1) << 32);
            tokio::spawn(work(clock, queue, executed.clone(), random));
            Worker { commands, executed }
        });
        let workers = workers.collect();
        let history = History::new(Current { plan, ..Current::default() });
        let random = Mutex::new(ChaCha8Rng::seed_from_u64(seed));
        Self(Arc::new(Shared { name: name.to_owned(), clock, history, workers, random }))
    }

    /// The plans that each worker has executed.
    pub fn executed(&self) -> Vec<Vec<Executed>> {
        let all = self.0.workers.iter();
        all.map(|it| it.executed.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect()
    }

    /// Lets a worker stand still.
    pub fn stall(&self, worker: usize, time: Duration) {
        if let Some(worker) = self.0.workers.get(worker % self.0.workers.len().max(1)) {
            let _ = worker.commands.send(Command::Stall(time));
        }
    }

    fn random(&self) -> MutexGuard<'_, ChaCha8Rng> {
        self.0.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A short time, often none.
    async fn dawdle(&self) {
        let time = brief(&mut self.random());
        if !time.is_zero() {
            sleep(time).await;
        }
    }
}

fn brief(random: &mut ChaCha8Rng) -> Duration {
    match random.random_range(0..4_u8) {
        0 => Duration::from_millis(random.random_range(1..30)),
        1 => Duration::from_millis(1),
        _ => Duration::ZERO,
    }
}

impl Link for SimLink {
    type Ready = dp::Plan;
    type Outcome = u64;

    fn name(&self) -> &str {
        &self.0.name
    }

    fn now_ns(&self) -> u64 {
        self.0.clock.now_ns()
    }

    fn utc(&self, time_ns: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(time_ns)
    }

    fn history(&self) -> &History {
        &self.0.history
    }

    fn instant(&self, asked_ns: u64, _: &Schedule) -> u64 {
        asked_ns.max(self.now_ns() + LEAD_NS)
    }

    async fn prepare(&self, proposal: Proposal<'_>) -> Result<(Current, dp::Plan), Status> {
        let Merged { plan, .. } = proposal.merged;
        self.dawdle().await;
        if rates(&plan).contains(&Some(REFUSED_BPS)) {
            return Err(Status::failed_precondition("it does not fit"));
        }
        Ok((Current { plan: plan.clone(), ..Current::default() }, plan))
    }

    async fn settle(&self, _: &mut Current, _: &dp::Plan) -> Result<(), Status> {
        self.dawdle().await;
        Ok(())
    }

    async fn take_back(&self, generations: RangeInclusive<u64>) -> Result<Option<u64>, Status> {
        let mut answers = Vec::new();
        for worker in &self.0.workers {
            let (answer, answered) = oneshot::channel();
            let _ = worker.commands.send(Command::TakeBack(*generations.start(), answer));
            answers.push(answered);
        }
        let mut taken = Vec::new();
        for answer in answers {
            taken.push(answer.await.map_err(|_| Status::internal("a worker has ended"))?);
        }
        let (first, back) = withdrawn(generations, taken, |it| it.executed.generation);
        for (worker, back) in self.0.workers.iter().zip(back) {
            for waiting in back {
                let _ = worker.commands.send(Command::Apply(waiting));
            }
        }
        Ok(Some(first))
    }

    fn commit(orders: Vec<Order<Self>>, at_ns: Option<u64>) -> Result<Outcomes<u64>, Status> {
        let soonest = orders.first().map_or(0, |it| it.link.now_ns() + LEAD_NS);
        let at_ns = at_ns.unwrap_or(soonest);
        let mut asked = Vec::with_capacity(orders.len());
        for Order { link, ready, generation, .. } in orders {
            let plan = Arc::new(ready);
            let ask = |worker: &Worker| {
                let (answer, answered) = oneshot::channel();
                let executed = Executed { generation, at_ns, plan: plan.clone() };
                let _ = worker.commands.send(Command::Apply(Waiting { executed, answer }));
                answered
            };
            asked.push(link.0.workers.iter().map(ask).collect::<Vec<_>>());
        }
        Ok(Box::pin(async move {
            let mut outcomes = Vec::with_capacity(asked.len());
            for answers in asked {
                let mut latest = 0;
                for answer in answers {
                    latest = answer.await.map_err(|_| Status::aborted("taken back"))?.max(latest);
                }
                outcomes.push(latest);
            }
            Ok(outcomes)
        }))
    }

    async fn conclude(
        &self,
        mut next: Current,
        at_ns: u64,
        _: &Schedule,
    ) -> Result<Current, Status> {
        self.dawdle().await;
        next.applied.effective_ns = at_ns;
        Ok(next)
    }
}

/// A worker: takes commands in their order, and makes changes at their instants.
async fn work(
    clock: Clock,
    mut queue: mpsc::UnboundedReceiver<Command>,
    executed: Arc<Mutex<Vec<Executed>>>,
    mut random: ChaCha8Rng,
) {
    let mut waiting: VecDeque<Waiting> = VecDeque::new();
    loop {
        make(clock, &mut waiting, &executed);
        let next = waiting.front().map(|it| clock.instant(it.executed.at_ns));
        let command = tokio::select! {
            biased;
            command = queue.recv() => command,
            () = async { sleep_until(next.unwrap_or_else(Instant::now)).await }, if next.is_some() => {
                continue;
            }
        };
        let time = brief(&mut random);
        if !time.is_zero() {
            sleep(time).await;
        }
        match command {
            None => return,
            Some(Command::Stall(time)) => sleep(time).await,
            Some(Command::Apply(new)) => {
                let after = |it: &&Waiting| it.executed.at_ns <= new.executed.at_ns;
                let place = waiting.iter().take_while(after).count();
                waiting.insert(place, new);
            }
            Some(Command::TakeBack(from, answer)) => {
                // Changes that are due stay, even if this turn is late.
                make(clock, &mut waiting, &executed);
                let mut taken = Vec::new();
                for place in (0..waiting.len()).rev() {
                    if waiting[place].executed.generation >= from {
                        taken.extend(waiting.remove(place));
                    }
                }
                let _ = answer.send(taken);
            }
        }
    }
}

/// Makes the changes that are due.
fn make(clock: Clock, waiting: &mut VecDeque<Waiting>, executed: &Mutex<Vec<Executed>>) {
    while let Some(first) = waiting.front()
        && first.executed.at_ns <= clock.now_ns()
        && let Some(Waiting { executed: change, answer }) = waiting.pop_front()
    {
        let at_ns = clock.now_ns();
        executed.lock().unwrap_or_else(PoisonError::into_inner).push(Executed { at_ns, ..change });
        let _ = answer.send(at_ns);
    }
}
