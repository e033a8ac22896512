// SPDX-License-Identifier: Apache-2.0
//! Parses a profile from TOML by the schema.
//!
//! The document is walked as a tree with the place of each value. serde's derived parsers stop at
//! the first error and know neither places nor the nearest key. Parsing continues after an error,
//! and [`crate::validate`] checks everything that could be parsed, so that all faults are reported
//! at once.

mod part;
pub(crate) mod reader;

pub use part::Part;

use crate::Violations;
use crate::limits::{FILE_BYTES, PATH_TRACE_STEP_NS, RATE_TRACE_RATES_BPS, RATE_TRACE_STEP_NS};
use crate::path_file::read_path_trace;
use crate::rate_file::{TraceError, beside, read_trace};
use crate::schema::{Field, Kind, Table, either, typed};
use prost_reflect::{DynamicMessage, Value};
use proto::linkemu::v1 as pb;
use reader::{Item, Node, Reader, describe};
use std::path::{Path, PathBuf};
use units::Quantity;

/// Parses and validates a profile from a file in `directory`.
pub(crate) fn profile(text: &str, directory: Option<&Path>) -> Result<pb::Profile, Violations> {
    let mut reader = Reader::new(text);
    reader.directory = directory.map(Path::to_path_buf);
    let document = reader.document(FILE_BYTES, "profile")?;
    let node = Node { path: String::new(), span: document.span(), table: document.get_ref() };
    let profile = reader.message(&node, Table::named("Profile"));
    reader.finish(typed(&profile))
}

/// Key of a trace with a file name instead of fields.
pub(crate) const FILE: &str = "file";

/// Whether a table can have the key [`FILE`].
pub(crate) fn has_file(table: &Table) -> bool {
    matches!(table.name(), "RateTrace" | "PathTrace")
}

impl Reader<'_> {
    /// Parses a table into a message.
    fn message(&mut self, node: &Node<'_>, table: &Table) -> DynamicMessage {
        let mut keys = table.keys();
        keys.extend(has_file(table).then_some(FILE));
        self.known(node, &keys);
        if has_file(table) && node.table.contains_key(FILE) {
            return match table.name() {
                "PathTrace" => self.path_file(node, table),
                _ => self.rate_file(node, table),
            };
        }
        self.choices(node, table);
        let mut message = table.message();
        for field in &table.fields {
            self.ensure(node, table, field);
            if let Some(value) = self.field(node, field).or_else(|| field.default()) {
                message.set_field(&field.descriptor, value);
            }
        }
        message
    }

    /// Parses a field. `None` if it is absent or invalid.
    fn field(&mut self, node: &Node<'_>, field: &Field) -> Option<Value> {
        let key = field.key.as_str();
        match field.kind {
            Kind::Table if field.is_list => {
                let tables = self.tables(node, key, |reader, node| {
                    field.table().map(|table| Value::Message(reader.message(node, table)))
                });
                Some(Value::List(tables.into_iter().flatten().collect()))
            }
            Kind::Table => {
                let node = self.table(node, key)?;
                Some(Value::Message(self.message(&node, field.table()?)))
            }
            _ if field.is_list => self.values(node, field),
            Kind::Text => Some(Value::String(self.text(node, key))),
            _ => {
                let item = self.value(node, key)?;
                self.scalar(&item, field)
            }
        }
    }

    /// Parses a list. An invalid item gets the value of its predecessor, or zero.
    fn values(&mut self, node: &Node<'_>, field: &Field) -> Option<Value> {
        if !node.table.contains_key(field.key.as_str()) {
            return None;
        }
        let read = |reader: &mut Self, item: &Item<'_>| reader.scalar(item, field).map(Some);
        let values = self.list(node, &field.key, &field.example(), read);
        let zero = || Value::default_value(&field.descriptor.kind());
        Some(Value::List(values.into_iter().map(|it| it.unwrap_or_else(zero)).collect()))
    }

    fn scalar(&mut self, item: &Item<'_>, field: &Field) -> Option<Value> {
        let example = field.parameter.example.as_str();
        match field.kind {
            Kind::Text => self.string(item).map(Value::String),
            Kind::Switch => self.switch(item).map(Value::Bool),
            Kind::Word => self.word(item, field),
            Kind::Count => {
                let count = self.whole(item, example)?;
                field.parse(&count.to_string()).ok().flatten()
            }
            Kind::Number => self.number(item, example).map(Value::F64),
            _ => {
                let value = self.measure(item, |text| field.parse(text), example)?;
                if value.is_none() && field.is_list {
                    let message = "a step cannot be \"unlimited\": write a rate, or \"down\"";
                    self.fail(&item.path, item.value.span(), message.to_owned());
                }
                value
            }
        }
    }

    /// Reports a missing required key. Missing tables and texts are reported by the rules.
    fn ensure(&mut self, node: &Node<'_>, table: &Table, field: &Field) {
        let is_told = matches!(field.kind, Kind::Table | Kind::Text) && !field.is_list;
        if !field.parameter.required || is_told || node.table.contains_key(field.key.as_str()) {
            return;
        }
        let others: Vec<&str> = table.alternatives(field).map(|it| it.key.as_str()).collect();
        if others.iter().any(|key| node.table.contains_key(*key)) {
            return;
        }
        let mut example = field.example();
        if field.kind == Kind::Quantity(Quantity::Rate) && !field.is_list {
            example += ", \"unlimited\" or \"down\"";
        }
        for other in others {
            example += &format!(", or a {other}");
        }
        self.present(node, &field.key, &example);
    }

    /// Reports alternatives of a value that may be "unlimited", which the rules cannot see.
    fn choices(&mut self, node: &Node<'_>, table: &Table) {
        for field in table.fields.iter().filter(|field| field.descriptor.supports_presence()) {
            if field.kind == Kind::Table || !node.table.contains_key(field.key.as_str()) {
                continue;
            }
            for other in table.alternatives(field) {
                if let Some(value) = node.table.get(other.key.as_str()) {
                    let message = format!("the {} is given as well: write one of both", field.key);
                    self.fail(&node.at(&other.key), value.span(), message);
                }
            }
        }
    }

    /// Reads a trace from another file.
    fn rate_file(&mut self, node: &Node<'_>, table: &Table) -> DynamicMessage {
        // Valid values: the failed read is reported already.
        let unread = pb::RateTrace {
            step_ns: *RATE_TRACE_STEP_NS.end(),
            rates_bps: vec![*RATE_TRACE_RATES_BPS.end()],
            ..Default::default()
        };
        let read = |path: PathBuf, step| Ok(read_trace(&path, step)?.trace);
        table.reflect(&self.trace_beside(node, table, read).unwrap_or(unread))
    }

    fn path_file(&mut self, node: &Node<'_>, table: &Table) -> DynamicMessage {
        let (step_ns, delays_ns) = (*PATH_TRACE_STEP_NS.end(), vec![0]);
        let unread = pb::PathTrace { step_ns, delays_ns, ..Default::default() };
        let read = |path: PathBuf, step| Ok(read_path_trace(&path, step)?.0);
        table.reflect(&self.trace_beside(node, table, read).unwrap_or(unread))
    }

    fn trace_beside<T>(
        &mut self,
        node: &Node<'_>,
        table: &Table,
        read: impl FnOnce(PathBuf, Option<u64>) -> Result<T, TraceError>,
    ) -> Option<T> {
        let step = table.field("step_ns").and_then(|field| self.field(node, field));
        for key in table.keys().into_iter().filter(|key| *key != "step") {
            if let Some(value) = node.table.get(key) {
                let message = "the file is given as well: write one of both".to_owned();
                self.fail(&node.at(key), value.span(), message);
            }
        }
        let item = self.value(node, FILE)?;
        let name = self.string(&item)?;
        let step = step.and_then(|step| step.as_u64());
        match beside(self.directory.as_deref(), &name).and_then(|path| read(path, step)) {
            Ok(trace) => Some(trace),
            Err(error) => {
                self.fail(&item.path, item.value.span(), error.to_string());
                None
            }
        }
    }

    fn word(&mut self, item: &Item<'_>, field: &Field) -> Option<Value> {
        let mut words = field.words();
        if !field.parameter.required {
            words.push(NONE.to_owned());
        }
        let given = item.value.get_ref();
        if let toml::de::DeValue::String(text) = given
            && words.iter().any(|word| word == text)
        {
            return Some(field.value_of_word(text));
        }
        let message =
            format!("{} is no {}: write {}", describe(given), field.title(), either(&words));
        self.fail(&item.path, item.value.span(), message);
        None
    }
}

/// Value that removes a part; a profile would omit the key.
const NONE: &str = "none";
