// SPDX-License-Identifier: Apache-2.0
//! One short flow with the real programs, as part of `make smoke`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use repro::link::resolve;
use repro::study::Study;
use repro::{bed, link};
use smoke::binaries::{Binaries, check_machine};
use smoke::cpus::Cpus;
use smoke::suite::{Form, Suite, Timing};

/// 2 MB over a link of 50 Mbit/s and 100 ms.
const STUDY: &str = r#"
    name = "short"
    title = "One short flow"
    source = "none"
    hosts.published = "none"
    hosts.sysctl = { "net.ipv4.tcp_rmem" = "60000000 60000000 60000000" }
    limits = { stall = "5 s", lateness = "5 s", experiment = "1 min", attempts = 1 }
    metrics = { object_bytes = [1_000_000], startup_bytes = 2_000_000 }
    size = { flows = 1, short = 1, pause = "0 s" }
    [link]
    profile = "transparent"
    change.forward = { rate = "50 Mbit/s", queue.limit = "2 MB", delay.base = "50 ms" }
    change.return = { delay.base = "50 ms" }
    [[row]]
    name = "cubic"
    [[row.transfer]]
    tool = "iperf3"
    algorithm = "cubic"
    bytes = 3_000_000
"#;

fn main() -> anyhow::Result<ExitCode> {
    let mut suite = Suite::new("repro")?;
    suite.cpus().keep_to_hosts();
    let cpus = suite.cpus().clone();
    let ready = || check_machine().and(Binaries::find().map(drop));
    let own = cpus.clone();
    suite.add("flow_is_measured_at_the_sender", Form::Short, Timing::RealTime, ready, move || {
        flow_is_measured_at_the_sender(&own)
    });
    suite.add("flow_beyond_a_limit_is_void", Form::Short, Timing::RealTime, ready, move || {
        flow_beyond_a_limit_is_void(&cpus)
    });
    Ok(suite.run())
}

fn attempt(text: &str, cpus: &Cpus) -> anyhow::Result<bed::Attempt> {
    let study = Study::parse(text)?;
    let row = study.row("cubic")?;
    let link: link::Resolved = resolve(&study.link, &row.link, Path::new(""), None)?;
    let attempts = bed::attempts(&study, row, &link, (1, 1), cpus)?;
    attempts.into_iter().next().context("no attempt")
}

fn flow_is_measured_at_the_sender(cpus: &Cpus) -> anyhow::Result<()> {
    let attempt = attempt(STUDY, cpus)?;
    ensure!(attempt.void.is_none(), "{attempt:?}");
    let metric = |name: &str| {
        let value = attempt.metrics.get(name).copied();
        value.with_context(|| format!("no {name} in {:?}", attempt.metrics))
    };
    // Six round trips of slow start and iperf3's own exchange.
    let (object, rtt) = (metric("object_1mb_s")?, metric("rtt_mean_ms")?);
    ensure!((0.5..5.0).contains(&object), "1 MB took {object} s");
    ensure!((100.0..1000.0).contains(&rtt), "the round trip took {rtt} ms");
    let goodput = metric("goodput_mbps")?;
    ensure!((3.0..50.0).contains(&goodput), "{goodput} Mbit/s of 50");
    ensure!(metric("retransmitted_share")? < 0.5, "{:?}", attempt.metrics);
    ensure!(attempt.certificate["holds"] == true, "{}", attempt.certificate);
    Ok(())
}

fn flow_beyond_a_limit_is_void(cpus: &Cpus) -> anyhow::Result<()> {
    let attempt = attempt(&STUDY.replace("stall = \"5 s\"", "stall = \"0 s\""), cpus)?;
    let reason = attempt.void.context("no stall is permitted, and the flow is valid")?;
    ensure!(reason.contains("stall"), "{reason}");
    ensure!(attempt.metrics.contains_key("goodput_mbps"), "{:?}", attempt.metrics);
    Ok(())
}
