// SPDX-License-Identifier: Apache-2.0
//! Table entries with names, and their conversion to and from P4Runtime messages.
//!
//! Invariant: [`Entry::decode`] returns entries in canonical form, so that they can be compared.
//! [`Entry::encode`] writes that form: shortest byte strings, and no field that matches everything.

use crate::bits;
use crate::info::{Field, InfoError, Kind, P4Info};
use crate::proto::p4::v1::{self as p4, field_match, table_action};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The program lacks a named object.
    #[error(transparent)]
    Info(#[from] InfoError),
    /// A key field has an invalid value.
    #[error("{table}.{field} = {value}: {what}")]
    Key { table: String, field: String, value: String, what: String },
    #[error("{table}: {action}({param} = {value}): {what}")]
    Param { table: String, action: String, param: String, value: String, what: String },
    #[error("entry of {table}: {what}")]
    Entry { table: String, what: String },
}

/// The match of a key field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Match {
    Exact(u128),
    Lpm {
        /// Bits behind the prefix are zero.
        value: u128,
        /// Prefix length in bits, at most the field's width.
        length: u32,
    },
    /// A value with a mask.
    Ternary {
        /// Zero where the mask is zero.
        value: u128,
        /// Ones where the bits are compared.
        mask: u128,
    },
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Exact(value) => write!(f, "{value:#x}"),
            Self::Lpm { value, length } => write!(f, "{value:#x}/{length}"),
            Self::Ternary { value, mask } => write!(f, "{value:#x} &&& {mask:#x}"),
        }
    }
}

/// The key of a table entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub table: String,
    /// By field name. Fields that match everything may be absent.
    pub fields: BTreeMap<String, Match>,
    /// Positive if the table has ternary fields, otherwise zero.
    pub priority: i32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}[", self.table)?;
        for (n, (field, value)) in self.fields.iter().enumerate() {
            write!(f, "{}{field}={value}", if n == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action {
    pub name: String,
    /// All parameters of the action, by name.
    pub params: BTreeMap<String, u128>,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}(", self.name)?;
        for (n, (param, value)) in self.params.iter().enumerate() {
            write!(f, "{}{param}={value}", if n == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    pub key: Key,
    pub action: Action,
    /// Opaque bytes for the controller.
    pub metadata: Vec<u8>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} -> {}", self.key, self.action)
    }
}

impl Entry {
    /// An entry without key and action.
    #[must_use]
    pub fn new(table: &str) -> Self {
        let key = Key { table: table.into(), ..Key::default() };
        Self { key, ..Self::default() }
    }

    /// Adds a field that must equal `value`.
    #[must_use]
    pub fn exact(self, field: &str, value: impl Into<u128>) -> Self {
        self.matching(field, Match::Exact(value.into()))
    }

    /// Adds a field with a prefix of `length` bits.
    #[must_use]
    pub fn lpm(self, field: &str, value: impl Into<u128>, length: u32) -> Self {
        self.matching(field, Match::Lpm { value: value.into(), length })
    }

    /// Adds a field that must equal `value` where `mask` has ones.
    #[must_use]
    pub fn ternary(self, field: &str, value: impl Into<u128>, mask: impl Into<u128>) -> Self {
        self.matching(field, Match::Ternary { value: value.into(), mask: mask.into() })
    }

    #[must_use]
    pub fn matching(mut self, field: &str, value: Match) -> Self {
        self.key.fields.insert(field.into(), value);
        self
    }

    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.key.priority = priority;
        self
    }

    #[must_use]
    pub fn does(mut self, action: &str) -> Self {
        self.action.name = action.into();
        self
    }

    /// Adds a parameter of the action.
    #[must_use]
    pub fn with(mut self, param: &str, value: impl Into<u128>) -> Self {
        self.action.params.insert(param.into(), value.into());
        self
    }

    #[must_use]
    pub fn noted(mut self, metadata: impl Into<Vec<u8>>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// Encodes the entry as a message.
    ///
    /// # Errors
    /// If the program lacks a named object, or a value does not fit or is missing.
    pub fn encode(&self, info: &P4Info) -> Result<p4::TableEntry, EntryError> {
        let mut message = self.key.encode(info)?;
        let Action { name, params } = &self.action;
        let (table, action) = (info.table(&self.key.table)?, info.action(name)?);
        if !table.actions.contains(&action.id) {
            return Err(self.key.wrong(format!("its action cannot be {name}")));
        }
        let bad = |param: &str, value: String, what: String| EntryError::Param {
            table: table.name.clone(),
            action: name.clone(),
            param: param.into(),
            value,
            what,
        };
        let unknown = params.keys().find(|given| action.params.iter().all(|p| p.name != **given));
        if let Some(unknown) = unknown {
            let value = params.get(unknown).copied().unwrap_or_default();
            return Err(bad(unknown, value.to_string(), "there is no such parameter".into()));
        }
        let param = |param: &crate::info::Param| {
            let value = params.get(&param.name).copied();
            let value =
                value.ok_or_else(|| bad(&param.name, "?".into(), "it must be given".into()))?;
            if !bits::fits(value, param.width) {
                let what = format!("it has more than {} bits", param.width);
                return Err(bad(&param.name, value.to_string(), what));
            }
            Ok(p4::action::Param { param_id: param.id, value: bits::encode(value) })
        };
        let params = action.params.iter().map(param).collect::<Result<_, _>>()?;
        let action = p4::Action { action_id: action.id, params };
        let kind = Some(table_action::Type::Action(action));
        message.action = Some(p4::TableAction { r#type: kind });
        message.metadata.clone_from(&self.metadata);
        Ok(message)
    }

    /// Decodes a message into canonical form.
    ///
    /// # Errors
    /// If the message is not an entry of this program.
    pub fn decode(info: &P4Info, message: &p4::TableEntry) -> Result<Self, EntryError> {
        let key = Key::decode(info, message)?;
        let kind = message.action.as_ref().and_then(|action| action.r#type.as_ref());
        let Some(table_action::Type::Action(said)) = kind else {
            return Err(key.wrong("it has no action".into()));
        };
        let action = info.action_of(said.action_id)?;
        if !info.table(&key.table)?.actions.contains(&action.id) {
            return Err(key.wrong(format!("its action cannot be {}", action.name)));
        }
        let mut params = BTreeMap::new();
        for param in &action.params {
            let said = said.params.iter().find(|said| said.param_id == param.id);
            let bytes = said.map(|said| said.value.as_slice()).unwrap_or_default();
            let value = bits::decode(bytes, param.width).ok_or_else(|| EntryError::Param {
                table: key.table.clone(),
                action: action.name.clone(),
                param: param.name.clone(),
                value: shown(bytes),
                what: format!("not a number of {} bits", param.width),
            })?;
            params.insert(param.name.clone(), value);
        }
        let action = Action { name: action.name.clone(), params };
        Ok(Self { key, action, metadata: message.metadata.clone() })
    }
}

/// Formats bytes for an error. Hostile byte strings may be long.
fn shown(bytes: &[u8]) -> String {
    format!(
        "{:02x?}{}",
        bytes.get(..16).unwrap_or(bytes),
        if bytes.len() > 16 { "..." } else { "" }
    )
}

impl Key {
    fn wrong(&self, what: String) -> EntryError {
        EntryError::Entry { table: self.to_string(), what }
    }

    fn bad(&self, field: &str, value: impl fmt::Display, what: impl Into<String>) -> EntryError {
        EntryError::Key {
            table: self.table.clone(),
            field: field.into(),
            value: value.to_string(),
            what: what.into(),
        }
    }

    /// Encodes an entry with this key and no action, as used to delete an entry.
    ///
    /// # Errors
    /// If the program lacks a named object, or a value does not fit or is missing.
    pub fn encode(&self, info: &P4Info) -> Result<p4::TableEntry, EntryError> {
        let table = info.table(&self.table)?;
        for name in self.fields.keys() {
            table.field(name)?;
        }
        if table.has_priorities() != (self.priority > 0) {
            let what = "a priority above zero goes with a ternary field, and with no other";
            return Err(self.wrong(format!("priority {}: {what}", self.priority)));
        }
        let mut fields = Vec::with_capacity(table.fields.len());
        for field in &table.fields {
            let given = self.fields.get(&field.name);
            if let Some(kind) = self.field(field, given)? {
                let field_match_type = Some(kind);
                fields.push(p4::FieldMatch { field_id: field.id, field_match_type });
            }
        }
        let (table_id, priority) = (table.id, self.priority);
        Ok(p4::TableEntry { table_id, r#match: fields, priority, ..Default::default() })
    }

    /// `None` if it matches everything.
    fn field(
        &self,
        field: &Field,
        given: Option<&Match>,
    ) -> Result<Option<field_match::FieldMatchType>, EntryError> {
        let fits = |value: u128| match bits::fits(value, field.width) {
            true => Ok(bits::encode(value)),
            false => {
                let what = format!("it has more than {} bits", field.width);
                Err(self.bad(&field.name, format_args!("{value:#x}"), what))
            }
        };
        let kind = match (field.kind, given) {
            (Kind::Exact, None) => {
                return Err(self.bad(&field.name, "?", "a field of an exact match must be given"));
            }
            (_, None) => return Ok(None),
            (Kind::Exact, Some(Match::Exact(value))) => {
                field_match::FieldMatchType::Exact(field_match::Exact { value: fits(*value)? })
            }
            (Kind::Lpm, Some(given @ Match::Lpm { value, length })) => {
                let bytes = fits(*value)?;
                let (prefix_len, mask) = (i32::try_from(*length), field.prefix(*length));
                let (Ok(prefix_len), true, true) =
                    (prefix_len, *length <= field.width, value & !mask == 0)
                else {
                    let what = format!("a prefix of {} bits with zeros behind it", field.width);
                    return Err(self.bad(&field.name, given, what));
                };
                if *length == 0 {
                    return Ok(None);
                }
                field_match::FieldMatchType::Lpm(field_match::Lpm { value: bytes, prefix_len })
            }
            (Kind::Ternary, Some(given @ Match::Ternary { value, mask })) => {
                if value & !mask != 0 {
                    return Err(self.bad(&field.name, given, "it has ones outside of its mask"));
                }
                let (value, bytes) = (fits(*value)?, fits(*mask)?);
                if *mask == 0 {
                    return Ok(None);
                }
                let ternary = field_match::Ternary { value, mask: bytes };
                field_match::FieldMatchType::Ternary(ternary)
            }
            (kind, Some(given)) => {
                let what = format!("the field's match is {kind}");
                return Err(self.bad(&field.name, given, what));
            }
        };
        Ok(Some(kind))
    }

    /// Decodes the key of a message into canonical form: without fields that match everything.
    ///
    /// # Errors
    /// If the message is not an entry of this program.
    pub fn decode(info: &P4Info, message: &p4::TableEntry) -> Result<Self, EntryError> {
        let table = info.table_of(message.table_id)?;
        let mut key =
            Self { table: table.name.clone(), priority: message.priority, ..Self::default() };
        if table.has_priorities() != (message.priority > 0) {
            return Err(key.wrong(format!("priority {}", message.priority)));
        }
        for said in &message.r#match {
            let field = table.fields.iter().find(|field| field.id == said.field_id);
            let field =
                field.ok_or_else(|| key.wrong(format!("it has no key field {}", said.field_id)))?;
            let number = |bytes: &[u8]| {
                let what = || format!("not a number of {} bits", field.width);
                bits::decode(bytes, field.width)
                    .ok_or_else(|| key.bad(&field.name, shown(bytes), what()))
            };
            let value = match (field.kind, &said.field_match_type) {
                (Kind::Exact, Some(field_match::FieldMatchType::Exact(said))) => {
                    Match::Exact(number(&said.value)?)
                }
                (Kind::Lpm, Some(field_match::FieldMatchType::Lpm(said))) => {
                    let value = number(&said.value)?;
                    let length = u32::try_from(said.prefix_len).ok();
                    let length =
                        length.filter(|length| *length <= field.width).ok_or_else(|| {
                            key.bad(&field.name, said.prefix_len, "not the length of a prefix")
                        })?;
                    Match::Lpm { value: value & field.prefix(length), length }
                }
                (Kind::Ternary, Some(field_match::FieldMatchType::Ternary(said))) => {
                    let (value, mask) = (number(&said.value)?, number(&said.mask)?);
                    Match::Ternary { value: value & mask, mask }
                }
                (kind, _) => {
                    return Err(key.bad(&field.name, "?", format!("its match is not {kind}")));
                }
            };
            if key.fields.contains_key(&field.name) {
                return Err(key.bad(&field.name, value, "it is there twice"));
            }
            if !matches!(value, Match::Lpm { length: 0, .. } | Match::Ternary { mask: 0, .. }) {
                key.fields.insert(field.name.clone(), value);
            }
        }
        let given = |field: &&Field| key.fields.contains_key(&field.name);
        let absent = table.fields.iter().find(|f| f.kind == Kind::Exact && !given(f));
        match absent {
            Some(absent) => Err(key.bad(&absent.name, "?", "it is not there")),
            None => Ok(key),
        }
    }

    /// Returns the key in canonical form.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        self.fields.retain(|_, value| {
            !matches!(value, Match::Lpm { length: 0, .. } | Match::Ternary { mask: 0, .. })
        });
        self
    }
}

#[cfg(test)]
mod tests;
