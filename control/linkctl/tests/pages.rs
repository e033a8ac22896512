// SPDX-License-Identifier: Apache-2.0
//! The files that the documentation shows.

use ::clients::Clients;
use boxfile::{BoxFile, Switch};
use profile::{Part, Profile};
use std::path::Path;

/// Panics with the faults of the first file that does not parse.
fn all_parse(kind: &str, parse: impl Fn(&str) -> Result<(), String>) {
    let files = pages::files(kind);
    assert!(!files.is_empty(), "no page shows a file of the kind {kind}");
    for pages::File { place, text } in files {
        if let Err(faults) = parse(&text) {
            panic!("{place}: {faults}");
        }
    }
}

fn said<T, E: ToString>(result: Result<T, E>) -> Result<(), String> {
    result.map(drop).map_err(|error| error.to_string())
}

#[test]
fn profiles_of_the_documentation_are_valid() {
    all_parse("profile", |text| said(Profile::from_toml(text)));
    all_parse("part", |text| {
        let file: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let forward = file["forward"].as_table().ok_or("[forward] is no table")?;
        said(Part::from_toml(&forward.to_string()))
    });
}

#[test]
fn scenarios_and_clients_of_the_documentation_are_valid() {
    all_parse("scenario", |text| said(::scenario::Scenario::from_toml(text)));
    all_parse("clients", |text| said(Clients::from_toml(text)));
}

#[test]
fn box_files_of_the_documentation_are_valid() {
    all_parse("box", |text| {
        let file = BoxFile::parse(text, Path::new("box.toml")).map_err(|e| e.to_string())?;
        if !file.ports.named().is_empty() {
            said(file.check())?;
        }
        // Some pages show some keys of the switch only.
        match file.switch.as_ref().filter(|switch| switch.target.is_some()) {
            Some(switch) => said(Switch::new(switch)),
            None => Ok(()),
        }
    });
}
