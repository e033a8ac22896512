// SPDX-License-Identifier: Apache-2.0
//! Memory and CPU time of `linkctl fit` on long logs: ten million probes are 23 days at five a
//! second.

use crate::baseline_lab::{GEO, INTERVAL_NS, Lab, played, probe_head, probe_row};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use procfs::process::Process;
use serde_json::Value;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::Stdio;
use std::time::Duration;

/// 2 GB for ten million probes, in KiB as the kernel counts.
const KIB_PER_MILLION: u64 = 200_000_000 / 1_024;
/// Memory of the program for any log: its text, the heap's arenas and the reader's buffers.
const KIB_ANYWAY: u64 = 64 << 10;
/// A minute for ten million probes.
const CPU_S_PER_MILLION: f64 = 6.0;

/// Peak resident memory of a process, in KiB; none once it has ended.
fn peak_kib(pid: i32) -> Option<u64> {
    Process::new(pid).ok()?.status().ok()?.vmhwm
}

/// CPU time of a process that has ended and was not waited for, in seconds.
fn cpu_s(pid: i32) -> f64 {
    let stat = Process::new(pid).unwrap().stat().unwrap();
    (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64
}

/// Fits a log of so many millions of probes, and holds its memory and CPU time to their limits.
fn fit_stays_within_its_limits(millions: f64) {
    let probes = (millions * 1e6) as u64;
    let lab = Lab::new();
    let mut file = BufWriter::with_capacity(1 << 20, File::create(lab.at("link.csv")).unwrap());
    file.write_all(probe_head(INTERVAL_NS).as_bytes()).unwrap();
    let series = played(GEO, probes, 1);
    for (number, probe) in (0..).zip(series.iter()) {
        let row = probe_row(number, probe.sent_ns, probe.rtt_ns);
        file.write_all(row.as_bytes()).unwrap();
    }
    file.into_inner().unwrap();
    let lost = series.lost();
    drop(series);

    let out = File::create(lab.at("out.json")).unwrap();
    let mut command = lab.command("-o json fit link.csv --write mine.toml");
    let mut child = command.stdout(Stdio::from(out)).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let mut peak = 0;
    // The peak never falls, so the last reading before the end is close to the final peak.
    while let Some(kib) = peak_kib(pid) {
        peak = kib;
        std::thread::sleep(Duration::from_millis(5));
    }
    waitid(Id::Pid(Pid::from_raw(pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    let cpu = cpu_s(pid);
    assert!(child.wait().unwrap().success());

    let fitted: Value = serde_json::from_str(&lab.read("out.json")).unwrap();
    assert_eq!((&fitted["samples"], &fitted["lost"]), (&probes.into(), &lost.into()));
    println!("{} MiB at most, {cpu:.1} s of CPU", peak >> 10);
    let most = (millions * KIB_PER_MILLION as f64) as u64 + KIB_ANYWAY;
    assert!((1..most).contains(&peak), "{peak} KiB of {most}");
    assert!(cpu < millions * CPU_S_PER_MILLION, "{cpu} s");
    lab.check("mine.toml");
}

#[test]
fn one_million_probes_are_fitted_within_a_tenth_of_two_gigabytes_and_six_seconds() {
    fit_stays_within_its_limits(1.0);
}

#[test]
#[ignore = "long form: make soak PART=unit"]
fn ten_million_probes_are_fitted_within_two_gigabytes_and_a_minute() {
    fit_stays_within_its_limits(10.0);
}
