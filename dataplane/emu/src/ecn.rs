// SPDX-License-Identifier: Apache-2.0
//! Explicit congestion notification: a packet that an AQM chose is marked instead of dropped,
//! if its sender supports marks.
//!
//! RFC 3168: ECT(0) and ECT(1) become CE, in the two low bits of IPv4's type of service
//! byte or of IPv6's traffic class, also behind VLAN tags; CE stays CE and counts as
//! marked. IPv4's header checksum is updated as in RFC 1624, equation 3. Packets that are
//! Not-ECT or not IP are not marked, nor are those that every host would drop: with a damaged
//! header, or truncated. No host would see a mark on them, and the AQM's signal would be
//! lost; Linux's `INET_ECN_set_ce` does not check. Neither ECT(1)'s meaning in L4S (RFC 9331)
//! nor the inner headers of tunnels are considered.

use crate::checksum;
use crate::classify::{Class, IPV4, IPV6, classify, payload};
use crate::units::Direction;

const CE: u8 = 0b11;

/// Whether a frame's packet can be marked, or is.
#[must_use]
pub fn is_capable(frame: &[u8]) -> bool {
    // The class does not depend on the direction.
    if classify(frame, Direction::Forward) == Class::Malformed {
        return false;
    }
    let (ethertype, at) = payload(frame);
    match (ethertype, frame.get(at..)) {
        (Some(IPV4), Some(p)) => p[1] & CE != 0 && is_right(p),
        (Some(IPV6), Some(p)) => p[1] >> 4 & CE != 0,
        _ => false,
    }
}

/// Whether the checksum of a whole IPv4 header is right.
fn is_right(p: &[u8]) -> bool {
    let len = usize::from(p[0] & 0xf) * 4;
    checksum::add(0, p.get(..len).unwrap_or_default()) == 0xffff
}

/// Marks a frame's packet. Returns whether it is marked then.
pub fn mark(frame: &mut [u8]) -> bool {
    if !is_capable(frame) {
        return false;
    }
    let (ethertype, at) = payload(frame);
    let Some(p) = frame.get_mut(at..) else { return false };
    if ethertype == Some(IPV6) {
        p[1] |= CE << 4;
        return true;
    }
    let word = |p: &[u8], at: usize| u16::from_be_bytes([p[at], p[at + 1]]);
    let (before, sum) = (word(p, 0), word(p, 10));
    p[1] |= CE;
    // HC' = ~(~HC + ~m + m'), in ones' complement.
    let total = u32::from(!sum) + u32::from(!before) + u32::from(word(p, 0));
    let folded = (total & 0xffff) + (total >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let sum = !u16::try_from(folded).unwrap_or(u16::MAX);
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket};
    use proptest::prelude::*;

    /// A frame with this type of service or traffic class, behind this many VLAN tags.
    fn frame(v6: bool, class: u8, tags: usize, id: u16) -> Vec<u8> {
        let mut f = Vec::new();
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 {
            ethernet.ipv6([1; 16], [2; 16], 64)
        } else {
            ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        ip.udp(1, 2).write(&mut f, &[0; 20]).unwrap();
        if v6 {
            f[14] |= class >> 4;
            f[15] = (f[15] & 0xf) | class << 4;
        } else {
            f[15] = class;
            f[18..20].copy_from_slice(&id.to_be_bytes());
            let sum = checksum(&f[14..34]);
            f[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        for _ in 0..tags {
            f.splice(12..12, [0x81, 0, 0, 7]);
        }
        f
    }

    fn checksum(header: &[u8]) -> u16 {
        let words = header.chunks(2).enumerate().filter(|(i, _)| *i != 5);
        let sum: u32 = words.map(|(_, w)| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        !(((sum & 0xffff) + (sum >> 16)) as u16)
    }

    proptest! {
        #[test]
        fn mark_changes_only_ecn_bits_and_checksum(
            v6: bool, class: u8, tags in 0..4_usize, id: u16,
        ) {
            let before = frame(v6, class, tags, id);
            let mut after = before.clone();
            let marked = mark(&mut after);
            prop_assert_eq!(marked, class & CE != 0);
            prop_assert_eq!(is_capable(&before), marked);
            if !marked {
                prop_assert_eq!(after, before);
                return Ok(());
            }
            // The results of another parser and of a checksum computed from scratch.
            prop_assert_eq!(&after, &frame(v6, class | CE, tags, id));
            let class = match SlicedPacket::from_ethernet(&after).unwrap().net.unwrap() {
                NetSlice::Ipv4(ip) => {
                    let header = ip.header().to_header();
                    prop_assert_eq!(header.calc_header_checksum(), header.header_checksum);
                    ip.header().dcp().value() << 2 | ip.header().ecn().value()
                }
                NetSlice::Ipv6(ip) => ip.header().traffic_class(),
                NetSlice::Arp(_) => unreachable!("it is IP"),
            };
            prop_assert_eq!(class & CE, CE);
        }

        #[test]
        fn truncated_packet_is_not_marked(
            mut f in prop::collection::vec(any::<u8>(), 0..60), v6: bool, cut in 0..60_usize,
        ) {
            // Another parser accepts a marked packet as IP.
            let before = f.clone();
            let ip = SlicedPacket::from_ethernet(&before).is_ok_and(|p| p.net.is_some());
            let fits = if mark(&mut f) { ip } else { f == before };
            prop_assert!(fits);
            let mut whole = frame(v6, CE, 1, 7);
            let cut = cut * (whole.len() - 1) / 59;
            whole.truncate(cut);
            let before = whole.clone();
            prop_assert!(!mark(&mut whole), "of {} bytes", cut);
            prop_assert_eq!(whole, before);
        }

        #[test]
        fn damaged_header_is_not_marked(tags in 0..4_usize, id: u16, bit in 0..160_usize) {
            let mut f = frame(false, CE, tags, id);
            f[14 + 4 * tags + bit / 8] ^= 1 << (bit % 8);
            let before = f.clone();
            prop_assert!(!is_capable(&f));
            prop_assert!(!mark(&mut f));
            prop_assert_eq!(f, before);
        }

        #[test]
        fn options_and_padding_are_accepted(words in 0..=10_usize, padding in 0..20_usize) {
            let mut f = frame(false, 0b10, 0, 7);
            f.splice(34..34, vec![1; 4 * words]);
            f[14] += words as u8;
            let total = (f.len() - 14) as u16;
            f[16..18].copy_from_slice(&total.to_be_bytes());
            let sum = checksum(&f[14..34 + 4 * words]);
            f[24..26].copy_from_slice(&sum.to_be_bytes());
            f.extend(vec![0; padding]);
            prop_assert!(mark(&mut f));
            prop_assert_eq!(f[15] & CE, CE);
            prop_assert!(is_capable(&f), "its checksum is right");
        }
    }
}
