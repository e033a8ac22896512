// SPDX-License-Identifier: Apache-2.0
//! `linkctl fit` on ten million probes: 23 days at five a second. It has a test binary of its
//! own, so that the children's usage is that of the fit.

use crate::baseline_lab::{GEO, INTERVAL_NS, Lab, played, probe_head, probe_row};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs::File;
use std::io::{BufWriter, Write};

const PROBES: u64 = 10_000_000;
/// 2 GB, in the KiB of which the kernel counts.
const MEMORY_KIB: i64 = 2_000_000_000 / 1_024;
const CPU_S: f64 = 60.0;

#[test]
fn ten_million_probes_are_fitted_within_two_gigabytes_and_a_minute() {
    let lab = Lab::new();
    let mut file = BufWriter::with_capacity(1 << 20, File::create(lab.at("link.csv")).unwrap());
    file.write_all(probe_head(INTERVAL_NS).as_bytes()).unwrap();
    let series = played(GEO, PROBES, 1);
    for (number, probe) in (0..).zip(series.iter()) {
        let row = probe_row(number, probe.sent_ns, probe.rtt_ns);
        file.write_all(row.as_bytes()).unwrap();
    }
    file.into_inner().unwrap();
    let lost = series.lost();
    drop(series);

    let before = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let fitted = lab.json("fit link.csv --write mine.toml");
    let after = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    assert_eq!((&fitted["samples"], &fitted["lost"]), (&PROBES.into(), &lost.into()));

    // Of one child alone: it is the first.
    assert_eq!(before.max_rss(), 0, "no other child");
    let micros = [after.user_time(), after.system_time()].map(|time| time.num_microseconds());
    let cpu = micros.iter().sum::<i64>() as f64 / 1e6;
    println!("{} MiB at most, {cpu:.1} s of CPU", after.max_rss() / 1_024);
    assert!(after.max_rss() < MEMORY_KIB, "{} KiB", after.max_rss());
    assert!(cpu < CPU_S, "{cpu} s");
    lab.check("mine.toml");
}
