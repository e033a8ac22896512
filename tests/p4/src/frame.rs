// SPDX-License-Identifier: Apache-2.0
//! A short notation for frames: `Frame::v4(SERVER, CLIENT).vlan(7).ecn(2).bytes()`.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{
    EtherType, Ethernet2Header, IpNumber, Ipv4Header, Ipv4Options, Ipv6FlowLabel, Ipv6Header,
    SingleVlanHeader, UdpHeader, VlanId,
};
use smoke::raw::Mac;

use crate::target::Target;

pub const SERVER_MAC: Mac = [2, 0, 0, 0, 1, 1];
pub const CLIENT_MAC: Mac = [2, 0, 0, 0, 2, 1];
/// EtherType of a customer tag.
pub const C_TAG: u16 = 0x8100;
/// EtherType of a provider tag.
const S_TAG: u16 = 0x88a8;
/// EtherType of stacked tags before 802.1ad.
const OLD_TAG: u16 = 0x9100;
/// First and last ICMPv6 type of IPv6 Neighbor Discovery (RFC 4861).
pub const ND: std::ops::RangeInclusive<u8> = 133..=137;
const PORTS: (u16, u16) = (4000, 4001);

/// EtherType of an outer tag. DPDK's `net_af_packet` gives an outer 802.1ad tag to SWX as 802.1Q, so
/// there it is the one before 802.1ad. A test of `linkd-p4switch` has 802.1ad.
#[must_use]
pub fn outer_tag() -> u16 {
    if Target::is_bmv2() { S_TAG } else { OLD_TAG }
}

#[derive(Clone, Debug)]
enum Body {
    V4(Box<Ipv4Header>, Vec<u8>),
    V6(Ipv6Header, Vec<u8>),
    Other(u16, Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct Frame {
    source: Mac,
    target: Mac,
    tags: Vec<(u16, u16)>,
    body: Body,
}

/// UDP with a correct checksum.
fn udp(payload: &[u8], checksum: impl Fn(UdpHeader) -> Option<u16>) -> Vec<u8> {
    let length = UdpHeader::LEN + payload.len();
    let mut header = UdpHeader {
        source_port: PORTS.0,
        destination_port: PORTS.1,
        length: u16::try_from(length).unwrap_or(u16::MAX),
        checksum: 0,
    };
    header.checksum = checksum(header.clone()).unwrap_or_default();
    [&header.to_bytes()[..], payload].concat()
}

impl Frame {
    fn of(body: Body) -> Self {
        Self { source: SERVER_MAC, target: CLIENT_MAC, tags: Vec::new(), body }
    }

    /// UDP over IPv4, from the server's MAC to the client's.
    #[must_use]
    pub fn v4(source: Ipv4Addr, target: Ipv4Addr) -> Self {
        let mut ip = Ipv4Header {
            source: source.octets(),
            destination: target.octets(),
            protocol: IpNumber::UDP,
            time_to_live: 64,
            ..Ipv4Header::default()
        };
        let payload = [0xa5; 26];
        let udp = udp(&payload, |u| u.calc_checksum_ipv4(&ip, &payload).ok());
        ip.total_len = u16::try_from(Ipv4Header::MIN_LEN + udp.len()).unwrap_or(u16::MAX);
        Self::of(Body::V4(Box::new(ip), udp))
    }

    /// UDP over IPv6, from the server's MAC to the client's.
    #[must_use]
    pub fn v6(source: Ipv6Addr, target: Ipv6Addr) -> Self {
        let mut ip = v6(source, target, IpNumber::UDP);
        let payload = [0x5a; 26];
        let udp = udp(&payload, |u| u.calc_checksum_ipv6(&ip, &payload).ok());
        ip.payload_length = u16::try_from(udp.len()).unwrap_or(u16::MAX);
        Self::of(Body::V6(ip, udp))
    }

    /// ICMPv6 of a type, with eight more bytes.
    #[must_use]
    pub fn icmp6(source: Ipv6Addr, target: Ipv6Addr, kind: u8) -> Self {
        let ip = Ipv6Header { payload_length: 8, ..v6(source, target, IpNumber::IPV6_ICMP) };
        Self::of(Body::V6(ip, vec![kind, 0, 0, 0, 1, 2, 3, 4]))
    }

    #[must_use]
    pub fn other(ethertype: u16, bytes: &[u8]) -> Self {
        Self::of(Body::Other(ethertype, bytes.to_vec()))
    }

    #[must_use]
    pub fn between(mut self, source: Mac, target: Mac) -> Self {
        (self.source, self.target) = (source, target);
        self
    }

    /// Swaps the source and destination of MACs and IP addresses.
    #[must_use]
    pub fn back(mut self) -> Self {
        std::mem::swap(&mut self.source, &mut self.target);
        match &mut self.body {
            Body::V4(ip, _) => std::mem::swap(&mut ip.source, &mut ip.destination),
            Body::V6(ip, _) => std::mem::swap(&mut ip.source, &mut ip.destination),
            Body::Other(..) => (),
        }
        self
    }

    /// Adds a VLAN tag; the first call adds the outermost.
    #[must_use]
    pub fn vlan(self, id: u16) -> Self {
        self.tag(C_TAG, id)
    }

    /// Adds a tag with this control information.
    #[must_use]
    pub fn tag(mut self, protocol: u16, control: u16) -> Self {
        self.tags.push((protocol, control));
        self
    }

    #[must_use]
    pub fn ecn(mut self, ecn: u8) -> Self {
        match &mut self.body {
            Body::V4(ip, _) => ip.ecn = etherparse::IpEcn::try_new(ecn).unwrap_or_default(),
            Body::V6(ip, _) => ip.traffic_class = ip.traffic_class & !3 | ecn & 3,
            Body::Other(..) => (),
        }
        self
    }

    /// Sets the IPv4 identification, which allows any header checksum.
    #[must_use]
    pub fn identified(mut self, number: u16) -> Self {
        if let Body::V4(ip, _) = &mut self.body {
            ip.identification = number;
        }
        self
    }

    /// Adds IPv4 options, a multiple of four bytes.
    #[must_use]
    pub fn options(mut self, options: &[u8]) -> Self {
        if let Body::V4(ip, udp) = &mut self.body {
            ip.options = Ipv4Options::try_from(options).unwrap_or_default();
            ip.total_len = u16::try_from(ip.header_len() + udp.len()).unwrap_or(u16::MAX);
        }
        self
    }

    /// Makes it an IPv4 fragment with an offset in units of eight bytes.
    #[must_use]
    pub fn fragment(mut self, offset: u16, more: bool) -> Self {
        if let Body::V4(ip, _) = &mut self.body {
            ip.fragment_offset = etherparse::IpFragOffset::try_new(offset).unwrap_or_default();
            ip.more_fragments = more;
        }
        self
    }

    /// The frame on the wire, without FCS.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let (inner, body) = match &self.body {
            Body::V4(ip, payload) => {
                let mut ip = ip.clone();
                ip.header_checksum = ip.calc_header_checksum();
                (EtherType::IPV4, [&ip.to_bytes()[..], payload].concat())
            }
            Body::V6(ip, payload) => (EtherType::IPV6, [&ip.to_bytes()[..], payload].concat()),
            Body::Other(ethertype, bytes) => (EtherType(*ethertype), bytes.clone()),
        };
        let types: Vec<_> = self.tags.iter().map(|t| EtherType(t.0)).chain([inner]).collect();
        let header =
            Ethernet2Header { source: self.source, destination: self.target, ether_type: types[0] };
        let mut frame = header.to_bytes().to_vec();
        for ((_, control), behind) in self.tags.iter().zip(&types[1..]) {
            let tag = SingleVlanHeader {
                pcp: etherparse::VlanPcp::try_new((control >> 13) as u8).unwrap_or_default(),
                drop_eligible_indicator: control & 0x1000 != 0,
                vlan_id: VlanId::try_new(control & 0xfff).unwrap_or_default(),
                ether_type: *behind,
            };
            frame.extend(tag.to_bytes());
        }
        frame.extend(body);
        frame
    }
}

fn v6(source: Ipv6Addr, target: Ipv6Addr, next_header: IpNumber) -> Ipv6Header {
    Ipv6Header {
        traffic_class: 0,
        flow_label: Ipv6FlowLabel::ZERO,
        payload_length: 0,
        next_header,
        hop_limit: 64,
        source: source.octets(),
        destination: target.octets(),
    }
}

/// ECN field of a frame with its IP header at an offset, and whether the IPv4 checksum is correct.
/// None without IP.
#[must_use]
pub fn ecn_at(frame: &[u8], offset: usize) -> Option<(u8, bool)> {
    let ip = frame.get(offset..)?;
    match ip.first()? >> 4 {
        4 => {
            let (header, _) = Ipv4Header::from_slice(ip).ok()?;
            let right = header.header_checksum == header.calc_header_checksum();
            Some((header.ecn.value(), right))
        }
        6 => Some((Ipv6Header::from_slice(ip).ok()?.0.traffic_class & 3, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_has_given_fields() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let frame = Frame::v4(a, b).tag(S_TAG, 0x2005).vlan(9).ecn(2).back().bytes();
        assert_eq!(frame[..6], SERVER_MAC);
        assert_eq!(frame[12..22], [0x88, 0xa8, 0x20, 5, 0x81, 0, 0, 9, 8, 0]);
        assert_eq!(frame[22 + 12..22 + 16], b.octets());
        assert_eq!(ecn_at(&frame, 22), Some((2, true)));
        assert_eq!(frame.len(), 22 + 20 + 8 + 26);
        let (a, b) = (a.to_ipv6_mapped(), b.to_ipv6_mapped());
        let frame = Frame::v6(a, b).ecn(1).bytes();
        assert_eq!((frame.len(), ecn_at(&frame, 14)), (14 + 40 + 8 + 26, Some((1, true))));
    }
}
