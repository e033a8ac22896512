// SPDX-License-Identifier: Apache-2.0
//! Estimates as text, and as JSON with stable keys.

use super::Fitted;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use proto::linkemu::v1 as pb;
use proto::{Json, json};
use serde::Serialize;
use std::path::Path;
use std::sync::LazyLock;

/// A p-value below this is not chance.
pub(super) const CHANCE: f64 = 1e-3;
/// Where there are fewer columns, how each figure was estimated only the profile says.
const WIDE: u16 = 110;

/// Provenance of the profile; every fitted one has it.
fn provenance(fitted: &Fitted) -> &pb::Provenance {
    static NONE: LazyLock<pb::Provenance> = LazyLock::new(pb::Provenance::default);
    fitted.profile.as_proto().provenance.as_ref().unwrap_or(&NONE)
}

/// The summary's lines as text of `width` columns.
#[must_use]
pub fn summary(fitted: &Fitted, lines: &[(&str, String)], width: Option<u16>) -> String {
    let mut table = plain(width);
    for (name, line) in lines {
        table.add_row([*name, line]);
    }
    format!("{}\n{}\n", fitted.profile.name(), trimmed(&table))
}

/// All estimates as text of `width` columns.
#[must_use]
pub fn all(fitted: &Fitted, width: Option<u16>) -> String {
    let p = provenance(fitted);
    let mut text = format!("\n{}\n", estimates(p, width));
    let tests: Vec<String> = p.goodness.iter().map(test).collect();
    text += &section("the law against the log", &tests, width);
    text += &section("not told by the baseline", &p.unidentified, width);
    let sensitivities: Vec<String> = p.sensitivities.iter().map(sensitivity).collect();
    text += &section("figures depend on priors", &sensitivities, width);
    text
}

fn estimates(p: &pb::Provenance, width: Option<u16>) -> String {
    let right = |text: &str| Cell::new(text).set_alignment(CellAlignment::Right);
    let methods = width.is_none_or(|width| width >= WIDE);
    let mut table = plain(width);
    let row = |name: &str, numbers: [&str; 3], method: &str| {
        let mut row = vec![Cell::new(name)];
        row.extend(numbers.map(right));
        row.extend(methods.then(|| Cell::new(method)));
        row
    };
    table.set_header(row("PARAMETER", ["ESTIMATE", "95 % FROM", "TO"], "METHOD"));
    let mut place = "";
    for e in &p.estimates {
        let (of, name) = e.parameter.split_once(": ").unwrap_or(("", &e.parameter));
        if std::mem::replace(&mut place, of) != of && !of.is_empty() {
            table.add_row([of]);
        }
        let indented = if of.is_empty() { name.to_owned() } else { format!("  {name}") };
        table.add_row(row(&indented, [&e.value, &e.low, &e.high], &e.method));
    }
    trimmed(&table)
}

fn test(g: &pb::Goodness) -> String {
    let p = match g.p_value {
        p if p < CHANCE => "p < 0.001: more than chance, and linkctl verify says how much".into(),
        p => format!("p = {p:.3}"),
    };
    let plural = if g.degrees_of_freedom == 1.0 { "degree" } else { "degrees" };
    format!(
        "{}: χ² {:.1} with {} {plural} of freedom, {p}",
        g.test, g.statistic, g.degrees_of_freedom
    )
}

fn sensitivity(s: &pb::Sensitivity) -> String {
    let value = if s.value.is_empty() { String::new() } else { format!(" ({})", s.value) };
    format!("{}{value}: {} changes by {}, {}", s.prior, s.figure, s.change, s.per)
}

/// A title and lines below it; nothing without lines.
fn section(title: &str, lines: &[String], width: Option<u16>) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut table = plain(width);
    for line in lines {
        table.add_row(["-", line]);
    }
    format!("\n{title}:\n{}\n", trimmed(&table))
}

/// A table that is only columns.
fn plain(width: Option<u16>) -> Table {
    let mut table = Table::new();
    table.force_no_tty().load_preset(presets::NOTHING);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table
}

fn trimmed(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[derive(Debug, Serialize)]
pub struct View<'a> {
    name: &'a str,
    file: Option<String>,
    samples: u64,
    lost: u64,
    interval_ns: u64,
    sha256: &'a str,
    losses: Option<&'a str>,
    estimates: Vec<Json>,
    goodness: Vec<Json>,
    unidentified: &'a [String],
    remarks: &'a [String],
    sensitivities: Vec<Json>,
    profile: String,
}

impl<'a> View<'a> {
    /// Result for a profile that was written to `file`, if any.
    #[must_use]
    pub fn new(fitted: &'a Fitted, file: Option<&Path>) -> Self {
        let p = provenance(fitted);
        Self {
            name: fitted.profile.name(),
            file: file.map(|f| f.display().to_string()),
            samples: p.samples,
            lost: p.lost,
            interval_ns: p.interval_ns,
            sha256: &p.sha256,
            losses: fitted.losses.as_ref().map(|l| l.name),
            estimates: p.estimates.iter().map(json).collect(),
            goodness: p.goodness.iter().map(json).collect(),
            unidentified: &p.unidentified,
            remarks: &p.remarks,
            sensitivities: p.sensitivities.iter().map(json).collect(),
            profile: fitted.profile.to_toml(),
        }
    }
}
