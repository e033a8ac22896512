// SPDX-License-Identifier: Apache-2.0
//! Access links that share a second link: fates are those of the two links one after the other,
//! whenever the worker turns.

use std::num::NonZeroU64;
use std::sync::Arc;

use emu::beam::{BeamPlan, BeamsPlan, Share};
use emu::client::{ClientKey, ClientName};
use emu::drop_run::DropRunPlan;
use emu::engine::{Departure, Engine, Limits};
use emu::frame::{Hint, Label};
use emu::framing::Framing;
use emu::links::{Board, Links, MAIN, Via};
use emu::plan::Plan;
use emu::rules::Rule;
use emu::shaper::RatePlan;
use emu::stats::Snapshot;
use emu::units::{BitRate, ByDirection, Direction, Instant, Nanos};
use proptest::prelude::*;

use crate::arbitrary::*;

const SHARED: usize = 1;
/// The access links, by number.
const ACCESS: std::ops::Range<usize> = 2..4;
const END: Nanos = Nanos::from_millis(600_000);

fn limits() -> Limits {
    // All frames fit, whatever their tags take.
    Limits { memory: 64 << 20, ..LIMITS }
}

/// The client of an access link in the shared one, which has a queue for all or one for each.
fn client(fifo: bool, link: usize) -> ClientName {
    let name = if fifo { "all".to_owned() } else { format!("link{link}") };
    name.parse().unwrap()
}

fn frame_of(link: usize, direction: Direction, client: u8, len: u16, number: u32) -> Vec<u8> {
    let mut f = frame(direction, client, len.max(60), number);
    let at = if direction == Direction::Forward { 30 } else { 26 };
    f[at + 2] = link as u8;
    f
}

fn engine(plan: &Plan) -> Engine<Vec<u8>> {
    Engine::new(limits(), plan.clone(), Instant::ZERO).unwrap()
}

/// All clients are those of addresses, which have been seen: whether a client is made before or
/// after a forward frame that waits for the same turn depends on the turn. There is no cross traffic:
/// it would be simulated until [`END`].
fn unruled(plan: Plan) -> Plan {
    let mut plan = Plan { rules: Arc::default(), ..faithful(plan) };
    plan.pipes.0.iter_mut().for_each(|pipe| pipe.cross = None);
    plan
}

/// The plan of a link: that of all of its clients, or, for the shared one, with deficit round robin
/// if there is a rate.
fn shared(mut plan: Plan, rates: Option<[u64; 2]>) -> Plan {
    let Some(rates) = rates else { return plan };
    let rate = rates.map(|bps| NonZeroU64::new(bps).map_or(BitRate::Down, BitRate::PerSec));
    let beam =
        BeamPlan { name: String::new(), rate: ByDirection(rate), framing: Framing::default() };
    let share = |link| {
        let weight = link as u16;
        (ClientKey::Named(client(false, link)), Share { beam: 0, weight })
    };
    let shares = ACCESS.map(share).collect();
    plan.beams = Arc::new(BeamsPlan { beams: vec![beam], shares, automatic: None });
    plan.pipes.0.iter_mut().for_each(|pipe| pipe.rate = RatePlan::from(BitRate::Unlimited));
    plan
}

#[derive(Clone, Debug)]
enum Event {
    Arrive(Direction, u8, u16),
    Apply(Box<Plan>, bool),
    Turn,
}

fn events() -> impl Strategy<Value = Vec<(u64, usize, Event)>> {
    let event = (0_usize..3, step()).prop_map(|(link, (gap, step))| {
        let event = match step {
            Step::Arrive { direction, client, len } => Event::Arrive(direction, client % 4, len),
            Step::Apply { plan, restart } => Event::Apply(Box::new(unruled(*plan)), restart),
            Step::Release { .. } | Step::KeepUp => Event::Turn,
        };
        // No two events at the same instant.
        (gap + 1, link + 1, event)
    });
    prop::collection::vec(event, 1..150)
}

/// A frame that left: when it was due, the access link and the client, and its bytes.
type Out = (Instant, usize, ClientKey, Vec<u8>);

fn all_of(engine: &mut Engine<Vec<u8>>, link: usize, direction: Direction) -> Vec<Out> {
    let mut out = Vec::new();
    loop {
        let n = engine.release(Instant(END.0), usize::MAX, &mut |d: Departure<'_, Vec<u8>>| {
            if d.direction == direction && *d.client != ClientKey::Bypass {
                out.push((d.due, link, *d.client, d.bytes().to_vec()));
            }
            true
        });
        if n == 0 && engine.next_deadline().is_none_or(|next| next > Instant(END.0)) {
            break;
        }
    }
    out.sort_by_key(|(due, link, client, _)| (*due, *link, *client));
    out
}

fn link_in(frame: &[u8], direction: Direction) -> usize {
    frame[if direction == Direction::Forward { 32 } else { 28 }].into()
}

/// What enters an engine.
enum Into<'a> {
    Frame(Direction, Vec<u8>, Hint),
    Plan(&'a Plan, bool),
}

fn feed(engine: &mut Engine<Vec<u8>>, mut all: Vec<(Instant, u8, Into<'_>)>) {
    // A change follows the frames of its instant.
    all.sort_by_key(|(at, order, _)| (*at, *order));
    for (n, (at, _, into)) in all.into_iter().enumerate() {
        match into {
            Into::Frame(direction, frame, hint) => {
                let label = Label { hint, tags_answer: true, ..Label::NONE };
                engine.arrive_labelled(at, direction, &frame, label);
            }
            Into::Plan(plan, restart) => _ = engine.apply(at, plan.clone(), n as u64, restart),
        }
    }
}

/// The frames that leave in one direction if a separate engine has each link, and what leaves the
/// first engine arrives at the second one.
fn one_after_the_other(
    plans: &[Plan],
    fifo: bool,
    rates: Option<[u64; 2]>,
    first: &[(usize, Vec<u8>)],
    events: &[(Instant, usize, Event, u32)],
    way: Direction,
) -> Vec<Out> {
    let hint = |link| Hint::Key(ClientKey::Named(client(fifo, link)));
    let changed: Vec<(Instant, usize, Plan, bool)> = events
        .iter()
        .filter_map(|(at, link, event, _)| match event {
            Event::Apply(plan, restart) if *link == SHARED => {
                Some((*at, *link, shared((**plan).clone(), rates), *restart))
            }
            Event::Apply(plan, restart) => Some((*at, *link, (**plan).clone(), *restart)),
            _ => None,
        })
        .collect();
    let plans_of = |link: usize| {
        let its = changed.iter().filter(move |(_, of, ..)| *of == link);
        its.map(|(at, _, plan, restart)| (*at, 1, Into::Plan(plan, *restart)))
    };
    let arrivals = |link: usize, way: Direction| {
        events.iter().filter_map(move |(at, of, event, number)| match event {
            Event::Arrive(direction, client, len) if *of == link && *direction == way => {
                Some((*at, frame_of(link, way, *client, *len, *number)))
            }
            _ => None,
        })
    };
    let begin = |link: usize| {
        let its = first.iter().filter(move |(of, _)| *of == link);
        its.map(|(_, f)| (Instant::ZERO, 0, Into::Frame(Direction::Return, f.clone(), Hint::None)))
    };
    let into_shared = |all: &mut Vec<(Instant, u8, Into<'_>)>, frames: Vec<Out>| {
        let enters = |(due, link, _, f)| (due, 0, Into::Frame(way, f, hint(link)));
        all.extend(frames.into_iter().map(enters));
    };
    let mut second = engine(&plans[SHARED]);
    let mut into_second: Vec<_> = plans_of(SHARED).collect();
    let access = |frames: Vec<Out>, link: usize| {
        let mut engine = engine(&plans[link]);
        let own = |(at, f)| (at, 0, Into::Frame(way, f, Hint::None));
        let handed = frames.into_iter().map(|(due, _, _, f)| own((due, f)));
        let mut all: Vec<_> = begin(link).chain(plans_of(link)).chain(handed).collect();
        // Return frames make clients, for either direction.
        let back = Direction::Return;
        let enters = |(at, f)| (at, 0, Into::Frame(back, f, Hint::None));
        all.extend(arrivals(link, back).map(enters));
        feed(&mut engine, all);
        all_of(&mut engine, link, way)
    };
    match way {
        Direction::Return => {
            let mut left: Vec<Out> = ACCESS.flat_map(|link| access(Vec::new(), link)).collect();
            left.sort_by_key(|(due, link, client, _)| (*due, *link, *client));
            // Its clients are as old as those of the other direction.
            into_second.extend(ACCESS.map(|link| {
                let f = frame_of(link, Direction::Forward, 0, 60, 0);
                (Instant::ZERO, 0, Into::Frame(Direction::Forward, f, hint(link)))
            }));
            into_shared(&mut into_second, left);
            feed(&mut second, into_second);
            all_of(&mut second, SHARED, way)
        }
        Direction::Forward => {
            for link in ACCESS {
                let enter = |(at, f)| (at, 0, Into::Frame(way, f, hint(link)));
                into_second.extend(arrivals(link, way).map(enter));
            }
            feed(&mut second, into_second);
            let mut left = vec![Vec::new(); ACCESS.end];
            for frame in all_of(&mut second, SHARED, way) {
                let link = link_in(&frame.3, way);
                left[link].push(frame);
            }
            ACCESS.flat_map(|link| access(std::mem::take(&mut left[link]), link)).collect()
        }
    }
}

fn board() -> Arc<Board> {
    let mut board = Board::default();
    for link in ACCESS {
        let rule = Rule::Prefix([10, 0, link as u8, 0].into(), 24);
        board.insert(rule, format!("link{link}").parse().unwrap(), link).unwrap();
    }
    Arc::new(board)
}

fn links(plans: &[Plan], fifo: bool) -> Links<Vec<u8>> {
    let whole = Limits { memory: 4 * limits().memory, ..limits() };
    let mut main = Engine::new(whole, Plan::transparent(), Instant::ZERO).unwrap();
    main.set_memory(limits().memory);
    let mut links = Links::new(main);
    for (number, plan) in plans.iter().enumerate().skip(SHARED) {
        let via = Via { link: SHARED, client: client(fifo, number) };
        let via = ACCESS.contains(&number).then_some(via);
        let engine = Engine::sharing(limits(), plan.clone(), Instant::ZERO).unwrap();
        links.add(number, Box::new(engine), via).unwrap();
    }
    links.set_board(Instant::ZERO, board());
    links
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn fates_are_those_of_one_link_after_the_other(
        plans in prop::collection::vec(plan_with_beams(), ACCESS.end),
        rates in prop::option::of([0_u64..200_000_000, 1_000_000..2_000_000_000]),
        steps in events(),
    ) {
        let fifo = rates.is_none();
        let mut plans: Vec<Plan> = plans.into_iter().map(unruled).collect();
        plans[SHARED].beams = Arc::default();
        plans[SHARED] = shared(plans[SHARED].clone(), rates);
        let mut links = links(&plans, fifo);
        // Each client has been seen on the client side.
        let first: Vec<(usize, Vec<u8>)> = ACCESS
            .flat_map(|link| (0..4).map(move |client| (link, client)))
            .map(|(link, c)| (link, frame_of(link, Direction::Return, c, 60, u32::from(c))))
            .collect();
        for (_, f) in &first {
            links.arrive_burst(Instant::ZERO, Direction::Return, &mut [Some(f.clone())]);
        }
        let (mut now, mut out, mut events) = (Instant::ZERO, [Vec::new(), Vec::new()], Vec::new());
        // All clients begin at one instant.
        for link in ACCESS {
            let f = frame_of(link, Direction::Forward, 0, 60, 0);
            links.arrive_burst(now, Direction::Forward, &mut [Some(f)]);
            events.push((now, link, Event::Arrive(Direction::Forward, 0, 60), 0));
        }
        let mut egress = |d: Departure<'_, Vec<u8>>| {
            if *d.client != ClientKey::Bypass {
                out[d.direction as usize].push((d.due, d.bytes().to_vec()));
            }
            true
        };
        for (number, (gap, link, event)) in (100_u32..).zip(steps) {
            now = now + Nanos(gap);
            match &event {
                Event::Arrive(direction, c, len) if link != SHARED => {
                    let f = frame_of(link, *direction, *c, *len, number);
                    links.arrive_burst(now, *direction, &mut [Some(f)]);
                }
                Event::Arrive(..) => continue,
                Event::Apply(plan, restart) => {
                    let mut plan = (**plan).clone();
                    if link == SHARED {
                        plan.beams = Arc::default();
                        plan = shared(plan, rates);
                    }
                    // As the worker does it.
                    links.release_chains(now, usize::MAX, &mut egress);
                    links.link(link).unwrap().apply(now, plan, number.into(), *restart);
                }
                Event::Turn => {
                    links.release(now, usize::MAX, &mut egress);
                    links.keep_up(now);
                }
            }
            let event = match event {
                Event::Apply(mut plan, restart) if link == SHARED => {
                    plan.beams = Arc::default();
                    Event::Apply(plan, restart)
                }
                event => event,
            };
            events.push((now, link, event, number));
        }
        let end = Instant(END.0);
        while links.release(end, usize::MAX, &mut egress) > 0
            || links.next_deadline().is_some_and(|next| next <= end)
        {}
        for way in Direction::BOTH {
            let mut expected: Vec<(Instant, Vec<u8>)> =
                one_after_the_other(&plans, fifo, rates, &first, &events, way)
                    .into_iter()
                    .map(|(due, _, _, f)| (due, f))
                    .collect();
            let mut left = std::mem::take(&mut out[way as usize]);
            left.sort();
            expected.sort();
            prop_assert_eq!(left.len(), expected.len());
            prop_assert!(left == expected, "{:?}", way);
        }
        // Nothing is lost between the links.
        let mut total = |number: usize| {
            let mut snapshot = Snapshot::default();
            links.link(number).unwrap().snapshot(end, false, &mut snapshot);
            assert!(snapshot.is_conserved());
            let impaired = snapshot.clients.iter().filter(|c| c.key != ClientKey::Bypass);
            impaired.fold([(0, 0); 2], |sums, client| {
                Direction::BOTH.map(|d| {
                    let (pipe, sum) = (&client.pipes[d], sums[d as usize]);
                    (sum.0 + pipe.received.packets, sum.1 + pipe.sent.packets)
                })
            })
        };
        let shared = total(SHARED);
        let access = ACCESS.map(&mut total).fold([(0, 0); 2], |a, b| {
            [0, 1].map(|d| (a[d].0 + b[d].0, a[d].1 + b[d].1))
        });
        let [forward, back] = Direction::BOTH.map(|d| d as usize);
        prop_assert_eq!(shared[forward].1, access[forward].0);
        prop_assert_eq!(access[back].1, shared[back].0);
    }
}

#[test]
fn access_link_is_removed_before_its_shared_link() {
    let mut plans = vec![Plan::transparent(); ACCESS.end];
    plans[SHARED].pipes.0.iter_mut().for_each(|pipe| pipe.delay.base = Nanos::from_millis(1));
    let mut links = links(&plans, false);
    let f = frame_of(2, Direction::Forward, 1, 60, 0);
    links.arrive_burst(Instant(1), Direction::Forward, &mut [Some(f)]);
    assert!(links.remove(SHARED).is_none(), "it has access links");
    assert!(links.remove(2).is_none(), "the shared link has a frame for it");
    assert!(links.remove(3).is_some());
    let mut left = 0;
    let mut egress = |_: Departure<'_, Vec<u8>>| {
        left += 1;
        true
    };
    links.release(Instant(2_000_000), usize::MAX, &mut egress);
    assert_eq!(left, 1);
    assert!(links.remove(2).is_some() && links.remove(SHARED).is_some());
    assert_eq!(links.count(), 1);
}

#[test]
fn only_a_link_that_passes_no_other_can_be_shared() {
    let mut links = links(&vec![Plan::transparent(); ACCESS.end], true);
    let another =
        || Box::new(Engine::sharing(limits(), Plan::transparent(), Instant::ZERO).unwrap());
    for link in [MAIN, 2, 9] {
        let via = Via { link, client: client(true, 2) };
        assert!(links.add(4, another(), Some(via)).is_err(), "through {link}");
    }
    assert!(links.add(4, another(), Some(Via { link: SHARED, client: client(true, 4) })).is_ok());
}

/// As of one that waited between two workers.
#[test]
fn frame_from_before_the_last_turn_arrives_in_that_turn() {
    let mut plan = Plan::transparent();
    plan.pipes.0.iter_mut().for_each(|pipe| pipe.delay.base = Nanos(1_000));
    for direction in Direction::BOTH {
        let mut links = links(&vec![plan.clone(); ACCESS.end], true);
        let mut dues = Vec::new();
        let mut egress = |d: Departure<'_, Vec<u8>>| {
            dues.push(d.due);
            true
        };
        links.release(Instant(5_000), usize::MAX, &mut egress);
        let f = frame_of(2, direction, 1, 60, 0);
        links.arrive_burst(Instant(4_000), direction, &mut [Some(f)]);
        links.release(Instant(100_000), usize::MAX, &mut egress);
        assert_eq!(dues, [Instant(7_000)], "{direction:?}");
    }
}

/// The due times of return frames that leave in one release of all links.
fn returned(links: &mut Links<Vec<u8>>, now: Instant) -> Vec<Instant> {
    let mut dues = Vec::new();
    let mut egress = |d: Departure<'_, Vec<u8>>| {
        let bypasses = *d.client == ClientKey::Bypass;
        if !bypasses && d.direction == Direction::Return {
            dues.push(d.due);
        }
        !bypasses
    };
    links.release(now, usize::MAX, &mut egress);
    dues
}

#[test]
fn frame_behind_many_lost_ones_is_passed_on_in_the_turn_in_which_it_is_due() {
    // More than a visit of a pipe removes.
    const LOST: u64 = 1_000;
    let mut plans = vec![Plan::transparent(); ACCESS.end];
    let pipe = &mut plans[2].pipes[Direction::Return];
    pipe.delay.base = Nanos(10_000);
    pipe.drop_run = Some(DropRunPlan { pass: 0, drop: LOST, once: true, arm: true });
    let mut links = links(&plans, true);
    for number in 0..=LOST {
        let f = frame_of(2, Direction::Return, 1, 60, number as u32);
        links.arrive_burst(Instant(number), Direction::Return, &mut [Some(f)]);
    }
    let due = Instant(LOST + 10_000);
    assert_eq!(returned(&mut links, due), [due]);
}

#[test]
fn frame_behind_many_of_the_other_direction_is_passed_on_in_the_turn_in_which_it_is_due() {
    // More than a release visits in vain.
    const CLIENTS: u16 = 600;
    let millis = |ms| Instant::ZERO + Nanos::from_millis(ms);
    let mut access = Plan::transparent();
    access.pipes.0.iter_mut().for_each(|pipe| pipe.delay.base = Nanos::from_millis(10));
    let mut links = links(&vec![Plan::transparent(); ACCESS.end], true);
    let limits = Limits { clients: CLIENTS.into(), ..limits() };
    let engine = Engine::sharing(limits, access, Instant::ZERO).unwrap();
    let via = Via { link: SHARED, client: client(true, 2) };
    links.remove(2).unwrap();
    links.add(2, Box::new(engine), Some(via)).unwrap();
    let mut board = Board::default();
    board.insert(Rule::Prefix([10, 2, 0, 0].into(), 16), "link2".parse().unwrap(), 2).unwrap();
    links.set_board(Instant::ZERO, Arc::new(board));
    let arrive = |links: &mut Links<Vec<u8>>, at, direction, host: u16| {
        let mut f = frame(direction, 0, 60, 0);
        let [high, low] = host.to_be_bytes();
        let address = if direction == Direction::Forward { 30 } else { 26 };
        f[address..address + 4].copy_from_slice(&[10, 2, high, low]);
        links.arrive_burst(at, direction, &mut [Some(f)]);
    };
    (1..=CLIENTS).for_each(|host| arrive(&mut links, millis(1), Direction::Return, host));
    assert_eq!(returned(&mut links, millis(15)).len(), usize::from(CLIENTS));
    (1..=CLIENTS).for_each(|host| arrive(&mut links, millis(20), Direction::Forward, host));
    assert_eq!(returned(&mut links, millis(21)), []);
    arrive(&mut links, millis(25), Direction::Return, 1);
    assert_eq!(returned(&mut links, millis(40)), [millis(35)]);
}

#[test]
fn refused_frame_that_bypasses_does_not_hold_frames_between_links() {
    let mut links = links(&vec![Plan::transparent(); ACCESS.end], true);
    // An ARP reply (RFC 826) is on the link of its sender.
    let mut reply = vec![0; 60];
    reply[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    reply[28..32].copy_from_slice(&[10, 0, 2, 1]);
    let f = frame_of(2, Direction::Return, 1, 60, 0);
    links.arrive_burst(Instant(1), Direction::Return, &mut [Some(reply)]);
    links.arrive_burst(Instant(2), Direction::Return, &mut [Some(f)]);
    assert_eq!(returned(&mut links, Instant(5)), [Instant(2)]);
}
