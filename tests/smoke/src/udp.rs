// SPDX-License-Identifier: Apache-2.0
//! Paced, numbered UDP: an overload in which the receiver identifies each packet.
//!
//! Rates and sizes count bytes of Ethernet frames without FCS, as the emulator's rate does.
//! Arrivals have timestamps of the kernel, taken when the packet enters the receiving host, so the
//! scheduling of the receiver has no effect.

use std::fmt;
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::error::{Result, Trying};
use crate::namespace::{Namespace, joined};
use crate::series::{out_of_order, slope};
use crate::wait;

/// Ethernet, IPv4 and UDP headers.
pub const HEADER_BYTES: usize = 14 + 20 + 8;
/// Frames that fill an MTU of 1500 bytes.
pub const FULL_FRAME_BYTES: usize = 1514;
/// Room for packets that arrive while the receiver is not scheduled.
const RECEIVE_BUFFER: usize = 32 << 20;
/// Pacing interval of a sender.
pub(crate) const TICK: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub to: SocketAddrV4,
    /// Bits of frame per second.
    pub rate_bps: u64,
    /// Bytes of frame.
    pub frame_bytes: usize,
    pub duration: Duration,
}

impl Flow {
    #[must_use]
    pub const fn full(to: SocketAddrV4, rate_bps: u64, seconds: u64) -> Self {
        let duration = Duration::from_secs(seconds);
        Self { to, rate_bps, frame_bytes: FULL_FRAME_BYTES, duration }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Sequence number of the sender, from 0.
    pub number: u64,
    /// Seconds on the receiver's clock.
    pub at: f64,
    /// Bytes of frame.
    pub bytes: usize,
}

#[derive(Clone, Default)]
pub struct Sent {
    pub packets: u64,
    /// Packets that the sender's kernel refused.
    pub refused: u64,
    /// For each wake-up of the sender: the time since the start, and an upper bound of the lateness
    /// of its packets.
    pub turns: Vec<[Duration; 2]>,
}

/// Without the wake-ups, of which there are thousands.
impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packets, refused, .. } = self;
        write!(f, "{packets} packets sent and {refused} refused")
    }
}

/// A thread that sends flows from a namespace.
#[derive(Debug)]
pub struct Sender(JoinHandle<Result<Vec<Sent>>>);

impl Sender {
    #[must_use]
    pub fn start(namespace: &Namespace, from: Ipv4Addr, flows: Vec<Flow>) -> Self {
        Self(namespace.spawn(move || send(from, &flows)))
    }

    /// Waits for the end. One entry for each flow.
    pub fn finish(self) -> Result<Vec<Sent>> {
        joined(self.0)
    }
}

/// Packets due at `elapsed`, exactly.
fn due(flow: &Flow, elapsed: Duration) -> u64 {
    let elapsed = elapsed.min(flow.duration).as_nanos();
    let bits = u128::from(flow.rate_bps) * elapsed / 1_000_000_000;
    u64::try_from(bits / (flow.frame_bytes as u128 * 8)).unwrap_or(u64::MAX)
}

fn send(from: Ipv4Addr, flows: &[Flow]) -> Result<Vec<Sent>> {
    let mut sockets = Vec::new();
    for flow in flows {
        let socket = UdpSocket::bind((from, 0)).trying(|| format!("bind to {from}"))?;
        socket.connect(flow.to).trying(|| format!("connect to {}", flow.to))?;
        sockets.push((socket, vec![0u8; flow.frame_bytes - HEADER_BYTES]));
    }
    let mut sent = vec![Sent::default(); flows.len()];
    let longest = flows.iter().map(|f| f.duration).max().unwrap_or_default();
    let start = Instant::now();
    let mut last = Duration::ZERO;
    loop {
        let elapsed = start.elapsed();
        for ((flow, (socket, payload)), sent) in flows.iter().zip(&mut sockets).zip(&mut sent) {
            let before = sent.packets + sent.refused;
            while sent.packets + sent.refused < due(flow, elapsed) {
                payload[..8].copy_from_slice(&(sent.packets + sent.refused).to_be_bytes());
                match socket.send(payload) {
                    Ok(_) => sent.packets += 1,
                    Err(_) => sent.refused += 1,
                }
            }
            if sent.packets + sent.refused > before {
                // None of them was due before the last wake-up.
                let now = start.elapsed();
                sent.turns.push([now, now.saturating_sub(last)]);
            }
        }
        last = elapsed;
        if elapsed >= longest {
            return Ok(sent);
        }
        wait::until_instant(start + elapsed + TICK);
    }
}

/// A thread that receives on an address in a namespace and records each arrival.
#[derive(Debug)]
pub struct Receiver {
    stop: Arc<AtomicBool>,
    arrived: Arc<AtomicU64>,
    thread: JoinHandle<Result<Received>>,
}

#[derive(Clone, Debug, Default)]
pub struct Received {
    /// In the order they arrived.
    pub arrivals: Vec<Arrival>,
    /// Packets that the receiving socket had no room for.
    pub overflowed: u64,
}

impl Receiver {
    pub fn start(namespace: &Namespace, at: SocketAddrV4) -> Result<Self> {
        let socket = namespace.enter(move || {
            let socket = UdpSocket::bind(at).trying(|| format!("bind to {at}"))?;
            setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)
                .and_then(|()| setsockopt(&socket, sockopt::ReceiveTimestampns, &true))
                .and_then(|()| setsockopt(&socket, sockopt::RxqOvfl, &1))
                .trying(|| "set the receiver's socket up".to_owned())?;
            socket
                .set_read_timeout(Some(Duration::from_millis(100)))
                .trying(|| "set a timeout".to_owned())?;
            Ok(socket)
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let arrived = Arc::<AtomicU64>::default();
        let thread = namespace.spawn({
            let (stop, arrived) = (Arc::clone(&stop), Arc::clone(&arrived));
            move || receive(&socket, &stop, &arrived)
        });
        Ok(Self { stop, arrived, thread })
    }

    /// Number of packets so far.
    #[must_use]
    pub fn arrived(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.arrived)
    }

    /// Ends it after a time without packets, and returns the arrivals.
    pub fn finish(self) -> Result<Received> {
        self.stop.store(true, Ordering::Relaxed);
        joined(self.thread)
    }
}

fn receive(socket: &UdpSocket, stop: &AtomicBool, arrived: &AtomicU64) -> Result<Received> {
    let mut received = Received::default();
    let mut payload = [0u8; 65_536];
    let mut control = nix::cmsg_space!(TimeSpec, u32);
    loop {
        let mut parts = [IoSliceMut::new(&mut payload)];
        let flags = MsgFlags::empty();
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags);
        let (length, at) = match message {
            Ok(message) => {
                let mut at = None;
                for control in message.cmsgs().trying(|| "read a time stamp".to_owned())? {
                    match control {
                        ControlMessageOwned::ScmTimestampns(t) => at = Some(t),
                        ControlMessageOwned::RxqOvfl(n) => received.overflowed = u64::from(n),
                        _ => (),
                    }
                }
                (message.bytes, at)
            }
            Err(Errno::EAGAIN) if stop.load(Ordering::Relaxed) => return Ok(received),
            Err(Errno::EAGAIN | Errno::EINTR) => continue,
            Err(e) => return Err(e).trying(|| "receive".to_owned()),
        };
        if let (Some(number), Some(at)) = (payload.first_chunk::<8>(), at) {
            received.arrivals.push(Arrival {
                number: u64::from_be_bytes(*number),
                at: at.tv_sec() as f64 + at.tv_nsec() as f64 * 1e-9,
                bytes: length + HEADER_BYTES,
            });
            arrived.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Received {
    /// Bits of frame per second that arrived between two times, in seconds after the first arrival:
    /// the slope of the least-squares line through the bytes so far. A stall of some milliseconds
    /// at either end of the window hardly changes it.
    #[must_use]
    pub fn rate_bps(&self, from: f64, to: f64) -> f64 {
        let Some(first) = self.arrivals.first() else { return 0.0 };
        let mut bytes = 0.0;
        let points: Vec<(f64, f64)> = self
            .arrivals
            .iter()
            .map(|a| {
                bytes += a.bytes as f64;
                (a.at - first.at, bytes)
            })
            .filter(|(at, _)| (from..to).contains(at))
            .collect();
        slope(&points) * 8.0
    }

    /// Packets that arrived after one with a higher number.
    #[must_use]
    pub fn out_of_order(&self) -> usize {
        out_of_order(self.arrivals.iter().map(|a| a.number))
    }

    /// Bytes of frame that arrived.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.arrivals.iter().map(|a| a.bytes as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_has_no_drift_and_no_excess() {
        let flow = Flow {
            to: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1),
            rate_bps: 200_000_000,
            frame_bytes: 1514,
            duration: Duration::from_secs(20),
        };
        assert_eq!(due(&flow, Duration::ZERO), 0);
        assert_eq!(due(&flow, Duration::from_secs(20)), 330_250);
        assert_eq!(due(&flow, Duration::from_secs(90)), 330_250);
    }

    #[test]
    fn rate_of_evenly_spaced_arrivals_is_exact() {
        let arrivals =
            (0..1000).map(|n| Arrival { number: n, at: n as f64 * 1e-3, bytes: 1250 }).collect();
        let received = Received { arrivals, overflowed: 0 };
        assert!((received.rate_bps(0.1, 0.9) - 1e7).abs() < 1.0);
        assert_eq!(received.out_of_order(), 0);
    }
}
