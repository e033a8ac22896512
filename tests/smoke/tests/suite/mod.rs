// SPDX-License-Identifier: Apache-2.0
//! The tests, one file per subject, and their common parts.

pub mod api;
pub mod baseline;
pub mod capture;
pub mod certificate;
pub mod chain;
pub mod change;
pub mod clients;
pub mod cubic;
pub mod download;
pub mod fate;
pub mod handover;
pub mod hostile;
pub mod hosts;
pub mod idle;
pub mod links;
pub mod metrics;
pub mod model;
pub mod mtu;
pub mod multipath;
pub mod overload;
pub mod pages;
pub mod pairs;
pub mod ports;
pub mod refusal;
pub mod rest;
pub mod restart;
pub mod rules;
pub mod run;
pub mod scenario;
pub mod stages;
pub mod throughput;
pub mod tutorial;
pub mod void;
pub mod workers;

use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use smoke::cpus::Cpus;
use smoke::linkctl::{DONE, Linkctl, REFUSED};
use smoke::namespace::Namespace;
use smoke::netstat::udp_without_room;
use smoke::stats::{Sample, Stats, drops};
use smoke::suite::reported;
use smoke::testbed::{Middle, Options, SERVER, Testbed};
use smoke::udp::{Flow, Received, Receiver, Sender, Sent};
use smoke::wait;

pub use smoke::suite::Form;

/// Seed of every test. Its first forward outage comes after the end of all tests, so that only the
/// queue drops packets.
pub const SEED: u64 = 20;

/// The port that UDP receivers bind to.
pub const UDP_PORT: u16 = 9000;

/// linkctl refuses a command with these words.
pub fn refused(linkctl: &Linkctl, arguments: &[&str], words: &str) -> anyhow::Result<()> {
    let outcome = linkctl.run(arguments)?;
    ensure!(outcome.code() == REFUSED, "{outcome:?}");
    ensure!(outcome.stderr.contains(words), "{words:?} is not in {}", outcome.stderr);
    Ok(())
}

/// Writes a file for linkctl and returns its path.
pub fn written(bed: &Testbed, name: &str, text: &str) -> anyhow::Result<String> {
    Ok(bed.directory().write(name, text)?.display().to_string())
}

/// Runs a test on a bed, and checks the dataplane's final counters. A failure includes the output
/// of the programs.
pub fn on_bed(
    cpus: &Cpus,
    options: Options,
    test: impl FnOnce(&mut Testbed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let middle = options.middle;
    let mut bed = Testbed::new(options, cpus)?;
    let closed = test(&mut bed).and_then(|()| match middle {
        Middle::Emulator => close(&mut bed),
        Middle::Bridge | Middle::Nothing => Ok(()),
    });
    closed.map_err(|error| reported(&error, bed.report()))
}

/// The dataplane exits with success, and its final counters satisfy conservation.
fn close(bed: &mut Testbed) -> anyhow::Result<()> {
    let (status, accounts) = bed.stop_dataplane()?;
    ensure!(status.success(), "the dataplane ended with {status} at SIGTERM");
    let stats = Stats::read(&accounts).context("the dataplane's final accounts")?;
    stats.conserved().context("the dataplane's final accounts")
}

/// A bed with the emulator and a number of clients.
pub fn emulator(clients: u8) -> Options {
    Options { clients, seed: SEED, ..Options::default() }
}

pub fn udp_at(bed: &Testbed, client: usize) -> SocketAddrV4 {
    SocketAddrV4::new(bed.client_address(client), UDP_PORT)
}

/// Full frames to each of the first `clients`, at the same rate.
pub fn flows_to(bed: &Testbed, clients: usize, rate_bps: u64, seconds: u64) -> Vec<Flow> {
    (0..clients).map(|client| Flow::full(udp_at(bed, client), rate_bps, seconds)).collect()
}

/// A receiver at the clients' host for each flow.
pub fn receivers(bed: &Testbed, flows: &[Flow]) -> anyhow::Result<Vec<Receiver>> {
    flows.iter().map(|flow| Ok(Receiver::start(bed.client(), flow.to)?)).collect()
}

/// Flows from the server after the emulator has sent all of them: one entry for each flow.
pub struct Delivery {
    pub sent: Vec<Sent>,
    pub received: Vec<Received>,
    pub stats: Stats,
}

/// Sends flows from the server to the clients.
pub fn deliver(bed: &Testbed, flows: Vec<Flow>) -> anyhow::Result<Delivery> {
    let receivers = receivers(bed, &flows)?;
    let sent = Sender::start(bed.server(), SERVER, flows).finish()?;
    let stats = drained(&bed.linkctl()?)?;
    let received = receivers.into_iter().map(Receiver::finish).collect::<Result<_, _>>()?;
    Ok(Delivery { sent, received, stats })
}

/// The receiver got each packet of a flow, in order.
pub fn complete(sent: &Sent, received: &Received) -> anyhow::Result<()> {
    let arrived = received.arrivals.len() as u64;
    ensure!(sent.refused == 0, "{sent:?}");
    ensure!(arrived == sent.packets, "{sent:?}, {arrived} arrived");
    ensure!(received.out_of_order() == 0, "{} out of order", received.out_of_order());
    Ok(())
}

/// TOML of a profile with a delay of 10 ms in each direction and no limit in the return direction.
/// `forward` has the other parameters of the forward direction.
pub fn link(name: &str, forward: &str) -> String {
    format!(
        "name = \"{name}\"\n[forward]\n{forward}\ndelay.base = \"10 ms\"\n[return]\n\
         rate = \"unlimited\"\nqueue.limit = \"1 MB\"\ndelay.base = \"10 ms\"\n"
    )
}

/// Packets are conserved in every sample.
pub fn always_conserved(samples: &[Sample]) -> anyhow::Result<()> {
    Ok(samples.iter().try_for_each(|s| s.stats.conserved())?)
}

/// Packets were dropped for these reasons only, and none by the emulator itself.
pub fn dropped_only_for(stats: &Stats, allowed: &[&str]) -> anyhow::Result<()> {
    for (client, direction, pipe) in stats.pipes() {
        for (reason, count) in drops(pipe).filter(|(reason, _)| *reason != "overload") {
            ensure!(
                allowed.contains(&reason),
                "{client} {direction} dropped {count:?} for `{reason}`"
            );
        }
    }
    sound(stats)
}

/// The emulator itself lost no packet.
pub fn sound(stats: &Stats) -> anyhow::Result<()> {
    ensure!(stats.emulator_drops == 0, "{}", stats.verdict());
    Ok(())
}

/// The sockets of a host had room for all received UDP.
pub fn had_room(host: &Namespace) -> anyhow::Result<()> {
    let lost = udp_without_room(host)?;
    ensure!(lost == 0, "the receiving host dropped {lost} datagrams");
    Ok(())
}

/// A link with more offered load than its rate, in a window in which the queue is not empty.
#[derive(Clone, Copy, Debug)]
pub struct Overload {
    /// Rate of the link.
    pub rate_bps: f64,
    /// Offered load, from the start on.
    pub offered_bps: f64,
    /// Bounds of the window, in seconds after the first arrival.
    pub window: [f64; 2],
}

impl Overload {
    /// The received rate in the window is the link's rate, within 0.2 % plus the emulator's
    /// reported lateness. If packets at the end of a window T are late by up to L, and those at the
    /// start are on time, the slope changes by up to 3 L / 2 T.
    pub fn delivers(
        self,
        what: &str,
        sent: &Sent,
        received: &Received,
        stats: &Stats,
    ) -> anyhow::Result<()> {
        let Self { rate_bps, offered_bps, window: [from, to] } = self;
        // Until then the link has served no more than its rate, so late packets of the sender were
        // not missing.
        let borne = |at: Duration| at.mul_f64(1.0 - rate_bps / offered_bps);
        let in_window = |at: Duration| at.as_secs_f64() >= from;
        let idle = sent.turns.iter().find(|[at, late]| in_window(*at) && *late > borne(*at));
        if let Some([at, late]) = idle {
            bail!("after {at:?} the sending host was late by {late:?}");
        }
        let late = Duration::from_nanos(stats.lateness().max_ns).as_secs_f64();
        let part = 0.002 + 1.5 * late / (to - from);
        let [low, high] = [1.0 - part, 1.0 + part].map(|part| part * rate_bps / 1e6);
        within(what, received.rate_bps(from, to) / 1e6, low, high)
    }
}

/// Longest stall of the worker since the last mark.
pub fn punctual(stats: &Stats, limit: Duration) -> anyhow::Result<()> {
    let stall = Duration::from_nanos(stats.stall_max_ns);
    ensure!(stall <= limit, "the worker stalled for {stall:?}, more than {limit:?}");
    Ok(())
}

/// Waits until linkd accepts a change of the rate.
pub fn accepts_change(linkctl: &Linkctl, rate: &str) -> anyhow::Result<()> {
    Ok(wait::until("linkd accepts a change", SOON, || {
        Ok((linkctl.run(&["set", "rate", rate])?.code() == DONE).then_some(()))
    })?)
}

/// Longest time from a fault to its report.
pub const SOON: Duration = Duration::from_secs(10);

/// Waits for `times` events of a kind, and for a message that contains `words`.
pub fn reports(linkctl: &Linkctl, kind: &str, times: usize, words: &str) -> anyhow::Result<()> {
    let what = format!("{times} events {kind}, with {words:?}");
    Ok(wait::until(&what, SOON, || {
        let events = format!("{:?}", linkctl.run(&["events"])?);
        let came = events.matches(kind).count() >= times;
        Ok((came && events.contains(words)).then_some(()))
    })?)
}

/// Waits until the emulator holds no packet, and returns its statistics, which satisfy
/// conservation.
pub fn emptied(linkctl: &Linkctl) -> anyhow::Result<Stats> {
    let stats = wait::until("the emulator holds nothing", Duration::from_secs(30), || {
        let stats = linkctl.stats()?;
        Ok((stats.conservation().held == 0).then_some(stats))
    })?;
    stats.conserved()?;
    Ok(stats)
}

/// The same for an emulator that lost no packet.
pub fn drained(linkctl: &Linkctl) -> anyhow::Result<Stats> {
    let stats = emptied(linkctl)?;
    println!("    {}", stats.verdict());
    sound(&stats)?;
    Ok(stats)
}

/// Fails if a value is out of bounds.
pub fn within(what: &str, value: f64, low: f64, high: f64) -> anyhow::Result<()> {
    println!("    {what}: {value:.3} (limits {low:.3} and {high:.3})");
    ensure!((low..=high).contains(&value), "{what} is {value}, not within {low} and {high}");
    Ok(())
}
