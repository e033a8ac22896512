// SPDX-License-Identifier: Apache-2.0
//! The file that `linkctl capture` writes, read back; the dataplane is a fake.

use crate::lab::{Lab, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::blocks::section_header::SectionHeaderOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use proto::linkemu::v1 as pb;
use std::process::Stdio;
use std::time::Duration;

/// When the capture began: on the dataplane's clock, and in UTC.
const START_NS: u64 = 7_000_000_000;
const UTC_S: u64 = 1_790_000_000;
const UTC_NS: u32 = 999_999_999;

fn packet(
    at_ns: u64,
    number: u64,
    direction: pb::Direction,
    point: pb::CapturePoint,
) -> pb::CapturedPacket {
    pb::CapturedPacket {
        time_ns: START_NS + at_ns,
        number,
        client: 0,
        direction: direction.into(),
        point: point.into(),
        reason: 0,
        length: 1514,
        data: vec![number as u8; 5],
    }
}

/// Two chunks: packets with times out of order, and missed copies.
fn chunks() -> Vec<pb::CaptureChunk> {
    use pb::CapturePoint::{Dropped, Egress, Ingress, Marked};
    use pb::Direction::{Forward, Return};
    let start = pb::CaptureStart {
        time_ns: START_NS,
        utc: Some(prost_types::Timestamp { seconds: UTC_S as i64, nanos: UTC_NS as i32 }),
        snaplen: 5,
        profile: "viasat2*".into(),
        generation: 42,
        boxes: Vec::new(),
    };
    let lost = pb::CapturedPacket {
        reason: pb::DropReason::Outage.into(),
        ..packet(300, 2, Forward, Dropped)
    };
    let arp = pb::CapturedPacket { client: 1, ..packet(40, 3, Return, Ingress) };
    let first = pb::CaptureChunk {
        start: Some(start),
        clients: vec!["10.0.0.2".into(), "bypass".into()],
        packets: vec![
            packet(1, 1, Forward, Ingress),
            packet(30, 2, Forward, Ingress),
            packet(500, 1, Forward, Egress),
            lost,
            arp,
        ],
        time_ns: START_NS + 600,
        ..Default::default()
    };
    let missed = |direction: pb::Direction, point: pb::CapturePoint, copies| pb::CaptureMissed {
        direction: direction.into(),
        point: point.into(),
        copies,
    };
    let second = pb::CaptureChunk {
        clients: vec!["10.0.0.2".into()],
        packets: vec![packet(700, 0, Return, Egress), packet(20, 4, Forward, Marked)],
        missed: vec![missed(Forward, Ingress, 8), missed(Return, Dropped, 3)],
        time_ns: START_NS + 900,
        ..Default::default()
    };
    vec![first, second]
}

/// Content of the file.
#[derive(Debug, Default)]
struct Read {
    section: Vec<String>,
    /// Names, in order.
    interfaces: Vec<String>,
    packets: Vec<EnhancedPacketBlock<'static>>,
    /// By interface: received, dropped, start, end.
    statistics: Vec<[u64; 4]>,
    /// Of the statistics.
    comments: Vec<String>,
}

fn read(bytes: &[u8]) -> Read {
    let mut reader = PcapNgReader::new(bytes).unwrap();
    let mut read = Read::default();
    let comments = reader.section().options.iter().map(|option| match option {
        SectionHeaderOption::Comment(text) | SectionHeaderOption::UserApplication(text) => {
            text.to_string()
        }
        other => panic!("{other:?}"),
    });
    read.section = comments.collect();
    while let Some(block) = reader.next_block() {
        match block.unwrap().into_owned() {
            Block::InterfaceDescription(interface) => {
                assert_eq!(interface.snaplen, 5);
                assert!(interface.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
                let name = interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                read.interfaces.push(name.unwrap());
            }
            Block::EnhancedPacket(packet) => read.packets.push(packet),
            Block::InterfaceStatistics(statistics) => {
                assert_eq!(statistics.interface_id as usize, read.statistics.len());
                let mut of = [0; 4];
                for option in statistics.options {
                    match option {
                        InterfaceStatisticsOption::IsbIfRecv(n) => of[0] = n,
                        InterfaceStatisticsOption::IsbIfDrop(n) => of[1] = n,
                        InterfaceStatisticsOption::IsbStartTime(n) => of[2] = n,
                        InterfaceStatisticsOption::IsbEndTime(n) => of[3] = n,
                        InterfaceStatisticsOption::Comment(text) => {
                            read.comments.push(text.to_string());
                        }
                        other => panic!("{other:?}"),
                    }
                }
                read.statistics.push(of);
            }
            other => panic!("{other:?}"),
        }
    }
    read
}

/// The interface, the time since the start, the packet's number, its way and its comment.
type Told = (String, u64, Option<u64>, Option<u32>, Option<String>);

fn told(read: &Read) -> Vec<Told> {
    let start = Duration::new(UTC_S, UTC_NS);
    let told = read.packets.iter().map(|packet| {
        assert_eq!((packet.original_len, packet.data.len()), (1514, 5));
        let (mut number, mut way, mut comment) = (None, None, None);
        for option in &packet.options {
            match option {
                EnhancedPacketOption::Unknown(option) if option.code == 5 => {
                    number = Some(u64::from_be_bytes((*option.value).try_into().unwrap()));
                }
                EnhancedPacketOption::Flags(flags) => way = Some(*flags),
                EnhancedPacketOption::Comment(text) => comment = Some(text.to_string()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(packet.data[0], number.unwrap_or(0) as u8);
        let interface = read.interfaces[packet.interface_id as usize].clone();
        let at = (packet.timestamp - start).as_nanos() as u64;
        (interface, at, number, way, comment)
    });
    told.collect()
}

#[test]
fn the_file_has_each_copy_in_its_place_with_its_time_and_its_fate() {
    let lab = Lab::new();
    lab.fake.state().capture = chunks();
    let line = "capture --client 10.0.0.2 -c bypass --snaplen 5B --duration 2s -w run.pcapng";
    let said = lab.done(line);
    assert!(said.contains("forward  2 received, 1 sent, 1 dropped, 1 marked"), "{said}");
    assert!(said.contains("return   1 received, 1 sent, 0 dropped\n"), "{said}");
    assert!(said.contains("7 copies in run.pcapng; 11 copies were missed"), "{said}");
    let asked = lab.fake.state().captures.clone();
    let expected = pb::CaptureRequest {
        clients: vec!["10.0.0.2".into(), "bypass".into()],
        snaplen: 5,
        duration_ns: 2_000_000_000,
        ..Default::default()
    };
    assert_eq!(asked, [expected]);

    let read = read(&std::fs::read(lab.at("run.pcapng")).unwrap());
    assert!(read.section[0].contains("profile viasat2*, generation 42;"), "{:?}", read.section);
    assert!(read.section[1].starts_with("linkctl "));
    let names = ["in", "out", "drop", "mark"];
    let expected = ["forward", "return"].map(|way| names.map(|name| format!("{way}-{name}")));
    assert_eq!(read.interfaces, expected.concat());
    let row = |interface: &str, at, number, way, comment: Option<&str>| {
        (interface.to_owned(), at, number, way, comment.map(str::to_owned))
    };
    let marked = Some("marked: congestion experienced");
    let before = Some("received before the capture began");
    let expected = [
        row("forward-in", 1, Some(1), Some(1), None),
        row("forward-mark", 20, Some(4), None, marked),
        row("forward-in", 30, Some(2), Some(1), None),
        row("return-in", 40, Some(3), Some(1), Some("client: bypass")),
        row("forward-drop", 300, Some(2), None, Some("dropped: outage")),
        row("forward-out", 500, Some(1), Some(2), None),
        row("return-out", 700, None, Some(2), before),
    ];
    assert_eq!(told(&read), expected);
    let start = UTC_S * 1_000_000_000 + u64::from(UTC_NS);
    let of = |received, dropped| [received, dropped, start, start + 900];
    let expected =
        [of(10, 8), of(1, 0), of(1, 0), of(1, 0), of(1, 0), of(1, 0), of(3, 3), of(0, 0)];
    assert_eq!(read.statistics, expected);
}

#[test]
fn standard_output_takes_the_packets_and_the_summary_goes_aside() {
    let lab = Lab::new();
    let mut chunks = chunks();
    for chunk in &mut chunks {
        chunk.packets.retain(|p| p.direction() == pb::Direction::Forward);
        chunk.missed.clear();
    }
    lab.fake.state().capture = chunks;
    for line in [
        "capture --direction forward --count 5 -w -",
        "-o json capture --direction forward --count 5 -w -",
    ] {
        let output = lab.run(line);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let read = read(&output.stdout);
        assert_eq!(read.interfaces.len(), 4);
        assert_eq!((read.packets.len(), read.statistics.len()), (5, 4));
        let said = text(&output.stderr);
        if line.contains("json") {
            let summary: serde_json::Value = serde_json::from_str(&said).unwrap();
            assert_eq!(summary["copies"], 5);
            assert_eq!(summary["forward"]["received"], 2);
            assert_eq!(summary["return"]["received"], 0);
            assert_eq!((&summary["missed"], &summary["interrupted"]), (&0.into(), &false.into()));
            assert_eq!(
                (&summary["generation"], &summary["profile"]),
                (&42.into(), &"viasat2*".into())
            );
        } else {
            assert!(said.contains("5 copies in -; no copy was missed"), "{said}");
        }
    }
}

#[test]
fn the_file_of_a_group_has_each_box_and_what_is_missing() {
    let lab = Lab::new();
    let mut chunks = chunks();
    chunks[0].start.as_mut().unwrap().boxes = vec!["b1".into(), "b2".into()];
    (chunks[0].clock_error_ns, chunks[1].clock_error_ns) = (70_400, 81_500);
    chunks[1].box_index = 1;
    let message = "no answer".to_owned();
    chunks.push(pb::CaptureChunk {
        box_index: 1,
        lost: Some(pb::CaptureLost { time_ns: START_NS + 950, message }),
        time_ns: START_NS + 950,
        ..Default::default()
    });
    chunks.push(pb::CaptureChunk { time_ns: START_NS + 2_000, ..Default::default() });
    lab.fake.state().capture = chunks;
    let output = lab.run("-o json capture --snaplen 5B -w run.pcapng");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let missing = "packets of box b2 are missing from 0.000 s after the start on: no answer";
    assert!(said.contains(missing) && said.contains("incomplete"), "{said}");
    let summary: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let lost = serde_json::json!([{"box": "b2", "after_ns": 950, "message": "no answer"}]);
    assert_eq!((&summary["lost"], &summary["clock_error_ns"]), (&lost, &81_500.into()));

    let read = read(&std::fs::read(lab.at("run.pcapng")).unwrap());
    assert!(read.section[0].contains("of the group's clock"), "{:?}", read.section);
    assert_eq!(read.interfaces.len(), 16);
    assert_eq!(read.interfaces[0], "forward-in.b1");
    assert_eq!(read.interfaces[15], "return-mark.b2");
    let told = told(&read);
    let rows: Vec<_> = told.iter().map(|row| (&*row.0, row.1)).collect();
    let expected = [
        ("forward-in.b1", 1),
        ("forward-mark.b2", 20),
        ("forward-in.b1", 30),
        ("return-in.b1", 40),
        ("forward-drop.b1", 300),
        ("forward-out.b1", 500),
        ("return-out.b2", 700),
    ];
    assert_eq!(rows, expected);
    // Missed copies and the end are those of the box.
    let start = UTC_S * 1_000_000_000 + u64::from(UTC_NS);
    assert_eq!(read.statistics[0], [2, 0, start, start + 2_000]);
    assert_eq!(read.statistics[8], [8, 8, start, start + 950]);
    let times = |name, ns| format!("times of box {name}: within {ns} ns of the group's clock");
    assert_eq!(read.comments[0], times("b1", 70_400));
    assert_eq!(read.comments[15], format!("{}; {missing}", times("b2", 81_500)));
}

#[test]
fn interrupt_leaves_a_whole_file() {
    let lab = Lab::new();
    {
        let mut state = lab.fake.state();
        (state.capture, state.capture_waits) = (chunks(), true);
    }
    let mut command = lab.command("-o json capture -w run.pcapng");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The header is flushed with the first chunk.
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while lab.at("run.pcapng").metadata().map_or(0, |there| there.len()) == 0 {
        assert!(std::time::Instant::now() < deadline, "nothing is written");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["interrupted"], true);
    let read = read(&std::fs::read(lab.at("run.pcapng")).unwrap());
    assert_eq!(read.statistics.len(), 8);
    assert_eq!(summary["copies"], read.packets.len());
}

#[test]
fn impossible_capture_is_reported_and_leaves_no_file() {
    let mut lab = Lab::new();
    std::fs::write(lab.at("there.pcapng"), "mine").unwrap();
    lab.fake.state().refuse = Some(tonic::Status::resource_exhausted("somebody captures already"));
    let wide = format!("capture --snaplen 10225B -w {}", lab.at("run.pcapng").display());
    for (line, code, expected) in [
        ("capture", 2, "-w FILE.pcapng"),
        ("capture -o run.pcapng", 2, "a file to be written is named by -w"),
        ("capture -w run.pcapng -w other.pcapng", 2, "multiple times"),
        (&*wide, 2, "10224"),
        ("capture --snaplen 0B -w run.pcapng", 2, "10224"),
        ("capture --duration 5 -w run.pcapng", 2, "write a unit"),
        ("capture --count 0 -w run.pcapng", 2, "1.."),
        ("capture -w there.pcapng", 1, "there already"),
        ("capture -w run.pcapng", 1, "somebody captures already"),
    ] {
        let output = lab.run(line);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(said.contains(expected), "{line}: {said}");
        assert!(!lab.at("run.pcapng").exists(), "{line}");
    }
    assert_eq!(std::fs::read(lab.at("there.pcapng")).unwrap(), b"mine");
    lab.stop();
    assert_eq!(lab.run("capture -w run.pcapng").status.code(), Some(3));
    assert!(!lab.at("run.pcapng").exists());
}
