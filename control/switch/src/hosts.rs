// SPDX-License-Identifier: Apache-2.0
//! Port of each host, learned from its frames.
//!
//! As in a learning bridge, a host is at the last port where its address was a source. Digests come
//! from frames of hosts and are untrusted, so the number of hosts is bounded by the table size.
//! Frames to unknown hosts are flooded.

use crate::config::Sides;
use crate::names::{self, bit};
use emu::units::Direction;
use p4runtime::{Entry, Match};
use std::collections::BTreeMap;

/// Set in group addresses.
const GROUP: u128 = 1 << 40;

#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// By direction of the host's frames and address.
    ports: BTreeMap<(Direction, u64), u16>,
}

fn direction(bit: u128) -> Option<Direction> {
    Direction::BOTH.into_iter().find(|direction| self::bit(*direction) == bit)
}

fn other(direction: Direction) -> Direction {
    match direction {
        Direction::Forward => Direction::Return,
        Direction::Return => Direction::Forward,
    }
}

/// Converts a digest to a host, if it is valid.
fn host(row: &[u128], ports: &Sides<Vec<u16>>) -> Option<(Direction, u64, u16)> {
    let [port, mac, direction] = row else {
        return None;
    };
    let direction = self::direction(*direction)?;
    let port = u16::try_from(*port).ok()?;
    let single = *mac != 0 && mac & GROUP == 0;
    let mac = u64::try_from(*mac).ok().filter(|mac| single && mac >> 48 == 0)?;
    ports.incoming()[direction].contains(&port).then_some((direction, mac, port))
}

impl Hosts {
    /// Learns from a digest of port, address and direction. Returns true if something changed.
    pub fn learn(&mut self, row: &[u128], ports: &Sides<Vec<u16>>, size: u64) -> bool {
        let Some((direction, mac, port)) = host(row, ports) else {
            return false;
        };
        let full = self.ports.len() as u64 >= size;
        match self.ports.get_mut(&(direction, mac)) {
            Some(known) => std::mem::replace(known, port) != port,
            None if full => false,
            None => self.ports.insert((direction, mac), port).is_none(),
        }
    }

    /// Adopts an existing entry of [`names::HOSTS`].
    pub fn adopt(&mut self, entry: &Entry, ports: &Sides<Vec<u16>>) {
        let field = |name: &str| match entry.key.fields.get(name) {
            Some(Match::Exact(value)) => Some(*value),
            _ => None,
        };
        let parts = (field("direction"), field("mac"), entry.action.params.get("port"));
        if let (Some(towards), Some(mac), Some(port)) = parts {
            let from = direction(towards).map_or(u128::MAX, |towards| bit(other(towards)));
            if let Some((from, mac, port)) = host(&[*port, mac, from], ports) {
                self.ports.entry((from, mac)).or_insert(port);
            }
        }
    }

    /// Entries that recognise frames of known hosts.
    pub fn sources(&self) -> impl Iterator<Item = Entry> {
        self.ports.iter().map(|((_, mac), port)| {
            let entry = Entry::new(names::SOURCES).exact("port", *port).exact("mac", *mac);
            entry.does(names::KNOWN)
        })
    }

    /// Entries that forward frames to known hosts.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.ports.iter().map(|((direction, mac), port)| {
            let towards = bit(other(*direction));
            let entry = Entry::new(names::HOSTS).exact("direction", towards).exact("mac", *mac);
            entry.does(names::TO_HOST).with("port", *port)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports() -> Sides<Vec<u16>> {
        Sides { wan: vec![3, 4], client: vec![5] }
    }

    #[test]
    fn host_is_at_the_port_of_its_last_frame() {
        let mut hosts = Hosts::default();
        assert!(hosts.learn(&[3, 0x42, 0], &ports(), 9));
        assert!(!hosts.learn(&[3, 0x42, 0], &ports(), 9));
        assert!(hosts.learn(&[4, 0x42, 0], &ports(), 9));
        let entries: Vec<_> = hosts.entries().collect();
        let towards = Entry::new(names::HOSTS).exact("direction", 1u8).exact("mac", 0x42u8);
        assert_eq!(entries, [towards.does(names::TO_HOST).with("port", 4u8)]);
        let source = Entry::new(names::SOURCES).exact("port", 4u8).exact("mac", 0x42u8);
        assert_eq!(hosts.sources().collect::<Vec<_>>(), [source.does(names::KNOWN)]);
    }

    #[test]
    fn invalid_host_is_not_learned() {
        let mut hosts = Hosts::default();
        let group = 0x0100_5e00_0001;
        for row in [
            &[3, 0x42][..],
            &[3, 0x42, 2],
            &[3, 0, 0],
            &[3, group, 0],
            &[3, 1 << 48, 0],
            &[5, 0x42, 0],
            &[1 << 16 | 3, 0x42, 0],
            &[9, 0x42, 1],
        ] {
            assert!(!hosts.learn(row, &ports(), 9), "{row:x?}");
        }
    }

    #[test]
    fn hosts_are_bounded_by_the_table() {
        let mut hosts = Hosts::default();
        let learned = (1..100).filter(|mac| hosts.learn(&[3, *mac, 0], &ports(), 9)).count();
        assert_eq!((learned, hosts.entries().count()), (9, 9));
        assert!(hosts.learn(&[4, 1, 0], &ports(), 9), "a known one may move");
    }

    #[test]
    fn existing_hosts_are_adopted() {
        let (mut before, mut after) = (Hosts::default(), Hosts::default());
        before.learn(&[3, 0x42, 0], &ports(), 9);
        before.learn(&[5, 0x43, 1], &ports(), 9);
        before.entries().for_each(|entry| after.adopt(&entry, &ports()));
        assert!(after.entries().eq(before.entries()));
    }
}
