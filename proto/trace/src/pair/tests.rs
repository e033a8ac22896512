// SPDX-License-Identifier: Apache-2.0

use super::*;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use std::path::PathBuf;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// A UDP packet with a number; `hop` changes what routers and network cards change.
fn packet(number: u32, hop: bool) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([u8::from(hop); 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], if hop { 63 } else { 64 })
        .udp(7, 8);
    let mut frame = Vec::new();
    builder.write(&mut frame, &number.to_be_bytes()).unwrap();
    if hop {
        // The checksum of UDP.
        frame[40] ^= 0x55;
    }
    frame
}

struct Lab(tempfile::TempDir);

impl Lab {
    fn write(&self, name: &str, packets: &[(u64, u32)], hop: bool) -> PathBuf {
        let path = self.0.path().join(name);
        let header = PcapHeader {
            ts_resolution: pcap_file::TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let mut writer = PcapWriter::with_header(File::create(&path).unwrap(), header).unwrap();
        for (time, number) in packets {
            let data = packet(*number, hop);
            let packet = PcapPacket::new(Duration::from_nanos(*time), data.len() as u32, &data);
            writer.write_packet(&packet).unwrap();
        }
        path
    }

    /// In microseconds, the default of the format.
    fn write_ng(&self, name: &str, packets: &[(u64, u32)]) -> PathBuf {
        let path = self.0.path().join(name);
        let mut writer = PcapNgWriter::new(File::create(&path).unwrap()).unwrap();
        let interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 65_535);
        writer.write_pcapng_block(interface).unwrap();
        for (time, number) in packets {
            let data = packet(*number, true);
            let block = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(time / 1_000),
                original_len: data.len() as u32,
                data: data.into(),
                options: Vec::new(),
            };
            writer.write_pcapng_block(block).unwrap();
        }
        path
    }
}

fn lab() -> Lab {
    Lab(tempfile::tempdir().unwrap())
}

/// Packets each millisecond from 5 s on.
fn sent(count: u32) -> Vec<(u64, u32)> {
    (0..count).map(|n| (5_000 * MS + u64::from(n) * MS, n)).collect()
}

#[test]
fn delays_and_losses_of_known_packets_are_found() {
    let lab = lab();
    let sent = sent(40);
    // 20 ms, from the 10th packet on 30 ms; each fifth is lost, and all from 20 to 29.
    let lost = |n: u32| n % 5 == 4 || (20..30).contains(&n);
    let received: Vec<_> = sent
        .iter()
        .filter(|(_, n)| !lost(*n))
        .map(|(time, n)| (time + if *n < 10 { 20 * MS } else { 30 * MS }, *n))
        .collect();
    let before = lab.write("before", &sent, false);
    let pair = read_pair(&before, &lab.write("after", &received, true), 10 * MS, 0).unwrap();
    let step = |delay_ms: u64, loss, packets| PairStep { delay_ns: delay_ms * MS, loss, packets };
    // The last packet was sent after the last delivered one.
    let expected =
        [step(20, 0.2, 10), step(30, 0.2, 10), step(30, 1.0, 10), step(30, 1.0 / 9.0, 9)];
    assert_eq!(pair.steps, expected);
    assert_eq!((pair.delivered, pair.lost, pair.unmatched, pair.unknown), (24, 15, 0, 1));
    // The same from pcapng, with a clock that is ahead by 7 ms.
    let ahead: Vec<_> = received.iter().map(|(time, n)| (time + 7 * MS, *n)).collect();
    let after = lab.write_ng("after.pcapng", &ahead);
    assert_eq!(read_pair(&before, &after, 10 * MS, 7 * MS as i64).unwrap(), pair);
}

#[test]
fn delay_without_packets_is_interpolated() {
    let lab = lab();
    let before = lab.write("before", &[(0, 1), (40 * MS, 2)], false);
    let after = lab.write("after", &[(10 * MS, 1), (90 * MS, 2)], true);
    let pair = read_pair(&before, &after, 10 * MS, 0).unwrap();
    let delays: Vec<u64> = pair.steps.iter().map(|step| step.delay_ns / MS).collect();
    assert_eq!(delays, [10, 20, 30, 40, 50]);
    assert!(pair.steps.iter().all(|step| step.loss == 0.0));
}

#[test]
fn equal_packets_match_in_order() {
    let lab = lab();
    let before = lab.write("before", &[(0, 1), (10 * MS, 1)], false);
    let after = lab.write("after", &[(15 * MS, 1), (25 * MS, 1)], true);
    let pair = read_pair(&before, &after, 100 * MS, 0).unwrap();
    assert_eq!((pair.delivered, pair.steps[0].delay_ns), (2, 15 * MS));
}

#[test]
fn unusable_captures_are_refused_with_the_remedy() {
    let lab = lab();
    let before = lab.write("before", &sent(10), false);
    let told = |after: &Path| read_pair(&before, after, MS, 0).unwrap_err().to_string();
    let other: Vec<_> = sent(10).iter().map(|(time, n)| (*time, n + 100)).collect();
    let found = told(&lab.write("other", &other, true));
    assert!(found.contains("none of 10 packets"), "{found}");
    let early: Vec<_> = sent(10).iter().map(|(time, n)| (time - 3 * MS, *n)).collect();
    let found = told(&lab.write("early", &early, true));
    assert!(found.contains("arrives 3000000 ns before") && found.contains("offset"), "{found}");
    let text = lab.0.path().join("text");
    std::fs::write(&text, "hello").unwrap();
    assert!(told(&text).contains("no capture in pcap or pcapng"), "{}", told(&text));
    assert!(told(lab.0.path()).contains("is no file"), "{}", told(lab.0.path()));
    let cut = lab.write("cut", &sent(10), true);
    let bytes = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 3]).unwrap();
    assert!(told(&cut).contains("cut off"), "{}", told(&cut));
}

#[test]
fn resolutions_of_pcapng_become_nanoseconds() {
    assert_eq!(nanos(1_500_000, 6), 1_500_000_000);
    assert_eq!(nanos(7, 9), 7);
    assert_eq!(nanos(3 << 9, 128 | 10), 1_500_000_000);
    assert_eq!(nanos(u128::MAX, 0), u64::MAX);
    assert_eq!(nanos(1, 255), 0);
}

#[test]
fn times_that_go_back_are_an_error_with_the_packet_and_both_times() {
    let lab = lab();
    let forward = [(1_000 * MS, 1), (2_000 * MS, 2), (3_000 * MS, 3)];
    let back = [(1_020 * MS, 1), (3_020 * MS, 3), (1_000 * MS, 2)];
    let forward = |name: &str, hop| lab.write(name, &forward, hop);
    let back = |name: &str, hop| lab.write(name, &back, hop);
    let (before, after) = (forward("before", false), forward("after", true));
    for (before, after, name) in
        [(&before, back("back-after", true), "back-after"), (&back("back", false), after, "back")]
    {
        let said = read_pair(before, &after, MS, 0).unwrap_err().to_string();
        for part in [name, "packet 3 has the time 1.000000000 s", "packet 2, 3.020000000 s"] {
            assert!(said.contains(part), "{said}");
        }
    }
}

#[test]
fn packets_that_are_slightly_out_of_order_have_their_delays() {
    let lab = lab();
    let sent = [(5 * MS, 1), (5 * MS - 500_000, 2), (8 * MS, 3)];
    let received = [(26 * MS, 1), (25 * MS + 500_000, 2), (29 * MS, 3)];
    let before = lab.write("before", &sent, false);
    let pair = read_pair(&before, &lab.write("after", &received, true), 100 * MS, 0).unwrap();
    assert_eq!((pair.delivered, pair.unmatched, pair.steps[0].delay_ns), (3, 0, 21 * MS));
    // The second one is seen 0.1 ms before it was sent, since the clocks differ.
    let sent = [(5 * MS, 1), (5 * MS + 900_000, 2), (8 * MS, 3)];
    let received = [(6 * MS, 1), (5 * MS + 800_000, 2), (9 * MS, 3)];
    let before = lab.write("before", &sent, false);
    let pair = read_pair(&before, &lab.write("early", &received, true), 100 * MS, 0).unwrap();
    assert_eq!((pair.delivered, pair.lost, pair.unmatched), (2, 1, 1));
    assert_eq!(pair.steps[0].delay_ns, MS);
}

#[test]
fn captures_with_a_snapshot_length_are_read() {
    let lab = lab();
    let write = |name: &str, time: u64, hop| {
        let path = lab.0.path().join(name);
        let header = PcapHeader { snaplen: 150, ..PcapHeader::default() };
        let mut writer = PcapWriter::with_header(File::create(&path).unwrap(), header).unwrap();
        // Of a packet of 1,514 bytes only these were kept.
        let data = packet(1, hop);
        let packet = PcapPacket::new(Duration::from_nanos(time), 1_514, &data);
        writer.write_packet(&packet).unwrap();
        path
    };
    let (before, after) = (write("before", 5 * MS, false), write("after", 25 * MS, true));
    let pair = read_pair(&before, &after, MS, 0).unwrap();
    assert_eq!((pair.delivered, pair.steps[0].delay_ns), (1, 20 * MS));
}
