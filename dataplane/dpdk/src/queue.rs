// SPDX-License-Identifier: Apache-2.0
//! The queues of a started port: the datapath's only way to and from the wire.
//!
//! Each handle is owned by the one thread that polls it: `Send`, neither `Sync` nor `Clone`, and
//! `&mut` to use. No call here allocates, locks or logs. `net_af_packet` makes one system call
//! per transmit burst.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::burst::MbufBurst;
use crate::device::Device;
use crate::mbuf::Mbuf;
use crate::waiter::Waiter;

/// Packets that one call of [`RxQueue::burst`] takes at most: the burst that vector drivers and
/// the mempool's cache are made for.
pub const RX_BURST: usize = 32;

#[derive(Debug)]
pub struct RxQueue {
    device: Arc<Device>,
    port: u16,
    queue: u16,
    _not_sync: PhantomData<Cell<()>>,
}

#[derive(Debug)]
pub struct TxQueue {
    device: Arc<Device>,
    port: u16,
    queue: u16,
    _not_sync: PhantomData<Cell<()>>,
}

impl RxQueue {
    /// A handle on queue `queue`, of which no other exists, of a started device.
    pub(crate) fn new(device: &Arc<Device>, queue: u16) -> Self {
        Self { device: Arc::clone(device), port: device.id, queue, _not_sync: PhantomData }
    }

    /// Its number within the port.
    #[must_use]
    pub const fn index(&self) -> u16 {
        self.queue
    }

    /// The name of its port.
    #[must_use]
    pub fn port(&self) -> &str {
        &self.device.port
    }

    /// Receives up to [`RX_BURST`] packets, as many as `out` has room for, and appends them;
    /// returns how many. Vector drivers ignore calls for fewer than four: leave room.
    #[inline]
    pub fn burst(&mut self, out: &mut MbufBurst) -> usize {
        let (port, queue) = (self.port, self.queue);
        // SAFETY: the device is started and this is the queue's only handle; the driver writes as
        // many owned mbufs as it returns, at most `room`.
        unsafe {
            out.fill(RX_BURST, |slots, room| dpdk_sys::lke_rx_burst(port, queue, slots, room))
        }
    }

    /// What an idle worker waits on until this queue has a packet. Combine those of all queues
    /// that the worker polls with [`Waiter::and`].
    ///
    /// # Errors
    /// The system's, if the process has no file descriptor left.
    pub fn waiter(&self) -> io::Result<Waiter> {
        Waiter::of_queue(self.device.sockets.of_queue(self.queue, self.device.rx_queues))
    }
}

impl TxQueue {
    /// A handle on queue `queue`, of which no other exists, of a started device.
    pub(crate) fn new(device: &Arc<Device>, queue: u16) -> Self {
        Self { device: Arc::clone(device), port: device.id, queue, _not_sync: PhantomData }
    }

    /// Its number within the port.
    #[must_use]
    pub const fn index(&self) -> u16 {
        self.queue
    }

    /// The name of its port.
    #[must_use]
    pub fn port(&self) -> &str {
        &self.device.port
    }

    /// Whether the interface below sends a frame: a longer one it would lose without a word. With
    /// an 802.1Q tag it may have four bytes more (Linux, net/packet/af_packet.c, `tpacket_snd`).
    #[inline]
    #[must_use]
    pub fn takes(&self, frame: &Mbuf) -> bool {
        const TAG: u32 = 4;
        let longest = self.device.longest.load(Ordering::Relaxed);
        let len = frame.len() as u32;
        let is_tagged =
            || frame.contiguous().is_some_and(|bytes| bytes.get(12..14) == Some(&[0x81, 0x00]));
        len <= longest || len <= longest.saturating_add(TAG) && is_tagged()
    }

    /// Gives the packets of `staged` to the driver, in order; returns how many it took. The
    /// others stay in `staged`, in order. Bound the retries: some virtual devices refuse a frame
    /// that is too large for ever.
    ///
    /// What the driver took it may still fail to send, as `net_af_packet` on an interface that is
    /// down: that is in [`Counters::tx_errors`](crate::Counters::tx_errors).
    #[inline]
    pub fn burst(&mut self, staged: &mut MbufBurst) -> usize {
        if staged.is_empty() {
            return 0;
        }
        let (port, queue) = (self.port, self.queue);
        // SAFETY: the device is started and this is the queue's only handle; the driver owns
        // exactly the prefix whose length it returns.
        unsafe { staged.send(|slots, len| dpdk_sys::lke_tx_burst(port, queue, slots, len)) }
    }
}

/// Tells the processor (and a hypervisor) that this thread polls: call it on an empty poll.
#[inline]
pub fn pause() {
    // SAFETY: a processor hint without effect on memory.
    unsafe { dpdk_sys::lke_pause() };
}
