// SPDX-License-Identifier: Apache-2.0
//! Port of each host, learned from its frames.
//!
//! As in a learning bridge, a host is at the last port where its address was a source. Digests come
//! from frames of hosts and are untrusted, so the number of hosts is bounded by the table size.
//! Frames to unknown hosts are flooded.
//!
//! The switch does not say which entries are in use. So a host that was not heard for long is removed from
//! the known sources: its next frame is reported like that of a new host. Until it is forgotten, frames to
//! it keep their port.

use crate::config::Sides;
use crate::names::{self, bit};
use emu::units::Direction;
use p4runtime::{Entry, Match};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::time::{Duration, Instant};

/// Set in group addresses.
const GROUP: u128 = 1 << 40;

/// Hosts that are not heard age out.
#[derive(Clone, Copy, Debug)]
pub struct Ageing {
    /// Time after which a host that was not heard is asked for: its source is no longer known, so that
    /// its next frame is reported again.
    pub ask: Duration,
    /// The same while the table is full.
    pub ask_if_full: Duration,
    /// Time for its next frame, after which it is forgotten.
    pub forget: Duration,
}

impl Default for Ageing {
    /// 300 s as in IEEE 802.1D.
    fn default() -> Self {
        let [ask, ask_if_full, forget] = [300, 30, 10].map(Duration::from_secs);
        Self { ask, ask_if_full, forget }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Host {
    port: u16,
    /// When a frame of it was last reported, or it was found in the switch.
    heard: Instant,
    /// Since when it is asked for.
    asked: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// By direction of the host's frames and address.
    hosts: BTreeMap<(Direction, u64), Host>,
    /// True if there was no room for a host.
    is_full: bool,
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
    pub fn learn(
        &mut self,
        row: &[u128],
        ports: &Sides<Vec<u16>>,
        size: u64,
        heard: Instant,
    ) -> bool {
        let Some((direction, mac, port)) = host(row, ports) else {
            return false;
        };
        let now = Host { port, heard, asked: None };
        let has_room = (self.hosts.len() as u64) < size;
        match self.hosts.entry((direction, mac)) {
            Occupied(mut known) => {
                let before = known.insert(now);
                before.port != port || before.asked.is_some()
            }
            Vacant(place) if has_room => {
                place.insert(now);
                true
            }
            Vacant(_) => {
                self.is_full = true;
                false
            }
        }
    }

    /// Asks for hosts that were not heard for long, and forgets those that did not answer. Returns true
    /// if something changed.
    pub fn age(&mut self, ageing: &Ageing, size: u64, now: Instant) -> bool {
        let ask = if self.is_full { ageing.ask_if_full } else { ageing.ask };
        let before = self.hosts.len();
        self.hosts.retain(|_, host| {
            host.asked.is_none_or(|asked| now.duration_since(asked) < ageing.forget)
        });
        let mut changed = self.hosts.len() < before;
        self.is_full &= self.hosts.len() as u64 > size - size / 4;
        for host in self.hosts.values_mut() {
            if host.asked.is_none() && now.duration_since(host.heard) >= ask {
                host.asked = Some(now);
                changed = true;
            }
        }
        changed
    }

    /// Whether there was no room for a host, and a quarter of the table has not become free since.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Adopts an existing entry of [`names::HOSTS`].
    pub fn adopt(&mut self, entry: &Entry, ports: &Sides<Vec<u16>>, heard: Instant) {
        let field = |name: &str| match entry.key.fields.get(name) {
            Some(Match::Exact(value)) => Some(*value),
            _ => None,
        };
        let parts = (field("direction"), field("mac"), entry.action.params.get("port"));
        if let (Some(towards), Some(mac), Some(port)) = parts {
            let from = direction(towards).map_or(u128::MAX, |towards| bit(other(towards)));
            if let Some((from, mac, port)) = host(&[*port, mac, from], ports) {
                self.hosts.entry((from, mac)).or_insert(Host { port, heard, asked: None });
            }
        }
    }

    /// Entries that recognise frames of known hosts, except those that are asked for.
    pub fn sources(&self) -> impl Iterator<Item = Entry> {
        let known = self.hosts.iter().filter(|(_, host)| host.asked.is_none());
        known.map(|((_, mac), Host { port, .. })| {
            let entry = Entry::new(names::SOURCES).exact("port", *port).exact("mac", *mac);
            entry.does(names::KNOWN)
        })
    }

    /// Entries that forward frames to known hosts.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.hosts.iter().map(|((direction, mac), Host { port, .. })| {
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
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        assert!(hosts.learn(&[3, 0x42, 0], &ports(), 9, now));
        assert!(!hosts.learn(&[3, 0x42, 0], &ports(), 9, now));
        assert!(hosts.learn(&[4, 0x42, 0], &ports(), 9, now));
        let entries: Vec<_> = hosts.entries().collect();
        let towards = Entry::new(names::HOSTS).exact("direction", 1u8).exact("mac", 0x42u8);
        assert_eq!(entries, [towards.does(names::TO_HOST).with("port", 4u8)]);
        let source = Entry::new(names::SOURCES).exact("port", 4u8).exact("mac", 0x42u8);
        assert_eq!(hosts.sources().collect::<Vec<_>>(), [source.does(names::KNOWN)]);
    }

    #[test]
    fn invalid_host_is_not_learned() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
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
            assert!(!hosts.learn(row, &ports(), 9, now), "{row:x?}");
        }
    }

    #[test]
    fn host_that_is_silent_is_asked_for_and_then_forgotten() {
        let (mut hosts, start) = (Hosts::default(), Instant::now());
        let ageing = Ageing::default();
        let (silent, talks) = ([3, 0x42, 0], [3, 0x43, 0]);
        for row in [&silent, &talks] {
            assert!(hosts.learn(row, &ports(), 9, start));
        }
        assert!(!hosts.age(&ageing, 9, start + ageing.ask - Duration::from_nanos(1)));
        let asked = start + ageing.ask;
        assert!(hosts.age(&ageing, 9, asked));
        assert_eq!((hosts.sources().count(), hosts.entries().count()), (0, 2));
        // The next frame of one is reported.
        assert!(hosts.learn(&talks, &ports(), 9, asked));
        assert_eq!((hosts.sources().count(), hosts.entries().count()), (1, 2));
        assert!(!hosts.age(&ageing, 9, asked + ageing.forget - Duration::from_nanos(1)));
        assert!(hosts.age(&ageing, 9, asked + ageing.forget));
        let left: Vec<_> = hosts.entries().collect();
        assert_eq!((left.len(), left[0].key.fields["mac"]), (1, Match::Exact(0x43)));
    }

    #[test]
    fn flood_of_addresses_is_bounded_and_leaves_room_again() {
        let (mut hosts, now) = (Hosts::default(), Instant::now());
        let learned = (1..100).filter(|mac| hosts.learn(&[3, *mac, 0], &ports(), 8, now)).count();
        assert_eq!((learned, hosts.entries().count(), hosts.is_full()), (8, 8, true));
        assert!(hosts.learn(&[4, 1, 0], &ports(), 8, now), "a known one may move");
        let (ageing, real) = (Ageing::default(), [5, 0x4242, 1]);
        let mut gone = now + ageing.ask_if_full;
        assert!(!hosts.learn(&real, &ports(), 8, gone));
        assert!(hosts.age(&ageing, 8, gone) && hosts.is_full());
        // One of them is real.
        assert!(hosts.learn(&[4, 1, 0], &ports(), 8, gone));
        gone += ageing.forget;
        assert!(hosts.age(&ageing, 8, gone) && !hosts.is_full());
        assert!(hosts.learn(&real, &ports(), 8, gone));
        assert_eq!(hosts.entries().count(), 2);
    }

    #[test]
    fn existing_hosts_are_adopted() {
        let (mut before, mut after) = (Hosts::default(), Hosts::default());
        let now = Instant::now();
        before.learn(&[3, 0x42, 0], &ports(), 9, now);
        before.learn(&[5, 0x43, 1], &ports(), 9, now);
        before.entries().for_each(|entry| after.adopt(&entry, &ports(), now));
        assert!(after.entries().eq(before.entries()));
    }
}
