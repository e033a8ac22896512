// SPDX-License-Identifier: Apache-2.0
//! Arbitrary frames, sent through a packet socket past the host's own stack.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind, send, socket,
};

use crate::error::{Error, Result, Trying};
use crate::namespace::Namespace;

pub type Mac = [u8; 6];

/// A packet socket on an interface of a namespace.
#[derive(Debug)]
pub struct RawSocket {
    socket: OwnedFd,
    pub mac: Mac,
}

impl RawSocket {
    /// Opens a socket that sends only.
    pub fn open(namespace: &Namespace, interface: &str) -> Result<Self> {
        let interface = interface.to_owned();
        namespace.enter(move || {
            let link = link_address(&interface)?;
            let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
                .trying(|| "open a packet socket".to_owned())?;
            bind(socket.as_raw_fd(), &link).trying(|| format!("bind to {interface}"))?;
            let mac =
                link.addr().ok_or_else(|| Error::parse(&interface, "it has no MAC address"))?;
            Ok(Self { socket, mac })
        })
    }

    /// Sends a frame. False if the kernel refuses it, for example because it is shorter than an
    /// Ethernet header or longer than the MTU.
    pub fn send(&self, frame: &[u8]) -> Result<bool> {
        match send(self.socket.as_raw_fd(), frame, MsgFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::EINVAL | Errno::EMSGSIZE) => Ok(false),
            Err(e) => Err(e).trying(|| format!("send a frame of {} bytes", frame.len())),
        }
    }
}

/// The link-layer address of an interface in this thread's namespace.
pub(crate) fn link_address(interface: &str) -> Result<LinkAddr> {
    let all = getifaddrs().trying(|| "list the interfaces".to_owned())?;
    all.filter(|a| a.interface_name == interface)
        .find_map(|a| a.address?.as_link_addr().copied())
        .filter(|a| a.family() == Some(AddressFamily::Packet))
        .ok_or_else(|| Error::parse(interface, "there is no such interface"))
}
