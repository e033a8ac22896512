// SPDX-License-Identifier: Apache-2.0
//! The rules by which the switch assigns packets to clients.
//!
//! A named client has its rules, an automatic one its address; the fixed ones have none, because no
//! address selects them. The switch must agree with the dataplane or leave the decision to it:
//!
//! - A named client has a number after its first frame. Until then the switch has its rules with
//!   number 0, which leaves the decision to the dataplane. Otherwise a wider prefix, or the address
//!   in a frame with its VLAN, would select another client.
//! - An automatic client from before a prefix that contains its address is not selected any longer.
//! - A match has conditions that the switch's tables do not have, and goes before all other rules.
//!   So with any match the switch has no rules at all, and the dataplane decides for all frames.
//!
//! Clients without a rule are included too, so that the switch's counters of them are read: the
//! dataplane writes their numbers into every frame that it sends.
//!
//! In a group of boxes a number is a cell of the switch (crate `switch`), which tells the box: number 0
//! of a box leaves the classification to that box. A client with an owner always has its rules in the
//! switch, and is counted in the cells of all boxes that had it.

use ::switch::{Cells, Client, Match};
use ipnet::IpNet;
use mac_address::MacAddress;
use prost::Message;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1 as pb;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

/// Which box owns which client; of a single box nothing.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    /// The cell of each client that has an owner, if it has no number there.
    owners: BTreeMap<String, u16>,
    /// Cells of clients at boxes that are not their owners.
    others: Vec<u16>,
}

impl Owned {
    pub fn new(owners: &dp::Owners, stats: &pb::Stats, cells: Cells) -> Self {
        let cell = |owner: u32| cells.cell(u8::try_from(owner).unwrap_or(u8::MAX), 0);
        let owners = owners.clients.iter().map(|it| (it.client.clone(), cell(it.owner)));
        let others = stats.clients.iter().flat_map(|client| &client.other_numbers);
        Self {
            owners: owners.collect(),
            others: others.filter_map(|number| u16::try_from(*number).ok()).collect(),
        }
    }
}

/// Clients that have no rules.
const FIXED: [&str; 2] = ["bypass", "default"];

/// The clients of a snapshot by their names, those that have a number.
pub(crate) fn numbers(stats: &pb::Stats) -> BTreeMap<String, u16> {
    let number = |c: &pb::ClientStats| u16::try_from(c.number).ok().filter(|number| *number > 0);
    stats.clients.iter().filter_map(|c| Some((c.client.clone(), number(c)?))).collect()
}

/// Hash of all client rules.
pub(crate) fn hash(said: &pb::Clients) -> u64 {
    let digest: [u8; 32] = Sha256::digest(said.encode_to_vec()).into();
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Whether clients have matches, so that the switch cannot classify.
pub(crate) fn have_matches(said: &pb::Clients) -> bool {
    said.clients.iter().any(|client| !client.matches.is_empty())
}

/// The entries of the switch, from the client rules, the existing clients and their owners.
pub(crate) fn known(
    said: &pb::Clients,
    numbers: &BTreeMap<String, u16>,
    owned: &Owned,
) -> Vec<Client> {
    let without_rules = |number: u16| Client { number, matches: Vec::new() };
    let others = owned.others.iter().copied().map(without_rules);
    if have_matches(said) {
        let fixed = |name: &str| FIXED.contains(&name);
        let numbers = numbers.iter().filter(|(name, _)| !fixed(name)).map(|(_, number)| *number);
        let mut all: Vec<_> = numbers.map(without_rules).chain(others).collect();
        all.sort_by_key(|known| known.number);
        return all;
    }
    let mut named: HashMap<&str, Vec<Match>> = HashMap::new();
    for client in &said.clients {
        named.entry(&client.name).or_default().extend(rules(client));
    }
    let taken = Prefixes::of(named.values().flatten());
    // A number counts before the cell of an owner for which the client has none yet.
    let cells: BTreeMap<_, _> = owned.owners.iter().chain(numbers).collect();
    let mut all: Vec<_> = cells
        .into_iter()
        .filter(|(name, _)| !FIXED.contains(&name.as_str()))
        .map(|(name, number)| {
            let matches = match (named.remove(name.as_str()), name.parse::<IpAddr>()) {
                (Some(matches), _) => matches,
                (None, Ok(address)) if !taken.contain(address) => {
                    vec![prefix(IpNet::from(address))]
                }
                _ => Vec::new(),
            };
            Client { number: *number, matches }
        })
        .chain(others)
        .collect();
    let mut unknown: Vec<_> = named.into_values().flatten().collect();
    if !unknown.is_empty() {
        unknown.sort();
        all.push(Client { number: 0, matches: unknown });
    }
    all.sort_by_key(|known| known.number);
    all
}

/// The buckets and the default owner of a group; none of a single box.
pub(crate) fn owners(owners: &dp::Owners) -> Option<::switch::Owners> {
    (owners.version > 0).then(|| ::switch::Owners {
        buckets: (0..=u8::MAX).zip(owners.buckets.iter().copied()).collect(),
        default: u8::try_from(owners.default_box).unwrap_or(u8::MAX),
    })
}

/// A client's; what linkd would not have taken is left out.
fn rules(client: &pb::Client) -> Vec<Match> {
    let prefixes = client.prefixes.iter().filter_map(|text| text.parse().ok().map(prefix));
    let vlans = client.vlans.iter().filter_map(|id| u16::try_from(*id).ok().map(Match::Vlan));
    let mac = |text: &String| text.parse().ok().map(|mac: MacAddress| Match::Mac(mac.bytes()));
    prefixes.chain(vlans).chain(client.macs.iter().filter_map(mac)).collect()
}

fn prefix(net: IpNet) -> Match {
    Match::Prefix(net.addr(), net.prefix_len())
}

/// Prefixes by their lengths, so that an address costs a look for each length.
#[derive(Default)]
struct Prefixes(HashMap<(bool, u8), HashSet<IpNet>>);

impl Prefixes {
    fn of<'a>(rules: impl Iterator<Item = &'a Match>) -> Self {
        let mut all = Self::default();
        for rule in rules {
            if let Match::Prefix(address, length) = rule
                && let Ok(net) = IpNet::new(*address, *length)
            {
                let net = net.trunc();
                let of_length = all.0.entry((net.addr().is_ipv4(), net.prefix_len()));
                of_length.or_default().insert(net);
            }
        }
        all
    }

    fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|((v4, length), nets)| {
            *v4 == address.is_ipv4()
                && IpNet::new(address, *length).is_ok_and(|net| nets.contains(&net.trunc()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, prefixes: &[&str]) -> pb::Client {
        let prefixes = prefixes.iter().map(|&p| p.to_owned()).collect();
        pb::Client { name: name.into(), prefixes, ..Default::default() }
    }

    fn said(clients: &[pb::Client]) -> pb::Clients {
        pb::Clients { clients: clients.into(), ..Default::default() }
    }

    fn numbered(of: &[(&str, u32)]) -> BTreeMap<String, u16> {
        let client = |(name, number): &(&str, u32)| pb::ClientStats {
            client: (*name).into(),
            number: *number,
            ..Default::default()
        };
        numbers(&pb::Stats { clients: of.iter().map(client).collect(), ..Default::default() })
    }

    fn prefix(text: &str) -> Match {
        super::prefix(text.parse().unwrap())
    }

    #[test]
    fn named_clients_are_known_by_their_rules_and_automatic_ones_by_their_address() {
        let alice = pb::Client {
            vlans: vec![100],
            macs: vec!["02:00:00:00:00:01".into()],
            ..client("alice", &["10.1.0.0/24", "2001:db8:1::/48"])
        };
        let numbers = numbered(&[("alice", 3), ("192.0.2.7", 4), ("2001:db8::1", 5)]);
        let expected = [
            Client {
                number: 3,
                matches: vec![
                    prefix("10.1.0.0/24"),
                    prefix("2001:db8:1::/48"),
                    Match::Vlan(100),
                    Match::Mac([2, 0, 0, 0, 0, 1]),
                ],
            },
            Client { number: 4, matches: vec![prefix("192.0.2.7/32")] },
            Client { number: 5, matches: vec![prefix("2001:db8::1/128")] },
        ];
        assert_eq!(known(&said(&[alice]), &numbers, &Owned::default()), expected);
    }

    #[test]
    fn the_fixed_clients_and_those_without_a_number_are_not_told() {
        let numbers = numbered(&[
            ("bypass", 1),
            ("default", 2),
            ("gone", 3),
            ("192.0.2.7", 0),
            ("192.0.2.8", 65_536),
        ]);
        // It drains, and its counters are read.
        assert_eq!(
            known(&said(&[]), &numbers, &Owned::default()),
            [Client { number: 3, matches: vec![] }]
        );
    }

    #[test]
    fn a_named_client_that_had_no_frame_yet_keeps_its_packets_from_others() {
        let clients = said(&[client("alice", &["10.1.0.0/24"]), client("bob", &["10.0.0.0/8"])]);
        let expected = [
            Client { number: 0, matches: vec![prefix("10.1.0.0/24")] },
            Client { number: 3, matches: vec![prefix("10.0.0.0/8")] },
        ];
        assert_eq!(known(&clients, &numbered(&[("bob", 3)]), &Owned::default()), expected);
    }

    #[test]
    fn an_address_that_a_prefix_names_is_not_its_automatic_clients_any_more() {
        let clients = said(&[client("alice", &["10.1.0.0/24", "2001:db8:1::/48"])]);
        let numbers = numbered(&[("10.1.0.9", 3), ("10.1.1.9", 4), ("2001:db8:1::1", 5)]);
        let all = known(&clients, &numbers, &Owned::default());
        let of = |number| &all.iter().find(|known| known.number == number).unwrap().matches;
        assert_eq!((of(3).len(), of(5).len()), (0, 0));
        assert_eq!(of(4)[..], [prefix("10.1.1.9/32")]);
    }

    #[test]
    fn matches_leave_all_frames_to_the_dataplane() {
        let rule = pb::Match { dscp: Some(46), ..Default::default() };
        let voice = pb::Client { matches: vec![rule], ..client("voice", &[]) };
        let all = said(&[client("alice", &["10.1.0.0/24"]), voice]);
        let numbers = numbered(&[("bypass", 1), ("alice", 4), ("192.0.2.7", 3)]);
        // Their counters are still read.
        let expected = [3, 4].map(|number| Client { number, matches: vec![] });
        assert_eq!(known(&all, &numbers, &Owned::default()), expected);
        assert!(have_matches(&all) && !have_matches(&said(&[client("alice", &[])])));
        assert_ne!(hash(&all), hash(&said(&all.clients[..1])));
    }

    #[test]
    fn hostile_rules_are_left_out() {
        let wrong = pb::Client {
            vlans: vec![70_000],
            macs: vec!["x".into(), "02".into()],
            ..client("alice", &["10.0.0.0/33", "", "::/129"])
        };
        let none = Client { number: 3, matches: vec![] };
        assert_eq!(known(&said(&[wrong]), &numbered(&[("alice", 3)]), &Owned::default()), [none]);
    }
    #[test]
    fn clients_of_a_group_have_the_cells_of_their_owners() {
        let clients = said(&[client("alice", &["10.1.0.0/24"]), client("bob", &["10.2.0.0/24"])]);
        let of = |client: &str, owner| dp::ClientOwner { client: client.into(), owner };
        let owners = dp::Owners {
            version: 3,
            default_box: 0,
            buckets: [0, 1].repeat(128),
            clients: vec![of("alice", 1), of("bob", 0), of("192.0.2.7", 1), of("192.0.2.8", 1)],
        };
        // Alice was at the first box before.
        let alice = pb::ClientStats {
            client: "alice".into(),
            number: 2_051,
            other_numbers: vec![5],
            ..Default::default()
        };
        let seven =
            pb::ClientStats { client: "192.0.2.7".into(), number: 2_048, ..Default::default() };
        let stats = pb::Stats { clients: vec![alice, seven], ..Default::default() };
        let owned = Owned::new(&owners, &stats, ::switch::Cells::new(2, 4096));
        let of = |number, matches: &[&str]| Client {
            number,
            matches: matches.iter().map(|text| prefix(text)).collect(),
        };
        let expected = [
            of(0, &["10.2.0.0/24"]),
            of(5, &[]),
            of(2_048, &["192.0.2.7/32"]),
            of(2_048, &["192.0.2.8/32"]),
            of(2_051, &["10.1.0.0/24"]),
        ];
        assert_eq!(known(&clients, &numbers(&stats), &owned), expected);
        let told = super::owners(&owners).unwrap();
        assert_eq!((told.default, told.buckets[&0], told.buckets[&255]), (0, 0, 1));
        assert_eq!(super::owners(&dp::Owners::default()), None);
    }
}
