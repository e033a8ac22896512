// SPDX-License-Identifier: Apache-2.0
//! Families of rows, figures and orders in a study's file: a table with `each` stands for one table
//! per combination of the values of its axes.
//!
//! ```toml
//! [[row]]
//! each = { cc = ["cubic", "bbr"], rtt = [{ name = "200ms", half = "100 ms" }] }
//! name = "{cc}-{rtt.name}"
//! link.change.forward.delay.base = "{rtt.half}"
//! ```
//!
//! Each text of the table may contain `{axis}`, or `{axis.key}` if the values are tables. A text
//! that is nothing else takes the type of the value, so that a number stays a number. A table within
//! a family may be a family too, and uses the axes of both.

use anyhow::{Context, ensure};
use toml::{Table, Value};

const AXES: &str = "each";

/// Expands all families of a file.
///
/// # Errors
/// If an axis has no values, or a text names an unknown one.
pub fn expand(file: Table) -> anyhow::Result<Table> {
    // Outside of families a brace is a brace.
    let expanded = file.into_iter().map(|(key, value)| {
        let value = match value {
            Value::Array(tables) => {
                let families = tables.iter().map(|table| family(table, None));
                let all = families.collect::<Result<Vec<_>, _>>();
                Value::Array(all.with_context(|| format!("[[{key}]]"))?.concat())
            }
            other => other,
        };
        Ok((key, value))
    });
    expanded.collect()
}

/// The members of a family, filled in. `outer` has the values of the family around it.
fn family(value: &Value, outer: Option<&Table>) -> anyhow::Result<Vec<Value>> {
    let Some(axes) = value.get(AXES) else {
        return Ok(vec![match outer {
            Some(member) => filled(value, member)?,
            None => inner(value)?,
        }]);
    };
    let mut table = value.as_table().cloned().unwrap_or_default();
    table.remove(AXES);
    let axes = axes.as_table().with_context(|| format!("`{AXES}` is not a table of axes"))?;
    let mut members = vec![outer.cloned().unwrap_or_default()];
    for (axis, values) in axes {
        let values = values.as_array().filter(|values| !values.is_empty());
        let values = values.with_context(|| format!("the axis {axis:?} has no list of values"))?;
        let mut more = Vec::new();
        for member in members {
            for value in values {
                let mut member = member.clone();
                let value =
                    outer.map_or_else(|| Ok(value.clone()), |outer| filled(value, outer))?;
                member.insert(axis.clone(), value);
                more.push(member);
            }
        }
        members = more;
    }
    members.iter().map(|member| filled(&Value::Table(table.clone()), member)).collect()
}

/// A table outside of a family, with the families in it expanded.
fn inner(value: &Value) -> anyhow::Result<Value> {
    Ok(match value {
        Value::Array(values) => {
            let families = values.iter().map(|v| family(v, None));
            Value::Array(families.collect::<Result<Vec<_>, _>>()?.concat())
        }
        Value::Table(table) => {
            let inner = table.iter().map(|(k, v)| Ok((k.clone(), inner(v)?)));
            Value::Table(inner.collect::<anyhow::Result<_>>()?)
        }
        other => other.clone(),
    })
}

/// A copy with all texts filled in.
fn filled(value: &Value, member: &Table) -> anyhow::Result<Value> {
    Ok(match value {
        Value::String(text) => fill(text, member)?,
        Value::Array(values) => {
            let families = values.iter().map(|v| family(v, Some(member)));
            Value::Array(families.collect::<Result<Vec<_>, _>>()?.concat())
        }
        Value::Table(table) => {
            let filled = table.iter().map(|(k, v)| Ok((k.clone(), filled(v, member)?)));
            Value::Table(filled.collect::<anyhow::Result<_>>()?)
        }
        other => other.clone(),
    })
}

fn fill(text: &str, member: &Table) -> anyhow::Result<Value> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, tail) = after.split_once('}').with_context(|| format!("{text:?}: no `}}`"))?;
        let value = find(name, member)
            .with_context(|| format!("{text:?}: there is no axis or key {name:?}"))?;
        if before.is_empty() && tail.is_empty() && out.is_empty() {
            return Ok(value.clone());
        }
        out.push_str(before);
        match value {
            Value::String(value) => out.push_str(value),
            other => {
                ensure!(!other.is_table(), "{text:?}: {name:?} is a table, name one of its keys");
                out.push_str(&other.to_string());
            }
        }
        rest = tail;
    }
    out.push_str(rest);
    Ok(Value::String(out))
}

fn find<'a>(name: &str, member: &'a Table) -> Option<&'a Value> {
    match name.split_once('.') {
        None => member.get(name),
        Some((axis, key)) => member.get(axis)?.get(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> anyhow::Result<Table> {
        expand(text.parse().unwrap())
    }

    #[test]
    fn family_has_one_table_per_combination() {
        let all = expanded(
            "[[row]]\neach = { cc = [\"cubic\", \"bbr\"], rtt = [{ n = 1, ms = 200 }, { n = 2, ms = \
             400 }] }\nname = \"{cc}-{rtt.n}\"\nlink.delay = [\"{rtt.ms} ms\"]\nvalue = \
             \"{rtt.ms}\"\n[[row]]\nname = \"alone\"",
        );
        let rows: Vec<Table> = all.unwrap()["row"].clone().try_into().unwrap();
        let names: Vec<_> = rows.iter().map(|r| r["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["cubic-1", "cubic-2", "bbr-1", "bbr-2", "alone"]);
        assert_eq!(rows[3]["link"]["delay"][0].as_str(), Some("400 ms"));
        assert_eq!(rows[3]["value"].as_integer(), Some(400));
        assert!(!rows[0].contains_key(AXES));
    }

    #[test]
    fn family_within_a_family_has_the_axes_of_both() {
        let all = expanded(
            "[[row]]\neach = { rtt = [1, 2] }\nname = \"r{rtt}\"\n[[row.transfer]]\neach = { cc = \
             [\"a\", \"b{rtt}\"] }\nname = \"{cc}-{rtt}\"\n[[row]]\nname = \"{plain}\"\n\
             [[row.transfer]]\neach = { cc = [\"c\"] }\nname = \"{cc}\"",
        );
        let rows: Vec<Table> = all.unwrap()["row"].clone().try_into().unwrap();
        let name = |row: usize, n: usize| rows[row]["transfer"][n]["name"].as_str().unwrap();
        assert_eq!([name(0, 0), name(0, 1)], ["a-1", "b1-1"]);
        assert_eq!([name(1, 0), name(1, 1)], ["a-2", "b2-2"]);
        assert_eq!((rows[2]["name"].as_str(), name(2, 0)), (Some("{plain}"), "c"));
    }

    #[test]
    fn unknown_axis_and_empty_axis_are_named() {
        for (text, named) in [
            ("[[row]]\neach = { cc = [\"x\"] }\nname = \"{rate}\"", "rate"),
            ("[[row]]\neach = { cc = [\"x\"] }\nname = \"{cc.ms}\"", "cc.ms"),
            ("[[row]]\neach = { cc = [] }\nname = \"{cc}\"", "cc"),
            ("[[row]]\neach = { cc = [{ n = 1 }] }\nname = \"a{cc}\"", "cc"),
            ("[[row]]\neach = { cc = [\"x\"] }\nname = \"{cc\"", "}"),
        ] {
            let error = format!("{:#}", expanded(text).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
