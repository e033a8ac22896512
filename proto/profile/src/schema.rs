// SPDX-License-Identifier: Apache-2.0
//! The schema of a link: tables and parameters from `linkemu/v1/model.proto`, with the option
//! `parameter` of its fields.
//!
//! Parsing, printing, JSON, patches and range checks iterate over these tables, so they support a
//! new parameter of the proto without a change.

use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind as Type,
    MessageDescriptor, Value,
};
use proto::POOL;
use proto::linkemu::v1 as pb;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::LazyLock;
use units::{Amount, Quantity, UnitError};

/// Tables of a profile, by full message name.
static TABLES: LazyLock<HashMap<String, Table>> = LazyLock::new(tables);

/// Paths for patches: each field of a pipe, and each field of a required table of a pipe.
static PATHS: LazyLock<Vec<Path>> = LazyLock::new(|| {
    let mut paths = Vec::new();
    for field in &Table::named("Pipe").fields {
        let name = field.descriptor.name();
        paths.push(Path { name: name.to_owned(), steps: vec![field] });
        let inner = field.table().filter(|_| field.is_always_there());
        for inner in inner.map_or(&[][..], |table| &table.fields) {
            let name = format!("{name}.{}", inner.descriptor.name());
            paths.push(Path { name, steps: vec![field, inner] });
        }
    }
    paths
});

/// A message of the model, as a TOML table.
#[derive(Debug)]
pub(crate) struct Table {
    descriptor: MessageDescriptor,
    /// In the order of the proto, which is the order in files.
    pub fields: Vec<Field>,
}

/// A field of a table.
#[derive(Debug)]
pub(crate) struct Field {
    pub descriptor: FieldDescriptor,
    pub key: String,
    pub kind: Kind,
    /// True for a list.
    pub is_list: bool,
    pub parameter: pb::Parameter,
    pub range: Option<(Value, Value)>,
}

/// A field path for masks, relative to the pipe.
#[derive(Debug)]
pub(crate) struct Path {
    pub name: String,
    /// Fields from the pipe to the leaf.
    pub steps: Vec<&'static Field>,
}

/// The type of a value, which determines its syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Quantity(Quantity),
    Number,
    Count,
    Switch,
    Text,
    Word,
    Table,
}

/// All paths for patches.
pub(crate) fn paths() -> &'static [Path] {
    &PATHS
}

pub(crate) fn path(name: &str) -> Option<&'static Path> {
    PATHS.iter().find(|path| path.name == name)
}

fn tables() -> HashMap<String, Table> {
    let Some(option) = POOL.get_extension_by_name("linkemu.v1.parameter") else {
        return HashMap::new();
    };
    let of = |field: FieldDescriptor| {
        let parameter = field.options().get_extension(&option).as_message().cloned();
        let parameter = parameter.and_then(|it| it.transcode_to::<pb::Parameter>().ok());
        Field::new(field, parameter.unwrap_or_default())
    };
    let mut tables = HashMap::new();
    let mut open: Vec<MessageDescriptor> =
        POOL.get_message_by_name("linkemu.v1.Profile").into_iter().collect();
    while let Some(descriptor) = open.pop() {
        let mut fields: Vec<Field> = descriptor.fields().map(&of).collect();
        // The last number of a field's path is its position in the file.
        fields.sort_by_key(|field| field.descriptor.path().last().copied());
        open.extend(fields.iter().filter_map(|field| match field.descriptor.kind() {
            Type::Message(message) if !tables.contains_key(message.full_name()) => Some(message),
            _ => None,
        }));
        tables.insert(descriptor.full_name().to_owned(), Table { descriptor, fields });
    }
    tables
}

impl Table {
    /// Table of a message, such as `Pipe`.
    ///
    /// # Panics
    /// If the model has no such message. The name is a constant of this crate.
    #[allow(clippy::panic, reason = "the names are constants of this crate")]
    pub fn named(message: &str) -> &'static Self {
        let found = TABLES.get(&format!("linkemu.v1.{message}"));
        found.unwrap_or_else(|| panic!("the model has no message {message}"))
    }

    pub fn message(&self) -> DynamicMessage {
        DynamicMessage::new(self.descriptor.clone())
    }

    /// Converts a message of this type to its reflected form.
    pub fn reflect(&self, message: &impl prost::Message) -> DynamicMessage {
        let mut reflected = self.message();
        // The same message type: encoded bytes can be decoded.
        let _ = reflected.transcode_from(message);
        reflected
    }

    /// Name of the message, such as `Pipe`.
    pub fn name(&self) -> &str {
        self.descriptor.name()
    }

    pub fn keys(&self) -> Vec<&str> {
        self.fields.iter().map(|field| field.key.as_str()).collect()
    }

    /// Comment in the proto.
    pub fn comment(&self) -> String {
        comment(&self.descriptor.parent_file(), self.descriptor.path())
    }

    /// The other members of the field's choice. At most one of them may be given.
    pub fn alternatives<'a>(&'a self, field: &'a Field) -> impl Iterator<Item = &'a Field> {
        let choice = field.parameter.choice.as_str();
        self.fields.iter().filter(move |other| {
            !choice.is_empty() && other.parameter.choice == choice && other.key != field.key
        })
    }

    /// The field with this proto name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.descriptor.name() == name)
    }
}

/// Leading comment of a proto element, as one paragraph.
fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let info = file.file_descriptor_proto().source_code_info.as_ref();
    let places = info.map_or(&[][..], |info| &info.location);
    let place = places.iter().find(|place| place.path == path);
    let text = place.and_then(|place| place.leading_comments.as_deref()).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn typed<M: prost::Message + Default>(message: &DynamicMessage) -> M {
    // The same message type: encoded bytes can be decoded.
    message.transcode_to().unwrap_or_default()
}

impl Field {
    fn new(descriptor: FieldDescriptor, parameter: pb::Parameter) -> Self {
        let name = descriptor.name();
        let (stem, unit) = name.rsplit_once('_').unwrap_or((name, ""));
        let kind = match descriptor.kind() {
            Type::Message(_) => Kind::Table,
            Type::Enum(_) => Kind::Word,
            Type::Bool => Kind::Switch,
            Type::String => Kind::Text,
            Type::Double if parameter.probability => Kind::Quantity(Quantity::Probability),
            Type::Double => Kind::Number,
            of => Quantity::of_field(name, of == Type::Int32).map_or(Kind::Count, Kind::Quantity),
        };
        let has_unit = matches!(unit, "bps" | "ns" | "bytes" | "hz" | "packets" | "pipe");
        let key = match parameter.key.as_str() {
            "" if has_unit => stem,
            "" => name,
            key => key,
        };
        let mut field = Self {
            key: key.to_owned(),
            kind,
            is_list: descriptor.is_list(),
            parameter,
            range: None,
            descriptor,
        };
        let bound = |text: &str, whole: &str| {
            let given = if text.is_empty() && kind == Kind::Quantity(Quantity::Probability) {
                whole
            } else {
                text
            };
            field.parse(given).ok().flatten()
        };
        let (min, max) = (&field.parameter.min, &field.parameter.max);
        field.range = bound(min, "0 %").zip(bound(max, "100 %"));
        field
    }

    /// Comment in the proto.
    pub fn comment(&self) -> String {
        let file = self.descriptor.parent_message().parent_file();
        comment(&file, self.descriptor.path())
    }

    /// Name in a sentence.
    pub fn title(&self) -> String {
        match self.parameter.title.as_str() {
            "" => self.key.replace('_', " "),
            title => title.to_owned(),
        }
    }

    /// True for a table that every valid message has.
    pub fn is_always_there(&self) -> bool {
        self.kind == Kind::Table && !self.is_list && self.parameter.required
    }

    /// Table of its message type.
    pub fn table(&self) -> Option<&'static Table> {
        match self.descriptor.kind() {
            Type::Message(message) => TABLES.get(message.full_name()),
            _ => None,
        }
    }

    /// Words of the enumeration, in proto order, without the unspecified value.
    pub fn words(&self) -> Vec<String> {
        let Type::Enum(of) = self.descriptor.kind() else { return Vec::new() };
        of.values()
            .filter(|value| value.number() != 0)
            .map(|value| word(&of, value.name()))
            .collect()
    }

    /// Enumeration value of a word; the unspecified value for unknown words.
    pub fn value_of_word(&self, text: &str) -> Value {
        let Type::Enum(of) = self.descriptor.kind() else { return Value::EnumNumber(0) };
        let value =
            of.values().find(|value| value.number() != 0 && word(&of, value.name()) == text);
        Value::EnumNumber(value.map_or(0, |value| value.number()))
    }

    /// An example value in TOML, for messages.
    pub fn example(&self) -> String {
        let example = match self.kind {
            Kind::Word => return either(&self.words()),
            Kind::Number | Kind::Count => self.parameter.example.clone(),
            _ => format!("\"{}\"", self.parameter.example),
        };
        if !self.is_list {
            return example;
        }
        let count = self.parameter.min_items.max(1) as usize;
        format!("[{}]", vec![example; count].join(", "))
    }

    /// Value if the key is missing in TOML.
    pub fn default(&self) -> Option<Value> {
        let text = self.parameter.default.as_str();
        if text.is_empty() { None } else { self.parse(text).ok().flatten() }
    }

    /// Parses a text. `None` for an unlimited rate, and for types without a text form.
    pub fn parse(&self, text: &str) -> Result<Option<Value>, UnitError> {
        let whole = |n: u64| match self.descriptor.kind() {
            Type::Uint32 => Value::U32(u32::try_from(n).unwrap_or(u32::MAX)),
            _ => Value::U64(n),
        };
        Ok(match self.kind {
            Kind::Quantity(quantity) => quantity.parse(text)?.map(|amount| match amount {
                Amount::Whole(n) => whole(n),
                Amount::Signed(n) => Value::I32(n),
                Amount::Real(x) => Value::F64(x),
            }),
            Kind::Number => text.parse().ok().map(Value::F64),
            Kind::Count => text.parse().ok().map(whole),
            Kind::Switch | Kind::Text | Kind::Word | Kind::Table => None,
        })
    }

    /// Prints a value with its unit; empty for a table.
    pub fn format(&self, value: &Value) -> String {
        let whole = || whole(value);
        let real = || value.as_f64().unwrap_or_default();
        match self.kind {
            Kind::Quantity(quantity) => quantity.format(match value {
                Value::I32(n) => Amount::Signed(*n),
                Value::F64(x) => Amount::Real(*x),
                _ => Amount::Whole(whole()),
            }),
            Kind::Number => real().to_string(),
            Kind::Count => whole().to_string(),
            Kind::Switch => value.as_bool().unwrap_or_default().to_string(),
            Kind::Text => value.as_str().unwrap_or_default().to_owned(),
            Kind::Word => self.word(value).unwrap_or_default(),
            Kind::Table => String::new(),
        }
    }

    /// Word of an enumeration value; `None` for the unspecified or an unknown one.
    pub fn word(&self, value: &Value) -> Option<String> {
        let Type::Enum(of) = self.descriptor.kind() else { return None };
        let number = value.as_enum_number().filter(|number| *number != 0)?;
        Some(word(&of, of.get_value(number)?.name()))
    }

    /// True if the field is present, or not zero.
    pub fn is_given(&self, message: &DynamicMessage) -> bool {
        message.has_field(&self.descriptor)
    }
}

/// `DURATION_LAW_FIXED` of `DurationLaw` is `fixed`.
fn word(of: &EnumDescriptor, name: &str) -> String {
    let zero = of.get_value(0);
    let prefix = zero.as_ref().and_then(|zero| zero.name().strip_suffix("UNSPECIFIED"));
    name.strip_prefix(prefix.unwrap_or("")).unwrap_or(name).to_ascii_lowercase()
}

/// `"a", "b" or "c"`.
pub(crate) fn either(words: &[String]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

pub(crate) fn whole(value: &Value) -> u64 {
    value.as_u64().or(value.as_u32().map(u64::from)).unwrap_or_default()
}

/// Order of two values of the same kind; `None` if one is not a number.
pub(crate) fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::U64(a), Value::U64(b)) => Some(a.cmp(b)),
        (Value::U32(a), Value::U32(b)) => Some(a.cmp(b)),
        (Value::I32(a), Value::I32(b)) => Some(a.cmp(b)),
        (Value::F64(a), Value::F64(b)) => a.partial_cmp(b),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_type_fits_its_kind() {
        for field in TABLES.values().flat_map(|table| &table.fields) {
            let (kind, of) = (field.kind, field.descriptor.kind());
            let fits = match kind {
                Kind::Quantity(Quantity::Size) | Kind::Count => {
                    matches!(of, Type::Uint64 | Type::Uint32)
                }
                Kind::Quantity(Quantity::Rate | Quantity::Duration) => matches!(of, Type::Uint64),
                Kind::Quantity(Quantity::Overhead) => matches!(of, Type::Int32),
                Kind::Quantity(Quantity::Probability) | Kind::Number => matches!(of, Type::Double),
                Kind::Switch => matches!(of, Type::Bool),
                Kind::Text => matches!(of, Type::String),
                Kind::Word => matches!(of, Type::Enum(_)),
                Kind::Table => matches!(of, Type::Message(_)),
            };
            assert!(fits, "{}: {of:?} is no {kind:?}", field.descriptor.full_name());
        }
    }

    #[test]
    fn every_schema_text_parses_as_its_kind() {
        for table in TABLES.values() {
            for field in &table.fields {
                let pb::Parameter { min, max, example, default, .. } = &field.parameter;
                let name = field.descriptor.full_name();
                let texts = [min, max, example, default].into_iter().filter(|it| !it.is_empty());
                for text in texts {
                    let parsed = field.parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
                    let is_text = matches!(field.kind, Kind::Text | Kind::Table);
                    assert!(parsed.is_some() || is_text, "{name}: {text}");
                }
                assert_eq!(
                    field.range.is_some(),
                    !min.is_empty() || field.kind == Kind::Quantity(Quantity::Probability)
                );
                assert_eq!(min.is_empty(), max.is_empty(), "{name}");
                if let Some((min, max)) = &field.range {
                    assert_eq!(compare(min, max), Some(Ordering::Less), "{name}");
                }
            }
        }
        assert!(TABLES.len() > 15);
    }

    /// A profile with a value for a field in both pipes.
    fn with(path: &Path, value: &Value) -> pb::Profile {
        let catalog = crate::Catalog::built_in();
        let mut profile = catalog.get("transparent").unwrap().as_proto().clone();
        for pipe in [&mut profile.forward_pipe, &mut profile.return_pipe].into_iter().flatten() {
            let mut message = Table::named("Pipe").reflect(pipe);
            let (field, parents) = path.steps.split_last().unwrap();
            let mut inner = &mut message;
            for parent in parents {
                inner = inner.get_field_mut(&parent.descriptor).as_message_mut().unwrap();
            }
            inner.set_field(&field.descriptor, value.clone());
            *pipe = typed(&message);
        }
        profile
    }

    #[test]
    fn range_ends_print_parse_and_patch() {
        let mut count = 0;
        for path in paths() {
            let field = path.steps.last().unwrap();
            let Some((least, most)) = &field.range else { continue };
            for value in [least, most] {
                let message = with(path, value);
                crate::validate(&message).unwrap();
                let written = crate::Profile::try_from(message.clone()).unwrap().to_toml();
                let read = crate::Profile::from_toml(&written).unwrap();
                assert_eq!(read.as_proto(), &message, "{}", path.name);

                let parents = path.steps.iter().rev().skip(1);
                let table: String = parents.map(|parent| format!("{}.", parent.key)).collect();
                let text = field.format(value);
                let part =
                    crate::Part::from_toml(&format!("{table}{} = {text:?}", field.key)).unwrap();
                assert_eq!(part.paths, [&path.name]);
                let patch = crate::Patch::new(&part.pipe, &part.paths).unwrap();
                let catalog = crate::Catalog::built_in();
                let transparent = catalog.get("transparent").unwrap().as_proto().clone();
                let mut pipe = transparent.forward_pipe.unwrap();
                patch.apply(&mut pipe);
                assert_eq!(Some(pipe), message.forward_pipe, "{}", path.name);
                count += 1;
            }
        }
        assert!(count >= 18, "{count}");
    }

    #[test]
    fn keys_omit_the_unit_suffix() {
        assert_eq!(Table::named("Delay").keys(), ["base", "slot", "body", "excursions"]);
        assert_eq!(Table::named("Outage").keys(), ["interval", "duration", "law"]);
        assert_eq!(Table::named("Outage").fields[2].words(), ["exponential", "fixed"]);
    }
}
