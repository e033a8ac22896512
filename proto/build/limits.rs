// SPDX-License-Identifier: Apache-2.0
//! Generates the ranges of parameters as constants (`proto::limits`), from the option
//! `parameter` of their fields (`linkemu/v1/parameter.proto`).

use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind};
use std::error::Error;
use std::fmt::Write;
use units::{Amount, Quantity};

/// Generates a `RangeInclusive` for each field with a range, such as `OUTAGE_INTERVAL_NS`, and one
/// for the length of each bounded list, such as `BODY_QUANTILES_NS_ITEMS`.
pub fn generate(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let option = pool
        .get_extension_by_name("linkemu.v1.parameter")
        .ok_or("the option linkemu.v1.parameter is missing")?;
    let mut code = String::new();
    for message in pool.all_messages().filter(|message| message.package_name() == "linkemu.v1") {
        for field in message.fields() {
            let options = field.options();
            if !options.has_extension(&option) {
                continue;
            }
            let parameter = options.get_extension(&option);
            let Some(parameter) = parameter.as_message() else { continue };
            let name = constant(message.name(), field.name());
            range(&mut code, &name, &field, parameter)
                .map_err(|error| format!("{}: {error}", field.full_name()))?;
        }
    }
    Ok(code)
}

/// `FourStateLoss` and `p13` are `FOUR_STATE_LOSS_P13`.
fn constant(message: &str, field: &str) -> String {
    let mut name = String::new();
    for (i, c) in message.chars().enumerate() {
        if i > 0 && c.is_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    format!("{name}_{}", field.to_ascii_uppercase())
}

fn range(
    code: &mut String,
    name: &str,
    field: &FieldDescriptor,
    parameter: &DynamicMessage,
) -> Result<(), Box<dyn Error>> {
    let text = |key: &str| -> String {
        let value = parameter.get_field_by_name(key);
        value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let is_probability =
        parameter.get_field_by_name("probability").and_then(|it| it.as_bool()) == Some(true);
    let full = |given: String, whole: &str| {
        if given.is_empty() && is_probability { whole.to_owned() } else { given }
    };
    let (min, max) = (full(text("min"), "0 %"), full(text("max"), "100 %"));
    let items = |key: &str| parameter.get_field_by_name(key).and_then(|it| it.as_u32());
    if let (Some(least), Some(most @ 1..)) = (items("min_items"), items("max_items")) {
        writeln!(code, "pub const {name}_ITEMS: RangeInclusive<usize> = {least}..={most};")?;
    }
    if min.is_empty() && max.is_empty() {
        return Ok(());
    }
    let kind = match field.kind() {
        Kind::Double => "f64",
        Kind::Int32 => "i32",
        Kind::Uint32 => "u32",
        Kind::Uint64 => "u64",
        other => return Err(format!("a range of {other:?}").into()),
    };
    let (min, max) = (number(field, is_probability, &min)?, number(field, is_probability, &max)?);
    writeln!(code, "pub const {name}: RangeInclusive<{kind}> = {min}..={max};")?;
    Ok(())
}

/// A value in TOML syntax as a Rust literal in the field's unit.
fn number(
    field: &FieldDescriptor,
    is_probability: bool,
    text: &str,
) -> Result<String, Box<dyn Error>> {
    let quantity = if is_probability {
        Some(Quantity::Probability)
    } else {
        Quantity::of_field(field.name(), field.kind() == Kind::Int32)
    };
    let Some(quantity) = quantity else {
        return Ok(match field.kind() {
            Kind::Double => format!("{:?}", text.parse::<f64>()?),
            _ => text.parse::<u64>()?.to_string(),
        });
    };
    Ok(match quantity.parse(text)?.ok_or("unlimited is no number")? {
        Amount::Whole(whole) => whole.to_string(),
        Amount::Signed(signed) => signed.to_string(),
        Amount::Real(real) => format!("{real:?}"),
    })
}
