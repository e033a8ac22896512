// SPDX-License-Identifier: Apache-2.0
//! The profile of an experiment: a built-in one or a file, with the changes of a study and of a row.

use std::path::Path;

use anyhow::{Context, anyhow};
use profile::{Catalog, Profile};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use crate::study::Link;

/// Name under which a profile is set: linkd refuses a changed profile with the name of a built-in one.
const NAME: &str = "repro";

/// A complete profile.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub toml: String,
    pub scenario: Option<String>,
    pub identity: Identity,
}

/// Which profile it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    pub name: String,
    /// SHA-256 of its TOML with all changes, whatever its name.
    pub sha256: String,
}

/// Resolves a link. `beside` is the directory of the study's file; `instead` replaces the study's
/// profile, not the changes of the row.
///
/// # Errors
/// If there is no such profile, or the changed one is not valid.
pub fn resolve(
    study: &Link,
    row: &Link,
    beside: &Path,
    instead: Option<&str>,
) -> anyhow::Result<Resolved> {
    let named = instead.or(row.profile.as_deref()).or(study.profile.as_deref());
    let named = named.context("no profile is named")?;
    let base = if instead.is_some() { Path::new("") } else { beside };
    let mut table: Table = read(named, base)?.to_toml().parse().context("the profile's TOML")?;
    let changes = if instead.is_some() { vec![row] } else { vec![study, row] };
    for link in changes {
        for path in &link.remove {
            remove(&mut table, path).with_context(|| format!("the profile {named}"))?;
        }
        merge(&mut table, &link.change);
    }
    let name = table.insert("name".to_owned(), NAME.into());
    let name = name.as_ref().and_then(Value::as_str).unwrap_or(named).to_owned();
    let text = toml::to_string(&table).context("the changed profile")?;
    let profile = Profile::from_toml(&text)
        .map_err(|e| anyhow!("{named} is not valid with the changes of the study: {e}"))?;
    let toml = profile.to_toml();
    let scenario = row.scenario.as_ref().or(study.scenario.as_ref()).cloned();
    let whole = toml.clone() + scenario.as_deref().unwrap_or_default();
    let sha256 = hex(&Sha256::digest(whole.as_bytes()));
    let identity = Identity { name, sha256 };
    Ok(Resolved { toml, scenario, identity })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn read(named: &str, beside: &Path) -> anyhow::Result<Profile> {
    if let Some(profile) = Catalog::built_in().get(named) {
        return Ok(profile.clone());
    }
    let path = beside.join(named);
    Profile::from_file(&path)
        .map_err(|e| anyhow!("{named:?} is neither a built-in profile nor a file: {e}"))
}

/// Removes a table or value by its path, for example `forward.queue.random_drop`.
fn remove(table: &mut Table, path: &str) -> anyhow::Result<()> {
    let missing = || format!("there is no {path:?} to remove");
    match path.split_once('.') {
        None => table.remove(path).map(drop).with_context(missing),
        Some((first, rest)) => {
            let inner = table.get_mut(first).and_then(Value::as_table_mut);
            remove(inner.with_context(missing)?, rest)
        }
    }
}

/// Tables are merged, other values replaced.
fn merge(into: &mut Table, change: &Table) {
    for (key, value) in change {
        match (into.get_mut(key), value) {
            (Some(Value::Table(inner)), Value::Table(change)) => merge(inner, change),
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(text: &str) -> Link {
        toml::from_str(text).unwrap()
    }

    fn resolved(study: &str, row: &str) -> anyhow::Result<Resolved> {
        resolve(&link(study), &link(row), Path::new(""), None)
    }

    #[test]
    fn row_changes_the_link_of_the_study() {
        let study = "profile = \"viasat2\"\nremove = [\"forward.queue.random_drop\"]\n\
                     [change.forward]\nrate = \"100 Mbit/s\"";
        let both = resolved(study, "[change.forward]\nrate = \"10 Mbit/s\"").unwrap();
        let forward = Profile::from_toml(&both.toml).unwrap().into_proto().forward_pipe.unwrap();
        assert_eq!(forward.rate_bps, Some(10_000_000), "{}", both.toml);
        assert!(forward.queue.unwrap().random_drop.is_none() && !forward.outages.is_empty());
        let plain = resolved("profile = \"viasat2\"", "").unwrap();
        assert_ne!(plain.identity.sha256, both.identity.sha256);
        assert_eq!(plain.identity.name, "viasat2");
    }

    #[test]
    fn scenario_is_part_of_the_identity() {
        let plain = resolved("profile = \"lte-driving\"", "").unwrap();
        let both = resolved("profile = \"lte-driving\"", "scenario = \"lte-highway\"").unwrap();
        assert_eq!(both.scenario.as_deref(), Some("lte-highway"));
        assert_ne!(plain.identity.sha256, both.identity.sha256);
    }

    #[test]
    fn unknown_profile_and_path_are_named() {
        let error = resolved("profile = \"viasat9\"", "").unwrap_err();
        assert!(format!("{error:#}").contains("viasat9"), "{error:#}");
        let error = resolved("profile = \"viasat2\"\nremove = [\"forward.x\"]", "").unwrap_err();
        assert!(format!("{error:#}").contains("\"x\""), "{error:#}");
    }
}
