// SPDX-License-Identifier: Apache-2.0
//! A verification as a page and as text.
//!
//! The page is one file without scripts or external resources, so that it can be kept beside
//! the baseline. It is well-formed XML too, reads in the dark and on paper, and tells the
//! baseline from the link by dashes and markers as well as by colour. The same comparison gives
//! the same bytes.
//!
//! Names come from files: the page escapes them, and both forms replace characters that a
//! terminal obeys or that turn the direction of text. No comparison is refused: a plot without
//! points says what it lacks.

mod axis;
mod page;
mod plot;
mod table;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::verify::Comparison;

/// Why there is no report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A plot could not be drawn.
    #[error("the plot \"{plot}\" cannot be drawn: {source}; the text and JSON forms have no plots")]
    Plot {
        /// Its title.
        plot: &'static str,
        /// What the plotting library says.
        source: plotters::drawing::DrawingAreaErrorKind<std::io::Error>,
    },
}

/// The verification as one page of HTML.
///
/// # Errors
/// If a plot cannot be drawn.
pub fn html(comparison: &Comparison) -> Result<String, ReportError> {
    Ok(page::page(comparison, &plot::figures(&comparison.plots)?))
}

/// The verification for a terminal of that many columns; as wide as it needs to be without.
///
/// The verdict is the last line.
#[must_use]
pub fn text(comparison: &Comparison, width: Option<u16>) -> String {
    table::text(comparison, width)
}

/// Whether the link reproduces the baseline, and that in words. A comparison without figures
/// proves nothing, so it does not hold.
fn verdict(comparison: &Comparison) -> (bool, String) {
    let all = comparison.rows.len();
    let failed = comparison.failed().count();
    match (all, failed) {
        (0, _) => (false, "FAIL: no figure could be compared".to_owned()),
        (1, 0) => (true, "PASS: the only figure holds".to_owned()),
        (_, 0) => (true, format!("PASS: all {all} figures hold")),
        _ => (false, format!("FAIL: {} of {all} figures hold", all - failed)),
    }
}

/// Text of a file without what a terminal obeys, XML forbids or turns the direction of text.
fn clean(text: &str) -> String {
    let shown = |c: char| match c {
        '\t' | '\n' | '\r' => ' ',
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' => '\u{fffd}',
        '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}
