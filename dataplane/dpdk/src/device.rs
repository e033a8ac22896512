// SPDX-License-Identifier: Apache-2.0
//! An attached Ethernet device, created by [`Port::attach`](crate::Port::attach) and shared by its
//! handles. When the last handle is dropped, the device is stopped, closed and detached.
//!
//! Invariant: while a queue handle exists the device exists and is started. Control thread.

use std::ffi::CString;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, reason};
use crate::instance::EalInner;
use crate::mempool::Mempool;
use crate::sockets::PacketSockets;

#[derive(Debug)]
pub(crate) struct Device {
    pub eal: Arc<EalInner>,
    /// DPDK's number of the port.
    pub id: u16,
    /// The user's name for the port.
    pub port: String,
    /// The device's name on its bus.
    pub name: CString,
    pub bus: Bus,
    /// Keys reserved in `EalInner::control`: no other port may use them.
    pub keys: [String; 2],
    pub sockets: PacketSockets,
    /// Frames per ring of each packet socket.
    pub ring_frames: u32,
    /// Frames that a receive queue holds at most.
    pub rx_frames: u32,
    pub early: Mutex<Early>,
    /// Longest frame without a VLAN tag that the underlying interface sends, bytes.
    pub longest: AtomicU32,
    pub rx_queues: u16,
    pub started: bool,
    /// True if promiscuous mode was off before the port started.
    pub restore_promiscuous: bool,
    /// True if transmitted packets can be received again, so that they must be freed on drop.
    pub is_loopback: bool,
    /// Receive pools. As a field they are dropped after the device is closed.
    pub pools: Vec<Mempool>,
}

/// What came before the workers were ready. The port's counters leave it out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Early {
    /// Frames that were received and discarded.
    pub packets: u64,
    pub bytes: u64,
    /// As in [`Counters`](crate::Counters).
    pub missed: u64,
    pub errors: u64,
    pub no_mbuf: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bus {
    Pci,
    Virtual,
}

impl Device {
    pub(crate) fn error(&self, action: &'static str, code: i32) -> Error {
        Error::Port { port: self.port.clone(), action, reason: reason(code) }
    }

    /// Turns a return code into a result.
    pub(crate) fn check(&self, action: &'static str, code: i32) -> Result<(), Error> {
        if code < 0 { Err(self.error(action, code)) } else { Ok(()) }
    }

    /// The driver's counters.
    pub(crate) fn counters(&self) -> Result<dpdk_sys::lke_counters, Error> {
        let mut raw = dpdk_sys::lke_counters::default();
        let control = self.eal.control();
        // SAFETY: the port exists and `raw` is writable.
        let ret = unsafe { dpdk_sys::lke_port_counters(self.id, &raw mut raw) };
        drop(control);
        self.check("reading its counters", ret)?;
        Ok(raw)
    }

    pub(crate) fn early(&self) -> MutexGuard<'_, Early> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves these frames, and all that the port has lost so far, out of its counters.
    pub(crate) fn leave_out(&self, packets: u64, bytes: u64) -> Result<(), Error> {
        let raw = self.counters()?;
        let mut early = self.early();
        early.packets += packets;
        early.bytes += bytes;
        early.missed = raw.rx_missed + self.sockets.missed();
        (early.errors, early.no_mbuf) = (raw.rx_errors, raw.rx_no_mbuf);
        Ok(())
    }

    /// Frees the packets in a loopback's rings. They would keep their pool in use.
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
                // SAFETY: just received, so this is the only owner.
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
        // SAFETY: the port exists, and this is the last handle, so no thread polls it. The control
        // lock serialises the calls.
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
