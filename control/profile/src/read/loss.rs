// SPDX-License-Identifier: Apache-2.0
//! What loses packets one by one, and what else happens to single ones, from TOML.

use super::reader::{Node, Reader};
use crate::units::parse_probability;
use proto::linkemu::v1 as pb;

impl Reader<'_> {
    fn probability(&mut self, node: &Node<'_>, key: &str, example: &str) -> f64 {
        self.required(node, key, parse_probability, example).unwrap_or(0.0)
    }

    /// Without it, zero.
    pub(super) fn chance(&mut self, node: &Node<'_>, key: &str) -> f64 {
        self.quantity(node, key, parse_probability, "1 %").unwrap_or(0.0)
    }

    pub(super) fn gilbert_elliott(&mut self, node: &Node<'_>) -> pb::GilbertElliott {
        self.known(node, &["to_bad", "to_good", "loss_in_bad", "loss_in_good"]);
        pb::GilbertElliott {
            to_bad: self.probability(node, "to_bad", "1 %"),
            to_good: self.probability(node, "to_good", "25 %"),
            loss_in_bad: self.probability(node, "loss_in_bad", "100 %"),
            loss_in_good: self.chance(node, "loss_in_good"),
        }
    }

    pub(super) fn four_state_loss(&mut self, node: &Node<'_>) -> pb::FourStateLoss {
        self.known(node, &["p13", "p31", "p32", "p23", "p14"]);
        pb::FourStateLoss {
            p13: self.probability(node, "p13", "1 %"),
            p31: self.probability(node, "p31", "20 %"),
            p32: self.chance(node, "p32"),
            p23: self.chance(node, "p23"),
            p14: self.chance(node, "p14"),
        }
    }

    pub(super) fn reorder(&mut self, node: &Node<'_>) -> pb::Reorder {
        self.known(node, &["probability", "by"]);
        pb::Reorder {
            probability: self.probability(node, "probability", "1 %"),
            by_ns: self.time(node, "by", "5 ms"),
        }
    }

    pub(super) fn drop_run(&mut self, node: &Node<'_>) -> pb::DropRun {
        self.known(node, &["pass", "drop", "once"]);
        self.present(node, "pass", "999");
        self.present(node, "drop", "1");
        pb::DropRun {
            pass_packets: self.count(node, "pass"),
            drop_packets: self.count(node, "drop"),
            once: self.flag(node, "once"),
        }
    }
}
