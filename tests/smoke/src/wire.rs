// SPDX-License-Identifier: Apache-2.0
//! An interface as a wire: whole frames enter and leave, past the host's own stack.
//!
//! The kernel strips the outermost VLAN tag before a packet socket receives the frame, and reports
//! it beside the frame (packet(7), `PACKET_AUXDATA`; `struct tpacket_auxdata` of
//! `linux/if_packet.h`). It is restored here.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvmsg,
    send, setsockopt, socket, sockopt,
};

use crate::error::{Result, Trying};
use crate::namespace::Namespace;
use crate::raw::link_address;

/// Room for frames that arrive between two reads.
const RECEIVE_BUFFER: usize = 64 << 20;
/// Longer than any frame here.
const LONGEST: usize = 16_384;
/// Two MAC addresses; the tag follows them.
const ADDRESSES: usize = 12;
/// Flags of `linux/if_packet.h`: a tag was stripped, and its protocol is reported.
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;
const TPID: u16 = 0x8100;

/// Asks the kernel to report stripped tags.
#[derive(Clone, Copy, Debug)]
struct PacketAuxdata;

nix::setsockopt_impl!(
    PacketAuxdata,
    libc::SOL_PACKET,
    libc::PACKET_AUXDATA,
    bool,
    sockopt::SetBool
);

/// Asks the kernel to omit frames that others send from the interface.
#[derive(Clone, Copy, Debug)]
struct IgnoreOutgoing;

nix::setsockopt_impl!(
    IgnoreOutgoing,
    libc::SOL_PACKET,
    libc::PACKET_IGNORE_OUTGOING,
    bool,
    sockopt::SetBool
);

/// Both directions of an interface.
#[derive(Debug)]
pub struct Wire {
    socket: OwnedFd,
}

impl Wire {
    /// Opens an interface. It receives incoming frames only.
    pub fn open(namespace: &Namespace, interface: &str) -> Result<Self> {
        let interface = interface.to_owned();
        namespace.enter(move || {
            let link = link_address(&interface)?;
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)
                .trying(|| "open a packet socket".to_owned())?;
            setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)
                .and_then(|()| setsockopt(&socket, PacketAuxdata, &true))
                .and_then(|()| setsockopt(&socket, IgnoreOutgoing, &true))
                .trying(|| "set a packet socket up".to_owned())?;
            bind(socket.as_raw_fd(), &link).trying(|| format!("bind to {interface}"))?;
            let wire = Self { socket };
            // Before it was bound it received frames of all interfaces.
            while wire.receive()?.is_some() {}
            Ok(wire)
        })
    }

    pub fn send(&self, frame: &[u8]) -> Result<()> {
        loop {
            match send(self.socket.as_raw_fd(), frame, MsgFlags::empty()) {
                // The queue of the interface is full. Wait, as a host's write does.
                Err(Errno::EAGAIN | Errno::ENOBUFS) => std::thread::yield_now(),
                done => {
                    let what = || format!("send a frame of {} bytes", frame.len());
                    return done.trying(what).map(drop);
                }
            }
        }
    }

    /// The next received frame, if any.
    pub fn receive(&self) -> Result<Option<Vec<u8>>> {
        let mut frame = vec![0; LONGEST];
        // `struct tpacket_auxdata`.
        let mut control = nix::cmsg_space!([u32; 5]);
        let mut parts = [IoSliceMut::new(&mut frame)];
        let flags = MsgFlags::empty();
        let message =
            match recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
                Err(Errno::EAGAIN) => return Ok(None),
                done => done.trying(|| "receive a frame".to_owned())?,
            };
        let length = message.bytes;
        let mut tag = None;
        for control in message.cmsgs().trying(|| "read the control data of a frame".to_owned())? {
            if let ControlMessageOwned::Unknown(told) = control {
                tag = taken_off(&told.data_bytes);
            }
        }
        frame.truncate(length);
        if let Some(tag) = tag
            && length >= ADDRESSES
        {
            frame.splice(ADDRESSES..ADDRESSES, tag);
        }
        Ok(Some(frame))
    }

    /// Waits until one of these wires has a frame. False at the deadline.
    pub fn wait(wires: &[&Self], deadline: Instant) -> Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut polled: Vec<PollFd> =
            wires.iter().map(|w| PollFd::new(w.socket.as_fd(), PollFlags::POLLIN)).collect();
        let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, limit) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(e) => Err(e).trying(|| "wait for a frame".to_owned()),
        }
    }
}

/// The stripped tag in wire format. In order: status, length, captured length, two offsets, the
/// tag's control information, its protocol.
fn taken_off(auxdata: &[u8]) -> Option<[u8; 4]> {
    let word = |at: usize| Some(u32::from_ne_bytes(*auxdata.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u16::from_ne_bytes(*auxdata.get(at..)?.first_chunk()?));
    let status = word(0)?;
    if status & VLAN_VALID == 0 {
        return None;
    }
    let tpid = if status & VLAN_TPID_VALID == 0 { TPID } else { half(18)? };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), half(16)?.to_be_bytes());
    Some([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::taken_off;

    fn told(status: u32, control: u16, protocol: u16) -> Vec<u8> {
        let mut told = status.to_ne_bytes().to_vec();
        told.extend([0; 12]);
        told.extend(control.to_ne_bytes());
        told.extend(protocol.to_ne_bytes());
        told
    }

    #[test]
    fn stripped_vlan_tag_is_restored() {
        assert_eq!(taken_off(&told(0x51, 0x2064, 0x88a8)), Some([0x88, 0xa8, 0x20, 0x64]));
        assert_eq!(taken_off(&told(0x11, 0x2064, 0)), Some([0x81, 0, 0x20, 0x64]));
        assert_eq!(taken_off(&told(0x01, 0x2064, 0x88a8)), None);
        assert_eq!(taken_off(&[0x51, 0, 0, 0, 1]), None);
    }
}
