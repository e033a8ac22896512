// SPDX-License-Identifier: Apache-2.0
//! The ports of a pipeline: one for input, one for output. SWX itself frees packets that it drops.
//!
//! Packets are not copied: the pipeline changes them in their buffers. Only the thread that runs the
//! pipeline calls these functions.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use dpdk::Mbuf;
use swx_sys::{rte_swx_pkt, rte_swx_port_in_ops, rte_swx_port_in_stats};
use swx_sys::{rte_swx_port_out_ops, rte_swx_port_out_stats};

/// Source and destination of packets.
pub trait Wire {
    /// The next packet, in one segment. A program reads the headers that it extracts even if the
    /// packet is shorter, and needs headroom for those that it adds.
    fn receive(&mut self) -> Option<Mbuf>;
    /// Takes a packet that the program sends.
    fn send(&mut self, packet: Mbuf);
}

/// What the ports of one pipeline share.
pub struct Ports<W> {
    pub wire: W,
    /// Packets that the pipeline has received and sent; the others are in it, or were dropped.
    pub received: u64,
    pub sent: u64,
    /// No packet is received.
    pub is_closed: bool,
}

impl<W: Wire> Ports<W> {
    pub const fn new(wire: W) -> Self {
        Self { wire, received: 0, sent: 0, is_closed: false }
    }

    pub const IN: rte_swx_port_in_ops = rte_swx_port_in_ops {
        create: Some(create),
        free: Some(free),
        pkt_rx: Some(receive::<W>),
        stats_read: Some(read_in),
    };
    pub const OUT: rte_swx_port_out_ops = rte_swx_port_out_ops {
        create: Some(create),
        free: Some(free),
        pkt_tx: Some(send::<W>),
        pkt_fast_clone_tx: Some(clone_fast),
        pkt_clone_tx: Some(clone),
        flush: None,
        stats_read: Some(read_out),
    };
}

/// The ports' object is made by the pipeline's owner: `arguments` is a `Ports`.
extern "C" fn create(arguments: *mut c_void) -> *mut c_void {
    arguments
}

/// The owner frees it.
extern "C" fn free(_: *mut c_void) {}

/// # Safety
/// `port` is a `Ports<W>` that nothing else borrows, `packet` is writable.
unsafe extern "C" fn receive<W: Wire>(port: *mut c_void, packet: *mut rte_swx_pkt) -> c_int {
    // SAFETY: as for the function.
    let (ports, packet) = unsafe { (&mut *port.cast::<Ports<W>>(), &mut *packet) };
    if ports.is_closed {
        return 0;
    }
    let Some(loan) = ports.wire.receive().and_then(Mbuf::into_loan) else { return 0 };
    ports.received += 1;
    *packet = rte_swx_pkt {
        handle: loan.handle,
        pkt: loan.buffer,
        offset: loan.offset,
        length: loan.length,
    };
    1
}

/// # Safety
/// As for [`receive`].
unsafe extern "C" fn send<W: Wire>(port: *mut c_void, packet: *mut rte_swx_pkt) {
    // SAFETY: as for the function.
    let (ports, packet) = unsafe { (&mut *port.cast::<Ports<W>>(), &*packet) };
    ports.sent += 1;
    let Some(handle) = NonNull::new(packet.handle) else { return };
    // SAFETY: the handle is from `receive`, and SWX does not use the packet after this call.
    if let Some(packet) = unsafe { Mbuf::from_loan(handle, packet.offset, packet.length) } {
        ports.wire.send(packet);
    }
}

/// Never called: without mirroring sessions no packet is cloned.
extern "C" fn clone_fast(_: *mut c_void, _: *mut rte_swx_pkt) {}

/// As [`clone_fast`].
extern "C" fn clone(_: *mut c_void, _: *mut rte_swx_pkt, _: u32) {}

/// The wire counts.
///
/// # Safety
/// `stats` is writable.
unsafe extern "C" fn read_in(_: *mut c_void, stats: *mut rte_swx_port_in_stats) {
    // SAFETY: as for the function.
    unsafe { stats.write(rte_swx_port_in_stats::default()) };
}

/// # Safety
/// `stats` is writable.
unsafe extern "C" fn read_out(_: *mut c_void, stats: *mut rte_swx_port_out_stats) {
    // SAFETY: as for the function.
    unsafe { stats.write(rte_swx_port_out_stats::default()) };
}
