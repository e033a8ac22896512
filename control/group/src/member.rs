// SPDX-License-Identifier: Apache-2.0
//! A box of the group: control of its dataplane, its clock and its state.
//!
//! ```text
//! away ──Control, Describe, GetPlan, GetStats──▶ up ──stream ends, call fails, silent for 2 s──▶ away
//! ```
//!
//! One task per box keeps the token of `Control` and polls. Requests of other tasks are refused at once
//! while the box is away.

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::TOKEN_METADATA;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use tls::client::Fault;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tonic::{Code, Request, Response, Status};

use crate::accounts::Account;
use crate::clock::{GroupClock, Offset, Readings};
use crate::connect::{self, Client, Dial};
use crate::file::{Address, BoxAddress};

/// Time without an answer after which a box is away.
pub const SILENT: Duration = Duration::from_secs(2);
/// From one look at the clock and the plan to the next.
const LOOK: Duration = Duration::from_millis(250);
/// Looks from one reading of the statistics to the next.
const READ_EVERY: u32 = 4;
/// First looks at a clock.
const FIRST_LOOKS: usize = 4;
/// Before the next attempt to reach a box.
const AGAIN: Duration = Duration::from_millis(250);

/// State of a box.
#[derive(Debug, Default)]
pub struct State {
    /// The token of `Control`; zero while the box is away.
    token: u64,
    pub is_up: bool,
    /// It was up once.
    pub was_up: bool,
    /// Reason for its absence, or its fault.
    pub message: String,
    /// Of its present or last dataplane; none until it has answered once.
    pub described: Option<dp::DescribeResponse>,
    readings: Readings,
    /// From the last look.
    pub plan: dp::GetPlanResponse,
    pub account: Account,
    /// Received packets a second.
    pub rate: f64,
    /// Received packets, and when, at the last reading of the statistics.
    received: Option<(u64, u64)>,
    /// Clients on hold there when control began, by the group before this one.
    pub on_hold: Vec<dp::HeldClient>,
    /// It was away since the last mark, or its dataplane ended.
    pub has_gap: bool,
}

/// A box; shared by its task and by requests.
#[derive(Debug)]
pub struct Member {
    pub place: usize,
    pub name: String,
    pub address: Address,
    dial: Dial,
    client: Mutex<Client>,
    /// Why the last attempt to connect failed, if because of TLS.
    fault: Fault,
    clock: GroupClock,
    state: Mutex<State>,
    up: watch::Sender<bool>,
}

/// What a box's task reports to the group.
pub trait Reports: Send + Sync {
    /// Whether this description fits the group; otherwise why not.
    fn fits(&self, place: usize, described: &dp::DescribeResponse) -> Result<(), String>;
    /// The box answers, and all of [`State`] is known.
    fn found(&self, member: &Member);
    /// The box is away, after it was up.
    fn lost(&self, member: &Member, why: &str);
    /// It has been looked at.
    fn looked(&self, member: &Member) -> impl Future<Output = ()> + Send;
}

impl Member {
    /// Connects when used; call within a runtime.
    #[must_use]
    pub fn new(place: usize, of: &BoxAddress, clock: GroupClock, dial: Dial) -> Self {
        let BoxAddress { name, address } = of.clone();
        let fault = connect::fault();
        let client = Mutex::new(dial.client(&address, &fault));
        let message = "it has not answered yet".to_owned();
        let state = Mutex::new(State { message, has_gap: true, ..State::default() });
        let up = watch::Sender::new(false);
        Self { place, name, address, dial, client, fault, clock, state, up }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state().is_up
    }

    fn client(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is up, and each change of that.
    #[must_use]
    pub fn ups(&self) -> watch::Receiver<bool> {
        self.up.subscribe()
    }

    /// The instance of its dataplane; zero until it is known.
    #[must_use]
    pub fn instance(&self) -> u64 {
        self.state().described.as_ref().map_or(0, |it| it.instance)
    }

    /// The offset of its clock now.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset_at(self.clock.now_ns())
    }

    /// The offset of its clock at a recent time of the group's clock.
    #[must_use]
    pub fn offset_at(&self, group_ns: u64) -> Offset {
        self.state().readings.at(group_ns).unwrap_or_default()
    }

    /// The longest recent round trip.
    #[must_use]
    pub fn round_trip_ns(&self) -> u64 {
        self.state().readings.longest_ns()
    }

    /// Calls its dataplane as its controller, within a time.
    ///
    /// # Errors
    /// Of the dataplane; UNAVAILABLE if it is away, DEADLINE_EXCEEDED.
    pub async fn call<M, T, F>(
        &self,
        within: Duration,
        message: M,
        call: impl FnOnce(Client, Request<M>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let token = self.state().token;
        if token == 0 {
            let why = self.state().message.clone();
            return Err(Status::unavailable(format!("box {} is down: {why}", self.name)));
        }
        let mut request = Request::new(message);
        if let Ok(token) = token.to_string().parse() {
            request.metadata_mut().insert(TOKEN_METADATA, token);
        }
        let client = self.client().clone();
        match timeout(within, call(client, request)).await {
            Ok(answer) => answer.map(Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded(format!(
                "box {} did not answer within {within:?}",
                self.name
            ))),
        }
    }

    /// Has it make a change.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn apply(
        &self,
        within: Duration,
        change: dp::LinkChange,
    ) -> Result<dp::LinkChanged, Status> {
        let call = |mut c: Client, request| async move { c.apply(request).await };
        let answer = self.call(within, dp::ApplyRequest::from(change), call).await;
        answer.map(dp::ApplyResponse::into_one)
    }

    /// Reads its statistics; with `mark` another span begins there.
    ///
    /// # Errors
    /// As [`Member::call`].
    pub async fn read(&self, mark: bool) -> Result<(), Status> {
        let call = |mut c: Client, request| async move { c.get_stats(request).await };
        let instance = self.instance();
        let stats = self.call(SILENT, dp::GetStatsRequest { mark }, call).await?;
        let mut state = self.state();
        // A dataplane that was restarted meanwhile is read after it was described.
        if state.described.as_ref().map(|it| it.instance) != Some(instance) {
            return Err(Status::unavailable("its dataplane was restarted"));
        }
        let (now_ns, received) = (self.clock.now_ns(), received(&stats));
        if let Some((before, at_ns)) = state.received {
            let seconds = Duration::from_nanos(now_ns.saturating_sub(at_ns)).as_secs_f64();
            // Requests for statistics may come in quick succession.
            if seconds > 0.5 {
                state.rate = received.saturating_sub(before) as f64 / seconds;
                state.received = Some((received, now_ns));
            }
        } else {
            state.received = Some((received, now_ns));
        }
        state.account.read(stats);
        Ok(())
    }

    /// Keeps control of the box, while polled.
    pub async fn keep(&self, name: &str, group: &impl Reports) {
        loop {
            let why = match self.session(name, group).await {
                Ok(()) => "its dataplane ended the connection".to_owned(),
                Err(why) => why,
            };
            let (was_up, is_new) = {
                let mut state = self.state();
                state.token = 0;
                let is_new = state.message != why;
                state.message.clone_from(&why);
                state.has_gap = true;
                state.rate = 0.0;
                (std::mem::take(&mut state.is_up), is_new)
            };
            self.up.send_replace(false);
            if was_up {
                group.lost(self, &why);
            } else if is_new {
                tracing::warn!(box_ = self.name, why, "no box");
            }
            sleep(AGAIN).await;
        }
    }

    /// From the start of control to its end; Err: why it is away.
    async fn session(&self, name: &str, group: &impl Reports) -> Result<(), String> {
        // Another connection: one that stayed open would keep a certificate that was replaced since.
        let mut client = self.dial.client(&self.address, &self.fault);
        *self.client() = client.clone();
        let request = dp::ControlRequest { name: name.to_owned() };
        let asked = async {
            let mut tokens = client.control(request).await?.into_inner();
            let first = tokens.message().await?;
            Ok((tokens, first.map_or(0, |it| it.token)))
        };
        let told = |status: Status| self.words(&status);
        let (mut tokens, token) =
            timeout(SILENT, asked).await.map_err(|_| silent())?.map_err(told)?;
        self.state().token = token;
        // Of a group before this one.
        let withdraw = |mut c: Client, request| async move { c.withdraw(request).await };
        let left = self.call(SILENT, dp::WithdrawRequest {}, withdraw).await.map_err(told)?;
        self.state().on_hold = left.on_hold;
        let describe = |mut c: Client, request| async move { c.describe(request).await };
        let described = self.call(SILENT, dp::DescribeRequest {}, describe).await.map_err(told)?;
        group.fits(self.place, &described)?;
        self.meet(described);
        for _ in 0..FIRST_LOOKS {
            self.look().await?;
        }
        self.read(false).await.map_err(told)?;
        {
            let mut state = self.state();
            (state.is_up, state.was_up) = (true, true);
            state.message.clear();
        }
        self.up.send_replace(true);
        group.found(self);
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut turn = 0_u32;
        loop {
            tokio::select! {
                ended = tokens.message() => return ended.map(drop).map_err(told),
                _ = looks.tick() => {
                    self.look().await?;
                    group.looked(self).await;
                    turn = turn.wrapping_add(1);
                    if turn.is_multiple_of(READ_EVERY) {
                        self.read(false).await.map_err(told)?;
                    }
                }
            }
        }
    }

    /// Takes the description of a dataplane, which may be another one than before.
    fn meet(&self, described: dp::DescribeResponse) {
        let mut state = self.state();
        let before = state.described.replace(described);
        let instance = state.described.as_ref().map(|it| it.instance);
        if before.is_some() && before.map(|it| it.instance) != instance {
            state.account.end();
            state.has_gap = true;
            (state.readings, state.received) = (Readings::default(), None);
        }
    }

    async fn look(&self) -> Result<(), String> {
        let get = |mut c: Client, request| async move { c.get_plan(request).await };
        let asked_ns = self.clock.now_ns();
        let plan = self.call(SILENT, dp::GetPlanRequest {}, get).await;
        let answered_ns = self.clock.now_ns();
        let plan = plan.map_err(|status| self.words(&status))?;
        let mut state = self.state();
        if let Some(time_ns) = plan.time_ns {
            state.readings.add(asked_ns, answered_ns, time_ns);
        }
        state.plan = plan;
        Ok(())
    }

    /// Why a call failed, for people.
    #[must_use]
    pub fn words(&self, status: &Status) -> String {
        if status.code() == Code::DeadlineExceeded {
            return silent();
        }
        if status.code() == Code::Unimplemented {
            return "its dataplane is of another version: install the same one on all boxes".into();
        }
        if status.source().is_none() {
            return status.message().to_owned();
        }
        if let Some(words) = self.fault.words() {
            return format!("no connection to {}: {words}", self.address);
        }
        let mut last: &dyn Error = status;
        while let Some(source) = last.source() {
            last = source;
        }
        let (address, remedy) = match &self.address {
            address @ Address::Unix(_) => (address, "start linkd-dataplane there"),
            address @ Address::Tls { .. } => (address, "start linkd --member there"),
        };
        format!("no answer at {address} ({last}): {remedy}")
    }
}

fn silent() -> String {
    format!("it did not answer for {} s: is it stopped or overloaded?", SILENT.as_secs())
}

/// Received packets over both directions.
fn received(stats: &pb::Stats) -> u64 {
    let pipes = stats.clients.iter().flat_map(|it| [&it.forward_pipe, &it.return_pipe]).flatten();
    pipes.map(|pipe| pipe.received.unwrap_or_default().packets).sum()
}
