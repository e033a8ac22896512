// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::classify::{Class, classify};
use crate::protocol::UDP;
use etherparse::PacketBuilder;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn name(text: &str) -> ClientName {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Rule {
    let (address, length) = text.split_once('/').unwrap();
    Rule::Prefix(address.parse().unwrap(), length.parse().unwrap())
}

fn rules(all: &[(Rule, &str)]) -> Rules {
    let mut rules = Rules::default();
    for (rule, client) in all {
        rules.insert(*rule, name(client)).unwrap();
    }
    rules
}

/// A return frame of a client.
fn frame(source: IpAddr, vlan: Option<u16>) -> Vec<u8> {
    let mut f = Vec::new();
    let ethernet = PacketBuilder::ethernet2(CLIENT, HOST);
    match source {
        IpAddr::V4(a) => {
            let ip = ethernet.ipv4(a.octets(), [192, 0, 2, 1], 64);
            ip.udp(1, 2).write(&mut f, &[0; 20]).unwrap();
        }
        IpAddr::V6(a) => {
            let ip = ethernet.ipv6(a.octets(), [0x20; 16], 64);
            ip.udp(1, 2).write(&mut f, &[0; 20]).unwrap();
        }
    }
    if let Some(id) = vlan {
        let [high, low] = (id | 0xe000).to_be_bytes();
        f.splice(12..12, [0x81, 0, high, low]);
    }
    f
}

fn owner(rules: &Rules, frame: &[u8], direction: Direction) -> String {
    let Class::Client(key) = classify(frame, direction) else { return "none".into() };
    rules.owner(key, frame, direction, 0).to_string()
}

fn of(rules: &Rules, source: &str, vlan: Option<u16>) -> String {
    owner(rules, &frame(source.parse().unwrap(), vlan), Direction::Return)
}

#[test]
fn mac_precedes_vlan_precedes_prefix() {
    let ip = (prefix("10.0.0.0/8"), "prefix");
    let vlan = (Rule::Vlan(100), "vlan");
    let mac = (Rule::Mac(CLIENT), "mac");
    assert_eq!(of(&rules(&[ip, vlan, mac]), "10.0.0.1", Some(100)), "mac");
    assert_eq!(of(&rules(&[ip, vlan]), "10.0.0.1", Some(100)), "vlan");
    assert_eq!(of(&rules(&[ip, vlan]), "10.0.0.1", Some(101)), "prefix");
    assert_eq!(of(&rules(&[ip, vlan]), "10.0.0.1", None), "prefix");
    assert_eq!(of(&rules(&[ip, vlan]), "11.0.0.1", None), "11.0.0.1");
    assert_eq!(of(&Rules::default(), "10.0.0.1", Some(100)), "10.0.0.1");
}

#[test]
fn the_mac_is_the_clients_and_the_vlan_that_of_the_outermost_tag() {
    let macs = rules(&[(Rule::Mac(CLIENT), "mac")]);
    let f = frame("10.0.0.1".parse().unwrap(), None);
    // It is the source: of a forward frame, the host's.
    assert_eq!(owner(&macs, &f, Direction::Forward), "192.0.2.1");
    let mut towards = f.clone();
    towards[..6].copy_from_slice(&CLIENT);
    assert_eq!(owner(&macs, &towards, Direction::Forward), "mac");
    let vlans = rules(&[(Rule::Vlan(7), "inner"), (Rule::Vlan(9), "outer")]);
    let mut tagged = frame("10.0.0.1".parse().unwrap(), Some(7));
    assert_eq!(owner(&vlans, &tagged, Direction::Return), "inner");
    tagged.splice(12..12, [0x88, 0xa8, 0, 9]);
    assert_eq!(owner(&vlans, &tagged, Direction::Return), "outer");
    // A priority and no VLAN.
    tagged.splice(12..12, [0x81, 0, 0xe0, 0]);
    assert_eq!(owner(&vlans, &tagged, Direction::Return), "10.0.0.1");
}

#[test]
fn control_protocols_bypass_rules_and_multicast_matches_no_prefix() {
    let all = [
        (prefix("0.0.0.0/0"), "four"),
        (prefix("::/0"), "six"),
        (Rule::Vlan(5), "vlan"),
        (Rule::Mac(CLIENT), "mac"),
    ];
    let mut arp = [HOST, CLIENT].concat();
    arp.extend([8, 6]);
    arp.extend([0; 46]);
    assert_eq!(owner(&rules(&all), &arp, Direction::Return), "bypass");
    for none in ["0.0.0.0", "169.254.1.1", "fe80::1", "::"] {
        assert_eq!(of(&rules(&all[..3]), none, None), "default");
        assert_eq!(of(&rules(&all[..3]), none, Some(5)), "vlan");
        assert_eq!(of(&rules(&all), none, None), "mac");
    }
    assert_eq!(of(&rules(&all[..3]), "255.0.0.1", None), "four");
}

#[test]
fn invalid_rules_are_refused_with_reason() {
    let refused = |given: &[(Rule, &str)]| {
        let mut rules = Rules::default();
        let mut all = given.iter().map(|(rule, client)| rules.insert(*rule, name(client)));
        all.find_map(Result::err).unwrap().to_string()
    };
    let twice = refused(&[(Rule::Mac(CLIENT), "a"), (Rule::Mac(CLIENT), "b")]);
    assert_eq!(
        twice,
        "MAC 02:00:00:00:00:01 is named twice, for a and for b: leave one of them out"
    );
    for (rule, message) in [
        (Rule::Vlan(0), "1 to 4094"),
        (Rule::Vlan(4095), "1 to 4094"),
        (prefix("10.0.0.0/33"), "longer than its address"),
        (prefix("::/129"), "longer than its address"),
        (prefix("10.1.2.3/24"), "write 10.1.2.0/24"),
        (prefix("0.0.0.1/0"), "write 0.0.0.0/0"),
        (prefix("2001:db8::1/32"), "write 2001:db8::/32"),
    ] {
        let error = refused(&[(rule, "a")]);
        assert!(error.contains(message), "{error}");
    }
    let mut rules = Rules::default();
    for n in 0..MAX_RULES as u64 {
        let [_, _, mac @ ..] = n.to_be_bytes();
        rules.insert(Rule::Mac(mac), name("a")).unwrap();
    }
    assert_eq!(rules.insert(Rule::Vlan(1), name("a")), Err(RulesError::Full));
    let rule = Rule::Match(Match { dscp: Some(1), ..Match::default() });
    assert_eq!(rules.insert(rule, name("a")), Err(RulesError::Full));
}

fn udp(port: u16) -> Match {
    let port = Some(matches::Ports { first: port, last: port });
    Match { protocol: Some(UDP), port, ..Match::default() }
}

#[test]
fn matches_precede_simple_rules() {
    let voice = Match { dscp: Some(0), prefix: Some(([10, 0, 0, 1].into(), 32)), ..udp(1) };
    let simple = [(Rule::Mac(CLIENT), "mac"), (prefix("10.0.0.0/8"), "prefix")];
    let all = rules(&[&simple[..], &[(Rule::Match(voice), "voice")]].concat());
    assert_eq!((all.len(), all.conflicts(9)), (3, vec![]));
    assert_eq!(of(&all, "10.0.0.1", None), "voice");
    assert_eq!(of(&all, "10.0.0.2", None), "mac");
    let other = Match { dscp: Some(1), ..voice };
    assert_eq!(of(&rules(&[(Rule::Match(other), "voice")]), "10.0.0.1", None), "10.0.0.1");
}

#[test]
fn matches_do_not_match_bypassed_frames() {
    let all = rules(&[(Rule::Match(Match { mac: Some(CLIENT), ..Match::default() }), "mac")]);
    let mut arp = [HOST, CLIENT].concat();
    arp.extend([8, 6]);
    arp.extend([0; 46]);
    assert_eq!(owner(&all, &arp, Direction::Return), "bypass");
    // Multicast belongs to a client only by other fields than its address.
    assert_eq!(of(&all, "0.0.0.0", None), "mac");
    let all =
        rules(&[(Rule::Match(Match { prefix: Some((IpAddr::from([0; 4]), 0)), ..udp(1) }), "all")]);
    assert_eq!(of(&all, "0.0.0.0", None), "default");
}

#[test]
fn rules_that_matches_cover_are_reported_with_both_names() {
    let all = |matches: &[(Match, &str)], simple: &[(Rule, &str)]| {
        let matches: Vec<_> = matches.iter().map(|(m, name)| (Rule::Match(*m), *name)).collect();
        let found = rules(&[simple, &matches].concat()).conflicts(9);
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let net = Match { prefix: Some(([10, 0, 0, 0].into(), 8)), ..Match::default() };
    assert_eq!(
        all(&[(net, "a")], &[(prefix("10.1.0.0/16"), "b"), (prefix("11.0.0.0/8"), "c")]),
        ["prefix 10.1.0.0/16 of b is never reached: match {prefix 10.0.0.0/8} of a goes before \
             it and matches all of its frames; leave one out, or give the first a match with a \
             priority above 0"]
    );
    let first = Match { priority: 3, ..net };
    let found = all(&[(first, "a"), (Match { dscp: Some(1), ..net }, "b")], &[]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with(
        "match {prefix 10.0.0.0/8, dscp 1} of b is never reached: match {prefix 10.0.0.0/8, \
         priority 3} of a"
    ));
    let range = Match { port: Some(matches::Ports { first: 1, last: 9 }), ..udp(1) };
    assert_eq!(
        all(&[(udp(5), "a"), (range, "b")], &[]),
        ["match {protocol udp, port 1-9} of b and match {protocol udp, port 5} of a match some \
             of the same frames with the same precedence: give one of them a higher priority"]
    );
    // One client may have both.
    assert!(all(&[(udp(5), "a"), (range, "a")], &[]).is_empty());
    assert!(all(&[(Match { priority: 1, ..udp(5) }, "a"), (range, "b")], &[]).is_empty());
    let mut twice = rules(&[(Rule::Match(udp(5)), "a")]);
    let again = twice.insert(Rule::Match(Match { priority: 1, ..udp(5) }), name("b"));
    assert_eq!(
        again.unwrap_err().to_string(),
        "match {protocol udp, port 5, priority 1} is named twice, for a and for b: leave one of \
         them out"
    );
}

/// An address in one of few networks, so that prefixes meet it.
fn address() -> impl Strategy<Value = IpAddr> {
    let four = prop::array::uniform4(0_u8..3).prop_map(|a| IpAddr::from([10, a[1], a[2], a[3]]));
    let six = (0_u128..4, 0_u128..4, any::<u16>()).prop_map(|(high, middle, low)| {
        let bits = 0x2001 << 112 | high << 100 | middle << 64 | u128::from(low % 5);
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    });
    prop_oneof![four, six]
}

fn contains(network: IpAddr, length: u8, address: IpAddr) -> bool {
    let bits = |a: IpAddr| match a {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    };
    let bit = |b: &[u8], n: usize| b[n / 8] >> (7 - n % 8) & 1;
    let (n, a) = (bits(network), bits(address));
    n.len() == a.len() && (0..usize::from(length)).all(|i| bit(&n, i) == bit(&a, i))
}

proptest! {
    #[test]
    fn the_longest_prefix_wins_as_in_a_scan_of_all(
        networks in prop::collection::vec((address(), any::<u8>()), 0..40),
        sources in prop::collection::vec(address(), 1..40),
    ) {
        let mut rules = Rules::default();
        let mut all = Vec::new();
        for (n, (address, length)) in networks.into_iter().enumerate() {
            let (length, network) = match address {
                IpAddr::V4(a) => {
                    let length = length % 33;
                    let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                    (length, IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask)))
                }
                IpAddr::V6(a) => {
                    let length = length % 129;
                    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                    (length, IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask)))
                }
            };
            let client = name(&format!("c{n}"));
            let again = all.iter().any(|(k, l, _)| (*k, *l) == (network, length));
            let inserted = rules.insert(Rule::Prefix(network, length), client);
            prop_assert_eq!(inserted.is_err(), again);
            if again {
                return Ok(());
            }
            all.push((network, length, client));
        }
        for source in sources {
            let met = all.iter().filter(|(network, length, _)| contains(*network, *length, source));
            let longest = met.max_by_key(|(_, length, _)| *length);
            let expected = longest.map_or(source.to_string(), |(.., client)| client.to_string());
            prop_assert_eq!(of(&rules, &source.to_string(), None), expected);
        }
    }

    #[test]
    fn no_frame_panics(frame in prop::collection::vec(any::<u8>(), 0..80), forward: bool) {
        let direction = if forward { Direction::Forward } else { Direction::Return };
        let rules = rules(&[(Rule::Vlan(1), "v"), (Rule::Mac([0; 6]), "m"), (prefix("::/0"), "s")]);
        for key in [ClientKey::Default, ClientKey::Ip(IpAddr::from([1, 2, 3, 4]))] {
            let _ = rules.owner(key, &frame, direction, 0);
        }
    }
}

#[test]
fn new_rule_takes_frames_of_rules_that_it_precedes_and_of_the_rest() {
    let voice = Rule::Match(udp(5001));
    let there = [(prefix("10.99.0.0/24"), "alice"), (Rule::Vlan(7), "seven"), (voice, "voice")];
    let of = ["alice", "main", "seven", "voice"].into();
    let losing = |new: Rule| -> Vec<&str> {
        taken(("new", &[new]), &there, "main", &of).into_keys().collect()
    };
    assert_eq!(losing(prefix("10.99.0.2/32")), ["alice"]);
    assert_eq!(losing(prefix("10.98.0.0/24")), ["main"]);
    // A longer prefix precedes it.
    assert_eq!(losing(prefix("10.0.0.0/8")), ["main"]);
    assert_eq!(losing(Rule::Vlan(8)), ["alice", "main"]);
    assert_eq!(losing(Rule::Mac(CLIENT)), ["alice", "main", "seven"]);
    let first = Match { priority: 1, ..Match::default() };
    let icmp = Match { protocol: Some(1), ..first };
    assert_eq!(losing(Rule::Match(icmp)), ["alice", "main", "seven"]);
    let v6 = Match { remote_prefix: Some((Ipv6Addr::UNSPECIFIED.into(), 0)), ..first };
    assert_eq!(losing(Rule::Match(v6)), ["main", "seven", "voice"]);
    let inside = Match { vlan: Some(7), prefix: Some(([10, 98, 0, 0].into(), 24)), ..icmp };
    assert_eq!(losing(Rule::Match(inside)), ["seven"]);
    assert_eq!(losing(Rule::Match(Match { port_pair: Some(name("b")), ..inside })), ["seven"]);
    // Only for those that were asked for.
    let some = taken(("new", &[Rule::Mac(CLIENT)]), &there, "main", &["alice"].into());
    assert_eq!(some, [("alice", Rule::Mac(CLIENT))].into());
    assert_eq!(taken(("alice", &[prefix("10.99.0.2/32")]), &there, "main", &of), [].into());
}

/// One of few rules, of which many overlap.
fn rule() -> impl Strategy<Value = Rule> {
    let prefixes = ["10.0.0.0/8", "10.0.0.0/24", "10.1.1.0/24", "10.1.1.1/32", "2001::/16"];
    let prefixes = prop::sample::select(prefixes.map(prefix).to_vec());
    let vlans = 1_u16..4;
    let rest = (0_u32..3, prop::option::of(vlans.clone()), 0_u8..2);
    let matches = (rest, prop::option::of(prefixes.clone()), prop::option::of(0_u16..3)).prop_map(
        |((priority, vlan, dscp), prefix, port)| {
            let prefix = match prefix {
                Some(Rule::Prefix(address, length)) => Some((address, length)),
                _ => None,
            };
            let port = port.map(|port| matches::Ports { first: 1, last: port.max(1) });
            let protocol = port.map(|_| UDP);
            let dscp = Some(dscp);
            Rule::Match(Match { priority, vlan, dscp, prefix, port, protocol, ..Match::default() })
        },
    );
    prop_oneof![
        prefixes,
        vlans.prop_map(Rule::Vlan),
        prop::sample::select(vec![Rule::Mac(CLIENT), Rule::Mac(HOST)]),
        matches,
    ]
}

/// Equal for rules that name the same thing.
fn key(rule: Rule) -> Rule {
    match rule {
        Rule::Match(rule) => Rule::Match(Match { priority: 0, ..rule }),
        rule => rule,
    }
}

proptest! {
    #[test]
    fn target_that_loses_frames_to_new_rules_is_found(
        there in prop::collection::vec((rule(), 0_usize..3), 0..6),
        new in prop::collection::vec(rule(), 1..3),
        sources in prop::collection::vec((address(), prop::option::of(1_u16..4)), 1..20),
    ) {
        let names = ["to", "a", "b", "rest"];
        // Those that name something twice are left out.
        let mut seen = BTreeSet::new();
        let there = there.into_iter().filter(|(rule, _)| seen.insert(key(*rule)));
        let there: Vec<_> = there.map(|(rule, target)| (rule, names[target])).collect();
        let new: Vec<_> = new.into_iter().filter(|rule| seen.insert(key(*rule))).collect();
        let before = rules(&there);
        let added = new.iter().map(|rule| (*rule, "to"));
        let after = rules(&there.iter().copied().chain(added).collect::<Vec<_>>());
        prop_assume!(after.conflicts(1).is_empty());
        let losing = taken(("to", &new), &there, "rest", &names.into());
        for (source, vlan) in sources {
            let target = |rules: &Rules| {
                let owner = of(rules, &source.to_string(), vlan);
                names.into_iter().find(|name| *name == owner).unwrap_or("rest")
            };
            let (from, to) = (target(&before), target(&after));
            if from != to {
                prop_assert_eq!(to, "to");
                prop_assert!(losing.contains_key(from), "{}, of {:?}", from, losing);
            }
        }
    }
}
