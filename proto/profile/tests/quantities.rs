// SPDX-License-Identifier: Apache-2.0
//! The table of texts that all parsers of this grammar are tested with. It is tested here and not in `units`: the
//! build script of the protos depends on `units`, so the TOML parser of a test there would be compiled for it too.

use std::collections::BTreeMap;
use units::{Amount, Quantity, UnitError};

const TABLE: &str = include_str!("quantities.toml");

fn quantity(name: &str) -> Quantity {
    match name {
        "duration" => Quantity::Duration,
        "size" => Quantity::Size,
        "probability" => Quantity::Probability,
        other => panic!("{other} is not a quantity of the table"),
    }
}

fn kind(error: &UnitError) -> &'static str {
    match error {
        UnitError::NoNumber { .. } => "no number",
        UnitError::NoUnit { .. } => "no unit",
        UnitError::UnknownUnit { .. } => "unknown unit",
        UnitError::Negative { .. } => "negative",
        UnitError::TooLarge { .. } => "too large",
        UnitError::Inexact { .. } => "inexact",
        UnitError::ZeroRate { .. } => "zero rate",
    }
}

#[test]
fn texts_of_the_table_have_its_values_and_errors() {
    let table: BTreeMap<String, Vec<(String, String)>> = toml::from_str(TABLE).unwrap();
    assert_eq!(table.len(), 3);
    for (name, cases) in table {
        for (text, wanted) in cases {
            let context = format!("{name} {text:?}");
            match quantity(&name).parse(&text) {
                Ok(Some(Amount::Whole(value))) => {
                    assert_eq!(value.to_string(), wanted, "{context}")
                }
                Ok(Some(Amount::Real(value))) => {
                    assert_eq!(Ok(value), wanted.parse::<f64>(), "{context}");
                }
                Ok(other) => panic!("{context}: {other:?}"),
                Err(error) => assert_eq!(kind(&error), wanted, "{context}: {error}"),
            }
        }
    }
}
