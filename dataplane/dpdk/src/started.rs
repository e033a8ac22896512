// SPDX-License-Identifier: Apache-2.0
//! The control thread's handle on a started port: counters and link.
//!
//! The device is stopped, closed and detached when this handle and all queue handles are dropped.
//! Counters only grow. Control thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::device::{Bus, Device};
use crate::error::Error;
use crate::info::{Counters, Link, PortInfo};

#[derive(Debug)]
pub struct StartedPort {
    device: Arc<Device>,
    info: PortInfo,
}

impl StartedPort {
    pub(crate) const fn new(device: Arc<Device>, info: PortInfo) -> Self {
        Self { device, info }
    }

    /// The description as of attaching.
    #[must_use]
    pub const fn info(&self) -> &PortInfo {
        &self.info
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    ///
    /// # Errors
    /// [`Error::Port`] if the driver has none or the device is gone.
    pub fn counters(&self) -> Result<Counters, Error> {
        let raw = self.device.counters()?;
        let early = self.device.early();
        Ok(Counters {
            rx_packets: raw.rx_packets.saturating_sub(early.packets),
            rx_bytes: raw.rx_bytes.saturating_sub(early.bytes),
            // A driver that reads the sockets' counters resets them; the sum stays correct.
            rx_missed: (raw.rx_missed + self.device.sockets.missed()).saturating_sub(early.missed),
            rx_errors: raw.rx_errors.saturating_sub(early.errors),
            rx_no_mbuf: raw.rx_no_mbuf.saturating_sub(early.no_mbuf),
            rx_early: early.packets + early.missed + early.errors + early.no_mbuf,
            tx_packets: raw.tx_packets,
            tx_bytes: raw.tx_bytes,
            tx_errors: raw.tx_errors,
        })
    }

    /// Sets the longest frame without a VLAN tag that the underlying interface sends, bytes.
    /// [`TxQueue::takes`](crate::TxQueue::takes) uses it from now on.
    pub fn limit_frames(&self, bytes: u32) {
        self.device.longest.store(bytes, Ordering::Relaxed);
    }

    /// Current link state.
    ///
    /// # Errors
    /// [`Error::Port`] if the device is gone.
    pub fn link(&self) -> Result<Link, Error> {
        read_link(&self.device, self.info.iface.as_deref())
    }
}

/// Link state of a device, from the kernel if it knows better than the driver.
pub(crate) fn read_link(device: &Device, iface: Option<&str>) -> Result<Link, Error> {
    if let Some(iface) = iface.filter(|_| device.sockets.len() > 0) {
        // A missing interface has no link.
        let gone = Link { up: false, mbps: None, full_duplex: true };
        return Ok(device.sockets.link(iface).unwrap_or(gone));
    }
    let mut raw = dpdk_sys::lke_link::default();
    let control = device.eal.control();
    // SAFETY: the port exists and `raw` is writable.
    let ret = unsafe { dpdk_sys::lke_port_link(device.id, &raw mut raw) };
    drop(control);
    device.check("reading its link", ret)?;
    let known = device.bus == Bus::Pci && raw.speed > 0;
    Ok(Link {
        up: raw.up != 0,
        mbps: known.then_some(raw.speed),
        full_duplex: raw.full_duplex != 0,
    })
}
