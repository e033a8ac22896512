// SPDX-License-Identifier: Apache-2.0
//! Reference of the profile parameters, from the schema and the proto comments: Markdown for
//! people, JSON Schema for editors.

use crate::read::{FILE, has_file};
use crate::schema::{Field, Kind, Table, whole};
use serde_json::{Map, Value as Json, json};
use std::fmt::Write;
use units::Quantity;

/// Comment of the key that exists in TOML only.
/// Meaning of the key [`FILE`].
fn file_comment(table: &Table) -> &'static str {
    match table.name() {
        "PathTrace" => "File in the same directory with delay and loss: CSV or Parquet.",
        _ => "File in the same directory with the rates: mahimahi, CSV or Parquet.",
    }
}

/// A table and the path of its keys, such as `[forward.queue]`.
struct Section {
    heading: String,
    table: &'static Table,
}

/// All parameters as Markdown, one section per table.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::new();
    let mut sections = vec![Section { heading: String::new(), table: Table::named("Profile") }];
    while !sections.is_empty() {
        let Section { heading, table } = sections.remove(0);
        if !heading.is_empty() {
            let _ = write!(text, "\n## `{heading}`\n\n{}\n", table.comment());
        }
        text += "\n| key | value | meaning |\n|---|---|---|\n";
        if has_file(table) {
            let _ = writeln!(text, "| `{FILE}` | text | {} |", file_comment(table));
        }
        for field in &table.fields {
            let about = cell(&field.comment());
            let _ =
                writeln!(text, "| `{}` | {} | {about} |", field.key, cell(&takes(table, field)));
            // Both directions have the same parameters.
            if let Some(inner) = field.table().filter(|_| field.key != "return") {
                let key = if field.key == "forward" { "DIRECTION" } else { &field.key };
                let parent = heading.trim_matches(['[', ']']);
                let path =
                    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") };
                let heading =
                    if field.is_list { format!("[[{path}]]") } else { format!("[{path}]") };
                sections.push(Section { heading, table: inner });
            }
        }
    }
    text
}

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Type, range and default of a key.
fn takes(table: &Table, field: &Field) -> String {
    let mut takes = match field.kind {
        Kind::Quantity(Quantity::Rate) => "rate".to_owned(),
        Kind::Quantity(Quantity::Size | Quantity::Overhead) => "size".to_owned(),
        Kind::Quantity(Quantity::Duration) => "duration".to_owned(),
        Kind::Quantity(Quantity::Probability) => "probability".to_owned(),
        Kind::Number => "number".to_owned(),
        Kind::Count => "count".to_owned(),
        Kind::Switch => "`true` or `false`".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Word => field
            .words()
            .iter()
            .map(|word| format!("`\"{word}\"`"))
            .collect::<Vec<_>>()
            .join(" or "),
        Kind::Table => "table".to_owned(),
    };
    if field.is_list {
        takes = match field.kind {
            Kind::Quantity(Quantity::Probability) => "list of probabilities".to_owned(),
            _ => format!("list of {takes}s"),
        };
    }
    if let Some((least, most)) = &field.range {
        let _ = write!(takes, ", {} to {}", field.format(least), field.format(most));
    }
    if field.kind == Kind::Quantity(Quantity::Rate) && !field.is_list {
        takes += ", `\"unlimited\"` or `\"down\"`";
    }
    match (field.parameter.min_items, field.parameter.max_items) {
        (_, 0) => {}
        (0, most) => _ = write!(takes, "; at most {most}"),
        (least, most) => _ = write!(takes, "; {least} to {most} items"),
    }
    let others: Vec<String> =
        table.alternatives(field).map(|other| format!("`{}`", other.key)).collect();
    if !others.is_empty() {
        let _ = write!(takes, "; not with {}", others.join(", "));
    }
    match (field.parameter.required, field.parameter.default.as_str()) {
        (true, _) if has_file(table) && !others.is_empty() => {
            takes += "; **required** without these or `file`";
        }
        (true, _) if has_file(table) => takes += "; **required** without `file`",
        (true, _) if !others.is_empty() => takes += "; **required** without these",
        (true, _) => takes += "; **required**",
        (false, "") => {}
        (false, default) => _ = write!(takes, "; default {default}"),
    }
    takes
}

/// JSON Schema (draft 2020-12) of a TOML profile, for completion and validation in editors.
#[must_use]
pub fn json_schema() -> Json {
    let mut schema = object(Table::named("Profile"));
    if let Json::Object(keys) = &mut schema {
        let draft = "https://json-schema.org/draft/2020-12/schema";
        keys.insert("$schema".to_owned(), json!(draft));
        keys.insert("title".to_owned(), json!("a link of linkemu"));
    }
    schema
}

fn object(table: &Table) -> Json {
    let mut keys: Map<String, Json> =
        table.fields.iter().map(|field| (field.key.clone(), of_field(field))).collect();
    // A rate and its trace are alternatives, and a trace may be in a file.
    let needed = |field: &&Field| field.parameter.required && field.parameter.choice.is_empty();
    let mut required: Vec<&str> =
        table.fields.iter().filter(needed).map(|field| field.key.as_str()).collect();
    if has_file(table) {
        keys.insert(FILE.to_owned(), json!({"type": "string", "description": file_comment(table)}));
        required.clear();
    }
    json!({
        "type": "object",
        "description": table.comment(),
        "properties": keys,
        "required": required,
        "additionalProperties": false,
    })
}

fn of_field(field: &Field) -> Json {
    let pb = &field.parameter;
    let mut one = match field.kind {
        Kind::Table => field.table().map_or(Json::Null, object),
        Kind::Switch => json!({"type": "boolean"}),
        Kind::Count => json!({"type": "integer", "minimum": 0}),
        Kind::Number => json!({"type": "number"}),
        Kind::Word => {
            let mut words = field.words();
            words.extend((!pb.required).then(|| "none".to_owned()));
            json!({"type": "string", "enum": words})
        }
        Kind::Text => json!({"type": "string"}),
        Kind::Quantity(Quantity::Rate) => {
            let words = if field.is_list { "down" } else { "unlimited|down" };
            json!({"type": "string", "pattern": format!(r"^\s*({words}|[0-9.]+\s*[A-Za-z/]+)\s*$")})
        }
        Kind::Quantity(Quantity::Probability) => {
            json!({"type": "string", "pattern": r"^\s*[0-9.]+([eE][-+]?[0-9]+)?\s*%\s*$"})
        }
        Kind::Quantity(Quantity::Size | Quantity::Overhead | Quantity::Duration) => {
            json!({"type": "string", "pattern": "^[-+]?[0-9]"})
        }
    };
    let bound = |value: &prost_reflect::Value| match value.as_f64() {
        Some(number) => json!(number),
        None => json!(whole(value)),
    };
    if let Json::Object(keys) = &mut one {
        if let (Kind::Number | Kind::Count, Some((least, most))) = (field.kind, &field.range) {
            keys.insert("minimum".to_owned(), bound(least));
            keys.insert("maximum".to_owned(), bound(most));
        }
        if !pb.example.is_empty() && field.kind != Kind::Table && !is_bare(field) {
            keys.insert("examples".to_owned(), json!([pb.example]));
        }
        if !pb.default.is_empty() && !is_bare(field) {
            keys.insert("default".to_owned(), json!(pb.default));
        }
    }
    let description = field.comment();
    if field.is_list {
        let mut list = json!({"type": "array", "items": one, "description": description});
        if let Json::Object(keys) = &mut list
            && pb.max_items > 0
        {
            keys.insert("minItems".to_owned(), json!(pb.min_items));
            keys.insert("maxItems".to_owned(), json!(pb.max_items));
        }
        return list;
    }
    if let Json::Object(keys) = &mut one
        && !description.is_empty()
    {
        keys.insert("description".to_owned(), json!(description));
    }
    one
}

fn is_bare(field: &Field) -> bool {
    matches!(field.kind, Kind::Number | Kind::Count)
}
