// SPDX-License-Identifier: Apache-2.0
//! `linkctl pki show`, and certificates as text and JSON.

use super::failed::{at, failed};
use super::files::Made;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use identity::{Certificate, read_certificates};
use serde::Serialize;
use std::path::Path;
use std::time::SystemTime;

#[derive(Debug, Serialize)]
struct View<'a> {
    name: Option<&'a str>,
    role: Option<&'static str>,
    kind: &'static str,
    hosts: &'a [String],
    issuer: &'a str,
    serial: &'a str,
    not_before: String,
    not_after: String,
    valid: bool,
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct MadeView<'a> {
    certificate: &'a Path,
    key: &'a Path,
    #[serde(flatten)]
    view: View<'a>,
}

#[derive(Serialize)]
struct ShowView<'a> {
    certificates: Vec<View<'a>>,
}

/// Prints a certificate that was made: `words` is the text for people.
pub fn made(
    context: &Context,
    made: &Made,
    words: impl FnOnce(&Made) -> String,
) -> Result<(), Failure> {
    if context.output == Output::Text {
        return output::text(&words(made));
    }
    let found = parsed(&made.certificate)?;
    let [first, ..] = &*found else { return Err(failed("no certificate")) };
    let Made { certificate, key } = made;
    output::json(&MadeView { certificate, key, view: view(first) })
}

pub fn show(context: &Context, file: &Path) -> Result<(), Failure> {
    let found = parsed(file)?;
    if context.output == Output::Json {
        return output::json(&ShowView { certificates: found.iter().map(view).collect() });
    }
    let texts: Vec<String> = found.iter().map(|found| text(&view(found))).collect();
    output::text(&texts.join("\n"))
}

pub fn parsed(file: &Path) -> Result<Vec<Certificate>, Failure> {
    let found = read_certificates(file).map_err(failed)?;
    let parse = |der| Certificate::parse(der).map_err(|error| at(file, &error));
    found.iter().map(|der| parse(der)).collect()
}

fn view(found: &Certificate) -> View<'_> {
    let (not_before, not_after) = found.validity();
    let held = found.holds(SystemTime::now());
    let identity = found.identity();
    let mut remarks: Vec<String> =
        held.as_ref().err().map(ToString::to_string).into_iter().collect();
    let kind = match &identity {
        _ if found.authority => "authority",
        Ok(_) => "client",
        Err(_) if found.roles.is_empty() && !found.hosts.is_empty() => "server",
        Err(error) => {
            remarks.push(error.to_string());
            "other"
        }
    };
    View {
        name: found.names.first().map(String::as_str),
        role: identity.ok().map(|identity| identity.role.as_str()),
        kind,
        hosts: &found.hosts,
        issuer: &found.issuer,
        serial: &found.serial,
        not_before,
        not_after,
        valid: held.is_ok(),
        remarks,
    }
}

/// Escapes control characters: the issuer of the certificate controls the fields.
fn text(view: &View<'_>) -> String {
    let clean = |text: &str| text.escape_debug().to_string();
    let mut lines = vec![
        format!("name    {}", clean(view.name.unwrap_or("none"))),
        format!("kind    {}", view.kind),
    ];
    lines.extend(view.role.map(|role| format!("role    {role}")));
    if !view.hosts.is_empty() {
        lines.push(format!("hosts   {}", clean(&view.hosts.join(", "))));
    }
    lines.push(format!("valid   {} to {}", view.not_before, view.not_after));
    lines.push(format!("issuer  {}", clean(view.issuer)));
    lines.push(format!("serial  {}", view.serial));
    lines.extend(view.remarks.iter().map(|remark| format!("remark  {remark}")));
    lines.push(String::new());
    lines.join("\n")
}
