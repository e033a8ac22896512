// SPDX-License-Identifier: Apache-2.0
//! The ports of all pairs: opened, started, and their counters.

use std::iter;
use std::sync::Arc;

use dpdk::{
    Eal, EalOptions, Error, Memory, Mempool, NamedPort, OffloadsOff, Port, PortConfig, PortInfo,
    RxQueue, StartedPort,
};
use emu::stats::Count;
use emu::store::MAX_FRAME;
use emu::units::Direction;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use proto::linkemu::v1::PortState;
use thiserror::Error;
use worker::distribute::{DEPTH, Overflow};
use worker::dpdk_io::PortQueues;
use worker::hairpin::Sides;

use crate::accounts::PortAccount;
use crate::arguments::{Huge, MIN_MAX_FRAME};
use crate::dataplane::Ports;
use crate::pairs::{self, PortPair};
use crate::watch::{Seen, Watch};

const RING: u16 = 1024;
/// Two stages and a burst, and twice that for the pool's per-thread cache.
const SPARE: u32 = 2048;
/// Size of a buffer besides its data: headroom, the mbuf itself, and the pool's padding.
const OVERHEAD: u32 = 512;
/// The usual MTU of hosts.
const HOSTS_MTU: u16 = 1500;
/// Bytes of an Ethernet header,
const ETHERNET: u32 = 14;
const TAGGED_FRAME: u32 = 18;
/// and with two VLAN tags and the FCS, as drivers count.
const TAGGED_ETHERNET: u32 = 26;

/// Why the ports are not open.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{0}")]
    Dpdk(#[from] Error),
    /// The shim leaves too little of a frame.
    #[error(
        "the ports carry frames of {carried} bytes, of which a switch's shim takes {shim}: at least \
         {MIN_MAX_FRAME} have to be left; raise the MTU of both ports to that of the hosts and \
         {shim} more"
    )]
    Short {
        /// The longest that all ports carry.
        carried: u32,
        /// Bytes of the shim.
        shim: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Needs<'a> {
    pub cores: &'a [usize],
    /// The longest frame, if it is not what the ports carry.
    pub max_frame: Option<u32>,
    /// Bytes of buffers for frames that are not copied, of all workers.
    pub buffers: u64,
    /// Data that the ports want a buffer to hold at least.
    pub min_data_room: u32,
    /// Bytes that come before each frame.
    pub shim: u32,
    /// Number of port pairs.
    pub pairs: usize,
    /// Bytes of a VLAN tag that frames have outside of the link, of hairpin pairs.
    pub vlan: u32,
}

impl Needs<'_> {
    fn workers(&self) -> u32 {
        u32::try_from(self.cores.len()).unwrap_or(u32::MAX)
    }

    /// The data that a buffer holds: headroom and the longest frame with a tag; drivers that
    /// need larger buffers say so.
    fn data_room(&self) -> u32 {
        let longest = self.max_frame.map_or(MAX_FRAME, |frame| (frame + self.shim).min(MAX_FRAME));
        (longest + self.vlan + 128).max(self.min_data_room)
    }

    /// The longest frame behind the shim, of ports that carry `carried` bytes.
    fn longest(&self, carried: u32) -> Result<u32, OpenError> {
        let carried = carried.saturating_sub(self.vlan).min(MAX_FRAME);
        let longest = carried.saturating_sub(self.shim);
        if self.shim > 0 && longest < MIN_MAX_FRAME {
            return Err(OpenError::Short { carried, shim: self.shim });
        }
        Ok(self.max_frame.map_or(longest, |frame| frame.min(longest)))
    }

    /// Buffers that a worker may keep, if each has so much data.
    fn kept(&self, data_room: u32) -> u32 {
        let each = u64::from(data_room + OVERHEAD) * u64::from(self.workers());
        u32::try_from(self.buffers / each).unwrap_or(u32::MAX)
    }

    /// Buffers that a worker's pool has, `kept` of them to be kept. Without `polls` it only
    /// sends.
    fn pool(&self, polls: bool, kept: u32) -> u32 {
        let others = self.workers() - 1;
        let pairs = u32::try_from(self.pairs).unwrap_or(u32::MAX);
        let rings = if polls { 4 } else { 2 } * u32::from(RING);
        // Frames received for other workers wait in the rings to them, and in their caches of this
        // pool.
        let passed = DEPTH as u32;
        // A buffer that was kept leaves by the rings of the worker that kept it.
        let leaving = 2 * u32::from(RING) + SPARE;
        let of_pair = rings + SPARE + if polls { others * (passed + leaving) } else { 0 };
        let caches = if polls { others * Mempool::CACHED_PER_THREAD } else { 0 };
        let kept = if polls { kept } else { 0 };
        of_pair.saturating_mul(pairs).saturating_add(caches).saturating_add(kept)
    }

    /// Memory in megabytes for the buffers, the rings and EAL's own needs.
    fn megabytes(&self) -> u32 {
        let each = u64::from(self.data_room() + OVERHEAD);
        let buffers = u64::from(self.workers()) * u64::from(self.pool(true, 0)) * each;
        let all = buffers.saturating_add(self.buffers).div_ceil(1 << 20) + 64;
        u32::try_from(all).unwrap_or(u32::MAX)
    }
}

/// A worker's share of the ports.
#[derive(Debug)]
pub struct Share {
    /// By pair.
    pub pairs: Vec<PairQueues>,
    pub pool: Mempool,
}

/// A worker's queues of a pair; it may have none to receive from.
#[derive(Debug)]
pub enum PairQueues {
    /// Of `wan` and `client`.
    Two([PortQueues<Option<RxQueue>>; 2]),
    /// Of the one port, with the VLANs of `wan` and `client`.
    Hairpin(PortQueues<Option<RxQueue>>, [u16; 2]),
}

/// The result of [`open`].
#[derive(Debug)]
pub struct Opened {
    /// `wan` and `client` of each pair, or the one port of a hairpin pair, started.
    pub ports: Vec<StartedPort>,
    /// One for each worker.
    pub shares: Vec<Share>,
    /// Frames may be kept in the buffers of the worker that received them by another one.
    pub lends: bool,
    /// The longest frame that all ports can carry.
    pub max_frame: u32,
    /// Buffers that each worker may keep.
    pub kept: u32,
    /// Of the kernel interfaces, to be kept as long as the ports.
    pub offloads: OffloadsOff,
}

/// How the workers receive from a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    /// Each worker from its receive queue, for frames of any client.
    Each,
    /// The first one for all.
    First,
}

/// How to receive from a port of these abilities.
fn receiving(info: &PortInfo, queues: u16) -> Receiving {
    if info.max_rx_queues >= queues { Receiving::Each } else { Receiving::First }
}

/// Opens the ports of all pairs, each with a transmit queue for every worker.
///
/// # Errors
/// A missing driver, interface, permission, memory or queue.
pub fn open(eal: &Eal, pairs: &[PortPair], needs: Needs<'_>) -> Result<Opened, OpenError> {
    dpdk::ensure_distinct(pairs::devices(pairs))?;
    let queues = u16::try_from(needs.cores.len()).unwrap_or(u16::MAX);
    let attach = |p: &NamedPort| Port::attach(eal, &p.name, &p.spec.clone().with_queues(queues));
    let attached: Vec<_> = pairs::devices(pairs).map(attach).collect::<Result<_, _>>()?;
    let info: Vec<&PortInfo> = attached.iter().map(Port::info).collect();
    let mut first = true;
    for i in &info {
        let receiving = receiving(i, queues);
        first &= receiving == Receiving::First;
        tracing::info!(port = i.name, device = i.device, driver = i.driver, ?receiving, "opened");
    }
    if let Some(port) = info.iter().find(|i| i.max_tx_queues < queues) {
        return Err(Error::Queues {
            port: port.name.clone(),
            direction: "transmit",
            asked: queues,
            limit: format!("the device has {}, and each worker needs its own", port.max_tx_queues),
            remedy: "give fewer --workers, or `qpairs=N` (net_af_packet)",
        }
        .into());
    }
    let room = info.iter().map(|i| i.min_data_room).max().unwrap_or(0).max(needs.data_room());
    let carried = info.iter().map(|i| i.max_frame).min().unwrap_or(0);
    let max_frame = needs.longest(carried)?;
    let mtu = nic_mtu(&info, needs.shim, max_frame + needs.vlan);
    let kept = needs.kept(room);
    let data_room = u16::try_from(room).unwrap_or(u16::MAX);
    let mut pools = Vec::with_capacity(needs.cores.len());
    for (worker, core) in needs.cores.iter().enumerate() {
        // One that receives for all may see all that is kept in its own buffers.
        let kept = if first { kept.saturating_mul(needs.workers()) } else { kept };
        let count = needs.pool(!first || worker == 0, kept);
        pools.push(pool(eal, &format!("frames-{worker}"), count, data_room, *core)?);
    }
    // Nothing is changed on this machine before all that can be checked has been.
    let mut offloads = OffloadsOff::default();
    pairs::devices(pairs).filter_map(|p| p.spec.iface()).for_each(|iface| offloads.turn_off(iface));
    let config = |receiving| PortConfig {
        rx_queues: if receiving == Receiving::First { 1 } else { queues },
        tx_queues: queues,
        rx_descriptors: RING,
        tx_descriptors: RING,
        mtu,
        pools: &pools,
        ..PortConfig::new(&pools[0])
    };
    let mut shares: Vec<_> =
        pools.iter().map(|pool| Share { pairs: Vec::new(), pool: pool.clone() }).collect();
    let mut ports = Vec::with_capacity(attached.len());
    let mut attached = attached.into_iter();
    let mut start = || -> Result<_, Error> {
        let Some(port) = attached.next() else { return Ok(Vec::new().into_iter()) };
        let receiving = receiving(port.info(), queues);
        let (port, rx, tx) = port.start(&config(receiving))?;
        ports.push(port);
        // Workers beyond the number of receive queues have none.
        let rx = rx.into_iter().map(Some).chain(iter::repeat_with(|| None));
        let queues: Vec<_> = rx.zip(tx).map(|(rx, tx)| PortQueues { rx, tx }).collect();
        Ok(queues.into_iter())
    };
    for pair in pairs {
        if let Some(vlans) = pair.vlans() {
            for (share, queues) in shares.iter_mut().zip(start()?) {
                share.pairs.push(PairQueues::Hairpin(queues, vlans));
            }
            continue;
        }
        let (wan, client) = (start()?, start()?);
        for (share, (wan, client)) in shares.iter_mut().zip(wan.zip(client)) {
            share.pairs.push(PairQueues::Two([wan, client]));
        }
    }
    Ok(Opened { ports, shares, lends: first, max_frame, kept, offloads })
}

/// The MTU for a NIC to receive frames of this length behind a shim; none if it needs no change.
/// Kernel interfaces keep their MTU; a warning is logged if it is less than most hosts need.
fn nic_mtu(info: &[&PortInfo], shim: u32, max_frame: u32) -> Option<u16> {
    let short = |port: &&PortInfo| max_frame + shim > u32::from(port.mtu) + TAGGED_FRAME;
    if shim == 0 && !info.iter().any(short) {
        return None;
    }
    for port in info.iter().filter(|port| shim > 0 && port.iface.is_some()) {
        let (mtu, needed) = (port.mtu, u32::from(HOSTS_MTU) + shim);
        if u32::from(mtu) < needed {
            let carries = u32::from(mtu).saturating_sub(shim);
            tracing::warn!(
                port = port.name,
                mtu,
                "with a switch's shim it carries packets of {carries} bytes: give it an MTU of \
                 {needed} for hosts with {HOSTS_MTU}, and the switch's port as well"
            );
        }
    }
    let carried = info.iter().map(|i| i.max_frame).min().unwrap_or(0);
    let mtu = (max_frame + shim - ETHERNET).min(carried.saturating_sub(TAGGED_ETHERNET));
    u16::try_from(mtu).ok()
}

/// A pool in the memory of the core's own node, or else anywhere.
fn pool(eal: &Eal, name: &str, count: u32, room: u16, core: usize) -> Result<Mempool, Error> {
    let node = dpdk::numa_node(core);
    match Mempool::on_node(eal, name, count, room, node) {
        Err(error) if node.is_some() => {
            let anywhere = Mempool::new(eal, name, count, room)?;
            tracing::warn!(%error, core, "its buffers are not in the memory of the core's node");
            Ok(anywhere)
        }
        made => made,
    }
}

/// Where EAL's memory comes from, as asked and as needed.
#[must_use]
pub fn memory(huge: Huge, needs: Needs<'_>) -> Memory {
    let megabytes = needs.megabytes();
    match huge {
        Huge::Auto => Memory::available(megabytes),
        Huge::On => Memory::InMemory { megabytes: Some(megabytes) },
        Huge::Off => Memory::NoHuge { megabytes },
    }
}

/// EAL.
///
/// # Errors
/// As [`Eal::init`].
pub fn start_eal(memory: Memory, pairs: &[PortPair]) -> Result<Eal, Error> {
    tracing::info!(?memory, "starting EAL");
    Eal::init(&EalOptions::new(memory).with_ports(pairs::devices(pairs).map(|p| &p.spec)))
}

/// Logs what came to the ports before the workers were ready.
pub fn report_early(ports: &[StartedPort]) {
    for port in ports {
        let discarded = port.counters().map_or(0, |counters| counters.rx_early);
        if discarded > 0 {
            let port = port.name();
            tracing::info!(port, discarded, "frames that came before the workers were ready");
        }
    }
}

/// The cores that this process runs on as it was started.
#[must_use]
pub fn cores() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::count()).filter(|c| set.is_set(*c).unwrap_or(false)).collect()
}

/// Whether a thread of this process can be put on a core. Isolated ones (`isolcpus`) are not
/// among [`cores`], and can be; those that a control group keeps away cannot.
#[must_use]
pub fn can_run_on(core: usize) -> bool {
    let mut only = CpuSet::new();
    let tried = std::thread::spawn(move || {
        only.set(core).is_ok() && sched_setaffinity(Pid::from_raw(0), &only).is_ok()
    });
    tried.join().unwrap_or(false)
}

/// What the workers count of a pair, each for itself.
#[derive(Debug, Default)]
pub struct PairCounters {
    /// Frames that they could not pass on to each other.
    pub overflow: Vec<Arc<Overflow>>,
    /// Frames of the sides of a hairpin pair.
    pub sides: Vec<Arc<Sides>>,
}

/// The ports of one pair among all.
#[derive(Debug)]
struct Place {
    /// Of `wan` and `client`.
    names: [String; 2],
    /// Indices of their ports; equal in a hairpin pair.
    ports: [usize; 2],
    counters: PairCounters,
}

/// The counters of started ports and of the workers, by pair.
#[derive(Debug)]
pub struct Counted {
    ports: Arc<[StartedPort]>,
    pairs: Vec<Place>,
    /// State and faults of the ports.
    watch: Watch,
}

impl Counted {
    /// The ports of these pairs, in their order.
    #[must_use]
    pub fn new(ports: Arc<[StartedPort]>, pairs: &[PortPair], counters: Vec<PairCounters>) -> Self {
        let watch = Watch::new(ports.len());
        let mut counters = counters.into_iter();
        let places = places(pairs).zip(pairs).map(|(ports, pair)| Place {
            names: pair.ports.each_ref().map(|port| port.name.clone()),
            ports,
            counters: counters.next().unwrap_or_default(),
        });
        Self { pairs: places.collect(), ports, watch }
    }

    #[must_use]
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// By pair, each with the side by the direction that comes in there.
    fn each<T>(&self, of: impl Fn(&Place, Direction, &StartedPort, Seen) -> T) -> Vec<[T; 2]> {
        let seen = self.watch.seen();
        let side = |pair: &Place, direction: Direction| {
            let at = pair.ports[direction as usize];
            let mut seen = seen[at].clone();
            if !pair.has_device(direction) {
                seen = Seen { mtu: seen.mtu, gone: seen.gone, ..Seen::default() };
            }
            of(pair, direction, &self.ports[at], seen)
        };
        self.pairs.iter().map(|pair| Direction::BOTH.map(|d| side(pair, d))).collect()
    }
}

impl Place {
    /// Whether the side has the losses and faults of its device: of a hairpin pair, `wan` does.
    fn has_device(&self, direction: Direction) -> bool {
        self.ports[0] != self.ports[1] || direction == Direction::Forward
    }

    fn account(&self, direction: Direction, port: &StartedPort, seen: Seen) -> PortAccount {
        let lost = self.counters.overflow.iter().map(|o| o.missed(direction)).sum();
        let name = self.names[direction as usize].clone();
        let whole = account(port, PortAccount { name, seen, missed: lost, ..Default::default() });
        let sides = &self.counters.sides;
        if sides.is_empty() {
            return whole;
        }
        let has_device = self.has_device(direction);
        PortAccount {
            received: total(sides.iter().map(|it| it.received(direction))),
            sent: total(sides.iter().map(|it| it.sent(direction.opposite()))),
            missed: if has_device { whole.missed } else { lost },
            failed: if has_device { whole.failed } else { 0 },
            foreign: if has_device { sides.iter().map(|it| it.foreign()).sum() } else { 0 },
            ..whole
        }
    }
}

fn total(counts: impl Iterator<Item = Count>) -> Count {
    counts.fold(Count::default(), |sum, count| Count {
        packets: sum.packets + count.packets,
        bytes: sum.bytes + count.bytes,
    })
}

/// Indices of the ports of each pair among those that have a device each.
pub fn places(pairs: &[PortPair]) -> impl Iterator<Item = [usize; 2]> {
    let mut next = 0;
    pairs.iter().map(move |pair| {
        let first = next;
        next += pair.devices().len();
        [first, next - 1]
    })
}

impl Ports for Counted {
    fn accounts(&self) -> Vec<[PortAccount; 2]> {
        self.each(|pair, direction, port, seen| pair.account(direction, port, seen))
    }

    fn states(&self) -> Vec<PortState> {
        let state = |pair: &Place, direction: Direction, _: &StartedPort, seen: Seen| {
            seen.state(&pair.names[direction as usize])
        };
        self.each(state).into_iter().flatten().collect()
    }
}

/// An account with the counters of its port.
fn account(port: &StartedPort, account: PortAccount) -> PortAccount {
    match port.counters() {
        Ok(c) => PortAccount {
            received: Count { packets: c.rx_packets, bytes: c.rx_bytes },
            sent: Count { packets: c.tx_packets, bytes: c.tx_bytes },
            missed: c.rx_missed + c.rx_errors + c.rx_no_mbuf + account.missed,
            failed: c.tx_errors,
            link: port.link().ok(),
            ..account
        },
        Err(error) => {
            tracing::warn!(port = account.name, %error, "no counters");
            account
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(max_rx_queues: u16) -> PortInfo {
        PortInfo {
            name: String::new(),
            id: 0,
            device: String::new(),
            driver: String::new(),
            iface: None,
            mac: [0; 6],
            mtu: 1500,
            max_frame: 1518,
            min_data_room: 0,
            max_rx_queues,
            max_tx_queues: 8,
            link_mbps: None,
            numa_node: None,
            packet_sockets: 0,
        }
    }

    #[test]
    fn the_first_worker_receives_for_all_where_there_are_too_few_queues() {
        use Receiving::{Each, First};
        for (has, queues, expected) in [(8, 4, Each), (2, 4, First), (1, 2, First), (1, 1, Each)] {
            assert_eq!(receiving(&port(has), queues), expected);
        }
    }

    #[test]
    fn a_shim_takes_its_part_of_what_the_ports_carry() {
        let bare = Needs {
            cores: &[0],
            max_frame: None,
            buffers: 0,
            min_data_room: 0,
            shim: 0,
            pairs: 1,
            vlan: 0,
        };
        let shimmed = Needs { shim: 32, ..bare };
        assert_eq!((bare.longest(1518).unwrap(), shimmed.longest(1550).unwrap()), (1518, 1518));
        assert_eq!(shimmed.longest(u32::MAX).unwrap(), MAX_FRAME - 32);
        let asked = Needs { max_frame: Some(1000), ..shimmed };
        assert_eq!((asked.longest(1550).unwrap(), asked.longest(700).unwrap()), (1000, 668));
        assert_eq!(asked.data_room(), 1000 + 32 + 128);
        assert_eq!(Needs { max_frame: Some(MAX_FRAME), ..shimmed }.data_room(), MAX_FRAME + 128);
        assert_eq!(shimmed.longest(622).unwrap(), 590);
        for carried in [621, 32, 0] {
            let error = shimmed.longest(carried).unwrap_err().to_string();
            assert!(
                error.contains(&format!("of {carried} bytes")) && error.contains("raise the MTU")
            );
        }
        let hairpin = Needs { vlan: 4, ..bare };
        assert_eq!(
            (hairpin.longest(1982).unwrap(), hairpin.longest(u32::MAX).unwrap()),
            (1978, MAX_FRAME)
        );
        assert_eq!(hairpin.data_room(), MAX_FRAME + 4 + 128);
        let nic = PortInfo { max_frame: 9728, ..port(1) };
        assert_eq!(nic_mtu(&[&nic, &nic], 32, 1518), Some(1536));
        assert_eq!(nic_mtu(&[&nic, &nic], 32, 9728 - 32), Some(9702));
        assert_eq!(nic_mtu(&[&nic, &nic], 0, 1518), None);
    }

    #[test]
    fn a_nic_takes_jumbo_frames_where_they_are_wanted() {
        let nic = PortInfo { max_frame: 9728, ..port(1) };
        assert_eq!(nic_mtu(&[&nic, &nic], 0, 9018), Some(9004));
        assert_eq!(nic_mtu(&[&nic, &nic], 0, 9728), Some(9702));
        let jumbo = PortInfo { mtu: 9000, ..nic.clone() };
        assert_eq!(nic_mtu(&[&jumbo, &jumbo], 0, 9018), None);
        assert_eq!(nic_mtu(&[&jumbo, &nic], 0, 9018), Some(9004));
    }

    #[test]
    fn a_pool_has_what_is_kept_on_top_of_what_the_rings_hold() {
        let one = Needs {
            cores: &[0],
            max_frame: Some(1518),
            buffers: 0,
            min_data_room: 0,
            shim: 0,
            pairs: 1,
            vlan: 0,
        };
        assert_eq!(one.pool(true, 0), 4 * 1024 + SPARE);
        assert_eq!(one.kept(1646), 0);
        let two = Needs { cores: &[0, 1], buffers: 1 << 30, ..one };
        let kept = two.kept(1646);
        assert_eq!(u64::from(kept), (1 << 30) / (1646 + 512) / 2);
        let passed = DEPTH as u32 + Mempool::CACHED_PER_THREAD;
        let leaving = 2 * 1024 + SPARE;
        assert_eq!(two.pool(true, kept), 4 * 1024 + SPARE + passed + leaving + kept);
        // A port that only sends needs no receive buffers.
        assert_eq!(two.pool(false, kept), 2 * 1024 + SPARE);
        assert!(two.megabytes() > 1024 && two.megabytes() < 1200, "{}", two.megabytes());
        // Slots of a packet socket for jumbo frames, at any maximum frame length.
        let jumbo = Needs { min_data_room: 16_352, ..one };
        assert!(jumbo.megabytes() > (4 * 1024 + SPARE) * 16_352 / (1 << 20) + 64);
        let quad = Needs { pairs: 2, ..two };
        assert_eq!(quad.pool(false, 0), 2 * two.pool(false, 0));
        let caches = Mempool::CACHED_PER_THREAD;
        assert_eq!(quad.pool(true, 7), 2 * (two.pool(true, 0) - caches) + caches + 7);
        let hostile = Needs { buffers: u64::MAX, ..two };
        assert_eq!(hostile.kept(0), u32::MAX);
        assert_eq!(hostile.megabytes(), u32::MAX);
    }
}
