// SPDX-License-Identifier: Apache-2.0
//! Rules of the per-packet loss models.

use super::excess;
use crate::limits::FOUR_STATE_LOSS_P31;
use crate::{Violations, format_probability};
use proto::linkemu::v1 as pb;

pub(super) fn check(found: &mut Violations, path: &str, pipe: &pb::Pipe) {
    if let Some(it) = &pipe.four_state_loss {
        four_state(found, &format!("{path}.four_state_loss"), it);
    }
    if let Some(it) = &pipe.drop_run {
        drop_run(found, &format!("{path}.drop_run"), it);
    }
}

fn four_state(found: &mut Violations, path: &str, it: &pb::FourStateLoss) {
    let at = |field: &str| format!("{path}.{field}");
    // Values out of range are reported elsewhere.
    let moves = [it.p13, it.p31, it.p32, it.p23, it.p14];
    if !moves.iter().all(|p| (0.0..=1.0).contains(p)) || it.p31 < *FOUR_STATE_LOSS_P31.start() {
        return;
    }
    for (field, p, other, q) in [("p14", it.p14, "p13", it.p13), ("p32", it.p32, "p31", it.p31)] {
        if excess(p, q) {
            let message = format!(
                "{} and {other} of {} are more than 100 % together: lower one of both",
                format_probability(p),
                format_probability(q)
            );
            found.push(at(field), message);
        }
    }
    if it.p32 > 0.0 && it.p23 < *FOUR_STATE_LOSS_P31.start() {
        let message = format!(
            "{} is below {}, and what p32 leads to would never end: raise it, or write p32 = \
             \"0 %\"",
            format_probability(it.p23),
            format_probability(*FOUR_STATE_LOSS_P31.start())
        );
        found.push(at("p23"), message);
    }
}

fn drop_run(found: &mut Violations, path: &str, it: &pb::DropRun) {
    if it.pass_packets == 0 && !it.once {
        let message = "0 packets pass between the runs, so that all are dropped: write 1 or \
                       more, or once = true";
        found.push(format!("{path}.pass"), message);
    }
}
