// SPDX-License-Identifier: Apache-2.0

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{Icmpv4Type, Icmpv6Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;
use crate::units::Nanos;

const HOST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR: [u8; 6] = [4, 0, 0, 0, 0, 2];
const ANSWERS: AnswerPlan = AnswerPlan { v4: None, v6: None, rate: 1_000 };
const EVER: u32 = 9_500;

fn mtu(limit: u16, answers: Option<AnswerPlan>) -> Mtu {
    Mtu::new(Some(MtuPlan { limit, answers }), Instant::ZERO, None).unwrap()
}

/// From 10.0.0.1 or 2001:db8::1 to .2, with DF, of `len` bytes of IP.
fn packet(v6: bool, len: usize) -> Vec<u8> {
    let mut f = Vec::new();
    let ethernet = PacketBuilder::ethernet2(HOST, FAR);
    let (ip, header) = if v6 {
        let [from, to] = [1, 2].map(|host| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host));
        (ethernet.ipv6(from.octets(), to.octets(), 64), 40)
    } else {
        (ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64), 20)
    };
    let payload: Vec<u8> = (0..len - header - 8).map(|i| i as u8).collect();
    ip.udp(1, 2).write(&mut f, &payload).unwrap();
    f
}

fn tagged(frame: &[u8], tags: usize) -> Vec<u8> {
    let tag = [0x81, 0, 0x60, 7];
    [&frame[..12], &tag.repeat(tags), &frame[12..]].concat()
}

/// Sets the right checksum of an IPv4 header without tags before it.
fn checked(mut f: Vec<u8>) -> Vec<u8> {
    let end = 14 + usize::from(f[14] & 0xf) * 4;
    f[24..26].fill(0);
    let sum = !checksum::add(0, &f[14..end]);
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f
}

/// The answer at `now` of an MTU that is exceeded; none if there is none.
fn answer_at(mtu: &mut Mtu, now: Instant, frame: &[u8]) -> Option<Vec<u8>> {
    assert!(mtu.is_exceeded(frame));
    let mut answer = Answer::default();
    mtu.answer(now, frame, EVER, &mut answer);
    (!answer.is_empty()).then(|| answer.to_vec())
}

fn answer(limit: u16, frame: &[u8]) -> Option<Vec<u8>> {
    answer_at(&mut mtu(limit, Some(ANSWERS)), Instant::ZERO, frame)
}

/// Checks an answer by another parser; returns its source address, the MTU and the quoted bytes.
fn parsed(frame: &[u8]) -> (std::net::IpAddr, u32, Vec<u8>) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    match (packet.net.unwrap(), packet.transport.unwrap()) {
        (NetSlice::Ipv4(ip), TransportSlice::Icmpv4(icmp)) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()));
            let Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::FragmentationNeeded {
                next_hop_mtu,
            }) = icmp.icmp_type()
            else {
                panic!("{:?}", icmp.icmp_type());
            };
            assert!(usize::from(header.total_len) <= V4_ERROR);
            assert_eq!(header.destination, [10, 0, 0, 1]);
            (header.source.into(), next_hop_mtu.into(), icmp.payload().to_vec())
        }
        (NetSlice::Ipv6(ip), TransportSlice::Icmpv6(icmp)) => {
            let header = ip.header().to_header();
            assert!(icmp.is_checksum_valid(header.source, header.destination));
            let Icmpv6Type::PacketTooBig { mtu } = icmp.icmp_type() else {
                panic!("{:?}", icmp.icmp_type());
            };
            assert!(usize::from(header.payload_length) + 40 <= usize::from(V6_MIN));
            assert_eq!(header.destination[15], 1);
            (header.source.into(), mtu, icmp.payload().to_vec())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_packet_above_mtu_is_exceeded() {
    for (v6, limit) in [(false, 68), (false, 1_400), (true, 1_280), (true, 1_400)] {
        for (len, expected) in [(usize::from(limit), false), (usize::from(limit) + 1, true)] {
            let frame = packet(v6, len);
            let mtu = mtu(limit, None);
            assert_eq!(mtu.is_exceeded(&frame), expected, "{v6} {limit} {len}");
            // Neither VLAN tags nor padding count.
            let padded = [tagged(&frame, 3), vec![0; 40]].concat();
            assert_eq!(mtu.is_exceeded(&padded), expected, "{v6} {limit} {len}");
            let unchecked = Mtu::unchecked(Some(mtu.plan));
            assert_eq!(frame.len() > usize::from(unchecked), expected);
        }
    }
    assert_eq!(Mtu::unchecked(None), u16::MAX);
}

#[test]
fn limit_of_ipv6_is_at_least_1280() {
    let mtu = mtu(576, Some(ANSWERS));
    assert!(!mtu.is_exceeded(&packet(true, 1_280)));
    assert!(mtu.is_exceeded(&packet(false, 577)));
    let (_, told, _) = parsed(&answer(576, &packet(true, 1_281)).unwrap());
    assert_eq!(told, 1_280);
}

#[test]
fn packet_with_damaged_header_counts_whole_and_has_no_answer() {
    let mut frame = packet(false, 1_500);
    frame[14] = 0x4f;
    frame[16..18].copy_from_slice(&9_000_u16.to_be_bytes());
    assert!(!mtu(1_500, Some(ANSWERS)).is_exceeded(&frame));
    assert_eq!(answer(1_499, &frame), None);
    // Neither IP nor damaged.
    let other = [&FAR[..], &HOST, &[0x88, 0xcc], &[0; 1_500]].concat();
    assert!(!mtu(68, Some(ANSWERS)).is_exceeded(&other));
}

#[test]
fn answer_goes_back_by_mac_address_and_vlan() {
    for v6 in [false, true] {
        for tags in [0, 1, MAX_TAGS] {
            let frame = tagged(&packet(v6, 1_500), tags);
            let answer = answer(1_400, &frame).unwrap();
            assert_eq!(answer[..12], [HOST, FAR].concat());
            let head = 14 + 4 * tags;
            assert_eq!(answer[12..head], frame[12..head]);
            let bare = [&answer[..12], &answer[12 + 4 * tags..]].concat();
            let (source, told, quoted) = parsed(&bare);
            assert_eq!(told, 1_400);
            let quotes = if v6 { 1_232 } else { 548 };
            assert_eq!(quoted, frame[head..head + quotes]);
            let destination: std::net::IpAddr =
                if v6 { "2001:db8::2".parse().unwrap() } else { [10, 0, 0, 2].into() };
            assert_eq!(source, destination, "the packet's own destination");
        }
    }
}

#[test]
fn short_packet_is_quoted_whole() {
    // Also of an odd length.
    for len in [69, 70, 200] {
        let frame = packet(false, len);
        let answer = answer(68, &frame).unwrap();
        assert_eq!(parsed(&answer).2, frame[14..]);
    }
}

#[test]
fn answer_comes_from_configured_address() {
    let v4 = Ipv4Addr::new(192, 0, 2, 1);
    let v6: Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let answers = AnswerPlan { v4: Some(v4), v6: Some(v6), ..ANSWERS };
    let mut mtu = mtu(1_400, Some(answers));
    let mut source = |v6| {
        let answer = answer_at(&mut mtu, Instant::ZERO, &packet(v6, 1_500)).unwrap();
        parsed(&answer).0
    };
    assert_eq!(source(false), v4);
    assert_eq!(source(true), v6);
}

#[test]
fn drop_without_answers_has_none() {
    let mut mtu = mtu(1_400, None);
    assert_eq!(answer_at(&mut mtu, Instant::ZERO, &packet(false, 1_500)), None);
}

#[test]
fn answer_that_no_port_can_send_is_omitted() {
    let frame = packet(true, 1_500);
    for (longest, sent) in [(1_294, true), (1_293, false)] {
        let mut answer = Answer::default();
        mtu(1_400, Some(ANSWERS)).answer(Instant::ZERO, &frame, longest, &mut answer);
        assert_eq!(!answer.is_empty(), sent, "{longest}");
    }
}

/// What the RFCs exclude, one change of an answered packet each.
#[test]
fn ipv4_packets_that_must_not_be_answered_are_not() {
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = packet(false, 1_500);
        change(&mut frame);
        answer(1_400, &checked(frame))
    };
    assert!(with(&|_| ()).is_some());
    assert_eq!(with(&|f| f[20] &= !DF), None, "no DF");
    assert!(with(&|f| f[20] |= 0x20).is_some(), "first fragment");
    assert_eq!(with(&|f| f[21] = 1), None, "later fragment");
    for mac in [0, 6] {
        assert_eq!(with(&|f| f[mac] |= 1), None, "group MAC address");
        assert_eq!(with(&|f| f[mac..mac + 6].fill(0xff)), None, "broadcast MAC address");
    }
    for at in [26, 30] {
        for address in [
            [0, 0, 0, 0],
            [0, 1, 2, 3],
            [127, 0, 0, 1],
            [224, 0, 0, 1],
            [239, 1, 2, 3],
            [240, 0, 0, 1],
            [255, 255, 255, 255],
        ] {
            assert_eq!(with(&|f| f[at..at + 4].copy_from_slice(&address)), None, "{address:?}");
        }
    }
    for kind in 0..=255 {
        let answered = with(&|f| (f[23], f[34]) = (ICMP, kind)).is_some();
        assert_eq!(answered, !ICMP_ERRORS.contains(&kind), "ICMP type {kind}");
    }
    let mut wrong = checked(packet(false, 1_500));
    wrong[24] ^= 1;
    assert_eq!(answer(1_400, &wrong), None, "wrong header checksum");
    // The type of ICMP is behind the options.
    let options = |kind| {
        with(&|f| {
            f.splice(34..34, [1; 8]);
            (f[14], f[23], f[42]) = (0x47, ICMP, kind);
            f[16..18].copy_from_slice(&1_508_u16.to_be_bytes());
        })
    };
    assert!(options(8).is_some());
    assert_eq!(options(3), None);
}

#[test]
fn ipv6_packets_that_must_not_be_answered_are_not() {
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = packet(true, 1_500);
        change(&mut frame);
        answer(1_400, &frame)
    };
    assert!(with(&|_| ()).is_some());
    assert_eq!(with(&|f| f[0] |= 1), None, "group MAC address");
    for at in [22, 38] {
        for address in ["::", "::1", "ff02::1", "ff0e::1"] {
            let address: Ipv6Addr = address.parse().unwrap();
            let set = |f: &mut Vec<u8>| f[at..at + 16].copy_from_slice(&address.octets());
            assert_eq!(with(&set), None, "{address}");
        }
    }
    // Extension headers of 8 bytes each, then what the last one names.
    let behind = |kinds: &[u8], last: u8, first: u8| {
        with(&|f| {
            let next: Vec<u8> = kinds.iter().skip(1).chain([&last]).copied().collect();
            f[20] = kinds.first().copied().unwrap_or(last);
            for (i, (kind, next)) in kinds.iter().zip(next).enumerate() {
                let at = 54 + 8 * i;
                f[at..at + 8].fill(0);
                f[at] = next;
                // Authentication counts in words of 4 bytes, less 2; here 12 bytes.
                assert_ne!(*kind, 51);
            }
            f[54 + 8 * kinds.len()] = first;
        })
    };
    let chains: [&[u8]; 5] = [&[], &[0], &[43, 60], &[0, 44, 60], &[60; 8]];
    for chain in chains {
        for kind in 0..=255_u8 {
            let answered = behind(chain, ICMPV6, kind).is_some();
            // Neighbour discovery without extension headers bypasses; a redirect is never answered.
            assert_eq!(answered, kind >= 128 && kind != REDIRECT_V6, "{chain:?} {kind}");
        }
        assert!(behind(chain, 17, 0).is_some(), "{chain:?}");
    }
    assert_eq!(behind(&[60; 9], 17, 0), None, "too many headers to read");
    assert!(behind(&[60; 8], 17, 0).is_some());
    let authenticated = |kind| {
        with(&|f| {
            (f[20], f[54], f[55], f[54 + 12]) = (51, ICMPV6, 1, kind);
        })
    };
    assert!(authenticated(128).is_some());
    assert_eq!(authenticated(1), None);
    let fragment = |offset: u16| {
        with(&|f| {
            (f[20], f[54]) = (44, 17);
            f[56..58].copy_from_slice(&(offset << 3 | 1).to_be_bytes());
        })
    };
    assert!(fragment(0).is_some());
    assert_eq!(fragment(1), None, "later fragment");
}

#[test]
fn answers_are_limited_by_exact_token_bucket() {
    let frame = packet(false, 1_500);
    // 3/s: a third of a second is no whole number of nanoseconds.
    let mut mtu = mtu(1_400, Some(AnswerPlan { rate: 3, ..ANSWERS }));
    let mut sent = |ns: u64| answer_at(&mut mtu, Instant(ns), &frame).is_some();
    assert_eq!([sent(0), sent(0), sent(0), sent(0)], [true, true, true, false]);
    assert_eq!([sent(333_333_333), sent(333_333_334)], [false, true]);
    assert_eq!([sent(666_666_666), sent(666_666_667)], [false, true]);
    assert_eq!([sent(999_999_999), sent(1_000_000_000)], [false, true]);
    // A full bucket again, and no more than that.
    let later = u64::MAX / 2;
    assert_eq!([(); 5].map(|()| sent(later)), [true, true, true, false, false]);
}

#[test]
fn burst_is_limited_at_high_rate() {
    let frame = packet(true, 1_500);
    let mut mtu = mtu(1_400, Some(AnswerPlan { rate: 1_000_000, ..ANSWERS }));
    let mut sent = |at| (0..100).filter(|_| answer_at(&mut mtu, at, &frame).is_some()).count();
    assert_eq!(sent(Instant::ZERO), 50);
    assert_eq!(sent(Instant::ZERO + Nanos::from_micros(7)), 7);
}

#[test]
fn packet_without_answer_uses_no_token() {
    let mut mtu = mtu(1_400, Some(AnswerPlan { rate: 1, ..ANSWERS }));
    let mut silent = packet(false, 1_500);
    silent[20] = 0;
    for _ in 0..10 {
        assert_eq!(answer_at(&mut mtu, Instant::ZERO, &checked(silent.clone())), None);
    }
    assert!(answer_at(&mut mtu, Instant::ZERO, &packet(false, 1_500)).is_some());
}

#[test]
fn change_of_plan_keeps_credit() {
    let frame = packet(false, 1_500);
    let mut before = mtu(1_400, Some(AnswerPlan { rate: 2, ..ANSWERS }));
    assert!(answer_at(&mut before, Instant::ZERO, &frame).is_some());
    let plan = MtuPlan { limit: 1_300, answers: Some(ANSWERS) };
    let mut after = Mtu::new(Some(plan), Instant::ZERO, Some(before)).unwrap();
    let mut sent = || answer_at(&mut after, Instant::ZERO, &frame).is_some();
    assert_eq!([sent(), sent()], [true, false]);
    assert!(Mtu::new(None, Instant::ZERO, Some(after)).is_none());
}

proptest! {
    /// Any bytes, most often with plausible headers: no panic, and an answer is a right one.
    #[test]
    fn hostile_frames_are_answered_rightly_or_not(
        mut frame in prop::collection::vec(any::<u8>(), 14..2_000),
        v6: bool,
        tags in 0..10_usize,
        limit in 68..1_600_u16,
        shaped in 0..16_u8,
        cut in 0..2_000_usize,
    ) {
        // Unicast addresses, lengths that fit, a right checksum, hosts: each often.
        if shaped & 1 == 0 {
            (frame[0], frame[6]) = (2, 4);
        }
        frame[12..14].copy_from_slice(if v6 { &[0x86, 0xdd] } else { &[8, 0] });
        let behind = frame.len() - 14;
        if shaped & 2 == 0 && v6 && behind >= 40 {
            frame[14] = 0x60;
            frame[18..20].copy_from_slice(&((behind - 40) as u16).to_be_bytes());
            (frame[22], frame[38]) = (0x20, 0x20);
        } else if shaped & 2 == 0 && !v6 && behind >= 60 {
            frame[14] = 0x40 | (frame[14] % 11 + 5);
            frame[16..18].copy_from_slice(&(behind as u16).to_be_bytes());
            (frame[20], frame[21]) = (0x40, 0);
            frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
            frame[30..34].copy_from_slice(&[10, 0, 0, 2]);
            if shaped & 4 == 0 {
                frame = checked(frame);
            }
        }
        let mut frame = tagged(&frame, tags);
        if shaped & 8 != 0 {
            frame.truncate(14.max(cut));
        }
        let mut mtu = mtu(limit, Some(ANSWERS));
        let is_exceeded = mtu.is_exceeded(&frame);
        prop_assert!(!is_exceeded || frame.len() > usize::from(Mtu::unchecked(Some(mtu.plan))));
        let mut answer = Answer::default();
        mtu.answer(Instant::ZERO, &frame, EVER, &mut answer);
        if answer.is_empty() {
            return Ok(());
        }
        prop_assert!(answer.len() <= LONGEST);
        prop_assert_eq!(&answer[..6], &frame[6..12]);
        prop_assert_eq!(&answer[6..12], &frame[..6]);
        prop_assert_eq!((answer[0] | answer[6]) & 1, 0);
        let at = 14 + 4 * tags;
        prop_assert_eq!(&answer[12..at], &frame[12..at]);
        let bare = [&answer[..12], &answer[12 + 4 * tags..]].concat();
        let packet = SlicedPacket::from_ethernet(&bare).unwrap();
        let quoted = match (packet.net.unwrap(), packet.transport.unwrap()) {
            (NetSlice::Ipv4(ip), TransportSlice::Icmpv4(icmp)) => {
                let header = ip.header().to_header();
                prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
                prop_assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()));
                icmp.payload()
            }
            (NetSlice::Ipv6(ip), TransportSlice::Icmpv6(icmp)) => {
                let header = ip.header().to_header();
                prop_assert!(icmp.is_checksum_valid(header.source, header.destination));
                icmp.payload()
            }
            other => panic!("{other:?}"),
        };
        prop_assert!(frame[at..].starts_with(quoted));
    }
}
