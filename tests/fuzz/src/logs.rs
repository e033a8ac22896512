// SPDX-License-Identifier: Apache-2.0
//! Measurements: logs of probes, captures, flows.

use fit::fitted::{self, fit};
use fit::read::{self, Limits, Options};
use fit::traffic::flow::Algorithm;
use fit::traffic::read::TrafficFile;
use profile::Profile;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::entropy::Entropy;
use crate::with_file;

/// Probes of a log that are fitted: more take seconds.
const PROBES: usize = 3_000;

/// A baseline's file, in any format. A table is read with the columns that the message about it
/// proposes.
///
/// # Panics
/// If these are not found in it.
pub fn log(data: &[u8]) {
    with_file(data, |path| {
        let read = |options: &Options| read::read(path, options);
        let Err(read::ReadError::ColumnsNotNamed { guess, .. }) = read(&Options::default()) else {
            return;
        };
        let Ok(columns) = guess.parse() else { panic!("{guess:?} is proposed, and no mapping") };
        let named = read(&Options { columns: Some(columns), ..Options::default() });
        if let Err(error @ read::ReadError::NoColumn { .. }) = named
            && !guess.contains("NAME")
        {
            panic!("{guess:?} is proposed: {error}");
        }
    });
}

/// A log that is drawn from the bytes, and the profile that fits it, which is valid.
///
/// # Panics
/// If it is not.
pub fn estimate(data: &[u8]) {
    let text = drawn(data);
    let columns = "sent=1:ms,rtt=2:us,seq=3".parse().ok();
    let limits = Limits { probes: PROBES, bytes: 1 << 20 };
    let options = Options { columns, limits, ..Options::default() };
    with_file(text.as_bytes(), |path| {
        let Ok(input) = read::read(path, &options) else { return };
        let Ok(fitted) = fit(&input, &fitted::Options::new("fuzz")) else { return };
        let written = fitted.profile.to_toml();
        if let Err(error) = Profile::from_toml(&written) {
            panic!("what was fitted is refused: {error}\n{written}");
        }
    });
}

/// Rows of a time in ms, a round trip in µs, and a number. The bytes give runs of losses, levels,
/// spikes and pauses, which are repeated.
fn drawn(data: &[u8]) -> String {
    let mut from = Entropy::new(data);
    let interval = [1, 10, 20, 200, 1_000, 60_000][from.below(6)];
    let repeats = 1 + from.below(20);
    let scale = 10_u64.pow(from.below(7) as u32);
    let (mut text, mut at, mut number, mut level) = (String::new(), 0_u64, 0_u64, 20_u64);
    let events = data.get(3..).unwrap_or_default();
    for event in events.iter().cycle().take(events.len() * repeats) {
        let count = usize::from(event % 16) + 1;
        match event / 16 {
            0 => at += interval * count as u64,
            1 => number += count as u64,
            2 | 3 => {
                for _ in 0..count {
                    let _ = writeln!(text, "{at},,{number}");
                    (at, number) = (at + interval, number + 1);
                }
            }
            4 => level = 1 + count as u64 * scale,
            5 => {
                let _ = writeln!(text, "{at},{},{number}", level * 1_000);
                (at, number) = (at + interval, number + 1);
            }
            kind => {
                for n in 0..count as u64 {
                    let rtt = level + n * n * kind as u64 % 7;
                    let _ = writeln!(text, "{at},{rtt},{number}");
                    (at, number) = (at + interval, number + 1);
                }
            }
        }
    }
    text
}

/// Two captures of the same packets: after a byte with 64ths, the first capture has so many of the
/// bytes.
///
/// # Panics
/// If a packet is counted in no step, or a step is impossible.
pub fn pair(data: &[u8]) {
    let Some((share, bytes)) = data.split_first() else { return };
    let (before, after) = bytes.split_at(bytes.len() * usize::from(*share).min(64) / 64);
    with_file(before, |before| {
        with_file(after, |after| {
            for offset in [0, -1_000_000, i64::MAX] {
                let Ok(pair) = trace::read_pair(before, after, 1_000_000, offset) else { continue };
                let counted: u64 = pair.steps.iter().map(|step| step.packets).sum();
                assert_eq!(counted, pair.delivered + pair.lost, "{pair:?}");
                let shares = pair.steps.iter().all(|step| (0.0..=1.0).contains(&step.loss));
                assert!(shares, "{pair:?}");
            }
        });
    });
}

/// Traffic: figures, iperf3's JSON, a capture.
pub fn traffic(data: &[u8]) {
    with_file(data, |path| {
        for algorithm in [None, Some(Algorithm::Cubic)] {
            let file = TrafficFile { path: PathBuf::from(path), algorithm };
            let _ = fit::traffic::read::read(&[file.clone(), file]);
        }
    });
}
