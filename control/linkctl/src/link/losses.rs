// SPDX-License-Identifier: Apache-2.0
//! What loses packets one by one, and what else happens to single ones, in JSON: as the messages of `linkemu.v1` have it.

use proto::linkemu::v1 as pb;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct GilbertElliottView {
    to_bad: f64,
    to_good: f64,
    loss_in_bad: f64,
    loss_in_good: f64,
}

impl From<pb::GilbertElliott> for GilbertElliottView {
    fn from(it: pb::GilbertElliott) -> Self {
        let pb::GilbertElliott { to_bad, to_good, loss_in_bad, loss_in_good } = it;
        Self { to_bad, to_good, loss_in_bad, loss_in_good }
    }
}

#[derive(Debug, Serialize)]
pub struct FourStateLossView {
    p13: f64,
    p31: f64,
    p32: f64,
    p23: f64,
    p14: f64,
}

impl From<pb::FourStateLoss> for FourStateLossView {
    fn from(it: pb::FourStateLoss) -> Self {
        let pb::FourStateLoss { p13, p31, p32, p23, p14 } = it;
        Self { p13, p31, p32, p23, p14 }
    }
}

#[derive(Debug, Serialize)]
pub struct ReorderView {
    probability: f64,
    by_ns: u64,
}

impl From<pb::Reorder> for ReorderView {
    fn from(it: pb::Reorder) -> Self {
        let pb::Reorder { probability, by_ns } = it;
        Self { probability, by_ns }
    }
}

#[derive(Debug, Serialize)]
pub struct DropRunView {
    pass_packets: u64,
    drop_packets: u64,
    once: bool,
}

impl From<pb::DropRun> for DropRunView {
    fn from(it: pb::DropRun) -> Self {
        let pb::DropRun { pass_packets, drop_packets, once } = it;
        Self { pass_packets, drop_packets, once }
    }
}
