// SPDX-License-Identifier: Apache-2.0
//! Traces of mahimahi from their file to the frames of an engine, against a simulation of
//! mahimahi's link in steps of a millisecond (`link_queue.cc`): the same frames leave at the same
//! millisecond, and no byte is gained or lost.
//!
//! `LINKEMU_MAHIMAHI` is a folder of traces for the long form, such as `traces` of mahimahi's
//! repository. It prints a line per trace.

use crate::compile;
use emu::engine::{Departure, Engine, Limits};
use emu::rng::{Stage, Stream, StreamKey};
use emu::units::{Direction, Instant, Nanos};
use proto::dataplane::v1 as pb;
use proto::linkemu::v1 as model;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

const MS: u64 = 1_000_000;
const BYTES: u64 = 1_504;
const FORWARD: Direction = Direction::Forward;
/// Frames that wait while the link is saturated.
const BACKLOG: usize = 4_096;
/// mahimahi counts a packet of IP and 4 bytes of its interface: an Ethernet frame less 10.
const OVERHEAD: i32 = -10;

/// Arrival in nanoseconds and length of a frame.
type Arrival = (u64, u32);

/// Milliseconds of the opportunities until and including `until`, with the repetitions. Nothing is
/// there yet for those at zero.
fn opportunities(path: &Path, until: u64) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    let period = *lines.last().unwrap();
    let turns = (0..).map(|turn| turn * period).take_while(|base| *base <= until);
    turns
        .flat_map(|base| lines.iter().map(move |ms| base + ms))
        .filter(|ms| (1..=until).contains(ms))
        .collect()
}

/// Milliseconds at which frames leave, and their lengths. With `BACKLOG` frames always waiting the
/// arrivals are ignored.
fn reference(opportunities: &[u64], arrivals: &[Arrival], saturated: bool) -> Vec<(u64, u32)> {
    let mut coming = arrivals.iter().copied().peekable();
    let mut waiting: VecDeque<(u32, u64)> = VecDeque::new();
    let mut left = Vec::new();
    for ms in opportunities {
        while let Some((_, len)) = coming.next_if(|frame| match saturated {
            true => waiting.len() < BACKLOG,
            false => frame.0 < ms * MS,
        }) {
            waiting.push_back((len, (i64::from(len) + i64::from(OVERHEAD)).unsigned_abs()));
        }
        let mut room = BYTES;
        while room > 0
            && let Some((len, bytes)) = waiting.front_mut()
        {
            let sent = room.min(*bytes);
            (room, *bytes) = (room - sent, *bytes - sent);
            if *bytes == 0 {
                left.push((*ms, *len));
                waiting.pop_front();
            }
        }
    }
    left
}

fn engine(path: &Path) -> Engine {
    let file = profile::read_trace(path, None).unwrap();
    let mut profile = profile::Catalog::built_in().get("transparent").unwrap().as_proto().clone();
    let pipe = profile.forward_pipe.as_mut().unwrap();
    (pipe.rate_bps, pipe.rate_trace) = (None, Some(file.trace));
    pipe.overhead_bytes = OVERHEAD;
    pipe.queue = Some(model::Queue { limit_bytes: 64 << 20, ..Default::default() });
    let plan = pb::Plan { profile: Some(profile), seed: 1, ..Default::default() };
    let plan = compile(&plan).unwrap_or_else(|violations| panic!("{violations}"));
    Engine::new(Limits::copying(256 << 20, 1, 1514), plan, Instant::ZERO).unwrap()
}

/// The same as [`reference`], of an engine.
fn emulated(path: &Path, arrivals: &[Arrival], saturated: bool, until: u64) -> Vec<(u64, u32)> {
    let mut engine = engine(path);
    let mut frame = [0; 1514];
    frame[12..14].copy_from_slice(&[8, 0]);
    let mut left = Vec::new();
    let mut coming = arrivals.iter().copied().peekable();
    let until = Instant(until * MS);
    let arrive = |engine: &mut Engine, at: Instant, len: u32| {
        engine.arrive(at, FORWARD, &frame[..len as usize]);
    };
    if saturated {
        for _ in 0..BACKLOG {
            let Some((_, len)) = coming.next() else { break };
            arrive(&mut engine, Instant::ZERO, len);
        }
    }
    loop {
        let due = engine.next_deadline().unwrap_or(Instant::MAX);
        if !saturated && let Some((at, len)) = coming.next_if(|frame| frame.0 <= due.0) {
            arrive(&mut engine, Instant(at), len);
            continue;
        }
        if due > until {
            return left;
        }
        let before = left.len();
        engine.release(due, usize::MAX, &mut |departure: Departure<'_>| {
            left.push((departure.due.0, departure.bytes().len() as u32));
            true
        });
        if saturated {
            for _ in before..left.len() {
                let Some((_, len)) = coming.next() else { break };
                arrive(&mut engine, due, len);
            }
        }
    }
}

/// Frames with independent lengths and exponential gaps of `mean` nanoseconds.
fn traffic(mean: Nanos, count: usize, sizes: &[u32]) -> Vec<Arrival> {
    let client = emu::client::ClientKey::Default;
    let key = StreamKey { seed: 7, client, direction: FORWARD, epoch: 0 };
    let mut stream = Stream::new(key, Stage::Corrupt, 0);
    let mut at = 0;
    let frames = (0..count).map(|_| {
        at += stream.exponential(mean).0;
        (at, sizes[stream.below(Nanos(sizes.len() as u64)).0 as usize])
    });
    frames.collect()
}

/// Compares a trace for `seconds`; returns a line about it.
fn compare(path: &Path, seconds: u64) -> String {
    let until = seconds * 1_000;
    let opportunities = opportunities(path, until);
    let full = [1514];
    let mixed = [60, 90, 590, 1400, 1514, 1514];
    let each = opportunities.len();
    let mean = seconds * 1_000_000_000 / each as u64;
    let mut line = format!("{}: {each} opportunities", path.file_name().unwrap().display());
    for (name, saturated, arrivals) in [
        ("full frames", true, traffic(Nanos(1), each + BACKLOG, &full)),
        ("mixed frames", true, traffic(Nanos(1), each * 3 + BACKLOG, &mixed)),
        ("sparse", false, traffic(Nanos(mean * 10), each / 10, &mixed)),
        ("half the rate", false, traffic(Nanos(mean * 2), each / 2, &mixed)),
    ] {
        let expected = reference(&opportunities, &arrivals, saturated);
        let found = emulated(path, &arrivals, saturated, until);
        let bytes = |left: &[(u64, u32)]| left.iter().map(|(_, len)| u64::from(*len)).sum::<u64>();
        let off = expected.iter().zip(&found).map(|(a, b)| (a.0 * MS).abs_diff(b.0)).max();
        let (sent, off) = (bytes(&found), off.unwrap_or(0));
        assert_eq!((found.len(), sent), (expected.len(), bytes(&expected)), "{line}, {name}");
        assert!(off == 0, "{line}, {name}: {off} ns off");
        if name == "full frames" {
            // Each opportunity serves a frame of its size.
            assert_eq!(found.len(), each, "{line}");
        }
        line += &format!("; {name} {} packets, {sent} bytes, {off} ns off", found.len());
    }
    line
}

/// Writes a trace in which a good and a bad state alternate, in bursts of 2.5 to 10 ms.
fn synthetic(path: &Path, seconds: u64) {
    let mut text = String::new();
    let mut ms = 0;
    let draws = traffic(Nanos(1), (seconds * 200) as usize, &[0, 1, 2, 3, 5, 8, 41]);
    for (i, (_, burst)) in draws.iter().enumerate() {
        ms += if i / 500 % 3 == 2 { 40 } else { u64::from(*burst % 7 + 1) };
        text += &format!("{ms}\n").repeat(*burst as usize);
    }
    text += &format!("{}\n", ms + 1);
    std::fs::write(path, text).unwrap();
}

#[test]
fn every_opportunity_serves_at_its_millisecond() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("synthetic");
    synthetic(&path, 3);
    // Several turns.
    compare(&path, 20);
    std::fs::write(&path, "0\n0\n1\n").unwrap();
    compare(&path, 2);
    std::fs::write(&path, "1\n").unwrap();
    compare(&path, 2);
}

#[test]
#[ignore = "part of soak: minutes"]
fn every_opportunity_of_a_folder_serves_at_its_millisecond_for_ten_minutes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("synthetic");
    synthetic(&path, 300);
    let mut paths = vec![path];
    if let Some(folder) = std::env::var_os("LINKEMU_MAHIMAHI") {
        let files = std::fs::read_dir(PathBuf::from(folder)).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let ends = ["down", "up"];
        paths.extend(
            files.filter(|path| ends.iter().any(|end| path.extension() == Some(end.as_ref()))),
        );
        paths.sort();
    }
    for path in paths {
        println!("{}", compare(&path, 600));
    }
}
