// SPDX-License-Identifier: Apache-2.0
//! A port that is attached but not started. It can be queried and started, not polled.
//!
//! Reference: DPDK programmer's guide, "Poll mode driver"; order of calls as in `rte_ethdev.h`:
//! configure, set up queues, start. No checksum or segmentation offload is requested. Control
//! thread.

use std::ffi::c_char;
use std::sync::Arc;

use crate::device::{Bus, Device};
use crate::driver::{known_drivers, nearest_driver};
use crate::eal::Eal;
use crate::error::Error;
use crate::info::PortInfo;
use crate::mempool::Mempool;
use crate::probe::{check_pci, find_iface, probe};
use crate::queue::{RxQueue, TxQueue};
use crate::spec::{PortSpec, check_name};
use crate::started::{StartedPort, read_link};
use interface::{Interface, may_open_packet_socket};

impl PortSpec {
    /// Minimum data room of a buffer for this port, bytes, as far as known before attaching: the
    /// data room of a `net_af_packet` slot for the interface's MTU.
    #[must_use]
    pub fn min_data_room(&self) -> u32 {
        let iface = self.iface().and_then(|name| find_iface("", name).ok());
        let mtu = iface.and_then(|iface| iface.mtu().ok());
        self.packet_ring(mtu).map_or(0, |ring| ring.data_room())
    }
}

#[derive(Clone, Debug)]
pub struct PortConfig<'a> {
    /// The device spreads packets over them by both IP addresses, if it can.
    pub rx_queues: u16,
    pub tx_queues: u16,
    /// Descriptors per receive queue, adjusted to the device's limits.
    pub rx_descriptors: u16,
    /// Descriptors per transmit queue, adjusted to the device's limits.
    pub tx_descriptors: u16,
    /// Receive frames for any address, as a bump in the wire needs.
    pub promiscuous: bool,
    /// MTU to set on a PCI device. Ignored for virtual devices.
    pub mtu: Option<u16>,
    /// One pool per receive queue, in order. The last one serves all further queues.
    pub pools: &'a [Mempool],
}

impl<'a> PortConfig<'a> {
    /// One queue each way, 1024 descriptors, promiscuous.
    #[must_use]
    pub const fn new(pool: &'a Mempool) -> Self {
        Self {
            rx_queues: 1,
            tx_queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            promiscuous: true,
            mtu: None,
            pools: std::slice::from_ref(pool),
        }
    }

    /// As [`new`](Self::new), with `queues` queues each way.
    #[must_use]
    pub const fn with_queues(mut self, queues: u16) -> Self {
        self.rx_queues = queues;
        self.tx_queues = queues;
        self
    }
}

#[derive(Debug)]
pub struct Port {
    device: Device,
    info: PortInfo,
}

impl Port {
    /// Opens the device of `spec` as port `name`. The interface is looked up in the calling
    /// thread's network namespace.
    ///
    /// # Errors
    /// [`Error::UnknownDriver`], [`Error::NoInterface`], [`Error::Permission`],
    /// [`Error::SameName`], [`Error::SameDevice`], [`Error::Pci`], [`Error::Probe`].
    pub fn attach(eal: &Eal, name: &str, spec: &PortSpec) -> Result<Self, Error> {
        check_name(name)?;
        let device = spec.device_name(name);
        if let Some(driver) = spec.driver()
            && !eal.recognises(&device)
        {
            return Err(Error::UnknownDriver {
                driver: driver.to_owned(),
                known: known_drivers(),
                nearest: nearest_driver(driver),
            });
        }
        if let Some(address) = spec.pci_address() {
            check_pci(name, address)?;
        }
        let iface = spec.iface().map(|iface| find_iface(name, iface)).transpose()?;
        let mtu = iface.as_ref().map(Interface::mtu).transpose()?;
        if spec.driver() == Some("net_af_packet") {
            may_open_packet_socket().map_err(|error| Error::Permission {
                port: name.to_owned(),
                device: spec.iface().unwrap_or_default().to_owned(),
                reason: error.to_string(),
                remedy: "run as root, give the binary CAP_NET_RAW (`setcap cap_net_raw,\
                         cap_net_admin+ep`), or use a user and network namespace (`unshare -Urn`)",
            })?;
        }
        let device = probe(eal, name, spec, iface.as_ref(), mtu)?;
        let info = describe(&device, spec, iface.as_ref(), mtu)?;
        Ok(Self { device, info })
    }

    #[must_use]
    pub const fn info(&self) -> &PortInfo {
        &self.info
    }

    /// Starts the port. The control thread keeps the port's handle; each queue moves to the thread
    /// that polls it.
    ///
    /// # Errors
    /// [`Error::Queues`], [`Error::SmallBuffers`], or [`Error::Port`] if the driver refuses. The
    /// port is then detached.
    pub fn start(
        mut self,
        config: &PortConfig<'_>,
    ) -> Result<(StartedPort, Vec<RxQueue>, Vec<TxQueue>), Error> {
        self.check_queues(config)?;
        let have = config.pools.iter().map(|pool| u32::from(pool.data_room())).min().unwrap_or(0);
        if have < self.info.min_data_room {
            let port = self.info.name;
            return Err(Error::SmallBuffers { port, have, need: self.info.min_data_room });
        }
        self.set_up(config, have)?;
        self.device.started = true;
        if config.promiscuous {
            self.set_promiscuous()?;
        }
        let device = Arc::new(self.device);
        let mut rx: Vec<_> =
            (0..config.rx_queues).map(|queue| RxQueue::new(&device, queue)).collect();
        discard_foreign(&device, &mut rx)?;
        let tx = (0..config.tx_queues).map(|queue| TxQueue::new(&device, queue)).collect();
        Ok((StartedPort::new(device, self.info), rx, tx))
    }

    fn check_queues(&self, config: &PortConfig<'_>) -> Result<(), Error> {
        let info = &self.info;
        let error = |direction, asked, limit, remedy| {
            Err(Error::Queues { port: info.name.clone(), direction, asked, limit, remedy })
        };
        let directions = [
            ("receive", config.rx_queues, info.max_rx_queues),
            ("transmit", config.tx_queues, info.max_tx_queues),
        ];
        for (direction, asked, most) in directions {
            if asked == 0 || asked > most {
                let limit = format!("the device has 1 to {most}");
                return error(
                    direction,
                    asked,
                    limit,
                    "use fewer workers, or `qpairs=N` \
                                                        (net_af_packet) for more queues",
                );
            }
        }
        if info.packet_sockets > 0 && config.rx_queues != info.max_rx_queues {
            let limit = format!("the kernel spreads packets over all {}", info.max_rx_queues);
            return error(
                "receive",
                config.rx_queues,
                limit,
                "poll as many queues as `qpairs` says",
            );
        }
        Ok(())
    }

    fn set_up(&mut self, config: &PortConfig<'_>, data_room: u32) -> Result<(), Error> {
        let device = &mut self.device;
        let id = device.id;
        let mtu = if device.bus == Bus::Pci { config.mtu.unwrap_or(0) } else { 0 };
        let frame = self.info.max_frame.min(u32::from(mtu.max(self.info.mtu)) + 18);
        let scatter = i32::from(device.bus == Bus::Pci && frame > data_room);
        let eal = Arc::clone(&device.eal);
        let control = eal.control();
        let (rx_queues, tx_queues) = (config.rx_queues, config.tx_queues);
        // SAFETY: the port exists and is not started; calls are serialised by the control lock.
        let ret = unsafe { dpdk_sys::lke_port_configure(id, rx_queues, tx_queues, mtu, scatter) };
        device.check("configuring", ret)?;
        let (mut rx, mut tx) = (config.rx_descriptors, config.tx_descriptors);
        // SAFETY: as above; both numbers are writable.
        let ret =
            unsafe { dpdk_sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &raw mut rx, &raw mut tx) };
        device.check("fitting the number of descriptors", ret)?;
        device.pools = config.pools.to_vec();
        for queue in 0..config.rx_queues {
            let last = device.pools.len().saturating_sub(1);
            let Some(pool) = device.pools.get(usize::from(queue).min(last)) else { break };
            // SAFETY: as above; `device` keeps the pool alive until it is closed.
            let ret = unsafe { dpdk_sys::lke_port_rx_queue(id, queue, rx, pool.as_ptr()) };
            device.check("setting up a receive queue", ret)?;
        }
        for queue in 0..config.tx_queues {
            // SAFETY: as above.
            let ret = unsafe { dpdk_sys::lke_port_tx_queue(id, queue, tx) };
            device.check("setting up a transmit queue", ret)?;
        }
        device.rx_queues = config.rx_queues;
        device.rx_frames = device.ring_frames.max(rx.into());
        // SAFETY: as above; all queues are set up.
        let ret = unsafe { dpdk_sys::rte_eth_dev_start(id) };
        drop(control);
        device.check("starting", ret)
    }

    fn set_promiscuous(&mut self) -> Result<(), Error> {
        let before = match self.info.iface.as_deref().and_then(Interface::find) {
            Some(iface) => iface.promiscuous()?,
            None => false,
        };
        let device = &mut self.device;
        let control = device.eal.control();
        // SAFETY: the port exists; calls are serialised by the control lock.
        let ret = unsafe { dpdk_sys::rte_eth_promiscuous_enable(device.id) };
        drop(control);
        if ret == -libc::ENOTSUP && device.bus == Bus::Virtual {
            return Ok(()); // it has no address filter
        }
        device.check("setting promiscuous mode (it needs CAP_NET_ADMIN)", ret)?;
        device.restore_promiscuous = !before;
        Ok(())
    }
}

/// The kernel fills the ring of a packet socket as soon as it is open, with frames of all
/// interfaces until the driver binds it to one. This discards those frames, at most as many as the
/// rings hold, and resets the counters.
fn discard_foreign(device: &Device, queues: &mut [RxQueue]) -> Result<(), Error> {
    if device.sockets.len() == 0 {
        return Ok(());
    }
    let discarded: u64 = queues.iter_mut().map(|queue| queue.drain().0).sum();
    if discarded > 0 {
        let port = &device.port;
        tracing::info!(port, discarded, "frames that came before the port was ready");
    }
    device.sockets.forget_missed();
    let control = device.eal.control();
    // SAFETY: the port exists; calls are serialised by the control lock.
    let ret = unsafe { dpdk_sys::rte_eth_stats_reset(device.id) };
    drop(control);
    device.check("resetting its counters", ret)
}

fn describe(
    device: &Device,
    spec: &PortSpec,
    iface: Option<&Interface>,
    mtu: Option<u32>,
) -> Result<PortInfo, Error> {
    let mut raw = dpdk_sys::lke_port_info::default();
    let control = device.eal.control();
    // SAFETY: the port exists and `raw` is writable.
    let ret = unsafe { dpdk_sys::lke_port_info(device.id, &raw mut raw) };
    device.check("reading its abilities", ret)?;
    drop(control);
    let link = read_link(device, iface.map(Interface::name))?;
    let ring = spec.packet_ring(mtu);
    let said = raw.max_rx_pktlen.max(u32::from(raw.mtu) + 18);
    let fallback = spec.memif_frame().unwrap_or(said);
    let mtu = mtu.and_then(|mtu| u16::try_from(mtu).ok()).unwrap_or(raw.mtu);
    Ok(PortInfo {
        name: device.port.clone(),
        id: device.id,
        device: device.name.to_string_lossy().into_owned(),
        driver: c_text(&raw.driver),
        iface: iface.map(|iface| iface.name().to_owned()),
        mac: raw.mac,
        mtu,
        max_frame: ring.map_or(fallback, |ring| ring.max_frame()),
        min_data_room: ring.map_or(raw.min_rx_bufsize, |ring| ring.data_room()),
        max_rx_queues: raw.max_rx_queues,
        max_tx_queues: raw.max_tx_queues,
        link_mbps: link.mbps.or((raw.max_speed > 0).then_some(raw.max_speed)),
        numa_node: u32::try_from(raw.numa_node).ok(),
        packet_sockets: device.sockets.len(),
    })
}

fn c_text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> =
        bytes.iter().map(|byte| byte.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
