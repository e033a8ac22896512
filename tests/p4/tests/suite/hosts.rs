// SPDX-License-Identifier: Apache-2.0
//! Locations of hosts: reported by the switch, known by port, or flooded.

use anyhow::ensure;
use p4::bench::{Bench, WAYS, Way, number, on_bench, source};
use p4::frame::{CLIENT_MAC, Frame, SERVER_MAC};
use p4runtime::Entry;
use smoke::cpus::Cpus;
use smoke::raw::Mac;

const A: u16 = 5;
const X: Mac = [2, 0, 0, 0, 4, 1];
const Y: Mac = [2, 0, 0, 0, 4, 2];
const ALL: Mac = [0xff; 6];

fn host(way: Way, mac: Mac, port: u16) -> Entry {
    let entry = Entry::new("linkemu.hosts").exact("direction", way.direction);
    entry.exact("mac", number(mac)).does("linkemu.to_host").with("port", port)
}

fn frame(from: Mac, to: Mac) -> Vec<u8> {
    Frame::v4([192, 0, 2, 1].into(), [10, 77, 0, 9].into()).between(from, to).bytes()
}

pub fn known_host_gets_its_frames_and_unknown_are_flooded(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        for way in WAYS {
            bench.control.insert(&[host(way, X, way.out[0]), host(way, Y, way.out[1])])?;
        }
        for way in WAYS {
            let [a, b] = way.out;
            for (to, ports) in [(X, &[a][..]), (Y, &[b]), (SERVER_MAC, &[a, b]), (ALL, &[a, b])] {
                let frame = frame(CLIENT_MAC, to);
                let (out, fates) =
                    bench.fates(way, A, |bench| bench.unwrapped(way, way.shim(A), &frame))?;
                out.is(&Vec::from_iter(ports.iter().map(|&port| (port, &frame[..]))))?;
                // One frame, regardless of the number of copies.
                ensure!(fates.delivered() == 1, "{fates:?}");
            }
        }
        // A host moved, and one left.
        for way in WAYS {
            let [a, b] = way.out;
            bench.control.modify(&[host(way, X, b)])?;
            bench.control.delete(&[host(way, Y, b)])?;
            for (to, ports) in [(X, &[b][..]), (Y, &[a, b])] {
                let frame = frame(CLIENT_MAC, to);
                let out = bench.unwrapped(way, way.shim(A), &frame)?;
                out.is(&Vec::from_iter(ports.iter().map(|&port| (port, &frame[..]))))?;
            }
        }
        Ok(())
    })
}

pub fn switch_reports_unknown_hosts(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        bench.control.learn()?;
        for way in WAYS {
            for port in way.hosts {
                told(bench, way, port, X)?;
                bench.control.insert(&[source(port, X)])?;
                // No further report of X: the next report is of Y. Frames from the box are not
                // reported.
                bench.wrapped(way, port, &frame(X, ALL))?;
                bench.unwrapped(way, way.shim(A), &frame(CLIENT_MAC, ALL))?;
                told(bench, way, port, Y)?;
                bench.control.insert(&[source(port, Y)])?;
            }
        }
        Ok(())
    })
}

/// The frame is forwarded as any other, and the switch reports its source.
fn told(bench: &mut Bench, way: Way, port: u16, mac: Mac) -> anyhow::Result<()> {
    bench.wrapped(way, port, &frame(mac, ALL))?;
    let told = bench.control.learned()?;
    let host = vec![port.into(), number(mac).into(), way.direction.into()];
    ensure!(told == [host.clone()], "{told:?}, not {host:?}");
    Ok(())
}
