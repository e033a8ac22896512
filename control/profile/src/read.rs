// SPDX-License-Identifier: Apache-2.0
//! A profile from TOML: which keys there are, and what they become.
//!
//! The document is walked as a tree with the place of each value, not through
//! serde's derived readers: those stop at the first error, and know neither
//! places nor the nearest key. Reading goes on after an error, and the rules of
//! [`crate::validate`] are checked on what could be read, so that one look gives
//! all that is wrong.

mod loss;
mod part;
mod queue;
pub(crate) mod reader;

pub use part::Part;

use crate::limits::{FILE_BYTES, RATE_BPS, STEP_NS};
use crate::rate_file::{beside, read_trace};
use crate::units::{parse_duration, parse_overhead, parse_probability, parse_rate};
use crate::{Rate, Violations};
use proto::linkemu::v1 as pb;
use reader::{Item, Node, Reader};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The text of a file; of one that is longer than `most` bytes, one byte more than that, which
/// shows that there is more.
///
/// # Errors
/// If it cannot be read, or is not UTF-8.
pub fn file(path: &Path, most: usize) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(most as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads and checks a profile, whose file is in `directory`.
pub(crate) fn profile(text: &str, directory: Option<&Path>) -> Result<pb::Profile, Violations> {
    let mut reader = Reader::new(text);
    reader.directory = directory.map(Path::to_path_buf);
    let document = reader.document(FILE_BYTES, "profile")?;
    let profile = reader.profile(&Node {
        path: String::new(),
        span: document.span(),
        table: document.get_ref(),
    });
    reader.finish(profile)
}

/// The keys of a delay.
const DELAY: [&str; 4] = ["base", "slot", "body", "excursions"];
/// The keys of a pipe.
const PIPE: [&str; 15] = [
    "rate",
    "rate_trace",
    "overhead",
    "link_layer",
    "packet_loss",
    "gilbert_elliott",
    "four_state_loss",
    "drop_run",
    "duplicate",
    "corrupt",
    "reorder",
    "queue",
    "outages",
    "fade",
    "delay",
];

impl Reader<'_> {
    fn profile(&mut self, node: &Node<'_>) -> pb::Profile {
        self.known(
            node,
            &["name", "group", "description", "source", "forward", "return", "provenance"],
        );
        pb::Profile {
            name: self.text(node, "name"),
            group: self.text(node, "group"),
            description: self.text(node, "description"),
            source: self.text(node, "source"),
            forward_pipe: self.table(node, "forward").map(|node| self.pipe(&node)),
            return_pipe: self.table(node, "return").map(|node| self.pipe(&node)),
            provenance: self.table(node, "provenance").map(|node| self.provenance(&node)),
        }
    }

    fn pipe(&mut self, node: &Node<'_>) -> pb::Pipe {
        let (rate, trace) = ("rate", "rate_trace");
        let loss = "packet_loss";
        self.known(node, &PIPE);
        if !self.is_twofold(node) && !node.table.contains_key(trace) {
            let examples = "\"144 Mbit/s\", \"unlimited\" or \"down\", or a rate_trace";
            self.present(node, rate, examples);
        }
        pb::Pipe {
            rate_bps: self.quantity(node, rate, parse_rate, "144 Mbit/s").and_then(Rate::bps),
            rate_trace: self.table(node, trace).map(|node| self.rate_trace(&node)),
            overhead_bytes: self.quantity(node, "overhead", parse_overhead, "0 B").unwrap_or(0),
            link_layer: self.link_layer(node).into(),
            packet_loss: self.quantity(node, loss, parse_probability, "0.02 %").unwrap_or(0.0),
            duplicate: self.chance(node, "duplicate"),
            corrupt: self.chance(node, "corrupt"),
            reorder: self.table(node, "reorder").map(|node| self.reorder(&node)),
            gilbert_elliott: self
                .table(node, "gilbert_elliott")
                .map(|node| self.gilbert_elliott(&node)),
            four_state_loss: self
                .table(node, "four_state_loss")
                .map(|node| self.four_state_loss(&node)),
            drop_run: self.table(node, "drop_run").map(|node| self.drop_run(&node)),
            queue: self.table(node, "queue").map(|node| self.queue(&node)),
            outages: self.tables(node, "outages", Self::outage),
            fade: self.table(node, "fade").map(|node| self.fade(&node)),
            delay: self.table(node, "delay").map(|node| self.delay(&node)),
        }
    }

    /// Whether both a rate and a trace of it are given, which is told.
    fn is_twofold(&mut self, node: &Node<'_>) -> bool {
        let Some(trace) = node.table.get("rate_trace") else { return false };
        let is = node.table.contains_key("rate");
        if is {
            let message = "the rate is given as well: write one of both".to_owned();
            self.fail(&node.at("rate_trace"), trace.span(), message);
        }
        is
    }

    fn rate_trace(&mut self, node: &Node<'_>) -> pb::RateTrace {
        const RATES: &str = "[\"12 Mbit/s\", \"down\"]";
        self.known(node, &["step", "rates", "file"]);
        if node.table.contains_key("file") {
            return self.rate_file(node);
        }
        self.present(node, "rates", RATES);
        pb::RateTrace {
            step_ns: self.time(node, "step", "100 ms"),
            rates_bps: self.list(node, "rates", RATES, Self::step_rate),
        }
    }

    /// A trace that is in another file.
    fn rate_file(&mut self, node: &Node<'_>) -> pb::RateTrace {
        // What breaks no rule, since that it cannot be read is told.
        let unread = pb::RateTrace { step_ns: *STEP_NS.end(), rates_bps: vec![*RATE_BPS.end()] };
        let step = self.quantity(node, "step", parse_duration, "100 ms");
        if let Some(value) = node.table.get("rates") {
            let message = "the file is given as well: write one of both".to_owned();
            self.fail(&node.at("rates"), value.span(), message);
        }
        let Some(item) = self.value(node, "file") else { return unread };
        let Some(name) = self.string(&item) else { return unread };
        let read = |path: PathBuf| read_trace(&path, step);
        match beside(self.directory.as_deref(), &name).and_then(read) {
            Ok(file) => file.trace,
            Err(error) => {
                self.fail(&item.path, item.value.span(), error.to_string());
                unread
            }
        }
    }

    fn step_rate(&mut self, item: &Item<'_>) -> Option<u64> {
        let rate = self.measure(item, parse_rate, "12 Mbit/s")?;
        if rate == Rate::Unlimited {
            let message = "\"unlimited\" is no rate of a step: write a rate, or \"down\"";
            self.fail(&item.path, item.value.span(), message.to_owned());
        }
        rate.bps()
    }

    fn outage(&mut self, node: &Node<'_>) -> pb::Outage {
        self.known(node, &["interval", "duration", "law"]);
        pb::Outage {
            interval_ns: self.time(node, "interval", "3 h 3 min"),
            duration_ns: self.time(node, "duration", "320 ms"),
            law: self.law(node) as i32,
        }
    }

    fn fade(&mut self, node: &Node<'_>) -> pb::Fade {
        self.known(node, &["interval", "duration", "factor"]);
        pb::Fade {
            interval_ns: self.time(node, "interval", "8 h"),
            duration_ns: self.time(node, "duration", "20 min"),
            factor: self.number(node, "factor", "30.0"),
        }
    }

    fn delay(&mut self, node: &Node<'_>) -> pb::Delay {
        self.known(node, &DELAY);
        pb::Delay {
            base_ns: self.time(node, "base", "275 ms"),
            slot_ns: self.quantity(node, "slot", parse_duration, "43 ms").unwrap_or(0),
            excursions: self.tables(node, "excursions", Self::excursion),
            body: self.table(node, "body").map(|node| self.body(&node)),
        }
    }

    fn body(&mut self, node: &Node<'_>) -> pb::Body {
        const QUANTILES: &str = "[\"0 ms\", \"0.4 ms\", \"3 ms\"]";
        self.known(node, &["correlation", "quantiles"]);
        self.present(node, "quantiles", QUANTILES);
        pb::Body {
            correlation_ns: self.time(node, "correlation", "80 ms"),
            quantiles_ns: self.list(node, "quantiles", QUANTILES, |reader, item| {
                reader.measure(item, parse_duration, "0.4 ms")
            }),
        }
    }

    fn excursion(&mut self, node: &Node<'_>) -> pb::Excursion {
        self.known(node, &["interval", "duration", "location", "scale", "shape", "max"]);
        pb::Excursion {
            interval_ns: self.time(node, "interval", "30 min"),
            duration_ns: self.time(node, "duration", "800 ms"),
            location_ns: self.time(node, "location", "7 ms"),
            scale_ns: self.time(node, "scale", "30 ms"),
            shape: self.number(node, "shape", "0.3"),
            max_ns: self.time(node, "max", "700 ms"),
        }
    }

    fn provenance(&mut self, node: &Node<'_>) -> pb::Provenance {
        const TEXTS: &str = "[\"a remark\"]";
        let (unidentified, remarks) = ("unidentified", "remarks");
        let (estimates, goodness) = ("estimates", "goodness");
        self.known(
            node,
            &[
                "source",
                "format",
                "sha256",
                "samples",
                "lost",
                "interval",
                unidentified,
                remarks,
                estimates,
                goodness,
            ],
        );
        pb::Provenance {
            source: self.text(node, "source"),
            format: self.text(node, "format"),
            sha256: self.text(node, "sha256"),
            samples: self.count(node, "samples"),
            lost: self.count(node, "lost"),
            interval_ns: self.quantity(node, "interval", parse_duration, "200 ms").unwrap_or(0),
            unidentified: self.list(node, unidentified, TEXTS, Self::string),
            remarks: self.list(node, remarks, TEXTS, Self::string),
            estimates: self.tables(node, estimates, Self::estimate),
            goodness: self.tables(node, goodness, Self::goodness),
        }
    }

    fn estimate(&mut self, node: &Node<'_>) -> pb::Estimate {
        self.known(node, &["parameter", "value", "low", "high", "method"]);
        pb::Estimate {
            parameter: self.text(node, "parameter"),
            value: self.text(node, "value"),
            low: self.text(node, "low"),
            high: self.text(node, "high"),
            method: self.text(node, "method"),
        }
    }

    fn goodness(&mut self, node: &Node<'_>) -> pb::Goodness {
        self.known(node, &["test", "statistic", "degrees_of_freedom", "p_value"]);
        pb::Goodness {
            test: self.text(node, "test"),
            statistic: self.number(node, "statistic", "7.3"),
            degrees_of_freedom: self.number(node, "degrees_of_freedom", "5.0"),
            p_value: self.number(node, "p_value", "0.2"),
        }
    }
}
