// SPDX-License-Identifier: Apache-2.0
//! Copies of clients' frames at the port for them: which frames, which bytes, and that nothing else changes.

use anyhow::ensure;
use p4::bench::EPOCH;
use p4::bench::{Bench, FORWARDS, STRANGER, WAYS, Way, from_box, from_host, number, on_bench};
use p4::control::PortDrop;
use p4::frame::Frame;
use p4::shim::MARK;
use p4::shim::Shim;
use p4::target::Target;
use p4runtime::{Count, Entry};
use smoke::cpus::Cpus;

use crate::suite::is_client;

const A: u16 = 5;
const B: u16 = 6;
/// Multicast group of the port for copies.
const GROUP: u32 = 3;
/// Where a frame has a port or a group: first group, by cells of `linkemu.given`.
const GROUPS: u32 = 16;
const FLOOD: u16 = 512;
/// A port that the switch does not have.
const NOWHERE: u16 = 99;
/// A loss number with probability 1, less 2^-32.
const LOST: u16 = 7;

/// A frame of a client, with its address on the client's side.
fn frame(client: u16) -> Frame {
    Frame::v4([192, 0, 2, 1].into(), [10, 77, 0, client as u8].into()).ecn(1)
}

/// The port for copies is this one.
fn mirror_port(bench: &Bench, port: u16, change: bool) -> anyhow::Result<()> {
    let group = |group, ports: &[u16]| {
        let ports = ports.iter().map(|port| u32::from(*port)).collect();
        bench.control.write(&[p4runtime::Change::Group { exists: change, group, ports }])
    };
    if !Target::is_bmv2() {
        return group(GROUP, &[port]);
    }
    for way in WAYS {
        for one in way.hosts.into_iter().chain([way.to_box]) {
            group(GROUPS + u32::from(one), &[one, port])?;
        }
        let [a, b] = way.out;
        group(GROUPS + u32::from(FLOOD + u16::from(way.direction)), &[a, b, port])?;
    }
    Ok(())
}

fn mirror(way: Way, client: u16, to_hosts: bool) -> Entry {
    let entry = Entry::new("linkemu.mirrors").exact("direction", way.direction);
    let entry = entry.exact("to_hosts", u8::from(to_hosts));
    let entry = entry.ternary("client", client, u16::MAX).ternary("box", way.owner, 7_u8);
    entry.priority(1).does("linkemu.mirror")
}

/// Whether the switch looks for copies at all.
fn look(bench: &Bench, looks: bool) -> anyhow::Result<()> {
    let entries = WAYS.into_iter().flat_map(|way| {
        let hosts = way.hosts.map(|port| from_host(port, way, EPOCH));
        hosts.into_iter().chain([from_box(way, EPOCH)])
    });
    let entries: Vec<_> = entries.map(|entry| entry.with("mirrors", u8::from(looks))).collect();
    bench.control.modify(&entries)
}

/// Frames copied by cell, of those to the box forward and return, then of those to hosts; and those that
/// the port for copies has sent.
fn copied(bench: &Bench) -> anyhow::Result<([Count; 4], Count)> {
    let made = bench.control.counts("linkemu.mirrored", &[0, 1, 2, 3])?;
    let made = made.try_into().map_err(|all| anyhow::anyhow!("{all:?} are not four"))?;
    Ok((made, bench.control.counts("linkemu.sent", &[STRANGER.into()])?[0]))
}

/// All that is counted of clients and of the other ports.
fn counted(bench: &Bench) -> anyhow::Result<Vec<Count>> {
    let mut all = Vec::new();
    for way in WAYS {
        for client in [A, B] {
            all.extend(bench.control.fates(client, way.direction)?.0);
        }
    }
    let cells = Vec::from_iter((1..=6).chain([512, 513]));
    all.extend(bench.control.counts("linkemu.given", &cells)?);
    all.extend(bench.control.counts("linkemu.sent", &cells[..6])?);
    Ok(all)
}

/// Frames of both clients through all that the switch does to frames: where they enter, what leaves, and
/// what is copied on the way to the box or to hosts.
fn exchanges(bench: &mut Bench, way: Way, to_hosts: bool) -> anyhow::Result<()> {
    let [known, other] = way.out;
    for client in [A, B] {
        let copies = if client == A { 1 } else { 0 };
        let inner = way.turn(frame(client)).bytes();
        if !to_hosts {
            let out = bench.exchange(&[(way.hosts[1], &inner)])?;
            let [sent] = out.at(way.to_box) else { anyhow::bail!("{out:x?}") };
            let is = Shim::unwrap(sent)
                .is_some_and(|(shim, rest)| shim.client == client && rest == inner);
            ensure!(is, "{out:x?}");
            ensure!(out.at(STRANGER) == vec![sent.clone(); copies], "client {client}: {out:x?}");
            // Not on the way to hosts.
            let out = bench.unwrapped(way, way.shim(client), &inner)?;
            out.is(&[(known, &inner)])?;
            continue;
        }
        let copied = |frame: &[u8], ports: &[u16]| -> Vec<(u16, Vec<u8>)> {
            let copies = vec![STRANGER; copies];
            ports.iter().chain(&copies).map(|port| (*port, frame.to_vec())).collect()
        };
        let marked = Shim { flags: MARK, ..way.shim(client) };
        let plain = bench.unwrapped(way, marked, &inner)?;
        let [with_mark] = plain.at(known) else { anyhow::bail!("{plain:x?}") };
        ensure!(*with_mark != inner, "it is not marked");
        let stranger =
            way.turn(frame(client).between([2, 0, 0, 0, 7, 7], [2, 0, 0, 0, 7, 8])).bytes();
        for (out, expected) in [
            (plain.clone(), copied(with_mark, &[known])),
            (bench.unwrapped(way, way.shim(client), &inner)?, copied(&inner, &[known])),
            // A flood has one copy.
            (
                bench.unwrapped(way, way.shim(client), &stranger)?,
                copied(&stranger, &[known, other]),
            ),
            // What is lost is not copied.
            (bench.unwrapped(way, Shim { loss: LOST, ..way.shim(client) }, &inner)?, Vec::new()),
        ] {
            out.is(&expected.iter().map(|(port, frame)| (*port, &frame[..])).collect::<Vec<_>>())?;
        }
        // Not on the way to the box.
        bench.wrapped(way, way.hosts[1], &inner)?;
    }
    Ok(())
}

pub fn frames_are_copied_as_given_and_nothing_else_changes(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        mirror_port(bench, STRANGER, false)?;
        let lost = Entry::new("linkemu.loss").exact("slot", LOST).does("linkemu.independent");
        bench.control.insert(&[lost.with("p", u32::MAX)])?;
        for client in [A, B] {
            let rule = Entry::new("linkemu.prefixes4");
            let address = u32::from_be_bytes([10, 77, 0, client as u8]);
            bench.control.insert(&[is_client(rule.lpm("address", address, 32), client)])?;
        }
        for way in WAYS {
            let mac = number(*way.turn(frame(A)).bytes().first_chunk().unwrap_or(&[0; 6]));
            let host = Entry::new("linkemu.hosts").exact("direction", way.direction);
            let host = host.exact("mac", mac).does("linkemu.to_host").with("port", way.out[0]);
            bench.control.insert(&[host])?;
        }
        for way in WAYS {
            for (to_hosts, frames) in [(false, 1), (true, 3)] {
                let before = copied(bench)?;
                let entry = mirror(way, A, to_hosts);
                bench.control.insert(std::slice::from_ref(&entry))?;
                look(bench, true)?;
                exchanges(bench, way, to_hosts)?;
                look(bench, false)?;
                bench.control.delete(&[entry])?;
                let (made, sent) = copied(bench)?;
                let cell = usize::from(to_hosts) * 2 + usize::from(way.direction);
                for (at, (now, then)) in made.iter().zip(before.0).enumerate() {
                    let expected = if at == cell { frames } else { 0 };
                    ensure!(
                        now.packets - then.packets == expected,
                        "cell {at}: {made:?}, {before:?}"
                    );
                }
                ensure!(sent.packets - before.1.packets == frames, "{sent:?}, {before:?}");
            }
        }
        same_with_and_without(bench)?;
        refused(bench)
    })
}

/// The same frames count the same in all other counters, also if no copy can be sent.
fn same_with_and_without(bench: &mut Bench) -> anyhow::Result<()> {
    let way = FORWARDS;
    let inner = way.turn(frame(A)).bytes();
    let mut counts = Vec::new();
    for port in [None, Some(STRANGER), Some(NOWHERE)] {
        if let Some(port) = port {
            mirror_port(bench, port, true)?;
            look(bench, true)?;
            bench.control.insert(&[false, true].map(|to_hosts| mirror(way, A, to_hosts)))?;
        }
        let before = counted(bench)?;
        let (made, sent) = copied(bench)?;
        let to_box = bench.exchange(&[(way.hosts[0], &inner)])?;
        ensure!(to_box.at(way.to_box).len() == 1, "{to_box:x?}");
        let to_hosts = bench.unwrapped(way, way.shim(A), &inner)?;
        ensure!(to_hosts.at(way.out[0]) == std::slice::from_ref(&inner), "{to_hosts:x?}");
        bench.unwrapped(way, Shim { loss: LOST, ..way.shim(A) }, &inner)?;
        let after = counted(bench)?;
        let grown =
            |(now, then): (&Count, &Count)| (now.packets - then.packets, now.bytes - then.bytes);
        counts.push(after.iter().zip(&before).map(grown).collect::<Vec<_>>());
        let (now_made, now_sent) = copied(bench)?;
        let more = |cell: usize| now_made[cell].packets - made[cell].packets;
        let expected = match port {
            None => [0, 0, 0],
            Some(STRANGER) => [1, 1, 2],
            Some(_) => [1, 1, 0],
        };
        let found = [more(0), more(2), now_sent.packets - sent.packets];
        ensure!(found == expected, "copies to port {port:?}: {found:?}, not {expected:?}");
        if port.is_some() {
            bench.control.delete(&[false, true].map(|to_hosts| mirror(way, A, to_hosts)))?;
        }
    }
    ensure!(counts.iter().all(|found| *found == counts[0]), "{counts:?}");
    Ok(())
}

/// The port for copies is none of hosts or boxes.
fn refused(bench: &mut Bench) -> anyhow::Result<()> {
    let inner = FORWARDS.turn(frame(A)).bytes();
    let before = bench.control.port_drops(STRANGER, PortDrop::UnknownPort)?;
    bench.exchange(&[(STRANGER, &inner)])?.is(&[])?;
    let after = bench.control.port_drops(STRANGER, PortDrop::UnknownPort)?;
    ensure!(after == before + 1, "{after}, before {before}");
    Ok(())
}
