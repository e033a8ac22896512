// SPDX-License-Identifier: Apache-2.0
//! A partial change of a pipe: new values, and the paths of the fields to change.

use crate::limits::{
    BODY_QUANTILES_NS_ITEMS, OPPORTUNITIES_RUNS_ITEMS, PATH_TRACE_DELAYS_NS_ITEMS,
    PATH_TRACE_LOSSES_ITEMS, RATE_TRACE_RATES_BPS_ITEMS,
};
use crate::schema::{self, Field, Kind, Path, Table};
use crate::{Violations, nearest};
use prost_reflect::DynamicMessage;
use proto::linkemu::v1 as pb;
use units::shown;

/// Maximum number of paths in a mask. A longer mask has duplicates.
const PATHS: usize = 48;

/// A change of some fields of a pipe.
#[derive(Clone, Debug)]
pub struct Patch {
    paths: Vec<&'static Path>,
    values: pb::Pipe,
}

impl Patch {
    /// The change of the fields at `paths` to those in `values`, as in a `PipeUpdate`.
    ///
    /// # Errors
    /// Unknown paths and missing values.
    pub fn new<T: AsRef<str>>(values: &pb::Pipe, paths: &[T]) -> Result<Self, Violations> {
        let mut found = Violations::default();
        let names = || schema::paths().iter().map(|path| path.name.as_str());
        if paths.is_empty() {
            let all = names().collect::<Vec<_>>().join(", ");
            found.push("mask", format!("names nothing to change: name some of {all}"));
        }
        if paths.len() > PATHS {
            let message = format!("{} paths are more than {PATHS}: name each once", paths.len());
            found.push("mask", message);
            return Err(found);
        }
        let trace = values.rate_trace.as_ref();
        let rates = trace.map_or(0, |trace| trace.rates_bps.len());
        let opportunities = trace.and_then(|trace| trace.opportunities.as_ref());
        let runs = opportunities.map_or(0, |it| it.runs.len());
        let body = values.delay.as_ref().and_then(|delay| delay.body.as_ref());
        let quantiles = body.map_or(0, |body| body.quantiles_ns.len());
        let path = values.path_trace.as_ref();
        let delays = path.map_or(0, |path| path.delays_ns.len());
        let losses = path.map_or(0, |path| path.losses.len());
        for (path, count, most) in [
            ("pipe.path_trace.delays", delays, *PATH_TRACE_DELAYS_NS_ITEMS.end()),
            ("pipe.path_trace.losses", losses, *PATH_TRACE_LOSSES_ITEMS.end()),
            ("pipe.rate_trace.rates", rates, *RATE_TRACE_RATES_BPS_ITEMS.end()),
            ("pipe.rate_trace.opportunities.runs", runs, *OPPORTUNITIES_RUNS_ITEMS.end()),
            ("pipe.delay.body.quantiles", quantiles, *BODY_QUANTILES_NS_ITEMS.end()),
        ] {
            if count > most {
                found.push(path, format!("a list of {count} is too long: write {most} at most"));
            }
        }
        if !found.is_empty() {
            return Err(found);
        }
        let reflected = Table::named("Pipe").reflect(values);
        let mut known = Vec::new();
        for (i, name) in paths.iter().map(AsRef::as_ref).enumerate() {
            let Some(path) = schema::path(name) else {
                let near = nearest(name, names()).unwrap_or("rate_bps");
                let name = shown(name);
                let message = format!("{name:?} is no part of a pipe: the nearest is {near:?}");
                found.push(format!("mask.paths[{i}]"), message);
                continue;
            };
            // A value in an absent message would silently become zero.
            if let [parent, field] = path.steps[..]
                && field.kind != Kind::Table
                && !parent.is_given(&reflected)
            {
                let message = "missing, though the mask names a part of it: give it";
                found.push(format!("pipe.{}", parent.key), message);
            }
            known.push(path);
        }
        found.into_result()?;
        Ok(Self { paths: known, values: values.clone() })
    }

    /// True if it changes a field, such as `queue.limit_bytes`.
    #[must_use]
    pub fn names(&self, path: &str) -> bool {
        self.paths.iter().any(|it| it.name == path)
    }

    /// Applies the change.
    ///
    /// Fields that exclude a given value and are not named are removed: other members of its
    /// choice, a fade without outages, the outages of a reconfiguration with new outages, ECN marks without an AQM, shares of a rate that is not
    /// constant, and a reconfiguration that changes nothing.
    pub fn apply(&self, pipe: &mut pb::Pipe) {
        let table = Table::named("Pipe");
        // With reflection a list takes several times its size. Long lists are kept aside unless
        // they may change.
        let rates = ["rate_bps", "rate_trace"];
        let keeps_trace = !rates.iter().any(|path| self.names(path));
        let trace = if keeps_trace { pipe.rate_trace.take() } else { None };
        let keeps_body = !["delay", "delay.body"].iter().any(|path| self.names(path));
        let delay = pipe.delay.as_mut().filter(|_| keeps_body);
        let body = delay.and_then(|delay| delay.body.take());
        let values = table.reflect(&self.values);
        let mut message = table.reflect(pipe);
        for path in &self.paths {
            match path.steps[..] {
                [field] => self.change(&mut message, &values, table, field, ""),
                [parent, field] => {
                    let given = values.get_field(&parent.descriptor);
                    let value = message.get_field_mut(&parent.descriptor);
                    if let (Some(inner), Some(given), Some(table)) =
                        (value.as_message_mut(), given.as_message(), parent.table())
                    {
                        let prefix = format!("{}.", parent.descriptor.name());
                        self.change(inner, given, table, field, &prefix);
                    }
                }
                _ => {}
            }
        }
        *pipe = schema::typed(&message);
        if keeps_trace {
            pipe.rate_trace = trace;
        }
        if let Some(delay) = pipe.delay.as_mut().filter(|_| keeps_body) {
            delay.body = body;
        }
        if pipe.outages.is_empty() && self.names("outages") && !self.names("fade") {
            pipe.fade = None;
        }
        if pipe.rate_bps.is_none() && rates.iter().any(|path| self.names(path)) {
            self.remove_shares(pipe);
        }
        if let Some(it) = &mut pipe.reconfiguration
            && self.names("outages")
            && !self.names("reconfiguration")
        {
            (it.outage_probability, it.outage_ns) = (0.0, 0);
        }
        let nothing_changes = |it: &pb::Reconfiguration| {
            it.delays_ns.is_empty() && it.shares.is_empty() && it.outage_probability <= 0.0
        };
        if !self.names("reconfiguration")
            && pipe.reconfiguration.as_ref().is_some_and(nothing_changes)
        {
            pipe.reconfiguration = None;
        }
        let is_aqm = |field: &&Field| field.parameter.choice == "aqm";
        if let Some(queue) = &mut pipe.queue
            && self.paths.iter().any(|path| path.steps.last().is_some_and(is_aqm))
            && !self.names("queue.ecn")
            && !queue.has_aqm()
        {
            queue.ecn = false;
        }
    }

    /// Removes the shares of a rate that is no longer constant, and its capacity on demand, unless they
    /// are named.
    fn remove_shares(&self, pipe: &mut pb::Pipe) {
        if !self.names("capacity") {
            pipe.capacity = None;
        }
        if !self.names("access") {
            pipe.access = None;
        }
        if let Some(it) = &mut pipe.reconfiguration
            && !self.names("reconfiguration")
            && !self.names("reconfiguration.shares")
        {
            it.shares.clear();
        }
    }

    /// Changes a field of a message and removes the other members of its choice.
    fn change(
        &self,
        message: &mut DynamicMessage,
        values: &DynamicMessage,
        table: &Table,
        field: &Field,
        prefix: &str,
    ) {
        let is_given = field.is_given(values);
        if is_given {
            let value = values.get_field(&field.descriptor).into_owned();
            message.set_field(&field.descriptor, value);
        } else {
            message.clear_field(&field.descriptor);
        }
        // An absent rate is also a value: unlimited.
        let is_value = field.kind != Kind::Table && field.descriptor.supports_presence();
        if !(is_given || is_value) {
            return;
        }
        for other in table.alternatives(field) {
            let name = format!("{prefix}{}", other.descriptor.name());
            if !self.names(&name) {
                message.clear_field(&other.descriptor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> pb::Pipe {
        let catalog = crate::Catalog::built_in();
        catalog.get("lte-driving").unwrap().as_proto().forward_pipe.clone().unwrap()
    }

    #[test]
    fn patch_keeps_unnamed_fields_and_long_lists() {
        let mut varied = pipe();
        varied.delay.as_mut().unwrap().body =
            Some(pb::Body { correlation_ns: 1_000_000, quantiles_ns: vec![0, 5] });
        let before = varied.clone();
        let values = pb::Pipe { packet_loss: 0.1, ..Default::default() };
        Patch::new(&values, &["packet_loss"]).unwrap().apply(&mut varied);
        assert_eq!(varied, pb::Pipe { packet_loss: 0.1, ..before.clone() });

        let values = pb::Pipe { delay: Some(pb::Delay::default()), ..Default::default() };
        Patch::new(&values, &["delay"]).unwrap().apply(&mut varied);
        assert_eq!(varied.delay, Some(pb::Delay::default()));
        Patch::new(&before, &["delay.body"]).unwrap().apply(&mut varied);
        assert_eq!(varied.delay.as_ref().unwrap().body, before.delay.as_ref().unwrap().body);
        let rate = pb::Pipe { rate_bps: Some(5_000), ..Default::default() };
        Patch::new(&rate, &["rate_bps"]).unwrap().apply(&mut varied);
        assert_eq!((varied.rate_bps, &varied.rate_trace), (Some(5_000), &None));
        Patch::new(&before, &["rate_trace"]).unwrap().apply(&mut varied);
        assert_eq!((varied.rate_bps, varied.rate_trace), (None, before.rate_trace));
    }

    fn reconfigured() -> pb::Pipe {
        pb::Pipe {
            rate_bps: Some(9_000_000),
            rate_trace: None,
            capacity: Some(pb::Capacity { mean: 0.5, ..Default::default() }),
            reconfiguration: Some(pb::Reconfiguration {
                shares: vec![0.5],
                outage_probability: 0.2,
                outage_ns: 80_000_000,
                ..Default::default()
            }),
            ..pipe()
        }
    }

    #[test]
    fn rate_that_is_not_constant_removes_its_shares() {
        let mut patched = reconfigured();
        let down = pb::Pipe { rate_bps: Some(0), ..Default::default() };
        Patch::new(&down, &["rate_bps"]).unwrap().apply(&mut patched);
        assert_eq!(patched, pb::Pipe { rate_bps: Some(0), ..reconfigured() });
        Patch::new(&pb::Pipe::default(), &["rate_bps"]).unwrap().apply(&mut patched);
        assert_eq!((patched.rate_bps, patched.capacity), (None, None));
        assert_eq!(patched.reconfiguration.unwrap().shares, [0.0; 0]);
    }

    #[test]
    fn removed_outages_leave_other_changes_of_a_reconfiguration() {
        let patch = Patch::new(&pb::Pipe::default(), &["outages"]).unwrap();
        let mut patched = reconfigured();
        patch.apply(&mut patched);
        let left = patched.reconfiguration.as_mut().unwrap();
        assert_eq!((left.outage_probability, left.outage_ns, left.shares.len()), (0.0, 0, 1));
        left.shares.clear();
        patch.apply(&mut patched);
        assert_eq!(patched.reconfiguration, None);
        // A link without a reconfiguration gets none.
        patch.apply(&mut patched);
        assert_eq!(patched.reconfiguration, None);
    }

    #[test]
    fn too_long_lists_are_refused_before_reflection() {
        let mut long = pipe();
        long.rate_trace.as_mut().unwrap().rates_bps = vec![0; 70_000];
        let found = Patch::new(&long, &["rate_trace"]).unwrap_err();
        assert_eq!(
            found.to_string(),
            "pipe.rate_trace.rates: a list of 70000 is too long: write 65536 at most"
        );
    }

    #[test]
    fn removing_the_last_aqm_removes_ecn() {
        for aqm in Table::named("Queue").fields.iter().filter(|it| it.parameter.choice == "aqm") {
            let mut marks = pipe();
            let mut queue = Table::named("Queue").reflect(marks.queue.as_ref().unwrap());
            let default = aqm.table().unwrap().message();
            queue.set_field(&aqm.descriptor, prost_reflect::Value::Message(default));
            let queue: pb::Queue = schema::typed(&queue);
            marks.queue = Some(pb::Queue { ecn: true, ..queue });
            let path = format!("queue.{}", aqm.descriptor.name());
            Patch::new(&pb::Pipe::default(), &[path]).unwrap().apply(&mut marks);
            assert!(!marks.queue.unwrap().has_aqm() && !marks.queue.unwrap().ecn);
        }
    }
}
