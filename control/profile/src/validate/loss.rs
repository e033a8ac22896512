// SPDX-License-Identifier: Apache-2.0
//! The rules of what loses, duplicates, corrupts and reorders packets one by one.

use super::{excess, range};
use crate::Violations;
use crate::limits::*;
use crate::units::{format_duration, format_probability};
use proto::linkemu::v1 as pb;

pub(super) fn check(found: &mut Violations, path: &str, pipe: &pb::Pipe) {
    let at = |field: &str| format!("{path}.{field}");
    range(found, at("packet_loss"), pipe.packet_loss, &(0.0..=1.0), format_probability);
    range(found, at("duplicate"), pipe.duplicate, &(0.0..=1.0), format_probability);
    range(found, at("corrupt"), pipe.corrupt, &(0.0..=1.0), format_probability);
    let models = [
        ("packet_loss", pipe.packet_loss != 0.0),
        ("gilbert_elliott", pipe.gilbert_elliott.is_some()),
        ("four_state_loss", pipe.four_state_loss.is_some()),
    ];
    let mut given = models.into_iter().filter(|(_, given)| *given).map(|(name, _)| name);
    if let Some(first) = given.next() {
        for other in given {
            let message = format!("{first} is given as well: leave out one of both");
            found.push(at(other), message);
        }
    }
    if let Some(it) = &pipe.gilbert_elliott {
        gilbert_elliott(found, &at("gilbert_elliott"), it);
    }
    if let Some(it) = &pipe.four_state_loss {
        four_state(found, &at("four_state_loss"), it);
    }
    if let Some(it) = &pipe.reorder {
        let path = at("reorder");
        let chance = it.probability;
        range(found, format!("{path}.probability"), chance, &(0.0..=1.0), format_probability);
        range(found, format!("{path}.by"), it.by_ns, &REORDER_NS, format_duration);
    }
    if let Some(it) = &pipe.drop_run {
        drop_run(found, &at("drop_run"), it);
    }
}

fn gilbert_elliott(found: &mut Violations, path: &str, it: &pb::GilbertElliott) {
    for (field, p, allowed) in [
        ("to_bad", it.to_bad, 0.0..=1.0),
        // Or it would stay there for good.
        ("to_good", it.to_good, MOVE),
        ("loss_in_bad", it.loss_in_bad, 0.0..=1.0),
        ("loss_in_good", it.loss_in_good, 0.0..=1.0),
    ] {
        range(found, format!("{path}.{field}"), p, &allowed, format_probability);
    }
}

fn four_state(found: &mut Violations, path: &str, it: &pb::FourStateLoss) {
    let at = |field: &str| format!("{path}.{field}");
    let fields =
        [("p13", it.p13), ("p31", it.p31), ("p32", it.p32), ("p23", it.p23), ("p14", it.p14)];
    let mut whole = true;
    for (field, p) in fields {
        // The way out of a burst.
        let allowed = if field == "p31" { MOVE } else { 0.0..=1.0 };
        range(found, at(field), p, &allowed, format_probability);
        whole &= allowed.contains(&p);
    }
    if !whole {
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
    if it.p32 > 0.0 && it.p23 < *MOVE.start() {
        let message = format!(
            "{} is below {}, and what p32 leads to would never end: raise it, or write p32 = \
             \"0 %\"",
            format_probability(it.p23),
            format_probability(*MOVE.start())
        );
        found.push(at("p23"), message);
    }
}

fn drop_run(found: &mut Violations, path: &str, it: &pb::DropRun) {
    let at = |field: &str| format!("{path}.{field}");
    range(found, at("pass"), it.pass_packets, &PASS_PACKETS, |n| n);
    range(found, at("drop"), it.drop_packets, &DROP_PACKETS, |n| n);
    if it.pass_packets == 0 && !it.once {
        let message = "0 packets pass between the runs, so that all are dropped: write 1 or \
                       more, or once = true";
        found.push(at("pass"), message);
    }
}
