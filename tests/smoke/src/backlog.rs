// SPDX-License-Identifier: Apache-2.0
//! UDP that adapts to the link: a fixed number of frames is in flight, and each arrival is replaced.
//!
//! If no frame is dropped, and a queue is longer than the stalls of the sender, that queue is never
//! empty. The sender reads the number of arrivals from the receiver's thread, so the return
//! direction carries nothing.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::error::{Result, Trying};
use crate::namespace::{Namespace, joined};
use crate::udp::{HEADER_BYTES, Receiver, TICK};
use crate::wait;

/// Most frames at once. The ring of a port has room for more.
const BURST: u64 = 16;

#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub to: SocketAddrV4,
    /// Frames in flight.
    pub frames: u64,
    /// Bytes of each frame.
    pub frame_bytes: usize,
}

/// A thread that sends to a receiver from a namespace.
#[derive(Debug)]
pub struct Backlog {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Backlog {
    #[must_use]
    pub fn start(
        namespace: &Namespace,
        from: Ipv4Addr,
        window: Window,
        receiver: &Receiver,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let arrived = receiver.arrived();
        let thread = namespace.spawn({
            let stop = Arc::clone(&stop);
            move || send(from, window, &arrived, &stop)
        });
        Self { stop, thread }
    }

    /// Ends it and returns the number of frames that it sent.
    pub fn finish(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        joined(self.thread)
    }
}

fn send(from: Ipv4Addr, window: Window, arrived: &AtomicU64, stop: &AtomicBool) -> Result<u64> {
    let Window { to, frames, frame_bytes } = window;
    let socket = UdpSocket::bind((from, 0)).trying(|| format!("bind to {from}"))?;
    socket.connect(to).trying(|| format!("connect to {to}"))?;
    let mut payload = vec![0u8; frame_bytes - HEADER_BYTES];
    let mut sent = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let tick = Instant::now() + TICK;
        let arrived = arrived.load(Ordering::Relaxed);
        // The first one waits for ARP; the kernel drops frames beyond some that wait for it.
        let due = (arrived + frames.min(arrived + 1)).min(sent + BURST);
        while sent < due {
            payload[..8].copy_from_slice(&sent.to_be_bytes());
            socket.send(&payload).trying(|| format!("send to {to}"))?;
            sent += 1;
        }
        wait::until_instant(tick);
    }
    Ok(sent)
}
