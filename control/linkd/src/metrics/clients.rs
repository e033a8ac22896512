// SPDX-License-Identifier: Apache-2.0
//! Selects the clients that are exported one by one.
//!
//! Those with the most traffic at the scrape that first finds more clients than places; from then
//! on the same ones, so that no series ends or decreases during its client's lifetime. A place
//! becomes free when its client is gone. `default` and `bypass` are always exported; the rest is
//! one client named `other`, with the highest high-water mark of its clients.
//!
//! `expired` is not exported: the complete history of a client would enter it in one step, which
//! looks like traffic. A client's share of `other` stays there when it expires or gets a series, so
//! that no counter decreases.

use proto::EXPIRED;
use proto::linkemu::v1::{ClientStats, PipeStats, Stats};
use std::collections::HashSet;

/// The sum of the clients that are not exported each for itself.
pub(super) const OTHER: &str = "other";
const ALWAYS: [&str; 2] = ["bypass", "default"];

/// The choice, from one scrape to the next.
#[derive(Debug)]
pub(super) struct Choice {
    places: usize,
    chosen: HashSet<String>,
    /// Time of the previous scrape, and the clients that were in `other`.
    time_ns: u64,
    rest: Vec<ClientStats>,
    /// The sum of clients that left `other`: they expired, or have their own series now.
    gone: [PipeStats; 2],
}

impl Choice {
    /// Up to `places` clients.
    pub fn new(places: usize) -> Self {
        let (rest, gone) = (Vec::new(), <[PipeStats; 2]>::default());
        Self { places, chosen: HashSet::new(), time_ns: 0, rest, gone }
    }

    /// Leaves the chosen clients in a snapshot and sums up the others.
    pub fn reduce(&mut self, mut snapshot: Stats) -> Stats {
        snapshot.clients.retain(|client| client.client != EXPIRED);
        self.choose(&snapshot.clients);
        let keep = |client: &ClientStats| {
            ALWAYS.contains(&client.client.as_str()) || self.chosen.contains(&client.client)
        };
        let (mut kept, rest): (Vec<_>, Vec<_>) = snapshot.clients.into_iter().partition(keep);
        self.count_gone(snapshot.time_ns, &rest);
        if !rest.is_empty() || self.gone != <[PipeStats; 2]>::default() {
            let [mut forward, mut back] = self.gone.clone();
            for client in &rest {
                forward += client.forward();
                back += client.back();
            }
            let (forward_pipe, return_pipe) = (Some(forward), Some(back));
            let client = OTHER.into();
            kept.push(ClientStats { client, forward_pipe, return_pipe, ..Default::default() });
        }
        self.rest = rest;
        snapshot.clients = kept;
        snapshot
    }

    fn count_gone(&mut self, time_ns: u64, rest: &[ClientStats]) {
        if time_ns < self.time_ns {
            // A restarted dataplane counts from zero.
            (self.rest, self.gone) = (Vec::new(), Default::default());
        }
        self.time_ns = time_ns;
        let there: HashSet<_> = rest.iter().map(|client| client.client.as_str()).collect();
        let [forward, back] = &mut self.gone;
        for client in self.rest.drain(..).filter(|old| !there.contains(old.client.as_str())) {
            *forward += client.forward();
            *back += client.back();
        }
    }

    fn choose(&mut self, clients: &[ClientStats]) {
        if !self.chosen.is_empty() {
            let there: HashSet<_> = clients.iter().map(|client| client.client.as_str()).collect();
            self.chosen.retain(|name| there.contains(name.as_str()));
        }
        let free = self.places.saturating_sub(self.chosen.len());
        if free == 0 {
            return;
        }
        let mut candidates: Vec<_> = clients
            .iter()
            .filter(|client| !ALWAYS.contains(&client.client.as_str()))
            .filter(|client| !self.chosen.contains(&client.client))
            .collect();
        candidates.sort_by(|a, b| traffic(b).cmp(&traffic(a)).then(a.client.cmp(&b.client)));
        self.chosen.extend(candidates.into_iter().take(free).map(|client| client.client.clone()));
    }
}

fn traffic(client: &ClientStats) -> u64 {
    client.forward().received().bytes.saturating_add(client.back().received().bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::linkemu::v1 as pb;

    fn snapshot(traffic: &[(&str, u64)]) -> Stats {
        let pipe = |bytes| pb::PipeStats {
            received: Some(pb::Count { packets: 1, bytes }),
            sent: Some(pb::Count { packets: 1, bytes }),
            queue_max_bytes: bytes,
            ..Default::default()
        };
        let client = |(name, bytes): &(&str, u64)| pb::ClientStats {
            client: (*name).into(),
            forward_pipe: Some(pipe(*bytes)),
            return_pipe: None,
            ..Default::default()
        };
        pb::Stats { clients: traffic.iter().map(client).collect(), ..Default::default() }
    }

    fn names(snapshot: &Stats) -> Vec<&str> {
        snapshot.clients.iter().map(|client| client.client.as_str()).collect()
    }

    #[test]
    fn those_with_the_most_traffic_stay_and_the_rest_is_summed() {
        let mut choice = Choice::new(2);
        let first = [("bypass", 1), ("default", 1), ("a", 10), ("b", 30), ("c", 20), ("d", 5)];
        let reduced = choice.reduce(snapshot(&first));
        assert_eq!(names(&reduced), ["bypass", "default", "b", "c", OTHER]);
        let other = reduced.clients[4].forward();
        assert_eq!((other.received().packets, other.received().bytes), (2, 15));
        assert_eq!(other.queue_max_bytes, 10);
        assert!(other.balances());
        // Another order of traffic changes nothing.
        let second = [("bypass", 1), ("default", 1), ("a", 99), ("b", 30), ("c", 20), ("d", 98)];
        assert_eq!(names(&choice.reduce(snapshot(&second))), names(&reduced));
    }

    #[test]
    fn a_place_is_free_again_when_its_client_is_gone() {
        let mut choice = Choice::new(1);
        assert_eq!(names(&choice.reduce(snapshot(&[("a", 2), ("b", 1)]))), ["a", OTHER]);
        assert_eq!(names(&choice.reduce(snapshot(&[("b", 1), ("c", 0)]))), ["b", OTHER]);
        assert_eq!(names(&choice.reduce(snapshot(&[("c", 0)]))), ["c", OTHER]);
    }

    #[test]
    fn no_series_jumps_or_falls_when_clients_expire() {
        let mut choice = Choice::new(1);
        let mut other = |clients: &[(&str, u64)]| {
            let reduced = choice.reduce(snapshot(clients));
            assert!(!names(&reduced).contains(&EXPIRED));
            let other = reduced.clients.into_iter().find(|client| client.client == OTHER);
            other.map(|other| other.forward().sent().bytes)
        };
        assert_eq!(other(&[("a", 9), ("b", 2), ("c", 1)]), Some(3));
        // A client in `other`, then one with a series.
        assert_eq!(other(&[("a", 9), ("c", 1), ("expired", 2)]), Some(3));
        assert_eq!(other(&[("c", 1), ("d", 0), ("expired", 11)]), Some(3));
        // It comes back, and counts from the beginning.
        assert_eq!(other(&[("c", 1), ("d", 0), ("b", 5), ("expired", 11)]), Some(8));
    }

    #[test]
    fn without_places_there_are_the_fixed_clients_and_the_rest() {
        let mut choice = Choice::new(0);
        assert_eq!(names(&choice.reduce(snapshot(&[("bypass", 0), ("a", 1)]))), ["bypass", OTHER]);
        assert_eq!(names(&choice.reduce(snapshot(&[]))), [OTHER]);
    }
}
