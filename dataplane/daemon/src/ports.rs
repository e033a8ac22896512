// SPDX-License-Identifier: Apache-2.0
//! The two ports: opened, started, and their counters.

use dpdk::{Eal, EalOptions, Error, Mempool, NamedPort, Port, PortConfig, PortInfo, StartedPort};
use emu::stats::Count;
use emu::store::MAX_FRAME;
use nix::sched::{CpuSet, sched_getaffinity};
use worker::dpdk_io::PortQueues;

use crate::accounts::PortAccount;
use crate::dataplane::Ports;

const RING: u16 = 1024;
/// What the drivers' four rings hold; and two stages and a burst, and as much again for
/// what the pool's per-thread cache keeps.
const BUFFERS: u32 = 4 * RING as u32 + 2048;

/// What [`open`] gives.
#[derive(Debug)]
pub struct Opened {
    /// `wan` and `client`, started.
    pub ports: [StartedPort; 2],
    /// Their queues, in the same order.
    pub queues: [PortQueues; 2],
    /// What frames are sent from.
    pub pool: Mempool,
    /// The longest frame that both ports can carry.
    pub max_frame: u32,
}

/// Memory in megabytes for the pool's buffers, the rings and EAL's own needs.
#[must_use]
pub fn eal_megabytes() -> u32 {
    // Data room, headroom, the mbuf itself, and the pool's padding.
    (BUFFERS * (data_room() + 512)).div_ceil(1 << 20) + 64
}

const fn data_room() -> u32 {
    // Headroom of 128 and the longest frame that the store takes; drivers that need
    // larger buffers say so.
    MAX_FRAME + 128
}

/// Opens both ports with one queue each way.
///
/// # Errors
/// What is missing: driver, interface, permission, memory.
pub fn open(eal: &Eal, specs: &[NamedPort; 2]) -> Result<Opened, Error> {
    dpdk::ensure_distinct(specs)?;
    for iface in specs.iter().filter_map(|p| p.spec.iface()) {
        turn_offloads_off(iface);
    }
    let attach = |p: &NamedPort| Port::attach(eal, &p.name, &p.spec);
    let attached = [attach(&specs[0])?, attach(&specs[1])?];
    let info: Vec<&PortInfo> = attached.iter().map(Port::info).collect();
    let room = info.iter().map(|i| i.min_data_room).max().unwrap_or(0).max(data_room());
    let room = u16::try_from(room).unwrap_or(u16::MAX);
    let max_frame = info.iter().map(|i| i.max_frame).min().unwrap_or(0).min(MAX_FRAME);
    let pool = Mempool::new(eal, "frames", BUFFERS, room)?;
    let [wan, client] = attached;
    let config =
        PortConfig { rx_descriptors: RING, tx_descriptors: RING, ..PortConfig::new(&pool) };
    let (wan, wan_queues) = start(wan, &config)?;
    let (client, client_queues) = start(client, &config)?;
    Ok(Opened { ports: [wan, client], queues: [wan_queues, client_queues], pool, max_frame })
}

fn start(port: Port, config: &PortConfig<'_>) -> Result<(StartedPort, PortQueues), Error> {
    let (port, mut rx, mut tx) = port.start(config)?;
    match (rx.pop(), tx.pop()) {
        (Some(rx), Some(tx)) => Ok((port, PortQueues { rx, tx })),
        _ => Err(Error::Queues {
            port: port.name().to_owned(),
            direction: "receive and transmit",
            asked: 1,
            limit: "the device gave none".to_owned(),
            remedy: "use another device",
        }),
    }
}

/// Superframes and unfinished checksums must not reach us, nor leave.
fn turn_offloads_off(iface: &str) {
    match dpdk::disable_offloads(iface) {
        Ok(off) if off.is_empty() => {}
        Ok(off) => {
            let off: Vec<String> = off.iter().map(ToString::to_string).collect();
            tracing::info!(iface, "turned off {}", off.join(", "));
        }
        Err(error) => tracing::warn!(iface, %error, "offloads may be on"),
    }
    match dpdk::offloads(iface) {
        Ok(on) if !on.is_empty() => {
            let on: Vec<String> = on.iter().map(ToString::to_string).collect();
            tracing::warn!(
                iface,
                "still on: {}; frames above the MTU or with open checksums may arrive: run \
                 `ethtool -K {iface} tx off gso off gro off`",
                on.join(", ")
            );
        }
        _ => {}
    }
}

/// EAL, with hugepages as asked.
///
/// # Errors
/// As [`Eal::init`].
pub fn start_eal(huge: crate::arguments::Huge, specs: &[NamedPort; 2]) -> Result<Eal, Error> {
    use crate::arguments::Huge;
    let megabytes = eal_megabytes();
    let memory = match huge {
        Huge::Auto => dpdk::Memory::available(megabytes),
        Huge::On => dpdk::Memory::InMemory { megabytes: Some(megabytes) },
        Huge::Off => dpdk::Memory::NoHuge { megabytes },
    };
    tracing::info!(?memory, "starting EAL");
    Eal::init(&EalOptions::new(memory).with_ports(specs.iter().map(|p| &p.spec)))
}

/// The cores that this process may run on.
#[must_use]
pub fn cores() -> Vec<usize> {
    let set = sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::count()).filter(|c| set.is_set(*c).unwrap_or(false)).collect()
}

/// The counters of started ports.
pub struct Counted(pub [StartedPort; 2]);

impl Ports for Counted {
    fn accounts(&self) -> [PortAccount; 2] {
        self.0.each_ref().map(|port| {
            let name = port.name().to_owned();
            match port.counters() {
                Ok(c) => PortAccount {
                    name,
                    received: Count { packets: c.rx_packets, bytes: c.rx_bytes },
                    sent: Count { packets: c.tx_packets, bytes: c.tx_bytes },
                    missed: c.rx_missed + c.rx_errors + c.rx_no_mbuf,
                    failed: c.tx_errors,
                },
                Err(error) => {
                    tracing::warn!(port = name, %error, "no counters");
                    PortAccount { name, ..PortAccount::default() }
                }
            }
        })
    }
}
