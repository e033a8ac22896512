// SPDX-License-Identifier: Apache-2.0
//! A transfer by Multipath TCP over two links, of two addresses of a host.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::ensure;
use smoke::cpus::Cpus;
use smoke::error::{Result, Trying};
use smoke::linkctl::Linkctl;
use smoke::namespace::joined;
use smoke::suite::Form;
use smoke::testbed::{CLIENT_INTERFACE, SERVER, Testbed};
use smoke::wait;
use socket2::{Domain, Protocol, Socket, Type};

use super::{SEED, drained, dropped_only_for, emulator, link, on_bed, within, written};

const LTE: &str = "lte";
const LTE_LINK: &str = "rate_trace = { file = \"lte.mahimahi\" }\nqueue.limit = \"250 kB\"";
const PORT: u16 = 9_101;
/// Part of the sum of both links' throughputs. MPTCP's scheduler and its one receive buffer cost
/// some of it.
const LEAST: f64 = 0.8;
const MOST: f64 = 1.15;
/// For the surviving link to carry the transfer on: the kernel's retransmission timers of the other one, which
/// double.
const RECOVERY: Duration = Duration::from_secs(60);
const BUFFERS: &str = "4096 131072 100000000";

/// Link of the first address, how long throughput is measured, and how long it grows before.
fn measured(form: Form) -> (&'static str, Duration, Duration) {
    match form {
        Form::Short => ("geo", Duration::from_secs(4), Duration::from_secs(4)),
        Form::Long => ("viasat2", Duration::from_secs(20), Duration::from_secs(20)),
    }
}

pub fn mptcp_adds_up_links_and_survives_one(cpus: &Cpus, form: Form) -> anyhow::Result<()> {
    on_bed(cpus, emulator(2), |bed| {
        let (profile, measure, grow) = measured(form);
        for host in [bed.server(), bed.client()] {
            for buffers in ["rmem", "wmem"] {
                host.sysctl(&format!("net/ipv4/tcp_{buffers}"), BUFFERS)?;
            }
            host.sysctl("net/mptcp/enabled", "1")?;
            host.run(&["ip", "mptcp", "limits", "set", "subflows", "2"])?;
        }
        let linkctl = bed.linkctl()?;
        let second = format!("{}/32", bed.client_address(1));
        let add = ["link", "add", LTE, "--memory", "64MiB", "--prefix", &second];
        linkctl.run(&add)?.success()?;
        let lte = linkctl.with("--link", LTE);
        written(bed, "lte.mahimahi", &trace())?;
        lte.set_profile(&written(bed, "lte.toml", &link("phone", LTE_LINK))?, SEED)?;
        match form {
            Form::Long => linkctl.set_profile(profile, SEED)?,
            Form::Short => {
                let geo = "rate = \"20 Mbit/s\"\nqueue.limit = \"500 kB\"";
                linkctl.set_profile(&written(bed, "geo.toml", &link(profile, geo))?, SEED)?
            }
        };

        // One path each, at the same time.
        let single: Vec<_> =
            (0..2).map(|client| Transfer::start(bed, client, Protocol::TCP)).collect();
        std::thread::sleep(grow);
        let apart: Vec<f64> = rates(&single, measure);
        single.into_iter().try_for_each(Transfer::stop)?;
        let sum: f64 = apart.iter().sum();
        drained(&linkctl)?;
        drained(&lte)?;

        let address = bed.client_address(1).to_string();
        let endpoint = ["ip", "mptcp", "endpoint", "add", &address, "dev", CLIENT_INTERFACE];
        bed.client().run(&[&endpoint[..], &["subflow"]].concat())?;
        let multi = Transfer::start(bed, 0, Protocol::MPTCP);
        std::thread::sleep(grow);
        let both = rates(std::slice::from_ref(&multi), measure)[0];
        println!("    apart {apart:.1?} Mbit/s, by MPTCP {both:.1} Mbit/s");
        within("of the sum", both / sum, LEAST, MOST)?;

        linkctl.change(&["--link", LTE, "set", "rate", "down"])?;
        let multi = [multi];
        let recovered = Instant::now() + RECOVERY;
        while rates(&multi, Duration::from_secs(1))[0] < 0.6 * apart[0]
            && Instant::now() < recovered
        {}
        let survives = rates(&multi, measure)[0];
        println!("    {survives:.1} Mbit/s with one link down");
        ensure!(survives > 0.6 * apart[0], "{survives:.1} of {:.1} Mbit/s", apart[0]);
        lte.set_profile("transparent", SEED)?;
        multi.into_iter().try_for_each(Transfer::stop)?;
        lossless(&linkctl, form)?;
        lossless(&lte, form)
    })
}

/// The links lost nothing but what their profiles drop.
fn lossless(linkctl: &Linkctl, form: Form) -> anyhow::Result<()> {
    let stats = drained(linkctl)?;
    match form {
        Form::Short => dropped_only_for(&stats, &["limit"]),
        Form::Long => dropped_only_for(&stats, &["aqm", "limit", "outage", "loss"]),
    }
}

/// Opportunities of 1504 bytes over 4 s, of 4 to 20 Mbit/s, as of a phone that moves.
fn trace() -> String {
    let mut trace = String::new();
    let mut sent = 0.0_f64;
    for ms in 1..=4_000_u32 {
        let phase = f64::from(ms) / 4_000.0 * std::f64::consts::TAU;
        let mbps = 12.0 + 8.0 * phase.sin();
        let before = sent.floor();
        sent += mbps * 1_000.0 / (1_504.0 * 8.0);
        for _ in 0..(sent.floor() - before) as u32 {
            let _ = writeln!(trace, "{ms}");
        }
    }
    trace
}

/// Mbit/s that each transfer received during the next `during`.
fn rates(transfers: &[Transfer], during: Duration) -> Vec<f64> {
    let received = || transfers.iter().map(|transfer| transfer.received.load(Ordering::Relaxed));
    let (began, before): (_, Vec<u64>) = (Instant::now(), received().collect());
    wait::until_instant(began + during);
    let seconds = began.elapsed().as_secs_f64();
    received().zip(before).map(|(now, was)| (now - was) as f64 * 8e-6 / seconds).collect()
}

/// A download without end.
struct Transfer {
    received: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
    threads: [JoinHandle<Result<()>>; 2],
}

impl Transfer {
    fn start(bed: &Testbed, client: usize, protocol: Protocol) -> Self {
        let (received, stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let port = PORT + client as u16 + if protocol == Protocol::MPTCP { 10 } else { 0 };
        let server = SocketAddr::from(SocketAddrV4::new(SERVER, port));
        let local = SocketAddr::from(SocketAddrV4::new(bed.client_address(client), 0));
        let (ready, listening) = std::sync::mpsc::channel();
        let over = stopped.clone();
        let sender = bed.server().spawn(move || {
            let socket = socket(protocol, server)?;
            socket.listen(1).trying(|| "listen".to_owned())?;
            let _ = ready.send(());
            let (mut connection, _) = socket.accept().trying(|| "accept a download".to_owned())?;
            let block = vec![0_u8; 64 << 10];
            while !over.load(Ordering::Relaxed) && connection.write(&block).is_ok() {}
            Ok(())
        });
        let (count, over) = (received.clone(), stopped.clone());
        let receiver = bed.client().spawn(move || {
            let _ = listening.recv();
            let mut socket = socket(protocol, local)?;
            socket.connect(&server.into()).trying(|| format!("connect to {server}"))?;
            let mut block = vec![0_u8; 64 << 10];
            while !over.load(Ordering::Relaxed) {
                match socket.read(&mut block).trying(|| "read a download".to_owned())? {
                    0 => break,
                    n => count.fetch_add(n as u64, Ordering::Relaxed),
                };
            }
            Ok(())
        });
        Self { received, stopped, threads: [sender, receiver] }
    }

    fn stop(self) -> anyhow::Result<()> {
        self.stopped.store(true, Ordering::Relaxed);
        self.threads.into_iter().try_for_each(|thread| Ok(joined(thread)?))
    }
}

fn socket(protocol: Protocol, local: SocketAddr) -> Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol))
        .trying(|| "make a socket".to_owned())?;
    socket.set_reuse_address(true).trying(|| "reuse an address".to_owned())?;
    socket.bind(&local.into()).trying(|| format!("bind to {local}"))?;
    Ok(socket)
}
