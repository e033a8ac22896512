// SPDX-License-Identifier: Apache-2.0
//! The bytes of the shim; and the frame behind it never changes.

use std::net::Ipv4Addr;

use anyhow::ensure;
use p4::bench::{BOX_CLIENT, BOX_WAN, EPOCH, WAYS, Way, from_box, from_host, on_bench};
use p4::frame::{Frame, outer_tag};
use p4::shim::{FORWARD, OUTER, RETURN, Shim};
use p4runtime::Entry;
use rand_core::Rng;
use smoke::cpus::Cpus;

use super::{generator, is_client, noise};

const RANDOM_FRAMES: usize = 600;
/// Frames in flight.
const BATCH: usize = 30;
const SHORTEST: usize = 14;
const LONGEST: usize = 1518;
const BYPASS: u16 = 1;
const A: u16 = 1234;

pub fn shim_has_bytes_that_box_reads(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let address = [10, 77, 0, 9];
        let rule = Entry::new("linkemu.prefixes4").lpm("address", u32::from_be_bytes(address), 32);
        bench.control.insert(&[is_client(rule, A)])?;
        let mut latest = 0;
        for epoch in [EPOCH, 0xfedc] {
            for way in WAYS {
                let hosts = way.hosts.map(|port| from_host(port, way, epoch));
                bench.control.modify(&hosts)?;
                bench.control.modify(&[from_box(way, epoch)])?;
                for port in way.hosts {
                    let frame = Frame::v4([192, 0, 2, 1].into(), Ipv4Addr::from(address));
                    let frame = way.turn(frame).bytes();
                    let out = bench.exchange(&[(port, &frame)])?;
                    let wrapped = out.only(way.to_box)?;
                    // Outer header, version and direction, flags, client, epoch, loss.
                    let direction = [0x10 | way.direction << 3, 0];
                    let [c, e] = [A, epoch].map(u16::to_be_bytes);
                    let head = [&OUTER[..], &direction, &c, &e, &[0, 0]].concat();
                    ensure!(wrapped.starts_with(&head), "{wrapped:02x?}, not {head:02x?}");
                    ensure!(wrapped[28..32] == [0; 4], "planned is set: {wrapped:02x?}");
                    ensure!(wrapped[32..] == frame, "{frame:02x?} became {wrapped:02x?}");
                    let stamp = wrapped[22..28].iter().fold(0, |n, b| n << 8 | u64::from(*b));
                    // Each frame was sent after the previous one had left.
                    ensure!(stamp > latest, "stamps {latest}, then {stamp}");
                    latest = stamp;
                }
            }
        }
        Ok(())
    })
}

pub fn random_frames_pass_unchanged_in_both_directions(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let mut random = generator();
        for way in WAYS {
            let mut left = RANDOM_FRAMES;
            while left > 0 {
                let frames = Vec::from_iter((0..BATCH).map(|_| frame(&mut random)));
                left -= BATCH;
                let sent = Vec::from_iter(frames.iter().map(|f| (way.hosts[0], &f[..])));
                let out = bench.exchange(&sent)?;
                let inner = out.at(way.to_box).iter().map(|f| Some(Shim::unwrap(f)?.1));
                ensure!(inner.eq(frames.iter().map(|f| Some(&f[..]))), "{frames:02x?}: {out:02x?}");
                // Returned to all hosts of the other side.
                let shims = frames.iter().map(|_| Shim {
                    stamp: random.next_u64() >> 16,
                    planned: random.next_u32(),
                    ..way.shim(random.next_u32() as u16)
                });
                let back = Vec::from_iter(shims.zip(&frames).map(|(shim, f)| shim.wrap(f)));
                let given = Vec::from_iter(back.iter().map(|f| (way.from_box, &f[..])));
                let out = bench.exchange(&given)?;
                for port in way.out {
                    ensure!(out.at(port) == frames, "{frames:02x?} became {out:02x?}");
                }
            }
        }
        Ok(())
    })
}

/// A frame of random bytes. One in four is declared IPv4, one IPv6, and one has a tag before one of
/// these, so that the switch parses further. Its MACs are unicast.
fn frame(random: &mut rand_chacha::ChaCha8Rng) -> Vec<u8> {
    let length = SHORTEST + random.next_u32() as usize % (LONGEST - SHORTEST + 1);
    let mut frame = noise(random, length);
    frame[0] &= 0xfe;
    frame[6] &= 0xfe;
    let types: &[u8] = match random.next_u32() % 8 {
        0 | 1 => &[0x08, 0x00, 0x45],
        2 | 3 => &[0x86, 0xdd, 0x60],
        4 => &[0x81, 0x00, 0x00, 0x07, 0x08, 0x00, 0x46],
        5 => &[0x88, 0xa8, 0x00, 0x07, 0x81, 0x00, 0x00, 0x08, 0x86, 0xdd, 0x60],
        _ => &[],
    };
    let mut types = types.to_vec();
    if let [0x88, 0xa8, ..] = types[..] {
        types[..2].copy_from_slice(&outer_tag().to_be_bytes());
    }
    for (byte, given) in frame.iter_mut().skip(12).zip(&types) {
        *byte = *given;
    }
    // The kernel drops frames with fewer than two bytes after the tag.
    if frame.len() < 20 && matches!(frame[12..14], [0x81, 0x00] | [0x88, 0xa8]) {
        frame[12] = 0xff;
    }
    frame
}

pub fn shim_forged_by_host_selects_no_client(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let inner = Frame::v4([192, 0, 2, 1].into(), [10, 77, 0, 9].into()).bytes();
        for way in WAYS {
            for direction in [FORWARD, RETURN] {
                let forged =
                    Shim { loss: 3, flags: 1, planned: 9, ..Shim::new(direction, A, EPOCH) };
                for forged in [forged, Shim { version: 0, ..forged }, Shim { client: 2, ..forged }]
                {
                    for bytes in [forged.wrap(&inner), forged.wrap(&[]), OUTER.to_vec()] {
                        forged_is_bypass(bench, way, &bytes)?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// It gets a further shim, as any frame that is not IP.
fn forged_is_bypass(bench: &mut p4::bench::Bench, way: Way, forged: &[u8]) -> anyhow::Result<()> {
    let (shim, fates) = bench.fates(way, BYPASS, |b| b.wrapped(way, way.hosts[0], forged))?;
    let expected = Shim { stamp: shim.stamp, ..way.shim(BYPASS) };
    ensure!(shim == expected, "{forged:02x?} arrived behind {shim:?}");
    ensure!(fates.received() == 1, "{fates:?}");
    // Returned from the box, the host gets its own frame once: only the outer shim is removed.
    let out = bench.unwrapped(way, shim, forged)?;
    out.is(&way.out.map(|port| (port, forged)))
}

pub fn box_ports_are_no_host_ports(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        // From host to box and back, and never between box ports or host sides.
        let inner = Frame::v4([192, 0, 2, 1].into(), [10, 77, 0, 9].into()).bytes();
        for way in WAYS {
            for port in way.hosts {
                let out = bench.exchange(&[(port, &inner)])?;
                out.only(way.to_box)?;
            }
            let out = bench.unwrapped(way, way.shim(A), &inner)?;
            out.is(&way.out.map(|port| (port, &inner[..])))?;
            ensure!(out.at(BOX_WAN).is_empty() && out.at(BOX_CLIENT).is_empty());
        }
        Ok(())
    })
}
