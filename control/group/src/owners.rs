// SPDX-License-Identifier: Apache-2.0
//! Which box owns which client. A box is named by its place in the group file.
//!
//! A client has its own entry if the plan names it, a rule of the file does, or it was moved. Other
//! addresses belong to the owner of their bucket, and frames of no client to the default box: as the
//! P4 switch decides it (docs/p4.md).

use std::collections::BTreeMap;
use std::net::IpAddr;

use proto::dataplane::v1 as dp;
use switch::bucket;

/// Buckets of addresses.
const BUCKETS: usize = 256;

/// The owners of all clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    version: u64,
    default_box: usize,
    buckets: [u8; BUCKETS],
    clients: BTreeMap<String, usize>,
    /// Former owners of clients that were removed from the plan: named again, they return to that box.
    former: BTreeMap<String, usize>,
    /// Of the group file.
    rules: BTreeMap<String, usize>,
}

impl Owners {
    /// Assigns the buckets to the boxes in turn, and addresses by the rules.
    #[must_use]
    pub fn new(boxes: usize, rules: BTreeMap<String, usize>) -> Self {
        let mut buckets = [0; BUCKETS];
        for (place, bucket) in buckets.iter_mut().enumerate() {
            *bucket = u8::try_from(place % boxes.max(1)).unwrap_or(0);
        }
        let addresses = rules.iter().filter(|(client, _)| is_address(client));
        let clients = addresses.map(|(client, place)| (client.clone(), *place)).collect();
        Self { version: 1, default_box: 0, buckets, clients, former: BTreeMap::new(), rules }
    }

    /// Ascending with each change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The box of a client, by name or address; `bypass`, `default` and `expired` are with the default
    /// box.
    #[must_use]
    pub fn of(&self, client: &str) -> usize {
        if let Some(place) = self.clients.get(client).or_else(|| self.former.get(client)) {
            return *place;
        }
        match client.parse() {
            Ok(address) => usize::from(self.buckets[usize::from(bucket(address))]),
            Err(_) => self.default_box,
        }
    }

    /// Whether a client has its own entry.
    #[must_use]
    pub fn has(&self, client: &str) -> bool {
        self.clients.contains_key(client)
    }

    /// Number of clients with an entry at each box.
    #[must_use]
    pub fn loads(&self, boxes: usize) -> Vec<usize> {
        let mut loads = vec![0; boxes];
        for place in self.clients.values() {
            loads[*place] += 1;
        }
        loads
    }

    /// Gives each client without an entry its box: that of its rule, or where it was before, or the box
    /// with the fewest clients. `loads` has the clients of each box, none for a box that is down. True
    /// if there were such clients.
    pub fn place<'a>(
        &mut self,
        clients: impl IntoIterator<Item = &'a str>,
        mut loads: Vec<Option<usize>>,
    ) -> bool {
        let mut placed = false;
        for client in clients {
            if self.clients.contains_key(client) {
                continue;
            }
            let known = self.rules.get(client).or_else(|| self.former.get(client)).copied();
            let up = loads.iter().enumerate().filter_map(|(place, load)| Some((place, (*load)?)));
            let least = up.min_by_key(|(_, load)| *load).map_or(0, |(place, _)| place);
            let place = known.unwrap_or(least);
            if let Some(load) = &mut loads[place] {
                *load += 1;
            }
            self.former.remove(client);
            self.clients.insert(client.to_owned(), place);
            placed = true;
        }
        self.version += u64::from(placed);
        placed
    }

    /// Takes the entries of names that the plan does not have; addresses keep theirs.
    pub fn retain(&mut self, is_named: impl Fn(&str) -> bool) {
        let gone: Vec<_> = self
            .clients
            .keys()
            .filter(|client| !is_address(client) && !is_named(client))
            .cloned()
            .collect();
        self.version += u64::from(!gone.is_empty());
        for client in gone {
            if let Some(place) = self.clients.remove(&client) {
                self.former.insert(client, place);
            }
        }
    }

    /// Makes a box the owner of clients, each with its own entry.
    pub fn give<'a>(&mut self, clients: impl IntoIterator<Item = &'a str>, place: usize) {
        for client in clients {
            self.clients.insert(client.to_owned(), place);
        }
        self.version += 1;
    }

    /// Remembers where a client was before linkd-group started. Rules come first.
    pub fn remember(&mut self, client: &str, place: usize) {
        if self.rules.contains_key(client) {
            return;
        }
        match client.parse() {
            Ok(address) if usize::from(self.buckets[usize::from(bucket(address))]) != place => {
                self.clients.insert(client.to_owned(), place);
            }
            Ok(_) => {}
            Err(_) => {
                self.former.insert(client.to_owned(), place);
            }
        }
    }

    #[must_use]
    pub fn to_proto(&self) -> dp::Owners {
        let place = |place: usize| u32::try_from(place).unwrap_or(0);
        let clients = self.clients.iter();
        dp::Owners {
            version: self.version,
            default_box: place(self.default_box),
            buckets: self.buckets.to_vec(),
            clients: clients
                .map(|(client, owner)| dp::ClientOwner {
                    client: client.clone(),
                    owner: place(*owner),
                })
                .collect(),
        }
    }
}

fn is_address(client: &str) -> bool {
    client.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[(&str, usize)]) -> BTreeMap<String, usize> {
        rules.iter().map(|(client, place)| ((*client).to_owned(), *place)).collect()
    }

    #[test]
    fn clients_are_placed_by_rule_then_by_load() {
        let mut owners = Owners::new(3, rules(&[("a", 2), ("10.0.0.1", 1)]));
        assert_eq!(owners.of("10.0.0.1"), 1);
        assert!(owners.place(["a", "b", "c", "d"], vec![Some(5), None, Some(4)]));
        // `a` makes 5 at the third box; the second one is down.
        let of: Vec<_> = ["a", "b", "c", "d"].iter().map(|it| owners.of(it)).collect();
        assert_eq!(of, [2, 0, 2, 0]);
        assert_eq!((owners.version(), owners.loads(3)), (2, vec![2, 1, 2]));
        assert!(!owners.place(["a", "b"], vec![Some(0); 3]));
        assert_eq!(owners.version(), 2);
    }

    #[test]
    fn client_that_is_named_again_returns_to_its_box() {
        let mut owners = Owners::new(2, BTreeMap::new());
        owners.place(["a", "b"], vec![Some(0), Some(9)]);
        owners.give(["b", "10.0.0.2"], 1);
        owners.retain(|client| client == "a");
        let shown = |owners: &Owners| -> Vec<_> {
            let clients = owners.to_proto().clients.into_iter();
            clients.map(|it| (it.client, it.owner)).collect()
        };
        assert_eq!(shown(&owners), [("10.0.0.2".to_owned(), 1), ("a".to_owned(), 0)]);
        assert_eq!(owners.of("b"), 1);
        owners.place(["a", "b"], vec![Some(0), Some(9)]);
        assert_eq!(shown(&owners)[2], ("b".to_owned(), 1));
        assert_eq!(owners.version(), 5);
    }

    #[test]
    fn addresses_without_an_entry_belong_to_their_bucket() {
        let owners = Owners::new(2, BTreeMap::new());
        assert_eq!((owners.of("10.1.2.3"), owners.of("10.1.2.2")), (1, 0));
        assert_eq!((owners.of("bypass"), owners.of("default")), (0, 0));
    }

    #[test]
    fn owners_of_a_former_run_are_remembered_behind_the_rules() {
        let mut owners = Owners::new(2, rules(&[("a", 0)]));
        for client in ["a", "b", "10.1.2.3", "10.1.2.2"] {
            owners.remember(client, 1);
        }
        owners.place(["a", "b"], vec![Some(0), Some(9)]);
        let placed: Vec<_> = owners.to_proto().clients.into_iter().map(|it| it.client).collect();
        assert_eq!((owners.of("a"), owners.of("b"), owners.of("10.1.2.2")), (0, 1, 1));
        assert_eq!(placed, ["10.1.2.2", "a", "b"]);
    }
}
