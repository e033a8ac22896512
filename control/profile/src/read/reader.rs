// SPDX-License-Identifier: Apache-2.0
//! Values of a TOML document, each with its place and its faults.
//!
//! A value that cannot be read is reported and stands for nothing: what it would
//! have broken is not reported as well. No more than [`FAULTS`] are reported: the
//! place of each costs a look through the text, and texts may be hostile.

use crate::{Place, UnitError, Violations, nearest, validate};
use proto::linkemu::v1 as pb;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use units::shown;

/// Faults that are reported of one text.
const FAULTS: usize = 100;

/// A table and where it is.
pub struct Node<'a> {
    /// Its path, such as `forward.queue`.
    pub path: String,
    /// Its place in the text.
    pub span: Range<usize>,
    pub table: &'a DeTable<'a>,
}

impl Node<'_> {
    /// The path of a key.
    pub fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

/// A value, what it is called in messages, and its path.
pub struct Item<'a> {
    pub path: String,
    pub key: String,
    pub value: &'a Spanned<DeValue<'a>>,
}

/// Reads a text, and remembers what is wrong with it.
#[derive(Default)]
pub struct Reader<'t> {
    text: &'t str,
    found: Violations,
    /// Where each field is written.
    places: BTreeMap<String, Range<usize>>,
    /// Fields that were reported, so that the rules do not report them again.
    failed: BTreeSet<String>,
    /// Where the text's file is, if it may name others beside it.
    pub(crate) directory: Option<PathBuf>,
}

impl<'t> Reader<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, ..Self::default() }
    }

    /// The document that the text is, if it has at most `bytes`; `what` it should be.
    ///
    /// # Errors
    /// If it is longer, or no TOML.
    pub fn document(
        &mut self,
        bytes: usize,
        what: &str,
    ) -> Result<Spanned<DeTable<'t>>, Violations> {
        if self.text.len() > bytes {
            let message = format!("more than {bytes} bytes are no {what}: shorten it");
            self.fail("", 0..0, message);
            return Err(std::mem::take(&mut self.found));
        }
        DeTable::parse(self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            self.fail("", span, format!("not TOML: {}", error.message()));
            std::mem::take(&mut self.found)
        })
    }

    /// A message that breaks no rule, or all that was found.
    ///
    /// # Errors
    /// All that was found.
    pub fn finish(mut self, profile: pb::Profile) -> Result<pb::Profile, Violations> {
        if let Err(broken) = validate(&profile) {
            self.merge(broken);
        }
        self.found.into_result()?;
        Ok(profile)
    }

    pub fn into_found(self) -> Violations {
        self.found
    }

    /// Reports the keys of a table that are none of `keys`.
    pub fn known(&mut self, node: &Node<'_>, keys: &[&str]) {
        for key in node.table.keys() {
            let name = key.get_ref().as_ref();
            if keys.contains(&name) {
                continue;
            }
            if self.is_full() {
                return;
            }
            let remedy = match nearest(name, keys.iter().copied()) {
                Some(near) => format!("the nearest is \"{near}\""),
                None => format!("the keys here are {}", keys.join(", ")),
            };
            let path = node.at(&shown(name));
            self.fail(&path, key.span(), format!("unknown key {:?}: {remedy}", shown(name)));
        }
    }

    /// The value of a key; its place is noted.
    pub fn value<'a>(&mut self, node: &Node<'a>, key: &str) -> Option<Item<'a>> {
        let value = node.table.get(key)?;
        let path = node.at(key);
        self.places.insert(path.clone(), value.span());
        Some(Item { path, key: key.to_owned(), value })
    }

    /// A text; absence is for the rules to judge.
    pub fn text(&mut self, node: &Node<'_>, key: &str) -> String {
        match self.value(node, key) {
            None => {
                self.places.insert(node.at(key), node.span.clone());
                String::new()
            }
            Some(item) => self.string(&item).unwrap_or_default(),
        }
    }

    /// A value that is text.
    pub fn string(&mut self, item: &Item<'_>) -> Option<String> {
        match item.value.get_ref() {
            DeValue::String(text) => Some(text.clone().into_owned()),
            other => {
                let message = format!("{} is not text: write it in quotes", describe(other));
                self.fail(&item.path, item.value.span(), message);
                None
            }
        }
    }

    /// A sub-table; absence is for the rules to judge.
    pub fn table<'a>(&mut self, node: &Node<'a>, key: &str) -> Option<Node<'a>> {
        self.places.entry(node.at(key)).or_insert_with(|| node.span.clone());
        let Item { path, value, .. } = self.value(node, key)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(Node { path, span: value.span(), table }),
            other => {
                let message = format!("{} is not a table: write [{path}]", describe(other));
                self.fail(&path, value.span(), message);
                None
            }
        }
    }

    /// A list of tables; without it, none.
    pub fn tables<'a, T>(
        &mut self,
        node: &Node<'a>,
        key: &str,
        read: impl Fn(&mut Self, &Node<'a>) -> T,
    ) -> Vec<T> {
        let Some(Item { path, value, .. }) = self.value(node, key) else { return Vec::new() };
        let DeValue::Array(items) = value.get_ref() else {
            let given = describe(value.get_ref());
            let message = format!("{given} is not a list of tables: write [[{path}]] for each");
            self.fail(&path, value.span(), message);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for (i, item) in items.iter().enumerate() {
            if self.is_full() {
                break;
            }
            let (item_path, span) = (format!("{path}[{i}]"), item.span());
            self.places.insert(item_path.clone(), span.clone());
            match item.get_ref() {
                DeValue::Table(table) => {
                    tables.push(read(self, &Node { path: item_path, span, table }));
                }
                other => {
                    let message = format!("{} is not a table: write [[{path}]]", describe(other));
                    self.fail(&item_path, span, message);
                    self.failed.insert(path.clone());
                }
            }
        }
        tables
    }

    /// A list of values; without it, none. What cannot be read becomes what is
    /// before it, so that those behind it keep their places.
    pub fn list<'a, T: Clone + Default>(
        &mut self,
        node: &Node<'a>,
        key: &str,
        example: &str,
        read: impl Fn(&mut Self, &Item<'a>) -> Option<T>,
    ) -> Vec<T> {
        let Some(Item { path, value, .. }) = self.value(node, key) else { return Vec::new() };
        let DeValue::Array(items) = value.get_ref() else {
            let given = describe(value.get_ref());
            self.fail(
                &path,
                value.span(),
                format!("{given} is not a list: write {key} = {example}"),
            );
            return Vec::new();
        };
        let mut list: Vec<T> = Vec::with_capacity(items.len());
        for (i, value) in items.iter().enumerate() {
            if self.is_full() {
                break;
            }
            let item = Item { path: format!("{path}[{i}]"), key: format!("{key}[{i}]"), value };
            let read = read(self, &item);
            if read.is_none() {
                self.failed.insert(path.clone());
            }
            self.places.insert(item.path, value.span());
            list.push(read.or_else(|| list.last().cloned()).unwrap_or_default());
        }
        list
    }

    /// A time that must be there.
    pub fn time(&mut self, node: &Node<'_>, key: &str, example: &str) -> u64 {
        self.required(node, key, crate::parse_duration, example).unwrap_or(0)
    }

    /// A quantity with its unit that must be there.
    pub fn required<T>(
        &mut self,
        node: &Node<'_>,
        key: &str,
        parse: fn(&str) -> Result<T, UnitError>,
        example: &str,
    ) -> Option<T> {
        self.present(node, key, &format!("\"{example}\""));
        self.quantity(node, key, parse, example)
    }

    /// Reports a key that is missing.
    pub fn present(&mut self, node: &Node<'_>, key: &str, example: &str) {
        if !node.table.contains_key(key) {
            let message = format!("missing: write {key} = {example}");
            self.fail(&node.at(key), node.span.clone(), message);
        }
    }

    /// A quantity with its unit, if it is there.
    pub fn quantity<T>(
        &mut self,
        node: &Node<'_>,
        key: &str,
        parse: fn(&str) -> Result<T, UnitError>,
        example: &str,
    ) -> Option<T> {
        let item = self.value(node, key)?;
        self.measure(&item, parse, example)
    }

    /// A value that is a quantity with its unit.
    pub fn measure<T>(
        &mut self,
        item: &Item<'_>,
        parse: impl Fn(&str) -> Result<T, UnitError>,
        example: &str,
    ) -> Option<T> {
        let (parsed, quoted) = match item.value.get_ref() {
            DeValue::String(text) => (parse(text), true),
            DeValue::Integer(number) => (parse(&number.to_string()), false),
            DeValue::Float(number) => (parse(number.as_str()), false),
            other => {
                let message =
                    format!("{} is no quantity: write it as \"{example}\"", describe(other));
                self.fail(&item.path, item.value.span(), message);
                return None;
            }
        };
        match parsed {
            Ok(quantity) if quoted => Some(quantity),
            Ok(_) => None,
            Err(error @ UnitError::NoUnit { .. }) => {
                self.fail(&item.path, item.value.span(), format!("{} = {error}", item.key));
                None
            }
            Err(error) => {
                self.fail(&item.path, item.value.span(), error.to_string());
                None
            }
        }
    }

    /// A value that is a number without a dimension.
    pub fn number(&mut self, item: &Item<'_>, example: &str) -> Option<f64> {
        let number = match item.value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        if number.is_none() {
            let given = describe(item.value.get_ref());
            let message = format!("{given} is not a bare number: write {} = {example}", item.key);
            self.fail(&item.path, item.value.span(), message);
        }
        number
    }

    /// How many there are of something; without it, zero.
    pub fn count(&mut self, node: &Node<'_>, key: &str) -> u64 {
        let Some(item) = self.value(node, key) else { return 0 };
        self.whole(&item, "1000").unwrap_or(0)
    }

    /// A value that says how many there are of something.
    pub fn whole(&mut self, item: &Item<'_>, example: &str) -> Option<u64> {
        let count = match item.value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            _ => None,
        };
        if count.is_none() {
            let (given, key) = (describe(item.value.get_ref()), &item.key);
            let message = format!("{given} is not a count: write {key} = {example}, zero or more");
            self.fail(&item.path, item.value.span(), message);
        }
        count
    }

    /// A value that is true or false.
    pub fn switch(&mut self, item: &Item<'_>) -> Option<bool> {
        match item.value.get_ref() {
            DeValue::Boolean(on) => Some(*on),
            other => {
                let (given, key) = (describe(other), &item.key);
                let message = format!("{given} is no switch: write {key} = true or false");
                self.fail(&item.path, item.value.span(), message);
                None
            }
        }
    }

    fn is_full(&self) -> bool {
        self.found.len() >= FAULTS
    }

    pub fn fail(&mut self, path: &str, span: Range<usize>, message: String) {
        if !self.is_full() {
            self.found.push_at(path, message, place(self.text, span.start));
        }
        self.failed.insert(path.to_owned());
    }

    /// Adds the rules that the values break, with their places; fields that could
    /// not be read, and what depends on them, are left out.
    pub fn merge(&mut self, broken: Violations) {
        for violation in broken {
            if self.is_full() {
                return;
            }
            if self.is_judged(&violation.path) {
                continue;
            }
            let mut path = violation.path.as_str();
            let span = loop {
                match (self.places.get(path), path.rfind(['.', '['])) {
                    (Some(span), _) => break span.clone(),
                    (None, Some(cut)) => path = &path[..cut],
                    (None, None) => break 0..0,
                }
            };
            let place = place(self.text, span.start);
            self.found.push_at(&violation.path, violation.message, place);
        }
    }

    /// Whether a field, or one that its rules look at, could not be read.
    fn is_judged(&self, path: &str) -> bool {
        [
            (".random_drop.threshold", ".limit"),
            (".max", ".location"),
            (".red.max", ".limit"),
            (".red.min", ".max"),
            (".codel.target", ".interval"),
            (".fade", ".outages"),
            (".lost", ".samples"),
            (".drop_run.pass", ".once"),
        ]
        .iter()
        .filter_map(|(field, other)| Some(format!("{}{other}", path.strip_suffix(field)?)))
        .chain([path.to_owned()])
        .any(|path| self.failed.contains(&path))
    }
}

pub fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{:?}", shown(text)),
        DeValue::Integer(number) => shown(&number.to_string()),
        DeValue::Float(number) => shown(number.as_str()),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn place(text: &str, offset: usize) -> Place {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Place {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}
