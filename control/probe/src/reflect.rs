// SPDX-License-Identifier: Apache-2.0
//! The reflector: answers each request with a reply that is as long, and nothing else.
//!
//! It keeps no state of its clients. It answers from the destination address of the request,
//! and not at all if that is a broadcast or multicast address. As with ping, the source of a
//! request can be forged; the answer is one packet of the same size.

use crate::error::Error;
use crate::packet::reflect;
use crate::socket::{Receiver, answer, wait};
use crate::stop::{Stop, Urgency};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reflected {
    pub reflected: u64,
    /// Datagrams that are no requests.
    pub ignored: u64,
    /// Requests that could not be answered.
    pub unsendable: u64,
    /// Datagrams that this host dropped, for the socket's buffer was full.
    pub overflowed: u64,
}

pub struct Reflector {
    socket: UdpSocket,
    receiver: Receiver,
    address: SocketAddr,
    counts: Reflected,
}

impl fmt::Debug for Reflector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, counts, .. } = self;
        f.debug_struct("Reflector").field("address", address).field("counts", counts).finish()
    }
}

impl Reflector {
    /// Binds the socket. `[::]` accepts IPv4 too, and means `0.0.0.0` on a host without IPv6.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn bind(address: SocketAddr) -> Result<Self, Error> {
        let no_ipv6 = |error: &io::Error| error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32);
        let socket = match listen(address) {
            Err(error) if no_ipv6(&error) && address.ip() == Ipv6Addr::UNSPECIFIED => {
                listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()))
            }
            other => other,
        };
        let prepared = socket.and_then(|socket| {
            let receiver = Receiver::new(&socket)?;
            let address = socket.local_addr()?;
            Ok(Self { socket, receiver, address, counts: Reflected::default() })
        });
        prepared.map_err(|source| Error::Bind { address, source })
    }

    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until stopped. Blocks. Reports every `every` on this thread.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn run(
        mut self,
        stop: &Stop,
        every: Option<Duration>,
        mut tell: impl FnMut(&Reflected),
    ) -> Result<Reflected, Error> {
        let mut due = every.map(|every| (Instant::now() + every, every));
        while stop.urgency() == Urgency::None {
            if !self.answer()? {
                let left = due.map(|(at, _)| at.saturating_duration_since(Instant::now()));
                wait(&self.socket, stop, left).map_err(Error::system("wait"))?;
            }
            if let Some((at, every)) = &mut due
                && Instant::now() >= *at
            {
                *at = Instant::now() + *every;
                tell(&self.counts);
            }
        }
        Ok(self.counts)
    }

    /// Answers a datagram, if there is one.
    fn answer(&mut self) -> Result<bool, Error> {
        let datagram = match self.receiver.receive(&self.socket) {
            Ok(Some(datagram)) => datagram,
            Ok(None) => return Ok(false),
            // ICMP errors for earlier replies.
            Err(Errno::EINTR | Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH) => {
                return Ok(true);
            }
            Err(error) => return Err(Error::system("receive probes")(error)),
        };
        let received = datagram.stamped.unwrap_or_else(SystemTime::now);
        let received = received.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let received = u64::try_from(received.as_nanos()).unwrap_or(u64::MAX);
        let count = match reflect(datagram.bytes, received) {
            Err(_) => &mut self.counts.ignored,
            // A client that cannot be reached is its own trouble.
            Ok(()) => match answer(&self.socket, &datagram) {
                Ok(()) => &mut self.counts.reflected,
                Err(_) => &mut self.counts.unsendable,
            },
        };
        *count += 1;
        self.counts.overflowed = self.receiver.overflowed();
        Ok(true)
    }
}

fn listen(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    } else {
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}
