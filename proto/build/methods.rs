// SPDX-License-Identifier: Apache-2.0
//! Generates the table of methods and the set fields of their messages (`src/method.rs`).
//!
//! Rust names follow prost-build's rules. A wrong name fails the build of the crate.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Full name of a message that is generated elsewhere.
const MASK: &str = ".google.protobuf.FieldMask";
const WELL_KNOWN: &str = ".google.protobuf.";
/// Keywords that occur as field names; prost-build writes them as raw identifiers.
const KEYWORDS: &[&str] = &["loop", "match", "move", "ref", "return", "type"];

/// All messages by full name, with a leading dot.
type Messages<'a> = BTreeMap<String, &'a DescriptorProto>;

/// Generates a `static METHODS`, and `Fields` for each message of the set.
pub fn generate(set: &FileDescriptorSet) -> Result<String, Box<dyn std::error::Error>> {
    let mut messages = Messages::new();
    for file in &set.file {
        for message in &file.message_type {
            let name = format!(".{}.{}", file.package(), message.name());
            if !name.starts_with(WELL_KNOWN) {
                if !message.nested_type.is_empty() {
                    return Err(format!("{name} has nested messages or maps").into());
                }
                messages.insert(name, message);
            }
        }
    }
    let mut code = String::new();
    for (name, message) in &messages {
        fields(&mut code, &messages, name, message)?;
    }
    writeln!(code, "pub(super) static METHODS: &[Method] = &[")?;
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                let [request, answer] = [method.input_type(), method.output_type()].map(path);
                writeln!(
                    code,
                    "Method {{ name: \"{}.{}/{}\", client_streaming: {}, server_streaming: {}, \
                     request: decode::<{request}>, answer: decode::<{answer}> }},",
                    file.package(),
                    service.name(),
                    method.name(),
                    method.client_streaming(),
                    method.server_streaming(),
                )?;
            }
        }
    }
    writeln!(code, "];")?;
    Ok(code)
}

/// `impl Fields` of one message.
fn fields(
    code: &mut String,
    messages: &Messages<'_>,
    name: &str,
    message: &DescriptorProto,
) -> Result<(), Box<dyn std::error::Error>> {
    let rust = path(name);
    let mut body = String::new();
    for field in &message.field {
        let label = field.name();
        let member = format!("self.{}", identifier(label));
        let repeated = field.label() == Label::Repeated;
        let real_oneof = field.oneof_index.filter(|_| !field.proto3_optional());
        let shown = |value: &str| show(messages, field, value);
        if let Some(oneof) = real_oneof {
            let oneof = message.oneof_decl[oneof as usize].name();
            let module = snake(message.name());
            let (parent, _) = rust.rsplit_once("::").ok_or("a message without a package")?;
            let kind = format!("{parent}::{module}::{}", camel(oneof));
            writeln!(
                body,
                "if let Some({kind}::{}(value)) = &self.{} {{ set.push((\"{label}\", {})); }}",
                camel(label),
                identifier(oneof),
                shown("value")?
            )?;
        } else if repeated {
            let list = match field.r#type() {
                Type::String => format!("Field::Texts(&{member})"),
                _ => format!("Field::List({member}.len())"),
            };
            writeln!(body, "if !{member}.is_empty() {{ set.push((\"{label}\", {list})); }}")?;
        } else if field.proto3_optional() || field.r#type() == Type::Message {
            let shown = shown("value")?;
            writeln!(
                body,
                "if let Some(value) = &{member} {{ set.push((\"{label}\", {shown})); }}"
            )?;
        } else {
            let given = match field.r#type() {
                Type::String | Type::Bytes => format!("!{member}.is_empty()"),
                Type::Bool => member.clone(),
                Type::Float | Type::Double => format!("{member} != 0.0"),
                _ => format!("{member} != 0"),
            };
            let shown = shown("value")?;
            writeln!(
                body,
                "if {given} {{ let value = &{member}; set.push((\"{label}\", {shown})); }}"
            )?;
        }
    }
    let find = |wanted: &str| message.field.iter().find(|field| field.name() == wanted);
    let label = match find("name").filter(|field| is(field, Type::String)) {
        // At most one field of a oneof is set.
        Some(FieldDescriptorProto { oneof_index: Some(_), .. }) => {
            "self.set().into_iter().find(|(name, _)| *name == \"name\").map_or(Some(\"\"), \
             |(_, name)| match name { Field::Text(name) => Some(name), _ => None })"
        }
        Some(_) => "Some(&self.name)",
        None => "None",
    };
    let own = |message: &DescriptorProto, value: &str| {
        let mut fields = message.field.iter();
        let field = fields.find(|field| field.name() == "generation")?;
        let optional = if field.proto3_optional() { ".unwrap_or_default()" } else { "" };
        is(field, Type::Uint64).then(|| format!("{value}.generation{optional}"))
    };
    let applied = find("applied").filter(|field| is(field, Type::Message));
    let generation = match applied.and_then(|field| messages.get(field.type_name())) {
        Some(applied) => own(applied, "applied")
            .map(|own| format!("self.applied.as_ref().map_or(0, |applied| {own})")),
        None => own(message, "self"),
    };
    let generation = generation.map_or("None".into(), |value| format!("Some({value})"));
    let full = &name[1..];
    writeln!(
        code,
        "impl Fields for {rust} {{
            fn full_name(&self) -> &'static str {{ \"{full}\" }}
            fn set(&self) -> Vec<(&'static str, Field<'_>)> {{
                #[allow(unused_mut)]
                let mut set = Vec::new();
                {body}
                set
            }}
            fn name(&self) -> Option<&str> {{ {label} }}
            fn generation(&self) -> Option<u64> {{ {generation} }}
        }}"
    )?;
    Ok(())
}

fn is(field: &FieldDescriptorProto, kind: Type) -> bool {
    field.r#type() == kind && field.label() != Label::Repeated
}

/// Expression for the `Field` of a reference named `value`.
fn show(
    messages: &Messages<'_>,
    field: &FieldDescriptorProto,
    value: &str,
) -> Result<String, Box<dyn std::error::Error>> {
    Ok(match field.r#type() {
        Type::Bool => format!("Field::Bool(*{value})"),
        Type::Int32 | Type::Sint32 | Type::Sfixed32 => {
            format!("Field::Signed(i64::from(*{value}))")
        }
        Type::Int64 | Type::Sint64 | Type::Sfixed64 => format!("Field::Signed(*{value})"),
        Type::Uint32 | Type::Fixed32 => format!("Field::Unsigned(u64::from(*{value}))"),
        Type::Uint64 | Type::Fixed64 => format!("Field::Unsigned(*{value})"),
        Type::Float => format!("Field::Float(f64::from(*{value}))"),
        Type::Double => format!("Field::Float(*{value})"),
        Type::String => format!("Field::Text({value})"),
        Type::Bytes => "Field::Bytes".into(),
        Type::Enum => {
            let kind = path(field.type_name());
            format!(
                "Field::Enum(*{value}, {kind}::try_from(*{value}).ok().map(|v| v.as_str_name()))"
            )
        }
        Type::Message if field.type_name() == MASK => format!("Field::Mask(&{value}.paths)"),
        Type::Message if messages.contains_key(field.type_name()) => {
            format!("Field::Message({value})")
        }
        Type::Message => "Field::WellKnown".into(),
        Type::Group => return Err(format!("{} is a group", field.name()).into()),
    })
}

/// Rust path of a message or an enumeration.
fn path(full: &str) -> String {
    if let Some(name) = full.strip_prefix(WELL_KNOWN) {
        return format!("prost_types::{name}");
    }
    format!("crate{}", full.replace('.', "::"))
}

fn identifier(name: &str) -> String {
    if KEYWORDS.contains(&name) { format!("r#{name}") } else { name.to_owned() }
}

fn camel(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    };
    name.split('_').map(word).collect()
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
