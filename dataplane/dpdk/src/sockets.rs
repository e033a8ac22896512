// SPDX-License-Identifier: Apache-2.0
//! The packet sockets that `net_af_packet` opened.
//!
//! The driver does not report the drops of its sockets' rings (22.11) and cannot wait for a packet,
//! so this module finds its sockets and does both. It recognises them by inode (absent before the
//! device was attached) and by the interface they are bound to. It holds duplicates, which stay
//! valid after the driver closes its own.
//!
//! Reference: packet(7), Linux `Documentation/networking/packet_mmap.rst`. Control thread, except
//! for the duplicates in a [`Waiter`](crate::Waiter).

use std::collections::HashSet;
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::info::Link;
use interface::{request, socket_ioctl};

/// Duplicates of a port's packet sockets, in order of queue.
#[derive(Debug, Default)]
pub(crate) struct PacketSockets {
    sockets: Vec<OwnedFd>,
    /// Drops read so far. A read resets the kernel's counter.
    missed: AtomicU64,
}

impl PacketSockets {
    /// Inodes of all open sockets of this process.
    pub(crate) fn open_inodes() -> HashSet<u64> {
        open_sockets().map(|(_, inode)| inode).collect()
    }

    /// The packet sockets bound to interface `if_index` that are not in `before`.
    pub(crate) fn opened_since(before: &HashSet<u64>, if_index: u32) -> Self {
        let mut found: Vec<(RawFd, OwnedFd)> = open_sockets()
            .filter(|(_, inode)| !before.contains(inode))
            .filter_map(|(fd, inode)| {
                let copy = duplicate(fd).ok()?;
                // Another thread may have closed and reused the descriptor.
                let same = nix::sys::stat::fstat(&copy).ok()?.st_ino == inode;
                (same && bound_interface(&copy) == Some(if_index)).then_some((fd, copy))
            })
            .collect();
        // The driver opens them in order of queue, each with the lowest free number.
        found.sort_by_key(|(fd, _)| *fd);
        Self {
            sockets: found.into_iter().map(|(_, copy)| copy).collect(),
            missed: AtomicU64::new(0),
        }
    }

    /// Frames that the kernel dropped because the ring was full, since the port was attached.
    pub(crate) fn missed(&self) -> u64 {
        let dropped: u64 = self.sockets.iter().map(take_drops).sum();
        self.missed.fetch_add(dropped, Ordering::Relaxed) + dropped
    }

    /// Excludes all drops up to now from the count.
    pub(crate) fn forget_missed(&self) {
        self.missed();
        self.missed.store(0, Ordering::Relaxed);
    }

    /// Hides frames that this machine sends on the interface, for example its IPv6 neighbour
    /// discovery, from the sockets. They would look like packets of the host behind the interface.
    pub(crate) fn ignore_outgoing(&self) -> io::Result<()> {
        self.sockets.iter().try_for_each(ignore_outgoing)
    }

    /// The sockets to wait on for queue `queue` of `queues`.
    pub(crate) fn of_queue(&self, queue: u16, queues: u16) -> &[OwnedFd] {
        let queue = usize::from(queue);
        if self.sockets.len() == usize::from(queues) && queue < self.sockets.len() {
            &self.sockets[queue..=queue]
        } else {
            &self.sockets
        }
    }

    /// Link state of `iface`, in the namespace of the sockets. The driver of 22.11 always reports
    /// "up, 10 Gb/s". `None` if the interface no longer exists.
    pub(crate) fn link(&self, iface: &str) -> Option<Link> {
        const GSET: u32 = 1;
        const FULL_DUPLEX: u8 = 1;
        let socket = self.sockets.first()?;
        let mut flags = request(iface);
        // SAFETY: SIOCGIFFLAGS answers within the ifreq.
        unsafe { socket_ioctl(socket, libc::SIOCGIFFLAGS as libc::Ioctl, &mut flags) }.ok()?;
        // SAFETY: SIOCGIFFLAGS has filled the `flags` member.
        let up = i32::from(unsafe { flags.ifr_ifru.ifru_flags }) & libc::IFF_RUNNING != 0;

        // struct ethtool_cmd: cmd, supported, advertising, u16 speed, u8 duplex, …; 44 bytes.
        let mut command = [GSET, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut settings = request(iface);
        settings.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
        let number = libc::SIOCETHTOOL as libc::Ioctl;
        // SAFETY: `command` is as large as struct ethtool_cmd and outlives the call.
        let known = unsafe { socket_ioctl(socket, number, &mut settings) }.is_ok();
        let halves = |word: u32| {
            let [a, b, c, d] = word.to_ne_bytes();
            (u16::from_ne_bytes([a, b]), c, d)
        };
        let (low, duplex, _) = halves(command[3]);
        let (high, _, _) = halves(command[7]);
        let speed = u32::from(high) << 16 | u32::from(low);
        Some(Link {
            up,
            mbps: (known && speed != 0 && speed != u32::MAX).then_some(speed),
            full_duplex: !known || duplex == FULL_DUPLEX,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }
}

/// All open sockets of this process as (descriptor, inode).
fn open_sockets() -> impl Iterator<Item = (RawFd, u64)> {
    fs::read_dir("/proc/self/fd").into_iter().flatten().flatten().filter_map(|entry| {
        let fd = entry.file_name().to_str()?.parse().ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        Some((fd, inode))
    })
}

fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer; a number that is not open gives EBADF.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `copy` was just opened and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// The interface that a packet socket is bound to; `None` for any other socket.
fn bound_interface(socket: &OwnedFd) -> Option<u32> {
    // SAFETY: sockaddr_ll is a C struct of integers; zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    let mut len = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is writable for `len` bytes, the kernel writes no more than that.
    let ret =
        unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    let packet = ret == 0 && i32::from(address.sll_family) == libc::AF_PACKET;
    packet.then(|| u32::try_from(address.sll_ifindex).ok()).flatten()
}

/// Reads and resets a packet socket's drops.
fn take_drops(socket: &OwnedFd) -> u64 {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = mem::size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: `stats` is writable for `len` bytes, the kernel writes no more than that.
    let ret = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut len,
        )
    };
    if ret == 0 { u64::from(stats.tp_drops) } else { 0 }
}

fn ignore_outgoing(socket: &OwnedFd) -> io::Result<()> {
    // PACKET_IGNORE_OUTGOING has no effect on a socket in a fanout group, which the driver uses. A
    // classic BPF filter runs per socket: drop if the packet type is PACKET_OUTGOING.
    const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let mut filter = [
        libc::sock_filter { code: LOAD_BYTE, jt: 0, jf: 0, k: PACKET_TYPE },
        libc::sock_filter { code: JUMP_EQUAL, jt: 0, jf: 1, k: libc::PACKET_OUTGOING.into() },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: u32::MAX },
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: `program` and the filter that it points at are valid for the call; the kernel
    // copies and checks them.
    let ret = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            mem::size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if ret == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_other_families_are_not_taken() {
        let before = PacketSockets::open_inodes();
        let _other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(PacketSockets::opened_since(&before, 1).len(), 0);
        assert!(PacketSockets::open_inodes().len() > before.len());
    }
}
