// SPDX-License-Identifier: Apache-2.0
//! A frame has the same fate with a shim as without one, in all accounts and at the same
//! instants, and the shim states it.

use std::collections::BTreeMap;

use emu::client::ClientKey;
use emu::ecn;
use emu::engine::{Engine, Limits};
use emu::plan::{OffloadPlan, Plan};
use emu::reorder::ReorderPlan;
use emu::stats::{DropReason, Snapshot};
use emu::units::{Direction, Instant, Nanos, Probability};
use proptest::prelude::*;
use shim::{Numbers, Shim, Tick};

use crate::arbitrary::*;
use crate::shimmed::Bed;

/// The slot of a plan's direction, and whether the switch marks.
type Offload = (u16, bool);

fn offload() -> impl Strategy<Value = [Offload; 2]> {
    let one = || (prop_oneof![Just(0), 1..=u16::MAX], any::<bool>());
    (one(), one()).prop_map(|(forward, back)| [forward, back])
}

/// A plan for an engine behind a switch, and the part of it that an engine without a switch does
/// the rest.
fn split(mut plan: Plan, offload: [Offload; 2], marking: bool) -> (Plan, Plan) {
    for (p, (loss, marks)) in plan.pipes.0.iter_mut().zip(offload) {
        p.offload = OffloadPlan { loss, marks: marks && marking };
        // Whether a wrong header can be marked depends on which comes first.
        if marking {
            p.corrupt = Probability::ZERO;
        }
    }
    let mut rest = plan.clone();
    for p in &mut rest.pipes.0 {
        p.packet_loss = p.drawn_loss();
        p.offload = OffloadPlan::default();
    }
    (plan, rest)
}

/// Small frames are copied, larger ones kept, as long as there are places.
const LIMITS: Limits =
    Limits { copy_break: 500, buffers: 8, ..Limits::copying(64 << 20, 4, 9_500) };

/// A shim of a switch that classifies nothing. Its stamp is when it arrives.
fn wrap(now: Instant, direction: Direction, frame: &[u8]) -> Vec<u8> {
    let shim =
        Shim { direction, mark: true, client: 0, epoch: 0, loss: 77, stamp: now.0, planned: 77 };
    [&shim.to_bytes()[..], frame].concat()
}

/// A frame with a packet that can be marked if its number is odd.
fn markable(direction: Direction, client: u8, len: u16, number: u32) -> Vec<u8> {
    let mut f = frame(direction, client, len, number);
    if let Some(header) = f.get_mut(14..34) {
        let sum: u32 = header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    f
}

proptest! {
    #![proptest_config(crate::cases(200))]

    #[test]
    fn shim_changes_no_fate_and_states_it(
        first in plan_with_beams(),
        first_offload in offload(),
        nanos: bool,
        marking: bool,
        reorder in prop::option::of((0.0..=1.0, 0_u64..50_000_000)),
        steps in prop::collection::vec((step(), offload()), 1..300),
    ) {
        let tick = if nanos { Tick::Nanosecond } else { Tick::Microsecond };
        let reordering = |mut plan: Plan| {
            plan.pipes[Direction::Forward].reorder = reorder.map(|(p, by)| ReorderPlan {
                probability: Probability::new(p),
                by: Nanos(by),
            });
            plan
        };
        let (with, without) = split(reordering(first), first_offload, marking);
        let mut shimmed = Bed::new(LIMITS, with, tick);
        let mut plain: Engine<Vec<u8>> = Engine::new(LIMITS, without, Instant::ZERO).unwrap();
        let mut left = [Vec::new(), Vec::new()];
        let mut snapshots = [Snapshot::with_room_for(8), Snapshot::with_room_for(8)];
        let mut now = Instant::ZERO;
        for (i, ((gap, step), offload)) in steps.into_iter().enumerate() {
            now = now + Nanos(gap);
            match step {
                Step::Arrive { direction, client, len } => {
                    for k in 0..i % 7 {
                        let f = markable(direction, client, len, (i * 10 + k) as u32);
                        let wrapped = wrap(now, direction, &f);
                        shimmed.arrive_burst(now, direction, &[wrapped]);
                        plain.arrive_burst(now, direction, &mut [Some(f)]);
                    }
                }
                Step::Release { budget, port_takes } => {
                    left[0].extend(shimmed.release(now, budget, port_takes));
                    release(&mut plain, now, budget, port_takes, &mut left[1]);
                }
                Step::Apply { plan, restart } => {
                    let (with, without) = split(reordering(*plan), offload, marking);
                    shimmed.apply(now, with, 1, restart);
                    plain.apply(now, without, 1, restart);
                }
                Step::KeepUp => {
                    shimmed.keep_up(now);
                    plain.keep_up(now);
                }
            }
        }
        let mut end = now + Nanos(1);
        shimmed.apply(end, Plan { seed: 1, ..Plan::transparent() }, 2, false);
        plain.apply(end, Plan { seed: 1, ..Plan::transparent() }, 2, false);
        while let Some(t) = shimmed.next_deadline() {
            end = end.max(t);
            left[0].extend(shimmed.release(end, 64, usize::MAX));
            release(&mut plain, end, 64, usize::MAX, &mut left[1]);
        }
        prop_assert_eq!(plain.next_deadline(), None);
        shimmed.snapshot(end, false, &mut snapshots[0]);
        plain.snapshot(end, false, &mut snapshots[1]);
        left.iter_mut().for_each(sort_by_pipe);
        snapshots.iter_mut().for_each(forget_lateness);
        let [with, without] = &snapshots;
        prop_assert_eq!(&with.clients, &without.clients);
        prop_assert_eq!(with.malformed, without.malformed);
        prop_assert_eq!(with.store_used, 0);
        let of = Numbers::of_first(Tick::Microsecond, 1);
        let numbers: BTreeMap<_, _> =
            with.clients.iter().map(|c| (c.key, of.number(c.index.unwrap()))).collect();
        prop_assert_eq!(left[0].len(), left[1].len());
        for (with, without) in left[0].iter().zip(&left[1]) {
            prop_assert_eq!((with.0, with.1, with.2), (without.0, without.1, without.2));
            let (shim, frame) = Shim::read(&with.3).unwrap();
            let mut frame = frame.to_vec();
            // The switch's part.
            prop_assert!(!shim.mark || ecn::mark(&mut frame));
            prop_assert_eq!(&frame, &without.3);
            prop_assert_eq!((shim.direction, shim.epoch), (with.0, 0));
            prop_assert_eq!(shim.client, numbers[&with.1]);
            prop_assert_eq!(shim.planned, tick.between(Instant(shim.stamp), with.2));
            prop_assert!(with.1 != ClientKey::Bypass || shim.loss == 0 && !shim.mark);
        }
    }

    /// Shims that no switch would send: nothing panics, and no other client gets the frame.
    #[test]
    fn wrong_shim_selects_no_client(
        frames in prop::collection::vec(
            (any::<bool>(), 0_u8..6, 0_u16..80, any::<[u8; 8]>(), prop::option::of(0_usize..130)),
            1..60,
        ),
        epoch: u16,
    ) {
        let plan = Plan { epoch: epoch % 4, ..Plan::transparent() };
        let mut engine = Bed::new(LIMITS, plan, Tick::Microsecond);
        let mut snapshots = [Snapshot::with_room_for(8), Snapshot::with_room_for(8)];
        for (back, client, len, noise, cut) in frames {
            let direction = Direction::BOTH[usize::from(back)];
            let inner = frame(direction, client, len, 7);
            let mut bytes = wrap(Instant::ZERO, direction, &inner);
            // Often a byte of the header is any, and number and epoch are small.
            if noise[0] < 64 {
                bytes[usize::from(noise[0] % 32)] = noise[1];
            }
            bytes[14] = if noise[2] < 32 { noise[3] } else { bytes[14] };
            bytes[16..20].copy_from_slice(&[noise[4] / 250, noise[5] % 10, 0, noise[6] % 4]);
            bytes.truncate(cut.unwrap_or(usize::MAX));
            let shim = Shim::read(&bytes).filter(|(s, _)| s.direction == direction);
            let [before, after] = &mut snapshots;
            engine.snapshot(Instant::ZERO, false, before);
            engine.arrive(Instant::ZERO, direction, &bytes);
            engine.snapshot(Instant::ZERO, false, after);
            prop_assert!(after.is_conserved());
            let mut changed = Vec::new();
            for (i, c) in after.clients.iter().enumerate() {
                let was = before.clients.get(i).map(|c| c.pipes).unwrap_or_default();
                for d in Direction::BOTH {
                    let n = c.pipes[d].received.packets - was[d].received.packets;
                    let bytes = c.pipes[d].received.bytes - was[d].received.bytes;
                    let dropped = |r: DropReason| {
                        let (now, was) = (c.pipes[d].dropped, was[d].dropped);
                        now[r as usize].packets - was[r as usize].packets
                    };
                    if n > 0 {
                        changed.push((i, d, bytes as usize, dropped(DropReason::Rejected)));
                    }
                }
            }
            prop_assert_eq!(changed.len(), 1);
            let (who, way, counted, dropped) = changed[0];
            prop_assert_eq!(way, direction);
            let Some((shim, inner)) = shim else {
                prop_assert_eq!((who, counted, dropped), (0, bytes.len(), 1));
                continue;
            };
            prop_assert_eq!((counted, dropped), (inner.len(), 0));
            let named = usize::from(shim.client).checked_sub(1);
            let known = named.filter(|n| *n < before.clients.len());
            if inner.len() >= 14 && shim.epoch == epoch % 4 && shim.epoch != 0 && known.is_some() {
                prop_assert_eq!(Some(who), known);
            } else {
                // As it is without a switch.
                let key = after.clients[who].key;
                let expected = match emu::classify::classify(inner, direction) {
                    emu::classify::Class::Client(key) => vec![key, ClientKey::Default],
                    emu::classify::Class::Malformed => vec![ClientKey::Default],
                    emu::classify::Class::Runt => vec![ClientKey::Bypass],
                };
                prop_assert!(expected.contains(&key), "{key} of {expected:?}");
            }
        }
    }
}
