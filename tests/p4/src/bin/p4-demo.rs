// SPDX-License-Identifier: Apache-2.0
//! Two boxes behind one P4 switch, as one emulator: a change in mid-run, clients that move, and the
//! death of a box, between two real hosts.
//!
//! Exits with 1 if the accounts do not add up, a ping is lost where none may be, or the certificate of
//! the run with the dead box passes.

use std::net::Ipv4Addr;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{anyhow, ensure};
use clap::Parser;
use p4::group::{GroupBed, name};
use p4::target::Target;
use smoke::binaries::{Binaries, Lack, check_machine};
use smoke::cpus::Cpus;
use smoke::estate;
use smoke::ping::{Ping, Pings};
use smoke::process::{Outcome, run};
use smoke::report::progress::Step;
use smoke::testbed::{Options, SERVER};

/// Hosts on the client side.
const CLIENTS: u8 = 4;
const PINGS: u32 = 60;
const EVERY: Duration = Duration::from_millis(50);
const PROFILE: &str = "geo-600";
/// Of a command of linkctl: a move waits for queues.
const LIMIT: Duration = Duration::from_secs(60);

/// Shows two boxes behind a P4 switch on this machine: about a minute, as root.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Seed of the link's random processes
    #[arg(long, value_name = "N", default_value_t = 20)]
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let watched = estate::watch_signals().map_err(anyhow::Error::from);
    match watched.and_then(|()| demonstrate_all(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn demonstrate_all(arguments: &Arguments) -> anyhow::Result<()> {
    let found = check_machine().and(Binaries::find().map(drop)).and(Target::find().map(drop));
    found.map_err(|lack| match lack {
        Lack::Part(reason) | Lack::Permission(reason) => anyhow!(reason),
    })?;
    let cpus = Cpus::available();
    cpus.keep_to_hosts();
    let step =
        Step::begin("a switch, two boxes, linkd-group, linkd, hosts", Duration::from_secs(8));
    let options = Options { clients: CLIENTS, seed: arguments.seed, ..Options::default() };
    let mut bed = GroupBed::with(&cpus, options)?;
    step.end("they run, in network namespaces of their own");
    demonstrate(&mut bed, arguments.seed).map_err(|error| anyhow!("{error:#}\n{}", bed.report()))
}

/// Runs a command of linkctl, and shows both as people see it.
fn shown(bed: &GroupBed, arguments: &[&str]) -> anyhow::Result<Outcome> {
    let mut command = Command::new(&bed.hosts.binaries()?.linkctl);
    command.arg("--socket").arg(bed.hosts.linkd_socket()).args(arguments);
    let outcome = run(command, LIMIT)?;
    println!("\n$ linkctl {}\n{}", arguments.join(" "), outcome.stdout.trim_end());
    Ok(outcome)
}

fn told(bed: &GroupBed, arguments: &[&str]) -> anyhow::Result<()> {
    shown(bed, arguments)?.success()?;
    Ok(())
}

/// Pings the server from each address of the client side.
fn pinged(bed: &GroupBed) -> anyhow::Result<Vec<(Ipv4Addr, Pings)>> {
    let hosts = &bed.hosts;
    let start = |client| {
        let source = hosts.client_address(client);
        Ok((source, Ping::start(hosts.client(), source, SERVER, PINGS, EVERY)?))
    };
    let running = (0..usize::from(CLIENTS)).map(start).collect::<anyhow::Result<Vec<_>>>()?;
    running.into_iter().map(|(source, ping)| Ok((source, ping.finish()?))).collect()
}

fn show(pings: &[(Ipv4Addr, Pings)]) -> usize {
    for (source, pings) in pings {
        println!(
            "  {source}: median {:.1} ms, {} of {PINGS} lost",
            pings.rtt_ms(0.5),
            pings.lost()
        );
    }
    pings.iter().map(|(_, pings)| pings.lost()).sum()
}

fn demonstrate(bed: &mut GroupBed, seed: u64) -> anyhow::Result<()> {
    let linkctl = bed.linkctl()?;
    let clients: String = (0..usize::from(CLIENTS))
        .map(|n| {
            let host = bed.hosts.client_address(n);
            format!("[[client]]\nname = \"ship-{n}\"\nprefix = [\"{host}/32\"]\n")
        })
        .collect();
    let file = bed.hosts.directory().write("clients.toml", &clients)?.display().to_string();
    linkctl.set_profile(PROFILE, seed)?;
    println!("\n$ linkctl set profile {PROFILE} --seed {seed}");
    told(bed, &["clients", "set", &file])?;
    told(bed, &["group", "show"])?;
    println!("\npings of {CLIENTS} clients, two of each box:");
    // The first one resolves the MACs, in the bypass.
    pinged(bed)?;
    linkctl.run(&["stats", "--mark"])?.success()?;
    let lost = show(&pinged(bed)?);
    ensure!(lost == 0, "{lost} pings were lost");

    println!("\na change in mid-run takes effect at one instant on both boxes:");
    told(bed, &["set", "delay", "400 ms", "--direction", "forward"])?;
    let lost = show(&pinged(bed)?);
    ensure!(lost == 0, "{lost} pings were lost");

    println!("\nclients move to the other box, while they ping, without loss:");
    let second = name(1);
    let lost = std::thread::scope(|scope| {
        let pings = scope.spawn(|| pinged(bed));
        std::thread::sleep(Duration::from_secs(1));
        told(bed, &["group", "move", "--from", &name(0), "--to", &second])?;
        let pings = pings.join().map_err(|_| anyhow!("a thread panicked"))??;
        anyhow::Ok(show(&pings))
    })?;
    ensure!(lost == 0, "{lost} pings were lost");
    // Its times depend on this machine, its counts do not.
    let stats = shown(bed, &["certificate"])?;
    for criterion in ["boxes", "switch_to_box", "switch_from_box", "switch_early", "conservation"] {
        let holds = |line: &str| line.contains(criterion) && line.trim_end().ends_with("yes");
        ensure!(stats.stdout.lines().any(holds), "{criterion} does not hold");
    }

    println!("\nthe box that has all clients is killed:");
    bed.kill_box(1)?;
    bed.until("it is down", |members| !members[1].up)?;
    told(bed, &["group", "show"])?;
    let failed = shown(bed, &["certificate"])?;
    ensure!(failed.code() == 4, "the certificate does not fail: exit {}", failed.code());
    println!("\nits clients move on request, and work again:");
    told(bed, &["group", "move", "--from", &second])?;
    let lost = show(&pinged(bed)?);
    ensure!(lost == 0, "{lost} pings were lost");
    Ok(())
}
