// SPDX-License-Identifier: Apache-2.0
//! Converts a snapshot to Prometheus' text format.
//!
//! Families follow the classic format, in which a counter's name, with `_total`, is the name of its
//! family: see ADR 18.

use super::figures::Figures;
use super::switch;
use crate::switch::Look;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use prost::Message;
use proto::dataplane::v1 as dp;
use proto::linkemu::v1::{
    DropReason, Histogram, LinkState, PipeStats, PortStats, Stats, Tolerance, WorkerStats,
};
use std::fmt;
use std::sync::LazyLock;

const PREFIX: &str = "linkemu";
pub(super) const NS: f64 = 1e-9;

#[derive(Debug, Default)]
pub(super) struct Scrape {
    /// `main` first; empty if the dataplane did not answer.
    pub links: Vec<OfLink>,
    pub version: String,
    /// On which it runs.
    pub dpdk: String,
    /// The P4 switch, if there is one.
    pub switch: Option<Look>,
    /// Whether linkd's state is on its disk; none without `--state`.
    pub is_saved: Option<bool>,
    pub seconds: f64,
}

/// The figures of a link.
#[derive(Debug)]
pub(super) struct OfLink {
    /// Without "links/".
    pub name: String,
    pub stats: Stats,
    /// Whether the counters of all its clients balance, those that are not exported too.
    pub exact: bool,
    pub plan: Option<dp::Plan>,
}

/// The text of a scrape.
///
/// # Errors
/// If it cannot be encoded.
pub(super) fn text(scrape: Scrape) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(scrape));
    let mut out = String::new();
    text::encode_registry(&mut out, &registry)?;
    Ok(out)
}

pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// A family of counters or gauges: name, help, type.
pub(super) struct Family(pub &'static str, pub &'static str, pub MetricType);

impl Family {
    /// Writes its series. The encoder's counters would follow `OpenMetrics`, which names the family
    /// without `_total`.
    pub fn write<'a, L: AsRef<[(&'a str, &'a str)]>>(
        self,
        encoder: &mut DescriptorEncoder<'_>,
        series: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let Self(name, help, kind) = self;
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in series {
            let labels: Labels<'_> = labels.as_ref();
            if labels.is_empty() {
                family.encode_gauge(&value)?;
            } else {
                family.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let e = &mut encoder;
        let up = f64::from(u8::from(!self.links.is_empty()));
        one(e, "dataplane_up", "Whether the dataplane answered this scrape", Gauge, up)?;
        let help = "Seconds that it took to ask the dataplane";
        one(e, "scrape_duration_seconds", help, Gauge, self.seconds)?;
        if let Some(is_saved) = self.is_saved {
            let help = "Whether the last link and the lease are on linkd's disk";
            one(e, "state_saved", help, Gauge, f64::from(u8::from(is_saved)))?;
        }
        let build = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("dataplane_version", &self.version),
            ("dpdk_version", &self.dpdk),
        ];
        Family("build_info", "Versions of linkd, the dataplane and its DPDK; always 1", Gauge)
            .write(e, [(build, 1.0)])?;
        let plans = self.links.iter().filter_map(|link| Some((&*link.name, link.plan.as_ref()?)));
        let plans: Vec<_> = plans.map(|(name, plan)| (name, plan, plan.seed.to_string())).collect();
        let configs = plans.iter().map(|(name, plan, seed)| {
            let profile = plan.profile.as_ref().map_or("", |profile| &profile.name);
            ([("link", *name), ("profile", profile), ("seed", seed)], 1.0)
        });
        if !plans.is_empty() {
            let help = "Profile and seed in force on a link; always 1";
            Family("config_info", help, Gauge).write(e, configs)?;
        }
        if let Some(look) = &self.switch {
            switch::encode(e, look)?;
        }
        if self.links.is_empty() {
            return Ok(());
        }
        health(e, &self.links)?;
        ports(e, &self.links)?;
        pipes(e, &self.links)
    }
}

use MetricType::{Counter, Gauge};

/// Maximum number of buckets, independent of the dataplane's answer.
const BUCKETS: usize = 32;

pub(super) fn one(
    encoder: &mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    value: f64,
) -> fmt::Result {
    Family(name, help, kind).write(encoder, [([], value)])
}

/// A figure of a link: name, help, type, and which it is.
type Figure = (&'static str, &'static str, MetricType, fn(&OfLink) -> f64);

const OF_LINK: [Figure; 8] = [
    ("generation", "Generation of the configuration in force", Gauge, |l| {
        l.stats.generation as f64
    }),
    (
        "lossy",
        "Whether the link in force was accepted although it can lose packets for want of memory or time",
        Gauge,
        |l| f64::from(u8::from(l.stats.lossy)),
    ),
    (
        "conservation_exact",
        "Whether received, duplicated and generated is sent, dropped and held in every pipe",
        Gauge,
        |l| f64::from(u8::from(l.exact)),
    ),
    ("memory_capacity_bytes", "Size of the packet store", Gauge, |l| {
        l.stats.memory().capacity_bytes as f64
    }),
    ("memory_used_bytes", "Of the packet store in use", Gauge, |l| {
        l.stats.memory().used_bytes as f64
    }),
    (
        "memory_high_water_bytes",
        "Most of the packet store in use since the last mark",
        Gauge,
        |l| l.stats.memory().used_max_bytes as f64,
    ),
    (
        "stall_max_seconds",
        "Longest time between two turns of a worker since the last mark, less what it meant to sleep",
        Gauge,
        |l| l.stats.stall_max_ns as f64 * NS,
    ),
    (
        "emulator_drops_total",
        "Packets lost through the emulator's own fault: overload, missed, transmit dropped",
        Counter,
        |l| l.stats.emulator_drops as f64,
    ),
];

static OF_WORKER: LazyLock<Figures> = LazyLock::new(Figures::of::<WorkerStats>);
static OF_PORT: LazyLock<Figures> = LazyLock::new(Figures::of::<PortStats>);
static OF_PIPE: LazyLock<Figures> = LazyLock::new(Figures::of::<PipeStats>);

/// Writes the families of the figures of `messages`, each with its labels.
fn figures<'a, M: Message, const N: usize>(
    e: &mut DescriptorEncoder<'_>,
    figures: &'static Figures,
    messages: impl Iterator<Item = ([(&'a str, &'a str); N], M)>,
) -> fmt::Result {
    let values = messages.map(|(labels, message)| (labels, figures.values(&message)));
    let values: Vec<_> = values.collect();
    for (place, figure) in figures.figures.iter().enumerate() {
        let series = values.iter().map(|(labels, values)| (labels, values[place]));
        Family(&figure.name, &figure.help, figure.kind).write(e, series)?;
    }
    Ok(())
}

/// Metrics of the emulator as a whole, and of each link.
fn health(e: &mut DescriptorEncoder<'_>, links: &[OfLink]) -> fmt::Result {
    let time_ns = links.first().map_or(0, |link| link.stats.time_ns);
    let help = "Time since the dataplane started";
    one(e, "dataplane_time_seconds", help, Gauge, time_ns as f64 * NS)?;
    for (name, help, kind, value) in OF_LINK {
        let series = links.iter().map(|link| ([("link", &*link.name)], value(link)));
        Family(name, help, kind).write(e, series)?;
    }
    let marks = links.iter().filter_map(|link| {
        Some(([("link", &*link.name)], link.stats.span.as_ref()?.since_ns as f64 * NS))
    });
    let help = "Time of the last mark, since the dataplane started";
    Family("mark_time_seconds", help, Gauge).write(e, marks)?;
    let limits = |of: fn(&Tolerance) -> u64| {
        links.iter().filter_map(move |link| {
            let tolerance = link.stats.span.as_ref()?.tolerance.as_ref()?;
            Some(([("link", &*link.name)], of(tolerance) as f64 * NS))
        })
    };
    let help = "Limit of lateness of 99 % of the packets since the last mark, by the links that were current";
    Family("lateness_limit_seconds", help, Gauge).write(e, limits(|it| it.lateness_ns))?;
    let help = "Limit of a stall since the last mark, by the links that were current";
    Family("stall_limit_seconds", help, Gauge).write(e, limits(|it| it.stall_ns))?;
    workers(e, links)?;
    let late = links.iter().flat_map(|link| {
        let late = link.stats.lateness();
        let shares = [
            ("0.5", late.p50_ns),
            ("0.99", late.p99_ns),
            ("0.999", late.p999_ns),
            ("1", late.max_ns),
        ];
        shares.map(|(share, ns)| ([("link", &*link.name), ("share", share)], ns as f64 * NS))
    });
    let help = "Lateness that this share of packets did not exceed since the last mark";
    Family("lateness_since_mark_seconds", help, Gauge).write(e, late)
}

fn workers(e: &mut DescriptorEncoder<'_>, links: &[OfLink]) -> fmt::Result {
    let most = links.iter().map(|link| link.stats.workers.len()).max().unwrap_or(0);
    let numbers: Vec<_> = (0..most).map(|number| number.to_string()).collect();
    let workers = links.iter().flat_map(|link| {
        let workers = numbers.iter().zip(&link.stats.workers);
        workers.map(|(number, worker)| ([("link", &*link.name), ("worker", &**number)], *worker))
    });
    figures(e, &OF_WORKER, workers)
}

/// Counters of the ports. Most are the same for all links; those that are counted for each link
/// are summed.
fn ports(e: &mut DescriptorEncoder<'_>, links: &[OfLink]) -> fmt::Result {
    let Some((main, others)) = links.split_first() else { return Ok(()) };
    let mut ports = main.stats.ports.clone();
    for link in others {
        for (sum, port) in ports.iter_mut().zip(&link.stats.ports) {
            sum.malformed += port.malformed;
            sum.unplaced += port.unplaced;
        }
    }
    figures(e, &OF_PORT, ports.iter().map(|port| ([("port", port.name.as_str())], port.clone())))?;
    let up = ports.iter().filter_map(|port| {
        let value = match port.link() {
            LinkState::Up => 1.0,
            LinkState::Down => 0.0,
            LinkState::Unspecified => return None,
        };
        Some(([("port", port.name.as_str())], value))
    });
    Family("port_up", "Whether a port has a carrier: 1 or 0", Gauge).write(e, up)
}

/// A pipe with its link, client and direction.
type Place<'a> = ([(&'a str, &'a str); 3], &'a PipeStats);

fn pipes(e: &mut DescriptorEncoder<'_>, links: &[OfLink]) -> fmt::Result {
    let pipes = || {
        links.iter().flat_map(|link| {
            let name = link.name.as_str();
            link.stats.pipes().map(move |(client, direction, pipe)| {
                ([("link", name), ("client", client), ("direction", direction)], pipe)
            })
        })
    };
    // Without what has families of its own.
    let counts = pipes().map(|(labels, pipe)| {
        let (dropped, queue_delay, lateness) = Default::default();
        (labels, PipeStats { dropped, queue_delay, lateness, ..*pipe })
    });
    figures(e, &OF_PIPE, counts)?;
    // Every reason of every pipe, from zero on: a series that begins at its first drop hides it.
    let drops = || {
        pipes().flat_map(|([link, client, direction], pipe)| {
            DropReason::ALL.map(move |reason| {
                let labels = [link, client, direction, ("reason", reason.word())];
                (labels, pipe.dropped_for(reason))
            })
        })
    };
    Family("dropped_packets_total", "Packets dropped, by reason", Counter)
        .write(e, drops().map(|(labels, count)| (labels, count.packets as f64)))?;
    Family("dropped_bytes_total", "Bytes dropped, by reason", Counter)
        .write(e, drops().map(|(labels, count)| (labels, count.bytes as f64)))?;
    let help = "Time from a packet's arrival to the end of its service by the shaper";
    histograms(e, "queue_delay_seconds", help, pipes(), |pipe| pipe.queue_delay.as_ref())?;
    let help = "How late packets left, against their due time";
    histograms(e, "lateness_seconds", help, pipes(), |pipe| pipe.lateness.as_ref())
}

/// Histograms of the pipes that have had packets.
fn histograms<'a>(
    e: &mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &'static str,
    pipes: impl Iterator<Item = Place<'a>>,
    histogram: fn(&PipeStats) -> Option<&Histogram>,
) -> fmt::Result {
    let mut family = e.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (labels, pipe) in pipes {
        let Some(h) = histogram(pipe).filter(|h| !h.counts.is_empty()) else { continue };
        let labels: Labels<'_> = &labels;
        let counts = &h.counts[..h.counts.len().min(BUCKETS)];
        let last = counts.len().saturating_sub(1);
        let bounds = (0..).map(|i| {
            let bound = h.first_bound_ns as f64 * f64::from(2_u32).powi(i);
            if i as usize == last { f64::INFINITY } else { bound * NS }
        });
        let buckets: Vec<_> = bounds.zip(counts.iter().copied()).collect();
        let count = counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        let sum = h.sum_ns as f64 * NS;
        family
            .encode_family(&labels)?
            .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}
