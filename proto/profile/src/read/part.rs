// SPDX-License-Identifier: Apache-2.0
//! Parses a part of a pipe: some keys of a profile's direction, without required ones. `"none"`
//! removes a value that a profile would omit.

use super::NONE;
use super::reader::{Node, Reader};
use crate::limits::{FILE_BYTES, OUTAGE_INTERVAL_NS, PIPE_RATE_BPS, QUEUE_LIMIT_BYTES};
use crate::schema::{self, Kind, Table};
use crate::{Rate, Violations};
use prost_reflect::{DynamicMessage, Value};
use proto::linkemu::v1 as pb;
use std::fmt;
use toml::de::DeValue;
use units::Quantity;

/// New values for some fields of a pipe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    pub pipe: pb::Pipe,
    /// Paths of the fields for the mask of a PipeUpdate, without duplicates.
    pub paths: Vec<&'static str>,
}

impl Part {
    /// Parses a part from TOML, such as `duplicate = "0.1 %"`.
    ///
    /// # Errors
    /// All faults of the text that can be found without the rest of the pipe, each with line
    /// and column.
    pub fn from_toml(text: &str) -> Result<Self, Violations> {
        let mut reader = Reader::new(text);
        let document = reader.document(FILE_BYTES, "part of a link")?;
        let (path, span) = ("part".to_owned(), document.span());
        let part = reader.part(&Node { path, span, table: document.get_ref() });
        reader.into_found().into_result()?;
        Ok(part)
    }
}

impl Reader<'_> {
    /// Parses a part of a pipe, and checks its values as far as possible without the rest of
    /// the pipe.
    pub fn part(&mut self, node: &Node<'_>) -> Part {
        let table = Table::named("Pipe");
        let mut paths = Vec::new();
        let message = self.some(node, table, "", &mut paths);
        // Unknown keys are reported already.
        let keys = table.keys();
        let is_known = node.table.keys().all(|key| keys.contains(&key.get_ref().as_ref()));
        if paths.is_empty() && is_known {
            let message = format!("changes nothing: write some of {}", keys.join(", "));
            self.fail(&node.path, node.span.clone(), message);
        }
        let part = Part { pipe: schema::typed(&message), paths };
        if let Err(broken) = crate::validate_pipe(&node.path, &whole(&part)) {
            self.merge(broken);
        }
        part
    }

    /// The given fields of a message, and their paths. Required tables may be given in part,
    /// other fields only as a whole.
    fn some(
        &mut self,
        node: &Node<'_>,
        table: &'static Table,
        parent: &str,
        paths: &mut Vec<&'static str>,
    ) -> DynamicMessage {
        self.known(node, &table.keys());
        self.choices(node, table);
        let mut message = table.message();
        for field in &table.fields {
            let key = field.key.as_str();
            if !node.table.contains_key(key) {
                continue;
            }
            let name = format!("{parent}{}", field.descriptor.name());
            if let (true, Some(inner)) = (field.is_always_there(), field.table()) {
                if let Some(node) = self.table(node, key) {
                    let inner = self.some(&node, inner, &format!("{name}."), paths);
                    message.set_field(&field.descriptor, Value::Message(inner));
                }
                continue;
            }
            paths.extend(schema::path(&name).map(|path| path.name.as_str()));
            let is_none =
                |value: &DeValue<'_>| matches!(value, DeValue::String(text) if text == NONE);
            // Without a trace a rate is required.
            let is_needed = table.alternatives(field).any(|other| other.parameter.required);
            let is_table = field.kind == Kind::Table && !field.is_list && !is_needed;
            if is_table && node.table.get(key).is_some_and(|value| is_none(value.get_ref())) {
                continue;
            }
            if let Some(value) = self.field(node, field) {
                message.set_field(&field.descriptor, value);
            }
        }
        message
    }
}

/// A queue that is valid with any part.
const FREE: pb::Queue = pb::Queue {
    limit_bytes: *QUEUE_LIMIT_BYTES.end(),
    random_drop: None,
    ecn: false,
    red: None,
    codel: None,
    pie: None,
};

/// A pipe with the values of a part and other values that are valid with any of them.
fn whole(part: &Part) -> pb::Pipe {
    let mut pipe = part.pipe.clone();
    let queue = pipe.queue.get_or_insert(FREE);
    if !part.paths.contains(&"queue.limit_bytes") {
        queue.limit_bytes = FREE.limit_bytes;
    }
    // The AQM that marks is unknown if the part has none.
    queue.ecn &= queue.has_aqm();
    pipe.delay.get_or_insert_default();
    // Cross traffic and shares of a rate need one.
    if !part.paths.iter().any(|path| ["rate_bps", "rate_trace"].contains(path)) {
        pipe.rate_bps = Some(*PIPE_RATE_BPS.end());
    }
    if pipe.fade.is_some() && !part.paths.contains(&"outages") {
        let law = pb::DurationLaw::Fixed as i32;
        let interval_ns = *OUTAGE_INTERVAL_NS.end();
        pipe.outages.push(pb::Outage { interval_ns, duration_ns: 1_000_000, law });
    }
    pipe
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pipe = Table::named("Pipe").reflect(&self.pipe);
        for (i, path) in self.paths.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            let Some(path) = schema::path(path) else { continue };
            let Some((field, parents)) = path.steps.split_last() else { continue };
            let mut message = pipe.clone();
            for parent in parents {
                let inner = message.get_field(&parent.descriptor).as_message().cloned();
                message = inner.unwrap_or(message);
            }
            let is_given = field.is_given(&message);
            let value = message.get_field(&field.descriptor);
            let value = match (field.kind, value.as_list().map(<[Value]>::len)) {
                (_, Some(0)) => NONE.to_owned(),
                (_, Some(1)) => "1 class".to_owned(),
                (_, Some(n)) => format!("{n} classes"),
                (Kind::Quantity(Quantity::Rate), _) if !is_given => Rate::Unlimited.to_string(),
                (Kind::Table, _) if is_given => "given".to_owned(),
                (Kind::Table | Kind::Word, _) if !is_given => NONE.to_owned(),
                (Kind::Switch, _) => if is_given { "on" } else { "off" }.to_owned(),
                _ => field.format(&value),
            };
            write!(f, "{} {value}", field.title())?;
        }
        Ok(())
    }
}
