// SPDX-License-Identifier: Apache-2.0
//! Tables, actions, counters and digests of a P4 program by name, from its P4Info.

use crate::bits;
use crate::proto::p4::config::v1 as config;
use config::match_field::MatchType;
use prost::Message;
use std::collections::HashMap;
use std::fmt;

/// Maximum width of a field or parameter, bits.
const WIDEST: u32 = 128;

/// Reason why a P4 program cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// The bytes are not a P4Info.
    #[error("not a P4Info in binary form: {0}; compile it with p4c --p4runtime-files F.bin")]
    Malformed(String),
    /// The program has no object with this name.
    #[error("the P4 program has no {kind} {name:?}: it does not match this linkd")]
    Missing { kind: &'static str, name: String },
    /// The object exists but cannot be used.
    #[error("{kind} {name:?} of the P4 program {what}")]
    Unusable { kind: &'static str, name: String, what: String },
}

/// Match kind of a key field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Exact,
    /// Longest prefix match.
    Lpm,
    /// Match under a mask; the highest priority wins.
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

/// A key field of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub id: u32,
    pub name: String,
    pub width: u32,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub id: u32,
    pub name: String,
    /// Key fields, in the program's order.
    pub fields: Vec<Field>,
    /// Ids of the actions that entries may use.
    pub actions: Vec<u32>,
    pub size: u64,
}

impl Table {
    ///
    /// # Errors
    /// If there is no such field.
    pub fn field(&self, name: &str) -> Result<&Field, InfoError> {
        let field = self.fields.iter().find(|field| field.name == name);
        field.ok_or_else(|| missing("key field", &format!("{}.{name}", self.name)))
    }

    /// True if entries need a priority.
    #[must_use]
    pub fn has_priorities(&self) -> bool {
        self.fields.iter().any(|field| field.kind == Kind::Ternary)
    }
}

/// A parameter of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    pub id: u32,
    pub name: String,
    pub width: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub id: u32,
    pub name: String,
    /// In the program's order.
    pub params: Vec<Param>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub id: u32,
    pub name: String,
    pub size: u64,
}

/// A counter for each entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectCounter {
    pub name: String,
    pub table: String,
}

/// The program, as its source names it. Each text may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// Architecture, such as `v1model`.
    pub arch: String,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {} ({})", self.name, self.version, self.arch)
    }
}

/// A message type from the program to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    pub id: u32,
    pub name: String,
}

/// The objects of a P4 program.
#[derive(Clone, Debug, Default)]
pub struct P4Info {
    tables: HashMap<String, Table>,
    table_names: HashMap<u32, String>,
    actions: HashMap<String, Action>,
    action_names: HashMap<u32, String>,
    counters: HashMap<String, Counter>,
    direct_counters: HashMap<String, DirectCounter>,
    package: Package,
    digests: HashMap<String, Digest>,
}

fn missing(kind: &'static str, name: &str) -> InfoError {
    InfoError::Missing { kind, name: name.into() }
}

impl P4Info {
    /// Decodes the binary form.
    ///
    /// A table with a field that is not exact, lpm or ternary, or is wider than 128 bits, is an
    /// error: its entries could not be encoded.
    ///
    /// # Errors
    /// [`InfoError`] for the first fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, InfoError> {
        let message =
            config::P4Info::decode(bytes).map_err(|e| InfoError::Malformed(e.to_string()))?;
        let mut info = Self::default();
        if let Some(config::PkgInfo { name, version, arch }) = message.pkg_info {
            info.package = Package { name, version, arch };
        }
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
        for counter in message.direct_counters {
            let (_, name) = preamble("direct counter", counter.preamble)?;
            let table = info.table_of(counter.direct_table_id)?.name.clone();
            info.direct_counters.insert(name.clone(), DirectCounter { name, table });
        }
        for digest in message.digests {
            let (id, name) = preamble("digest", digest.preamble)?;
            info.digests.insert(name.clone(), Digest { id, name });
        }
        Ok(info)
    }

    ///
    /// # Errors
    /// If there is no such table.
    pub fn table(&self, name: &str) -> Result<&Table, InfoError> {
        self.tables.get(name).ok_or_else(|| missing("table", name))
    }

    /// The table with this id.
    ///
    /// # Errors
    /// If there is no such table.
    pub fn table_of(&self, id: u32) -> Result<&Table, InfoError> {
        let name = self.table_names.get(&id).and_then(|name| self.tables.get(name));
        name.ok_or_else(|| missing("table", &id.to_string()))
    }

    ///
    /// # Errors
    /// If there is no such action.
    pub fn action(&self, name: &str) -> Result<&Action, InfoError> {
        self.actions.get(name).ok_or_else(|| missing("action", name))
    }

    /// The action with this id.
    ///
    /// # Errors
    /// If there is no such action.
    pub fn action_of(&self, id: u32) -> Result<&Action, InfoError> {
        let name = self.action_names.get(&id).and_then(|name| self.actions.get(name));
        name.ok_or_else(|| missing("action", &id.to_string()))
    }

    ///
    /// # Errors
    /// If there is no such counter.
    pub fn counter(&self, name: &str) -> Result<&Counter, InfoError> {
        self.counters.get(name).ok_or_else(|| missing("counter", name))
    }

    ///
    /// # Errors
    /// If there is no such digest.
    pub fn digest(&self, name: &str) -> Result<&Digest, InfoError> {
        self.digests.get(name).ok_or_else(|| missing("digest", name))
    }

    ///
    /// # Errors
    /// If there is no such counter.
    pub fn direct_counter(&self, name: &str) -> Result<&DirectCounter, InfoError> {
        self.direct_counters.get(name).ok_or_else(|| missing("direct counter", name))
    }

    /// The program, as its source names it.
    #[must_use]
    pub const fn package(&self) -> &Package {
        &self.package
    }

    /// All tables, in no particular order.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    /// All counters, in no particular order.
    pub fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.counters.values()
    }

    /// All digests, in no particular order.
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
    /// The mask of a prefix in this field.
    #[must_use]
    pub fn prefix(&self, length: u32) -> u128 {
        bits::prefix(length, self.width)
    }
}
