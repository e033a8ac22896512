// SPDX-License-Identifier: Apache-2.0
//! A part of a pipe, in the words of a profile: some of its keys, and nothing that must
//! be there. What a profile leaves out to have none of it is written `"none"` here.

use super::NONE;
use super::reader::{Node, Reader};
use crate::limits::{FILE_BYTES, OUTAGE_INTERVAL_NS, QUEUE_LIMIT_BYTES};
use crate::schema::{self, Kind, Table};
use crate::{Rate, Violations};
use prost_reflect::{DynamicMessage, Value};
use proto::linkemu::v1 as pb;
use std::fmt;
use toml::de::DeValue;
use units::Quantity;

/// New values of some fields of a pipe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    pub pipe: pb::Pipe,
    /// The fields, as the paths of a PatchLinkRequest's mask; each once.
    pub paths: Vec<&'static str>,
}

impl Part {
    /// Reads a part from TOML of its own, such as `duplicate = "0.1 %"`.
    ///
    /// # Errors
    /// All that is wrong with the text, each with its line and column, as far as it can be
    /// told without the rest of the pipe.
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
    /// Reads a part of a pipe, and checks its values as far as they can be without the
    /// rest of the pipe.
    pub fn part(&mut self, node: &Node<'_>) -> Part {
        let table = Table::named("Pipe");
        let mut paths = Vec::new();
        let message = self.some(node, table, "", &mut paths);
        // Of unknown keys it has been told.
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

    /// The fields of a message that are there, and their paths. What every pipe has is taken
    /// in parts as well, anything else as a whole.
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
            // Without a trace there would have to be a rate.
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

/// A queue that refuses nothing of a part.
const FREE: pb::Queue = pb::Queue {
    limit_bytes: *QUEUE_LIMIT_BYTES.end(),
    random_drop: None,
    ecn: false,
    red: None,
    codel: None,
    pie: None,
};

/// A pipe with the values of a part, whose other values refuse none of them.
fn whole(part: &Part) -> pb::Pipe {
    let mut pipe = part.pipe.clone();
    let queue = pipe.queue.get_or_insert(FREE);
    if !part.paths.contains(&"queue.limit_bytes") {
        queue.limit_bytes = FREE.limit_bytes;
    }
    // Which one marks is not known, if the part does not say.
    queue.ecn &= queue.has_aqm();
    pipe.delay.get_or_insert_default();
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
