// SPDX-License-Identifier: Apache-2.0
//! A link MTU below that of the hosts: kernel TCP stalls if packets above it are dropped without a
//! message, and adapts its path MTU to the messages of the emulator.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::ensure;
use smoke::cpus::Cpus;
use smoke::error::{Result, Trying};
use smoke::namespace::{Namespace, joined};
use smoke::stats::{DropReason, Stats};
use smoke::testbed::{CLIENT_INTERFACE, SERVER, SERVER_INTERFACE, Testbed};
use smoke::wait;

use super::{SEED, drained, dropped_only_for, emulator, link, on_bed, written};

const BLACK_HOLE: &str = r#"
rate = "20 Mbit/s"
queue.limit = "1 MB"
mtu = { limit = "1280 B", exceeded = "drop" }
"#;
const WITH_MESSAGES: &str = r#"mtu = { limit = "1280 B", exceeded = "icmp" }"#;
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 10);
const PORT: u16 = 9001;
const BYTES: usize = 1_000_000;
/// Three retransmissions by timeout, which starts at 0.2 s and doubles.
const STALL: Duration = Duration::from_millis(1_500);
/// The next retransmissions after [`STALL`] come after 3 and 6 s.
const LIMIT: Duration = Duration::from_secs(20);

pub fn tcp_stalls_without_messages_and_adapts_to_them(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        bed.server().sysctl("net/ipv4/tcp_mtu_probing", "0")?;
        let linkctl = bed.linkctl()?;
        let narrow = written(bed, "narrow.toml", &link("narrow", BLACK_HOLE))?;
        linkctl.set_profile(&narrow, SEED)?;
        let stalled = Transfer::start(bed, SERVER.into())?;
        wait::until("packets above the MTU are dropped", LIMIT, || {
            Ok((above_mtu(&linkctl.stats()?) > 0).then_some(()))
        })?;
        wait::until_instant(Instant::now() + STALL);
        let (received, messages) = (stalled.received(), messages(&linkctl.stats()?));
        ensure!(received == 0, "{received} bytes passed a black hole");
        ensure!(messages == 0, "{messages} messages of a black hole");

        linkctl.change(&["set", "part", WITH_MESSAGES, "--direction", "forward"])?;
        stalled.finish()?;
        has_path_mtu(bed.server(), bed.client_address(0).into())?;
        let before = drained(&linkctl)?;
        ensure!(self::messages(&before) > 0, "no message to the IPv4 sender");

        for (host, interface, address) in [
            (bed.server(), SERVER_INTERFACE, SERVER_V6),
            (bed.client(), CLIENT_INTERFACE, CLIENT_V6),
        ] {
            host.sysctl(&format!("net/ipv6/conf/{interface}/disable_ipv6"), "0")?;
            let address = format!("{address}/64");
            host.run(&["ip", "address", "add", &address, "dev", interface, "nodad"])?;
        }
        Transfer::start(bed, SERVER_V6.into())?.finish()?;
        has_path_mtu(bed.server(), CLIENT_V6.into())?;
        let after = drained(&linkctl)?;
        ensure!(self::messages(&after) > self::messages(&before), "no message to the IPv6 sender");
        println!(
            "    {} packets above the MTU, {} messages",
            above_mtu(&after),
            self::messages(&after)
        );
        dropped_only_for(&after, &["mtu"])
    })
}

fn above_mtu(stats: &Stats) -> u64 {
    stats.packets(|pipe| pipe.dropped_for(DropReason::Mtu))
}

fn messages(stats: &Stats) -> u64 {
    stats.packets(|pipe| pipe.generated())
}

/// The kernel has learned the MTU of the path to an address.
fn has_path_mtu(host: &Namespace, to: IpAddr) -> anyhow::Result<()> {
    let route = host.run(&["ip", "route", "get", &to.to_string()])?;
    ensure!(route.contains("mtu 1280"), "route to {to}: {route}");
    println!("    {}", route.split_whitespace().collect::<Vec<_>>().join(" "));
    Ok(())
}

/// A TCP transfer from the server to a client.
struct Transfer {
    sender: JoinHandle<Result<()>>,
    receiver: JoinHandle<Result<()>>,
    received: Arc<AtomicU64>,
}

impl Transfer {
    fn start(bed: &Testbed, server: IpAddr) -> anyhow::Result<Self> {
        let address = SocketAddr::new(server, PORT);
        let listener = bed
            .server()
            .enter(move || TcpListener::bind(address).trying(|| format!("listen at {address}")))?;
        let sender = bed.server().spawn(move || {
            let send = || -> std::io::Result<()> {
                let (mut stream, _) = listener.accept()?;
                stream.set_write_timeout(Some(LIMIT))?;
                // All at once, so that the first segment is a full one.
                stream.write_all(&vec![0xa5; BYTES])
            };
            send().trying(|| "send".to_owned())
        });
        let received = Arc::<AtomicU64>::default();
        let count = Arc::clone(&received);
        let receiver = bed.client().spawn(move || {
            let receive = || -> std::io::Result<()> {
                let mut stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(LIMIT))?;
                let mut buffer = [0; 16_384];
                loop {
                    match stream.read(&mut buffer)? {
                        0 => return Ok(()),
                        n => count.fetch_add(n as u64, Ordering::Relaxed),
                    };
                }
            };
            receive().trying(|| "receive".to_owned())
        });
        Ok(Self { sender, receiver, received })
    }

    fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Waits until all of it is received.
    fn finish(self) -> anyhow::Result<()> {
        joined(self.sender)?;
        joined(self.receiver)?;
        let received = self.received.load(Ordering::Relaxed);
        ensure!(received == BYTES as u64, "{received} bytes of {BYTES} received");
        Ok(())
    }
}
