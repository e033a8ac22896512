// SPDX-License-Identifier: Apache-2.0
//! Classification by every table, in both directions.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::ensure;
use p4::bench::{Bench, FORWARDS, RETURNS, WAYS, Way, number, on_bench};
use p4::frame::{C_TAG, CLIENT_MAC, Frame, ND, outer_tag};
use p4runtime::Entry;
use smoke::cpus::Cpus;

use super::is_client;

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const BYPASS: u16 = 1;
const UNKNOWN: u16 = 0;

/// Rules of the tests: clients by number.
const ALL: u16 = 10;
const NET: u16 = 11;
const HOST: u16 = 12;
const ALL6: u16 = 20;
const NET6: u16 = 21;
const HOST6: u16 = 22;
const VLAN: u16 = 30;
const VLAN_AT_PORT: u16 = 31;
const MAC: u16 = 40;
const MAC_BACK: u16 = 41;
/// The largest client number that fits a shim. The switch has no counters for it.
const GREATEST: u16 = u16::MAX;

/// A rule for VLAN 7 on all ports, and one for VLAN 8 on this port.
const PORT: u16 = FORWARDS.hosts[0];
/// Remaining bytes of truncated IP headers.
const CUTS4: [usize; 5] = [0, 1, 2, 12, 19];
const CUTS6: [usize; 5] = [0, 1, 2, 24, 39];
const A_MAC: [u8; 6] = [2, 0, 0, 0, 3, 1];

fn prefix4(address: [u8; 4], length: u32, client: u16) -> Entry {
    let entry = Entry::new("linkemu.prefixes4");
    is_client(entry.lpm("address", u32::from_be_bytes(address), length), client)
}

fn prefix6(address: Ipv6Addr, length: u32, client: u16) -> Entry {
    let entry = Entry::new("linkemu.prefixes6");
    is_client(entry.lpm("address", u128::from(address), length), client)
}

fn vlan(id: u16, port: Option<u16>, priority: i32, client: u16) -> Entry {
    let entry = Entry::new("linkemu.vlans").exact("vlan", id).priority(priority);
    let entry = match port {
        Some(port) => entry.ternary("port", port, 0x1ffu16),
        None => entry,
    };
    is_client(entry, client)
}

fn mac(way: Way, mac: [u8; 6], client: u16) -> Entry {
    let entry = Entry::new("linkemu.macs").exact("direction", way.direction);
    is_client(entry.exact("mac", number(mac)), client)
}

fn v6(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, last)
}

fn rules() -> Vec<Entry> {
    vec![
        prefix4([0; 4], 0, ALL),
        prefix4([10, 77, 0, 0], 24, NET),
        prefix4([10, 77, 0, 9], 32, HOST),
        prefix4([10, 77, 3, 0], 24, GREATEST),
        prefix6(Ipv6Addr::UNSPECIFIED, 0, ALL6),
        prefix6(v6(0), 64, NET6),
        prefix6(v6(9), 128, HOST6),
        vlan(7, None, 1, VLAN),
        vlan(8, None, 1, VLAN),
        vlan(8, Some(PORT), 2, VLAN_AT_PORT),
        mac(FORWARDS, A_MAC, MAC),
        mac(RETURNS, A_MAC, MAC_BACK),
    ]
}

fn to4(last: [u8; 2]) -> Frame {
    Frame::v4(SERVER, Ipv4Addr::new(10, 77, last[0], last[1]))
}

fn to6(last: u16) -> Frame {
    Frame::v6(SERVER6, v6(last))
}

/// A forward frame, and its client in each direction.
type Case = (&'static str, Frame, [u16; 2]);

fn is(what: &'static str, frame: Frame, client: u16) -> Case {
    (what, frame, [client; 2])
}

fn by_rule() -> Vec<Case> {
    let else6 = Ipv6Addr::new(0x2001, 0xdb8, 0x78, 0, 0, 0, 0, 9);
    vec![
        is("/32 before /24", to4([0, 9]), HOST),
        is("/24 before 0/0", to4([0, 8]), NET),
        is("0/0", to4([1, 9]), ALL),
        is("a number above all cells", to4([3, 9]), GREATEST),
        is("/128 before /64", to6(9), HOST6),
        is("/64 before ::/0", to6(8), NET6),
        is("::/0", Frame::v6(SERVER6, else6), ALL6),
        is("a VLAN before a prefix", to4([0, 9]).vlan(7), VLAN),
        is("a VLAN of IPv6", to6(9).vlan(7), VLAN),
        ("a VLAN at a port", to4([0, 9]).vlan(8), [VLAN_AT_PORT, VLAN]),
        is("priority bits are not the VLAN's", to4([0, 9]).tag(C_TAG, 0xf007), VLAN),
        is("the outermost tag counts", to4([0, 9]).tag(outer_tag(), 7).vlan(99), VLAN),
        is("an inner tag does not", to4([0, 9]).tag(outer_tag(), 99).vlan(7), HOST),
        is("another VLAN", to4([0, 9]).vlan(99), HOST),
        is("a tag of priority only", to4([0, 9]).tag(C_TAG, 0xa000), HOST),
        is("two tags of priority only", to6(9).tag(C_TAG, 0xa000).tag(C_TAG, 0), HOST6),
        ("a MAC before a prefix", to4([0, 9]).between([2; 6], A_MAC), [MAC, MAC_BACK]),
        ("a MAC before a VLAN", to4([0, 9]).between([2; 6], A_MAC).vlan(7), [MAC, MAC_BACK]),
        ("a MAC of IPv6", to6(9).between([2; 6], A_MAC), [MAC, MAC_BACK]),
        is("the server's MAC has no client", to4([0, 9]).between(A_MAC, CLIENT_MAC), HOST),
        is("options", to4([0, 9]).options(&[1; 40]), HOST),
        is("a first fragment", to4([0, 9]).fragment(0, true), HOST),
        is("a last fragment", to4([0, 9]).fragment(185, false), HOST),
        is("ICMPv6 that is no Neighbor Discovery", Frame::icmp6(SERVER6, v6(9), 128), HOST6),
    ]
}

fn bypassing() -> Vec<Case> {
    let arp = Frame::other(0x0806, &[0, 1, 8, 0, 6, 4, 0, 1]).between([2; 6], [0xff; 6]);
    let mut cases = vec![
        is("ARP", arp.clone(), BYPASS),
        is("ARP in a VLAN of a client", arp.clone().vlan(7), BYPASS),
        is("ARP behind two tags", arp.clone().tag(outer_tag(), 7).vlan(8), BYPASS),
        is("ARP of a client's MAC", arp.between([2; 6], A_MAC), BYPASS),
        is("LLDP", Frame::other(0x88cc, &[2, 7, 4]), BYPASS),
        is("a length of 802.3", Frame::other(60, &[0x42; 60]), BYPASS),
        is("an unknown EtherType without payload", Frame::other(0xffff, &[]), BYPASS),
    ];
    for kind in ND {
        cases.push(is("Neighbor Discovery", Frame::icmp6(SERVER6, v6(9), kind), BYPASS));
        let tagged = Frame::icmp6(SERVER6, v6(9), kind).vlan(7).vlan(8);
        cases.push(is("Neighbor Discovery behind two tags", tagged, BYPASS));
    }
    for kind in [ND.start() - 1, ND.end() + 1] {
        cases.push(is("beside Neighbor Discovery", Frame::icmp6(SERVER6, v6(9), kind), HOST6));
    }
    cases
}

pub fn mac_precedes_vlan_and_longest_prefix(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        // Without rules, clients of these frames are unknown.
        for case in [to4([0, 9]), to6(9), to4([0, 9]).vlan(7)] {
            classified(bench, "no rules", &case, [UNKNOWN; 2])?;
        }
        bench.control.insert(&rules())?;
        for (what, frame, clients) in by_rule().into_iter().chain(bypassing()) {
            classified(bench, what, &frame, clients)?;
        }
        unreadable(bench)
    })
}

fn classified(
    bench: &mut Bench,
    what: &str,
    frame: &Frame,
    clients: [u16; 2],
) -> anyhow::Result<()> {
    for (way, expected) in WAYS.into_iter().zip(clients) {
        let client = bench.client_of(way, &way.turn(frame.clone()))?;
        ensure!(client == expected, "{what}, {way:?}: client {client}, not {expected}");
    }
    Ok(())
}

/// Unparsable frames pass to the box unchanged, regardless of the rules. The box classifies them.
fn unreadable(bench: &mut Bench) -> anyhow::Result<()> {
    let mut forms = Vec::new();
    let behind = |tags: usize, frame: &Frame| {
        let tagged = (0..tags).fold(frame.clone(), |frame, _| frame.vlan(7));
        (14 + 4 * tags, tagged.bytes())
    };
    for tags in 0..=2 {
        // The kernel drops frames with fewer than two bytes after the first tag.
        let passes = |cut: &usize| tags != 1 || *cut >= 2;
        let (ip, frame) = behind(tags, &to4([0, 9]));
        for cut in CUTS4.into_iter().filter(passes) {
            forms.push((
                format!("IPv4 cut after {cut} bytes, {tags} tags"),
                frame[..ip + cut].to_vec(),
            ));
        }
        for first in [0x40, 0x44, 0x55, 0x65, 0xf5] {
            let mut wrong = frame.clone();
            wrong[ip] = first;
            forms.push((format!("IPv4 that begins with {first:#x}, {tags} tags"), wrong));
        }
        let (ip, frame) = behind(tags, &to6(9));
        for cut in CUTS6.into_iter().filter(passes) {
            forms.push((
                format!("IPv6 cut after {cut} bytes, {tags} tags"),
                frame[..ip + cut].to_vec(),
            ));
        }
        let mut wrong = frame;
        wrong[ip] = 0x45;
        forms.push((format!("IPv6 of version 4, {tags} tags"), wrong));
    }
    forms.push(("three tags".to_owned(), behind(3, &to4([0, 9])).1));
    forms
        .push(("a tag that is cut".to_owned(), to4([0, 9]).vlan(7).vlan(8).bytes()[..20].to_vec()));
    for (what, frame) in forms {
        for way in WAYS {
            let shim = bench.wrapped(way, way.hosts[0], &frame)?;
            ensure!(shim.client == UNKNOWN, "{what}, {way:?}: {shim:?}");
        }
    }
    Ok(())
}
