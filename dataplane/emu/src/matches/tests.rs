// SPDX-License-Identifier: Apache-2.0
//! The table against a linear search. The frames are made from their fields, so the search does not
//! parse them.

use super::*;
use crate::protocol::MAX_EXTENSIONS;
use crate::units::Direction;
use etherparse::{
    IpAuthHeader, IpFragOffset, IpNumber, Ipv4Header, Ipv4Options, Ipv6FragmentHeader, Ipv6Header,
    Ipv6RawExtHeader,
};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeSet;

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const OPTIONS: IpNumber = IpNumber(60);

/// A frame and the fields that it is made from.
#[derive(Clone, Debug)]
struct Made {
    direction: Direction,
    vlans: Vec<u16>,
    mac: [u8; 6],
    client: IpAddr,
    remote: IpAddr,
    protocol: u8,
    /// Of the client and of the remote side, if it is TCP or UDP.
    ports: [u16; 2],
    dscp: u8,
    flow_label: u32,
    /// IPv4 options, or IPv6 extension headers.
    extensions: usize,
    /// Authentication header among the extension headers.
    authenticated: bool,
    /// In units of 8 bytes; none without a fragment header.
    fragment: Option<u16>,
    /// Index into [`PAIRS`].
    pair: u8,
}

/// Names of the box's port pairs.
const PAIRS: [&str; 3] = ["b", "c", "a"];

fn pairs() -> Vec<ClientName> {
    PAIRS.iter().map(|name| name.parse().unwrap()).collect()
}

impl Made {
    /// As a table with the pairs of the box looks it up.
    fn fields(&self, table: &Table<usize>) -> Fields {
        Fields::of(&self.frame(), self.direction).on_pair(table.pair(self.pair))
    }

    fn by_direction<T>(&self, client: T, remote: T) -> (T, T) {
        match self.direction {
            Direction::Forward => (remote, client),
            Direction::Return => (client, remote),
        }
    }

    /// Whether the fragmented part is a piece from the middle.
    fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|offset| offset > 0)
    }

    fn ports(&self) -> Option<[u16; 2]> {
        let has = matches!(self.protocol, TCP | UDP) && !self.is_later_fragment();
        has.then_some(self.ports)
    }

    fn frame(&self) -> Vec<u8> {
        let (source, destination) = self.by_direction(self.mac, [4; 6]);
        let mut frame = [destination, source].concat();
        for id in &self.vlans {
            frame.extend([0x81, 0]);
            frame.extend((id | 0x6000).to_be_bytes());
        }
        let (source, destination) = self.by_direction(self.ports[0], self.ports[1]);
        let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
        let upper = [&ports[..], &[0; 16]].concat();
        let (source, destination) = self.by_direction(self.client, self.remote);
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([8, 0]);
                let (s, d) = (source.octets(), destination.octets());
                let mut header =
                    Ipv4Header::new(upper.len() as u16, 64, IpNumber(self.protocol), s, d).unwrap();
                header.dscp = self.dscp.try_into().unwrap();
                header.fragment_offset = self.fragment.unwrap_or(0).try_into().unwrap();
                header.more_fragments = self.fragment.is_some();
                header.options = Ipv4Options::try_from(&[1; 40][..4 * self.extensions]).unwrap();
                header.set_payload_len(upper.len()).unwrap();
                header.write(&mut frame).unwrap();
                frame.extend(upper);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd]);
                let (next_header, packet) = self.chain(upper);
                let header = Ipv6Header {
                    traffic_class: self.dscp << 2 | 1,
                    flow_label: self.flow_label.try_into().unwrap(),
                    payload_length: packet.len() as u16,
                    next_header,
                    hop_limit: 64,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                header.write(&mut frame).unwrap();
                frame.extend(packet);
            }
            _ => unreachable!("addresses of one version"),
        }
        // Padded by the wire.
        frame.resize(frame.len().max(60), 0);
        frame
    }

    /// Extension headers, from the last one to the first, and the upper layer.
    fn chain(&self, mut packet: Vec<u8>) -> (IpNumber, Vec<u8>) {
        let mut next = IpNumber(self.protocol);
        if let Some(offset) = self.fragment {
            let offset = IpFragOffset::try_new(offset).unwrap();
            let header = Ipv6FragmentHeader::new(next, offset, true, 7);
            packet = [&header.to_bytes()[..], &packet].concat();
            next = IpNumber::IPV6_FRAGMENTATION_HEADER;
        }
        if self.authenticated {
            let header = IpAuthHeader::new(next, 1, 2, &[0; 12]).unwrap();
            packet = [&header.to_bytes()[..], &packet].concat();
            next = IpNumber::AUTHENTICATION_HEADER;
        }
        for n in 0..self.extensions {
            let header = Ipv6RawExtHeader::new_raw(next, &vec![0; 6 + 8 * (n % 3)]).unwrap();
            packet = [&header.to_bytes()[..], &packet].concat();
            next = OPTIONS;
        }
        (next, packet)
    }

    fn meets(&self, rule: &Match) -> bool {
        let Match { priority: _, vlan, inner_vlan, mac, prefix, remote_prefix, .. } = *rule;
        let Match { protocol, port, remote_port, dscp, flow_label, port_pair, .. } = *rule;
        let range = |of: Option<Ports>, side: usize| {
            of.is_none_or(|of| {
                self.ports().is_some_and(|ports| (of.first..=of.last).contains(&ports[side]))
            })
        };
        let is_host = !matches!(self.client, IpAddr::V4(a) if a.is_multicast())
            && !matches!(self.client, IpAddr::V6(a) if a.is_multicast());
        vlan.is_none_or(|id| self.vlans.first() == Some(&id))
            && inner_vlan.is_none_or(|id| self.vlans.get(1) == Some(&id))
            && mac.is_none_or(|mac| mac == self.mac)
            && prefix.is_none_or(|prefix| is_host && within((self.client, 128), prefix))
            && remote_prefix.is_none_or(|prefix| within((self.remote, 128), prefix))
            && protocol.is_none_or(|protocol| protocol == self.protocol)
            && range(port, 0)
            && range(remote_port, 1)
            && dscp.is_none_or(|dscp| dscp == self.dscp)
            && flow_label.is_none_or(|label| self.client.is_ipv6() && label == self.flow_label)
            && port_pair.is_none_or(|name| name == pairs()[usize::from(self.pair)])
    }
}

/// Whether a prefix is in another one.
fn within((address, length): (IpAddr, u8), (of, shorter): (IpAddr, u8)) -> bool {
    let bits = |a: IpAddr| match a {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    };
    let bit = |b: &[u8], n: usize| b[n / 8] >> (7 - n % 8) & 1;
    let (a, b) = (bits(address), bits(of));
    a.len() == b.len()
        && shorter <= length
        && (0..usize::from(shorter)).all(|n| bit(&a, n) == bit(&b, n))
}

fn precedence(rule: &Match) -> (u32, u8, u8, u8) {
    let length = |prefix: Option<(IpAddr, u8)>| prefix.map_or(0, |(_, length)| length);
    (rule.priority, length(rule.prefix), length(rule.remote_prefix), rule.fields())
}

fn version(rule: &Match) -> Option<bool> {
    let label = rule.flow_label.map(|_| true);
    let prefix = [rule.prefix, rule.remote_prefix].into_iter().flatten().next();
    label.or(prefix.map(|(address, _)| address.is_ipv6()))
}

/// Whether `by` matches all frames of `rule`, field by field.
fn covers(by: &Match, rule: &Match) -> bool {
    fn same<T: PartialEq>(by: Option<T>, of: Option<T>) -> bool {
        by.is_none() || by == of
    }
    let ports = |by: Option<Ports>, of: Option<Ports>| match (by, of) {
        (Some(by), Some(of)) => by.first <= of.first && of.last <= by.last,
        (by, _) => by.is_none(),
    };
    let prefix = |by: Option<(IpAddr, u8)>, of: Option<(IpAddr, u8)>| match (by, of) {
        (Some(by), Some(of)) => within(of, by),
        (by, _) => by.is_none(),
    };
    // All addresses of a version.
    let any = by
        .remote_prefix
        .is_some_and(|(a, length)| length == 0 && version(rule) == Some(a.is_ipv6()));
    same(by.vlan, rule.vlan)
        && same(by.inner_vlan, rule.inner_vlan)
        && same(by.mac, rule.mac)
        && prefix(by.prefix, rule.prefix)
        && (any || prefix(by.remote_prefix, rule.remote_prefix))
        && same(by.protocol, rule.protocol)
        && ports(by.port, rule.port)
        && ports(by.remote_port, rule.remote_port)
        && same(by.dscp, rule.dscp)
        && same(by.flow_label, rule.flow_label)
        && same(by.port_pair, rule.port_pair)
}

/// Whether a frame can match both, field by field.
fn overlap(a: &Match, b: &Match) -> bool {
    fn same<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
        a.is_none() || b.is_none() || a == b
    }
    let ports = |a: Option<Ports>, b: Option<Ports>| match (a, b) {
        (Some(a), Some(b)) => a.first <= b.last && b.first <= a.last,
        _ => true,
    };
    let prefix = |a: Option<(IpAddr, u8)>, b: Option<(IpAddr, u8)>| match (a, b) {
        (Some(a), Some(b)) => within(a, b) || within(b, a),
        _ => true,
    };
    same(version(a), version(b))
        && same(a.vlan, b.vlan)
        && same(a.inner_vlan, b.inner_vlan)
        && same(a.mac, b.mac)
        && prefix(a.prefix, b.prefix)
        && prefix(a.remote_prefix, b.remote_prefix)
        && same(a.protocol, b.protocol)
        && ports(a.port, b.port)
        && ports(a.remote_port, b.remote_port)
        && same(a.dscp, b.dscp)
        && same(a.flow_label, b.flow_label)
        && same(a.port_pair, b.port_pair)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> (IpAddr, u8) {
    let (address, length) = text.split_once('/').unwrap();
    (ip(address), length.parse().unwrap())
}

fn range(first: u16, last: u16) -> Option<Ports> {
    Some(Ports { first, last })
}

fn rarely<T: Clone + std::fmt::Debug + 'static>(of: Vec<T>) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.25, select(of))
}

fn rule() -> impl Strategy<Value = Match> {
    let prefixes = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "::/0"];
    let more = ["2001:db8::/32", "2001:db8::1/128", "224.0.0.0/4"];
    let nets: Vec<_> = prefixes.into_iter().chain(more).map(net).collect();
    let ports = vec![(5001, 5001), (5000, 5010), (5005, 5020), (0, 65_535), (80, 80), (1, 5000)];
    let ports: Vec<_> = ports.into_iter().map(|(first, last)| Ports { first, last }).collect();
    let link = (rarely(vec![1, 2]), rarely(vec![1, 2]), rarely(MACS.to_vec()));
    let sides = (rarely(nets.clone()), rarely(nets), rarely(ports.clone()), rarely(ports));
    let protocol = prop::option::weighted(0.5, select(vec![TCP, UDP, ICMP, 47]));
    let ip = (protocol, rarely(vec![0, 10, 46]), rarely(vec![0, 5]), rarely(pairs()));
    (0_u32..3, link, sides, ip).prop_map(
        |(priority, (vlan, inner_vlan, mac), sides, (protocol, dscp, flow_label, port_pair))| {
            let (prefix, remote_prefix, port, remote_port) = sides;
            Match {
                priority,
                vlan,
                inner_vlan,
                mac,
                prefix,
                remote_prefix,
                protocol,
                port,
                remote_port,
                dscp,
                flow_label,
                port_pair,
            }
        },
    )
}

fn made() -> impl Strategy<Value = Made> {
    let v4 = ["10.0.0.1", "10.1.0.1", "10.1.2.3", "192.0.2.1", "224.0.0.5"].map(ip).to_vec();
    let v6 = ["2001:db8::1", "2001:db8::2", "2001:db9::1", "ff0e::1"].map(ip).to_vec();
    let sides = prop_oneof![(select(v4.clone()), select(v4)), (select(v6.clone()), select(v6)),];
    let link = (prop::collection::vec(0_u16..3, 0..4), select(MACS.to_vec()));
    let port = select(vec![0_u16, 1, 80, 4999, 5000, 5001, 5005, 5010, 5011, 5020, 65_535]);
    let upper = (select(vec![TCP, UDP, ICMP, 47]), [port.clone(), port]);
    let ip = (select(vec![0_u8, 10, 46, 63]), select(vec![0_u32, 5, 0xf_ffff]));
    let fragment = prop::option::weighted(0.3, 0_u16..3);
    let rest = (any::<bool>(), 0_usize..6, any::<bool>(), fragment, 0_u8..3);
    (link, sides, upper, ip, rest).prop_map(
        |((vlans, mac), (client, remote), (protocol, ports), (dscp, flow_label), rest)| {
            let (forward, extensions, authenticated, fragment, pair) = rest;
            let direction = if forward { Direction::Forward } else { Direction::Return };
            Made {
                direction,
                vlans,
                mac,
                client,
                remote,
                protocol,
                ports,
                dscp,
                flow_label,
                extensions,
                authenticated,
                fragment,
                pair,
            }
        },
    )
}

/// The valid ones of some rules with distinct fields, and their table. The targets are few.
fn table(rules: &[Match]) -> (Table<usize>, Vec<(Match, usize)>) {
    let (mut table, mut all) = (Table::default(), Vec::<(Match, usize)>::new());
    for (n, rule) in rules.iter().enumerate() {
        // An invalid rule leaves the table as it was.
        if rule.check().is_err() {
            assert!(table.insert(*rule, n).is_err());
            continue;
        }
        let fields = |rule: Match| Match { priority: 0, ..rule };
        let before = all.iter().find(|(other, _)| fields(*other) == fields(*rule));
        assert_eq!(table.insert(*rule, n % 5).unwrap(), before.map(|(_, target)| *target));
        if before.is_none() {
            all.push((*rule, n % 5));
        }
    }
    assert_eq!(table.len(), all.len());
    table.set_pairs(&pairs()).unwrap();
    (table, all)
}

proptest! {
    #[test]
    fn table_finds_what_a_linear_search_finds(
        rules in prop::collection::vec(rule(), 0..60),
        frames in prop::collection::vec(made(), 1..30),
    ) {
        let (table, all) = table(&rules);
        for made in frames {
            let met: Vec<_> = all.iter().filter(|(rule, _)| made.meets(rule)).collect();
            let found = table.get(&made.fields(&table));
            let Some(best) = met.iter().map(|(rule, _)| precedence(rule)).max() else {
                prop_assert_eq!(found, None, "{:?}", made);
                continue;
            };
            let targets: BTreeSet<_> =
                met.iter().filter(|(r, _)| precedence(r) == best).map(|(_, t)| *t).collect();
            prop_assert!(found.is_some_and(|t| targets.contains(&t)), "{found:?} {met:?} {made:?}");
            if targets.len() > 1 {
                let conflicts = table.conflicts(usize::MAX);
                let is_tie = |c: &Conflict<usize>| matches!(c, Conflict::Tie { .. });
                prop_assert!(conflicts.iter().any(is_tie), "{met:?}");
            }
        }
    }

    #[test]
    fn extents_are_compared_as_field_by_field(a in rule(), b in rule()) {
        prop_assume!(a.check().is_ok() && b.check().is_ok());
        let [one, other] = [a, b].map(Extent::of);
        prop_assert_eq!(one.overlaps(&other), overlap(&a, &b));
        prop_assert_eq!(one.covers(&other), covers(&a, &b));
        prop_assert!(one.overlaps(&one) && one.covers(&one));
    }

    #[test]
    fn conflicts_are_those_of_a_comparison_of_all_pairs(
        rules in prop::collection::vec(rule(), 0..60),
    ) {
        let (table, all) = table(&rules);
        let (mut shadowed, mut ties) = (BTreeSet::new(), BTreeSet::new());
        for (n, (rule, target)) in all.iter().enumerate() {
            let goes_before = |by: &Match| precedence(by) > precedence(rule) && covers(by, rule);
            if all.iter().any(|(by, _)| goes_before(by)) {
                shadowed.insert(*rule);
            }
            prop_assert_eq!(table.covers(rule).is_some(), true);
            for (other, other_target) in &all[..n] {
                let tie = precedence(rule) == precedence(other) && overlap(rule, other);
                if tie && target != other_target {
                    ties.insert((*rule, *other));
                }
            }
        }
        let (mut found_shadowed, mut found_ties) = (BTreeSet::new(), BTreeSet::new());
        for conflict in table.conflicts(usize::MAX) {
            match conflict {
                Conflict::Shadowed { rule, by, .. } => {
                    prop_assert!(covers(&by, &rule) && precedence(&by) > precedence(&rule));
                    found_shadowed.insert(rule);
                }
                Conflict::Tie { rule, other, .. } => drop(found_ties.insert((rule, other))),
            }
        }
        prop_assert_eq!(found_shadowed, shadowed);
        prop_assert_eq!(&found_ties, &ties);
        prop_assert!(table.conflicts(2).len() <= 2);
    }

    #[test]
    fn truncated_frame_matches_no_field_that_is_cut(
        rules in prop::collection::vec(rule(), 0..60),
        made in made(),
        cut in any::<prop::sample::Index>(),
    ) {
        let (table, _) = table(&rules);
        let whole = made.frame();
        let frame = &whole[..cut.index(whole.len())];
        let fields = Fields::of(frame, made.direction);
        let _ = table.get(&fields);
        // Only what is left of the padding could be cut without a loss.
        let ip = 14 + 4 * made.vlans.len();
        if frame.len() < ip + 20 {
            prop_assert_eq!(fields.ports, None);
        }
    }

    #[test]
    fn no_frame_panics(
        rules in prop::collection::vec(rule(), 0..20),
        mut frame in prop::collection::vec(any::<u8>(), 0..200),
        ethertype in select(vec![[8, 0], [0x86, 0xdd], [0x81, 0]]),
        first in select(vec![0x45, 0x4f, 0x60]),
        next in select(vec![0_u8, 17, 43, 44, 51, 60]),
        forward: bool,
    ) {
        let direction = if forward { Direction::Forward } else { Direction::Return };
        let (table, _) = table(&rules);
        let _ = table.get(&Fields::of(&frame, direction));
        if frame.len() > 60 {
            frame[12..14].copy_from_slice(&ethertype);
            frame[14] = first;
            let length = frame.len() as u16;
            let (at, length) = if first == 0x60 { (18, length - 54) } else { (16, length - 14) };
            frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
            frame[20] = next;
            let _ = table.get(&Fields::of(&frame, direction));
        }
    }
}

fn udp() -> Made {
    Made {
        direction: Direction::Return,
        vlans: vec![],
        mac: MACS[0],
        client: ip("10.1.2.3"),
        remote: ip("192.0.2.1"),
        protocol: UDP,
        ports: [5001, 80],
        dscp: 46,
        flow_label: 0,
        extensions: 0,
        authenticated: false,
        fragment: None,
        pair: 0,
    }
}

fn get(rules: &[Match], made: &Made) -> Option<usize> {
    let mut table = Table::default();
    for (n, rule) in rules.iter().enumerate() {
        assert_eq!(table.insert(*rule, n).unwrap(), None);
    }
    table.get(&Fields::of(&made.frame(), made.direction))
}

#[test]
fn pair_of_a_match_is_found_by_name() {
    let [b, c, a] = pairs()[..] else { unreachable!() };
    let of = |name| Match { port_pair: Some(name), ..Match::default() };
    let mut table = Table::default();
    for (n, name) in [a, b].into_iter().enumerate() {
        assert_eq!(table.insert(of(name), n).unwrap(), None);
    }
    let from = |table: &Table<usize>, pair| table.get(&Made { pair, ..udp() }.fields(table));
    // Before the names are known, and by numbers that no pair has.
    assert_eq!((from(&table, 0), from(&table, 200)), (None, None));
    table.set_pairs(&[b, c, a]).unwrap();
    assert_eq!([0, 1, 2, 3].map(|pair| from(&table, pair)), [Some(1), None, Some(0), None]);
    for (known, message) in [
        (&[b, c][..], "there is no port pair `a`: this box has b, c"),
        (&[], "there is no port pair `a`: the only pair of this box has no name"),
    ] {
        assert_eq!(table.set_pairs(known).unwrap_err().to_string(), message);
    }
    assert_eq!(from(&table, 2), Some(0), "a refused change changes nothing");
    assert_eq!(of(a).to_string(), "match {port_pair a}");
}

#[test]
fn more_names_of_pairs_than_a_box_can_have_are_refused() {
    let mut table = Table::default();
    let mut insert = |n: usize| {
        let port_pair = Some(format!("p{n}").parse().unwrap());
        table.insert(Match { port_pair, ..Match::default() }, n)
    };
    assert!((0..MAX_PAIRS).all(|n| insert(n) == Ok(None)));
    let error = insert(MAX_PAIRS).unwrap_err().to_string();
    assert_eq!(error, "port_pair p16 is one more than the 16 pairs that a box can have");
}

#[test]
fn later_fragment_has_protocol_and_no_ports() {
    let with_port = Match { protocol: Some(UDP), port: range(5001, 5001), ..Match::default() };
    let any_udp = Match { protocol: Some(UDP), ..Match::default() };
    let rules = [with_port, any_udp];
    for client in ["10.1.2.3", "2001:db8::1"] {
        let remote = if client.contains(':') { ip("2001:db8::2") } else { ip("192.0.2.1") };
        let of = |fragment| Made { client: ip(client), remote, fragment, ..udp() };
        assert_eq!(get(&rules, &of(None)), Some(0), "{client}");
        assert_eq!(get(&rules, &of(Some(0))), Some(0), "{client}");
        assert_eq!(get(&rules, &of(Some(185))), Some(1), "{client}");
    }
}

#[test]
fn extension_headers_are_skipped_up_to_a_limit() {
    let rule = [Match { protocol: Some(UDP), port: range(5001, 5001), ..Match::default() }];
    let of = |extensions, authenticated, fragment| {
        let (client, remote) = (ip("2001:db8::1"), ip("2001:db8::2"));
        Made { client, remote, extensions, authenticated, fragment, ..udp() }
    };
    assert_eq!(get(&rule, &of(MAX_EXTENSIONS, false, None)), Some(0));
    assert_eq!(get(&rule, &of(MAX_EXTENSIONS - 2, true, Some(0))), Some(0));
    assert_eq!(get(&rule, &of(MAX_EXTENSIONS + 1, false, None)), None);
    let none = Match { protocol: Some(60), dscp: Some(46), ..Match::default() };
    assert_eq!(get(&[none], &of(MAX_EXTENSIONS + 1, false, None)), None);
    // A later fragment that begins with an extension header has no protocol.
    let mut made = of(0, false, Some(4));
    made.protocol = 60;
    assert_eq!(get(&[none], &made), None);
    // In IPv4 it is a protocol like others.
    made = Made { protocol: 60, ..udp() };
    assert_eq!(get(&[none], &made), Some(0));
}

#[test]
fn ports_end_with_the_packet() {
    let rule = [Match { protocol: Some(UDP), port: range(0, 65_535), ..Match::default() }];
    for client in ["10.1.2.3", "2001:db8::1"] {
        let remote = if client.contains(':') { ip("2001:db8::2") } else { ip("192.0.2.1") };
        let mut frame = Made { client: ip(client), remote, ..udp() }.frame();
        let mut table = Table::default();
        table.insert(rule[0], 7).unwrap();
        assert_eq!(table.get(&Fields::of(&frame, Direction::Return)), Some(7));
        // The rest of the frame is padding.
        let at = if client.contains(':') { 18 } else { 16 };
        frame[at..at + 2].copy_from_slice(&(if at == 18 { 3_u16 } else { 23 }).to_be_bytes());
        assert_eq!(table.get(&Fields::of(&frame, Direction::Return)), None, "{client}");
    }
}

#[test]
fn precedence_is_priority_then_prefixes_then_fields() {
    let prefix = |text: &str| Match { prefix: Some(net(text)), ..Match::default() };
    let remote = |text: &str| Match { remote_prefix: Some(net(text)), ..Match::default() };
    let dscp = Match { dscp: Some(46), ..Match::default() };
    let two = Match { protocol: Some(UDP), ..dscp };
    assert_eq!(get(&[prefix("10.0.0.0/8"), prefix("10.1.0.0/16")], &udp()), Some(1));
    assert_eq!(get(&[remote("192.0.2.1/32"), prefix("10.0.0.0/8")], &udp()), Some(1));
    assert_eq!(get(&[remote("192.0.2.0/24"), remote("192.0.2.1/32")], &udp()), Some(1));
    assert_eq!(get(&[dscp, two], &udp()), Some(1));
    assert_eq!(get(&[two, remote("192.0.2.1/32")], &udp()), Some(1));
    let first = Match { priority: 1, ..dscp };
    assert_eq!(get(&[prefix("10.1.2.3/32"), two, first], &udp()), Some(2));
}

#[test]
fn priorities_of_one_table_do_not_hide_other_tables() {
    // The first table holds the highest priority, but its entry for this frame has the lowest.
    let high = Match { priority: 9, dscp: Some(1), ..Match::default() };
    let low = Match { dscp: Some(46), ..Match::default() };
    let other = Match { priority: 5, protocol: Some(UDP), ..Match::default() };
    assert_eq!(get(&[high, low, other], &udp()), Some(2));
}

#[test]
fn multicast_client_address_matches_no_client_prefix() {
    let client = Match { prefix: Some(net("0.0.0.0/0")), ..Match::default() };
    let remote = Match { remote_prefix: Some(net("224.0.0.0/4")), ..Match::default() };
    let mut made = Made { client: ip("224.0.0.5"), direction: Direction::Forward, ..udp() };
    assert_eq!(get(&[client], &made), None);
    made = Made { remote: ip("224.0.0.5"), ..udp() };
    assert_eq!(get(&[remote], &made), Some(0));
}

#[test]
fn invalid_match_is_refused_with_value_and_remedy() {
    let none = Match::default();
    let tcp = Match { protocol: Some(TCP), ..none };
    for (rule, message) in [
        (none, "give it at least one"),
        (Match { priority: 5, ..none }, "give it at least one"),
        (Match { vlan: Some(4095), ..none }, "VLAN 4095 cannot be: the ids are 1 to 4094"),
        (Match { inner_vlan: Some(0), ..none }, "VLAN 0 cannot be"),
        (Match { prefix: Some(net("10.1.2.3/24")), ..none }, "write 10.1.2.0/24"),
        (Match { remote_prefix: Some(net("2001:db8::1/32")), ..none }, "write 2001:db8::/32"),
        (Match { prefix: Some(net("10.0.0.0/33")), ..none }, "longer than its address"),
        (
            Match {
                prefix: Some(net("10.0.0.0/8")),
                remote_prefix: Some(net("2001:db8::/32")),
                ..none
            },
            "prefix 10.0.0.0 and remote_prefix 2001:db8:: are of different IP versions",
        ),
        (Match { port: range(10, 5), ..tcp }, "port range 10-5 is reversed: write 5-10"),
        (Match { remote_port: range(10, 5), ..tcp }, "reversed"),
        (Match { port: range(5, 5), ..none }, "add protocol \"tcp\" or \"udp\""),
        (
            Match { remote_port: range(5, 5), protocol: Some(ICMP), ..none },
            "protocol icmp has no ports",
        ),
        (
            Match { remote_port: range(5, 5), protocol: Some(47), ..none },
            "protocol 47 has no ports",
        ),
        (Match { dscp: Some(64), ..none }, "DSCP 64 cannot be: the values are 0 to 63"),
        (
            Match { flow_label: Some(1 << 20), ..none },
            "flow label 1048576 has more than 20 bits: the values are 0 to 1048575",
        ),
        (
            Match { flow_label: Some(1), prefix: Some(net("10.0.0.0/8")), ..none },
            "flow label 1 with 10.0.0.0: only IPv6",
        ),
        (
            Match { flow_label: Some(1), remote_prefix: Some(net("10.0.0.0/8")), ..none },
            "only IPv6 has flow labels",
        ),
        (
            Match { protocol: Some(ICMP), remote_prefix: Some(net("::/0")), ..none },
            "write \"icmpv6\"",
        ),
        (
            Match { protocol: Some(ICMPV6), prefix: Some(net("10.0.0.0/8")), ..none },
            "write \"icmp\"",
        ),
        (
            Match { protocol: Some(44), flow_label: Some(1), ..none },
            "protocol 44 is an extension header",
        ),
    ] {
        let error = Table::default().insert(rule, 0).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn tables_and_layers_are_bounded() {
    // A table for each pair of prefix lengths.
    let mut table = Table::default();
    let mut refused = None;
    for a in 1..=17 {
        for b in 1..=16 {
            let (prefix, remote) = (Some((ip("0.0.0.0"), a)), Some((ip("0.0.0.0"), b)));
            let rule = Match { prefix, remote_prefix: remote, ..Match::default() };
            refused = refused.or(table.insert(rule, 0).err());
        }
    }
    assert_eq!((table.tables(), refused), (MAX_TABLES, Some(MatchError::Tables)));
    let nested = |n: u16| {
        let port = range(5000 - n, 5000 + n);
        Match { protocol: Some(UDP), port, priority: 100 - u32::from(n), ..Match::default() }
    };
    let mut table = Table::default();
    for n in 0..MAX_LAYERS as u16 {
        table.insert(nested(n), n).unwrap();
    }
    assert_eq!(table.conflicts(9), []);
    assert_eq!(table.get(&Fields::of(&udp().frame(), Direction::Return)), Some(1));
    let error = table.insert(nested(MAX_LAYERS as u16), 0).unwrap_err().to_string();
    assert!(error.contains("port range 4984-5016 is one of more than 16"), "{error}");
}

#[test]
fn disjoint_ranges_have_one_layer() {
    let mut table = Table::default();
    for n in 0..16_384_u16 {
        let rule = Match { protocol: Some(UDP), port: range(4 * n, 4 * n + 3), ..Match::default() };
        table.insert(rule, n).unwrap();
    }
    assert_eq!(table.tables(), 1);
    assert_eq!(table.conflicts(1), []);
    assert_eq!(table.get(&Fields::of(&udp().frame(), Direction::Return)), Some(5001 / 4));
    let one = Match { dscp: Some(1), ..Match::default() };
    assert_eq!(table.insert(one, 0), Err(MatchError::Full));
}

#[test]
fn ranges_that_share_one_port_tie() {
    let with = |ports| Match { protocol: Some(UDP), port: ports, ..Match::default() };
    let both = [with(range(1, 5000)), with(range(5000, 5010))];
    for [first, second] in [both, [both[1], both[0]]] {
        let mut table = Table::default();
        table.insert(first, 0).unwrap();
        table.insert(second, 1).unwrap();
        let tie = Conflict::Tie { rule: second, target: 1, other: first, other_target: 0 };
        assert_eq!(table.conflicts(9), [tie]);
        // The remote ports tell them apart.
        let mut table = Table::default();
        table.insert(Match { remote_port: range(1, 2), ..first }, 0).unwrap();
        table.insert(Match { remote_port: range(3, 4), ..second }, 1).unwrap();
        assert_eq!(table.conflicts(9), []);
    }
}
