// SPDX-License-Identifier: Apache-2.0
//! Offloads of a kernel interface that break a packet path on top of it.
//!
//! A sender with checksum or segmentation offload emits packets with incomplete checksums and
//! segments of up to 64 KB. A receiver with GRO or LRO merges packets. Over `net_af_packet` the
//! former never reach TCP on the other host and the latter arrive truncated. (On a veth pair, the
//! transmit offloads of the *host's* end matter; those of our end do no harm.)
//!
//! Reference: Linux `include/uapi/linux/ethtool.h`, `ETHTOOL_GFEATURES`, `ETHTOOL_SFEATURES`, by
//! the names that `ethtool -k` shows. Control thread; disabling needs CAP_NET_ADMIN.

use std::fmt;
use std::io;

use crate::Error;
use crate::iface::{Interface, interface_ioctl};

const GSTRINGS: u32 = 0x1b;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const SFEATURES: u32 = 0x3b;
const SET_FEATURES: u32 = 4;
const NAME_BYTES: usize = 32;
/// No kernel has more; bounds the allocation that a broken driver could cause.
const MOST_FEATURES: usize = 1024;

/// A kind of offload that breaks the packet path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Offload {
    /// The interface computes transmit checksums.
    TxChecksum,
    Tso,
    Uso,
    /// The kernel segments just before the interface.
    Gso,
    /// The kernel or the interface merges received packets.
    Gro,
    /// The interface merges received packets and loses their boundaries.
    Lro,
}

impl Offload {
    fn of_feature(name: &str) -> Option<Self> {
        Some(match name {
            "tx-checksum-ip-generic"
            | "tx-checksum-ipv4"
            | "tx-checksum-ipv6"
            | "tx-checksum-sctp" => Self::TxChecksum,
            "tx-tcp-segmentation"
            | "tx-tcp6-segmentation"
            | "tx-tcp-ecn-segmentation"
            | "tx-tcp-mangleid-segmentation" => Self::Tso,
            "tx-udp-segmentation" => Self::Uso,
            "tx-generic-segmentation" => Self::Gso,
            "rx-gro" | "rx-gro-hw" | "rx-gro-list" | "rx-udp-gro-forwarding" => Self::Gro,
            "rx-lro" => Self::Lro,
            _ => return None,
        })
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TxChecksum => "tx-checksumming",
            Self::Tso => "tcp-segmentation-offload",
            Self::Uso => "tx-udp-segmentation",
            Self::Gso => "generic-segmentation-offload",
            Self::Gro => "generic-receive-offload",
            Self::Lro => "large-receive-offload",
        })
    }
}

/// Enabled offloads of interface `iface` in the calling thread's network namespace.
///
/// # Errors
/// [`Error::NoInterface`], or [`Error::Offload`] if the kernel does not report them.
pub fn offloads(iface: &str) -> Result<Vec<Offload>, Error> {
    let interface = find(iface)?;
    let (features, _) = read(&interface).map_err(|source| read_error(iface, source))?;
    Ok(kinds(features.iter().filter(|feature| feature.active)))
}

/// Offloads of an interface that were disabled.
#[derive(Clone, Debug)]
pub struct Disabled {
    interface: Interface,
    /// By number of the feature, those that were enabled.
    bits: Vec<usize>,
    blocks: usize,
    kinds: Vec<Offload>,
}

impl Disabled {
    #[must_use]
    pub fn iface(&self) -> &str {
        self.interface.name()
    }

    #[must_use]
    pub fn kinds(&self) -> &[Offload] {
        &self.kinds
    }

    /// Enables them again. An interface that was removed meanwhile has none.
    ///
    /// # Errors
    /// [`Error::Offload`] without CAP_NET_ADMIN.
    pub fn enable(&self) -> Result<(), Error> {
        let iface = self.iface();
        if self.bits.is_empty() || Interface::find(iface).as_ref() != Some(&self.interface) {
            return Ok(());
        }
        set(&self.interface, self.blocks, &self.bits, true).map_err(|source| Error::Offload {
            iface: iface.to_owned(),
            action: "enable",
            source,
            remedy: "enable them with `ethtool -K`",
        })
    }
}

/// Disables all enabled offloads of interface `iface` that can be disabled, and returns these. Call
/// [`offloads`] for those that remain enabled.
///
/// # Errors
/// [`Error::NoInterface`], or [`Error::Offload`] without CAP_NET_ADMIN.
pub fn disable_offloads(iface: &str) -> Result<Disabled, Error> {
    let interface = find(iface)?;
    let read = || read(&interface).map_err(|source| read_error(iface, source));
    let (before, blocks) = read()?;
    let changeable = |feature: &&Feature| feature.changeable;
    let wanted: Vec<usize> = before.iter().filter(changeable).map(|feature| feature.bit).collect();
    if before.iter().any(|feature| feature.active && feature.changeable) {
        set(&interface, blocks, &wanted, false).map_err(|source| Error::Offload {
            iface: iface.to_owned(),
            action: "disable",
            source,
            remedy: "run as root or with CAP_NET_ADMIN",
        })?;
    }
    let (after, _) = read()?;
    let still = |bit: usize| after.iter().any(|feature| feature.bit == bit && feature.active);
    let off = |feature: &&Feature| feature.active && !still(feature.bit);
    let bits = before.iter().filter(off).map(|feature| feature.bit).collect();
    let mut off = kinds(before.iter().filter(|feature| feature.active));
    let still = kinds(after.iter().filter(|feature| feature.active));
    off.retain(|kind| !still.contains(kind));
    Ok(Disabled { interface, bits, blocks, kinds: off })
}

/// Requests that features are on or off.
fn set(interface: &Interface, blocks: usize, bits: &[usize], on: bool) -> io::Result<()> {
    // struct ethtool_sfeatures { u32 cmd, size; { u32 valid, requested; } features[]; }
    let mut request = vec![0_u32; 2 + 2 * blocks];
    (request[0], request[1]) = (SFEATURES, blocks as u32);
    for bit in bits {
        let (block, mask) = (2 + 2 * (bit / 32), 1 << (bit % 32));
        request[block] |= mask;
        request[block + 1] |= if on { mask } else { 0 };
    }
    ethtool(interface, &mut request)
}

struct Feature {
    kind: Offload,
    bit: usize,
    active: bool,
    changeable: bool,
}

fn kinds<'a>(features: impl Iterator<Item = &'a Feature>) -> Vec<Offload> {
    let mut kinds: Vec<Offload> = features.map(|feature| feature.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn find(iface: &str) -> Result<Interface, Error> {
    Interface::find(iface).ok_or_else(|| Error::NoInterface {
        iface: iface.to_owned(),
        existing: Interface::existing(),
    })
}

fn read_error(iface: &str, source: io::Error) -> Error {
    Error::Offload {
        iface: iface.to_owned(),
        action: "read",
        source,
        remedy: "check with `ethtool -k`",
    }
}

/// Reads the state of all features that are an [`Offload`], and the number of 32-feature blocks.
fn read(interface: &Interface) -> io::Result<(Vec<Feature>, usize)> {
    // struct ethtool_sset_info { u32 cmd, reserved; u64 sset_mask; u32 data[]; }
    let mut info = [GSSET_INFO, 0, 0, 0, 0];
    info[if cfg!(target_endian = "little") { 2 } else { 3 }] = 1 << SET_FEATURES;
    ethtool(interface, &mut info)?;
    let count = (info[4] as usize).min(MOST_FEATURES);

    // struct ethtool_gstrings { u32 cmd, string_set, len; u8 data[]; }
    let mut names = vec![0_u32; 3 + count * NAME_BYTES / 4];
    (names[0], names[1], names[2]) = (GSTRINGS, SET_FEATURES, count as u32);
    ethtool(interface, &mut names)?;
    let text: Vec<u8> = names[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();

    // struct ethtool_gfeatures { u32 cmd, size; { u32 available, requested, active,
    // never_changed; } features[]; }
    let blocks = count.div_ceil(32);
    let mut state = vec![0_u32; 2 + 4 * blocks];
    (state[0], state[1]) = (GFEATURES, blocks as u32);
    ethtool(interface, &mut state)?;

    let features = text.chunks_exact(NAME_BYTES).enumerate().filter_map(|(bit, name)| {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        let kind = Offload::of_feature(std::str::from_utf8(&name[..end]).ok()?)?;
        let block = &state[2 + 4 * (bit / 32)..];
        let is_set = |word: usize| block[word] & (1 << (bit % 32)) != 0;
        Some(Feature { kind, bit, active: is_set(2), changeable: is_set(0) && !is_set(3) })
    });
    Ok((features.collect(), blocks))
}

fn ethtool(interface: &Interface, command: &mut [u32]) -> io::Result<()> {
    let mut request = interface.request();
    request.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
    // SAFETY: `command` is as long as its own header says, and outlives the call.
    unsafe { interface_ioctl(libc::SIOCETHTOOL as libc::Ioctl, &mut request) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_offloads_and_a_missing_interface_has_none() {
        match offloads("lo") {
            Ok(on) => assert!(on.contains(&Offload::TxChecksum), "{on:?}"),
            Err(error) => eprintln!("SKIPPED: {error}"),
        }
        let error = offloads("nosuch0").unwrap_err().to_string();
        assert!(error.contains("`nosuch0`"), "{error}");
    }
}
