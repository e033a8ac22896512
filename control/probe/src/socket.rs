// SPDX-License-Identifier: Apache-2.0
//! Datagrams with the kernel's timestamps and addresses, and waiting for them.

use crate::packet::LARGEST;
use crate::stop::Stop;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use nix::sys::time::TimeSpec;
use socket2::SockRef;
use std::io::{IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime};

/// Room for the burst after a stall of the link; the kernel grants up to
/// `net.core.rmem_max`.
const BUFFER: usize = 4 << 20;

/// Local address that a datagram was sent to.
#[derive(Clone, Copy)]
pub(crate) enum Local {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
}

pub(crate) struct Datagram<'a> {
    /// Its payload; of one that is longer than any probe, one byte more than the largest.
    pub(crate) bytes: &'a mut [u8],
    /// Source address of the datagram.
    pub(crate) from: Option<SockaddrStorage>,
    /// Local address that the datagram was sent to.
    pub(crate) to: Option<Local>,
    /// When it arrived, by the wall clock.
    pub(crate) stamped: Option<SystemTime>,
}

pub(crate) struct Receiver {
    bytes: Vec<u8>,
    control: Vec<u8>,
    /// Datagrams that the kernel dropped, as it last said; wraps.
    dropped: u32,
    overflowed: u64,
}

impl Receiver {
    /// For a socket, which it prepares.
    pub(crate) fn new(socket: &UdpSocket) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        // These options are optional: without them, stamps are taken when reading, and a full
        // buffer goes unnoticed.
        let _ = SockRef::from(socket).set_recv_buffer_size(BUFFER);
        let _ = setsockopt(socket, sockopt::ReceiveTimestampns, &true);
        let _ = setsockopt(socket, sockopt::RxqOvfl, &1);
        let control =
            nix::cmsg_space!(TimeSpec, u32, libc::in_pktinfo, libc::in6_pktinfo, [u64; 4]);
        Ok(Self { bytes: vec![0; LARGEST + 1], control, dropped: 0, overflowed: 0 })
    }

    /// So many datagrams the kernel dropped, for the socket's buffer was full.
    pub(crate) const fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Receives a datagram; `None` if the queue is empty.
    pub(crate) fn receive(&mut self, socket: &UdpSocket) -> Result<Option<Datagram<'_>>, Errno> {
        let (mut to, mut stamped, mut dropped) = (None, None, self.dropped);
        let (length, from) = {
            let mut buffers = [IoSliceMut::new(&mut self.bytes)];
            let control = Some(self.control.as_mut_slice());
            let flags = MsgFlags::empty();
            let fd = socket.as_raw_fd();
            let message = match recvmsg::<SockaddrStorage>(fd, &mut buffers, control, flags) {
                Err(Errno::EAGAIN) => return Ok(None),
                other => other?,
            };
            for control in message.cmsgs()? {
                match control {
                    ControlMessageOwned::ScmTimestampns(time) => {
                        stamped = SystemTime::UNIX_EPOCH.checked_add(time.into());
                    }
                    ControlMessageOwned::Ipv4PacketInfo(info) => to = Some(Local::V4(info)),
                    ControlMessageOwned::Ipv6PacketInfo(info) => to = Some(Local::V6(info)),
                    ControlMessageOwned::RxqOvfl(count) => dropped = count,
                    _ => {}
                }
            }
            (message.bytes, message.address)
        };
        self.overflowed += u64::from(dropped.wrapping_sub(self.dropped));
        self.dropped = dropped;
        let bytes = self.bytes.get_mut(..length).unwrap_or_default();
        Ok(Some(Datagram { bytes, from, to, stamped }))
    }
}

/// Answers a datagram from its destination address. A datagram to a broadcast or multicast
/// address is not answered, to prevent amplification attacks on a victim.
pub(crate) fn answer(socket: &UdpSocket, datagram: &Datagram<'_>) -> Result<(), Errno> {
    let fd = socket.as_raw_fd();
    let from = datagram.from.as_ref();
    let bytes = [IoSlice::new(datagram.bytes)];
    let flags = MsgFlags::empty();
    // The interface is left to the routes.
    let sent = match datagram.to {
        Some(Local::V4(info)) if info.ipi_addr.s_addr != info.ipi_spec_dst.s_addr => {
            return Err(Errno::EADDRNOTAVAIL);
        }
        Some(Local::V4(mut info)) => {
            info.ipi_ifindex = 0;
            sendmsg(fd, &bytes, &[ControlMessage::Ipv4PacketInfo(&info)], flags, from)
        }
        Some(Local::V6(mut info)) => {
            info.ipi6_ifindex = 0;
            sendmsg(fd, &bytes, &[ControlMessage::Ipv6PacketInfo(&info)], flags, from)
        }
        None => sendmsg(fd, &bytes, &[], flags, from),
    };
    sent.map(drop)
}

/// Waits for a datagram or a request to stop, at most so long.
pub(crate) fn wait(
    socket: &UdpSocket,
    stop: &Stop,
    timeout: Option<Duration>,
) -> Result<(), Errno> {
    let mut fds =
        [PollFd::new(socket.as_fd(), PollFlags::POLLIN), PollFd::new(stop.fd(), PollFlags::POLLIN)];
    match ppoll(&mut fds, timeout.map(TimeSpec::from_duration), None) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error),
    }
    if fds[1].any() == Some(true) {
        stop.woken();
    }
    Ok(())
}
