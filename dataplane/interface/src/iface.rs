// SPDX-License-Identifier: Apache-2.0
//! A kernel network interface in the calling thread's network namespace: index, MTU, flags.
//!
//! It uses ioctl, not /sys: /sys shows the namespace in which it was mounted. Control thread.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::net::if_::{if_nameindex, if_nametoindex};

use crate::Error;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    name: String,
    index: u32,
}

impl Interface {
    /// Finds `name` in the calling thread's network namespace.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return None;
        }
        let index = if_nametoindex(name).ok()?;
        Some(Self { name: name.to_owned(), index })
    }

    /// The names of all interfaces of the calling thread's network namespace.
    #[must_use]
    pub fn existing() -> Vec<String> {
        let Ok(list) = if_nameindex() else {
            return Vec::new();
        };
        let mut names: Vec<String> =
            list.iter().map(|entry| entry.name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// MTU, in bytes of layer 3.
    ///
    /// # Errors
    /// [`Error::Io`] if the interface is gone.
    pub fn mtu(&self) -> Result<u32, Error> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFMTU as libc::Ioctl, &mut request, "read the MTU")?;
        // SAFETY: SIOCGIFMTU has filled the `mtu` member.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(u32::try_from(mtu).unwrap_or(0))
    }

    /// True if an administrator set promiscuous mode (`IFF_PROMISC`).
    ///
    /// # Errors
    /// [`Error::Io`] if the interface is gone.
    pub fn promiscuous(&self) -> Result<bool, Error> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFFLAGS as libc::Ioctl, &mut request, "read the flags")?;
        // SAFETY: SIOCGIFFLAGS has filled the `flags` member.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(i32::from(flags) & libc::IFF_PROMISC != 0)
    }

    #[must_use]
    pub fn request(&self) -> libc::ifreq {
        request(&self.name)
    }

    fn ioctl(
        &self,
        number: libc::Ioctl,
        request: &mut libc::ifreq,
        action: &'static str,
    ) -> Result<(), Error> {
        // SAFETY: called only for requests that answer within the ifreq.
        unsafe { interface_ioctl(number, request) }.map_err(|source| Error::Io {
            iface: self.name.clone(),
            action,
            source,
        })
    }
}

/// A zeroed `ifreq` with `name`, truncated if too long.
#[must_use]
pub fn request(name: &str) -> libc::ifreq {
    // SAFETY: ifreq is a C struct of integers and a union of plain data; zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let text = name.bytes().take(libc::IFNAMSIZ - 1);
    for (to, from) in request.ifr_name.iter_mut().zip(text) {
        *to = from as libc::c_char;
    }
    request
}

/// Runs an interface ioctl that takes an `ifreq`.
///
/// # Safety
/// If the ioctl follows the data pointer in `request`, it points to memory of the size and content
/// that the ioctl requires.
pub unsafe fn interface_ioctl(number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the caller vouches for it.
    unsafe { socket_ioctl(&socket, number, request) }
}

/// As [`interface_ioctl`], in the network namespace that `socket` was opened in.
///
/// # Safety
/// As for [`interface_ioctl`].
pub unsafe fn socket_ioctl(
    socket: &OwnedFd,
    number: libc::Ioctl,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: `request` is a valid ifreq for the duration of the call; the caller vouches for a
    // data pointer in it.
    let ret = unsafe { libc::ioctl(socket.as_raw_fd(), number, std::ptr::from_mut(request)) };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// # Errors
/// `EPERM` where the process may not open packet sockets.
pub fn may_open_packet_socket() -> io::Result<()> {
    // SAFETY: takes no pointers. Protocol 0: the socket receives nothing.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened and nothing else owns it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_exists_and_has_an_mtu() {
        let Some(lo) = Interface::find("lo") else {
            eprintln!("SKIPPED: no loopback interface here");
            return;
        };
        assert!(lo.mtu().unwrap() >= 1280);
        assert!(Interface::existing().contains(&"lo".to_owned()));
    }

    #[test]
    fn impossible_names_are_not_found() {
        assert_eq!(Interface::find(""), None);
        assert_eq!(Interface::find("a-name-longer-than-the-kernel-allows"), None);
        assert_eq!(Interface::find("nosuch0"), None);
    }
}
