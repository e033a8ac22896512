// SPDX-License-Identifier: Apache-2.0
//! `linkctl profile`: list, show, check.

use crate::complete;
use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::{Failure, ViolationView};
use crate::output;
use crate::show::toml;
use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use comfy_table::{ContentArrangement, Table, presets};
use profile::{FileError, Profile, Violations, counted};
use proto::linkemu::v1 as pb;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  linkctl profile list
  linkctl profile show viasat2 > mine.toml
  linkctl profile put mine.toml             then `linkctl set profile mine` sets it
  linkctl profile check mine.toml           exit code 4 if it is invalid; needs no linkd";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List all profiles that can be set by name
    List,
    /// Show a profile
    Show {
        /// Name of the profile
        #[arg(add = ArgValueCompleter::new(complete::profile_name))]
        name: String,
    },
    /// Store profiles in linkd; the link does not change
    Put {
        /// Profiles in TOML
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Replace stored profiles with the same names
        #[arg(long)]
        replace: bool,
    },
    /// Delete stored profiles; the link does not change
    Delete {
        /// Names of the profiles
        #[arg(required = true, value_name = "NAME", add = ArgValueCompleter::new(complete::profile_name))]
        names: Vec<String>,
    },
    /// Check files of profiles; needs no linkd
    Check {
        /// Profiles in TOML
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Print the JSON Schema of profiles, for editors; needs no linkd
    Schema,
}

#[derive(Serialize)]
struct CheckView<'a> {
    files: Vec<FileView<'a>>,
}

#[derive(Serialize)]
struct FileView<'a> {
    file: String,
    valid: bool,
    name: Option<&'a str>,
    violations: Vec<ViolationView<'a>>,
}

pub async fn run(context: &Context, what: &Command) -> Result<(), Failure> {
    match what {
        Command::List => list(context).await,
        Command::Show { name } => show(context, name).await,
        Command::Put { files, replace } => put(context, files, *replace).await,
        Command::Delete { names } => delete(context, names).await,
        Command::Check { files } => check(context.output, files),
        Command::Schema => output::json(&profile::reference::json_schema()),
    }
}

async fn list(context: &Context) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let mut answer = pb::ListProfilesResponse::default();
    loop {
        let request = pb::ListProfilesRequest { page_token: answer.next_page_token };
        let page = connection.call(|mut c| async move { c.list_profiles(request).await }).await?;
        answer.profiles.extend(page.profiles);
        answer.stored.extend(page.stored);
        answer.next_page_token = page.next_page_token;
        if answer.next_page_token.is_empty() {
            break;
        }
    }
    if context.output == Output::Json {
        return output::message(&answer);
    }
    output::text(&grouped(&answer.profiles))
}

/// A table with a row for the name of each group; profiles without a group come last.
fn grouped(profiles: &[pb::Profile]) -> String {
    let mut groups: BTreeMap<(bool, &str), Vec<&pb::Profile>> = BTreeMap::new();
    for profile in profiles {
        let group = profile.group.as_str();
        groups.entry((group.is_empty(), group)).or_default().push(profile);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["NAME", "DESCRIPTION", "SOURCE"]);
    for ((is_none, group), profiles) in groups {
        table.add_row([if is_none { "others" } else { group }, "", ""]);
        for profile in profiles {
            let name = format!("  {}", profile.name);
            table.add_row([&name, &profile.description, &profile.source]);
        }
    }
    table.trim_fmt()
}

async fn show(context: &Context, name: &str) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let request = pb::GetProfileRequest { name: name.to_owned() };
    let profile = connection.call(|mut c| async move { c.get_profile(request).await }).await?;
    match context.output {
        Output::Text => output::text(&toml(profile)?),
        Output::Json => output::message(&profile),
    }
}

/// Reads every file before it stores any.
async fn put(context: &Context, files: &[PathBuf], replace: bool) -> Result<(), Failure> {
    let read = |path: &PathBuf| Profile::from_file(path).map_err(Failure::from);
    let profiles = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let connection = Connection::open(context).await?;
    for profile in profiles {
        let name = profile.name().to_owned();
        let profile = Some(profile.into_proto());
        let request = pb::PutProfileRequest { profile, replace, ..Default::default() };
        let answer = connection.call(|mut c| async move { c.put_profile(request).await }).await?;
        let how = if answer.replaced { " in place of another one" } else { "" };
        match context.output {
            Output::Text => output::text(&format!("{name} is stored{how}"))?,
            Output::Json => output::message(&answer)?,
        }
    }
    Ok(())
}

async fn delete(context: &Context, names: &[String]) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    for name in names {
        let request = pb::DeleteProfileRequest { name: name.clone() };
        let answer =
            connection.call(|mut c| async move { c.delete_profile(request).await }).await?;
        match context.output {
            Output::Text => output::text(&format!("{name} is deleted"))?,
            Output::Json => output::message(&answer)?,
        }
    }
    Ok(())
}

/// Reads every file before it judges any, so that one look gives all.
fn check(format: Output, files: &[PathBuf]) -> Result<(), Failure> {
    let mut checked: Vec<(String, Result<Profile, Violations>)> = Vec::new();
    for path in files {
        let file = path.display().to_string();
        match Profile::from_file(path) {
            Ok(profile) => checked.push((file, Ok(profile))),
            Err(FileError::Invalid { violations, .. }) => checked.push((file, Err(violations))),
            Err(error) => return Err(error.into()),
        }
    }
    let wrong = checked.iter().filter(|(_, result)| result.is_err()).count();
    match format {
        Output::Json => {
            let files = checked.iter().map(|(file, result)| FileView {
                file: file.clone(),
                valid: result.is_ok(),
                name: result.as_ref().ok().map(Profile::name),
                violations: match result {
                    Ok(_) => Vec::new(),
                    Err(found) => found.iter().map(ViolationView::from).collect(),
                },
            });
            output::json(&CheckView { files: files.collect() })?;
        }
        Output::Text => {
            for (file, result) in &checked {
                match result {
                    Ok(profile) => output::text(&format!("{file}: {} is valid", profile.name()))?,
                    Err(found) => output::text(&found.in_file(file))?,
                }
            }
        }
    }
    match wrong {
        0 => Ok(()),
        n => Err(Failure::check(counted(
            n,
            "file is not a valid profile",
            "files are not valid profiles",
        ))),
    }
}
