// SPDX-License-Identifier: Apache-2.0
//! The fields of a frame, and the values and masks of a match in the same layout.
//!
//! Both are words, so that one `&` per word applies all masks. Absent fields are zero, and each
//! field for which zero is a valid value has a bit that tells it from an absent one. Every read is
//! bounded by the length in the IP header and by the frame: a truncated field is absent.

use std::net::IpAddr;

use super::{MAX_PAIRS, Match, mask};
use crate::classify::{ETHERNET, IPV4, IPV6, VLAN_TYPES, be16, host_v4, host_v6, payload};
use crate::protocol::{
    AUTHENTICATION, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, MAX_EXTENSIONS, ROUTING, TCP, UDP,
    extension_length,
};
use crate::units::Direction;

pub(super) const WORDS: usize = 6;
pub(super) type Words = [u64; WORDS];

/// Position of a field within the words.
#[derive(Clone, Copy)]
struct Place {
    word: usize,
    shift: u32,
    bits: u32,
}

/// Addresses have two words, left-aligned: the client's, then the remote one.
const CLIENT: usize = 0;
const REMOTE: usize = 2;
const MAC: Place = Place { word: 4, shift: 16, bits: 48 };
const VLAN: Place = Place { word: 4, shift: 0, bits: 12 };
const INNER_VLAN: Place = Place { word: 5, shift: 0, bits: 12 };
/// Zero also for an unlabelled packet: [`VERSION`] tells it from IPv4.
const FLOW_LABEL: Place = Place { word: 5, shift: 12, bits: 20 };
/// With [`PRESENT_PROTOCOL`].
const PROTOCOL: Place = Place { word: 5, shift: 32, bits: 9 };
/// With [`PRESENT_DSCP`].
const DSCP: Place = Place { word: 5, shift: 41, bits: 7 };
/// Of IP: 4, 6, or 0 for another protocol and a damaged header.
const VERSION: Place = Place { word: 5, shift: 48, bits: 3 };
/// 1 if the client's address is that of one host.
const HOST: Place = Place { word: 5, shift: 51, bits: 1 };
/// Number of the port pair in a table's matches; 0 for a pair that none of them has.
const PAIR: Place = Place { word: 5, shift: 52, bits: 5 };
const _: () = assert!(MAX_PAIRS < 1 << PAIR.bits);

const PRESENT_PROTOCOL: u64 = 1 << 8;
const PRESENT_DSCP: u64 = 1 << 6;

/// Whether IPv6 packets are searched for a protocol behind this header.
pub(super) fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS)
}

/// The fields of a frame that matches compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    pub(super) words: Words,
    /// TCP or UDP ports: the client's and the remote one.
    pub(super) ports: Option<[u16; 2]>,
}

impl Fields {
    /// Parses a frame that arrived in `direction`. Never fails: fields that the frame does not
    /// have, or that are truncated, are absent.
    #[must_use]
    pub fn of(frame: &[u8], direction: Direction) -> Self {
        let mut fields = Self::default();
        fields.link(frame, direction);
        let (ethertype, at) = payload(frame);
        let packet = frame.get(at..).unwrap_or_default();
        match ethertype {
            Some(IPV4) => fields.ipv4(packet, direction),
            Some(IPV6) => fields.ipv6(packet, direction),
            _ => None,
        };
        fields
    }

    /// With the number of its port pair in the table that it is looked up in.
    #[inline]
    #[must_use]
    pub(crate) fn on_pair(mut self, number: u8) -> Self {
        self.put(PAIR, number.into());
        self
    }

    #[inline]
    fn put(&mut self, place: Place, value: u64) {
        self.words[place.word] |= value << place.shift;
    }

    #[inline]
    fn link(&mut self, frame: &[u8], direction: Direction) {
        let at = match direction {
            Direction::Forward => 0,
            Direction::Return => 6,
        };
        if let Some(mac) = frame.get(at..).and_then(|f| f.first_chunk::<6>()) {
            self.put(MAC, mac_bits(*mac));
        }
        let tag = |at: usize| {
            let is_tag = be16(frame, at - 2).is_some_and(|t| VLAN_TYPES.contains(&t));
            let id = u64::from(be16(frame, at).unwrap_or(0) & 0xfff);
            is_tag.then_some(id)
        };
        if let Some(outer) = tag(ETHERNET) {
            self.put(VLAN, outer);
            self.put(INNER_VLAN, tag(ETHERNET + 4).unwrap_or(0));
        }
    }

    /// None if the header is damaged, as in [`crate::classify`].
    #[inline]
    fn ipv4(&mut self, p: &[u8], direction: Direction) -> Option<()> {
        let &[first, tos, ..] = p.first_chunk::<20>()?;
        let header = usize::from(first & 0xf) * 4;
        let total = usize::from(be16(p, 2)?);
        let packet = p.get(..total)?;
        if first >> 4 != 4 || header < 20 || total < header {
            return None;
        }
        let (client, remote) = match direction {
            Direction::Forward => (16, 12),
            Direction::Return => (12, 16),
        };
        self.address(CLIENT, &p[client..client + 4]);
        self.address(REMOTE, &p[remote..remote + 4]);
        self.put(HOST, u64::from(host_v4(&p[client..]).is_some()));
        self.put(VERSION, 4);
        self.put(DSCP, PRESENT_DSCP | u64::from(tos >> 2));
        let protocol = p[9];
        self.put(PROTOCOL, PRESENT_PROTOCOL | u64::from(protocol));
        let offset = be16(p, 6)? & 0x1fff;
        if offset == 0 {
            self.ports(protocol, packet.get(header..)?, direction);
        }
        Some(())
    }

    /// As [`Fields::ipv4`].
    #[inline]
    fn ipv6(&mut self, p: &[u8], direction: Direction) -> Option<()> {
        let fixed = p.first_chunk::<40>()?;
        let packet = p.get(..40 + usize::from(be16(p, 4)?))?;
        if fixed[0] >> 4 != 6 {
            return None;
        }
        let (client, remote) = match direction {
            Direction::Forward => (24, 8),
            Direction::Return => (8, 24),
        };
        self.address(CLIENT, &fixed[client..client + 16]);
        self.address(REMOTE, &fixed[remote..remote + 16]);
        self.put(HOST, u64::from(host_v6(&fixed[client..]).is_some()));
        self.put(VERSION, 6);
        let [a, b, c, d, ..] = *fixed;
        let first = u32::from_be_bytes([a, b, c, d]);
        self.put(DSCP, PRESENT_DSCP | u64::from(first >> 22 & 0x3f));
        self.put(FLOW_LABEL, u64::from(first & 0xf_ffff));
        let (protocol, upper) = upper_layer(packet)?;
        self.put(PROTOCOL, PRESENT_PROTOCOL | u64::from(protocol));
        self.ports(protocol, upper, direction);
        Some(())
    }

    #[inline]
    fn address(&mut self, word: usize, bytes: &[u8]) {
        let mut padded = [0; 16];
        padded[..bytes.len()].copy_from_slice(bytes);
        let [high, low] = halves(u128::from_be_bytes(padded));
        (self.words[word], self.words[word + 1]) = (high, low);
    }

    #[inline]
    fn ports(&mut self, protocol: u8, upper: &[u8], direction: Direction) {
        if matches!(protocol, TCP | UDP)
            && let (Some(source), Some(destination)) = (be16(upper, 0), be16(upper, 2))
        {
            self.ports = Some(match direction {
                Direction::Forward => [destination, source],
                Direction::Return => [source, destination],
            });
        }
    }
}

/// The protocol of an IPv6 packet and its header, which is empty in a fragment other than the
/// first. None if the chain of extension headers is truncated or too long.
#[inline]
fn upper_layer(packet: &[u8]) -> Option<(u8, &[u8])> {
    let (mut next, mut at) = (*packet.get(6)?, 40);
    for _ in 0..MAX_EXTENSIONS {
        if !is_extension(next) {
            break;
        }
        let &[following, length] = packet.get(at..)?.first_chunk()?;
        if next == FRAGMENT && be16(packet, at + 2)? >> 3 != 0 {
            return (!is_extension(following)).then_some((following, &[]));
        }
        (next, at) = (following, at + extension_length(next, length)?);
    }
    if is_extension(next) {
        return None;
    }
    Some((next, packet.get(at..)?))
}

pub(crate) fn mac_bits([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// High and low word.
fn halves(bits: u128) -> [u64; 2] {
    [(bits >> 64) as u64, bits as u64]
}

/// Values and masks of a match. Bits outside of the mask are zero in the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pattern {
    pub value: Words,
    pub mask: Words,
}

impl Pattern {
    /// The pattern of a valid match, with the number of its port pair.
    pub fn of(of: &Match, pair: Option<u8>) -> Self {
        let mut pattern = Self::default();
        pattern.require(VLAN, of.vlan.map(u64::from));
        pattern.require(INNER_VLAN, of.inner_vlan.map(u64::from));
        pattern.require(MAC, of.mac.map(mac_bits));
        if let Some(prefix) = of.prefix {
            pattern.prefix(CLIENT, prefix);
            pattern.require(HOST, Some(1));
        }
        if let Some(prefix) = of.remote_prefix {
            pattern.prefix(REMOTE, prefix);
        }
        pattern.require(PROTOCOL, of.protocol.map(|p| PRESENT_PROTOCOL | u64::from(p)));
        pattern.require(DSCP, of.dscp.map(|dscp| PRESENT_DSCP | u64::from(dscp)));
        pattern.require(PAIR, pair.map(u64::from));
        if let Some(label) = of.flow_label {
            pattern.require(FLOW_LABEL, Some(label.into()));
            pattern.require(VERSION, Some(6));
        }
        pattern
    }

    fn require(&mut self, place: Place, value: Option<u64>) {
        let Place { word, shift, bits } = place;
        if let Some(value) = value {
            self.value[word] |= value << shift;
            self.mask[word] |= (u64::MAX >> (64 - bits)) << shift;
        }
    }

    fn prefix(&mut self, word: usize, (address, length): (IpAddr, u8)) {
        let (bits, version) = match address {
            IpAddr::V4(a) => (u128::from(a.to_bits()) << 96, 4),
            IpAddr::V6(a) => (a.to_bits(), 6),
        };
        let mask = halves(mask(length, 128).unwrap_or(u128::MAX));
        for (n, (bits, mask)) in halves(bits).into_iter().zip(mask).enumerate() {
            self.value[word + n] |= bits & mask;
            self.mask[word + n] |= mask;
        }
        self.require(VERSION, Some(version));
    }
}

#[inline]
pub(super) fn and(a: &Words, b: &Words) -> Words {
    std::array::from_fn(|n| a[n] & b[n])
}
