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

use crate::verify::{Comparison, Verdict, length};

/// Why there is no report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A plot could not be drawn.
    #[error("the plot \"{plot}\" cannot be drawn: {source}; the text and JSON forms have no plots")]
    Plot {
        plot: &'static str,
        /// Error of the plotting library.
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

/// The verdict and the sentence for it.
#[must_use]
pub fn verdict(comparison: &Comparison) -> (Verdict, String) {
    let all = comparison.rows.len();
    let (failed, undecided) = (comparison.failed().count(), comparison.undecided().count());
    let holding = all - failed - undecided;
    let verdict = comparison.verdict();
    let words = match (verdict, all) {
        (Verdict::Pass, 1) => "PASS: the only figure holds".to_owned(),
        (Verdict::Pass, _) => format!("PASS: all {all} figures hold"),
        (Verdict::Fail, _) if undecided > 0 => {
            format!("FAIL: {failed} of {all} figures do not hold, {undecided} undecided")
        }
        (Verdict::Fail, _) => format!("FAIL: {holding} of {all} figures hold"),
        (Verdict::Undecided, 0) => "UNDECIDED: no figure could be compared".to_owned(),
        (Verdict::Undecided, _) => {
            let enough = needed(comparison.needed_s());
            format!("UNDECIDED: {holding} of {all} figures hold, {undecided} undecided: {enough}")
        }
    };
    (verdict, words)
}

/// The sentence about the length of log that would decide.
#[must_use]
pub fn needed(seconds: Option<f64>) -> String {
    seconds.map_or("no length of the logs is known to decide".into(), |seconds| {
        format!("logs of {} or more would decide", length(seconds))
    })
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
