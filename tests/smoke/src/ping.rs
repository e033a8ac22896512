// SPDX-License-Identifier: Apache-2.0
//! Runs the kernel's ping and parses its replies.

use std::net::Ipv4Addr;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex::Regex;
use statrs::statistics::{Data, OrderStatistics};

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::process::{Outcome, Process};
use crate::series::out_of_order;
use crate::wait;

/// Line of iputils with `-D` for each reply.
#[expect(clippy::expect_used, reason = "a constant, covered by the tests")]
static REPLY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?m)^\[(\d+\.\d+)\] \d+ bytes from \S+ icmp_seq=(\d+) ttl=\d+ time=([\d.]+) ms(.*)$",
    )
    .expect("the pattern is well-formed")
});

#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Arrival, in seconds since the epoch.
    pub at: f64,
    pub seq: u32,
    /// Round-trip time. From 100 ms on, ping rounds to milliseconds.
    pub rtt_ms: f64,
    /// Whether ping had received this number before.
    pub duplicate: bool,
}

/// Replies to a series of pings, in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub struct Pings {
    pub sent: u32,
    pub replies: Vec<Reply>,
    /// Replies that came after one with a higher number, within each series.
    pub out_of_order: usize,
}

#[derive(Debug)]
pub struct Ping {
    process: Process,
    count: u32,
    limit: Duration,
}

impl Ping {
    /// Starts `count` pings from an address in a namespace, of the length of those in the baselines: longer
    /// ones do not fit into the constant burst of a satellite terminal.
    pub fn start(
        from: &Namespace,
        source: Ipv4Addr,
        to: Ipv4Addr,
        count: u32,
        interval: Duration,
    ) -> Result<Self> {
        let command = from.command(&[
            "ping",
            "-n",
            "-D",
            "-s",
            "20",
            "-c",
            &count.to_string(),
            "-i",
            &format!("{:.3}", interval.as_secs_f64()),
            "-W",
            "5",
            "-I",
            &source.to_string(),
            &to.to_string(),
        ]);
        let limit = interval * count + Duration::from_secs(30);
        Ok(Self { process: Process::spawn(command)?, count, limit })
    }

    #[must_use]
    pub fn replies(&self) -> usize {
        self.process.stdout().matches("icmp_seq=").count()
    }

    /// Waits for the last reply and parses all of them. Lost replies are no error.
    pub fn finish(self) -> Result<Pings> {
        let outcome: Outcome = self.process.finish(self.limit)?;
        // Exit code 1: a reply is missing. 2: another error.
        if outcome.code() > 1 {
            outcome.clone().success()?;
        }
        Pings::read(&outcome.stdout, self.count)
    }

    /// Ends a ping, and parses the replies so far.
    pub fn stop(mut self) -> Result<Pings> {
        self.process.signal(nix::sys::signal::Signal::SIGINT);
        self.process.wait(Duration::from_secs(15))?;
        Pings::read(&self.process.stdout(), self.count)
    }
}

impl Pings {
    pub fn read(output: &str, sent: u32) -> Result<Self> {
        let wrong = |what: &str| Error::parse("a reply of ping", format!("{what} in {output}"));
        let mut replies = Vec::new();
        for found in REPLY.captures_iter(output) {
            let (_, [at, seq, rtt, rest]) = found.extract();
            replies.push(Reply {
                at: at.parse().map_err(|_| wrong("no time"))?,
                seq: seq.parse().map_err(|_| wrong("no sequence number"))?,
                rtt_ms: rtt.parse().map_err(|_| wrong("no round-trip time"))?,
                duplicate: rest.contains("DUP!"),
            });
        }
        if replies.len()
            != output.lines().filter(|l| l.contains("icmp_seq=") && l.contains("time=")).count()
        {
            return Err(wrong("a line of another form"));
        }
        let out_of_order = out_of_order(replies.iter().map(|r| r.seq));
        Ok(Self { sent, replies, out_of_order })
    }

    #[must_use]
    pub fn duplicates(&self) -> usize {
        self.replies.iter().filter(|r| r.duplicate).count()
    }

    #[must_use]
    pub fn lost(&self) -> usize {
        (self.sent as usize).saturating_sub(self.replies.len() - self.duplicates())
    }

    /// A quantile of the round-trip times; NaN without replies.
    #[must_use]
    pub fn rtt_ms(&self, share: f64) -> f64 {
        let mut rtts = Data::new(self.replies.iter().map(|r| r.rtt_ms).collect::<Vec<_>>());
        rtts.quantile(share)
    }

    /// Share of replies with a round-trip time within the bounds, inclusive.
    #[must_use]
    pub fn share_within(&self, low_ms: f64, high_ms: f64) -> f64 {
        let within = self.replies.iter().filter(|r| (low_ms..=high_ms).contains(&r.rtt_ms)).count();
        within as f64 / self.replies.len().max(1) as f64
    }
}

/// Several simultaneous series of pings that start at different phases of a link's slot.
///
/// A link with slots of 43 ms adds a wait that depends on the phase at which a ping arrives. A
/// single series can beat with the slot and sample only three phases. Neither ping nor the kernel
/// keeps an interval to the millisecond, so no interval avoids that. Series with the same interval
/// keep their distances to each other: if their starts are spread over the slot, they stay spread.
#[derive(Debug)]
pub struct Survey(Vec<Ping>);

impl Survey {
    pub const SERIES: u32 = 20;
    const INTERVAL: Duration = Duration::from_secs(1);
    /// Time between the starts of two series: one slot of 41.4 ms (profile `viasat2`) and the
    /// golden section of another slot, which spreads any number of starts evenly.
    const STEP: Duration = Duration::from_micros(67_030);

    /// Starts the series, of `count` pings each. Returns after the last one has started.
    pub fn start(from: &Namespace, source: Ipv4Addr, to: Ipv4Addr, count: u32) -> Result<Self> {
        let begin = Instant::now();
        let start = |series| {
            wait::until_instant(begin + Self::STEP * series);
            Ping::start(from, source, to, count, Self::INTERVAL)
        };
        Ok(Self((0..Self::SERIES).map(start).collect::<Result<_>>()?))
    }

    /// Time to send all pings, from the call of [`start`](Self::start).
    #[must_use]
    pub fn duration(count: u32) -> Duration {
        Self::STEP * Self::SERIES + Self::INTERVAL * count
    }

    #[must_use]
    pub fn replies(&self) -> usize {
        self.0.iter().map(Ping::replies).sum()
    }

    /// Waits for all replies of all series.
    pub fn finish(self) -> Result<Pings> {
        let mut all = Pings::default();
        for ping in self.0 {
            let series = ping.finish()?;
            all.sent += series.sent;
            all.replies.extend(series.replies);
            all.out_of_order += series.out_of_order;
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::Pings;

    const OUTPUT: &str = "\
PING 10.77.0.1 (10.77.0.1) from 10.77.0.10 : 56(84) bytes of data.
[1700000000.100000] 64 bytes from 10.77.0.1: icmp_seq=1 ttl=64 time=0.041 ms
[1700000000.300000] 64 bytes from 10.77.0.1: icmp_seq=3 ttl=64 time=597 ms
[1700000000.300100] 64 bytes from 10.77.0.1: icmp_seq=2 ttl=64 time=600.5 ms
[1700000000.300200] 64 bytes from 10.77.0.1: icmp_seq=2 ttl=64 time=601 ms (DUP!)
";

    #[test]
    fn replies_are_parsed_with_order_losses_and_duplicates() {
        let pings = Pings::read(OUTPUT, 4).expect("this is ping's output");
        assert_eq!(pings.replies.len(), 4);
        assert_eq!((pings.out_of_order, pings.duplicates(), pings.lost()), (2, 1, 1));
        assert!((pings.share_within(590.0, 600.0) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn reply_of_unknown_form_is_an_error() {
        assert!(Pings::read("64 bytes: icmp_seq=1 time=0.1 s\n", 1).is_err());
    }
}
