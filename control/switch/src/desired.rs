// SPDX-License-Identifier: Apache-2.0
//! Desired entries of the switch, table by table.

use crate::bins;
use crate::cells::Cells;
use crate::config::{Config, Sides};
use crate::hosts::Hosts;
use crate::model::{BYPASS, Client, DEFAULT, MAX_CLIENTS, Match, Mirror, Owners, Point};
use crate::names::{self, bit};
use crate::slots::Slots;
use emu::units::Direction;
use p4runtime::entry::Key;
use p4runtime::{Entry, bits};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that belong to no single host. As in the dataplane, they belong to the default client,
/// for all rules. A rule within one of these prefixes would win by length, so it is
/// omitted.
const SPECIAL: [(IpAddr, u8); 9] = [
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 32),
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4),
    (IpAddr::V4(Ipv4Addr::BROADCAST), 32),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
];

type Entries = BTreeMap<Key, Entry>;

/// Priority of entries with ternary fields. These entries do not compete.
const PRIORITY: i32 = 1;

/// All bits of a box's number.
const BOX: u16 = 7;

#[derive(Clone, Debug)]
pub struct Desired {
    pub cells: Cells,
    /// Epoch of all client numbers; never zero.
    pub epoch: u16,
    /// Dataplane instance of the epoch; zero if unknown.
    pub instance: u64,
    /// Hash of everything in the plan that concerns clients.
    pub rules: u64,
    /// `None` until the clients are known: existing entries stay.
    pub clients: Option<Vec<Client>>,
    /// Reason why the switch has no clients; `None` if it has them.
    pub withheld: Option<String>,
    pub gates: BTreeSet<(Option<u16>, Direction)>,
    /// Frames that are copied; none without a port for copies.
    pub mirrors: BTreeSet<Mirror>,
    pub owners: Owners,
    pub slots: Slots,
    pub hosts: Hosts,
}

impl Desired {
    pub fn new(epoch: u16, cells: Cells) -> Self {
        Self {
            cells,
            epoch,
            instance: 0,
            rules: 0,
            clients: Some(Vec::new()),
            withheld: None,
            gates: BTreeSet::new(),
            mirrors: BTreeSet::new(),
            owners: Owners::default(),
            slots: Slots::default(),
            hosts: Hosts::default(),
        }
    }

    /// Entries of a table; `None` if its existing entries stay.
    pub fn entries(&self, table: &str, config: &Config) -> Option<Entries> {
        let entries: Vec<Entry> = match table {
            names::PORTS => self.ports(config),
            names::GATES => self.gates.iter().map(|gate| self.gate(*gate)).collect(),
            names::MIRRORS => self.mirrors.iter().map(|mirror| self.mirror(*mirror)).collect(),
            names::BUCKETS => self.buckets(),
            names::BOXES => self.boxes(config),
            names::LOSS => self.slots.entries().collect(),
            names::NOTES => vec![self.note()],
            names::HOSTS => self.hosts.entries().collect(),
            names::SOURCES => self.hosts.sources().collect(),
            names::TRANSIT_BINS | names::LATENESS_BINS => {
                bins::entries(table, config.target.tick())
            }
            _ if !config.stages.classifies || self.withheld.is_some() => Vec::new(),
            _ => self.clients(table, self.clients.as_ref()?),
        };
        Some(entries.into_iter().rev().map(|entry| (entry.key.clone(), entry)).collect())
    }

    fn ports(&self, config: &Config) -> Vec<Entry> {
        let entry = |port: u16, action: &str, direction| {
            let entry = Entry::new(names::PORTS).exact("port", port).does(action);
            let entry = entry.with("direction", bit(direction)).with("epoch", self.epoch);
            entry.with("mirrors", u8::from(!self.mirrors.is_empty()))
        };
        let mut entries = Vec::new();
        for direction in Direction::BOTH {
            for port in config.host_ports.incoming()[direction] {
                let entry = entry(*port, names::FROM_HOST, direction);
                entries.push(entry.with("box", self.owners.default));
            }
            for (owner, ports) in self.cells.boxes().zip(&config.boxes) {
                let entry = entry(*ports.outgoing()[direction], names::FROM_BOX, direction);
                entries.push(self.celled(entry.with("box", owner), owner));
            }
        }
        entries
    }

    /// Adds the parameters of a box's cells.
    fn celled(&self, entry: Entry, owner: u8) -> Entry {
        entry.with("base", self.cells.cell(owner, 0)).with("over", self.cells.over())
    }

    fn boxes(&self, config: &Config) -> Vec<Entry> {
        let of = |(owner, ports): (u8, &Sides<u16>)| {
            Direction::BOTH.map(|direction| {
                let entry = Entry::new(names::BOXES).exact("box", owner);
                let entry = entry.exact("direction", bit(direction)).does(names::TO_BOX);
                self.celled(entry.with("port", *ports.incoming()[direction]), owner)
            })
        };
        self.cells.boxes().zip(&config.boxes).flat_map(of).collect()
    }

    fn buckets(&self) -> Vec<Entry> {
        let entry = |(bucket, owner): (&u8, &u8)| {
            let entry = Entry::new(names::BUCKETS).exact("bucket", *bucket);
            entry.does(names::SET_BOX).with("box", *owner)
        };
        self.owners.buckets.iter().map(entry).collect()
    }

    /// Adopts the owners that the entries of both tables say.
    pub fn adopt_owners(&mut self, ports: &Entries, buckets: &Entries) {
        let owner = |entry: &Entry| {
            let owner = u8::try_from(*entry.action.params.get("box")?).ok()?;
            self.cells.has(owner).then_some(owner)
        };
        let bucket = |entry: &Entry| match entry.key.fields.get("bucket") {
            Some(p4runtime::Match::Exact(bucket)) => {
                Some((u8::try_from(*bucket).ok()?, owner(entry)?))
            }
            _ => None,
        };
        let of_hosts = |entry: &&Entry| entry.action.name == names::FROM_HOST;
        let default = ports.values().find(of_hosts).and_then(owner).unwrap_or_default();
        self.owners = Owners { buckets: buckets.values().filter_map(bucket).collect(), default };
    }

    /// Instance and rules of the epoch, as a key: that is what every switch returns.
    fn note(&self) -> Entry {
        let note = u128::from(self.instance) << 64 | u128::from(self.rules);
        let entry = Entry::new(names::NOTES).exact("epoch", self.epoch).exact("note", note);
        entry.does(names::NO_ACTION)
    }

    /// Epoch, instance and rules, if all ports have an entry of one epoch, and the only note is of the
    /// same.
    pub fn epoch_of(
        ports: &Entries,
        notes: &Entries,
        cells: Cells,
        config: &Config,
    ) -> Option<(u16, u64, u64)> {
        let first = ports.values().next()?;
        let epoch = u16::try_from(*first.action.params.get("epoch")?).ok().filter(|e| *e != 0)?;
        let note = notes.keys().next()?.fields.get("note")?;
        let p4runtime::Match::Exact(note) = *note else { return None };
        let (instance, rules) = ((note >> 64) as u64, note as u64);
        let mut said = Self { instance, rules, ..Self::new(epoch, cells) };
        said.adopt_owners(ports, &Entries::new());
        if first.action.params.get("mirrors") == Some(&1) {
            said.mirrors.insert((None, Direction::Forward, Point::Box));
        }
        let same = |table, found| said.entries(table, config).as_ref() == Some(found);
        let same = same(names::PORTS, ports) && same(names::NOTES, notes);
        same.then_some((epoch, instance, rules))
    }

    /// Number of clients that the switch classifies.
    pub fn client_count(&self, config: &Config) -> u32 {
        if !config.stages.classifies || self.withheld.is_some() {
            return 0;
        }
        let known = |client: &&Client| {
            self.cells.place(client.number).1 >= BYPASS && !self.rules(client).is_empty()
        };
        self.clients.iter().flatten().filter(known).count() as u32
    }

    fn gate(&self, (client, direction): (Option<u16>, Direction)) -> Entry {
        let entry = Entry::new(names::GATES).exact("direction", bit(direction));
        self.of_client(entry, client).priority(PRIORITY).does(names::CLOSE_GATE)
    }

    fn mirror(&self, (client, direction, point): Mirror) -> Entry {
        let entry = Entry::new(names::MIRRORS).exact("direction", bit(direction));
        let entry = entry.exact("to_hosts", names::at(point));
        self.of_client(entry, client).priority(PRIORITY).does(names::MIRROR)
    }

    /// Restricts an entry to a client, by its cell, if there is one.
    fn of_client(&self, entry: Entry, client: Option<u16>) -> Entry {
        match client.map(|cell| self.cells.place(cell)) {
            Some((owner, client)) => {
                entry.ternary("box", owner, BOX).ternary("client", client, u16::MAX)
            }
            None => entry,
        }
    }

    /// Entries of one of the four client tables. If two clients have the same match, the first one
    /// wins. Without rules there are no special addresses either: the switch would find them before
    /// an absent MAC, or before a rule that only the dataplane can apply.
    fn clients(&self, table: &str, clients: &[Client]) -> Vec<Entry> {
        if clients.iter().all(|client| client.matches.is_empty()) {
            return Vec::new();
        }
        let special = SPECIAL.iter().filter_map(|(address, length)| prefix(*address, *length));
        let special = special.map(|rule| ((self.owners.default, DEFAULT), rule));
        let named = clients.iter().flat_map(|client| {
            let rules = self.rules(client).into_iter();
            rules.map(|rule| (self.cells.place(client.number), rule))
        });
        let all = special.chain(named).filter(|(_, rule)| rule.key.table == table);
        let entry = |((owner, number), rule): ((u8, u16), Entry)| {
            rule.does(names::SET_CLIENT).with("client", number).with("box", owner)
        };
        all.map(entry).collect()
    }

    /// The rules of a client of an existing box, if the switch can have them.
    fn rules(&self, client: &Client) -> Vec<Entry> {
        let possible =
            client.number < MAX_CLIENTS && self.cells.has(self.cells.place(client.number).0);
        if possible { rules(client) } else { Vec::new() }
    }
}

/// Entries of a client without their action. Number 0 leaves the classification to its box
/// where a wider rule of another client would match. Invalid tags and prefixes are
/// omitted: the dataplane classifies the rest.
fn rules(client: &Client) -> Vec<Entry> {
    let rules = client.matches.iter().flat_map(|rule| match *rule {
        Match::Mac(mac) => {
            let mac = mac.iter().fold(0u64, |mac, byte| mac << 8 | u64::from(*byte));
            let of = |direction| {
                Entry::new(names::MACS).exact("direction", bit(direction)).exact("mac", mac)
            };
            Direction::BOTH.map(of).to_vec()
        }
        Match::Vlan(vlan @ 1..4095) => {
            vec![Entry::new(names::VLANS).exact("vlan", vlan).priority(PRIORITY)]
        }
        Match::Vlan(_) => Vec::new(),
        Match::Prefix(address, length) => {
            let special = SPECIAL.iter().any(|of| within((address, length), *of));
            let rule = (!special).then(|| prefix(address, length));
            rule.flatten().into_iter().collect()
        }
    });
    rules.collect()
}

fn within((address, length): (IpAddr, u8), (of, shorter): (IpAddr, u8)) -> bool {
    let same = |a: u128, b: u128, width| (a ^ b) & bits::prefix(shorter.into(), width) == 0;
    length >= shorter
        && match (address, of) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
}

fn prefix(address: IpAddr, length: u8) -> Option<Entry> {
    let (table, address, width) = match address {
        IpAddr::V4(address) => (names::PREFIXES4, address.to_bits().into(), 32),
        IpAddr::V6(address) => (names::PREFIXES6, address.to_bits(), 128),
    };
    let length = u32::from(length);
    let entry = |address| {
        let entry = Entry::new(table);
        // A prefix of length zero is an absent field.
        if length == 0 { entry } else { entry.lpm("address", address, length) }
    };
    (length <= width).then(|| entry(address & bits::prefix(length, width)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Program, Stages};
    use crate::model::bucket;
    use crate::target::Target;

    fn config() -> Config {
        Config {
            address: String::new(),
            tls: None,
            device: 1,
            election: 1,
            target: Target::Bmv2,
            boxes: vec![Sides { wan: 1, client: 2 }],
            host_ports: Sides { wan: vec![3], client: vec![4, 5] },
            mirror_port: Some(6),
            stages: Stages { classifies: true, loses: true, marks: true },
            program: Program::embedded(b"", b""),
        }
    }

    fn cells(boxes: usize) -> Cells {
        Cells::new(boxes, MAX_CLIENTS)
    }

    fn epoch_of(entries: &Entries, config: &Config) -> Option<(u16, u64, u64)> {
        let cells = cells(config.boxes.len());
        let notes = Desired::new(7, cells).entries(names::NOTES, config).unwrap();
        Desired::epoch_of(entries, &notes, cells, config)
    }

    fn two() -> Config {
        let boxes = vec![Sides { wan: 1, client: 2 }, Sides { wan: 6, client: 7 }];
        Config { boxes, ..config() }
    }

    fn said(desired: &Desired, table: &str) -> Vec<String> {
        let entries = desired.entries(table, &config()).unwrap();
        entries.values().map(ToString::to_string).collect()
    }

    fn desired(number: u16, matches: &[Match]) -> Desired {
        let clients = Some(vec![Client { number, matches: matches.to_vec() }]);
        Desired { clients, ..Desired::new(7, cells(1)) }
    }

    #[test]
    fn frames_enter_one_box_port_and_leave_the_other() {
        let ports = said(&Desired::new(7, cells(1)), names::PORTS);
        let expected = [
            "linkemu.ports[port=0x1] -> linkemu.from_box(base=0, box=0, direction=1, epoch=7, mirrors=0, over=61440)",
            "linkemu.ports[port=0x2] -> linkemu.from_box(base=0, box=0, direction=0, epoch=7, mirrors=0, over=61440)",
            "linkemu.ports[port=0x3] -> linkemu.from_host(box=0, direction=0, epoch=7, mirrors=0)",
            "linkemu.ports[port=0x4] -> linkemu.from_host(box=0, direction=1, epoch=7, mirrors=0)",
            "linkemu.ports[port=0x5] -> linkemu.from_host(box=0, direction=1, epoch=7, mirrors=0)",
        ];
        assert_eq!(ports, expected);
    }

    #[test]
    fn epoch_is_read_only_if_all_ports_and_the_note_agree() {
        let of =
            |epoch, instance, rules| Desired { instance, rules, ..Desired::new(epoch, cells(1)) };
        let entries = |desired: &Desired, table| desired.entries(table, &config()).unwrap();
        let desired = of(7, u64::MAX, 5);
        let mut ports = entries(&desired, names::PORTS);
        let notes = entries(&desired, names::NOTES);
        let read =
            |ports: &Entries, notes: &Entries| Desired::epoch_of(ports, notes, cells(1), &config());
        assert_eq!(read(&ports, &notes), Some((7, u64::MAX, 5)));
        let first = ports.keys().next().unwrap().clone();
        let mut other = ports.clone();
        other.get_mut(&first).unwrap().action.params.insert("epoch".into(), 8);
        assert_eq!(read(&other, &notes), None);
        // The next epoch's note was written, its ports were not.
        let next = entries(&of(8, u64::MAX, 5), names::NOTES);
        assert_eq!(read(&ports, &next), None);
        let both = notes.clone().into_iter().chain(next).collect();
        assert_eq!(read(&ports, &both), None);
        assert_eq!(read(&ports, &BTreeMap::new()), None);
        ports.remove(&first);
        assert_eq!(read(&ports, &notes), None);
        assert_eq!(read(&BTreeMap::new(), &notes), None);
    }

    #[test]
    fn ports_and_cells_of_each_box_are_its_own() {
        let desired = Desired::new(7, cells(2));
        let boxes: Vec<_> = desired.entries(names::BOXES, &two()).unwrap().into_values().collect();
        let expected = [
            "linkemu.boxes[box=0x0, direction=0x0] -> linkemu.to_box(base=0, over=63488, port=1)",
            "linkemu.boxes[box=0x0, direction=0x1] -> linkemu.to_box(base=0, over=63488, port=2)",
            "linkemu.boxes[box=0x1, direction=0x0] -> linkemu.to_box(base=2048, over=63488, port=6)",
            "linkemu.boxes[box=0x1, direction=0x1] -> linkemu.to_box(base=2048, over=63488, port=7)",
        ];
        assert_eq!(boxes.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        let ports = desired.entries(names::PORTS, &two()).unwrap();
        let of_six =
            ports.values().map(ToString::to_string).find(|entry| entry.contains("port=0x6"));
        let expected = "linkemu.ports[port=0x6] -> \
                        linkemu.from_box(base=2048, box=1, direction=1, epoch=7, mirrors=0, over=63488)";
        assert_eq!(of_six.as_deref(), Some(expected));
    }

    #[test]
    fn client_and_gate_of_a_cell_are_those_of_its_box() {
        let client = |number| Client { number, matches: vec![Match::Vlan(number)] };
        // The second box, its box that classifies, and a box that there is not.
        let clients = Some(vec![client(9), client(2048 + 9), client(2048), client(3 * 2048)]);
        let mut desired = Desired { clients, ..Desired::new(7, cells(2)) };
        let entries = |desired: &Desired, table| {
            let entries = desired.entries(table, &two()).unwrap();
            entries.values().map(ToString::to_string).collect::<Vec<_>>()
        };
        let expected = [
            "linkemu.vlans[vlan=0x9] -> linkemu.set_client(box=0, client=9)",
            "linkemu.vlans[vlan=0x800] -> linkemu.set_client(box=1, client=0)",
            "linkemu.vlans[vlan=0x809] -> linkemu.set_client(box=1, client=9)",
        ];
        assert_eq!(entries(&desired, names::VLANS), expected);
        assert_eq!(desired.client_count(&two()), 2);
        desired.gates.insert((Some(2048 + 9), Direction::Forward));
        let gate = "linkemu.gates[box=0x1 &&& 0x7, client=0x9 &&& 0xffff, direction=0x0] -> \
                    linkemu.close_gate()";
        assert_eq!(entries(&desired, names::GATES), [gate]);
    }

    #[test]
    fn owners_are_written_and_read_again() {
        let owner = bucket("10.1.2.3".parse().unwrap());
        assert_eq!(owner, 1);
        assert_eq!(bucket("2001:db8::f102".parse().unwrap()), 0xf3);
        let owners = Owners { buckets: [(owner, 0), (9, 1)].into(), default: 1 };
        let clients = Some(vec![Client { number: 9, matches: vec![Match::Vlan(5)] }]);
        let desired = Desired { owners: owners.clone(), clients, ..Desired::new(7, cells(2)) };
        let entries = |table| desired.entries(table, &two()).unwrap();
        let buckets: Vec<_> = entries(names::BUCKETS).values().map(ToString::to_string).collect();
        let expected = [
            "linkemu.buckets[bucket=0x1] -> linkemu.set_box(box=0)",
            "linkemu.buckets[bucket=0x9] -> linkemu.set_box(box=1)",
        ];
        assert_eq!(buckets, expected);
        // Addresses that belong to no single host.
        let special = entries(names::PREFIXES4);
        assert!(special.values().all(|entry| entry.action.params["box"] == 1));
        let ports = entries(names::PORTS);
        assert_eq!(epoch_of(&ports, &two()), Some((7, 0, 0)));
        let mut next = Desired::new(1, cells(2));
        next.adopt_owners(&ports, &entries(names::BUCKETS));
        assert_eq!(next.owners, owners);
        // Ports that do not agree.
        let mut other = ports.clone();
        let of_host = other.values_mut().find(|entry| entry.action.name == names::FROM_HOST);
        of_host.unwrap().action.params.insert("box".into(), 0);
        assert_eq!(epoch_of(&other, &two()), None);
    }

    #[test]
    fn mac_matches_in_both_directions_and_vlan_at_all_ports() {
        let desired = desired(9, &[Match::Mac([2, 0, 0, 0, 0, 1]), Match::Vlan(12)]);
        let macs = said(&desired, names::MACS);
        let expected = [
            "linkemu.macs[direction=0x0, mac=0x20000000001] -> linkemu.set_client(box=0, client=9)",
            "linkemu.macs[direction=0x1, mac=0x20000000001] -> linkemu.set_client(box=0, client=9)",
        ];
        assert_eq!(macs, expected);
        assert_eq!(
            said(&desired, names::VLANS),
            ["linkemu.vlans[vlan=0xc] -> linkemu.set_client(box=0, client=9)"]
        );
    }

    #[test]
    fn shared_addresses_belong_to_the_default_client() {
        let prefix = |text: &str, length| Match::Prefix(text.parse().unwrap(), length);
        let of_nine = |rules: &[Match]| {
            let desired = desired(9, rules);
            let tables = [names::PREFIXES4, names::PREFIXES6];
            let all = tables.map(|table| said(&desired, table)).concat();
            let nine = |entry: &&String| entry.contains("client=9");
            let ours: Vec<_> = all.iter().filter(nine).cloned().collect();
            assert_eq!(all.len(), SPECIAL.len() + ours.len());
            ours
        };
        let none = [
            prefix("224.0.0.1", 32),
            prefix("127.1.0.0", 16),
            prefix("255.255.255.255", 32),
            prefix("fe80::1", 128),
            prefix("::1", 128),
        ];
        assert!(of_nine(&none).is_empty());
        let some = [
            prefix("0.0.0.0", 0),
            prefix("128.0.0.0", 1),
            prefix("10.1.2.3", 24),
            prefix("2001:db8::1", 64),
        ];
        let expected = [
            "linkemu.prefixes4[] -> linkemu.set_client(box=0, client=9)",
            "linkemu.prefixes4[address=0xa010200/24] -> linkemu.set_client(box=0, client=9)",
            "linkemu.prefixes4[address=0x80000000/1] -> linkemu.set_client(box=0, client=9)",
            "linkemu.prefixes6[address=0x20010db8000000000000000000000000/64] -> \
             linkemu.set_client(box=0, client=9)",
        ];
        assert_eq!(of_nine(&some), expected);
    }

    #[test]
    fn invalid_matches_are_omitted() {
        let rules = [
            Match::Vlan(0),
            Match::Vlan(4095),
            Match::Prefix(Ipv4Addr::new(10, 0, 0, 0).into(), 33),
            Match::Prefix(Ipv6Addr::LOCALHOST.into(), 129),
        ];
        assert_eq!(desired(9, &rules).client_count(&config()), 0);
        for number in [0, MAX_CLIENTS] {
            assert_eq!(desired(number, &[Match::Vlan(1)]).client_count(&config()), 0);
        }
        assert_eq!(desired(MAX_CLIENTS - 1, &[Match::Vlan(1)]).client_count(&config()), 1);
    }

    #[test]
    fn duplicate_match_belongs_to_the_first_client() {
        let client = |number| Client { number, matches: vec![Match::Vlan(5)] };
        let clients = Some(vec![client(8), client(9)]);
        let desired = Desired { clients, ..Desired::new(7, cells(1)) };
        assert_eq!(
            said(&desired, names::VLANS),
            ["linkemu.vlans[vlan=0x5] -> linkemu.set_client(box=0, client=8)"]
        );
    }

    #[test]
    fn clients_without_rules_have_no_entries() {
        let desired = desired(9, &[]);
        for table in names::CLIENTS {
            assert!(said(&desired, table).is_empty(), "{table}");
        }
    }

    #[test]
    fn gate_applies_to_one_client_or_all() {
        let mut desired = Desired::new(7, cells(1));
        desired.gates.insert((Some(9), Direction::Forward));
        desired.gates.insert((None, Direction::Return));
        let mut gates = said(&desired, names::GATES);
        gates.sort();
        let expected = [
            "linkemu.gates[box=0x0 &&& 0x7, client=0x9 &&& 0xffff, direction=0x0] -> linkemu.close_gate()",
            "linkemu.gates[direction=0x1] -> linkemu.close_gate()",
        ];
        assert_eq!(gates, expected);
    }

    #[test]
    fn copies_are_of_one_client_or_all_and_ports_say_that_there_are_some() {
        let mut desired = Desired::new(7, cells(1));
        let looks = |desired: &Desired| {
            let ports = said(desired, names::PORTS);
            ports.iter().filter(|entry| entry.contains("mirrors=1")).count()
        };
        assert_eq!((said(&desired, names::MIRRORS).len(), looks(&desired)), (0, 0));
        desired.mirrors.insert((Some(9), Direction::Forward, Point::Box));
        desired.mirrors.insert((None, Direction::Return, Point::Hosts));
        let mut mirrors = said(&desired, names::MIRRORS);
        mirrors.sort();
        let expected = [
            "linkemu.mirrors[box=0x0 &&& 0x7, client=0x9 &&& 0xffff, direction=0x0, to_hosts=0x0] -> linkemu.mirror()",
            "linkemu.mirrors[direction=0x1, to_hosts=0x1] -> linkemu.mirror()",
        ];
        assert_eq!(mirrors, expected);
        assert_eq!(looks(&desired), 5);
        // The epoch is found with copies and without.
        let ports = desired.entries(names::PORTS, &config()).unwrap();
        assert_eq!(epoch_of(&ports, &config()), Some((7, 0, 0)));
    }

    #[test]
    fn switch_without_classification_has_no_clients() {
        let mut config = config();
        config.stages.classifies = false;
        let desired = desired(9, &[Match::Vlan(5)]);
        for table in names::CLIENTS {
            assert_eq!(desired.entries(table, &config), Some(BTreeMap::new()));
        }
        assert_eq!(desired.client_count(&config), 0);
    }
}
