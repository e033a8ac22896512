// SPDX-License-Identifier: Apache-2.0
//! Named clients in an engine: what they share, what does not touch them, and what a change
//! of the rules does to frames in flight.

use emu::client::ClientKey;
use emu::engine::{Departure, Engine, Limits};
use emu::episode::{DurationLaw, EpisodePlan};
use emu::matches::Match;
use emu::plan::{PipePlan, Plan};
use emu::rules::{Rule, Rules};
use emu::stats::{ClientStats, Snapshot};
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos, Probability};

const LIMITS: Limits = Limits::copying(32 << 20, 8, 1514);

fn rules(all: &[(Rule, &str)]) -> Rules {
    let mut rules = Rules::default();
    for (rule, client) in all {
        rules.insert(*rule, client.parse().unwrap()).unwrap();
    }
    rules
}

fn host(last: u8) -> Rule {
    Rule::Prefix([10, 0, 0, last].into(), 32)
}

fn named(client: &str) -> ClientKey {
    ClientKey::Named(client.parse().unwrap())
}

/// A rate that the traffic exceeds, outages, losses and a delay.
fn plan(rules: Rules) -> Plan {
    let outage = EpisodePlan {
        interval: Nanos::from_millis(200),
        duration: Nanos::from_millis(30),
        law: DurationLaw::Exponential,
    };
    let mut pipe = PipePlan::transparent();
    pipe.rate = BitRate::bps(4_000_000).into();
    pipe.queue.limit = 50_000;
    pipe.outages = vec![outage];
    pipe.packet_loss = Probability::new(0.1).into();
    pipe.delay.base = Nanos::from_millis(100);
    let pipes = ByDirection([pipe.clone(), pipe]);
    Plan { seed: 42, pipes, rules: rules.into(), ..Plan::transparent() }
}

fn frame(client: u8, number: u32) -> Vec<u8> {
    let mut f = vec![0_u8; 1000];
    f[12..14].copy_from_slice(&[8, 0]);
    f[14] = 0x45;
    f[16..18].copy_from_slice(&986_u16.to_be_bytes());
    f[26..30].copy_from_slice(&[10, 0, 0, client]);
    f[30..34].copy_from_slice(&[10, 0, 0, client]);
    f[34..38].copy_from_slice(&number.to_be_bytes());
    f
}

/// Lets clients send a frame each millisecond for some time, each second one on its way
/// forward, and the first one not; `left` notes whose frames leave, when, and their numbers.
fn play(
    engine: &mut Engine,
    from_ms: u64,
    clients: &[u8],
    left: &mut Vec<(ClientKey, Direction, Instant, u32)>,
) {
    for ms in from_ms..from_ms + 2_000 {
        let now = Instant::ZERO + Nanos::from_millis(ms);
        for client in clients {
            let number = ms as u32 * 256 + u32::from(*client);
            engine.arrive(now, Direction::BOTH[(ms as usize + 1) % 2], &frame(*client, number));
        }
        engine.release(now, usize::MAX, &mut |d: Departure<'_>| {
            let number = u32::from_be_bytes(d.bytes()[34..38].try_into().unwrap());
            left.push((*d.client, d.direction, d.due, number));
            true
        });
    }
}

fn account(engine: &mut Engine, key: ClientKey) -> Option<ClientStats> {
    let mut all = Snapshot::with_room_for(10);
    engine.snapshot(Instant::ZERO, false, &mut all);
    assert!(all.is_conserved());
    all.clients.into_iter().find(|c| c.key == key)
}

#[test]
fn fate_of_named_client_depends_on_name_only() {
    let fates = |all: &[(Rule, &str)], clients: &[u8]| {
        let mut engine = Engine::new(LIMITS, plan(rules(all)), Instant::ZERO).unwrap();
        let mut left = Vec::new();
        play(&mut engine, 0, clients, &mut left);
        left.retain(|(key, ..)| *key == named("alice"));
        assert!(left.len() > 200, "{}", left.len());
        left
    };
    let alone = fates(&[(host(1), "alice")], &[1]);
    let others = [(host(3), "carol"), (Rule::Vlan(9), "dora"), (host(1), "alice")];
    let among = fates(&[&others[..], &[(host(2), "bob")]].concat(), &[4, 3, 2, 1]);
    assert_eq!(alone, among);
    // By another rule, and beside one that is never met.
    let wide = [(Rule::Prefix([10, 0, 0, 0].into(), 31), "alice"), (host(7), "alice")];
    assert_eq!(alone, fates(&wide, &[1]));
}

#[test]
fn hosts_of_one_name_share_a_rate_and_accounts() {
    let both = rules(&[(host(1), "alice"), (host(2), "alice")]);
    let mut engine = Engine::new(LIMITS, plan(both), Instant::ZERO).unwrap();
    play(&mut engine, 0, &[1, 2, 3], &mut Vec::new());
    let alice = account(&mut engine, named("alice")).unwrap();
    let other = account(&mut engine, ClientKey::Ip([10, 0, 0, 3].into())).unwrap();
    for direction in Direction::BOTH {
        let (alice, other) = (&alice.pipes[direction], &other.pipes[direction]);
        assert_eq!(alice.received.packets, 2 * other.received.packets);
        // 4 Mbit/s bring 4 of 8 Mbit/s of the one, and all that the other sends, so that
        // losses aside both send the same.
        assert!(alice.dropped_total().packets > other.dropped_total().packets + 300);
    }
    assert_eq!(account(&mut engine, ClientKey::Ip([10, 0, 0, 1].into())), None);
}

#[test]
fn flow_class_of_a_host_is_a_client_with_its_own_order_and_fate() {
    let voice =
        Match { prefix: Some(([10, 0, 0, 1].into(), 32)), dscp: Some(46), ..Match::default() };
    let played = |rules: &[(Rule, &str)]| {
        let mut engine = Engine::new(LIMITS, plan(self::rules(rules)), Instant::ZERO).unwrap();
        let mut left = Vec::new();
        for ms in 0..2_000 {
            let now = Instant::ZERO + Nanos::from_millis(ms);
            for (n, tos) in [0, 46 << 2].into_iter().enumerate() {
                let mut frame = frame(1, 2 * ms as u32 + n as u32);
                frame[15] = tos;
                engine.arrive(now, Direction::Forward, &frame);
            }
            engine.release(now, usize::MAX, &mut |d: Departure<'_>| {
                let number = u32::from_be_bytes(d.bytes()[34..38].try_into().unwrap());
                left.push((*d.client, d.due, number));
                true
            });
        }
        left
    };
    let of = |left: &[(ClientKey, Instant, u32)], key| {
        left.iter().filter(|(client, ..)| *client == key).copied().collect::<Vec<_>>()
    };
    let both = [(Rule::Match(voice), "voice"), (host(1), "alice")];
    let left = played(&both);
    let [mine, others] = [named("voice"), named("alice")].map(|key| of(&left, key));
    for (left, class) in [(&mine, 1), (&others, 0)] {
        assert!(left.len() > 200, "{}", left.len());
        assert!(left.iter().all(|(.., number)| number % 2 == class));
        assert!(left.iter().map(|(.., number)| *number).is_sorted());
    }
    // Its fate does not depend on the rest of the host.
    assert_eq!(mine, of(&played(&both[..1]), named("voice")));
}

#[test]
fn client_of_removed_rule_drains_and_keeps_accounts() {
    let mut engine =
        Engine::new(LIMITS, plan(rules(&[(host(1), "alice")])), Instant::ZERO).unwrap();
    let mut left = Vec::new();
    play(&mut engine, 0, &[1], &mut left);
    let before = account(&mut engine, named("alice")).unwrap();
    assert!(before.pipes.0.iter().all(|p| p.held.packets > 10));
    let at = Instant::ZERO + Nanos::from_millis(2_000);
    engine.apply(at, plan(Rules::default()), 1, false);
    play(&mut engine, 2_000, &[1], &mut left);
    let after = account(&mut engine, named("alice")).unwrap();
    let own = account(&mut engine, ClientKey::Ip([10, 0, 0, 1].into())).unwrap();
    for direction in Direction::BOTH {
        let (before, after) = (&before.pipes[direction], &after.pipes[direction]);
        assert_eq!(after.received, before.received);
        assert_eq!(after.held.packets, 0);
        assert!(after.sent.packets > before.sent.packets);
        assert_eq!(own.pipes[direction].received.packets, 1_000);
        // In their order, of each client.
        for key in [named("alice"), ClientKey::Ip([10, 0, 0, 1].into())] {
            let mine = left.iter().filter(|(k, d, ..)| (*k, *d) == (key, direction));
            assert!(mine.map(|(.., number)| *number).is_sorted());
        }
    }
    // Named again, it goes on where it was.
    engine.apply(at, plan(rules(&[(host(1), "alice")])), 2, false);
    play(&mut engine, 4_000, &[1], &mut left);
    let again = account(&mut engine, named("alice")).unwrap();
    assert_eq!(again.pipes.0[0].received.packets, before.pipes.0[0].received.packets + 1_000);
}

#[test]
fn addresses_past_limit_share_default_client() {
    let keys = |rules: Rules, clients: &[u8]| {
        let mut engine = Engine::new(LIMITS, plan(rules), Instant::ZERO).unwrap();
        play(&mut engine, 0, clients, &mut Vec::new());
        let mut all = Snapshot::with_room_for(10);
        engine.snapshot(Instant::ZERO, false, &mut all);
        let used = all.clients.into_iter().filter(|c| c.pipes.0[0].received.packets > 0);
        used.map(|c| c.key.to_string()).collect::<Vec<_>>()
    };
    let eight: Vec<u8> = (1..=8).collect();
    let mut one = rules(&[(host(3), "alice"), (host(4), "bob")]);
    one.automatic = Some(1);
    assert_eq!(keys(one, &eight), ["default", "10.0.0.1", "alice", "bob"]);
    let mut none = Rules::default();
    none.automatic = Some(0);
    assert_eq!(keys(none, &[1, 2]), ["default"]);
    // Eight places, six of them for names.
    let mut reserved = rules(&[(host(8), "zoe")]);
    reserved.reserved = 6;
    assert_eq!(keys(reserved, &eight), ["default", "10.0.0.1", "10.0.0.2", "zoe"]);
}
