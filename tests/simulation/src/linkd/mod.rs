// SPDX-License-Identifier: Apache-2.0
//! linkd with a dataplane without packets: crashes of both, a disk that takes nothing, wall clocks that
//! jump, and callers who compete for the lease and run scenarios.
//!
//! linkd serves its socket, and its state and audit log are files, as always. Tasks of a linkd that has
//! crashed still run and have no effect: each linkd has its own sockets and directory, and the next one
//! starts with a copy of the directory.

mod check;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fake::FakeDataplane;
use hyper_util::rt::TokioIo;
use linkd::{Clocks, Security, Server, Settings};
use profile::Catalog;
use proto::LEASE_METADATA;
use proto::linkemu::v1 as pb;
use proto::linkemu::v1::events_client::EventsClient;
use proto::linkemu::v1::leases_client::LeasesClient;
use proto::linkemu::v1::linkemu_client::LinkemuClient;
use proto::linkemu::v1::run_scenario_request::Scenario;
use proto::linkemu::v1::scenarios_client::ScenariosClient;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};

use crate::network::Way;
use crate::node::{Node, REFUSED_BPS};
use crate::requests::{PROFILE, rates, told};
use crate::script::{ACTORS, Op, Script, Timed};
use crate::{Report, in_virtual_time};

/// All requests are answered within that time.
const QUIET: Duration = Duration::from_secs(60);
/// linkd and dataplane have found each other again within that time.
const RETURN: Duration = Duration::from_secs(12);

thread_local! {
    /// The start of the history, and the wall clock less the one without jumps, in seconds.
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
    static JUMPED: Cell<i64> = const { Cell::new(0) };
}

/// Time since the start of the history.
fn elapsed() -> Duration {
    START.get().map_or(Duration::ZERO, |start| start.elapsed())
}

fn wall() -> SystemTime {
    let seconds = 1_790_000_000_i64 + JUMPED.get();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs()) + elapsed()
}

/// A change, and its answer.
#[derive(Clone, Debug)]
struct Changed {
    forward: bool,
    rate: u64,
    expected: Option<u64>,
    /// The token that was shown.
    token: Option<String>,
    /// Name of the request; empty: it has none.
    id: String,
    sent: Duration,
    answered: Duration,
    /// None: the caller has gone.
    answer: Option<Result<pb::UpdateLinksResponse, Status>>,
}

/// What happens to a lease.
#[derive(Clone, Debug)]
enum Lease {
    Acquired {
        token: String,
        ttl: Duration,
        steal: bool,
    },
    Renewed {
        token: String,
    },
    /// Its end was asked for.
    Ending {
        token: String,
    },
    Released {
        token: String,
        /// The link has returned to the profile of the lease.
        returned: bool,
    },
}

/// A scenario was started or stopped.
#[derive(Clone, Debug)]
struct Command {
    what: &'static str,
    token: Option<String>,
    sent: Duration,
    answered: Duration,
}

/// A scenario that was asked for.
#[derive(Clone, Debug)]
struct Ran {
    /// The rate of each step.
    rates: Vec<u64>,
    token: Option<String>,
}

#[derive(Clone, Debug)]
struct Told {
    sent: Duration,
    answered: Duration,
    lease: Lease,
}

#[derive(Default)]
struct Record {
    changes: Vec<Changed>,
    leases: Vec<Told>,
    runs: Vec<Ran>,
    /// Scenarios that were started and stopped.
    commands: Vec<Command>,
    /// The newest token of each caller.
    tokens: BTreeMap<usize, String>,
    /// Tokens of leases that return the link to a profile.
    returning: BTreeSet<String>,
    /// When a linkd, or a dataplane, was started again.
    linkds: Vec<Duration>,
    dataplanes: Vec<Duration>,
    /// When a linkd ended before that.
    crashes: Vec<Duration>,
    jumped: bool,
    full: bool,
}

/// What a history ended with.
struct End {
    record: Record,
    /// The rates that the dataplane has, and those that linkd shows.
    has: [Option<u64>; 2],
    shown: [Option<u64>; 2],
    applied: Vec<Applied>,
    /// The clients that the dataplane has.
    clients: Option<pb::Clients>,
    events: Vec<pb::Event>,
    audit: String,
}

/// A plan that the dataplane has executed.
struct Applied {
    rates: [Option<u64>; 2],
    /// It was the last link of a dataplane that had been started again.
    restores: bool,
    /// When it was made, if it was a step of a scenario.
    step: Option<Duration>,
}

/// A linkd from its start to its end.
struct Running {
    directory: PathBuf,
    channel: Channel,
    serving: AbortHandle,
    /// Its way to the dataplane.
    way: Way,
}

#[derive(Clone)]
struct Bed(Arc<Shared>);

struct Shared {
    directory: TempDir,
    dataplane: Node,
    linkd: Mutex<Running>,
    started: Mutex<u64>,
    record: Mutex<Record>,
}

/// Runs a script, and checks what must hold.
pub(crate) fn run(script: &Script) -> Report {
    let end = in_virtual_time(async {
        START.set(Some(Instant::now()));
        JUMPED.set(0);
        // Its clock begins now, if it is the first one of this process.
        let start_ns = FakeDataplane::common_ns();
        history(script, start_ns).await
    });
    check::check(&end)
}

async fn history(script: &Script, start_ns: u64) -> End {
    let bed = Bed::new(script.seed).await;
    let player = bed.clone();
    let make = move |op| {
        let bed = player.clone();
        async move { bed.make(op).await }
    };
    script.play(QUIET, make).await;
    sleep(RETURN).await;
    let channel = bed.linkd().channel.clone();
    let link = LinkemuClient::new(channel.clone()).get_link(pb::GetLinkRequest::default()).await;
    let profile = link.ok().and_then(|it| it.into_inner().profile);
    let plan = proto::dataplane::v1::Plan { profile, ..Default::default() };
    let events = bed.events(channel).await;
    let directory = bed.linkd().directory.clone();
    bed.crash();
    let audit = fs::read_to_string(directory.join("audit")).unwrap_or_default();
    let (has, clients, applied) = {
        let state = bed.0.dataplane.fake.state();
        let of = |plan: &proto::dataplane::v1::Plan| rates(plan);
        let has = state.plan.as_ref().map(of).unwrap_or_default();
        let clients = state.plan.as_ref().and_then(|it| it.clients.clone());
        let applied = state.applies.iter().map(|it| Applied {
            rates: of(&it.plan),
            restores: it.restart && it.expected_generation == Some(0),
            step: it.at_ns.map(|at| Duration::from_nanos(at.saturating_sub(start_ns))),
        });
        let made = applied.filter(|it| !it.rates.contains(&Some(REFUSED_BPS))).collect();
        (has, clients, made)
    };
    let record = std::mem::take(&mut *bed.record());
    End { record, has, shown: rates(&plan), applied, clients, events, audit }
}

/// The first profile of the link.
fn profile() -> pb::LinkUpdate {
    let profile = PROFILE.clone().map(pb::profile_update::Profile::Inline);
    pb::ProfileUpdate { profile, seed: None }.into()
}

/// The clients of the link in all of a history.
fn clients() -> Option<pb::Clients> {
    let prefixes = vec!["10.1.0.0/24".to_owned()];
    let client = pb::Client { name: "alice".to_owned(), prefixes, ..Default::default() };
    Some(pb::Clients { clients: vec![client], ..Default::default() })
}

impl Bed {
    async fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let dataplane = Node::new(100, seed);
        dataplane.start();
        let first = directory.path().join("linkd-0");
        fs::create_dir(&first).expect("a directory");
        let linkd = Mutex::new(start(first, &dataplane.way).await);
        let bed = Self(Arc::new(Shared {
            directory,
            dataplane,
            linkd,
            started: Mutex::new(0),
            record: Mutex::default(),
        }));
        // The profile that all later requests change, and the clients.
        for update in [profile(), pb::LinkUpdate { clients: clients(), ..Default::default() }] {
            let mut client = LinkemuClient::new(bed.linkd().channel.clone());
            client.update_links(pb::UpdateLinksRequest::from(update)).await.expect("a link");
        }
        bed
    }

    fn linkd(&self) -> MutexGuard<'_, Running> {
        self.0.linkd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All events that linkd has kept.
    async fn events(&self, channel: Channel) -> Vec<pb::Event> {
        let request = pb::WatchEventsRequest { after: Some(0), once: true };
        let mut all = Vec::new();
        if let Ok(stream) = EventsClient::new(channel).watch_events(request).await {
            let mut stream = stream.into_inner();
            while let Ok(Some(event)) = stream.message().await {
                all.push(event);
            }
        }
        all
    }

    /// Ends linkd without warning. Its tasks have no effect from now on.
    fn crash(&self) {
        self.record().crashes.push(elapsed());
        let linkd = self.linkd();
        linkd.way.end();
        linkd.serving.abort();
    }

    /// Starts linkd with what the one before has left on the disk.
    async fn restart(&self) {
        let number = {
            let mut started = self.0.started.lock().unwrap_or_else(PoisonError::into_inner);
            *started += 1;
            *started
        };
        // Another one may have been started since the crash.
        self.crash();
        let before = self.linkd().directory.clone();
        let next = self.0.directory.path().join(format!("linkd-{number}"));
        copy(&before, &next).expect("a copy of the directory");
        self.record().linkds.push(elapsed());
        let linkd = start(next, &self.0.dataplane.way).await;
        *self.linkd() = linkd;
    }

    async fn make(&self, Timed { number, op, .. }: Timed) {
        match op {
            Op::Patch { actor, forward, refused, stale, id, leaves } => {
                let rate = if refused { REFUSED_BPS } else { told(number, 0) };
                let token = self.record().tokens.get(&actor).cloned();
                let id = id.map_or_else(String::new, |id| format!("r{id}-{number}"));
                let expected = stale.then_some(1_000);
                self.patch(forward, rate, expected, token, id, leaves).await;
            }
            Op::PatchAgain => {
                let named = |it: &&Changed| !it.id.is_empty();
                let before = self.record().changes.iter().rfind(named).cloned();
                if let Some(Changed { forward, rate, expected, token, id, .. }) = before {
                    self.patch(forward, rate, expected, token, id, false).await;
                }
            }
            Op::Acquire { actor, ttl_ms, steal, returns } => {
                self.acquire(actor, ttl_ms, steal, returns).await;
            }
            Op::RunAs { actor, steps, every_ms, tolerate } => {
                let rates: Vec<_> = (0..steps as usize).map(|step| told(number, step)).collect();
                self.run(actor, rates, every_ms, tolerate).await;
            }
            Op::StopAs { actor } => {
                let token = self.record().tokens.get(&actor).cloned();
                let action = pb::ScenarioAction::Stop.into();
                let request = pb::ControlScenarioRequest { action, ..Default::default() };
                let request = with_token(request, token.as_ref());
                let mut client = ScenariosClient::new(self.linkd().channel.clone());
                let sent = elapsed();
                let stopped = timeout(QUIET, client.control_scenario(request)).await;
                self.commanded("stopped", token, sent, stopped);
            }
            Op::Renew { actor } => {
                let Some(token) = self.record().tokens.get(&actor).cloned() else { return };
                let request = pb::RenewLeaseRequest { token: token.clone(), ..Default::default() };
                let mut client = LeasesClient::new(self.linkd().channel.clone());
                let sent = elapsed();
                if let Ok(Ok(_)) = timeout(QUIET, client.renew_lease(request)).await {
                    self.tell(sent, Lease::Renewed { token });
                }
            }
            Op::Release { actor } => {
                let Some(token) = self.record().tokens.remove(&actor) else { return };
                let request =
                    pb::ReleaseLeaseRequest { token: token.clone(), ..Default::default() };
                let mut client = LeasesClient::new(self.linkd().channel.clone());
                let sent = elapsed();
                // Whatever the answer: it may have ended.
                self.tell(sent, Lease::Ending { token: token.clone() });
                if let Ok(Ok(answer)) = timeout(QUIET, client.release_lease(request)).await {
                    let returned = answer.into_inner().generation.is_some();
                    self.tell(sent, Lease::Released { token, returned });
                }
            }
            Op::CrashLinkd { ms } => {
                self.crash();
                sleep(Duration::from_millis(ms)).await;
                self.restart().await;
            }
            Op::CrashDataplane { ms } => {
                self.0.dataplane.crash();
                sleep(Duration::from_millis(ms)).await;
                self.record().dataplanes.push(elapsed());
                self.0.dataplane.start();
            }
            Op::Hesitate { ms } => {
                self.0.dataplane.fake.state().hesitation = Duration::from_millis(ms);
                sleep(Duration::from_millis(ms)).await;
                self.0.dataplane.fake.state().hesitation = Duration::ZERO;
            }
            Op::FillDisk { ms } => {
                self.record().full = true;
                // A directory in the place of the file that is written.
                let new = self.linkd().directory.join("state/state.new");
                let _ = fs::create_dir(&new);
                sleep(Duration::from_millis(ms)).await;
                let _ = fs::remove_dir(&new);
                let _ = fs::remove_dir(self.linkd().directory.join("state/state.new"));
            }
            Op::Jump { s } => {
                self.record().jumped = true;
                JUMPED.set(JUMPED.get() + s);
            }
            _ => {}
        }
    }

    fn tell(&self, sent: Duration, lease: Lease) {
        self.record().leases.push(Told { sent, answered: elapsed(), lease });
    }

    async fn acquire(&self, actor: usize, ttl_ms: u64, steal: bool, returns: bool) {
        let ttl = Duration::from_millis(ttl_ms);
        let request = pb::AcquireLeaseRequest {
            holder: format!("caller {}", actor % ACTORS),
            ttl_ns: ttl_ms * 1_000_000,
            return_profile: if returns { "viasat2".to_owned() } else { String::new() },
            steal,
            ..Default::default()
        };
        let mut client = LeasesClient::new(self.linkd().channel.clone());
        let sent = elapsed();
        if let Ok(Ok(answer)) = timeout(QUIET, client.acquire_lease(request)).await {
            let token = answer.into_inner().token;
            let mut record = self.record();
            record.tokens.insert(actor, token.clone());
            record.returning.extend(Some(token.clone()).filter(|_| returns));
            drop(record);
            self.tell(sent, Lease::Acquired { token, ttl, steal });
        }
    }

    async fn run(&self, actor: usize, rates: Vec<u64>, every_ms: u64, tolerate: bool) {
        let step = |bps: &u64| {
            format!("[[step]]\nafter = \"{every_ms} ms\"\nforward.rate = \"{bps} bit/s\"\n")
        };
        let steps: String = rates.iter().map(step).collect();
        let token = self.record().tokens.get(&actor).cloned();
        let toml = Scenario::Toml(format!("name = \"it\"\n{steps}"));
        let message = pb::RunScenarioRequest {
            scenario: Some(toml),
            tolerate_changes: tolerate,
            ..Default::default()
        };
        let request = with_token(message, token.as_ref());
        // Also one without an answer may have begun.
        self.record().runs.push(Ran { rates, token: token.clone() });
        let mut client = ScenariosClient::new(self.linkd().channel.clone());
        let sent = elapsed();
        let started = timeout(QUIET, client.run_scenario(request)).await;
        self.commanded("started", token, sent, started);
    }

    fn commanded<T>(
        &self,
        what: &'static str,
        token: Option<String>,
        sent: Duration,
        answer: Result<Result<T, Status>, Elapsed>,
    ) {
        if let Ok(Ok(_)) = answer {
            self.record().commands.push(Command { what, token, sent, answered: elapsed() });
        }
    }

    async fn patch(
        &self,
        forward: bool,
        rate: u64,
        expected: Option<u64>,
        token: Option<String>,
        id: String,
        leaves: bool,
    ) {
        let direction = if forward { pb::Direction::Forward } else { pb::Direction::Return };
        let pipe = pb::PipeUpdate {
            direction: direction.into(),
            pipe: Some(pb::Pipe { rate_bps: Some(rate), ..Default::default() }),
            mask: Some(prost_types::FieldMask { paths: vec!["rate_bps".into()] }),
            ..Default::default()
        };
        let update = pb::LinkUpdate { expected_generation: expected, ..pipe.into() };
        let message = pb::UpdateLinksRequest { updates: vec![update], request_id: id.clone() };
        let request = with_token(message, token.as_ref());
        let place = {
            let mut record = self.record();
            let (sent, answered) = (elapsed(), Duration::MAX);
            let answer = None;
            let change = Changed { forward, rate, expected, token, id, sent, answered, answer };
            record.changes.push(change);
            record.changes.len() - 1
        };
        let mut client = LinkemuClient::new(self.linkd().channel.clone());
        let patience = if leaves { Duration::from_millis(1) } else { QUIET };
        let Ok(answer) = timeout(patience, client.update_links(request)).await else { return };
        let change = &mut self.record().changes[place];
        change.answered = elapsed();
        change.answer = Some(answer.map(tonic::Response::into_inner));
    }
}

fn with_token<T>(message: T, token: Option<&String>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token.and_then(|it| it.parse().ok()) {
        request.metadata_mut().insert(LEASE_METADATA, token);
    }
    request
}

/// Starts linkd in a directory.
async fn start(directory: PathBuf, dataplane: &Way) -> Running {
    let at = |name: &str| directory.join(name);
    let way = dataplane.beside();
    let _ = fs::remove_file(at("dataplane.sock"));
    let listener = UnixListener::bind(at("dataplane.sock")).expect("a socket");
    let through = way.clone();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            // linkd finds the connection closed.
            let Ok(mut far) = through.connect() else { continue };
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    let settings = Settings {
        socket: at("linkd.sock"),
        dataplane: at("dataplane.sock"),
        catalog: CATALOG.clone(),
        state: Some(at("state")),
        security: Security { audit: Some(at("audit")), ..Security::default() },
    };
    let server = Server::bind(settings).expect("a linkd");
    let server = server.with_clocks(Clocks { boot: elapsed, wall });
    let serving = tokio::spawn(async move {
        let _ = server.serve(std::future::pending()).await;
    });
    let socket = at("linkd.sock");
    let connect = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://linkd").connect_with_connector_lazy(connect);
    Running { directory, channel, serving: serving.abort_handle(), way }
}

static CATALOG: std::sync::LazyLock<Catalog> = std::sync::LazyLock::new(Catalog::built_in);

/// Copies a directory with its files, but no sockets.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &to)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
