// SPDX-License-Identifier: Apache-2.0
//! Several links in one worker: each behaves like a separate engine, and others have no effect on it.

use std::sync::Arc;

use emu::engine::{Departure, Engine, Limits};
use emu::links::{Board, Links, MAIN};
use emu::plan::Plan;
use emu::rules::Rule;
use emu::stats::Snapshot;
use emu::units::{Direction, Instant, Nanos};
use proptest::prelude::*;

use crate::arbitrary::*;

const LINKS: usize = 3;
/// Memory of each link.
const LIMIT: Limits = LIMITS;

/// A frame for a client of a link.
fn frame_of(link: usize, direction: Direction, client: u8, len: u16, number: u32) -> Vec<u8> {
    let mut f = frame(direction, client, len.max(60), number);
    let at = if direction == Direction::Forward { 30 } else { 26 };
    f[at + 2] = link as u8;
    f
}

/// Frames of 10.0.k.0/24 are of link k; all others are of `main`.
fn board(links: std::ops::Range<usize>) -> Arc<Board> {
    let mut board = Board::default();
    for link in links {
        let rule = Rule::Prefix([10, 0, link as u8, 0].into(), 24);
        board.insert(rule, format!("link{link}").parse().unwrap(), link).unwrap();
    }
    Arc::new(board)
}

fn several(plans: &[Plan]) -> Links<Vec<u8>> {
    let whole = Limits { memory: LIMIT.memory * (LINKS + 1), ..LIMIT };
    let mut main = Engine::new(whole, plans[0].clone(), Instant::ZERO).unwrap();
    main.set_memory(LIMIT.memory);
    let mut links = Links::new(main);
    for (number, plan) in plans.iter().enumerate().skip(1) {
        links.add(number, another(plan, Instant::ZERO), None).unwrap();
    }
    links
}

fn another(plan: &Plan, at: Instant) -> Box<Engine<Vec<u8>>> {
    Box::new(Engine::sharing(LIMIT, plan.clone(), at).unwrap())
}

fn release_links(links: &mut Links<Vec<u8>>, now: Instant, left: &mut [Left; LINKS]) {
    links.release(now, usize::MAX, &mut |d: Departure<'_, Vec<u8>>| {
        let bytes = d.bytes().to_vec();
        let at = if d.direction == Direction::Forward { 32 } else { 28 };
        let link = usize::from(bytes[at]).min(LINKS - 1);
        left[link].push((d.direction, *d.client, d.due, bytes));
        true
    });
}

/// A step of one of the links.
fn steps() -> impl Strategy<Value = Vec<(usize, (u64, Step))>> {
    prop::collection::vec((0..LINKS, step()), 1..300)
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn each_link_behaves_as_an_engine_of_its_own(
        plans in prop::collection::vec(plan_with_beams(), LINKS),
        steps in steps(),
        (added, removed) in (0_usize..100, 0_usize..200),
    ) {
        // Corrupted bytes may be those that name the link.
        let plans: Vec<Plan> = plans.into_iter().map(faithful).collect();
        let mut links = several(&plans);
        let mut alone: Vec<Engine<Vec<u8>>> =
            plans.iter().map(|p| Engine::new(LIMIT, p.clone(), Instant::ZERO).unwrap()).collect();
        links.set_board(Instant::ZERO, board(1..LINKS));
        let (mut left, mut left_alone) = (<[Left; LINKS]>::default(), <[Left; LINKS]>::default());
        let mut now = Instant::ZERO;
        for (i, (link, (gap, step))) in steps.into_iter().enumerate() {
            now = now + Nanos(gap);
            if i == added {
                links.add(LINKS, another(&plans[0], now), None).unwrap();
                links.set_board(now, board(1..LINKS + 1));
            }
            if i == removed && i > added {
                links.set_board(now, board(1..LINKS));
                prop_assert!(links.remove(LINKS).is_some());
            }
            match step {
                Step::Arrive { direction, client, len } => {
                    let f = frame_of(link, direction, client, len, i as u32);
                    alone[link].arrive_burst(now, direction, &mut [Some(f.clone())]);
                    links.arrive_burst(now, direction, &mut [Some(f)]);
                }
                Step::Release { .. } => {
                    // All that is due: one visit serves only some phantom frames.
                    let more = |next: Option<Instant>| next.is_some_and(|next| next <= now);
                    for (engine, left) in alone.iter_mut().zip(&mut left_alone) {
                        release(engine, now, usize::MAX, usize::MAX, left);
                        while more(engine.next_deadline()) {
                            release(engine, now, usize::MAX, usize::MAX, left);
                        }
                    }
                    release_links(&mut links, now, &mut left);
                    while more(links.next_deadline()) {
                        release_links(&mut links, now, &mut left);
                    }
                }
                Step::Apply { plan, restart } => {
                    let plan = faithful(*plan);
                    let generation = i as u64;
                    alone[link].apply(now, plan.clone(), generation, restart);
                    links.link(link).unwrap().apply(now, plan, generation, restart);
                }
                Step::KeepUp => {
                    alone[link].keep_up(now);
                    links.link(link).unwrap().keep_up(now);
                }
            }
        }
        for (number, engine) in alone.iter_mut().enumerate() {
            let (mut one, mut other) = (Snapshot::default(), Snapshot::default());
            engine.snapshot(now, false, &mut one);
            links.link(number).unwrap().snapshot(now, false, &mut other);
            prop_assert_eq!(&one.clients, &other.clients);
            prop_assert_eq!(one.store_used, other.store_used);
            prop_assert_eq!(one.store_capacity, other.store_capacity);
            prop_assert_eq!(one.generation, other.generation);
            for client in &other.clients {
                prop_assert!(client.pipes.0.iter().all(|pipe| pipe.is_conserved()));
            }
        }
        left.iter_mut().chain(&mut left_alone).for_each(sort_by_pipe);
        prop_assert_eq!(left, left_alone);
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    /// A caller that waits for the deadline of an engine misses nothing.
    #[test]
    fn release_before_deadline_sends_nothing(
        plan in plan_with_beams(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut engine: Engine = Engine::new(LIMIT, plan.clone(), Instant::ZERO).unwrap();
        let (mut now, mut left) = (Instant::ZERO, Left::new());
        for (i, (gap, step)) in steps.into_iter().enumerate() {
            now = now + Nanos(gap);
            match step {
                Step::Arrive { direction, client, len } => {
                    engine.arrive(now, direction, &frame(direction, client, len, i as u32));
                }
                Step::Release { .. } => {
                    let (deadline, before) = (engine.next_deadline(), left.len());
                    release(&mut engine, now, usize::MAX, usize::MAX, &mut left);
                    let due = left.get(before).map(|l| l.2);
                    prop_assert!(
                        due.is_none() || deadline.is_some_and(|deadline| deadline <= now),
                        "{due:?} at {now:?} before {deadline:?}"
                    );
                }
                Step::Apply { plan, restart } => _ = engine.apply(now, *plan, i as u64, restart),
                Step::KeepUp => engine.keep_up(now),
            }
        }
    }
}

#[test]
fn frames_follow_the_board_of_their_arrival() {
    let plans = vec![Plan::transparent(); LINKS];
    let mut links = several(&plans);
    links.set_board(Instant(1_000), board(1..LINKS));
    let frame = frame_of(1, Direction::Return, 1, 60, 0);
    let received = |links: &mut Links<Vec<u8>>, number: usize| {
        let mut snapshot = Snapshot::default();
        links.link(number).unwrap().snapshot(Instant(2_000), false, &mut snapshot);
        snapshot.total().received.packets
    };
    for at in [999, 1_000, 1_001] {
        links.arrive_burst(Instant(at), Direction::Return, &mut [Some(frame.clone())]);
    }
    assert_eq!((received(&mut links, MAIN), received(&mut links, 1)), (1, 2));
    assert!(links.remove(1).is_none(), "it holds two frames");
    assert!(links.remove(MAIN).is_none());
    assert_eq!(links.count(), LINKS);
}

#[test]
fn idle_clients_of_each_link_expire() {
    let idle = Nanos::from_millis(10);
    let limits = Limits { idle, ..LIMIT };
    let engine = || Engine::sharing(limits, Plan::transparent(), Instant::ZERO).unwrap();
    let whole = Limits { memory: LIMIT.memory * 2, ..limits };
    let main = Engine::<Vec<u8>>::new(whole, Plan::transparent(), Instant::ZERO).unwrap();
    let mut links = Links::new(main);
    links.add(1, Box::new(engine()), None).unwrap();
    links.set_board(Instant::ZERO, board(1..2));
    for link in [MAIN, 1] {
        let f = frame_of(link, Direction::Return, 1, 60, 0);
        links.arrive_burst(Instant(1), Direction::Return, &mut [Some(f)]);
    }
    links.release(Instant(2), usize::MAX, &mut |_: Departure<'_, Vec<u8>>| true);
    for n in 0..20 {
        links.keep_up(Instant(3) + Nanos(idle.0 * n));
    }
    for link in [MAIN, 1] {
        let mut snapshot = Snapshot::default();
        links.link(link).unwrap().snapshot(Instant(1 << 40), false, &mut snapshot);
        let keys: Vec<_> = snapshot.clients.iter().map(|client| client.key.to_string()).collect();
        assert_eq!(keys, ["bypass", "default", "expired"]);
    }
}

#[test]
fn one_link_never_uses_memory_of_another() {
    let mut down = Plan::transparent();
    down.pipes.0.iter_mut().for_each(|pipe| {
        pipe.rate = emu::units::BitRate::Down.into();
        pipe.queue = emu::aqm::QueuePlan::tail_drop(1 << 40);
    });
    let mut links = several(&[down.clone(), down.clone(), Plan::transparent()]);
    links.set_board(Instant::ZERO, board(1..LINKS));
    // Far more than the whole store has, for two links that send nothing.
    for n in 0..10_000 {
        for link in [MAIN, 1] {
            let f = frame_of(link, Direction::Return, 1, 9_000, n);
            links.arrive_burst(Instant(1), Direction::Return, &mut [Some(f)]);
        }
    }
    let snapshot = |links: &mut Links<Vec<u8>>, number: usize| {
        let mut snapshot = Snapshot::default();
        links.link(number).unwrap().snapshot(Instant(2), false, &mut snapshot);
        snapshot
    };
    for number in [MAIN, 1] {
        let full = snapshot(&mut links, number);
        assert!(full.store_used <= LIMIT.memory as u64, "{}", full.store_used);
        assert!(full.store_used > LIMIT.memory as u64 * 9 / 10, "{}", full.store_used);
    }
    // The third one has room for all of its own.
    for n in 0..100 {
        let f = frame_of(2, Direction::Return, 1, 9_000, n);
        links.arrive_burst(Instant(3), Direction::Return, &mut [Some(f)]);
    }
    let other = snapshot(&mut links, 2).total();
    assert_eq!((other.received.packets, other.held.packets), (100, 100));
}
