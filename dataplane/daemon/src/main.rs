// SPDX-License-Identifier: Apache-2.0
//! `linkd-dataplane`: see `--help`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{CommandFactory, Parser};
use compile::compile;
use dataplane::arguments::{self, Arguments, Output};
use dataplane::choices::Choices;
use dataplane::dataplane::{Dataplane, Fixed};
use dataplane::host::Host;
use dataplane::links::Links;
use dataplane::memory::check_memory;
use dataplane::occupied;
use dataplane::pairs::{self, PortPair};
use dataplane::polling;
use dataplane::ports::{self, Counted, Needs, Opened};
use dataplane::priority;
use dataplane::pulse;
use dataplane::service::Service;
use dataplane::steering::Steered;
use dataplane::switch;
use dataplane::timekeeping;
use dataplane::watch::Watch;
use dataplane::workers::Settings;
use dpdk::{Calibration, TscClock};
use emu::engine::Limits;
use emu::plan::Room;
use endpoint::{Claim, supervisor};
use proto::dataplane::v1 as pb;
use proto::dataplane::v1::dataplane_server::DataplaneServer;
use shim::{Numbers, SHIM};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use worker::distribute::Lending;
use worker::edge::Tail;
use worker::hairpin::VLAN_TAG;
use worker::run::Idle;

/// How long the clock is measured at the start, at least: about as long as the rest of it takes.
const CALIBRATE: Duration = Duration::from_millis(250);
/// Largest request: the profiles of several links.
const REQUEST_BYTES: usize = 64 << 20;
/// Speed of a port that does not tell.
const UNKNOWN_SPEED_BPS: u64 = 10_000_000_000;
/// Time from the removal of a port's interface to the end of the process, in which clients can
/// still read the reason.
const GONE: Duration = Duration::from_secs(3);

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
    let choices = match Choices::new(&arguments, &ports::cores(), ports::can_run_on) {
        Ok(choices) => choices,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(if error.is_refusal() { 1 } else { 2 });
        }
    };
    let filter = tracing_subscriber::EnvFilter::new(&arguments.log);
    endpoint::log::to_stderr(filter);
    match run(&arguments, &choices) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", endpoint::errors::told(error.as_ref()));
            ExitCode::from(1)
        }
    }
}

fn run(arguments: &Arguments, choices: &Choices) -> anyhow::Result<()> {
    // Before any thread is spawned: they inherit it.
    let nice = priority::choose(arguments.nice);
    priority::set(nice).log(nice);
    endpoint::files::ensure()?;
    let calibration = Calibration::begin();
    let Choices { pairs, cores, .. } = choices;
    // First, so that a second dataplane is refused before it touches a port.
    let (_claim, listener) = Claim::new(&arguments.socket, "linkd-dataplane")?;
    check_memory(choices.memory)?;
    let min_data_room = pairs::ports(pairs).map(|p| p.spec.min_data_room()).max().unwrap_or(0);
    let numbers = choices.switch.as_ref().map(|it| switch::numbers(it, cores.len()));
    let has_hairpin = pairs.iter().any(|pair| pair.vlans().is_some());
    let tail = match numbers {
        Some(numbers) => Tail::Shim(numbers),
        // A single hairpin pair runs as one of several.
        None if pairs.len() > 1 || has_hairpin => Tail::Pair,
        None => Tail::None,
    };
    let needs = Needs {
        cores,
        max_frame: choices.max_frame,
        buffers: choices.buffers,
        min_data_room,
        shim: numbers.map_or(0, |_| SHIM),
        pairs: pairs.len(),
        vlan: if has_hairpin { VLAN_TAG } else { 0 },
    };
    occupied::check(pairs)?;
    let memory = ports::memory(choices.huge, needs);
    if let dpdk::Memory::NoHuge { megabytes } = memory {
        check_memory(choices.memory.saturating_add(u64::from(megabytes) << 20))
            .context("--memory and the buffers together")?;
    }
    let hugepages = !matches!(memory, dpdk::Memory::NoHuge { .. });
    let eal = ports::start_eal(memory, pairs)?;
    let opened = ports::open(&eal, pairs, needs)?;
    let _steered = steer(pairs, cores);
    let clock = calibration.finish(CALIBRATE);
    tracing::info!(error_ppm = clock.error_ppm(), counter = clock.uses_counter(), "clock measured");
    // Each worker's part.
    let memory = choices.memory / cores.len() as u64;
    let limits = Limits {
        memory: usize::try_from(memory).context("--memory is larger than an address")?,
        clients: choices.max_clients,
        idle: choices.client_idle,
        frame: opened.max_frame,
        copy_break: choices.copy_break,
        buffers: opened.kept,
        offloaded: numbers.map_or(0, Numbers::clients),
    };
    let plan = pb::Plan {
        profile: profile::Catalog::built_in().get("transparent").map(|p| p.as_proto().clone()),
        seed: arguments.seed,
        ..pb::Plan::default()
    };
    let compiled = compile(&plan).context("the built-in profile `transparent`")?;
    let instance = getrandom::u64().context("cannot draw a random number")?.max(1);
    let mut fixed = fixed(choices, memory, &eal, &opened, (instance, tail), limits);
    compiled.check(fixed.room)?;
    let idle = match choices.idle {
        arguments::Idle::Busy => Idle::Busy,
        arguments::Idle::Adaptive => Idle::Adaptive,
    };
    let Opened { ports, shares, lends, max_frame, kept: _, offloads: _offloads } = opened;
    // Kept until all threads have ended: one worker's buffers may be with another.
    let pools: Vec<_> = shares.iter().map(|share| share.pool.clone()).collect();
    let settings = Settings { idle, cores: cores.clone(), limits, tail };
    let lending = Lending { lends, longest: max_frame };
    let (running, counters) = polling::spawn(&eal, shares, lending, clock, &compiled, &settings)?;
    let ports: Arc<[_]> = ports.into();
    ports::report_early(&ports);
    let counted = Box::new(Counted::new(ports.clone(), pairs, counters));
    let watch = counted.watch();
    fixed.host = Host::new(running.seats, idle == Idle::Busy, hugepages);
    let dataplane = Dataplane::new(running.handles, clock, counted, fixed, plan);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let serving = serve(dataplane, listener, running.ended, clock, (watch, ports));
    let Served { mut accounts, fault } = runtime.block_on(serving)?;
    drop(runtime);
    for thread in running.threads {
        thread.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?;
    }
    drop(pools);
    accounts.conservation = Some(accounts.sums());
    match arguments.output {
        Output::Json => println!("{}", serde_json::to_string(&proto::json(&accounts))?),
        Output::Text => println!("{}", view::table(&accounts)),
    }
    fault.map_or(Ok(()), Err)
}

/// The result of serving.
struct Served {
    accounts: proto::linkemu::v1::Stats,
    /// Why it ended, if it was not asked to.
    fault: Option<anyhow::Error>,
}

/// Steers the kernel's receive work to one core, if possible not to a worker's.
fn steer(pairs: &[PortPair], workers: &[usize]) -> Steered {
    let (cores, mut steered) = (ports::cores(), Steered::default());
    let other = cores.iter().find(|c| !workers.contains(c));
    let Some(&core) = other.or(workers.first()) else { return steered };
    for iface in pairs::devices(pairs).filter_map(|p| p.spec.iface()) {
        match steered.steer(iface, core) {
            Ok(()) => tracing::info!(iface, core, "steered to one core"),
            Err(error) => tracing::warn!(
                iface,
                %error,
                "not steered to one core: frames of one flow that are sent on several cores may \
                 arrive out of order; write a one-core mask to its queues/rx-*/rps_cpus"
            ),
        }
    }
    steered
}

/// Serves until a signal comes or a worker ends; then the final accounts.
async fn serve(
    dataplane: Dataplane,
    listener: std::os::unix::net::UnixListener,
    mut ended: tokio::sync::mpsc::Receiver<usize>,
    clock: TscClock,
    (watch, ports): (Watch, Arc<[dpdk::StartedPort]>),
) -> anyhow::Result<Served> {
    let links = Links::new(dataplane.clone());
    let incoming = UnixListenerStream::new(UnixListener::from_std(listener)?);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let server = tonic::transport::Server::builder()
        .add_service(
            DataplaneServer::new(Service::new(links.clone()))
                .max_decoding_message_size(REQUEST_BYTES),
        )
        .serve_with_incoming(incoming);
    tracing::info!("ready");
    supervisor::ready(&pulse::words(dataplane.fixed()));
    let mut fault = None;
    tokio::select! {
        port = watch.keep(&ports, GONE) => {
            fault = Some(anyhow::anyhow!(
                "port `{port}`: its interface has been removed: bring it back, and start the \
                 dataplane anew"
            ));
        }
        served = server => served.context("the service ended")?,
        () = timekeeping::keep(clock) => {}
        () = pulse::keep(&dataplane) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        Some(worker) = ended.recv() => {
            anyhow::bail!("worker {worker} ended by itself: please report this")
        }
    }
    tracing::info!("stopping");
    supervisor::stopping();
    for link in links.all().into_iter().skip(1) {
        let (name, held) = (owner::Link::name(&link.link).to_owned(), link.link.held(None).await);
        tracing::info!(name, held = held.unwrap_or_default(), "link ends");
    }
    Ok(Served { accounts: dataplane.stop().await?, fault })
}

/// `memory` is what each worker has: all that comes may be for one of them.
fn fixed(
    choices: &Choices,
    memory: u64,
    eal: &dpdk::Eal,
    opened: &Opened,
    (instance, tail): (u64, Tail),
    limits: Limits,
) -> Fixed {
    let speed = |p: &dpdk::StartedPort| {
        let mbps = p.link().ok().and_then(|l| l.mbps).or(p.info().link_mbps);
        mbps.map_or(UNKNOWN_SPEED_BPS, |m| u64::from(m) * 1_000_000)
    };
    let places = ports::places(&choices.pairs).flatten();
    let ports: Vec<pb::Port> = pairs::ports(&choices.pairs)
        .zip(places)
        .filter_map(|(spec, place)| Some((spec, opened.ports.get(place)?)))
        .map(|(named, port)| pb::Port {
            name: named.name.clone(),
            device: named.spec.to_string(),
            driver: port.info().driver.clone(),
            speed_bps: speed(port),
        })
        .collect();
    // All frames of all pairs may be for one link.
    let fastest = |pair: &[pb::Port]| pair.iter().map(|p| p.speed_bps).max().unwrap_or(0);
    Fixed {
        // Known when the workers run.
        host: Host::default(),
        limits,
        pairs: pairs::names(&choices.pairs),
        room: Room {
            clients: choices.max_clients,
            port_bps: ports.chunks(2).map(fastest).sum(),
            frame: opened.max_frame,
            capacity: memory,
            workers: u32::try_from(choices.cores.len()).unwrap_or(u32::MAX),
            tag: tail.bytes(),
            unanswered: matches!(tail, Tail::Shim(_)),
        },
        description: pb::DescribeResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dpdk: eal.version(),
            ports,
            max_clients: choices.max_clients,
            memory_bytes: choices.memory,
            max_frame_bytes: opened.max_frame,
            room: None,
            instance,
            switch: choices.switch.as_ref().map(switch::describe),
        },
    }
}
