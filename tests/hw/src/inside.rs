// SPDX-License-Identifier: Apache-2.0
//! A guest that contains the hosts and has virtual time, to compare linkemu with netem.
//!
//! ```text
//!   server ── srv0 ═ wan0 ── linkemu, or a bridge with netem ── sat0 ═ cli0 ── client
//! ```
//!
//! Both hosts are network namespaces of the guest, and a nanosecond passes for each instruction:
//! the figures do not depend on the load of the machine. Such time is exact to some 10 µs, since
//! an instruction of a real processor does not take a nanosecond.

use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use smoke::binaries::Binaries;
use smoke::namespace::Namespace;
use smoke::ping::Pings;

use crate::guest::{Clock, Guest, Options};
use crate::image::Image;
use crate::parts::Parts;

/// Longest real time of a measurement.
const LIMIT: Duration = Duration::from_secs(240);
/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: u64 = 14 + 20 + 8;

#[derive(Debug)]
pub struct Inside {
    guest: Guest,
    _namespace: Namespace,
}

/// A direction of a link, built from the kernel's queueing disciplines.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Parameters of netem.
    pub netem: &'a str,
    /// Parameters of tbf, for a rate behind the delay.
    pub tbf: Option<&'a str>,
}

/// Result of a stream of datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams {
    pub sent: u64,
    /// Datagrams that arrived after one with a higher number.
    pub out_of_order: u64,
    pub lost: u64,
    /// Jitter of RFC 3550, in ms.
    pub jitter_ms: f64,
}

/// Result of a load above the link's rate.
#[derive(Clone, Copy, Debug)]
pub struct Overload {
    /// Received rate of whole frames, in Mb/s.
    pub mbps: f64,
    /// Largest queue, estimated from the wait of the packets that passed it.
    pub queue_bytes: f64,
}

impl Inside {
    /// Boots it with the files of a test.
    pub fn boot(parts: &Parts, binaries: &Binaries, mut files: Image) -> anyhow::Result<Self> {
        let namespace = Namespace::new("desk")?;
        for program in [&binaries.dataplane, &binaries.linkd, &binaries.linkctl] {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            files.program(parts, &name, program)?;
        }
        files.text("etc/rc", include_str!("../guest/inside"), 0o644);
        let options = Options {
            clock: Clock::Virtual,
            memory: 1400,
            devices: Vec::new(),
            modules: &["veth", "bridge", "sch-netem", "sch-tbf", "tcp-hybla"],
            cmdline: "",
        };
        let guest = Guest::boot(parts, &namespace, files, &options)?;
        Ok(Self { guest, _namespace: namespace })
    }

    /// Duration of the boot, in real time.
    #[must_use]
    pub const fn booted(&self) -> Duration {
        self.guest.booted()
    }

    pub const fn guest(&mut self) -> &mut Guest {
        &mut self.guest
    }

    pub fn linkemu(&mut self) -> anyhow::Result<()> {
        self.guest.run(
            "linkd-dataplane --port wan=net_af_packet,iface=wan0 \
             --port client=net_af_packet,iface=sat0 --idle adaptive --memory '320 MiB' \
             --max-clients 2 >/run/accounts 2>/run/dataplane.log & echo $! >/run/dataplane.pid",
        )?;
        self.guest.run(
            "n=0; until [ -S /run/linkemu/dataplane.sock ] || [ $n -ge 100 ]; do sleep 0.2; \
             n=$((n+1)); done; linkd --state /var/lib/linkemu >/run/linkd.log 2>&1 & \
             echo $! >/run/linkd.pid",
        )?;
        self.guest
            .run("n=0; until linkctl stats >/dev/null 2>&1; do n=$((n+1)); [ $n -lt 100 ] || exit 1; sleep 0.2; done")
            .map(drop)
            .map_err(|e| e.context(self.guest.log("/run/dataplane.log")))
    }

    /// Sets a profile of linkemu.
    pub fn profile(&mut self, profile: &str) -> anyhow::Result<()> {
        self.guest.run(&format!("linkctl set profile {profile} --seed 1")).map(drop)
    }

    /// Replaces linkemu by a bridge.
    pub fn bridge(&mut self) -> anyhow::Result<()> {
        self.guest.run(
            "for p in linkd dataplane; do kill $(cat /run/$p.pid); done; \
             while [ -e /proc/$(cat /run/dataplane.pid) ]; do sleep 0.1; done; \
             ip link add bridge0 type bridge && ip link set wan0 master bridge0 && \
             ip link set sat0 master bridge0 && ip link set bridge0 up && sleep 1",
        )?;
        Ok(())
    }

    /// Sets netem in both directions. A token bucket below netem provides a rate that netem itself
    /// does not.
    pub fn netem(&mut self, forward: &Peer<'_>, back: &Peer<'_>) -> anyhow::Result<()> {
        for (interface, peer) in [("sat0", forward), ("wan0", back)] {
            // Fails if there is none.
            self.guest.run(&format!("tc qdisc delete dev {interface} root; true"))?;
            self.guest.run(&format!(
                "tc qdisc add dev {interface} root handle 1: netem {}",
                peer.netem
            ))?;
            if let Some(tbf) = peer.tbf {
                self.guest.run(&format!("tc qdisc add dev {interface} parent 1:1 tbf {tbf}"))?;
            }
        }
        Ok(())
    }

    /// Pings the server from the client.
    pub fn ping(&mut self, count: u32, interval_s: f64) -> anyhow::Result<Pings> {
        let ping = format!(
            "ip netns exec client ping -n -D -c {count} -i {interval_s} -W 5 10.77.0.1; true"
        );
        Ok(Pings::read(&self.guest.run_within(&ping, LIMIT)?, count)?)
    }

    /// Sends evenly spaced datagrams of `bytes` of payload from the client.
    pub fn datagrams(&mut self, bits: u64, bytes: u64, seconds: u32) -> anyhow::Result<Datagrams> {
        let report = self.udp(bits, bytes, seconds, "")?;
        let stream = report
            .pointer("/server_output_json/end/streams/0/udp")
            .with_context(|| format!("no stream in {report}"))?;
        let number = |key: &str| stream.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN);
        Ok(Datagrams {
            sent: number("packets") as u64,
            out_of_order: number("out_of_order") as u64,
            lost: number("lost_packets") as u64,
            jitter_ms: number("jitter_ms"),
        })
    }

    /// Sends more than the link's `rate_bps` to the client, and pings through the queue.
    pub fn overload(&mut self, rate_bps: u64, bytes: u64) -> anyhow::Result<Overload> {
        let idle = self.ping(5, 0.2)?.rtt_ms(0.0);
        self.guest.run(
            "ip netns exec client ping -n -D -c 60 -i 0.1 -W 8 10.77.0.1 >/tmp/pings 2>&1 & \
             echo $! >/run/ping.pid",
        )?;
        let report = self.udp(2 * rate_bps, bytes, 3, "-R")?;
        let pings = "while [ -e /proc/$(cat /run/ping.pid) ]; do sleep 0.1; done; cat /tmp/pings";
        let pings = Pings::read(&self.guest.run_within(pings, LIMIT)?, 60)?;
        let waited_s = (pings.rtt_ms(1.0) - idle) / 1000.0;
        // Over the time in which the queue was never empty.
        let intervals = report.pointer("/intervals").and_then(Value::as_array);
        let of = |i: &Value, key: &str| {
            i.pointer(&format!("/sum/{key}")).and_then(Value::as_f64).unwrap_or(0.0)
        };
        let (got, took) = intervals
            .into_iter()
            .flatten()
            .skip(1)
            .fold((0.0, 0.0), |(b, t), i| (b + of(i, "bytes"), t + of(i, "seconds")));
        let mbps = got * 8e-6 / took * (bytes + HEADERS) as f64 / bytes as f64;
        Ok(Overload { mbps, queue_bytes: waited_s * rate_bps as f64 / 8.0 })
    }

    /// Throughput of a download for each second, in Mb/s.
    pub fn download(&mut self, cc: &str, seconds: u32) -> anyhow::Result<Vec<f64>> {
        let report = self.iperf(&format!("-R -C {cc} -t {seconds} -i 1"))?;
        let intervals = report.pointer("/intervals").and_then(Value::as_array).context("none")?;
        let rate = |i: &Value| i.pointer("/sum/bits_per_second").and_then(Value::as_f64);
        Ok(intervals.iter().filter_map(rate).map(|bps| bps / 1e6).collect())
    }

    fn udp(&mut self, bits: u64, bytes: u64, seconds: u32, more: &str) -> anyhow::Result<Value> {
        self.iperf(&format!("-u -b {bits} -l {bytes} -t {seconds} -i 1 --get-server-output {more}"))
    }

    fn iperf(&mut self, words: &str) -> anyhow::Result<Value> {
        // The server of the previous measurement can still run, and accept this client.
        self.guest.run(
            "n=0; while [ -e /proc/$(cat /run/iperf.pid 2>/dev/null || echo none) ] && \
             [ $n -lt 100 ]; do sleep 0.2; n=$((n+1)); done; \
             ip netns exec server iperf3 -s -1 -J >/dev/null 2>&1 & echo $! >/run/iperf.pid; \
             sleep 0.5",
        )?;
        let said = self
            .guest
            .run_within(&format!("ip netns exec client iperf3 -c 10.77.0.1 -J {words}"), LIMIT)?;
        let report: Value =
            serde_json::from_str(&said).with_context(|| format!("iperf3 wrote {said}"))?;
        if let Some(error) = report.get("error") {
            bail!("iperf3 {words}: {error}");
        }
        Ok(report)
    }
}
