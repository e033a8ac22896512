// SPDX-License-Identifier: Apache-2.0
//! The figures as text, and how they are written.
//!
//! The numbers of a row have the decimals that give its tolerance two significant digits: more
//! of them say nothing, fewer hide a difference.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};

use super::{clean, needed, verdict};
use crate::verify::{Comparison, Group, Row, Verdict};

/// The least width of the column of names.
const NAME: u16 = 20;

/// The rows of each group.
pub fn groups(comparison: &Comparison) -> BTreeMap<Group, Vec<&Row>> {
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for row in &comparison.rows {
        groups.entry(row.group).or_default().push(row);
    }
    groups
}

/// The numbers of a row as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub baseline: String,
    pub link: String,
    /// The link's less the baseline's.
    pub difference: String,
    /// How far apart they may be.
    pub tolerance: String,
    /// Half of the confidence interval of the difference.
    pub error: String,
}

impl Numbers {
    pub fn of(row: &Row) -> Self {
        let finite = |v: f64| if v.is_finite() { v.abs() } else { 0.0 };
        let values = [row.baseline, row.link, row.tolerance].map(finite);
        let largest = values.into_iter().fold(0.0, f64::max);
        let finest = if values[2] > 0.0 { values[2] } else { largest / 100.0 };
        // Far from one a fixed point is a row of zeros.
        let decimals = (largest == 0.0 || (1e-3..1e9).contains(&largest))
            .then(|| (1.0 - finest.max(1e-9).log10().floor()).clamp(0.0, 6.0) as usize);
        let write = |value| number(value, decimals);
        let tolerance = write(row.tolerance);
        let hidden = values[2] > 0.0 && is_zero(&tolerance);
        let difference = row.link - row.baseline;
        Self {
            baseline: write(row.baseline),
            link: write(row.link),
            difference: format!("{}{}", if difference > 0.0 { "+" } else { "" }, write(difference)),
            tolerance: if hidden { number(row.tolerance, None) } else { tolerance },
            error: write(row.error),
        }
    }
}

/// With that many decimals, or as a power of ten.
fn number(value: f64, decimals: Option<usize>) -> String {
    let text = match decimals {
        _ if value.is_nan() => return "n/a".to_owned(),
        _ if value.is_infinite() => return if value > 0.0 { "inf" } else { "-inf" }.to_owned(),
        Some(decimals) => format!("{value:.decimals$}"),
        None => format!("{value:.2e}"),
    };
    match text.strip_prefix('-') {
        Some(zero) if is_zero(zero) => zero.to_owned(),
        _ => text,
    }
}

fn is_zero(text: &str) -> bool {
    text.chars().all(|c| matches!(c, '0' | '.'))
}

/// See [`super::text`].
pub fn text(comparison: &Comparison, width: Option<u16>) -> String {
    let Comparison { baseline, sha256, profile, played, .. } = comparison;
    let mut text = format!("Verification of {}\n\n", clean(profile));
    for (name, value) in [("baseline", baseline), ("sha256", sha256), ("played", played)] {
        let _ = writeln!(text, "{name:9} {}", clean(value));
    }
    if !comparison.rows.is_empty() {
        let _ = writeln!(text, "\n{}", table(comparison, width).trim_fmt());
    }
    if comparison.verdict() != Verdict::Pass {
        text.push('\n');
    }
    for row in comparison.failed().chain(comparison.undecided()) {
        let numbers = Numbers::of(row);
        // Groups have figures of the same name.
        let _ = write!(
            text,
            "{} {}, {}: link minus baseline is {} ± {}, tolerance {}{}{}\n     tolerance: {}\n",
            word(row.verdict),
            row.group.title(),
            clean(&row.figure),
            numbers.difference,
            numbers.error,
            numbers.tolerance,
            if row.unit.is_empty() { "" } else { " " },
            clean(row.unit),
            clean(&row.because),
        );
        if row.verdict == Verdict::Undecided {
            let _ = writeln!(text, "     length: {}", needed(row.needed_s));
        }
    }
    if !comparison.remarks.is_empty() {
        text.push('\n');
    }
    for remark in &comparison.remarks {
        let _ = writeln!(text, "remark: {}", clean(remark));
    }
    let _ = writeln!(text, "\n{}", verdict(comparison).1);
    text
}

/// A verdict in a word.
const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "FAIL",
        Verdict::Undecided => "UNDECIDED",
    }
}

fn table(comparison: &Comparison, width: Option<u16>) -> Table {
    let mut table = Table::new();
    table.force_no_tty().load_preset(presets::NOTHING).set_header([
        "FIGURE",
        "UNIT",
        "BASELINE",
        "LINK",
        "TOLERANCE",
        "ERROR",
        "VERDICT",
    ]);
    match width {
        Some(width) => {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    for (n, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        // Only the names wrap, and not to a letter a line.
        column.set_constraint(match n {
            0 => ColumnConstraint::LowerBoundary(Width::Fixed(NAME)),
            _ => ColumnConstraint::ContentWidth,
        });
        if (2..6).contains(&n) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for (group, rows) in groups(comparison) {
        table.add_row([group.title()]);
        for row in rows {
            let numbers = Numbers::of(row);
            table.add_row([
                &format!("  {}", clean(&row.figure)),
                &clean(row.unit),
                &numbers.baseline,
                &numbers.link,
                &numbers.tolerance,
                &numbers.error,
                word(row.verdict),
            ]);
        }
    }
    table
}
