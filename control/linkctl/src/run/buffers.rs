// SPDX-License-Identifier: Apache-2.0
//! TCP buffers of a run's hosts, with which one connection can fill the link.
//!
//! A connection has at most a bandwidth-delay product of the link in flight, and its queue. The kernel
//! charges a packet's buffers, about twice its bytes, against `net.ipv4.tcp_rmem` and `tcp_wmem`: hence
//! twice the product. Both belong to a network namespace. The limits of all namespaces together
//! (`tcp_mem`) and those of other sockets (`net.core.rmem_max`) belong to the machine, and stay.

use proto::linkemu::v1 as pb;
use serde::{Deserialize, Serialize};
use std::fs;

/// Rate of a link without one: an emulator on a core reaches about as much.
const UNLIMITED_BPS: u64 = 1_000_000_000;
/// The kernel keeps them in 32 bits with a sign.
const MOST: u64 = i32::MAX as u64;
const SECOND: u64 = 1_000_000_000;
/// Sizes are multiples of it, in bytes.
const ROUND: u64 = 100_000;

/// What `--buffers` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// As the link needs them.
    Link,
    /// Those of the machine.
    Keep,
    /// In bytes.
    Size(u64),
}

impl Buffers {
    /// # Errors
    /// If it is none of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "link" => Ok(Self::Link),
            "keep" => Ok(Self::Keep),
            text => match profile::parse_size(text) {
                Ok(bytes) if (4096..=MOST).contains(&bytes) => Ok(Self::Size(bytes)),
                Ok(bytes) => Err(format!("{bytes} B is outside of 4096 B to {MOST} B")),
                Err(error) => Err(format!("{error}; or give link or keep")),
            },
        }
    }
}

/// The largest buffers of a connection, in bytes: the third numbers of `tcp_rmem` and `tcp_wmem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    pub receive: u64,
    pub send: u64,
}

impl Sizes {
    /// Those of this process's network namespace. A namespace begins with those of the first one.
    pub fn current() -> Self {
        let of = |key: &str| {
            let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{key}")).unwrap_or_default();
            text.split_whitespace().nth(2).and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        Self { receive: of("tcp_rmem"), send: of("tcp_wmem") }
    }

    /// Those of the hosts of a link, and whether they differ from the current ones. They are never
    /// smaller than these unless the user says so. `None`: as the kernel sets them.
    pub fn of(wanted: Buffers, link: &pb::Profile, current: Self) -> Option<Self> {
        match wanted {
            Buffers::Keep => None,
            Buffers::Size(bytes) => Some(Self { receive: bytes, send: bytes }),
            Buffers::Link => {
                let needed = of_link(link);
                Some(Self { receive: current.receive.max(needed), send: current.send.max(needed) })
            }
        }
    }

    /// A message for the user.
    pub fn text(self, wanted: Buffers) -> String {
        let size = |bytes| profile::format_size(bytes);
        let sizes = match self {
            Self { receive, send } if receive == send => format!("up to {}", size(receive)),
            Self { receive, send } => {
                format!("up to {} to receive, {} to send", size(receive), size(send))
            }
        };
        match wanted {
            Buffers::Link => format!(
                "TCP buffers of both hosts: {sizes}: twice the link's bandwidth-delay product, and its \
                 queue (--buffers keep: no)"
            ),
            _ => format!("TCP buffers of both hosts: {sizes}"),
        }
    }
}

/// Twice the bandwidth-delay product, and the queue, of the direction that needs more.
pub fn of_link(link: &pb::Profile) -> u64 {
    let pipes = || [&link.forward_pipe, &link.return_pipe].into_iter().flatten();
    let round_trip_ns: u64 = pipes().map(delay_ns).sum();
    let needed = pipes().map(|pipe| {
        let rate = peak_bps(pipe);
        let bits = u128::from(rate.unwrap_or(UNLIMITED_BPS)) * u128::from(round_trip_ns);
        let product = u64::try_from(bits / 8 / u128::from(SECOND)).unwrap_or(MOST);
        // Without a rate nothing waits in the queue.
        let queue = pipe.queue.as_ref().filter(|_| rate.is_some()).map_or(0, |q| q.limit_bytes);
        product.saturating_mul(2).saturating_add(queue)
    });
    needed.max().unwrap_or(0).min(MOST - ROUND).next_multiple_of(ROUND)
}

/// The largest delay of a direction, without jitter.
fn delay_ns(pipe: &pb::Pipe) -> u64 {
    let most = |delays: &[u64]| delays.iter().copied().max().unwrap_or(0);
    let base = pipe.delay.as_ref().map_or(0, |delay| delay.base_ns + delay.slot_ns);
    let superframe = pipe.access.as_ref().map_or(0, |access| access.superframe_ns);
    let path = pipe.path_trace.as_ref().map_or(0, |trace| most(&trace.delays_ns));
    let period = pipe.reconfiguration.as_ref().map_or(0, |r| most(&r.delays_ns));
    base + superframe + path + period
}

/// The highest rate of a direction; `None` if it is not limited.
fn peak_bps(pipe: &pb::Pipe) -> Option<u64> {
    let Some(trace) = &pipe.rate_trace else { return pipe.rate_bps };
    match &trace.opportunities {
        Some(opportunities) => Some(busiest_second_bps(trace.step_ns, opportunities)),
        None => trace.rates_bps.iter().copied().max(),
    }
}

/// The rate of the second with the most opportunities; of a shorter trace, its mean.
fn busiest_second_bps(step_ns: u64, of: &pb::Opportunities) -> u64 {
    let (mut at_ns, mut second, mut bytes, mut most, mut total) = (0_u64, 0, 0_u64, 0, 0_u64);
    for (steps, count) in profile::opportunity_runs(&of.runs) {
        at_ns = at_ns.saturating_add(steps.saturating_mul(step_ns));
        let added = count * u64::from(of.size_bytes);
        if at_ns / SECOND != second {
            (second, bytes) = (at_ns / SECOND, 0);
        }
        bytes += added;
        total += added;
        most = most.max(bytes);
    }
    match at_ns {
        0 => 0,
        SECOND.. => most * 8,
        _ => (u128::from(total) * 8 * u128::from(SECOND) / u128::from(at_ns)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built_in(name: &str) -> pb::Profile {
        profile::Catalog::built_in().get(name).unwrap().as_proto().clone()
    }

    #[test]
    fn link_with_rate_needs_twice_its_product_and_its_queue() {
        // 2 × 144 Mbit/s × 616 ms / 8 + 36 MB, rounded.
        assert_eq!(of_link(&built_in("viasat2")), 58_200_000);
    }

    #[test]
    fn link_without_rate_counts_as_a_gigabit_per_second_without_queue() {
        assert_eq!(of_link(&built_in("geo-600")), 2 * 125_000_000 * 6 / 10);
        assert_eq!(of_link(&built_in("transparent")), 0);
    }

    #[test]
    fn rate_trace_counts_with_its_highest_rate() {
        let pipe = |trace| pb::Pipe {
            delay: Some(pb::Delay { base_ns: 50_000_000, ..Default::default() }),
            rate_trace: Some(trace),
            ..Default::default()
        };
        let rates = pb::RateTrace {
            step_ns: SECOND,
            rates_bps: vec![8_000_000, 80_000_000, 0],
            ..Default::default()
        };
        let link = |trace: pb::RateTrace| pb::Profile {
            forward_pipe: Some(pipe(trace)),
            ..Default::default()
        };
        assert_eq!(of_link(&link(rates)), 2 * 10_000_000 / 20);
        // Two per millisecond of the first second, then ten.
        let runs = [vec![16 + 2; 1000], vec![16 + 10; 1000]].concat();
        let opportunities = Some(pb::Opportunities { size_bytes: 1000, runs });
        let fine = pb::RateTrace { step_ns: 1_000_000, opportunities, ..Default::default() };
        let peak = peak_bps(&pipe(fine)).unwrap();
        assert!((79_000_000..=80_000_000).contains(&peak), "{peak}");
    }

    #[test]
    fn buffers_are_raised_and_never_lowered_for_a_link() {
        let current = Sizes { receive: 1 << 40, send: 4 << 20 };
        let link = built_in("viasat2");
        let sizes = Sizes::of(Buffers::Link, &link, current).unwrap();
        assert_eq!(sizes, Sizes { receive: 1 << 40, send: of_link(&link) });
        assert_eq!(Sizes::of(Buffers::Keep, &link, current), None);
        let small = Buffers::parse("64kB").unwrap();
        let sizes = Sizes::of(small, &link, current).unwrap();
        assert_eq!((sizes.receive, sizes.send), (64_000, 64_000));
        assert!(Buffers::parse("3 GB").is_err() && Buffers::parse("many").is_err());
    }
}
