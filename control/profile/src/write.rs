// SPDX-License-Identifier: Apache-2.0
//! A profile as TOML.
//!
//! Table by table: the structs below are the keys of one each; what is absent is
//! left out. Lists of quantities can be long, so they are written several on a
//! line, which neither style of the toml crate does.

mod loss;
mod queue;

use crate::Rate;
use crate::units::{format_duration, format_overhead, format_probability};
use proto::linkemu::v1 as pb;
use serde::Serialize;

/// Of a line of a list.
const COLUMNS: usize = 100;

/// The word for a link layer that changes the size of frames.
#[must_use]
pub const fn link_layer(layer: pb::LinkLayer) -> Option<&'static str> {
    match layer {
        pb::LinkLayer::Atm => Some("atm"),
        pb::LinkLayer::Ptm => Some("ptm"),
        pb::LinkLayer::Unspecified => None,
    }
}

#[derive(Serialize)]
struct Profile<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    source: &'a str,
}

#[derive(Serialize)]
struct Pipe {
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link_layer: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet_loss: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    corrupt: Option<String>,
}

#[derive(Serialize)]
struct RateTrace {
    step: String,
}

#[derive(Serialize)]
struct Outage {
    interval: String,
    duration: String,
    law: &'static str,
}

#[derive(Serialize)]
struct Fade {
    interval: String,
    duration: String,
    factor: f64,
}

#[derive(Serialize)]
struct Delay {
    base: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<String>,
}

#[derive(Serialize)]
struct Body {
    correlation: String,
}

#[derive(Serialize)]
struct Excursion {
    interval: String,
    duration: String,
    location: String,
    scale: String,
    shape: f64,
    max: String,
}

#[derive(Serialize)]
struct Provenance<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    format: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    sha256: &'a str,
    samples: u64,
    lost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unidentified: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    remarks: &'a [String],
}

#[derive(Serialize)]
struct Estimate<'a> {
    parameter: &'a str,
    value: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    low: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    high: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    method: &'a str,
}

#[derive(Serialize)]
struct Goodness<'a> {
    test: &'a str,
    statistic: f64,
    degrees_of_freedom: f64,
    p_value: f64,
}

/// Writes a valid profile.
pub(crate) fn profile(profile: &pb::Profile) -> String {
    let mut toml = Toml::default();
    let pb::Profile { name, group, description, source, .. } = profile;
    toml.keys(&Profile { name, group, description, source });
    for (path, it) in [("forward", &profile.forward_pipe), ("return", &profile.return_pipe)] {
        if let Some(it) = it {
            toml.pipe(path, it);
        }
    }
    if let Some(it) = &profile.provenance {
        toml.provenance("provenance", it);
    }
    toml.0
}

#[derive(Default)]
struct Toml(String);

impl Toml {
    fn table(&mut self, path: &str, keys: &impl Serialize) {
        self.0 += &format!("\n[{path}]\n");
        self.keys(keys);
    }

    /// One of a list of tables.
    fn class(&mut self, path: &str, keys: &impl Serialize) {
        self.0 += &format!("\n[[{path}]]\n");
        self.keys(keys);
    }

    fn keys(&mut self, keys: &impl Serialize) {
        // Strings, floats, counts below 2^63 and lists of strings: TOML has all of
        // them, so this does not fail. Pretty: one string of a list on a line.
        self.0 += &toml::to_string_pretty(keys).unwrap_or_default();
    }

    /// A list of quantities, which have nothing in them that TOML would escape.
    fn quantities(&mut self, key: &str, quantities: impl Iterator<Item = String>) {
        const INDENT: &str = "   ";
        let quoted: Vec<_> = quantities.map(|quantity| format!("\"{quantity}\"")).collect();
        let line = format!("{key} = [{}]", quoted.join(", "));
        if line.len() <= COLUMNS {
            self.0 += &format!("{line}\n");
            return;
        }
        self.0 += &format!("{key} = [\n{INDENT}");
        let mut columns = INDENT.len();
        for quantity in quoted {
            let item = format!(" {quantity},");
            if columns + item.len() > COLUMNS {
                self.0 += &format!("\n{INDENT}");
                columns = INDENT.len();
            }
            columns += item.len();
            self.0 += &item;
        }
        self.0 += "\n]\n";
    }

    fn pipe(&mut self, path: &str, pipe: &pb::Pipe) {
        let rate = || Rate::from_bps(pipe.rate_bps).to_string();
        let at = |key: &str| format!("{path}.{key}");
        let chance = |p: f64| (p != 0.0).then(|| format_probability(p));
        self.table(
            path,
            &Pipe {
                rate: pipe.rate_trace.is_none().then(rate),
                overhead: (pipe.overhead_bytes != 0).then(|| format_overhead(pipe.overhead_bytes)),
                link_layer: link_layer(pipe.link_layer()),
                packet_loss: chance(pipe.packet_loss),
                duplicate: chance(pipe.duplicate),
                corrupt: chance(pipe.corrupt),
            },
        );
        if let Some(trace) = &pipe.rate_trace {
            self.table(&at("rate_trace"), &RateTrace { step: format_duration(trace.step_ns) });
            let rate = |bps: &u64| Rate::from_bps(Some(*bps)).to_string();
            self.quantities("rates", trace.rates_bps.iter().map(rate));
        }
        self.losses(path, pipe);
        if let Some(queue) = &pipe.queue {
            self.queue(&at("queue"), queue);
        }
        for outage in &pipe.outages {
            self.class(&at("outages"), &Outage::from(outage));
        }
        if let Some(fade) = &pipe.fade {
            self.table(
                &at("fade"),
                &Fade {
                    interval: format_duration(fade.interval_ns),
                    duration: format_duration(fade.duration_ns),
                    factor: fade.factor,
                },
            );
        }
        if let Some(delay) = &pipe.delay {
            self.delay(&at("delay"), delay);
        }
    }

    fn delay(&mut self, path: &str, delay: &pb::Delay) {
        self.table(
            path,
            &Delay {
                base: format_duration(delay.base_ns),
                slot: (delay.slot_ns != 0).then(|| format_duration(delay.slot_ns)),
            },
        );
        if let Some(body) = &delay.body {
            let correlation = format_duration(body.correlation_ns);
            self.table(&format!("{path}.body"), &Body { correlation });
            let quantiles = body.quantiles_ns.iter().map(|ns| format_duration(*ns));
            self.quantities("quantiles", quantiles);
        }
        for excursion in &delay.excursions {
            self.class(&format!("{path}.excursions"), &Excursion::from(excursion));
        }
    }

    fn provenance(&mut self, path: &str, provenance: &pb::Provenance) {
        let pb::Provenance { source, format, sha256, unidentified, remarks, .. } = provenance;
        let interval_ns = provenance.interval_ns;
        self.table(
            path,
            &Provenance {
                source,
                format,
                sha256,
                samples: provenance.samples,
                lost: provenance.lost,
                interval: (interval_ns != 0).then(|| format_duration(interval_ns)),
                unidentified,
                remarks,
            },
        );
        for estimate in &provenance.estimates {
            let pb::Estimate { parameter, value, low, high, method } = estimate;
            let estimate = Estimate { parameter, value, low, high, method };
            self.class(&format!("{path}.estimates"), &estimate);
        }
        for goodness in &provenance.goodness {
            let pb::Goodness { statistic, degrees_of_freedom, p_value, .. } = *goodness;
            let test = &goodness.test;
            let goodness = Goodness { test, statistic, degrees_of_freedom, p_value };
            self.class(&format!("{path}.goodness"), &goodness);
        }
    }
}

impl From<&pb::Outage> for Outage {
    fn from(outage: &pb::Outage) -> Self {
        Self {
            interval: format_duration(outage.interval_ns),
            duration: format_duration(outage.duration_ns),
            law: match outage.law() {
                pb::DurationLaw::Fixed => "fixed",
                pb::DurationLaw::Exponential | pb::DurationLaw::Unspecified => "exponential",
            },
        }
    }
}

impl From<&pb::Excursion> for Excursion {
    fn from(excursion: &pb::Excursion) -> Self {
        Self {
            interval: format_duration(excursion.interval_ns),
            duration: format_duration(excursion.duration_ns),
            location: format_duration(excursion.location_ns),
            scale: format_duration(excursion.scale_ns),
            shape: excursion.shape,
            max: format_duration(excursion.max_ns),
        }
    }
}
