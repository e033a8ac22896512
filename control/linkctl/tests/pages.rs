// SPDX-License-Identifier: Apache-2.0
//! The files that the documentation shows.

use ::clients::Clients;
use boxfile::{BoxFile, Switch};
use pages::files_parse;
use profile::{Part, Profile};
use std::path::Path;

fn said<T, E: ToString>(result: Result<T, E>) -> Result<(), String> {
    result.map(drop).map_err(|error| error.to_string())
}

#[test]
fn profiles_of_the_documentation_are_valid() {
    files_parse("profile", |text| said(Profile::from_toml(text)));
    files_parse("part", |text| {
        let file: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let pipe = ["forward", "return"].into_iter().find_map(|name| file.get(name));
        let pipe = pipe.and_then(toml::Value::as_table).ok_or("neither [forward] nor [return]")?;
        said(Part::from_toml(&pipe.to_string()))
    });
}

#[test]
fn scenarios_and_clients_of_the_documentation_are_valid() {
    files_parse("scenario", |text| said(::scenario::Scenario::from_toml(text)));
    files_parse("clients", |text| said(Clients::from_toml(text)));
}

#[test]
fn box_files_of_the_documentation_are_valid() {
    files_parse("box", |text| {
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
