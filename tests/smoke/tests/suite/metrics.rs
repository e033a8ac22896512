// SPDX-License-Identifier: Apache-2.0
//! `/metrics` of a link that carries traffic.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use smoke::binaries::monitoring_tool;
use smoke::cpus::Cpus;
use smoke::process::Process;
use smoke::testbed::Testbed;
use smoke::wait;

use super::{Delivery, SEED, deliver, emulator, flows_to, on_bed};

const LIMIT: Duration = Duration::from_secs(30);

/// Starts another linkd with metrics, and returns their address.
fn exporter(bed: &Testbed) -> anyhow::Result<(Process, SocketAddr)> {
    let (linkd, _) = bed.another_linkd("metrics.sock", &["--metrics", "127.0.0.1:0"])?;
    let address = wait::until("the address of the metrics", LIMIT, || {
        let log = linkd.stderr();
        let words = log.split(|c: char| c.is_whitespace() || c == '=');
        Ok(words.filter_map(|word| word.parse().ok()).next())
    })?;
    Ok((linkd, address))
}

fn scrape(address: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.contains(" 200 "), "{head}");
    Ok(body.to_owned())
}

fn value(scraped: &str, series: &str) -> anyhow::Result<f64> {
    let line = scraped.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    Ok(line.with_context(|| format!("no {series} in\n{scraped}"))?.parse()?)
}

pub fn scrape_matches_linkctl_and_resets_nothing(cpus: &Cpus) -> anyhow::Result<()> {
    on_bed(cpus, emulator(1), |bed| {
        let linkctl = bed.linkctl()?;
        linkctl.set_profile("viasat2", SEED)?;
        let (_linkd, address) = exporter(bed)?;
        let Delivery { stats, .. } = deliver(bed, flows_to(bed, 1, 200_000_000, 2))?;
        scrape(address)?;
        let scraped = scrape(address)?;
        let client = bed.client_address(0).to_string();
        let forward = stats.client(&client)?.forward();
        let of = |name: &str| {
            value(
                &scraped,
                &format!(
                    "linkemu_{name}{{link=\"main\",client=\"{client}\",direction=\"forward\"}}"
                ),
            )
        };
        ensure!(forward.queue_max_bytes > 1_000_000, "the queue never filled: {forward:?}");
        for (name, expected) in [
            ("received_packets_total", forward.received().packets),
            ("sent_bytes_total", forward.sent().bytes),
            ("queue_high_water_bytes", forward.queue_max_bytes),
            ("held_packets", 0),
        ] {
            ensure!(of(name)? == expected as f64, "{name} is {}, not {expected}", of(name)?);
        }
        ensure!(value(&scraped, "linkemu_dataplane_up")? == 1.0);
        ensure!(
            value(&scraped, "linkemu_config_info{link=\"main\",profile=\"viasat2\",seed=\"20\"}")?
                == 1.0
        );
        checked(&scraped)?;
        bed.kill_dataplane()?;
        let down = scrape(address)?;
        ensure!(value(&down, "linkemu_dataplane_up")? == 0.0, "{down}");
        checked(&down)?;
        // The test bed reads its final counters at the end.
        bed.start_dataplane()?;
        let back = wait::until("the dataplane's return", LIMIT, || {
            let up = scrape(address).and_then(|text| value(&text, "linkemu_dataplane_up"));
            Ok(up.ok().filter(|up| *up == 1.0))
        })?;
        ensure!(back == 1.0);
        Ok(())
    })
}

fn checked(scraped: &str) -> anyhow::Result<()> {
    let Some(promtool) = monitoring_tool("promtool")? else { return Ok(()) };
    let mut child = std::process::Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("no way in")?.write_all(scraped.as_bytes())?;
    let output = child.wait_with_output()?;
    let findings = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    ensure!(output.status.success() && findings.is_empty(), "promtool check metrics: {findings}");
    Ok(())
}
