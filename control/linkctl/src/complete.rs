// SPDX-License-Identifier: Apache-2.0
//! Completion of names that only linkd knows: profiles, scenarios and clients.
//!
//! The shell calls this program with the words so far. It asks the linkd of the environment
//! (options on the line are ignored) and waits [`PATIENCE`] at most. Built-in names are always
//! offered.

use crate::connection::Connection;
use crate::context::Place;
use clap::Parser;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::Shells;
use profile::Catalog;
use proto::link_id;
use proto::linkemu::v1 as pb;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(1);
/// Environment variable that a shell script sets to request completions.
pub const ASKED: &str = "LINKCTL_COMPLETE";

/// The script that registers this program with a shell.
///
/// # Errors
/// If there is no such shell.
pub fn script(shell: &str) -> io::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let unknown = || io::Error::other(format!("{shell} is no shell that is known"));
    let mut script = Vec::new();
    let shell = shells.completer(shell).ok_or_else(unknown)?;
    shell.write_registration(ASKED, "linkctl", "linkctl", "linkctl", &mut script)?;
    if shell.is("zsh") {
        // zsh loads the file at the first completion, and expects an answer to that one too.
        script.extend(
            b"\n[[ $funcstack[1] = _linkctl ]] && _clap_dynamic_completer_linkctl \"$@\"\n",
        );
    }
    Ok(script)
}

/// Writes the scripts of the shells into a folder, which is made, under the names that they look
/// for.
///
/// # Errors
/// If a file cannot be written.
pub fn write_scripts(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (shell, file) in [("bash", "linkctl.bash"), ("zsh", "_linkctl"), ("fish", "linkctl.fish")] {
        fs::write(folder.join(file), script(shell)?)?;
    }
    Ok(())
}

/// Names of profiles, and files.
pub fn profile(current: &OsStr) -> Vec<CompletionCandidate> {
    with_files(profile_name(current), current)
}

/// Names of built-in profiles, and files, for a command that does not ask linkd.
pub fn built_in_profile(current: &OsStr) -> Vec<CompletionCandidate> {
    with_files(candidates(built_in_names(), current), current)
}

pub fn profile_name(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut names = built_in_names();
    names.extend(ask(async |connection| {
        let request = pb::ListProfilesRequest::default();
        let page = connection.call(|mut c| async move { c.list_profiles(request).await }).await;
        page.ok().into_iter().flat_map(|page| page.profiles).map(|it| it.name).collect()
    }));
    candidates(names, current)
}

fn built_in_names() -> BTreeSet<String> {
    Catalog::built_in().iter().map(|it| it.profile.name().to_owned()).collect()
}

/// Names of scenarios, and files.
pub fn scenario(current: &OsStr) -> Vec<CompletionCandidate> {
    with_files(scenario_name(current), current)
}

pub fn scenario_name(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(scenario::built_in().iter().map(|it| it.name().to_owned()), current)
}

/// Names and addresses of clients.
pub fn client(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = ask(async |connection| {
        let request = pb::ListClientsRequest { link: connection.link() };
        let asked = connection.call(|mut c| async move { c.list_clients(request).await }).await;
        let Ok(mut parts) = asked else { return Vec::new() };
        let mut names = Vec::new();
        while let Ok(Some(part)) = parts.message().await {
            names.extend(part.clients.into_iter().map(|state| state.client));
        }
        names
    });
    candidates(names, current)
}

/// Names of links.
pub fn link(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = ask(async |connection| {
        let request = pb::ListLinksRequest {};
        let links = connection.answer(connection.links().list_links(request)).await;
        let links = links.map(|answer| answer.links).unwrap_or_default();
        links.iter().map(|link| link_id(&link.name).to_owned()).collect()
    });
    candidates(names, current)
}

/// The way to linkd, as the environment has it.
#[derive(Parser)]
struct Asked {
    #[command(flatten)]
    linkd: Place,
}

/// linkd's answer; empty if it does not come in time.
fn ask(question: impl AsyncFnOnce(&Connection) -> Vec<String>) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(runtime), Ok(asked)) = (runtime, Asked::try_parse_from(["linkctl"])) else {
        return Vec::new();
    };
    let answer = async {
        match Connection::viewing(&asked.linkd).await {
            Ok(connection) => question(&connection).await,
            Err(_) => Vec::new(),
        }
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, answer).await }).unwrap_or_default()
}

fn candidates(
    names: impl IntoIterator<Item = String>,
    current: &OsStr,
) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    let fit = names.into_iter().filter(|name| name.starts_with(&*begun));
    fit.map(CompletionCandidate::new).collect()
}

fn with_files(mut names: Vec<CompletionCandidate>, current: &OsStr) -> Vec<CompletionCandidate> {
    names.extend(PathCompleter::file().complete(current));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(found: &[CompletionCandidate]) -> Vec<String> {
        found.iter().map(|it| it.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn built_in_names_are_offered_without_linkd() {
        assert_eq!(values(&scenario_name(OsStr::new("rain"))), ["rain-fade"]);
        let names = values(&built_in_profile(OsStr::new("viasat")));
        assert_eq!(names[0], "viasat2", "{names:?}");
        assert!(built_in_names().contains("viasat2"));
    }

    #[test]
    fn every_shell_gets_a_script_that_asks_this_program() {
        for shell in ["bash", "zsh", "fish"] {
            let script = String::from_utf8(script(shell).unwrap()).unwrap();
            assert!(script.contains(ASKED) && script.contains("linkctl"), "{script}");
        }
        assert!(script("none").is_err());
    }
}
