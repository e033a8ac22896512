// SPDX-License-Identifier: Apache-2.0
//! What a dataplane with `--idle adaptive` costs and how late it is, beside one that polls.

use std::fs;
use std::hint;
use std::net::UdpSocket;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use smoke::cpus::Cpus;
use smoke::error::{Result, Trying};
use smoke::namespace::joined;
use smoke::testbed::{Options, SERVER, Testbed};
use smoke::udp::{HEADER_BYTES, Receiver};
use smoke::wait;

use super::{
    Form, SEED, drained, dropped_only_for, emulator, link, on_bed, udp_at, within, written,
};

/// Frames a second, evenly spaced.
const RATE: u64 = 13_000;
/// Bytes of a frame.
const FRAME: usize = 200;
/// The most of a core at [`RATE`], of a development build: in the short form on any machine, in the long one on
/// a quiet one. A worker that polls takes a whole core.
const SHARE: [f64; 2] = [0.8, 0.45];
/// The latest of half of the frames at [`RATE`], and in the long form of 99 %. The worker shares its core with
/// the receiver, which on a slow machine makes more than one frame in a hundred late.
const LATE_US: f64 = 1_000.0;
/// Until the client is resolved and the delay line is full.
const LEAD_IN: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(2);

/// Rates of the long form, which prints the table of docs/capacity.md.
const RATES: [u64; 6] = [0, 1_000, 5_000, RATE, 30_000, 60_000];

/// What was measured of a worker.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Frames a second that it sent.
    rate: f64,
    /// Processor time, as a share of a core.
    share: f64,
    p50_us: f64,
    p99_us: f64,
}

pub fn adaptive_worker_sleeps_and_is_on_time(cpus: &Cpus, form: Form) -> anyhow::Result<()> {
    let of = |adaptive, rate| measure(cpus, adaptive, rate);
    if form == Form::Long {
        println!("    frames/s | busy: core, p50, p99 µs | adaptive: core, p50, p99 µs");
        for rate in RATES {
            let [busy, adaptive] = [of(false, rate)?, of(true, rate)?]
                .map(|m| format!("{:.0} % {:.1} {:.1}", 100.0 * m.share, m.p50_us, m.p99_us));
            println!("    {rate} | {busy} | {adaptive}");
        }
    }
    let measured = of(true, RATE)?;
    let rate = RATE as f64;
    within("frames a second", measured.rate, 0.95 * rate, 1.05 * rate)?;
    within("share of a core", measured.share, 0.0, SHARE[usize::from(form == Form::Long)])?;
    match form {
        Form::Short => within("p50 of lateness, µs", measured.p50_us, 0.0, LATE_US),
        Form::Long => within("p99 of lateness, µs", measured.p99_us, 0.0, LATE_US),
    }
}

/// A link with a delay of 10 ms under a load of `rate` frames a second.
fn measure(cpus: &Cpus, adaptive: bool, rate: u64) -> anyhow::Result<Measured> {
    let mut measured = None;
    on_bed(cpus, Options { adaptive, ..emulator(1) }, |bed| {
        let linkctl = bed.linkctl()?;
        let steady = link("steady", "rate = \"unlimited\"\nqueue.limit = \"1 MB\"");
        linkctl.set_profile(&written(bed, "steady.toml", &steady)?, SEED)?;
        let receiver = Receiver::start(bed.client(), udp_at(bed, 0))?;
        let sender = start(bed, rate, LEAD_IN + 2 * MEASURED);
        wait::until_instant(Instant::now() + LEAD_IN);
        let before = linkctl.mark()?;
        let (began, used) = (Instant::now(), worker_time(bed)?);
        wait::until_instant(began + MEASURED);
        let (took, now_used) = (began.elapsed(), worker_time(bed)?);
        let after = linkctl.stats()?;
        let seconds = (after.time_ns - before.time_ns) as f64 / 1e9;
        let sent = after.packets(|p| p.sent()) - before.packets(|p| p.sent());
        let us = |ns: u64| ns as f64 / 1e3;
        measured = Some(Measured {
            rate: sent as f64 / seconds,
            share: (now_used - used).as_secs_f64() / took.as_secs_f64(),
            p50_us: us(after.lateness().p50_ns),
            p99_us: us(after.lateness().p99_ns),
        });
        let sent = joined(sender)?;
        let stats = drained(&linkctl)?;
        dropped_only_for(&stats, &[])?;
        let arrived = receiver.finish()?.arrivals.len() as u64;
        ensure!(arrived == sent, "{sent} sent, {arrived} arrived");
        Ok(())
    })?;
    measured.context("no measurement")
}

/// A thread that sends so many frames a second from the server. Between them it polls the time, as a
/// sleep is as long as the time between frames. Returns how many it sent.
fn start(bed: &Testbed, rate: u64, length: Duration) -> JoinHandle<Result<u64>> {
    let to = udp_at(bed, 0);
    bed.server().spawn(move || {
        let socket = UdpSocket::bind((SERVER, 0)).trying(|| format!("bind to {SERVER}"))?;
        socket.connect(to).trying(|| format!("connect to {to}"))?;
        let payload = [0; FRAME - HEADER_BYTES];
        let begin = Instant::now();
        let mut sent = 0;
        while rate > 0 && begin.elapsed() < length {
            let due = begin + Duration::from_nanos(sent * 1_000_000_000 / rate);
            while Instant::now() < due {
                hint::spin_loop();
            }
            socket.send(&payload).trying(|| "send a frame".to_owned())?;
            sent += 1;
        }
        Ok(sent)
    })
}

/// Processor time that the bed's worker has used (the first figure of a thread's schedstat, ns).
fn worker_time(bed: &Testbed) -> anyhow::Result<Duration> {
    let pid = bed.dataplane_pid().context("the dataplane does not run")?;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm"))?.trim() == "worker-0" {
            let figures = fs::read_to_string(path.join("schedstat"))?;
            let used = figures.split_whitespace().next().context("an empty schedstat")?;
            return Ok(Duration::from_nanos(used.parse()?));
        }
    }
    anyhow::bail!("no thread worker-0 of process {pid}")
}
