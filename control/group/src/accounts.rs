// SPDX-License-Identifier: Apache-2.0
//! The statistics of all boxes as those of one dataplane.
//!
//! Counts are added, so that `received + duplicated + generated = sent + dropped + held` holds of each
//! sum as it does of each box. A client that moved has packets on several boxes. Of figures that cannot
//! be added, such as quantiles, the worst one counts.

use std::collections::HashMap;

use proto::linkemu::v1 as pb;

use crate::owners::Owners;

/// The account of one box.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Last reading from its dataplane.
    now: pb::Stats,
    /// Sum over the earlier instances of its dataplane.
    ended: pb::Stats,
}

impl Account {
    /// Takes a newer reading of the same instance.
    pub fn read(&mut self, stats: pb::Stats) {
        self.now = stats;
    }

    /// The last reading.
    #[must_use]
    pub fn now(&self) -> &pb::Stats {
        &self.now
    }

    /// The dataplane has ended. Its counts stay; what it held was lost by the emulator.
    pub fn end(&mut self) {
        let mut last = std::mem::take(&mut self.now);
        last.emulator_drops += lose_held(&mut last.clients);
        last.memory = None;
        last.workers.clear();
        for port in &mut last.ports {
            port.staged = 0;
        }
        add(&mut self.ended, &last);
    }

    /// Begins another run: the worst figures of ended instances belong to the run before.
    pub fn mark(&mut self) {
        self.ended.lateness = None;
        self.ended.stall_max_ns = 0;
        for client in &mut self.ended.clients {
            for pipe in [&mut client.forward_pipe, &mut client.return_pipe].into_iter().flatten() {
                pipe.queue_max_bytes = 0;
            }
        }
    }

    fn total(&self, name: &str) -> pb::Stats {
        let mut total = self.now.clone();
        add(&mut total, &self.ended);
        for port in &mut total.ports {
            port.name = format!("{}.{name}", port.name);
            if let Some(state) = &mut port.state {
                state.name.clone_from(&port.name);
            }
        }
        total
    }
}

/// The sum over all boxes, in the order of the file, with the client numbers of the switch, of which
/// each box has `numbers`. Time, generation and span are the caller's.
#[must_use]
pub fn sum<'a>(
    boxes: impl IntoIterator<Item = (&'a str, &'a Account)>,
    owners: &Owners,
    numbers: u32,
) -> pb::Stats {
    let mut all = pb::Stats::default();
    // By client: the boxes that have it, with its numbers there.
    let mut local: HashMap<String, Vec<(usize, u32)>> = HashMap::new();
    for (place, (name, account)) in boxes.into_iter().enumerate() {
        let numbered = account.now.clients.iter().filter(|it| (1..numbers).contains(&it.number));
        for it in numbered {
            local.entry(it.client.clone()).or_default().push((place, it.number));
        }
        add(&mut all, &account.total(name));
    }
    let cell = |place: usize, number| u32::try_from(place).unwrap_or(0) * numbers + number;
    for client in &mut all.clients {
        let owner = owners.of(&client.client);
        let has = local.remove(&client.client).unwrap_or_default();
        let own = has.iter().find(|(place, _)| *place == owner).map_or(0, |(_, number)| *number);
        client.number = cell(owner, own);
        let others = has.into_iter().filter(|(place, _)| *place != owner);
        client.other_numbers = others.map(|(place, number)| cell(place, number)).collect();
    }
    all
}

fn add(sum: &mut pb::Stats, more: &pb::Stats) {
    let known = sum.clients.iter().enumerate();
    let mut known: HashMap<String, usize> =
        known.map(|(place, it)| (it.client.clone(), place)).collect();
    for client in &more.clients {
        let at = *known.entry(client.client.clone()).or_insert(sum.clients.len());
        match sum.clients.get_mut(at) {
            None => sum.clients.push(pb::ClientStats { number: 0, ..client.clone() }),
            Some(have) => {
                let pipes = [
                    (&mut have.forward_pipe, &client.forward_pipe),
                    (&mut have.return_pipe, &client.return_pipe),
                ];
                for (have, more) in pipes {
                    if let Some(more) = more {
                        *have.get_or_insert_default() += more;
                    }
                }
            }
        }
    }
    for port in &more.ports {
        match sum.ports.iter_mut().find(|it| it.name == port.name) {
            None => sum.ports.push(port.clone()),
            Some(have) => add_port(have, port),
        }
    }
    let (a, b) = (sum.lateness.unwrap_or_default(), more.lateness.unwrap_or_default());
    sum.lateness = Some(pb::Lateness {
        count: a.count + b.count,
        p50_ns: a.p50_ns.max(b.p50_ns),
        p99_ns: a.p99_ns.max(b.p99_ns),
        p999_ns: a.p999_ns.max(b.p999_ns),
        max_ns: a.max_ns.max(b.max_ns),
    });
    let (a, b) = (sum.memory.unwrap_or_default(), more.memory.unwrap_or_default());
    sum.memory = Some(pb::Memory {
        capacity_bytes: a.capacity_bytes + b.capacity_bytes,
        used_bytes: a.used_bytes + b.used_bytes,
        used_max_bytes: a.used_max_bytes + b.used_max_bytes,
    });
    sum.emulator_drops += more.emulator_drops;
    sum.stall_max_ns = sum.stall_max_ns.max(more.stall_max_ns);
    sum.workers.extend(more.workers.iter().copied());
}

/// Adds the counts of a port's former instance; state and link are those of the present one.
fn add_port(have: &mut pb::PortStats, more: &pb::PortStats) {
    proto::add(&mut have.received, more.received);
    proto::add(&mut have.sent, more.sent);
    have.missed += more.missed;
    have.transmit_dropped += more.transmit_dropped;
    have.staged += more.staged;
    have.malformed += more.malformed;
    have.unplaced += more.unplaced;
    have.foreign += more.foreign;
    if let (Some(have), Some(more)) = (&mut have.state, &more.state) {
        have.faults += more.faults;
        have.changes += more.changes;
        have.unconfirmed += more.unconfirmed;
    }
}

/// Counts held packets as dropped for overload, and returns their number.
fn lose_held(clients: &mut [pb::ClientStats]) -> u64 {
    let mut lost = 0;
    for client in clients {
        for pipe in [&mut client.forward_pipe, &mut client.return_pipe].into_iter().flatten() {
            pipe.queue = None;
            let held = pipe.held.take().unwrap_or_default();
            if held.packets == 0 {
                continue;
            }
            lost += held.packets;
            pipe.drop_more(pb::DropReason::Overload.into(), held);
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn count(packets: u64) -> Option<pb::Count> {
        Some(pb::Count { packets, bytes: 100 * packets })
    }

    /// A pipe with these parts, which balances.
    fn pipe(sent: u64, dropped: u64, held: u64) -> pb::PipeStats {
        let drop = |reason: pb::DropReason, n| pb::Drop { reason: reason.into(), count: count(n) };
        pb::PipeStats {
            received: count(sent + dropped + held),
            sent: count(sent),
            dropped: vec![drop(pb::DropReason::Limit, dropped)],
            held: count(held),
            queue: count(held),
            queue_max_bytes: held,
            ..Default::default()
        }
    }

    fn stats(clients: &[(&str, u32, pb::PipeStats)]) -> pb::Stats {
        let clients = clients.iter().map(|(client, number, pipe)| pb::ClientStats {
            client: (*client).to_owned(),
            forward_pipe: Some(pipe.clone()),
            return_pipe: Some(pipe.clone()),
            number: *number,
            ..Default::default()
        });
        let port = |name: &str| pb::PortStats {
            name: name.into(),
            missed: 1,
            state: Some(pb::PortState { name: name.into(), ..Default::default() }),
            ..Default::default()
        };
        pb::Stats {
            clients: clients.collect(),
            ports: vec![port("wan"), port("client")],
            emulator_drops: 2,
            ..Default::default()
        }
    }

    fn packets(it: Option<pb::Count>) -> u64 {
        it.unwrap_or_default().packets
    }

    #[test]
    fn number_of_a_client_is_that_at_its_owner() {
        let mut owners = Owners::new(3, BTreeMap::new());
        owners.give(["a", "c"], 2);
        owners.give(["b"], 1);
        let (mut first, mut second, mut third) = <[Account; 3]>::default().into();
        first.read(stats(&[("default", 2, pipe(1, 0, 0)), ("a", 5, pipe(1, 0, 0))]));
        second.read(stats(&[("b", 0, pipe(1, 0, 0)), ("default", 2, pipe(1, 0, 0))]));
        third.read(stats(&[("a", 7, pipe(1, 0, 0)), ("c", 2000, pipe(1, 0, 0))]));
        let all = sum([("b1", &first), ("b2", &second), ("b3", &third)], &owners, 1024);
        let numbers: Vec<_> = all.clients.iter().map(|it| (&*it.client, it.number)).collect();
        assert_eq!(all.clients[1].other_numbers, [5]);
        // `c` has a number beyond those of its box.
        assert_eq!(numbers, [("default", 2), ("a", 2055), ("b", 1024), ("c", 2048)]);
        let ports: Vec<_> = all.ports.iter().map(|it| &*it.name).collect();
        assert_eq!(ports[..3], ["wan.b1", "client.b1", "wan.b2"]);
        assert_eq!(all.ports[0].state.as_ref().unwrap().name, "wan.b1");
        assert_eq!(all.emulator_drops, 6);
    }

    #[test]
    fn packets_of_a_box_that_ended_are_lost_and_counted() {
        let owners = Owners::new(1, BTreeMap::new());
        let mut account = Account::default();
        account.read(stats(&[("a", 3, pipe(10, 2, 5))]));
        account.end();
        account.read(stats(&[("a", 3, pipe(1, 0, 1))]));
        let all = sum([("b1", &account)], &owners, 4096);
        let pipe = all.clients[0].forward_pipe.as_ref().unwrap();
        assert_eq!((packets(pipe.received), packets(pipe.held)), (19, 1));
        let overload = pipe.dropped.iter().find(|it| it.reason() == pb::DropReason::Overload);
        assert_eq!(packets(overload.unwrap().count), 5);
        // Both directions, and those of two instances.
        assert_eq!((all.emulator_drops, all.ports[0].missed), (14, 2));
    }

    proptest! {
        #[test]
        fn sum_over_boxes_balances_whatever_ends_and_moves(
            readings in prop::collection::vec(
                (0..3_usize, 0..4_usize, 0..1_000_u64, 0..100_u64, 0..50_u64, any::<bool>()), 1..40,
            ),
        ) {
            const NAMES: [&str; 4] = ["a", "b", "10.0.0.1", "default"];
            let owners = Owners::new(3, BTreeMap::new());
            let mut boxes = <[Account; 3]>::default();
            let mut received = 0;
            let mut now = [[0_u64; 4]; 3];
            for (place, client, sent, dropped, held, ends) in readings {
                let account = &mut boxes[place];
                if ends {
                    account.end();
                    received += now[place].iter().sum::<u64>();
                    now[place] = [0; 4];
                }
                let mut clients = account.now().clients.clone();
                clients.retain(|it| it.client != NAMES[client]);
                clients.extend(stats(&[(NAMES[client], 0, pipe(sent, dropped, held))]).clients);
                account.read(pb::Stats { clients, ..Default::default() });
                now[place][client] = sent + dropped + held;
            }
            received += now.iter().flatten().sum::<u64>();
            let named = ["b1", "b2", "b3"].into_iter().zip(&boxes);
            let all = sum(named, &owners, 1024);
            let pipes: Vec<_> = all.clients.iter().filter_map(|it| it.return_pipe.as_ref()).collect();
            prop_assert!(pipes.iter().all(|pipe| pipe.balances()));
            prop_assert_eq!(pipes.iter().map(|it| packets(it.received)).sum::<u64>(), received);
            let mut names: Vec<_> = all.clients.iter().map(|it| &it.client).collect();
            names.sort();
            names.dedup();
            prop_assert_eq!(names.len(), all.clients.len());
        }
    }
}
