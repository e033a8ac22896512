// SPDX-License-Identifier: Apache-2.0
//! Frames that are not delivered: without a client, or by a closed gate. Each is counted.

use anyhow::ensure;
use p4::bench::{Bench, EPOCH, STRANGER, WAYS, Way, on_bench};
use p4::control::PortDrop;
use p4::frame::Frame;
use p4::shim::{LENGTH, OUTER, Shim};
use p4runtime::Entry;
use smoke::cpus::Cpus;

const A: u16 = 5;
const B: u16 = 6;
/// The last client with counters.
const LAST: u16 = 4095;
/// A client without counters, counted at 0.
const BEYOND: u16 = 4096 + 5;

fn inner() -> Vec<u8> {
    Frame::v4([192, 0, 2, 1].into(), [10, 77, 0, 9].into()).bytes()
}

pub fn frames_without_client_are_counted_by_port_and_reason(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let inner = inner();
        dropped(bench, STRANGER, PortDrop::UnknownPort, &inner)?;
        dropped(bench, STRANGER, PortDrop::UnknownPort, &WAYS[0].shim(A).wrap(&inner))?;
        for way in WAYS {
            let shim = way.shim(A);
            let other = Shim { direction: 1 - way.direction, ..shim };
            let forms = [
                (PortDrop::NoShim, inner.clone()),
                (PortDrop::NoShim, Frame::other(0x0806, &[0; 28]).bytes()),
                (PortDrop::NoShim, OUTER.to_vec()),
                (PortDrop::NoShim, shim.wrap(&inner)[..LENGTH - 1].to_vec()),
                (PortDrop::NoShim, Shim { version: 0, ..shim }.wrap(&inner)),
                (PortDrop::NoShim, Shim { version: 2, ..shim }.wrap(&inner)),
                (PortDrop::NoShim, Shim { version: 15, ..shim }.wrap(&inner)),
                (PortDrop::WrongDirection, other.wrap(&inner)),
                (PortDrop::Cut, shim.wrap(&[])),
                (PortDrop::Cut, shim.wrap(&inner[..1])),
                (PortDrop::Cut, shim.wrap(&inner[..13])),
            ];
            for (reason, frame) in forms {
                dropped(bench, way.from_box, reason, &frame)?;
            }
            // The shortest frame with an Ethernet header is forwarded.
            let short = &inner[..14];
            let out = bench.unwrapped(way, shim, short)?;
            out.is(&way.out.map(|port| (port, short)))?;
        }
        Ok(())
    })
}

/// It leaves at no port, and this reason is counted once. No client counts it.
fn dropped(bench: &mut Bench, port: u16, reason: PortDrop, frame: &[u8]) -> anyhow::Result<()> {
    let what = format!("{reason:?} at port {port}: {frame:02x?}");
    let all = [PortDrop::UnknownPort, PortDrop::NoShim, PortDrop::WrongDirection, PortDrop::Cut];
    let counted = |bench: &Bench| {
        let drops = all.map(|reason| bench.control.port_drops(port, reason));
        let fates = WAYS.map(|way| [0, A].map(|client| bench.control.fates(client, way.direction)));
        let fates = fates.into_iter().flatten().collect::<anyhow::Result<Vec<_>>>()?;
        anyhow::Ok((drops.into_iter().collect::<anyhow::Result<Vec<_>>>()?, fates))
    };
    let (mut drops, fates) = counted(bench)?;
    bench.exchange(&[(port, frame)])?.is(&[]).map_err(|e| e.context(what.clone()))?;
    drops[reason as usize] += 1;
    let after = counted(bench)?;
    ensure!(after == (drops, fates), "{what}: {after:?}");
    Ok(())
}

fn gate(way: Way, client: u16, mask: u16, priority: i32) -> Entry {
    let entry = Entry::new("linkemu.gates").exact("direction", way.direction);
    let entry = if mask == 0 { entry } else { entry.ternary("client", client, mask) };
    entry.priority(priority).does("linkemu.close_gate")
}

pub fn closed_gate_drops_one_direction_of_client(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        for way in WAYS {
            delivered(bench, [A, B, LAST])?;
            let one = gate(way, A, u16::MAX, 1);
            bench.control.insert(std::slice::from_ref(&one))?;
            gated(bench, way, A)?;
            // Neither another client nor the other direction is affected.
            delivered_but(bench, way, A, [A, B, LAST])?;
            bench.control.delete(&[one])?;
            delivered(bench, [A, B, LAST])?;
            // Many clients by mask: those below 8. The sentinels' client is not among them.
            let many = gate(way, 0, 0xfff8, 1);
            bench.control.insert(std::slice::from_ref(&many))?;
            for client in [0, A, B] {
                gated(bench, way, client)?;
            }
            // Protocols that the link itself needs pass.
            delivered(bench, [1, 9, LAST])?;
            bench.control.delete(&[many])?;
        }
        delivered(bench, [A, B, LAST])
    })
}

/// Frames of these clients pass in both directions, and are counted once.
fn delivered(bench: &mut Bench, clients: [u16; 3]) -> anyhow::Result<()> {
    for way in WAYS {
        for client in clients {
            passes(bench, way, client)?;
        }
    }
    Ok(())
}

fn delivered_but(bench: &mut Bench, way: Way, but: u16, clients: [u16; 3]) -> anyhow::Result<()> {
    for other in WAYS {
        for client in clients {
            if other.direction != way.direction || client != but {
                passes(bench, other, client)?;
            }
        }
    }
    Ok(())
}

fn passes(bench: &mut Bench, way: Way, client: u16) -> anyhow::Result<()> {
    let inner = inner();
    let (out, fates) = bench.fates(way, client, |b| b.unwrapped(way, way.shim(client), &inner))?;
    out.is(&way.out.map(|port| (port, &inner[..])))?;
    ensure!(fates.returned() == 1 && fates.delivered() == 1, "client {client}: {fates:?}");
    Ok(())
}

fn gated(bench: &mut Bench, way: Way, client: u16) -> anyhow::Result<()> {
    // It is not processed further: no loss, no mark, no measurement.
    let shim = Shim { loss: 9, flags: 1, epoch: EPOCH ^ 1, ..way.shim(client) };
    let (out, fates) = bench.fates(way, client, |b| b.unwrapped(way, shim, &inner()))?;
    out.is(&[])?;
    let all: u64 = fates.0.iter().map(|c| c.packets).sum();
    ensure!(all == 2 && fates.returned() == 1 && fates.gated() == 1, "client {client}: {fates:?}");
    Ok(())
}

pub fn clients_beyond_counters_are_counted_at_index_0(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        for way in WAYS {
            for (client, cell) in [(BEYOND, 0), (u16::MAX, 0), (0, 0), (LAST, LAST)] {
                let inner = inner();
                let low = client & LAST;
                let others = bench.control.fates(low, way.direction)?;
                let shim = way.shim(client);
                let (out, fates) = bench.fates(way, cell, |b| b.unwrapped(way, shim, &inner))?;
                out.is(&way.out.map(|port| (port, &inner[..])))?;
                ensure!(fates.delivered() == 1, "client {client} at {cell}: {fates:?}");
                // Bytes of one frame from the box.
                let bytes = (inner.len() + LENGTH) as u64;
                ensure!(fates.0[2].bytes == bytes, "{} bytes, not {bytes}", fates.0[2].bytes);
                if low != cell {
                    ensure!(bench.control.fates(low, way.direction)? == others, "client {low}");
                }
            }
        }
        Ok(())
    })
}
