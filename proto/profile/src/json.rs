// SPDX-License-Identifier: Apache-2.0
//! A message of the model as JSON, from the schema: fields with the names and units of the proto.
//! An absent field is null, an enumeration value is a word.

use crate::schema::{Field, Kind, Table};
use prost_reflect::{DynamicMessage, Value};
use proto::linkemu::v1 as pb;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// A message that serde can serialise.
#[derive(Clone, Debug)]
pub struct Json {
    table: &'static Table,
    message: DynamicMessage,
}

macro_rules! json {
    ($($message:ident),+) => {$(
        impl From<&pb::$message> for Json {
            fn from(message: &pb::$message) -> Self {
                let table = Table::named(stringify!($message));
                Self { table, message: table.reflect(message) }
            }
        }
    )+};
}

json!(Profile, Estimate, Goodness, Sensitivity);

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Message { table: self.table, message: &self.message }.serialize(serializer)
    }
}

struct Message<'a> {
    table: &'a Table,
    message: &'a DynamicMessage,
}

impl Serialize for Message<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.table.fields.len()))?;
        for field in &self.table.fields {
            // "forward" for the proto's "forward_pipe".
            let name = field.descriptor.name();
            let name = name.strip_suffix("_pipe").unwrap_or(name);
            let value = self.message.get_field(&field.descriptor);
            let is_given = !field.descriptor.supports_presence() || field.is_given(self.message);
            match (value.as_list(), is_given) {
                (Some(items), _) => map.serialize_entry(name, &List { field, items })?,
                (None, true) => map.serialize_entry(name, &One { field, value: &value })?,
                (None, false) => map.serialize_entry(name, &())?,
            }
        }
        map.end()
    }
}

struct List<'a> {
    field: &'a Field,
    items: &'a [Value],
}

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.items.len()))?;
        for value in self.items {
            list.serialize_element(&One { field: self.field, value })?;
        }
        list.end()
    }
}

struct One<'a> {
    field: &'a Field,
    value: &'a Value,
}

impl Serialize for One<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.field.kind, self.value) {
            (Kind::Word, value) => self.field.word(value).serialize(serializer),
            (_, Value::Bool(on)) => serializer.serialize_bool(*on),
            (_, Value::I32(n)) => serializer.serialize_i32(*n),
            (_, Value::U32(n)) => serializer.serialize_u32(*n),
            (_, Value::U64(n)) => serializer.serialize_u64(*n),
            (_, Value::F64(x)) => serializer.serialize_f64(*x),
            (_, Value::String(text)) => serializer.serialize_str(text),
            (_, Value::Message(message)) => match self.field.table() {
                Some(table) => Message { table, message }.serialize(serializer),
                None => serializer.serialize_unit(),
            },
            // The model has no other types.
            _ => serializer.serialize_unit(),
        }
    }
}
