// SPDX-License-Identifier: Apache-2.0
//! The queues of a started port, for the datapath.
//!
//! Each handle is owned by the one thread that polls it: `Send`, neither `Sync` nor `Clone`, and
//! used by `&mut`. No call here allocates, locks or logs. `net_af_packet` makes one system call per
//! transmit burst.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::burst::MbufBurst;
use crate::device::Device;
use crate::mbuf::Mbuf;
use crate::waiter::Waiter;

/// Maximum number of packets per call of [`RxQueue::burst`]: the burst size that vector drivers and
/// the mempool cache are designed for.
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
    /// The only handle on queue `queue` of a started device.
    pub(crate) fn new(device: &Arc<Device>, queue: u16) -> Self {
        Self { device: Arc::clone(device), port: device.id, queue, _not_sync: PhantomData }
    }

    #[must_use]
    pub const fn index(&self) -> u16 {
        self.queue
    }

    #[must_use]
    pub fn port(&self) -> &str {
        &self.device.port
    }

    /// Receives up to [`RX_BURST`] packets, as far as `out` has room, appends them and returns
    /// their number. Vector drivers ignore calls for fewer than four: leave room.
    #[inline]
    pub fn burst(&mut self, out: &mut MbufBurst) -> usize {
        self.burst_of(out, RX_BURST)
    }

    /// As [`RxQueue::burst`], of up to `most` packets, from 4 to [`RX_BURST`].
    #[inline]
    pub fn burst_of(&mut self, out: &mut MbufBurst, most: usize) -> usize {
        let (port, queue) = (self.port, self.queue);
        // SAFETY: the device is started and this is the queue's only handle; the driver writes as
        // many owned mbufs as it returns, at most `room`.
        unsafe { out.fill(most, |slots, room| dpdk_sys::lke_rx_burst(port, queue, slots, room)) }
    }

    /// Discards the frames that wait in the queue, at most as many as it holds, and leaves them out of
    /// the port's counters, with everything that the port has lost so far. For the start of a
    /// worker: it would take these frames for new ones.
    pub fn discard(&mut self) {
        let (packets, bytes) = self.drain();
        if let Err(error) = self.device.leave_out(packets, bytes) {
            tracing::warn!(%error, packets, "discarded frames count as received");
        }
    }

    /// Frees the frames in the queue, at most as many as it holds. Returns their number and bytes.
    pub(crate) fn drain(&mut self) -> (u64, u64) {
        let mut burst = MbufBurst::new();
        let (mut packets, mut bytes) = (0, 0);
        while packets < u64::from(self.device.rx_frames) && self.burst(&mut burst) > 0 {
            for frame in burst.drain() {
                packets += 1;
                bytes += frame.len() as u64;
            }
        }
        (packets, bytes)
    }

    /// A waiter that wakes an idle worker when this queue has a packet. Combine the waiters of all
    /// queues that the worker polls with [`Waiter::and`].
    ///
    /// # Errors
    /// The system error if the process has no free file descriptor.
    pub fn waiter(&self) -> io::Result<Waiter> {
        Waiter::of_queue(self.device.sockets.of_queue(self.queue, self.device.rx_queues))
    }
}

impl TxQueue {
    /// The only handle on queue `queue` of a started device.
    pub(crate) fn new(device: &Arc<Device>, queue: u16) -> Self {
        Self { device: Arc::clone(device), port: device.id, queue, _not_sync: PhantomData }
    }

    #[must_use]
    pub const fn index(&self) -> u16 {
        self.queue
    }

    #[must_use]
    pub fn port(&self) -> &str {
        &self.device.port
    }

    /// True if the underlying interface sends the frame. It silently drops longer ones. A frame
    /// with an 802.1Q tag may be four bytes longer (Linux, net/packet/af_packet.c, `tpacket_snd`).
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

    /// Passes the packets of `staged` to the driver, in order, and returns the number accepted. The
    /// others stay in `staged`, in order. Bound the retries: some virtual devices never accept an
    /// oversized frame.
    ///
    /// The driver may fail to send an accepted packet, for example `net_af_packet` on an interface
    /// that is down: see [`Counters::tx_errors`](crate::Counters::tx_errors).
    #[inline]
    pub fn burst(&mut self, staged: &mut MbufBurst) -> usize {
        if staged.is_empty() {
            return 0;
        }
        let (port, queue) = (self.port, self.queue);
        // SAFETY: the device is started and this is the queue's only handle; the driver owns
        // exactly the prefix of the returned length.
        unsafe { staged.send(|slots, len| dpdk_sys::lke_tx_burst(port, queue, slots, len)) }
    }
}

/// Signals the processor (and a hypervisor) that this thread spins. Call it after an empty poll.
#[inline]
pub fn pause() {
    // SAFETY: a processor hint without effect on memory.
    unsafe { dpdk_sys::lke_pause() };
}
