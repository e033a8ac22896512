// SPDX-License-Identifier: Apache-2.0
//! An attached Ethernet device: made by [`Port::attach`](crate::Port::attach), shared by the
//! handles on it, and stopped, closed and detached when the last of them goes.
//!
//! Invariant: while a queue handle exists the device exists and is started. Control thread.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::error::{Error, reason};
use crate::instance::EalInner;
use crate::mempool::Mempool;
use crate::sockets::PacketSockets;

#[derive(Debug)]
pub(crate) struct Device {
    pub eal: Arc<EalInner>,
    /// DPDK's number of the port.
    pub id: u16,
    /// The name that the user gave.
    pub port: String,
    /// The device's name on its bus.
    pub name: CString,
    pub bus: Bus,
    /// What no other port may have, as reserved in `EalInner::control`.
    pub keys: [String; 2],
    pub sockets: PacketSockets,
    /// Frames that the ring of each packet socket holds.
    pub ring_frames: u32,
    /// The longest frame without a VLAN tag that the interface below sends.
    pub longest: AtomicU32,
    pub rx_queues: u16,
    pub started: bool,
    /// Promiscuous mode was off before we turned it on.
    pub restore_promiscuous: bool,
    /// Packets sent can be received again, so they have to be freed at the end.
    pub is_loopback: bool,
    /// The pools that receive: dropped, as a field, after the device was closed.
    pub pools: Vec<Mempool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bus {
    Pci,
    Virtual,
}

impl Device {
    /// An error for a failed call on this port.
    pub(crate) fn error(&self, action: &'static str, code: i32) -> Error {
        Error::Port { port: self.port.clone(), action, reason: reason(code) }
    }

    /// Turns a return code into a result.
    pub(crate) fn check(&self, action: &'static str, code: i32) -> Result<(), Error> {
        if code < 0 { Err(self.error(action, code)) } else { Ok(()) }
    }

    /// Frees the packets that wait in a loopback's rings; they would keep their pool in use.
    fn empty(&self) {
        const MOST: u32 = 1 << 16;
        for queue in 0..self.rx_queues {
            for _ in 0..MOST {
                let mut mbuf = std::ptr::null_mut();
                // SAFETY: the device is started and no queue handle is left, so no other thread
                // polls; the array has room for one pointer.
                let got = unsafe { dpdk_sys::lke_rx_burst(self.id, queue, &raw mut mbuf, 1) };
                if got == 0 {
                    break;
                }
                // SAFETY: just received, so owned here and by nobody else.
                unsafe { dpdk_sys::lke_mbuf_free(mbuf) };
            }
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut taken = self.eal.control();
        if self.started && self.is_loopback {
            self.empty();
        }
        // SAFETY: the port exists, and with this, the last handle, nobody polls it any more. The
        // calls are serialised by the control lock.
        let (stopped, closed) = unsafe {
            if self.restore_promiscuous {
                dpdk_sys::rte_eth_promiscuous_disable(self.id);
            }
            let stopped = if self.started { dpdk_sys::rte_eth_dev_stop(self.id) } else { 0 };
            (stopped, dpdk_sys::rte_eth_dev_close(self.id))
        };
        let bus = match self.bus {
            Bus::Pci => c"pci",
            Bus::Virtual => c"vdev",
        };
        // SAFETY: both names are valid strings for the call; the device was closed.
        let detached =
            unsafe { dpdk_sys::rte_eal_hotplug_remove(bus.as_ptr(), self.name.as_ptr()) };
        if stopped != 0 || closed != 0 || detached != 0 {
            tracing::warn!(port = self.port, stopped, closed, detached, "port not closed cleanly");
        }
        for key in &self.keys {
            taken.remove(key);
        }
    }
}
