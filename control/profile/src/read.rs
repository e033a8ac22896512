// SPDX-License-Identifier: Apache-2.0
//! A profile from TOML.
//!
//! The document is walked as a tree with the place of each value, not through
//! serde's derived readers: those stop at the first error, and know neither
//! places nor the nearest key. Reading goes on after an error, and the rules of
//! [`crate::validate`] are checked on what could be read, so that one look gives
//! all that is wrong.

use crate::limits::FILE_BYTES;
use crate::units::{
    parse_duration, parse_overhead, parse_probability, parse_rate, parse_size, shown,
};
use crate::{Place, UnitError, Violations, nearest, validate};
use proto::linkemu::v1 as pb;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The text of a file of reasonable size.
pub(crate) fn file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One byte more than allowed shows that there is more.
    std::fs::File::open(path)?.take(FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads and checks a profile.
pub(crate) fn profile(text: &str) -> Result<pb::Profile, Violations> {
    let mut reader = Reader { text, ..Reader::default() };
    if text.len() > FILE_BYTES {
        reader.found.push("", format!("more than {FILE_BYTES} bytes are no profile: shorten it"));
        return Err(reader.found);
    }
    let document = match DeTable::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let span = error.span().unwrap_or(0..0);
            reader.fail("", span, format!("not TOML: {}", error.message()));
            return Err(reader.found);
        }
    };
    let profile = reader.profile(&Node {
        path: String::new(),
        span: document.span(),
        table: document.get_ref(),
    });
    if let Err(broken) = validate(&profile) {
        reader.merge(broken);
    }
    reader.found.into_result()?;
    Ok(profile)
}

/// A table and where it is.
struct Node<'a> {
    path: String,
    span: Range<usize>,
    table: &'a DeTable<'a>,
}

impl Node<'_> {
    fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

#[derive(Default)]
struct Reader<'t> {
    text: &'t str,
    found: Violations,
    /// Where each field is written.
    places: BTreeMap<String, Range<usize>>,
    /// Fields that were reported, so that the rules do not report them again.
    failed: BTreeSet<String>,
}

impl Reader<'_> {
    fn profile(&mut self, node: &Node<'_>) -> pb::Profile {
        self.known(node, &["name", "description", "source", "forward", "return"]);
        pb::Profile {
            name: self.text(node, "name"),
            description: self.text(node, "description"),
            source: self.text(node, "source"),
            forward_pipe: self.table(node, "forward").map(|node| self.pipe(&node)),
            return_pipe: self.table(node, "return").map(|node| self.pipe(&node)),
        }
    }

    fn pipe(&mut self, node: &Node<'_>) -> pb::Pipe {
        self.known(node, &["rate", "overhead", "queue", "outages", "delay"]);
        let rate = self.required(node, "rate", parse_rate, "144 Mbit/s\", \"unlimited\" or \"down");
        pb::Pipe {
            rate_bps: rate.and_then(|rate| rate.bps()),
            overhead_bytes: self.quantity(node, "overhead", parse_overhead, "0 B").unwrap_or(0),
            queue: self.table(node, "queue").map(|node| self.queue(&node)),
            outages: self.classes(node, "outages", Self::outage),
            delay: self.table(node, "delay").map(|node| self.delay(&node)),
        }
    }

    fn queue(&mut self, node: &Node<'_>) -> pb::Queue {
        self.known(node, &["limit", "random_drop"]);
        pb::Queue {
            limit_bytes: self.required(node, "limit", parse_size, "36 MB").unwrap_or(0),
            random_drop: self.table(node, "random_drop").map(|node| self.random_drop(&node)),
        }
    }

    fn random_drop(&mut self, node: &Node<'_>) -> pb::RandomDrop {
        let (low, high) = ("probability_at_threshold", "probability_at_limit");
        self.known(node, &["threshold", low, high]);
        pb::RandomDrop {
            threshold_bytes: self.required(node, "threshold", parse_size, "18 MB").unwrap_or(0),
            probability_at_threshold: self
                .required(node, low, parse_probability, "0 %")
                .unwrap_or(0.0),
            probability_at_limit: self
                .required(node, high, parse_probability, "10 %")
                .unwrap_or(0.0),
        }
    }

    fn outage(&mut self, node: &Node<'_>) -> pb::Outage {
        self.known(node, &["interval", "duration", "law"]);
        pb::Outage {
            interval_ns: self.time(node, "interval", "3 h 3 min"),
            duration_ns: self.time(node, "duration", "320 ms"),
            law: self.law(node) as i32,
        }
    }

    fn delay(&mut self, node: &Node<'_>) -> pb::Delay {
        self.known(node, &["base", "slot", "excursions"]);
        pb::Delay {
            base_ns: self.time(node, "base", "275 ms"),
            slot_ns: self.quantity(node, "slot", parse_duration, "43 ms").unwrap_or(0),
            excursions: self.classes(node, "excursions", Self::excursion),
        }
    }

    fn excursion(&mut self, node: &Node<'_>) -> pb::Excursion {
        self.known(node, &["interval", "duration", "location", "scale", "shape", "max"]);
        pb::Excursion {
            interval_ns: self.time(node, "interval", "30 min"),
            duration_ns: self.time(node, "duration", "800 ms"),
            location_ns: self.time(node, "location", "7 ms"),
            scale_ns: self.time(node, "scale", "30 ms"),
            shape: self.number(node, "shape", "0.3"),
            max_ns: self.time(node, "max", "700 ms"),
        }
    }

    /// Reports the keys of a table that are none of `keys`.
    fn known(&mut self, node: &Node<'_>, keys: &[&str]) {
        for key in node.table.keys() {
            let name = key.get_ref().as_ref();
            if keys.contains(&name) {
                continue;
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
    fn value<'a>(&mut self, node: &Node<'a>, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        let value = node.table.get(key)?;
        self.places.insert(node.at(key), value.span());
        Some(value)
    }

    fn text(&mut self, node: &Node<'_>, key: &str) -> String {
        match self.value(node, key) {
            None => {
                self.places.insert(node.at(key), node.span.clone());
                String::new()
            }
            Some(value) => match value.get_ref() {
                DeValue::String(text) => text.clone().into_owned(),
                other => {
                    let message = format!("{} is not text: write it in quotes", describe(other));
                    self.fail(&node.at(key), value.span(), message);
                    String::new()
                }
            },
        }
    }

    /// A sub-table; absence is for the rules to judge.
    fn table<'a>(&mut self, node: &Node<'a>, key: &str) -> Option<Node<'a>> {
        self.places.entry(node.at(key)).or_insert_with(|| node.span.clone());
        let value = self.value(node, key)?;
        let (path, span) = (node.at(key), value.span());
        match value.get_ref() {
            DeValue::Table(table) => Some(Node { path, span, table }),
            other => {
                let message = format!("{} is not a table: write [{path}]", describe(other));
                self.fail(&path, span, message);
                None
            }
        }
    }

    fn classes<'a, T>(
        &mut self,
        node: &Node<'a>,
        key: &str,
        read: fn(&mut Self, &Node<'a>) -> T,
    ) -> Vec<T> {
        let Some(value) = self.value(node, key) else { return Vec::new() };
        let path = node.at(key);
        let DeValue::Array(items) = value.get_ref() else {
            let message = format!(
                "{} is not a list of classes: write [[{path}]] for each",
                describe(value.get_ref())
            );
            self.fail(&path, value.span(), message);
            return Vec::new();
        };
        let mut classes = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let (item_path, span) = (format!("{path}[{i}]"), item.span());
            self.places.insert(item_path.clone(), span.clone());
            match item.get_ref() {
                DeValue::Table(table) => {
                    classes.push(read(self, &Node { path: item_path, span, table }));
                }
                other => {
                    let message = format!("{} is not a class: write [[{path}]]", describe(other));
                    self.fail(&item_path, span, message);
                }
            }
        }
        classes
    }

    fn time(&mut self, node: &Node<'_>, key: &str, example: &str) -> u64 {
        self.required(node, key, parse_duration, example).unwrap_or(0)
    }

    /// A quantity with its unit that must be there.
    fn required<T>(
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
    fn present(&mut self, node: &Node<'_>, key: &str, example: &str) {
        if !node.table.contains_key(key) {
            let message = format!("missing: write {key} = {example}");
            self.fail(&node.at(key), node.span.clone(), message);
        }
    }

    /// A quantity with its unit, if it is there.
    fn quantity<T>(
        &mut self,
        node: &Node<'_>,
        key: &str,
        parse: fn(&str) -> Result<T, UnitError>,
        example: &str,
    ) -> Option<T> {
        let value = self.value(node, key)?;
        let (parsed, quoted) = match value.get_ref() {
            DeValue::String(text) => (parse(text), true),
            DeValue::Integer(number) => (parse(&number.to_string()), false),
            DeValue::Float(number) => (parse(number.as_str()), false),
            other => {
                let message =
                    format!("{} is no quantity: write it as \"{example}\"", describe(other));
                self.fail(&node.at(key), value.span(), message);
                return None;
            }
        };
        match parsed {
            Ok(quantity) if quoted => Some(quantity),
            Ok(_) => None,
            Err(error @ UnitError::NoUnit { .. }) => {
                self.fail(&node.at(key), value.span(), format!("{key} = {error}"));
                None
            }
            Err(error) => {
                self.fail(&node.at(key), value.span(), error.to_string());
                None
            }
        }
    }

    /// A number without a dimension.
    fn number(&mut self, node: &Node<'_>, key: &str, example: &str) -> f64 {
        self.present(node, key, example);
        let Some(value) = self.value(node, key) else { return 0.0 };
        let number = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        number.unwrap_or_else(|| {
            let given = describe(value.get_ref());
            let message = format!("{given} is not a bare number: write {key} = {example}");
            self.fail(&node.at(key), value.span(), message);
            0.0
        })
    }

    fn law(&mut self, node: &Node<'_>) -> pb::DurationLaw {
        const LAWS: &str = "\"exponential\" or \"fixed\"";
        self.present(node, "law", LAWS);
        let Some(value) = self.value(node, "law") else { return pb::DurationLaw::Unspecified };
        match value.get_ref() {
            DeValue::String(law) if law == "exponential" => pb::DurationLaw::Exponential,
            DeValue::String(law) if law == "fixed" => pb::DurationLaw::Fixed,
            other => {
                let message = format!("{} is no law: write {LAWS}", describe(other));
                self.fail(&node.at("law"), value.span(), message);
                pb::DurationLaw::Unspecified
            }
        }
    }

    fn fail(&mut self, path: &str, span: Range<usize>, message: String) {
        self.found.push_at(path, message, place(self.text, span.start));
        self.failed.insert(path.to_owned());
    }

    /// Adds the rules that the values break, with their places; fields that could
    /// not be read, and what depends on them, are left out.
    fn merge(&mut self, mut broken: Violations) {
        for violation in broken.iter_mut() {
            let mut path = violation.path.as_str();
            let span = loop {
                match (self.places.get(path), path.rfind(['.', '['])) {
                    (Some(span), _) => break span.clone(),
                    (None, Some(cut)) => path = &path[..cut],
                    (None, None) => break 0..0,
                }
            };
            violation.place = Some(place(self.text, span.start));
        }
        let judged = |path: &str| {
            let limit = path.replace(".random_drop.threshold", ".limit");
            let location = path.replace(".max", ".location");
            [path, &limit, &location].iter().any(|path| self.failed.contains(*path))
        };
        let fresh: Vec<_> = broken.into_iter().filter(|v| !judged(&v.path)).collect();
        for violation in fresh {
            let place = violation.place.unwrap_or(Place { line: 1, column: 1 });
            self.found.push_at(&violation.path, violation.message, place);
        }
    }
}

/// A value, for messages.
fn describe(value: &DeValue<'_>) -> String {
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
