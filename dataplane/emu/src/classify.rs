// SPDX-License-Identifier: Apache-2.0
//! Which client a frame belongs to.
//!
//! Reads Ethernet II, any VLAN tags (802.1Q, 802.1ad), IPv4 and IPv6 headers as
//! far as the addresses. The client is the address on the satellite side: the
//! destination of a forward frame, the source of a return frame.
//!
//! Protocols without which a link between two IP hosts fails bypass impairment: ARP,
//! IPv6 neighbour discovery (RFC 4861) and everything that is not IP (LLDP, STP).
//! A frame whose IP header is damaged, or longer than the frame, is not dropped: an
//! Ethernet link would carry it. It goes to the default client and is counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::client::ClientKey;
use crate::protocol::ICMPV6;
use crate::units::Direction;

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
pub(crate) const VLAN_TAG: usize = 4;
/// The ids that a VLAN can have (IEEE 802.1Q): 0 is none, 4095 is reserved.
pub const VLAN_IDS: std::ops::RangeInclusive<u16> = 1..=4094;
/// A frame with more tags than this passes as damaged.
pub(crate) const MAX_TAGS: usize = 8;
/// 802.1Q, 802.1ad, and the old form of stacked tags.
pub(crate) const VLAN_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Ethernet's type of IPv4,
pub(crate) const IPV4: u16 = 0x0800;
/// and of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;
/// Hardware and protocol, Ethernet and IPv4; the lengths of their addresses; the operation.
const ARP_REPLY: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 2];
/// Router solicitation to redirect.
const NEIGHBOUR_DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;
const ADVERTISEMENT: u8 = 136;

/// The class of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It belongs to this client, which may not exist yet.
    Client(ClientKey),
    /// Its IP header is damaged or cut; it belongs to the default client.
    Malformed,
    /// Shorter than an Ethernet header.
    Runt,
}

#[must_use]
#[inline]
pub fn classify(frame: &[u8], direction: Direction) -> Class {
    if frame.len() < ETHERNET {
        return Class::Runt;
    }
    let (ethertype, at) = payload(frame);
    let packet = frame.get(at..).unwrap_or_default();
    match ethertype {
        Some(IPV4) => ipv4(packet, direction),
        Some(IPV6) => ipv6(packet, direction),
        Some(t) if !VLAN_TYPES.contains(&t) => Class::Client(ClientKey::Bypass),
        _ => Class::Malformed,
    }
}

/// The EtherType behind a frame's VLAN tags, and the offset of the payload.
#[inline]
pub fn payload(frame: &[u8]) -> (Option<u16>, usize) {
    let mut at = ETHERNET - 2;
    let mut ethertype = be16(frame, at);
    for _ in 0..MAX_TAGS {
        match ethertype {
            Some(t) if VLAN_TYPES.contains(&t) => {
                at += VLAN_TAG;
                ethertype = be16(frame, at);
            }
            _ => break,
        }
    }
    (ethertype, at + 2)
}

/// The address on the satellite side of a frame that holds a whole IPv4 packet, without VLAN tags and
/// without options; none of any other frame. The address may not be that of one host.
#[inline]
pub(crate) fn plain_v4(frame: &[u8], direction: Direction) -> Option<u32> {
    const HEADERS: usize = ETHERNET + 20;
    let headers = frame.first_chunk::<HEADERS>()?;
    let be16 = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
    let total = usize::from(be16(ETHERNET + 2));
    let is_plain = be16(ETHERNET - 2) == IPV4 && headers[ETHERNET] == 0x45;
    if !is_plain || total < HEADERS - ETHERNET || total > frame.len() - ETHERNET {
        return None;
    }
    let at = if direction == Direction::Forward { HEADERS - 4 } else { HEADERS - 8 };
    headers[at..].first_chunk().map(|address| u32::from_be_bytes(*address))
}

#[inline]
fn ipv4(p: &[u8], direction: Direction) -> Class {
    let Some(&[first, ..]) = p.first_chunk::<20>() else {
        return Class::Malformed;
    };
    let header = usize::from(first & 0xf) * 4;
    let total = usize::from(be16(p, 2).unwrap_or(0));
    if first >> 4 != 4 || header < 20 || total < header || total > p.len() {
        return Class::Malformed;
    }
    let at = match direction {
        Direction::Forward => 16,
        Direction::Return => 12,
    };
    Class::Client(host_v4(&p[at..]).map_or(ClientKey::Default, ClientKey::Ip))
}

/// The address at the beginning of `bytes`, if it can be one host's.
#[inline]
pub(crate) fn host_v4(bytes: &[u8]) -> Option<IpAddr> {
    let a = Ipv4Addr::from(*bytes.first_chunk::<4>()?);
    is_host_v4(a).then_some(IpAddr::V4(a))
}

/// Whether an address can be that of one host.
#[inline]
pub(crate) fn is_host_v4(a: Ipv4Addr) -> bool {
    !(a.is_multicast()
        || a.is_broadcast()
        || a.is_unspecified()
        || a.is_loopback()
        || a.is_link_local())
}

fn ipv6(p: &[u8], direction: Direction) -> Class {
    if p.len() < 40 || p[0] >> 4 != 6 {
        return Class::Malformed;
    }
    let payload = usize::from(be16(p, 4).unwrap_or(0));
    if 40 + payload > p.len() {
        return Class::Malformed;
    }
    if p[6] == ICMPV6 && p.get(40).is_some_and(|t| NEIGHBOUR_DISCOVERY.contains(t)) {
        return Class::Client(ClientKey::Bypass);
    }
    let at = match direction {
        Direction::Forward => 24,
        Direction::Return => 8,
    };
    Class::Client(host_v6(&p[at..]).map_or(ClientKey::Default, ClientKey::Ip))
}

/// As [`host_v4`].
pub(crate) fn host_v6(bytes: &[u8]) -> Option<IpAddr> {
    let a = Ipv6Addr::from(*bytes.first_chunk::<16>()?);
    let one_host =
        !(a.is_multicast() || a.is_unspecified() || a.is_loopback() || a.is_unicast_link_local());
    one_host.then_some(IpAddr::V6(a))
}

/// The client of the address that a frame resolves: an answer from the client side.
#[must_use]
pub fn resolved_client(frame: &[u8], direction: Direction) -> Option<ClientKey> {
    match direction {
        Direction::Forward => None,
        Direction::Return => resolved(frame).map(ClientKey::Ip),
    }
}

/// The sender's IP address in a unicast ARP reply (RFC 826) or neighbour advertisement (RFC 4861),
/// to which the receiver will send next. None if the address cannot be that of one host.
fn resolved(frame: &[u8]) -> Option<IpAddr> {
    let group = frame.first()? & 1 == 1;
    let (ethertype, at) = payload(frame);
    let packet = frame.get(at..)?;
    match ethertype? {
        _ if group => None,
        ARP if packet.starts_with(&ARP_REPLY) => host_v4(packet.get(14..)?),
        IPV6 if packet.get(6) == Some(&ICMPV6) && packet.get(40) == Some(&ADVERTISEMENT) => {
            host_v6(packet.get(8..)?)
        }
        _ => None,
    }
}

#[inline]
pub(crate) fn be16(b: &[u8], at: usize) -> Option<u16> {
    b.get(at..)?.first_chunk::<2>().map(|w| u16::from_be_bytes(*w))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket};
    use proptest::prelude::*;

    fn v4(source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
        let mut f = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4(source, destination, 64)
            .udp(1, 2)
            .write(&mut f, &[0; 20])
            .unwrap();
        f
    }

    fn client(a: &str) -> Class {
        Class::Client(ClientKey::Ip(a.parse().unwrap()))
    }

    #[test]
    fn the_client_is_the_address_on_the_satellite_side() {
        let f = v4([10, 0, 0, 1], [10, 0, 0, 2]);
        assert_eq!(classify(&f, Direction::Forward), client("10.0.0.2"));
        assert_eq!(classify(&f, Direction::Return), client("10.0.0.1"));
    }

    #[test]
    fn vlan_tags_are_seen_through() {
        let plain = v4([10, 0, 0, 1], [10, 0, 0, 2]);
        let mut f = plain[..12].to_vec();
        for tag in [[0x88, 0xa8, 0, 5], [0x81, 0, 0, 7], [0x91, 0, 0, 1]] {
            f.extend(tag);
            let mut tagged = f.clone();
            tagged.extend(&plain[12..]);
            assert_eq!(classify(&tagged, Direction::Forward), client("10.0.0.2"));
        }
        // Tags without end.
        let mut endless = plain[..12].to_vec();
        endless.extend([0x81, 0, 0, 7].repeat(20));
        assert_eq!(classify(&endless, Direction::Forward), Class::Malformed);
    }

    #[test]
    fn control_protocols_bypass() {
        let of_type = |t: [u8; 2]| {
            let mut f = vec![0xff; 12];
            f.extend(t);
            f.extend([0; 46]);
            classify(&f, Direction::Forward)
        };
        // ARP, LLDP, and an 802.3 length (STP).
        for t in [[0x08, 0x06], [0x88, 0xcc], [0x00, 0x26]] {
            assert_eq!(of_type(t), Class::Client(ClientKey::Bypass));
        }
        let mut nd = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv6([1; 16], [2; 16], 255)
            .icmpv6_raw(135, 0, [0; 4])
            .write(&mut nd, &[0; 16])
            .unwrap();
        assert_eq!(classify(&nd, Direction::Return), Class::Client(ClientKey::Bypass));
    }

    #[test]
    fn unicast_reply_resolves_sender_address() {
        let arp = |head: [u8; 8], sender: [u8; 4]| {
            let addresses = [&[2; 6][..], &sender, &[4; 6], &[10, 0, 0, 9]].concat();
            ethernet(ARP, &[&head[..], &addresses].concat())
        };
        let reply = arp(ARP_REPLY, [10, 0, 0, 1]);
        assert_eq!(resolved(&reply), Some("10.0.0.1".parse().unwrap()));
        for cut in 0..14 + 18 {
            assert_eq!(resolved(&reply[..cut]), None, "{cut}");
        }
        let advertisement = [ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0];
        let advertisement = ethernet(IPV6, &v6("2001:db8::2", ICMPV6, &advertisement));
        assert_eq!(resolved(&advertisement), Some("2001:db8::1".parse().unwrap()));
        // To all hosts.
        for frame in [&reply, &advertisement] {
            assert_eq!(resolved(&[&[0xff], &frame[1..]].concat()), None);
        }
        // A request, other hardware, another length, an address that is not a host's.
        for (head, sender) in [
            ([0, 1, 8, 0, 6, 4, 0, 1], [10, 0, 0, 1]),
            ([0, 6, 8, 0, 6, 4, 0, 2], [10, 0, 0, 1]),
            ([0, 1, 8, 0, 6, 16, 0, 2], [10, 0, 0, 1]),
            (ARP_REPLY, [0; 4]),
        ] {
            assert_eq!(resolved(&arp(head, sender)), None, "{head:?}");
        }
        let solicitation = [135, 0, 0, 0, 0, 0, 0, 0];
        for (next, payload) in [(ICMPV6, solicitation), (17, [0; 8])] {
            assert_eq!(resolved(&ethernet(IPV6, &v6("2001:db8::2", next, &payload))), None);
        }
        assert_eq!(resolved(&v4([10, 0, 0, 1], [10, 0, 0, 2])), None);
    }

    #[test]
    fn multihost_addresses_belong_to_default_client() {
        for a in [[224, 0, 0, 1], [255; 4], [0; 4], [127, 0, 0, 1], [169, 254, 1, 1]] {
            let f = v4([10, 0, 0, 1], a);
            assert_eq!(classify(&f, Direction::Forward), Class::Client(ClientKey::Default));
        }
    }

    #[test]
    fn truncated_packet_is_detected() {
        let f = v4([10, 0, 0, 1], [10, 0, 0, 2]);
        for n in 0..f.len() {
            let expected = if n < 14 { Class::Runt } else { Class::Malformed };
            assert_eq!(classify(&f[..n], Direction::Forward), expected, "{n}");
        }
    }

    fn ethernet(ethertype: u16, packet: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &ethertype.to_be_bytes(), packet].concat()
    }

    /// From 2001:db8::1.
    fn v6(destination: &str, next_header: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u16).to_be_bytes();
        let destination: Ipv6Addr = destination.parse().unwrap();
        let source: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let fixed = [0x60, 0, 0, 0, length[0], length[1], next_header, 64];
        [&fixed[..], &source.octets(), &destination.octets(), payload].concat()
    }

    #[test]
    fn ipv6_client_is_the_address_on_the_satellite_side() {
        // No next header, and nothing behind it.
        let f = ethernet(IPV6, &v6("2001:db8::2", 59, &[]));
        assert_eq!(classify(&f, Direction::Forward), client("2001:db8::2"));
        assert_eq!(classify(&f, Direction::Return), client("2001:db8::1"));
    }

    #[test]
    fn ipv6_addresses_of_no_one_host_belong_to_the_default_client() {
        for a in ["ff02::1", "::", "::1", "fe80::1"] {
            let f = ethernet(IPV6, &v6(a, 17, &[0; 8]));
            assert_eq!(classify(&f, Direction::Forward), Class::Client(ClientKey::Default), "{a}");
        }
    }

    #[test]
    fn only_neighbour_discovery_bypasses_of_ipv6() {
        let of = |next, payload: &[u8]| {
            classify(&ethernet(IPV6, &v6("2001:db8::2", next, payload)), Direction::Forward)
        };
        for kind in [133, 135, 137] {
            assert_eq!(of(ICMPV6, &[kind, 0, 0, 0]), Class::Client(ClientKey::Bypass), "{kind}");
            // The first byte of a UDP port.
            assert_eq!(of(17, &[kind, 0, 0, 0]), client("2001:db8::2"), "{kind}");
        }
        for kind in [128, 132, 138] {
            assert_eq!(of(ICMPV6, &[kind, 0, 0, 0]), client("2001:db8::2"), "{kind}");
        }
        assert_eq!(of(ICMPV6, &[]), client("2001:db8::2"));
    }

    #[test]
    fn ipv6_header_that_does_not_fit_its_frame_is_malformed() {
        let whole = v6("2001:db8::2", 17, &[0; 8]);
        let mut short = whole.clone();
        short.truncate(47);
        let mut version = whole.clone();
        version[0] = 0x40;
        for wrong in [&short[..], &version, &whole[..39]] {
            let f = ethernet(IPV6, wrong);
            assert_eq!(classify(&f, Direction::Forward), Class::Malformed, "{wrong:?}");
        }
        // Padded by the wire.
        let padded = ethernet(IPV6, &[&whole[..], &[0; 6]].concat());
        assert_eq!(classify(&padded, Direction::Forward), client("2001:db8::2"));
    }

    #[test]
    fn ipv4_header_that_does_not_fit_its_frame_is_malformed() {
        // The first byte, the total length, and the length of the payload.
        let of = |first, total: u16, length| {
            let mut packet = vec![0; length];
            packet[0] = first;
            packet[2..4].copy_from_slice(&total.to_be_bytes());
            packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
            classify(&ethernet(IPV4, &packet), Direction::Forward)
        };
        for (first, total, length) in
            [(0x45, 20, 20), (0x45, 20, 46), (0x46, 24, 24), (0x4f, 60, 60)]
        {
            assert_eq!(of(first, total, length), client("10.0.0.2"), "{first:x} {total} {length}");
        }
        for (first, total, length) in
            [(0x44, 20, 20), (0x65, 20, 20), (0x46, 23, 40), (0x45, 19, 20), (0x45, 21, 20)]
        {
            assert_eq!(of(first, total, length), Class::Malformed, "{first:x} {total} {length}");
        }
    }

    #[test]
    fn frame_of_a_header_alone_is_no_runt() {
        assert_eq!(
            classify(&ethernet(0x88cc, &[]), Direction::Forward),
            Class::Client(ClientKey::Bypass)
        );
    }

    #[test]
    fn eight_vlan_tags_are_read_and_nine_are_malformed() {
        let plain = v4([10, 0, 0, 1], [10, 0, 0, 2]);
        for (tags, expected) in [(MAX_TAGS, client("10.0.0.2")), (MAX_TAGS + 1, Class::Malformed)] {
            let f = [&plain[..12], &[0x81_u8, 0, 0, 7].repeat(tags), &plain[12..]].concat();
            assert_eq!(classify(&f, Direction::Forward), expected);
        }
    }

    proptest! {
        #[test]
        fn no_frame_panics(frame in prop::collection::vec(any::<u8>(), 0..200), forward: bool) {
            let d = if forward { Direction::Forward } else { Direction::Return };
            let _ = classify(&frame, d);
        }

        /// The short way gives the address that the class has.
        #[test]
        fn plain_address_is_that_of_the_class(
            mut frame in prop::collection::vec(any::<u8>(), 14..120),
            ethertype in prop_oneof![4 => Just([8_u8, 0]), 1 => Just([0x81, 0])],
            first in prop_oneof![4 => Just(0x45_u8), 1 => Just(0x46)],
            total in 18_u16..130,
            low in prop_oneof![Just(0_u8), Just(1), Just(127), Just(169), Just(224), Just(255)],
            forward: bool,
        ) {
            let d = if forward { Direction::Forward } else { Direction::Return };
            frame[12..14].copy_from_slice(&ethertype);
            if frame.len() > 30 {
                frame[14] = first;
                frame[16..18].copy_from_slice(&total.to_be_bytes());
                frame[if forward { 30 } else { 26 }] = low;
            }
            let Some(address) = plain_v4(&frame, d) else {
                let fits = usize::from(total) <= frame.len() - 14 && total >= 20;
                prop_assert!(ethertype != [8, 0] || first != 0x45 || frame.len() < 34 || !fits);
                return Ok(());
            };
            let expected = match is_host_v4(address.into()) {
                true => ClientKey::Ip(IpAddr::V4(address.into())),
                false => ClientKey::Default,
            };
            prop_assert_eq!(classify(&frame, d), Class::Client(expected));
        }

        /// Where etherparse reads an IP header, we read the same addresses.
        #[test]
        fn etherparse_agrees(
            mut frame in prop::collection::vec(any::<u8>(), 14..120),
            ethertype in prop_oneof![Just([8_u8, 0]), Just([0x86, 0xdd])],
            first in prop_oneof![Just(0x45_u8), Just(0x46), Just(0x60)],
            tags in 0_usize..3,
        ) {
            let mut f: Vec<u8> = frame.drain(..12).collect();
            for _ in 0..tags {
                f.extend([0x81, 0, 0, 1]);
            }
            f.extend(ethertype);
            f.push(first);
            f.extend(frame);
            let end = f.len();
            let l3 = 14 + 4 * tags;
            // Lengths that fit, most of the time.
            if ethertype == [8, 0] && end >= l3 + 20 {
                f[l3 + 2..l3 + 4].copy_from_slice(&((end - l3) as u16).to_be_bytes());
            } else if end >= l3 + 40 {
                f[l3 + 4..l3 + 6].copy_from_slice(&((end - l3 - 40) as u16).to_be_bytes());
            }
            let Ok(parsed) = SlicedPacket::from_ethernet(&f) else { return Ok(()) };
            let addresses: Option<(IpAddr, IpAddr)> = match parsed.net {
                Some(NetSlice::Ipv4(p)) => {
                    Some((p.header().source_addr().into(), p.header().destination_addr().into()))
                }
                Some(NetSlice::Ipv6(p)) => {
                    Some((p.header().source_addr().into(), p.header().destination_addr().into()))
                }
                _ => None,
            };
            if let Some((source, destination)) = addresses {
                for (d, a) in [(Direction::Forward, destination), (Direction::Return, source)] {
                    match classify(&f, d) {
                        Class::Client(ClientKey::Ip(seen)) => prop_assert_eq!(seen, a),
                        Class::Client(_) => {}
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
            }
        }
    }
}
