// SPDX-License-Identifier: Apache-2.0
//! Rules of a trace of delay and loss.

use super::{FAULTS, fault, length, values};
use crate::Violations;
use crate::schema::Table;
use prost_reflect::Value;
use proto::linkemu::v1 as pb;

pub(super) fn check(found: &mut Violations, path: &str, trace: &pb::PathTrace) {
    let (delays, losses) = (trace.delays_ns.len(), trace.losses.len());
    if delays == 0 && losses == 0 {
        found.push(path, "without delays and losses: write one of both, or leave out the trace");
    } else if delays > 0 && losses > 0 && delays != losses {
        let message = format!(
            "{losses} values are not as many as the {delays} delays: write one for each step"
        );
        found.push(format!("{path}.losses"), message);
    }
    values(found, &format!("{path}.delays"), "PathTrace", "delays_ns", &trace.delays_ns);
    let Some(field) = Table::named("PathTrace").field("losses") else { return };
    let path = format!("{path}.losses");
    length(found, &path, field, losses);
    let most = field.parameter.max_items as usize;
    let faults =
        trace.losses.iter().take(most).enumerate().filter_map(|(i, loss)| {
            Some((format!("{path}[{i}]"), fault(field, &Value::F64(*loss))?))
        });
    for (path, message) in faults.take(FAULTS) {
        found.push(path, message);
    }
}
