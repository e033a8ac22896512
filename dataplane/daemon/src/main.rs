// SPDX-License-Identifier: Apache-2.0
//! `linkd-dataplane`: see `--help`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use compile::compile;
use dataplane::arguments::{self, Arguments, Output};
use dataplane::dataplane::{Dataplane, Fixed};
use dataplane::ports::{self, Counted};
use dataplane::service::Service;
use dataplane::steering;
use dataplane::workers::{self, Settings};
use dpdk::TscClock;
use emu::engine::Limits;
use emu::plan::Room;
use endpoint::Claim;
use proto::dataplane::v1 as pb;
use proto::dataplane::v1::dataplane_server::DataplaneServer;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use worker::dpdk_io::DpdkIo;
use worker::run::Idle;

/// How long the clock is measured at the start.
const CALIBRATE: Duration = Duration::from_millis(500);
/// Speed of a port that does not tell.
const UNKNOWN_SPEED_BPS: u64 = 10_000_000_000;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let specs = match arguments.two_ports() {
        Ok(specs) => specs,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    let filter = tracing_subscriber::EnvFilter::new(&arguments.log);
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(&arguments, &specs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(arguments: &Arguments, specs: &[dpdk::NamedPort; 2]) -> anyhow::Result<()> {
    // First, so that a second dataplane is refused before it touches a port.
    let (_claim, listener) = Claim::new(&arguments.socket, "linkd-dataplane")?;
    let core = worker_core(arguments.core)?;
    let memory = usize::try_from(arguments.memory).context("--memory is larger than an address")?;
    check_memory(arguments.memory)?;
    let eal = ports::start_eal(arguments.huge, specs)?;
    let opened = ports::open(&eal, specs)?;
    steer(specs, core);
    let clock = TscClock::calibrate(CALIBRATE);
    tracing::info!(error_ppm = clock.error_ppm(), counter = clock.uses_counter(), "clock measured");
    let limits = Limits { memory, clients: arguments.max_clients, frame: opened.max_frame };
    let plan = pb::Plan {
        profile: profile::Catalog::built_in().get("transparent").map(|p| p.as_proto().clone()),
        seed: arguments.seed,
    };
    let compiled = compile(&plan).context("the built-in profile `transparent`")?;
    let fixed = fixed(arguments, specs, &eal, &opened);
    compiled.check(fixed.room)?;
    let [wan, client] = opened.queues;
    let waiter = wan.rx.waiter()?.and(client.rx.waiter()?);
    let io = DpdkIo::new(wan, client, opened.pool, waiter);
    let idle = match arguments.idle {
        arguments::Idle::Busy => Idle::Busy,
        arguments::Idle::Adaptive => Idle::Adaptive,
    };
    let settings = Settings { idle, core: Some(core), limits };
    let running = workers::spawn(&eal, io, clock, compiled, settings)?;
    let dataplane =
        Dataplane::new(vec![running.handle], clock, Box::new(Counted(opened.ports)), fixed, plan);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let serving = serve(dataplane, listener, running.ended);
    let accounts = runtime.block_on(serving)?;
    drop(runtime);
    running.thread.join().map_err(|_| anyhow::anyhow!("the worker panicked"))?;
    let accounts = view::Snapshot::from(accounts);
    match arguments.output {
        Output::Json => println!("{}", serde_json::to_string(&accounts)?),
        Output::Text => println!("{}", view::table(&accounts)),
    }
    Ok(())
}

/// The core of the worker: the one asked for, else the last one. It must not move
/// about: what it sends on a kernel interface would be reordered.
fn worker_core(asked: Option<usize>) -> anyhow::Result<usize> {
    let cores = ports::cores();
    match asked {
        Some(core) => {
            let may = cores.contains(&core);
            anyhow::ensure!(
                may,
                "there is no core {core} for this process: it may run on {cores:?}"
            );
            Ok(core)
        }
        None => cores.last().copied().context("this process may run on no core"),
    }
}

/// What the kernel receives for us goes to one core, another than the worker's.
fn steer(specs: &[dpdk::NamedPort; 2], worker: usize) {
    let core = ports::cores().into_iter().find(|c| *c != worker).unwrap_or(worker);
    for iface in specs.iter().filter_map(|p| p.spec.iface()) {
        match steering::steer(iface, core) {
            Ok(()) => tracing::info!(iface, core, "steered to one core"),
            Err(error) => tracing::warn!(
                iface,
                %error,
                "not steered to one core: frames of one flow that are sent on several cores may \
                 arrive out of order; write a one-core mask to its queues/rx-*/rps_cpus"
            ),
        }
    }
}

/// Serves until a signal comes or a worker ends; then the final accounts.
async fn serve(
    dataplane: Dataplane,
    listener: std::os::unix::net::UnixListener,
    worker_ended: tokio::sync::oneshot::Receiver<()>,
) -> anyhow::Result<proto::linkemu::v1::Stats> {
    let incoming = UnixListenerStream::new(UnixListener::from_std(listener)?);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let server = tonic::transport::Server::builder()
        .add_service(DataplaneServer::new(Service(dataplane.clone())))
        .serve_with_incoming(incoming);
    tracing::info!("ready");
    tokio::select! {
        served = server => served.context("the service ended")?,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = worker_ended => anyhow::bail!("the worker ended by itself: please report this"),
    }
    tracing::info!("stopping");
    Ok(dataplane.stop().await?)
}

fn fixed(
    arguments: &Arguments,
    specs: &[dpdk::NamedPort; 2],
    eal: &dpdk::Eal,
    opened: &ports::Opened,
) -> Fixed {
    let speed = |p: &dpdk::StartedPort| {
        let mbps = p.link().ok().and_then(|l| l.mbps).or(p.info().link_mbps);
        mbps.map_or(UNKNOWN_SPEED_BPS, |m| u64::from(m) * 1_000_000)
    };
    let ports: Vec<pb::Port> = opened
        .ports
        .iter()
        .zip(specs)
        .map(|(p, s)| pb::Port {
            name: p.name().to_owned(),
            device: s.spec.to_string(),
            driver: p.info().driver.clone(),
            speed_bps: speed(p),
        })
        .collect();
    Fixed {
        room: Room {
            clients: arguments.max_clients,
            port_bps: ports.iter().map(|p| p.speed_bps).max().unwrap_or(UNKNOWN_SPEED_BPS),
            frame: opened.max_frame,
            capacity: arguments.memory,
        },
        description: pb::DescribeResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dpdk: eal.version(),
            ports,
            max_clients: arguments.max_clients,
            memory_bytes: arguments.memory,
            max_frame_bytes: opened.max_frame,
        },
    }
}

/// The packet store is taken as it is used; what the machine does not have must be
/// refused now, not found missing under load.
fn check_memory(asked: u64) -> anyhow::Result<()> {
    let info = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let available = info
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))
        .and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .map_or(u64::MAX, |kb| kb * 1024);
    anyhow::ensure!(
        asked <= available,
        "--memory {} is more than the {} that the machine has available: give less, or free some",
        profile::format_size(asked),
        profile::format_size(available),
    );
    Ok(())
}
