// SPDX-License-Identifier: Apache-2.0
//! The outside of a run: its directory, the processes inside, and what they report.

use super::address::Place;
use super::buffers::Sizes;
use super::memory::Memory;
use super::message::{Order, Report, Server, Setup, socket};
use super::output::ServerOutput;
use super::signals::Signals;
use super::{RunArgs, enter, network, programs, stale};
use crate::connection::Connection;
use crate::context::Context;
use crate::failure::Failure;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getegid, geteuid};
use std::env;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;

/// Longest path of a unix socket, less the names of ours.
const DIRECTORY_BYTES: usize = 80;
/// Longest time from the start of the programs until linkd answers.
const START: Duration = Duration::from_secs(30);
/// Longest time for the command to end after the link is gone.
const GRACE: Duration = Duration::from_secs(10);
/// Status of a process that was killed.
const KILLED: u8 = 128 + 9;
/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_millis(10);
/// Time after which a slow start is reported.
const SLOW: Duration = Duration::from_secs(5);
/// Frames that the driver has room for, in each direction of a port: the dataplane's default.
const MOST_FRAMES: u64 = 8192;
const FEWEST_FRAMES: u64 = 64;
/// Bytes that the driver locks for two ports, per frame.
const LOCKED_PER_FRAME: u64 = 2 * 2 * 2048;
/// Bytes that may be locked and are not used for frames.
const SPARE_LOCKED: u64 = 64 << 10;

/// What ended by itself and ought not to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A program of linkemu, and why: the link is gone.
    Emulator(String),
    /// The server, with this status.
    Server(u8),
}

pub struct Session {
    setup: Setup,
    /// Makes the namespaces, and removes the directory.
    enter: Child,
    orders: OwnedWriteHalf,
    reports: Lines<BufReader<OwnedReadHalf>>,
    signals: Signals,
    /// The link around this one.
    around: Option<Place>,
    /// For packets, in bytes.
    memory: u64,
    /// Of the server.
    output: Option<ServerOutput>,
    /// The worst one until now.
    fault: Option<Fault>,
    /// Lock on the directory.
    _held: Option<stale::Held>,
}

impl Session {
    /// Makes the namespaces.
    pub async fn new(args: &RunArgs) -> Result<Self, Failure> {
        let signals = Signals::new()?;
        let around = around()?;
        let dataplane = programs::find("linkd-dataplane", args.bin_dir.as_deref())?;
        let linkd = programs::find("linkd", args.bin_dir.as_deref())?;
        let memory = Memory::find(args.memory)?;
        for remark in &memory.remarks {
            eprintln!("linkctl run: {remark}");
        }
        let options = options(memory.bytes)?;
        let directory = directory()?;
        // A file system without locks has none. Then no run removes directories of others.
        let held = stale::hold(directory.path()).ok();
        let listener = UnixListener::bind(socket(directory.path())).map_err(|error| {
            Failure::failed(
                "io",
                format!("cannot make a socket in {}: {error}", directory.path().display()),
            )
        })?;
        let may = caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_SYS_ADMIN);
        let output = match &args.serve {
            Some(_) => ServerOutput::open().map_err(|error| {
                eprintln!("linkctl run: the lines of the server have no label: {error}");
            }),
            None => Err(()),
        };
        let (server_output, output) = output.ok().unzip();
        let setup = Setup {
            directory: directory.path().to_owned(),
            dataplane,
            linkd,
            options,
            server_output,
            unprivileged: !may.unwrap_or(false),
            root: args.root,
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
        };
        let failed = |e: std::io::Error| {
            Failure::failed("internal", format!("cannot start linkctl again: {e}"))
        };
        let mut command = Command::new(env::current_exe().map_err(failed)?);
        command.arg0(enter::ENTER);
        command.arg(serde_json::to_string(&setup).map_err(|e| failed(e.into()))?);
        command.args(&args.command);
        let mut enter = tokio::process::Command::from(command).spawn().map_err(failed)?;
        // It removes the directory.
        let _ = directory.keep();
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.map_err(failed)?.0,
            ended = enter.wait() => {
                let _ = std::fs::remove_dir_all(&setup.directory);
                let how = ended.map_or_else(|e| e.to_string(), |status| status.to_string());
                return Err(Failure::failed("internal", format!("cannot make namespaces: {how}")));
            }
        };
        let (reports, orders) = stream.into_split();
        let reports = BufReader::new(reports).lines();
        let mut session = Self {
            setup,
            enter,
            orders,
            reports,
            signals,
            around,
            memory: memory.bytes,
            output,
            fault: None,
            _held: held,
        };
        match session.report().await? {
            Report::Entered => Ok(session),
            report => Err(session.unexpected(report).await),
        }
    }

    /// The socket of linkd.
    pub fn socket(&self) -> PathBuf {
        self.setup.linkd_socket()
    }

    /// Sets up the network and starts the programs. Returns an exit code after a signal.
    pub async fn begin(&mut self) -> Result<Option<u8>, Failure> {
        let place = match &self.around {
            None => Place::default(),
            Some(around) => {
                let pid = self.enter.id().unwrap_or(0);
                let nested = network::nest(around, pid).await;
                nested.map_err(|message| {
                    Failure::failed("failed_precondition", message).hint(
                        "LINKEMU_RUN says that this is the command of another run; if it is not: \
                         env -u LINKEMU_RUN linkctl run …",
                    )
                })?
            }
        };
        self.order(&Order::Begin(place)).await;
        tokio::select! {
            report = next(&mut self.reports) => match report? {
                Report::Begun => Ok(None),
                report => Err(self.unexpected(report).await),
            },
            signal = self.signals.next() => Ok(Some(status(signal.number))),
        }
    }

    /// Waits for a signal, and gives its exit code, or for the end of a program.
    pub async fn interrupted(&mut self) -> Result<u8, Failure> {
        loop {
            tokio::select! {
                signal = self.signals.next() => return Ok(status(signal.number)),
                report = next(&mut self.reports) => match report? {
                    Report::ServerEnded(status) => self.server_ended(status),
                    report => return Err(self.unexpected(report).await),
                },
            }
        }
    }

    /// Sets the largest TCP buffers of both hosts.
    pub async fn set_buffers(&mut self, sizes: Sizes) {
        // A failure is reported to whoever waits next.
        self.order(&Order::Buffers(sizes)).await;
    }

    /// Starts the server and waits until it is ready, up to `limit`. Returns an exit code after a signal.
    pub async fn serve(&mut self, server: Server, limit: Duration) -> Result<Option<u8>, Failure> {
        let ready = server.ready;
        self.order(&Order::Serve(server)).await;
        let mut late = pin!(tokio::time::sleep(limit));
        let mut ended = false;
        loop {
            tokio::select! {
                report = next(&mut self.reports) => match report? {
                    Report::Serves => return Ok(None),
                    // It may have left a process that serves.
                    Report::ServerEnded(0) => ended = true,
                    Report::ServerEnded(status) => {
                        return Err(Failure::failed("failed_precondition", format!(
                            "the server (--serve) ended with status {status} before it opened {ready}"
                        )));
                    }
                    report => return Err(self.unexpected(report).await),
                },
                signal = self.signals.next() => return Ok(Some(status(signal.number))),
                () = &mut late => {
                    let limit = profile::format_duration(limit.as_nanos() as u64);
                    let what = if ended { "ended with status 0 and left nothing that" } else { "has not" };
                    return Err(Failure::failed(
                        "deadline_exceeded",
                        format!("the server (--serve) {what} opened {ready} within {limit}"),
                    )
                    .hint("--serve-ready tcp:PORT or udp:PORT names its port; with none the command starts at once")
                    .hint("is it slow? give --serve-timeout a longer time"));
                }
            }
        }
    }

    /// Memory for packets, in bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// What ended by itself until now.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Starts the command, passes on signals, and gives its exit status. Without the link, the command is
    /// terminated.
    pub async fn command(&mut self) -> Result<u8, Failure> {
        self.order(&Order::Start).await;
        let mut deadline = None;
        loop {
            let late = async {
                tokio::time::sleep_until(deadline?).await;
                Some(())
            };
            tokio::select! {
                signal = self.signals.next() => {
                    if !signal.by_terminal {
                        self.order(&Order::Signal(signal.number)).await;
                    }
                }
                report = next(&mut self.reports) => match report? {
                    Report::Exited(status) => return Ok(status),
                    Report::NotStarted(status, why) => {
                        eprintln!("linkctl run: {why}");
                        return Ok(status);
                    }
                    Report::ServerEnded(status) => self.server_ended(status),
                    Report::Ended(why) => {
                        eprintln!("linkctl run: the link is gone, and the command with it: {why}");
                        self.fault = Some(Fault::Emulator(why));
                        self.order(&Order::Signal(Signal::SIGTERM as i32)).await;
                        deadline = Some(tokio::time::Instant::now() + GRACE);
                    }
                    report => return Err(self.unexpected(report).await),
                },
                Some(()) = late => return Ok(KILLED),
            }
        }
    }

    /// Ends all processes inside and waits until nothing is left.
    pub async fn end(mut self) {
        // The end of the connection ends the first process inside, and that all others.
        drop((self.orders, self.reports));
        let _ = self.enter.wait().await;
        // It was killed if this is still there.
        let _ = std::fs::remove_dir_all(&self.setup.directory);
        if let Some(output) = self.output {
            output.end().await;
        }
    }

    fn server_ended(&mut self, status: u8) {
        eprintln!("linkctl run: the server (--serve) has ended with status {status}");
        if status != 0 {
            self.fault.get_or_insert(Fault::Server(status));
        }
    }

    async fn report(&mut self) -> Result<Report, Failure> {
        next(&mut self.reports).await
    }

    async fn order(&mut self, order: &Order) {
        let line = serde_json::to_string(order).unwrap_or_default() + "\n";
        // The end of the other side is noticed when its reports end.
        let _ = self.orders.write_all(line.as_bytes()).await;
    }

    async fn unexpected(&mut self, report: Report) -> Failure {
        match report {
            Report::Failed(why) | Report::Ended(why) => Failure::failed("failed_precondition", why),
            report => Failure::failed("internal", format!("unexpected report {report:?}")),
        }
    }
}

fn status(signal: i32) -> u8 {
    128 + u8::try_from(signal).unwrap_or(0)
}

async fn next(reports: &mut Lines<BufReader<OwnedReadHalf>>) -> Result<Report, Failure> {
    let lost = |why: String| Failure::failed("internal", format!("the namespaces ended: {why}"));
    let line = reports.next_line().await.map_err(|e| lost(e.to_string()))?;
    let line = line.ok_or_else(|| lost("by a signal, or for lack of memory".into()))?;
    serde_json::from_str(&line).map_err(|e| lost(e.to_string()))
}

/// The link that this process is behind already, if it is the command of a run.
fn around() -> Result<Option<Place>, Failure> {
    let Some(place) = env::var_os("LINKEMU_RUN").filter(|place| !place.is_empty()) else {
        return Ok(None);
    };
    let place = place.to_string_lossy().parse();
    place.map(Some).map_err(|why: String| Failure::usage(format!("LINKEMU_RUN: {why}")))
}

/// Connects to linkd when it serves.
pub async fn connect(context: &Context) -> Result<Connection, Failure> {
    let begin = tokio::time::Instant::now();
    let mut told = false;
    loop {
        match Connection::open(context).await {
            Ok(connection) => {
                let probe = proto::linkemu::v1::GetStatsRequest::default();
                match connection.call(|mut c| async move { c.get_stats(probe).await }).await {
                    Ok(_) => return Ok(connection),
                    Err(failure) if begin.elapsed() > START => return Err(failure),
                    Err(_) => {}
                }
            }
            Err(failure) if begin.elapsed() > START => return Err(failure),
            Err(_) => {}
        }
        if begin.elapsed() > SLOW && !told {
            told = true;
            eprintln!("linkctl run: starting the link takes long; this machine may be busy");
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// A directory for sockets, which only this user can open.
fn directory() -> Result<TempDir, Failure> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let candidates = runtime.into_iter().chain([env::temp_dir(), PathBuf::from("/tmp")]);
    let mut last = None;
    for folder in candidates {
        if !folder.is_absolute() || folder.as_os_str().len() > DIRECTORY_BYTES {
            continue;
        }
        match tempfile::Builder::new().prefix(stale::PREFIX).tempdir_in(&folder) {
            Ok(directory) => {
                stale::remove(&folder);
                return Ok(directory);
            }
            Err(error) => last = Some(error),
        }
    }
    let why = last.map_or_else(|| "no short path".to_owned(), |error| error.to_string());
    Err(Failure::failed("io", format!("cannot make a directory for sockets: {why}"))
        .hint("set XDG_RUNTIME_DIR or TMPDIR to a directory with a short path"))
}

/// Options of the dataplane.
fn options(memory: u64) -> Result<Vec<String>, Failure> {
    let frames = frames()?;
    let port = |name| format!("{name}=net_af_packet,iface={name},framecnt={frames},qdisc_bypass=1");
    let core = core()?;
    let words = [
        "--port",
        &port("wan"),
        "--port",
        &port("client"),
        "--idle",
        "adaptive",
        "--core",
        &core.to_string(),
        "--memory",
        &format!("{memory} B"),
        // Ethernet with an MTU of 1500 bytes and a VLAN tag.
        "--max-frame",
        "1518",
        "--max-clients",
        "1",
        "--huge",
        "off",
        "--log",
        "warn",
    ];
    Ok(words.map(str::to_owned).to_vec())
}

/// The core of the worker: runs at the same time spread over all cores.
fn core() -> Result<usize, Failure> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(|e| {
        Failure::failed("internal", format!("cannot read the allowed processors: {e}"))
    })?;
    let cores: Vec<_> =
        (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect();
    let chosen = std::process::id() as usize % cores.len().max(1);
    Ok(cores.get(chosen).copied().unwrap_or(0))
}

/// Frames in the rings of a port, for which memory is locked.
fn frames() -> Result<u64, Failure> {
    let failed =
        |e| Failure::failed("internal", format!("cannot read the limit of locked memory: {e}"));
    let (_, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).map_err(failed)?;
    // The programs inherit it. An own limit may always be raised so far.
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
    let frames = (hard.saturating_sub(SPARE_LOCKED) / LOCKED_PER_FRAME).min(MOST_FRAMES) & !1;
    if frames < FEWEST_FRAMES {
        return Err(Failure::failed(
            "resource_exhausted",
            format!(
                "this process may lock {} KiB of memory, and the ports need {}",
                hard >> 10,
                (FEWEST_FRAMES * LOCKED_PER_FRAME + SPARE_LOCKED) >> 10
            ),
        )
        .hint(
            "raise the limit: `ulimit -l 8192`, LimitMEMLOCK= of a systemd unit, or memlock in \
               /etc/security/limits.conf",
        ));
    }
    Ok(frames)
}
