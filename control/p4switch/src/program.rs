// SPDX-License-Identifier: Apache-2.0
//! Names of the P4 program for names of the pipeline, and entries for entries.
//!
//! p4c's DPDK back end calls a table, action or counter `linkemu.x` of the program `_linkemu_x`,
//! `_linkemu_x_0` and so on. Registers of a counter of packets and bytes end with `_packets` and
//! `_bytes`. The counter [`SENT`] is in the ports. Entries of the program itself, which controllers do not see, are in comments at the start
//! of the specification, where `p4src/compile.sh` writes them:
//!
//! ```text
//! ;@ entry TABLE match VALUE VALUE/MASK ... priority N action ACTION NAME VALUE ...
//! ```
//!
//! Keys and parameters have the same order in both. A field of the pipeline may be wider than the
//! program's, because SWX rounds metadata up to whole bytes.

use std::collections::HashMap;

use p4runtime::entry::Key;
use p4runtime::info::Kind;
use p4runtime::{Change, Entry, Match, P4Info};

use crate::header::SENT;
use crate::worker::{self, Counter};

/// Reason why a program or a change cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// A comment of the specification is wrong.
    #[error("line {line} of the specification: {reason}")]
    Line { line: usize, reason: String },
    /// An object of the P4Info is not in the specification, or is another one.
    #[error("the specification does not match its P4Info: {0}")]
    Unlike(String),
    /// A change that SWX cannot make.
    #[error("SWX cannot do this: {0}")]
    Unsupported(String),
}

/// A table in the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    name: String,
    /// Names of actions in the pipeline.
    actions: HashMap<String, String>,
    /// Width of each field in the pipeline, bits. After [`Program::fit`].
    widths: Vec<u32>,
}

/// The names of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    tables: HashMap<String, Table>,
    counters: HashMap<String, Counter>,
    /// Register arrays of the specification.
    arrays: Vec<String>,
    /// Entries of the program itself, by table of the pipeline.
    pub entries: Vec<(String, swx::Entry)>,
}

impl Program {
    /// Reads a specification, as far as SWX does not.
    ///
    /// # Errors
    /// [`ProgramError::Line`] for a wrong entry.
    pub fn parse(text: &str) -> Result<Self, ProgramError> {
        let mut program = Self::default();
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["regarray", name, ..] => program.arrays.push((*name).into()),
                [";@", "entry", table, words @ ..] => {
                    let line = number + 1;
                    let entry =
                        entry(words).map_err(|reason| ProgramError::Line { line, reason })?;
                    program.entries.push(((*table).into(), entry));
                }
                _ => {}
            }
        }
        Ok(program)
    }

    /// Finds all objects of the P4Info in the pipeline, and compares keys and parameters.
    ///
    /// # Errors
    /// [`ProgramError::Unlike`] for the first that is not there.
    pub fn fit(mut self, info: &P4Info, tables: &[swx::Table]) -> Result<Self, ProgramError> {
        let unlike = |what: String| ProgramError::Unlike(what);
        for table in info.tables() {
            let real = tables.iter().find(|real| is_called(&real.name, &table.name, ""));
            let real = real.ok_or_else(|| unlike(format!("it has no table `{}`", table.name)))?;
            let mut own = Table { name: real.name.clone(), ..Table::default() };
            own.widths = real.fields.iter().map(|field| field.bits).collect();
            let widths: Vec<u32> = table.fields.iter().map(|field| field.width).collect();
            let wide = |(own, field): (&u32, &u32)| own >= field;
            if own.widths.len() != widths.len() || !own.widths.iter().zip(&widths).all(wide) {
                let own = &own.widths;
                return Err(unlike(format!("key of `{}`: {widths:?}, {own:?} bits", table.name)));
            }
            for action in &table.actions {
                let Ok(action) = info.action_of(*action) else { continue };
                let called = |real: &&swx::Action| is_called(&real.name, &action.name, "");
                // Not `NoAction` and others that only the default entry may have.
                let mut real = real.actions.iter().filter(|real| real.is_for_entries);
                let Some(real) = real.find(called) else { continue };
                if real.arguments.len() != action.params.len() {
                    return Err(unlike(format!("action `{}` of `{}`", action.name, table.name)));
                }
                own.actions.insert(action.name.clone(), real.name.clone());
            }
            self.tables.insert(table.name.clone(), own);
        }
        for counter in info.counters() {
            let array = |suffix| {
                let found =
                    self.arrays.iter().find(|array| is_called(array, &counter.name, suffix));
                found.cloned()
            };
            if counter.name == SENT {
                self.counters.insert(counter.name.clone(), Counter::Sent);
                continue;
            }
            let (packets, bytes) = (array("_packets").or_else(|| array("")), array("_bytes"));
            if packets.is_none() {
                return Err(unlike(format!("it has no counter `{}`", counter.name)));
            }
            let registers = Counter::Registers { packets, bytes };
            self.counters.insert(counter.name.clone(), registers);
        }
        Ok(self)
    }

    /// Where a counter is.
    ///
    /// # Errors
    /// [`ProgramError::Unsupported`].
    pub fn counter(&self, name: &str) -> Result<&Counter, ProgramError> {
        let counter = self.counters.get(name);
        counter.ok_or_else(|| ProgramError::Unsupported(format!("there is no counter `{name}`")))
    }

    /// A change for the worker; none for a digest, which the server keeps.
    ///
    /// # Errors
    /// [`ProgramError::Unsupported`].
    pub fn change(
        &self,
        info: &P4Info,
        change: &Change,
    ) -> Result<Option<worker::Change>, ProgramError> {
        let unsupported = |what: String| ProgramError::Unsupported(what);
        let port = |port: &u32| {
            u16::try_from(*port).map_err(|_| unsupported(format!("port {port} is above 65535")))
        };
        // The port's header has eight bits for a group.
        let group_of = |group: &u32| match u8::try_from(*group) {
            Ok(group @ 1..) => Ok(group.into()),
            _ => Err(unsupported(format!("group {group} is not 1 to 255"))),
        };
        Ok(Some(match change {
            Change::Insert(entry) | Change::Modify(entry) => {
                let (table, entry) = self.entry(info, entry)?;
                worker::Change::Set { table, entry }
            }
            Change::Delete(key) => {
                let (table, key) = self.key(info, key)?;
                worker::Change::Remove { table: table.name.clone(), key }
            }
            Change::Group { group, ports, .. } => {
                let ports = ports.iter().map(port).collect::<Result<_, _>>()?;
                worker::Change::Group { group: group_of(group)?, ports: Some(ports) }
            }
            Change::DeleteGroup(group) => {
                worker::Change::Group { group: group_of(group)?, ports: None }
            }
            Change::Count { counter, index, count } => {
                let wide = |_| unsupported(format!("cell {index} of `{counter}`"));
                let index = u32::try_from(*index).map_err(wide)?;
                let counter = self.counter(counter)?.clone();
                worker::Change::Count { counter, index, count: *count }
            }
            Change::Digest { .. } => return Ok(None),
        }))
    }

    fn entry(&self, info: &P4Info, entry: &Entry) -> Result<(String, swx::Entry), ProgramError> {
        let (table, key) = self.key(info, &entry.key)?;
        let name = &entry.action.name;
        let missing = || {
            let table = &entry.key.table;
            ProgramError::Unsupported(format!("entries of `{table}` cannot have `{name}`"))
        };
        let action = table.actions.get(name).ok_or_else(missing)?.clone();
        let params = &info.action(name).map_err(|_| missing())?.params;
        let value = |param: &p4runtime::info::Param| entry.action.params.get(&param.name).copied();
        let arguments: Option<Vec<u128>> = params.iter().map(value).collect();
        let entry = swx::Entry { key, action, arguments: arguments.ok_or_else(missing)? };
        Ok((table.name.clone(), entry))
    }

    fn key(&self, info: &P4Info, key: &Key) -> Result<(&Table, swx::Key), ProgramError> {
        let missing = || ProgramError::Unsupported(format!("there is no table `{}`", key.table));
        let own = self.tables.get(&key.table).ok_or_else(missing)?;
        let table = info.table(&key.table).map_err(|_| missing())?;
        let mut free = 0;
        let fields = table.fields.iter().zip(&own.widths);
        let fields = fields.map(|(field, &width)| match key.fields.get(&field.name) {
            // The bits above the program's width are always zero.
            Some(Match::Exact(value)) => (*value, ones(width)),
            Some(Match::Lpm { value, length }) => {
                free += field.width - length;
                (*value, field.prefix(*length))
            }
            Some(Match::Ternary { value, mask }) => (*value, *mask),
            None => {
                free += if field.kind == Kind::Lpm { field.width } else { 0 };
                (0, 0)
            }
        });
        let fields = fields.collect();
        let priority = match u32::try_from(key.priority) {
            // P4Runtime's highest wins, SWX's lowest.
            Ok(priority @ 1..) => swx::Key::LOWEST.checked_sub(priority),
            _ => Some(free),
        };
        let limit = swx::Key::LOWEST;
        let high = || ProgramError::Unsupported(format!("priority {} > {limit}", key.priority));
        Ok((own, swx::Key { fields, priority: priority.ok_or_else(high)? }))
    }
}

const fn ones(width: u32) -> u128 {
    match u128::MAX.checked_shr(128 - width) {
        Some(ones) => ones,
        None => 0,
    }
}

/// Whether p4c calls the object `name` of the program so in the specification.
fn is_called(own: &str, name: &str, suffix: &str) -> bool {
    // Those of the core library have no prefix.
    if own == name && suffix.is_empty() {
        return true;
    }
    let start = name.replace('.', "_");
    let rest = own.strip_prefix('_').and_then(|own| own.strip_prefix(&start));
    let Some(rest) = rest.and_then(|rest| rest.strip_suffix(suffix)) else { return false };
    let digits = rest.strip_prefix('_').unwrap_or(rest);
    rest.is_empty() || (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// `match VALUE VALUE/MASK ... priority N action ACTION NAME VALUE ...`, with the highest priority
/// first.
fn entry(words: &[&str]) -> Result<swx::Entry, String> {
    let number = |word: &str| {
        let parsed = match word.strip_prefix("0x") {
            Some(digits) => u128::from_str_radix(digits, 16),
            None => word.parse(),
        };
        parsed.map_err(|_| format!("`{word}` is not a number"))
    };
    let mut words = words.iter();
    if words.next() != Some(&"match") {
        return Err("an entry begins with `match`".into());
    }
    let mut key = swx::Key { fields: Vec::new(), priority: 0 };
    loop {
        match words.next() {
            Some(&"priority") => {
                let priority = number(words.next().ok_or("a number follows `priority`")?)?;
                let priority = u32::try_from(priority).ok();
                let priority = priority.and_then(|p| swx::Key::LOWEST.checked_sub(p));
                key.priority = priority.ok_or("the priority is too high")?;
            }
            Some(&"action") => break,
            Some(word) => key.fields.push(match word.split_once('/') {
                Some((value, mask)) => (number(value)?, number(mask)?),
                None => (number(word)?, u128::MAX),
            }),
            None => return Err("an entry has an `action`".into()),
        }
    }
    let action = (*words.next().ok_or("a name follows `action`")?).to_owned();
    let arguments: Vec<&str> = words.copied().collect();
    let (pairs, rest) = arguments.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("each argument has a name and a value".into());
    }
    let arguments = pairs.iter().map(|[_, value]| number(value)).collect::<Result<_, _>>()?;
    Ok(swx::Entry { key, action, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_their_names() {
        for (own, name, suffix) in [
            ("_linkemu_macs_0", "linkemu.macs", ""),
            ("_linkemu_ports", "linkemu.ports", ""),
            ("_linkemu_fates_0_bytes", "linkemu.fates", "_bytes"),
        ] {
            assert!(is_called(own, name, suffix), "{own}");
        }
        for (own, name, suffix) in [
            ("_linkemu_macs_x", "linkemu.macs", ""),
            ("_linkemu_macs_", "linkemu.macs", ""),
            ("linkemu_macs", "linkemu.macs", ""),
            ("_linkemu_prefixes6_0", "linkemu.prefixes", ""),
            ("_linkemu_fates_0_bytes", "linkemu.fates", "_packets"),
        ] {
            assert!(!is_called(own, name, suffix), "{own}");
        }
    }

    #[test]
    fn entries_of_the_program_are_read() {
        let text = "; x\n;@ entry t match 0x2 0x0/0xff priority 0x6 action a x 1 y 0x10\n\
                    regarray r size 1 initval 0\n";
        let program = Program::parse(text).unwrap();
        assert_eq!(program.arrays, ["r"]);
        let (table, entry) = &program.entries[0];
        assert_eq!((table.as_str(), entry.action.as_str()), ("t", "a"));
        assert_eq!(entry.key.fields, [(2, u128::MAX), (0, 255)]);
        assert_eq!(entry.key.priority, swx::Key::LOWEST - 6);
        assert_eq!(entry.arguments, [1, 16]);
    }

    #[test]
    fn wrong_entries_have_their_line() {
        for wrong in [
            "1 action a",
            "match 1",
            "match x/1 action a",
            "match 1 priority action a",
            "match 1 priority 0xffffffff action a",
            "match 1 action",
            "match 1 action a x",
            "match 1 action a x y",
        ] {
            let error = Program::parse(&format!("\n;@ entry t {wrong}\n")).unwrap_err();
            assert!(matches!(error, ProgramError::Line { line: 2, .. }), "{wrong}: {error}");
        }
    }
}
