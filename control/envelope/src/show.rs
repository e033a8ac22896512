// SPDX-License-Identifier: Apache-2.0
//! The envelope as tables for people.

use comfy_table::{CellAlignment, Table, presets};
use emu::envelope::{
    Fits, IMIX, Largest, MAX_WORK, Pair, Traffic, events, excesses, longest_delay, memory, remarks,
    work,
};
use emu::plan::{Plan, Room};
use emu::si::{self, Round};
use emu::units::Nanos;

/// Rates of Ethernet ports in bit/s.
const RATES: [u64; 5] =
    [1_000_000_000, 2_500_000_000, 10_000_000_000, 25_000_000_000, 100_000_000_000];
/// The columns; lengths with FCS.
pub(super) const TRAFFIC: [(&str, Traffic<'static>); 6] = [
    ("64 B", Traffic::Frames(64)),
    ("128 B", Traffic::Frames(128)),
    ("512 B", Traffic::Frames(512)),
    ("1518 B", Traffic::Frames(1_518)),
    ("IMIX", Traffic::Mix(&IMIX)),
    ("ANY", Traffic::Worst),
];

const NOTES: &str = "\
The longest delay, forward and return added up, if both directions carry this rate. Rates
are those of the wire, on which a frame takes 20 B more than its own (preamble and gap);
lengths have the FCS. IMIX is 7:4:1 frames of 64, 594 and 1518 B. ANY holds for frames of
any length also where nothing pads them or parts them, and is what `linkctl set` goes by.";

/// The usual ones and the port's own.
pub(super) fn rates(port: u64) -> Vec<u64> {
    let mut rates = RATES.to_vec();
    rates.push(port);
    rates.sort_unstable();
    rates.dedup();
    rates
}

/// The tables; with a profile, its verdict too.
pub(super) fn text(room: Room, profile: Option<(&str, &Plan)>) -> String {
    let Room { clients, port_bps, frame, capacity, workers, .. } = room;
    let part = match workers {
        0 | 1 => String::new(),
        n => format!(", the part of each of {n} workers,"),
    };
    let mut table = grid();
    table.set_header(["RATE"].into_iter().chain(TRAFFIC.map(|(name, _)| name)));
    for rate in rates(port_bps) {
        let own = if rate == port_bps { " (port)" } else { "" };
        let delays =
            TRAFFIC.map(|(_, traffic)| si::time(longest_delay(room, rate, traffic), Round::Down));
        let rate = format!("{}{own}", si::rate(rate, Round::Down));
        table.add_row([rate].into_iter().chain(delays));
    }
    align(&mut table);
    let mut text = format!(
        "What {} hold{part} for {clients} clients, on ports of {} that carry {frame} B\n\n{}\n\n{NOTES}\n",
        si::bytes(capacity, Round::Down),
        si::rate(port_bps, Round::Down),
        table.trim_fmt(),
    );
    if let Some((name, plan)) = profile {
        text.push_str(&verdict(room, name, plan));
    }
    text
}

fn verdict(room: Room, name: &str, plan: &Plan) -> String {
    let excesses = excesses(plan, room);
    let fits = if excesses.is_empty() { "fits" } else { "DOES NOT FIT" };
    let needed = si::bytes(memory(plan, room), Round::Up);
    let (events, share) = (events(plan, room), work(plan, room).0.div_ceil(MAX_WORK.0 / 100));
    let mut table = grid();
    table.set_header(["", "LARGEST", ""]);
    for (what, largest, of) in parameters(room, plan) {
        table.add_row([what, &largest, of]);
    }
    let mut text = format!(
        "\n{name} {fits}: it needs {needed} of {}, and {} random events a second, {share} % of what \
         they may take.\nHow far each of its parameters can go, all others as they are:\n\n{}\n",
        si::bytes(room.capacity, Round::Down),
        si::count(events, Round::Up),
        table.trim_fmt(),
    );
    for remark in remarks(plan, room) {
        text.push_str(&format!("note: {remark}\n"));
    }
    text
}

fn parameters(room: Room, plan: &Plan) -> Vec<(&'static str, String, &'static str)> {
    let Fits { clients, delay, queue, rate } = Fits::of(plan, room);
    let mut rows = vec![("clients", bound(clients, |n| n.to_string()), "")];
    let time = |ns| si::time(Nanos(ns), Round::Down);
    let mut pair = |what, largest: Option<Largest<Pair>>, show: &dyn Fn(u64) -> String, of| {
        if let Some(largest) = largest {
            rows.push((what, bound(largest, |values| ways(values, show)), of));
        }
    };
    pair("delay", delay, &time, "base, slot, body and excursions together");
    pair("queue", queue, &|bytes| si::bytes(bytes, Round::Down), "each client's");
    pair("rate", rate, &|bps| si::rate(bps, Round::Down), "each client's");
    rows
}

fn bound<T>(largest: Largest<T>, show: impl FnOnce(T) -> String) -> String {
    match largest {
        Largest::Nothing => "none fits".to_owned(),
        Largest::UpTo(value) => show(value),
        Largest::Any => "any".to_owned(),
    }
}

fn ways(values: Pair, show: &dyn Fn(u64) -> String) -> String {
    match values.0.map(|v| v.map(show)) {
        [Some(a), Some(b)] if a == b => format!("{a} each way"),
        [Some(a), Some(b)] => format!("{a} forward, {b} return"),
        [Some(a), None] => format!("{a} forward"),
        [None, Some(b)] => format!("{b} return"),
        [None, None] => String::new(),
    }
}

fn grid() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table
}

fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
