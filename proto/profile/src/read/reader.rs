// SPDX-License-Identifier: Apache-2.0
//! Parses values of a TOML document and records their places and faults.
//!
//! An invalid value is reported once: rules that depend on it are not checked. At most
//! [`FAULTS`] are reported, because finding the place of each scans the text, and texts are
//! untrusted.

use crate::{Place, UnitError, Violations, nearest, validate};
use proto::linkemu::v1 as pb;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use units::shown;

/// Maximum number of reported faults per text.
const FAULTS: usize = 100;

/// A table and its place.
pub struct Node<'a> {
    /// Path, such as `forward.queue`.
    pub path: String,
    /// Place in the text.
    pub span: Range<usize>,
    pub table: &'a DeTable<'a>,
}

impl Node<'_> {
    pub fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

/// A value with its key and its path.
pub struct Item<'a> {
    pub path: String,
    pub key: String,
    pub value: &'a Spanned<DeValue<'a>>,
}

/// Parses a text and records its faults.
#[derive(Default)]
pub struct Reader<'t> {
    text: &'t str,
    found: Violations,
    /// Place of each field.
    places: BTreeMap<String, Range<usize>>,
    /// Reported fields. The rules do not report them again.
    failed: BTreeSet<String>,
    /// Directory of the file, if it may name other files.
    pub(crate) directory: Option<PathBuf>,
}

impl<'t> Reader<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, ..Self::default() }
    }

    /// Parses the text. `what` names its type in messages; `bytes` is its maximum length.
    ///
    /// # Errors
    /// If the text is too long or not TOML.
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

    /// Validates the parsed message and returns it.
    ///
    /// # Errors
    /// All recorded faults and broken rules.
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

    /// Reports unknown keys of a table.
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

    /// Returns the value of a key and records its place.
    pub fn value<'a>(&mut self, node: &Node<'a>, key: &str) -> Option<Item<'a>> {
        let value = node.table.get(key)?;
        let path = node.at(key);
        self.places.insert(path.clone(), value.span());
        Some(Item { path, key: key.to_owned(), value })
    }

    /// A text; the rules check absence.
    pub fn text(&mut self, node: &Node<'_>, key: &str) -> String {
        match self.value(node, key) {
            None => {
                self.places.insert(node.at(key), node.span.clone());
                String::new()
            }
            Some(item) => self.string(&item).unwrap_or_default(),
        }
    }

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

    /// A sub-table; the rules check absence.
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

    /// A list of tables; empty if absent.
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

    /// A list of values; `None` if absent. An invalid item gets the value of its predecessor,
    /// so that the indices of later items stay correct.
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

    pub fn time(&mut self, node: &Node<'_>, key: &str, example: &str) -> u64 {
        self.required(node, key, crate::parse_duration, example).unwrap_or(0)
    }

    /// A required quantity with its unit.
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

    pub fn present(&mut self, node: &Node<'_>, key: &str, example: &str) {
        if !node.table.contains_key(key) {
            let message = format!("missing: write {key} = {example}");
            self.fail(&node.at(key), node.span.clone(), message);
        }
    }

    /// An optional quantity with its unit.
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

    /// Parses a quantity with its unit.
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

    /// Parses a number without a unit.
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

    /// A count; zero if absent.
    pub fn count(&mut self, node: &Node<'_>, key: &str) -> u64 {
        let Some(item) = self.value(node, key) else { return 0 };
        self.whole(&item, "1000").unwrap_or(0)
    }

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

    /// Parses `true` or `false`.
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

    /// Adds broken rules with their places, except those that depend on invalid fields.
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

    /// True if the field, or one that its rules use, is invalid and reported already.
    fn is_judged(&self, path: &str) -> bool {
        [
            (".random_drop.threshold", ".limit"),
            (".random_drop.early_threshold", ".threshold"),
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
