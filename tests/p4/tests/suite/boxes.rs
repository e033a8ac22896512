// SPDX-License-Identifier: Apache-2.0
//! Two boxes behind one switch: which box gets a frame, and what is separate.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::ensure;
use p4::bench::{
    Bench, CELLS, EPOCH, FORWARDS, SECOND_WAN, WAYS, Way, from_host, on_bench_with, to_box,
};
use p4::control::PortDrop;
use p4::frame::Frame;
use p4::shim::{FORWARD, LENGTH, Shim};
use p4runtime::Entry;
use smoke::cpus::Cpus;

use crate::suite::assign_at;

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1);
/// The same number is another client in each box.
const CLIENT: u16 = 5;
/// The first number without a cell.
const BEYOND: u16 = 2048;

fn to4(last: [u8; 2]) -> Frame {
    Frame::v4(SERVER, [10, 77, last[0], last[1]].into())
}

fn to6(last: u16) -> Frame {
    Frame::v6(SERVER6, Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, last))
}

fn bucket(bucket: u8, owner: u8) -> Entry {
    let entry = Entry::new("linkemu.buckets").exact("bucket", bucket);
    entry.does("linkemu.set_box").with("box", owner)
}

/// A frame of a host enters this box in both directions, as this client.
fn enters(bench: &mut Bench, frame: &Frame, owner: u8, client: u16) -> anyhow::Result<()> {
    for way in WAYS.map(|way| way.of_two(owner)) {
        let inner = way.turn(frame.clone()).bytes();
        let (shim, fates) = bench.fates(way, client, |b| b.wrapped(way, way.hosts[0], &inner))?;
        ensure!(shim.client == client, "{frame:?}: client {}, not {client}", shim.client);
        ensure!(fates.received() == 1, "{frame:?} of {way:?}: {fates:?}");
    }
    Ok(())
}

pub fn clients_of_two_boxes_are_separate(_: &Cpus) -> anyhow::Result<()> {
    on_bench_with(2, |bench| {
        let (of_first, of_second) = (to4([1, 9]), to4([2, 9]));
        for (last, owner) in [(1, 0), (2, 1)] {
            let address = u32::from(Ipv4Addr::new(10, 77, last, 0));
            let rule = Entry::new("linkemu.prefixes4").lpm("address", address, 24);
            bench.control.insert(&[assign_at(rule, CLIENT, owner)])?;
        }
        enters(bench, &of_first, 0, CLIENT)?;
        enters(bench, &of_second, 1, CLIENT)?;
        for way in bench.ways() {
            one_box_counts(bench, way)?;
        }
        let gate = Entry::new("linkemu.gates").exact("direction", FORWARD);
        let gate = gate.ternary("box", 1_u8, 7_u8).ternary("client", CLIENT, u16::MAX);
        bench.control.insert(&[gate.priority(1).does("linkemu.close_gate")])?;
        for way in bench.ways() {
            let closed = way.owner == 1 && way.direction == FORWARD;
            for client in [CLIENT, CLIENT + 1] {
                let gated = u64::from(closed && client == CLIENT);
                let (out, fates) = returned(bench, way, client)?;
                ensure!(fates == [gated, 1 - gated], "{way:?}, client {client}: {fates:?}");
                ensure!(out == 1 - gated, "{way:?}: {out} came out");
            }
        }
        separate_chains(bench)
    })
}

/// Returns a frame of a client. Gives how many left, and how many were gated and delivered.
fn returned(bench: &mut Bench, way: Way, client: u16) -> anyhow::Result<(u64, [u64; 2])> {
    let inner = way.turn(to4([1, 9])).bytes();
    let work = |bench: &mut Bench| bench.unwrapped(way, way.shim(client), &inner);
    let (out, fates) = bench.fates(way, client, work)?;
    let left = way.out.map(|port| out.at(port).len() as u64);
    ensure!(left[0] == left[1], "{out:?}");
    Ok((left[0], [fates.gated(), fates.delivered()]))
}

/// A frame that returns from a box is counted in the cells of this box alone; without a cell, in its first.
fn one_box_counts(bench: &mut Bench, way: Way) -> anyhow::Result<()> {
    let other = Way { owner: 1 - way.owner, ..way };
    for (client, cell) in [(CLIENT, CLIENT), (BEYOND - 1, BEYOND - 1), (BEYOND + CLIENT, 0)] {
        let inner = way.turn(to4([1, 9])).bytes();
        let cells = [0, CLIENT, BEYOND - 1].map(|cell| other.cell(cell));
        let all = |bench: &Bench| {
            let of = |cell| bench.control.fates(cell, way.direction);
            cells.into_iter().map(of).collect::<anyhow::Result<Vec<_>>>()
        };
        let before = all(bench)?;
        let (_, fates) = bench.fates(way, cell, |b| b.unwrapped(way, way.shim(client), &inner))?;
        let bytes = (inner.len() + LENGTH) as u64;
        let own = fates.0[2];
        ensure!((own.packets, own.bytes) == (1, bytes), "client {client} of {way:?}: {fates:?}");
        let changed = all(bench)?.into_iter().zip(before).map(|(now, then)| now.since(&then));
        for (cell, fates) in cells.into_iter().zip(changed) {
            ensure!(fates.returned() == 0, "cell {cell} of {other:?}: {fates:?}");
        }
    }
    Ok(())
}

/// A chain that has moved to the bad state did so in one box.
fn separate_chains(bench: &mut Bench) -> anyhow::Result<()> {
    let entry = |slot: u16, to_bad: u32| {
        let entry = Entry::new("linkemu.loss").exact("slot", slot);
        let entry = entry.does("linkemu.gilbert_elliott").with("to_bad", to_bad);
        let entry = entry.with("to_good", 0_u32).with("loss_in_bad", u32::MAX);
        entry.with("loss_in_good", 0_u32)
    };
    bench.control.insert(&[entry(1, u32::MAX), entry(2, 0)])?;
    let [_, back] = WAYS;
    let inner = back.turn(to4([1, 9])).bytes();
    let [bad, good] = [1, 0].map(|owner| back.of_two(owner));
    // Certain except for 2^-32.
    for (way, slot, lost) in [(bad, 1, 0), (bad, 2, 1), (good, 2, 0)] {
        let shim = Shim { loss: slot, ..way.shim(CLIENT) };
        let (_, fates) = bench.fates(way, CLIENT, |b| b.unwrapped(way, shim, &inner))?;
        ensure!(fates.lost() == lost, "box {}, entry {slot}: {fates:?}", way.owner);
    }
    Ok(())
}

pub fn bucket_default_owner_and_box_move_by_one_entry(_: &Cpus) -> anyhow::Result<()> {
    on_bench_with(2, |bench| {
        // Addresses of the same bucket, 9 ^ 1, and of another one.
        let moved = [to4([1, 9]), to4([9, 1]), to4([1, 9]).vlan(7), to6(0x0109), to6(0x0901)];
        let others = [to4([1, 8]), to6(0x0108)];
        let bypassing = [Frame::other(0x0806, &[0; 28]), Frame::other(0x88cc, &[2, 7, 4])];
        for (default, owner) in [(0, 0), (0, 1), (1, 1), (1, 0)] {
            let ports = WAYS.map(|way| way.hosts.map(|port| (port, way.of_two(default))));
            let ports =
                ports.as_flattened().iter().map(|(port, way)| from_host(*port, *way, EPOCH));
            bench.control.modify(&Vec::from_iter(ports))?;
            match (default, owner) {
                (0, 0) => bench.control.insert(&[bucket(8, 0)])?,
                _ => bench.control.modify(&[bucket(8, owner)])?,
            }
            for frame in &moved {
                enters(bench, frame, owner, 0)?;
            }
            for frame in &others {
                enters(bench, frame, default, 0)?;
            }
            for frame in &bypassing {
                enters(bench, frame, default, 1)?;
            }
        }
        bench.control.delete(&[bucket(8, 0)])?;
        enters(bench, &moved[0], 1, 0)?;
        // A rule has priority over the bucket.
        let address = u32::from(Ipv4Addr::new(10, 77, 1, 9));
        let rule = Entry::new("linkemu.prefixes4").lpm("address", address, 32);
        bench.control.insert(&[assign_at(rule.clone(), CLIENT, 0), bucket(8, 1)])?;
        enters(bench, &moved[0], 0, CLIENT)?;
        bench.control.modify(&[assign_at(rule, 0, 1)])?;
        enters(bench, &moved[0], 1, 0)?;
        without_port(bench, &moved[0])
    })
}

/// Frames for a box without a port are refused and counted; and another port takes over its frames.
fn without_port(bench: &mut Bench, frame: &Frame) -> anyhow::Result<()> {
    let second = FORWARDS.of_two(1);
    // At the ports of the second one.
    let third = Way { owner: 2, room: CELLS / 4, ..second };
    let address = u32::from(Ipv4Addr::new(10, 77, 3, 1));
    let rule = Entry::new("linkemu.prefixes4").lpm("address", address, 32);
    bench.control.insert(&[assign_at(rule, CLIENT, 2)])?;
    let host = second.hosts[0];
    let of_third = to4([3, 1]).bytes();
    let before = bench.control.port_drops(host, PortDrop::NoBox)?;
    bench.exchange(&[(host, &of_third)])?.is(&[])?;
    let refused = bench.control.port_drops(host, PortDrop::NoBox)? - before;
    ensure!(refused == 1, "{refused} counted");
    bench.control.insert(&[to_box(third)])?;
    let out = bench.exchange(&[(host, &of_third), (host, &frame.bytes())])?;
    ensure!(out.at(SECOND_WAN).len() == 2, "{out:?}");
    Ok(())
}
