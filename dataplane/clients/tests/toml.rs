// SPDX-License-Identifier: Apache-2.0
//! Valid and invalid files of clients.
#![allow(clippy::unwrap_used, reason = "a test")]

use clients::{BEAMS, Clients, check};
use emu::client::ClientKey;
use emu::rules::MAX_RULES;
use emu::units::{BitRate, Direction};
use profile::FileError;
use proptest::prelude::*;
use prost::Message;
use proto::linkemu::v1 as pb;

const GOOD: &str = r#"
[automatic]
limit = 1000

[[client]]
name = "alice"
prefix = [
    "10.1.0.0/24",
    "2001:db8:1::/48",
]
vlan = [100]
mac = ["02:00:00:00:00:01"]

[[client]]
name = "bob"
prefix = ["10.1.0.0/16"]
"#;

fn refused(text: &str) -> String {
    Clients::from_toml(text).unwrap_err().to_string()
}

#[test]
fn printed_file_parses_to_the_same_message() {
    let clients = Clients::from_toml(GOOD).unwrap();
    assert_eq!(clients.to_toml(), GOOD.trim_start());
    let rules = clients.rules();
    assert_eq!((rules.len(), rules.automatic, rules.reserved), (5, Some(1000), 2));
    let alice = &clients.as_proto().clients[0];
    assert_eq!((alice.name.as_str(), &alice.vlans[..]), ("alice", &[100][..]));
    let none = Clients::from_toml("").unwrap();
    assert_eq!((none.as_proto(), none.to_toml().as_str()), (&pb::Clients::default(), ""));
    assert!(none.rules().is_empty());
    // No automatic clients and an absent table are different.
    let limit = |text| Clients::from_toml(text).unwrap().rules().automatic;
    assert_eq!((limit("automatic.limit = 0"), limit("[automatic]")), (Some(0), None));
}

#[test]
fn each_fault_is_reported_with_place_and_remedy() {
    let of = |line: &str| format!("[[client]]\nname = \"a\"\n{line}\n");
    for (text, message) in [
        (
            of("prefix = [\"10.1.2.3/24\"]"),
            "line 3, column 11: client[0].prefix[0]: prefix 10.1.2.3/24 has bits set behind the first 24: write 10.1.2.0/24",
        ),
        (of("prefix = [\"10.1.2.3\"]"), "10.1.2.3 has no length: write 10.1.2.3/32"),
        (of("prefix = [\"2001:db8::1\"]"), "write 2001:db8::1/128"),
        (of("prefix = [\"10.1.0.0/33\"]"), "\"10.1.0.0/33\" is no prefix: write it as 10.1.0.0/24"),
        (of("prefix = [\"lan\"]"), "\"lan\" is no prefix"),
        (of("prefix = \"10.0.0.0/8\""), "is not a list: write prefix = [\"10.1.0.0/24\"]"),
        (of("prefix = [10]"), "10 is not text: write it in quotes"),
        (of("prefix = [\"224.0.0.0/8\"]"), "is in 224.0.0.0/4, whose addresses are of no one host"),
        (of("prefix = [\"fe80::/64\"]"), "name the client's frames by vlan or mac"),
        (
            of("vlan = [0]"),
            "line 3, column 9: client[0].vlan[0]: VLAN 0 cannot be: the ids are 1 to 4094",
        ),
        (of("vlan = [65637]"), "VLAN 65637 cannot be"),
        (of("vlan = [-1]"), "-1 is not a whole number from 0 on"),
        (of("vlan = [\"7\"]"), "without quotes"),
        (
            of("mac = [\"02:00:00:00:00\"]"),
            "\"02:00:00:00:00\" is no MAC address: write it as 02:00",
        ),
        (of("mac = [\"+2:00:00:00:00:01\"]"), "is no MAC address"),
        (of("mac = [\"a:b:c:0000000000d\"]"), "is no MAC address"),
        (
            of("vlan = [1, 2, 1]"),
            "line 3, column 15: client[0].vlan[2]: VLAN 1 is named twice, for a and for a",
        ),
        (
            of("mak = []\nvlan = [1]"),
            "line 3, column 1: client[0].mak: unknown key \"mak\": the nearest is \"mac\"",
        ),
        (
            of(""),
            "line 1, column 1: client[0]: no frames are this client's: give it a prefix, a vlan, a mac or a [[client.match]]",
        ),
        ("[[client]]\nvlan = [1]".into(), "client[0].name: missing: give the client a name"),
        (
            "[[client]]\nname = \"a b\"\nvlan = [1]".into(),
            "line 2, column 8: client[0].name: \"a b\": ' ' cannot be in a client's name",
        ),
        (
            "[[client]]\nname = \"10.0.0.1\"\nvlan = [1]".into(),
            "an IP address is the name of that address's own client",
        ),
        (
            "[[client]]\nname = \"Default\"\nvlan = [1]".into(),
            "\"default\" is not a client that rules can name",
        ),
        ("[[client]]\nname = 7\nvlan = [1]".into(), "7 is not text"),
        ("[[clients]]\n".into(), "unknown key \"clients\": the nearest is \"client\""),
        ("client = 7".into(), "7 is not a list of tables: write [[client]] for each"),
        ("automatic.limit = \"many\"".into(), "\"many\" is not a whole number"),
        ("automatic.limit = 4294967296".into(), "4294967296 is not a whole number"),
        ("automatic = 7".into(), "7 is not a table"),
        ("client".into(), "not TOML"),
    ] {
        let found = refused(&text);
        assert!(found.contains(message), "{found}");
    }
}

const MATCHES: &str = r#"
[[client]]
name = "voice"
beam = "b1"

[[client.match]]
priority = 5
vlan = 100
inner_vlan = 7
mac = "02:00:00:00:00:01"
prefix = "2001:db8:1::/48"
remote_prefix = "2001:db8::/32"
protocol = "udp"
port = "5001"
remote_port = "5000-5010"
dscp = 46
flow_label = 0
port_pair = "b"

[[client.match]]
protocol = "47"
dscp = 0

[[client]]
name = "rest"
prefix = ["2001:db8:1::/48"]

[[beam]]
name = "b1"
forward_rate = "400 Mbit/s"
"#;

#[test]
fn match_is_printed_and_parsed_to_the_same_message() {
    let clients = Clients::from_toml(MATCHES).unwrap();
    assert_eq!(clients.to_toml(), MATCHES.trim_start());
    assert_eq!(clients.rules().len(), 3);
    let of = &clients.as_proto().clients[0].matches;
    assert_eq!((of[0].flow_label, of[1].flow_label, of[1].dscp), (Some(0), None, Some(0)));
    // Numbers may be written as numbers, and tables in a line.
    let short = "client = [{name = \"a\", match = [{protocol = 17, port = 5001, dscp = 1}]}]";
    let of = &Clients::from_toml(short).unwrap().into_proto().clients[0].matches[0];
    assert_eq!((of.protocol.as_str(), of.port.as_str()), ("17", "5001"));
}

#[test]
fn invalid_match_is_reported_with_place_and_remedy() {
    for (line, message) in [
        ("", "line 3, column 1: client[0].match[0]: a match without fields is every frame's"),
        ("priority = 7", "give it at least one, such as prefix"),
        ("vlan = 0", "line 4, column 8: client[0].match[0].vlan: VLAN 0 cannot be"),
        ("inner_vlan = 4095", "VLAN 4095 cannot be: the ids are 1 to 4094"),
        ("vlan = 65636", "client[0].match[0].vlan: VLAN 65636 cannot be"),
        ("vlan = [7]", "a list is not a whole number from 0 on"),
        ("mac = \"02\"", "client[0].match[0].mac: \"02\" is no MAC address"),
        ("prefix = \"10.1.2.3\"", "10.1.2.3 has no length: write 10.1.2.3/32"),
        ("prefix = \"10.1.2.3/24\"", "write 10.1.2.0/24"),
        ("prefix = \"ff02::/16\"", "ff02::/16 is in ff00::/8, whose addresses are of no one host"),
        ("prefix = \"\"", "match[0].prefix: empty: give it a value, or leave it out"),
        ("prefix = [\"10.0.0.0/8\"]", "a list is not text"),
        ("remote_prefix = \"lan\"", "\"lan\" is no prefix"),
        ("protocol = \"sctp\"", "\"sctp\" is no protocol: write \"tcp\", \"udp\", \"icmp\""),
        ("protocol = 256", "\"256\" is no protocol"),
        ("protocol = \"+6\"", "\"+6\" is no protocol"),
        ("port = \"http\"", "match[0].port: \"http\" is no port: write one from 0 to 65535"),
        ("port = 65536", "\"65536\" is no port"),
        ("port = \"1-\"", "\"1-\" is no port"),
        ("port = \"1-2-3\"", "\"1-2-3\" is no port"),
        ("port = 5001", "ports are those of TCP and UDP: add protocol"),
        ("protocol = \"udp\"\nport = \"9-1\"", "port range 9-1 is reversed: write 1-9"),
        ("protocol = \"icmp\"\nport = 9", "protocol icmp has no ports"),
        ("dscp = 64", "DSCP 64 cannot be: the values are 0 to 63"),
        ("dscp = 300", "match[0].dscp: DSCP 300 cannot be: the values are 0 to 63"),
        ("dscp = \"ef\"", "\"ef\" is not a whole number"),
        ("flow_label = 1048576", "flow label 1048576 has more than 20 bits"),
        ("port_pair = \"\"", "empty: give it a value, or leave it out"),
        ("port_pair = \"a b\"", "\"a b\" is no name of a port pair: the names are 1 to 16 of"),
        ("flow_label = 1\nprefix = \"10.0.0.0/8\"", "only IPv6 has flow labels"),
        ("dcsp = 1", "unknown key \"dcsp\": the nearest is \"dscp\""),
    ] {
        let found = refused(&format!("[[client]]\nname = \"a\"\n[[client.match]]\n{line}\n"));
        assert!(found.contains(message), "{line}: {found}");
    }
    assert!(refused("[[client]]\nname = \"a\"\nmatch = 7").contains("write [[client[0].match]]"));
}

#[test]
fn contradicting_matches_are_reported_with_both_clients() {
    let text = |a: &str, b: &str| {
        format!("[[client]]\nname = \"a\"\n{a}\n[[client]]\nname = \"b\"\n{b}\n")
    };
    let of = |fields: &str| format!("match = [{{{fields}}}]");
    let udp = |ports: &str| of(&format!("protocol = \"udp\", port = \"{ports}\""));
    for (a, b, message) in [
        (
            udp("5"),
            udp("5"),
            "line 6, column 10: client[1].match[0]: match {protocol udp, port 5} is named twice, \
             for a and for b",
        ),
        (
            udp("1-5"),
            udp("5-9"),
            "line 6, column 10: client[1].match[0]: match {protocol udp, port 5-9} of b and match \
             {protocol udp, port 1-5} of a match some of the same frames with the same precedence: \
             give one of them a higher priority",
        ),
        (
            of("priority = 2, dscp = 1"),
            of("vlan = 7, dscp = 1"),
            "client[1].match[0]: match {vlan 7, dscp 1} of b is never reached: match {dscp 1, \
             priority 2} of a goes before it",
        ),
        (
            "vlan = [6, 7]".to_owned(),
            of("vlan = 7"),
            "line 3, column 12: client[0].vlan[1]: VLAN 7 of a is never reached: match {vlan 7} of b",
        ),
    ] {
        let found = refused(&text(&a, &b));
        assert!(found.contains(message), "{found}");
    }
    Clients::from_toml(&text(&udp("1-5"), &udp("6-9"))).unwrap();
}

const BEAM: &str = r#"
[automatic]
beam = "beam-1"
weight = 3

[[client]]
name = "alice"
vlan = [100]
beam = "beam-1"
weight = 2

[[client]]
name = "bob"
vlan = [101]

[[beam]]
name = "beam-1"
forward_rate = "400 Mbit/s"

[[beam]]
name = "beam-2"
forward_rate = "down"
return_rate = "40 Mbit/s"
"#;

#[test]
fn clients_share_only_the_beams_they_name() {
    let clients = Clients::from_toml(BEAM).unwrap();
    assert_eq!(clients.to_toml(), BEAM.trim_start());
    let beams = clients.beams();
    beams.check().unwrap();
    let named = |name: &str| ClientKey::Named(name.parse().unwrap());
    let share = |key, direction| beams.share(key, direction).map(|s| (s.beam, s.weight));
    use Direction::{Forward, Return};
    assert_eq!(share(named("alice"), Forward), Some((0, 2)));
    assert_eq!(share(named("alice"), Return), None);
    // Unlike automatic clients: it is named and in no beam.
    assert_eq!(share(named("bob"), Forward), None);
    assert_eq!(share(ClientKey::Ip([10, 0, 0, 1].into()), Forward), Some((0, 3)));
    assert_eq!(share(ClientKey::Default, Forward), Some((0, 3)));
    assert_eq!(beams.beams[0].rate.0, [BitRate::bps(400_000_000), BitRate::Unlimited]);
    assert_eq!(beams.beams[1].rate.0, [BitRate::Down, BitRate::bps(40_000_000)]);
    let own = "beam = \"beam-1\"\nweight = 2";
    for (good, bad, message) in [
        (own, "beam = \"beam-3\"", "no beam is named \"beam-3\": the nearest is \"beam-"),
        (own, "weight = 2", "a weight is one in a beam"),
        ("weight = 2", "weight = 1001", "weight 1001 is none of 1 to 1000"),
        ("weight = 2", "weight = 0", "0 is no weight: write 1 to 1000"),
        ("weight = 3", "weight = \"3\"", "\"3\" is not a whole number"),
        ("\"beam-2\"", "\"beam-1\"", "beam-1 is the name of beam[0] as well"),
        ("\"beam-2\"", "\"b 2\"", "\"b 2\" is no name"),
        ("forward_rate = \"400 Mbit/s\"", "", "it limits neither direction"),
        ("400 Mbit/s", "unlimited", "it limits neither direction"),
        ("\"400 Mbit/s\"", "400", "forward_rate = 400 has no unit"),
        ("400 Mbit/s", "10 bit/s", "10 bit/s is outside of 1 kbit/s to 400 Gbit/s"),
    ] {
        assert!(BEAM.contains(good));
        let found = refused(&BEAM.replacen(good, bad, 1));
        assert!(found.contains(message), "{found}");
    }
    let beam = |n| format!("[[beam]]\nname = \"b{n}\"\nforward_rate = \"1 Mbit/s\"\n");
    let many = |n: usize| (0..n).map(beam).collect::<String>();
    Clients::from_toml(&many(BEAMS)).unwrap().beams().check().unwrap();
    assert!(refused(&many(BEAMS + 1)).contains("256 beams are more than 255"));
}

#[test]
fn conflicting_rules_are_reported_with_both_clients() {
    let text = |rule: &str| {
        format!("[[client]]\nname = \"a\"\n{rule}\n[[client]]\nname = \"b\"\n{rule}\n")
    };
    for (rule, what) in [
        ("prefix = [\"10.0.0.0/8\"]", "prefix 10.0.0.0/8"),
        ("vlan = [7]", "VLAN 7"),
        ("mac = [\"02-00-00-00-00-0A\"]", "MAC 02:00:00:00:00:0a"),
    ] {
        let found = refused(&text(rule));
        let message = format!("{what} is named twice, for a and for b: leave one of them out");
        assert!(found.starts_with("line 6, ") && found.ends_with(&message), "{found}");
    }
    let found = refused(&text("vlan = [7]").replace("\"b\"", "\"a\""));
    assert!(found.contains("a is the name of client[0] as well"), "{found}");
}

#[test]
fn rules_faults_and_files_are_bounded() {
    let prefixes = |n: usize| (0..n).map(|n| format!("2001:db8:{n:x}::/48")).collect();
    let client = |n| pb::Client { name: "a".into(), prefixes: prefixes(n), ..Default::default() };
    let message = |n| pb::Clients { clients: vec![client(n)], ..Default::default() };
    let clients = Clients::try_from(message(MAX_RULES)).unwrap();
    // The printed text is parsed again.
    assert_eq!(Clients::from_toml(&clients.to_toml()).unwrap(), clients);
    let found = check(&message(MAX_RULES + 2)).unwrap_err();
    assert_eq!(found.len(), 1);
    assert!(found.to_string().contains("more than 16384 rules"), "{found}");
    // Each match is in the longest form.
    let rule = |n: u32| pb::Match {
        priority: u32::MAX - n,
        vlan: 4094,
        inner_vlan: 4094,
        mac: "02:00:00:00:00:01".into(),
        prefix: format!("2001:db8:1111:2222:3333:4444:5555:{:x}/128", 0x1_0000 - n - 1),
        remote_prefix: "2001:db8:1111:2222:3333:4444:5555:6666/128".into(),
        protocol: "udp".into(),
        port: "10000-20000".into(),
        remote_port: "10000-20000".into(),
        dscp: Some(63),
        flow_label: Some(1_048_575),
        port_pair: "0123456789abcdef".into(),
    };
    let matches = (0..MAX_RULES as u32).map(rule).collect();
    let full = pb::Client { name: "a".into(), matches, ..Default::default() };
    let clients =
        Clients::try_from(pb::Clients { clients: vec![full], ..Default::default() }).unwrap();
    assert_eq!(Clients::from_toml(&clients.to_toml()).unwrap(), clients);
    assert!(clients.as_proto().encoded_len() < profile::MESSAGE_BYTES);
    let bad = pb::Client { vlans: vec![0; 100_000], ..client(1) };
    let found = check(&pb::Clients { clients: vec![bad], ..Default::default() }).unwrap_err();
    assert_eq!(found.len(), 100);
    let faults = format!("[[client]]\nname = \"a\"\nvlan = [{}]", "0, ".repeat(100_000));
    assert_eq!(Clients::from_toml(&faults).unwrap_err().len(), 100);
    let long = "# ".repeat(clients::FILE_BYTES);
    assert!(refused(&long).contains("shorten it"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("clients.toml");
    assert!(matches!(Clients::from_file(&at), Err(FileError::Io { .. })));
    std::fs::write(&at, "client = 1").unwrap();
    let found = Clients::from_file(&at).unwrap_err().to_string();
    assert!(found.contains("clients.toml:1:10: client: 1 is not a list"), "{found}");
}

fn rule() -> impl Strategy<Value = pb::Match> {
    let vlan = || prop_oneof![4 => Just(0), 1 => 0_u32..5_000];
    let prefix = || "|10\\.[0-3]\\.0\\.0/(16|8|33)|fd0[0-3]::/16|::/0|[0-9a-f.:/]{0,9}";
    let port = || "|||[0-9]{1,3}(-[0-9]{3})?|[0-9-]{1,6}";
    let text = ("|||0[0-3]:00:00:00:00:0[0-9a-f]", prefix(), prefix(), "|tcp|UDP|17|[a-z0-9]{0,4}");
    let numbers = (prop::option::of(0_u32..70), prop::option::of(0..(1_u32 << 21)));
    let rest = (port(), port(), numbers, "||[a-b]|[a-z0-9._/-]{0,17}");
    (0_u32..3, vlan(), vlan(), text, rest).prop_map(|(priority, vlan, inner_vlan, text, rest)| {
        let (mac, prefix, remote_prefix, protocol) = text;
        let (port, remote_port, (dscp, flow_label), port_pair) = rest;
        pb::Match {
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
    })
}

proptest! {
    #[test]
    fn no_text_panics(text in "(\\[\\[client\\]\\]\n)?(name|vlan|mac|prefix|match|automatic) = .{0,40}") {
        let _ = Clients::from_toml(&text);
    }

    #[test]
    fn no_message_panics_and_valid_ones_print_and_parse(
        names in prop::collection::vec("[a-z0-9.:]{0,17}", 0..4),
        prefixes in prop::collection::vec("[0-9]{1,3}\\.0\\.0\\.0/[0-9]{1,2}|[0-9a-f:/]{0,9}", 0..4),
        vlans in prop::collection::vec(0_u32..5_000, 0..4),
        macs in prop::collection::vec("[0-9a-f:-]{0,17}|0[0-9A-F]:00:00:00:00:0[0-9a-f]", 0..3),
        matches in prop::collection::vec(rule(), 0..4),
        limit in prop::option::of(any::<u32>()),
    ) {
        let client = |(n, name): (usize, String)| pb::Client {
            name,
            prefixes: prefixes.iter().skip(n).cloned().collect(),
            vlans: vlans.iter().skip(n).copied().collect(),
            macs: macs.iter().skip(n).cloned().collect(),
            matches: matches.iter().skip(2 * n).cloned().collect(),
            ..Default::default()
        };
        let clients = names.into_iter().enumerate().map(client).collect();
        let automatic = limit.map(|limit| pb::Automatic { limit: Some(limit), ..Default::default() });
        if let Ok(valid) = Clients::try_from(pb::Clients { clients, automatic, beams: Vec::new() }) {
            prop_assert_eq!(Clients::from_toml(&valid.to_toml()).unwrap(), valid);
        }
    }
}
