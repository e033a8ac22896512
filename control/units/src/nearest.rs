// SPDX-License-Identifier: Apache-2.0
//! The nearest of some known words to one that is not known, for error messages.

/// The candidate that `word` is most likely a slip of; none if none is close.
///
/// ```
/// assert_eq!(units::nearest("viasat", ["geo-600", "viasat2"]), Some("viasat2"));
/// assert_eq!(units::nearest("xyzzy", ["geo-600", "viasat2"]), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const CLOSE: f64 = 0.7;
    // The distance is quadratic; nobody slips for longer than this.
    let word: String = word.chars().take(64).collect::<String>().to_lowercase();
    candidates
        .into_iter()
        .map(|c| (strsim::jaro_winkler(&word, &c.to_lowercase()), c))
        .filter(|(similarity, _)| *similarity >= CLOSE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, c)| c)
}
