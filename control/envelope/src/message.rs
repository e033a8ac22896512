// SPDX-License-Identifier: Apache-2.0
//! The envelope as `linkemu.v1.Envelope`.

use super::show::{TRAFFIC, rates, text};
use emu::envelope::{
    Fits, Largest, MAX_WORK, Pair, events, excesses, longest_delay, memory, remarks, work,
};
use emu::plan::{Plan, Room};
use emu::units::ByDirection;
use proto::linkemu::v1 as pb;

/// Envelope of a room, and of a profile if there is one.
#[must_use]
pub fn message(room: Room, profile: Option<(&str, &Plan)>) -> pb::Envelope {
    let row = |rate_bps| {
        let delays = TRAFFIC.iter().map(|(frames, traffic)| pb::EnvelopeDelay {
            frames: (*frames).into(),
            delay_ns: longest_delay(room, rate_bps, *traffic).0,
        });
        let delays = delays.collect();
        pb::EnvelopeRow { rate_bps, port: rate_bps == room.port_bps, delays }
    };
    pb::Envelope {
        room: Some(pb::Room {
            clients: room.clients,
            port_bps: room.port_bps,
            frame_bytes: room.frame,
            memory_bytes: room.capacity,
            workers: room.workers,
            ..Default::default()
        }),
        rows: rates(room.port_bps).into_iter().map(row).collect(),
        profile: profile.map(|(name, plan)| of_profile(room, name, plan)),
        text: text(room, profile),
    }
}

fn of_profile(room: Room, name: &str, plan: &Plan) -> pb::EnvelopeOfProfile {
    let excesses = excesses(plan, room);
    let Fits { clients, delay, queue, rate } = Fits::of(plan, room);
    let pair = |largest| {
        bound(largest, |ByDirection([forward_value, return_value]): Pair| pb::EnvelopeBound {
            forward_value,
            return_value,
            ..Default::default()
        })
    };
    let number =
        |clients: u32| pb::EnvelopeBound { value: Some(clients.into()), ..Default::default() };
    pb::EnvelopeOfProfile {
        name: name.into(),
        fits: excesses.is_empty(),
        needed_bytes: memory(plan, room),
        events_per_second: events(plan, room),
        work_ns: work(plan, room).0,
        work_max_ns: MAX_WORK.0,
        clients: Some(bound(clients, number)),
        delay_ns: delay.map(pair),
        queue_bytes: queue.map(pair),
        rate_bps: rate.map(pair),
        excesses,
        remarks: remarks(plan, room).iter().map(ToString::to_string).collect(),
    }
}

fn bound<T>(largest: Largest<T>, values: impl FnOnce(T) -> pb::EnvelopeBound) -> pb::EnvelopeBound {
    let (limit, bound) = match largest {
        Largest::Nothing => (pb::EnvelopeLimit::Nothing, pb::EnvelopeBound::default()),
        Largest::UpTo(value) => (pb::EnvelopeLimit::UpTo, values(value)),
        Largest::Any => (pb::EnvelopeLimit::Any, pb::EnvelopeBound::default()),
    };
    pb::EnvelopeBound { limit: limit as i32, ..bound }
}
