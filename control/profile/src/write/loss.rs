// SPDX-License-Identifier: Apache-2.0
//! What loses packets one by one, and what else happens to single ones, as TOML.

use super::Toml;
use crate::units::{format_duration, format_probability};
use proto::linkemu::v1 as pb;
use serde::Serialize;

#[derive(Serialize)]
struct GilbertElliott {
    to_bad: String,
    to_good: String,
    loss_in_bad: String,
    loss_in_good: String,
}

#[derive(Serialize)]
struct FourState {
    p13: String,
    p31: String,
    p32: String,
    p23: String,
    p14: String,
}

#[derive(Serialize)]
struct Reorder {
    probability: String,
    by: String,
}

#[derive(Serialize)]
struct DropRun {
    pass: u64,
    drop: u64,
    once: bool,
}

impl Toml {
    pub(super) fn losses(&mut self, path: &str, pipe: &pb::Pipe) {
        if let Some(it) = &pipe.gilbert_elliott {
            let keys = GilbertElliott {
                to_bad: format_probability(it.to_bad),
                to_good: format_probability(it.to_good),
                loss_in_bad: format_probability(it.loss_in_bad),
                loss_in_good: format_probability(it.loss_in_good),
            };
            self.table(&format!("{path}.gilbert_elliott"), &keys);
        }
        if let Some(it) = &pipe.four_state_loss {
            let keys = FourState {
                p13: format_probability(it.p13),
                p31: format_probability(it.p31),
                p32: format_probability(it.p32),
                p23: format_probability(it.p23),
                p14: format_probability(it.p14),
            };
            self.table(&format!("{path}.four_state_loss"), &keys);
        }
        if let Some(it) = &pipe.reorder {
            let probability = format_probability(it.probability);
            let keys = Reorder { probability, by: format_duration(it.by_ns) };
            self.table(&format!("{path}.reorder"), &keys);
        }
        if let Some(it) = &pipe.drop_run {
            let pb::DropRun { pass_packets: pass, drop_packets: drop, once } = *it;
            self.table(&format!("{path}.drop_run"), &DropRun { pass, drop, once });
        }
    }
}
