// SPDX-License-Identifier: Apache-2.0
//! Prints a profile as TOML, from the schema.
//!
//! Each table has its values first, then its sub-tables. Values equal to their default are
//! omitted. Lists of quantities can be long, so they have several items per line, which neither
//! style of the toml crate supports.

use crate::Rate;
use crate::schema::{Field, Kind, Table, whole};
use prost_reflect::{DynamicMessage, Value};
use proto::linkemu::v1 as pb;
use serde::Serialize;
use std::collections::BTreeMap;
use units::Quantity;

/// Maximum line length of a list.
const COLUMNS: usize = 100;

pub(crate) fn profile(profile: &pb::Profile) -> String {
    let table = Table::named("Profile");
    let mut toml = Toml::default();
    toml.table("", table, &table.reflect(profile));
    toml.0
}

#[derive(Default)]
struct Toml(String);

impl Toml {
    /// Prints the content of a table.
    fn table(&mut self, path: &str, table: &Table, message: &DynamicMessage) {
        for field in table.fields.iter().filter(|field| field.kind != Kind::Table) {
            if is_written(table, field, message) {
                self.values(field, field.is_given(message), &message.get_field(&field.descriptor));
            }
        }
        for field in table.fields.iter().filter(|field| field.is_given(message)) {
            let Some(inner) = field.table() else { continue };
            let path =
                if path.is_empty() { field.key.clone() } else { format!("{path}.{}", field.key) };
            let value = message.get_field(&field.descriptor);
            for item in value.as_list().unwrap_or_default().iter().filter_map(Value::as_message) {
                self.0 += &format!("\n[[{path}]]\n");
                self.table(&path, inner, item);
            }
            if let Some(message) = value.as_message() {
                self.0 += &format!("\n[{path}]\n");
                self.table(&path, inner, message);
            }
        }
    }

    /// Prints a field that is not a table.
    fn values(&mut self, field: &Field, is_given: bool, value: &Value) {
        let key = field.key.as_str();
        match (field.kind, value) {
            (Kind::Text, Value::List(items)) => {
                self.pair(key, &items.iter().map(|item| field.format(item)).collect::<Vec<_>>());
            }
            (Kind::Count, Value::List(items)) => {
                self.list(key, items.iter().map(|item| field.format(item)));
            }
            (_, Value::List(items)) => {
                self.list(key, items.iter().map(|item| format!("\"{}\"", field.format(item))));
            }
            (Kind::Switch, _) => self.pair(key, &value.as_bool()),
            (Kind::Count, _) => self.pair(key, &whole(value)),
            (Kind::Number, _) => self.pair(key, &value.as_f64()),
            (Kind::Quantity(Quantity::Rate), _) if !is_given => {
                self.pair(key, &Rate::Unlimited.to_string())
            }
            _ => self.pair(key, &field.format(value)),
        }
    }

    /// Prints a key and its value.
    fn pair(&mut self, key: &str, value: &impl Serialize) {
        // Strings, floats, counts below 2^63 and lists of strings exist in TOML, so this does
        // not fail. Pretty style: one list item per line.
        self.0 += &toml::to_string_pretty(&BTreeMap::from([(key, value)])).unwrap_or_default();
    }

    /// Prints a list of counts, or of quoted quantities, which contain no characters that TOML
    /// escapes.
    fn list(&mut self, key: &str, items: impl Iterator<Item = String>) {
        const INDENT: &str = "   ";
        let items: Vec<_> = items.collect();
        let line = format!("{key} = [{}]", items.join(", "));
        if line.len() <= COLUMNS {
            self.0 += &format!("{line}\n");
            return;
        }
        self.0 += &format!("{key} = [\n{INDENT}");
        let mut columns = INDENT.len();
        for item in items {
            let item = format!(" {item},");
            if columns + item.len() > COLUMNS {
                self.0 += &format!("\n{INDENT}");
                columns = INDENT.len();
            }
            columns += item.len();
            self.0 += &item;
        }
        self.0 += "\n]\n";
    }
}

/// True if the key is needed to parse the same message.
fn is_written(table: &Table, field: &Field, message: &DynamicMessage) -> bool {
    let is_other_given = table.alternatives(field).any(|other| other.is_given(message));
    let is_needed = field.parameter.required || !field.parameter.default.is_empty();
    field.is_given(message) || (is_needed && !is_other_given)
}
