// SPDX-License-Identifier: Apache-2.0
//! ECN: marks that the box requests, and packets that must not change.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, ensure};
use p4::bench::{Bench, WAYS, Way, on_bench};
use p4::frame::{Frame, ecn_at, outer_tag};
use p4::shim::{MARK, Shim};
use smoke::cpus::Cpus;

const A: u16 = 5;
const NOT_ECT: u8 = 0;
const CE: u8 = 3;
const ALL: [u8; 4] = [NOT_ECT, 1, 2, CE];
const ETHERNET: usize = 14;
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// Offsets in the IPv4 header: type of service, and checksum.
const TOS: usize = 1;
const CHECKSUM: usize = 10;

fn v4() -> Frame {
    Frame::v4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 77, 0, 9))
}

fn v6() -> Frame {
    Frame::v6(SERVER6, SERVER6)
}

pub fn ecn_capable_packet_is_marked_and_checksum_updated(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        for way in WAYS {
            for ecn in ALL {
                for (what, frame) in [("IPv4", v4()), ("IPv6", v6())] {
                    let frame = frame.ecn(ecn);
                    marks(bench, way, what, &frame, 0, ecn)?;
                    marks(bench, way, what, &frame.clone().vlan(7), 1, ecn)?;
                    marks(bench, way, what, &frame.clone().tag(outer_tag(), 7).vlan(8), 2, ecn)?;
                }
                marks(bench, way, "options", &v4().ecn(ecn).options(&[1; 40]), 0, ecn)?;
                marks(bench, way, "a fragment", &v4().ecn(ecn).fragment(99, true), 0, ecn)?;
            }
        }
        Ok(())
    })
}

/// With and without the box's request. A packet is marked if requested and ECN-capable; otherwise
/// no byte changes.
fn marks(
    bench: &mut Bench,
    way: Way,
    what: &str,
    frame: &Frame,
    tags: usize,
    ecn: u8,
) -> anyhow::Result<()> {
    let (frame, ip) = (frame.bytes(), ETHERNET + 4 * tags);
    let plain = bench.unwrapped(way, way.shim(A), &frame)?;
    plain.is(&way.out.map(|port| (port, &frame[..])))?;
    let what = format!("{what}, {tags} tags, ECN {ecn}, {way:?}");
    let marked = marked(bench, way, &frame, u64::from(ecn != NOT_ECT)).context(what.clone())?;
    let mut expected = frame.clone();
    if ecn != NOT_ECT {
        let (field, right) = ecn_at(&marked, ip).context("no IP header")?;
        ensure!(field == CE, "{what}: the field is {field}");
        ensure!(right, "{what}: the checksum is wrong: {marked:02x?}");
        // Only the ECN field and the checksum change.
        let bytes = if frame[ip] >> 4 == 4 { vec![TOS, CHECKSUM, CHECKSUM + 1] } else { vec![TOS] };
        for at in bytes {
            expected[ip + at] = marked[ip + at];
        }
    }
    ensure!(marked == expected, "{what}: {frame:02x?} became {marked:02x?}");
    Ok(())
}

fn marked(bench: &mut Bench, way: Way, frame: &[u8], count: u64) -> anyhow::Result<Vec<u8>> {
    let shim = Shim { flags: MARK, ..way.shim(A) };
    let (out, fates) = bench.fates(way, A, |b| b.unwrapped(way, shim, frame))?;
    ensure!(fates.delivered() == 1 && fates.marked() == count, "{fates:?}");
    let [a, b] = way.out.map(|port| out.at(port));
    ensure!(a.len() == 1 && a == b, "{out:x?}");
    Ok(a[0].clone())
}

/// RFC 1624: ones' complement has two forms of zero. A header with a correct checksum has 0x0000 to
/// 0xfffe, and a receiver that sums up the header accepts 0xffff for 0x0000 as well.
pub fn checksum_update_is_exact_at_carry_boundaries(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let [way, _] = WAYS;
        for ecn in [1, 2, CE] {
            for wanted in [0x0000u16, 0x0001, 0x0002, 0x0003, 0x00ff, 0x0100, 0xff00, 0xfffe] {
                let frame = with_checksum(ecn, wanted)?;
                let out = marked(bench, way, &frame, 1)?;
                let sum = out[ETHERNET..ETHERNET + 20].chunks(2).fold(0u32, |sum, pair| {
                    sum + u32::from(u16::from_be_bytes([pair[0], pair[1]]))
                });
                let sum = (sum & 0xffff) + (sum >> 16);
                let sum = (sum & 0xffff) + (sum >> 16);
                ensure!(
                    sum == 0xffff,
                    "{wanted:#06x} of ECN {ecn}: {out:02x?} adds up to {sum:#x}"
                );
                ensure!(out[ETHERNET + TOS] & 3 == CE, "{out:02x?}");
                // The form of common implementations: never 0xffff.
                let right = ecn_at(&out, ETHERNET).is_some_and(|(_, right)| right);
                ensure!(right, "{wanted:#06x} of ECN {ecn}: {out:02x?}");
            }
        }
        Ok(())
    })
}

/// A frame with this correct checksum. The identification moves it through all values.
fn with_checksum(ecn: u8, wanted: u16) -> anyhow::Result<Vec<u8>> {
    let field = |frame: &[u8]| {
        let at = ETHERNET + CHECKSUM;
        u16::from_be_bytes([frame[at], frame[at + 1]])
    };
    let frames = (0..=u16::MAX).map(|id| v4().ecn(ecn).identified(id).bytes());
    let mut found = frames.filter(|frame| field(frame) == wanted);
    found.next().with_context(|| format!("no header has the checksum {wanted:#06x}"))
}

pub fn packet_without_ecn_field_is_not_marked(_: &Cpus) -> anyhow::Result<()> {
    on_bench(|bench| {
        let three = v4().ecn(2).vlan(7).vlan(8).vlan(9).bytes();
        let mut wrong = v4().ecn(2).bytes();
        wrong[ETHERNET] = 0x65;
        let cut = v4().ecn(2).bytes()[..ETHERNET + 19].to_vec();
        let arp = Frame::other(0x0806, &[0xff; 28]).bytes();
        let nobody = Frame::other(0x1234, &[0x46; 64]).bytes();
        for way in WAYS {
            for frame in [&three, &wrong, &cut, &arp, &nobody] {
                let out = marked(bench, way, frame, 0)?;
                ensure!(out == *frame, "{frame:02x?} became {out:02x?}");
            }
        }
        Ok(())
    })
}
