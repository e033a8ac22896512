// SPDX-License-Identifier: Apache-2.0
//! `linkd-p4switch`: see `--help`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{CommandFactory, Parser};
use dpdk::{Eal, EalOptions, Memory, Mempool, OffloadsOff, Port, PortConfig, StartedPort, Waiter};
use endpoint::Claim;
use interface::Interface;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use p4server::{Device, Listener, Server};
use p4switch::arguments::{Arguments, NumberedPort};
use p4switch::header::{EXTRACTED, LENGTH};
use p4switch::ports::{Counts, PortQueues, Ports};
use p4switch::target::Switch;
use p4switch::worker::Worker;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use rustls::ServerConfig;
use tls::server::{Files, Keys};
use tokio::net::TcpSocket;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

/// Controllers that wait to be accepted.
const BACKLOG: u32 = 64;
/// Descriptors of each queue.
const RING: u16 = 1024;
/// Buffers besides those in rings.
const SPARE: u32 = 2048;
/// Bytes that a program may add to a frame, and its padding.
const ADDED: u32 = LENGTH as u32 + EXTRACTED as u32;
/// Approximate bytes of a buffer beyond its data, and headroom.
const OVERHEAD: u32 = 512;
/// Memory of tables and of EAL itself, megabytes.
const TABLES: u32 = 192;
/// Frames that hosts send without jumbo frames, and a shim.
const MIN_DATA: u32 = 2048;
/// Ethernet header, bytes.
const ETHERNET: u32 = 14;
/// How often the MTUs of the interfaces are read: an interface drops longer frames without a count.
const LOOK: Duration = Duration::from_secs(1);
/// Digests that wait for the server.
const LEARNED: usize = 1024;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(folder) = &arguments.manual {
        return match manual::write_daemon(&Arguments::command(), folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: cannot write to {}: {error}", folder.display());
                ExitCode::from(1)
            }
        };
    }
    let mut numbers = BTreeSet::new();
    if let Some(twice) = arguments.ports.iter().find(|port| !numbers.insert(port.number)) {
        eprintln!("error: port {} is given twice", twice.number);
        return ExitCode::from(2);
    }
    if let Err(error) = arguments.check_listen() {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    let filter = tracing_subscriber::EnvFilter::new(&arguments.log);
    endpoint::log::to_stderr(filter);
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", endpoint::errors::told(error.as_ref()));
            ExitCode::from(1)
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    endpoint::files::ensure()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // Taken first, so that a second switch is refused before it touches a port. Nobody is accepted before
    // the ports are open.
    let socket = bind(arguments)?;
    let files = arguments.tls();
    let (renewed, keys) = match &files {
        Some(files) => {
            let (renewed, keys) = watch::channel(Arc::new(Keys::read(files)?.config()?));
            (Some(renewed), Some(keys))
        }
        None => (None, None),
    };
    let opened = open(&arguments.ports)?;
    // Turned on again at the end.
    let _offloads = opened.offloads;
    let (bell, rung) = UnixStream::pair().context("cannot make a pair of sockets")?;
    bell.set_nonblocking(true)?;
    rung.set_nonblocking(true)?;
    let mut waiter = waiter(&opened.queues)?;
    waiter.watch(rung.try_clone()?.into());
    let (learned, mut digests) = mpsc::channel(LEARNED);
    let seed = getrandom::u64().context("cannot draw a random number")?;
    let ports =
        Ports::new(opened.queues, opened.pool.clone(), ChaCha8Rng::seed_from_u64(seed), learned);
    let (requests, requested) = sync_channel(1);
    let (ended, end) = oneshot::channel();
    let (core, idle, eal) = (arguments.core, arguments.idle.into(), opened.eal.share());
    let worker = thread::Builder::new().name("worker".into()).spawn(move || {
        let counts =
            work(core, eal, |eal| Worker::new(eal, ports, requested, rung).run(idle, waiter));
        // Without a receiver the process ends anyway.
        let _ = ended.send(());
        counts
    })?;
    let server = Server::new(Device::new(arguments.device, Switch::new(requests, bell)));
    let digesting = server.clone();
    runtime.spawn(async move {
        while let Some(learn) = digests.recv().await {
            let row = [learn.port.into(), learn.mac.into(), learn.direction.into()];
            digesting.device().digest(&row);
        }
    });
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut look = tokio::time::interval(LOOK);
        let looking = async {
            loop {
                look.tick().await;
                limit_frames(&opened.started);
            }
        };
        tracing::info!(at = socket.place(), "ready");
        let (listener, _claim) = socket.listen(keys)?;
        endpoint::supervisor::ready("serving P4Runtime");
        tokio::select! {
            served = server.serve(listener) => served.context("the service ended"),
            () = renew(&mut hangup, files.zip(renewed)) => Ok(()),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            () = looking => Ok(()),
            _ = end => anyhow::bail!("the worker ended by itself: please report this"),
        }
    })?;
    endpoint::supervisor::stopping();
    // Ends the server, the last to have a sender of requests.
    drop(runtime);
    let counts = worker.join().map_err(|_| anyhow::anyhow!("the worker panicked"))??;
    report(&opened.started, counts);
    Ok(())
}

/// Reads the certificates again on each SIGHUP. If they are not valid, the current ones stay.
async fn renew(hangup: &mut Signal, renewed: Option<(Files, watch::Sender<Arc<ServerConfig>>)>) {
    while hangup.recv().await.is_some() {
        let Some((files, renewed)) = &renewed else { continue };
        match Keys::read(files).and_then(|keys| keys.config()) {
            Ok(config) => {
                renewed.send_replace(Arc::new(config));
                tracing::info!("the certificates were read again");
            }
            Err(error) => tracing::error!(%error, "the certificates stay as they were"),
        }
    }
}

/// Where P4Runtime is served.
enum Socket {
    /// Its file goes with the claim.
    Unix(Claim, UnixListener, PathBuf),
    Tcp(TcpSocket, SocketAddr),
}

impl Socket {
    fn place(&self) -> String {
        match self {
            Self::Unix(_, _, path) => format!("unix:{}", path.display()),
            Self::Tcp(_, address) => address.to_string(),
        }
    }

    fn listen(self, keys: Option<p4server::Keys>) -> std::io::Result<(Listener, Option<Claim>)> {
        match self {
            Self::Unix(claim, listener, _) => {
                let listener = tokio::net::UnixListener::from_std(listener)?;
                Ok((Listener::Unix(listener), Some(claim)))
            }
            Self::Tcp(socket, _) => Ok((Listener::Tcp(socket.listen(BACKLOG)?, keys), None)),
        }
    }
}

fn bind(arguments: &Arguments) -> anyhow::Result<Socket> {
    let Some(address) = arguments.listen else {
        let path = arguments.socket.clone();
        let (claim, listener) = Claim::new(&path, "linkd-p4switch")?;
        return Ok(Socket::Unix(claim, listener, path));
    };
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok::<_, std::io::Error>(socket)
    };
    let socket =
        bound().with_context(|| format!("cannot listen at {address}: give another --listen"))?;
    Ok(Socket::Tcp(socket, address))
}

/// Runs `run` on this thread with a mempool cache, on a core.
fn work<T>(core: Option<usize>, eal: Eal, run: impl FnOnce(Eal) -> T) -> anyhow::Result<T> {
    if let Some(core) = core {
        let mut set = CpuSet::new();
        set.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).with_context(
            || format!("cannot run on core {core}: give a --core that the process may use"),
        )?;
    }
    let _guard = eal.register_thread()?;
    Ok(run(eal))
}

/// Ports, with their environment and buffers.
struct Opened {
    eal: Eal,
    pool: Mempool,
    started: Vec<StartedPort>,
    queues: Vec<(u16, PortQueues)>,
    /// Of the kernel interfaces, to be kept as long as the ports.
    offloads: OffloadsOff,
}

fn open(ports: &[NumberedPort]) -> anyhow::Result<Opened> {
    let room = ports.iter().map(|port| port.spec.min_data_room()).max().unwrap_or(0);
    let room = room.max(MIN_DATA) + ADDED;
    let data_room = u16::try_from(room).context("the ports need larger buffers than DPDK has")?;
    let count = u32::try_from(ports.len())? * 2 * u32::from(RING) + SPARE;
    let megabytes = (u64::from(count) * u64::from(room + OVERHEAD)).div_ceil(1 << 20);
    let memory = Memory::available(u32::try_from(megabytes)? + TABLES);
    let options = EalOptions::new(memory).with_ports(ports.iter().map(|port| &port.spec));
    let eal = Eal::init(&options)?;
    let pool = Mempool::new(&eal, "frames", count, data_room)?;
    let attach = |NumberedPort { number, spec }: &NumberedPort| {
        Port::attach(&eal, &format!("p{number}"), spec).map(|port| (*number, port))
    };
    let attached: Vec<_> = ports.iter().map(attach).collect::<Result<_, _>>()?;
    // Nothing is changed on this machine before all ports were found.
    let mut offloads = OffloadsOff::default();
    ports.iter().filter_map(|port| port.spec.iface()).for_each(|iface| offloads.turn_off(iface));
    let (mut started, mut queues) = (Vec::new(), Vec::new());
    for (number, port) in attached {
        let info = port.info();
        tracing::info!(number, device = info.device, driver = info.driver, "opened");
        let config =
            PortConfig { rx_descriptors: RING, tx_descriptors: RING, ..PortConfig::new(&pool) };
        let (port, rx, tx) = port.start(&config)?;
        let queue = rx.into_iter().next().zip(tx.into_iter().next());
        let (rx, tx) = queue.with_context(|| format!("port {number} has no queue"))?;
        queues.push((number, PortQueues { rx, tx }));
        started.push(port);
    }
    ensure!(!started.is_empty(), "no port is given: give --port NUMBER=SPEC");
    Ok(Opened { eal, pool, started, queues, offloads })
}

/// Lets the ports refuse frames that are longer than their interfaces take.
fn limit_frames(ports: &[StartedPort]) {
    for port in ports {
        let interface = port.info().iface.as_deref().and_then(Interface::find);
        if let Some(mtu) = interface.and_then(|interface| interface.mtu().ok()) {
            port.limit_frames(mtu.saturating_add(ETHERNET));
        }
    }
}

fn waiter(queues: &[(u16, PortQueues)]) -> std::io::Result<Waiter> {
    queues.iter().try_fold(Waiter::new(), |all, (_, queues)| Ok(all.and(queues.rx.waiter()?)))
}

fn report(ports: &[StartedPort], counts: Counts) {
    let Counts { received, sent, unreadable, nowhere, not_sent, copies_lost } = counts;
    tracing::info!(received, sent, unreadable, nowhere, not_sent, copies_lost, "frames");
    for port in ports {
        match port.counters() {
            Ok(counters) => tracing::info!(port = port.name(), ?counters, "counters"),
            Err(error) => tracing::warn!(port = port.name(), %error, "no counters"),
        }
    }
}
