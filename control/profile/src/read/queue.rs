// SPDX-License-Identifier: Apache-2.0
//! A queue from TOML. What the sources of an AQM give a default for may be left out.

use super::reader::{Node, Reader};
use crate::units::{parse_duration, parse_probability, parse_size};
use proto::linkemu::v1 as pb;

/// The keys of a queue.
pub(super) const QUEUE: [&str; 6] = ["limit", "random_drop", "red", "codel", "pie", "ecn"];

const MS: u64 = 1_000_000;

impl Reader<'_> {
    pub(super) fn queue(&mut self, node: &Node<'_>) -> pb::Queue {
        self.known(node, &QUEUE);
        pb::Queue {
            limit_bytes: self.required(node, "limit", parse_size, "36 MB").unwrap_or(0),
            random_drop: self.table(node, "random_drop").map(|node| self.random_drop(&node)),
            red: self.table(node, "red").map(|node| self.red(&node)),
            codel: self.table(node, "codel").map(|node| self.codel(&node)),
            pie: self.table(node, "pie").map(|node| self.pie(&node)),
            ecn: self.flag(node, "ecn"),
        }
    }

    pub(super) fn random_drop(&mut self, node: &Node<'_>) -> pb::RandomDrop {
        let (low, high) = ("probability_at_threshold", "probability_at_limit");
        self.known(node, &["threshold", low, high]);
        pb::RandomDrop {
            threshold_bytes: self.required(node, "threshold", parse_size, "18 MB").unwrap_or(0),
            probability_at_threshold: self
                .required(node, low, parse_probability, "0 %")
                .unwrap_or(0.0),
            probability_at_limit: self
                .required(node, high, parse_probability, "10 %")
                .unwrap_or(0.0),
        }
    }

    pub(super) fn red(&mut self, node: &Node<'_>) -> pb::Red {
        self.known(node, &["min", "max", "probability", "weight", "packet", "gentle"]);
        let packet = self.quantity(node, "packet", parse_size, "1000 B").unwrap_or(1_000);
        pb::Red {
            min_bytes: self.required(node, "min", parse_size, "6 MB").unwrap_or(0),
            max_bytes: self.required(node, "max", parse_size, "18 MB").unwrap_or(0),
            probability_at_max: self
                .required(node, "probability", parse_probability, "10 %")
                .unwrap_or(0.0),
            weight: self.quantity(node, "weight", parse_probability, "0.2 %").unwrap_or(0.002),
            packet_bytes: u32::try_from(packet).unwrap_or(u32::MAX),
            gentle: self.flag(node, "gentle"),
        }
    }

    /// RFC 8289, section 4.
    pub(super) fn codel(&mut self, node: &Node<'_>) -> pb::CoDel {
        self.known(node, &["target", "interval"]);
        pb::CoDel {
            target_ns: self.time_or(node, "target", 5 * MS),
            interval_ns: self.time_or(node, "interval", 100 * MS),
        }
    }

    /// RFC 8033, section 4.
    pub(super) fn pie(&mut self, node: &Node<'_>) -> pb::Pie {
        self.known(node, &["target", "update", "alpha", "beta", "max_burst"]);
        pb::Pie {
            target_ns: self.time_or(node, "target", 15 * MS),
            update_ns: self.time_or(node, "update", 15 * MS),
            alpha_hz: self.number_or(node, "alpha", 0.125),
            beta_hz: self.number_or(node, "beta", 1.25),
            max_burst_ns: self.time_or(node, "max_burst", 150 * MS),
        }
    }

    fn time_or(&mut self, node: &Node<'_>, key: &str, default: u64) -> u64 {
        self.quantity(node, key, parse_duration, "15 ms").unwrap_or(default)
    }

    fn number_or(&mut self, node: &Node<'_>, key: &str, default: f64) -> f64 {
        if node.table.contains_key(key) {
            self.number(node, key, &default.to_string())
        } else {
            default
        }
    }
}
