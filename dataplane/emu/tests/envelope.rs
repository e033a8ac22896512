// SPDX-License-Identifier: Apache-2.0
//! The envelope against the engine: what is said to fit does, under the worst traffic, and
//! what is said not to fit does not, so that the bound is no wider than it must be.

use emu::engine::{Departure, Engine, Limits};
use emu::envelope::{Fits, Largest, MIN_FRAME};
use emu::plan::{Plan, Room};
use emu::stats::{DropReason, Snapshot};
use emu::units::{BitRate, Direction, Instant, Nanos};
use proptest::prelude::*;

const PORT: u64 = 1_000_000_000;
const ROOM: Room = Room {
    clients: 3,
    port_bps: PORT,
    frame: 1_514,
    capacity: 4 << 20,
    workers: 1,
    tag: 0,
    unanswered: false,
};

/// A frame of a client, IPv4 and no more said than the header.
fn frame(client: u32, len: u32, direction: Direction) -> Vec<u8> {
    let mut f = vec![0; len as usize];
    f[12] = 8;
    f[14] = 0x45;
    let total = u16::try_from(len - 14).unwrap();
    f[16..18].copy_from_slice(&total.to_be_bytes());
    let address = (0x0a00_0001 + client).to_be_bytes();
    let at = if direction == Direction::Forward { 30 } else { 26 };
    f[at..at + 4].copy_from_slice(&address);
    f
}

/// What was dropped as overload when frames of these lengths came at the ports' rate, one
/// client after the other, for as long as it takes to fill all lines and half as long
/// again; and the most that was held in the store.
fn overload(plan: &Plan, room: Room, lens: &[u32]) -> (u64, u64) {
    let limits = Limits::copying(room.capacity as usize, room.clients, room.frame);
    let mut engine: Engine = Engine::new(limits, plan.clone(), Instant::ZERO).unwrap();
    let longest = plan.pipes.0.iter().map(|p| p.delay.max()).max().unwrap();
    let until = Nanos(longest.0 * 3 / 2).0;
    let (mut now, mut n) = (0, 0);
    while now < until {
        let len = lens[n % lens.len()];
        for direction in Direction::BOTH {
            // One address more than there are clients: the last shares the default.
            let client = n as u32 % (room.clients + 1);
            engine.arrive(Instant(now), direction, &frame(client, len, direction));
        }
        engine.release(Instant(now), usize::MAX, &mut |_: Departure<'_>| true);
        now += u64::from(len) * 8 * 1_000_000_000 / room.port_bps;
        n += 1;
    }
    let mut snapshot = Snapshot::default();
    engine.snapshot(Instant(now), false, &mut snapshot);
    let dropped = snapshot.total().dropped;
    assert_eq!(dropped[DropReason::Oversize as usize].packets, 0);
    (dropped[DropReason::Overload as usize].packets, snapshot.store_used_max)
}

fn with_delay(plan: &Plan, delay: Nanos) -> Plan {
    let mut plan = plan.clone();
    for p in &mut plan.pipes.0 {
        p.delay.base = delay;
    }
    plan
}

/// The longest delay that fits, both ways.
fn longest(plan: &Plan, room: Room) -> Nanos {
    let delay = Fits::of(plan, room).delay.and_then(Largest::value).unwrap();
    Nanos(delay.0[0].unwrap())
}

fn limited(rate: u64, queue: u64) -> Plan {
    let mut plan = Plan::transparent();
    for p in &mut plan.pipes.0 {
        p.rate = BitRate::bps(rate).into();
        p.queue.limit = queue;
    }
    plan
}

#[test]
fn the_longest_delay_that_fits_holds_and_a_tenth_more_does_not() {
    for plan in [Plan::transparent(), limited(100_000_000, 100_000)] {
        let plan = with_delay(&plan, Nanos::from_millis(1));
        let delay = longest(&plan, ROOM);
        let fits = with_delay(&plan, delay);
        assert_eq!(fits.check(ROOM), Ok(()));
        let (dropped, used) = overload(&fits, ROOM, &[MIN_FRAME]);
        assert_eq!(dropped, 0, "{delay:?}");
        assert!(used as f64 > 0.9 * ROOM.capacity as f64, "{used}");
        let over = with_delay(&plan, Nanos(delay.0 * 11 / 10));
        assert!(over.check(ROOM).is_err());
        assert!(overload(&over, ROOM, &[MIN_FRAME]).0 > 0, "{delay:?}");
    }
}

proptest! {
    #![proptest_config(crate::cases(24))]

    #[test]
    fn fitting_plan_never_overflows_for_any_frames(
        lens in prop::collection::vec(
            prop_oneof![Just(MIN_FRAME), Just(60), Just(ROOM.frame), MIN_FRAME..=ROOM.frame], 1..20,
        ),
        rate in prop_oneof![Just(None), (1_000_000..PORT).prop_map(Some)],
        queue in 1_514..200_000_u64,
        capacity in 1_u64 << 20..6 << 20,
    ) {
        let room = Room { capacity, ..ROOM };
        let plan = rate.map_or(Plan::transparent(), |rate| limited(rate, queue));
        let plan = with_delay(&plan, Nanos::from_millis(1));
        let largest = Fits::of(&plan, room).delay;
        let Some(Largest::UpTo(delay)) = largest else { return Ok(()) };
        // Longer ones take too long to fill.
        let delay = Nanos(delay.0[0].unwrap().min(500_000_000));
        let plan = with_delay(&plan, delay);
        prop_assert_eq!(plan.check(room), Ok(()));
        prop_assert_eq!(overload(&plan, room, &lens).0, 0);
    }
}
