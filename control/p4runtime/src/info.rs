// SPDX-License-Identifier: Apache-2.0
//! A program's tables, actions, counters and digests by their names, as its P4Info has them.

use crate::bits;
use crate::proto::p4::config::v1 as config;
use config::match_field::MatchType;
use prost::Message;
use std::collections::HashMap;
use std::fmt;

/// Widest field or parameter, in bits.
const WIDEST: u32 = 128;

/// Why a program cannot be spoken with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// Bytes that are no P4Info.
    #[error("this is no P4Info in binary form: {0}; compile it with p4c --p4runtime-files F.bin")]
    Malformed(String),
    /// The program has none of this name.
    #[error("the P4 program has no {kind} {name:?}: it is not the one that goes with this linkd")]
    Missing { kind: &'static str, name: String },
    /// The program has it, and it cannot be used.
    #[error("{kind} {name:?} of the P4 program {what}")]
    Unusable { kind: &'static str, name: String, what: String },
}

/// How a field is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Exact,
    /// A prefix, the longest first.
    Lpm,
    /// A value under a mask, the highest priority first.
    Ternary,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Lpm => "lpm",
            Self::Ternary => "ternary",
        })
    }
}

/// A field of a table's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub id: u32,
    /// As the program calls it.
    pub name: String,
    pub width: u32,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub id: u32,
    /// As the program calls it.
    pub name: String,
    /// Of its key, in the program's order.
    pub fields: Vec<Field>,
    /// Numbers of the actions that its entries may have.
    pub actions: Vec<u32>,
    pub size: u64,
}

impl Table {
    /// The field of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn field(&self, name: &str) -> Result<&Field, InfoError> {
        let field = self.fields.iter().find(|field| field.name == name);
        field.ok_or_else(|| missing("key field", &format!("{}.{name}", self.name)))
    }

    /// Whether entries have a priority.
    #[must_use]
    pub fn has_priorities(&self) -> bool {
        self.fields.iter().any(|field| field.kind == Kind::Ternary)
    }
}

/// A parameter of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    pub id: u32,
    /// As the program calls it.
    pub name: String,
    pub width: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub id: u32,
    /// As the program calls it.
    pub name: String,
    /// In the program's order.
    pub params: Vec<Param>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub id: u32,
    /// As the program calls it.
    pub name: String,
    pub size: u64,
}

/// A message from the program to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    pub id: u32,
    /// As the program calls it.
    pub name: String,
}

/// All that a program has.
#[derive(Clone, Debug, Default)]
pub struct P4Info {
    tables: HashMap<String, Table>,
    table_names: HashMap<u32, String>,
    actions: HashMap<String, Action>,
    action_names: HashMap<u32, String>,
    counters: HashMap<String, Counter>,
    digests: HashMap<String, Digest>,
}

fn missing(kind: &'static str, name: &str) -> InfoError {
    InfoError::Missing { kind, name: name.into() }
}

impl P4Info {
    /// Reads the binary form.
    ///
    /// Tables with a field that is not exact, lpm or ternary, or is wider than 128 bits, are
    /// an error: no entry of theirs could be written.
    ///
    /// # Errors
    /// [`InfoError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, InfoError> {
        let message =
            config::P4Info::decode(bytes).map_err(|e| InfoError::Malformed(e.to_string()))?;
        let mut info = Self::default();
        for table in message.tables {
            let (id, name) = preamble("table", table.preamble)?;
            let field = |field| self::field(&name, field);
            let fields = table.match_fields.into_iter().map(field).collect::<Result<_, _>>()?;
            let actions = table.action_refs.into_iter().map(|action| action.id).collect();
            let size = u64::try_from(table.size).unwrap_or(0);
            info.table_names.insert(id, name.clone());
            info.tables.insert(name.clone(), Table { id, name, fields, actions, size });
        }
        for action in message.actions {
            let (id, name) = preamble("action", action.preamble)?;
            let param = |param: config::action::Param| {
                let width = width("parameter", &name, &param.name, param.bitwidth)?;
                Ok(Param { id: param.id, name: param.name, width })
            };
            let params = action.params.into_iter().map(param).collect::<Result<_, _>>()?;
            info.action_names.insert(id, name.clone());
            info.actions.insert(name.clone(), Action { id, name, params });
        }
        for counter in message.counters {
            let (id, name) = preamble("counter", counter.preamble)?;
            let size = u64::try_from(counter.size).unwrap_or(0);
            info.counters.insert(name.clone(), Counter { id, name, size });
        }
        for digest in message.digests {
            let (id, name) = preamble("digest", digest.preamble)?;
            info.digests.insert(name.clone(), Digest { id, name });
        }
        Ok(info)
    }

    /// The table of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn table(&self, name: &str) -> Result<&Table, InfoError> {
        self.tables.get(name).ok_or_else(|| missing("table", name))
    }

    /// The table of this number.
    ///
    /// # Errors
    /// There is none.
    pub fn table_of(&self, id: u32) -> Result<&Table, InfoError> {
        let name = self.table_names.get(&id).and_then(|name| self.tables.get(name));
        name.ok_or_else(|| missing("table", &id.to_string()))
    }

    /// The action of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn action(&self, name: &str) -> Result<&Action, InfoError> {
        self.actions.get(name).ok_or_else(|| missing("action", name))
    }

    /// The action of this number.
    ///
    /// # Errors
    /// There is none.
    pub fn action_of(&self, id: u32) -> Result<&Action, InfoError> {
        let name = self.action_names.get(&id).and_then(|name| self.actions.get(name));
        name.ok_or_else(|| missing("action", &id.to_string()))
    }

    /// The counters of this name.
    ///
    /// # Errors
    /// There are none.
    pub fn counter(&self, name: &str) -> Result<&Counter, InfoError> {
        self.counters.get(name).ok_or_else(|| missing("counter", name))
    }

    /// The digest of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn digest(&self, name: &str) -> Result<&Digest, InfoError> {
        self.digests.get(name).ok_or_else(|| missing("digest", name))
    }

    /// All tables, in no order.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    /// All counters, in no order.
    pub fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.counters.values()
    }

    /// All digests, in no order.
    pub fn digests(&self) -> impl Iterator<Item = &Digest> {
        self.digests.values()
    }
}

fn preamble(
    kind: &'static str,
    preamble: Option<config::Preamble>,
) -> Result<(u32, String), InfoError> {
    let preamble = preamble.unwrap_or_default();
    let nameless = preamble.id == 0 || preamble.name.is_empty();
    let what = "has no name or no number".into();
    let name = preamble.name;
    if nameless { Err(InfoError::Unusable { kind, name, what }) } else { Ok((preamble.id, name)) }
}

fn width(kind: &'static str, of: &str, name: &str, bits: i32) -> Result<u32, InfoError> {
    let width = u32::try_from(bits).ok().filter(|width| (1..=WIDEST).contains(width));
    let what = format!("has {bits} bits: 1 to {WIDEST} can be written");
    width.ok_or_else(|| InfoError::Unusable { kind, name: format!("{of}.{name}"), what })
}

fn field(table: &str, field: config::MatchField) -> Result<Field, InfoError> {
    let width = width("key field", table, &field.name, field.bitwidth)?;
    let kind = match field.match_type() {
        MatchType::Exact => Kind::Exact,
        MatchType::Lpm => Kind::Lpm,
        MatchType::Ternary => Kind::Ternary,
        other => {
            let what = format!("is matched by {}: exact, lpm or ternary", other.as_str_name());
            let name = format!("{table}.{}", field.name);
            return Err(InfoError::Unusable { kind: "key field", name, what });
        }
    };
    Ok(Field { id: field.id, name: field.name, width, kind })
}

impl Field {
    /// The bits of a prefix of this field.
    #[must_use]
    pub fn prefix(&self, length: u32) -> u128 {
        bits::prefix(length, self.width)
    }
}
