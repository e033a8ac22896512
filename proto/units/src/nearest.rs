// SPDX-License-Identifier: Apache-2.0
//! Finds the known word nearest to an unknown one, for error messages.

/// The candidate that `word` is most likely a misspelling of; none if no candidate is similar.
///
/// ```
/// assert_eq!(units::nearest("viasat", ["geo-600", "viasat2"]), Some("viasat2"));
/// assert_eq!(units::nearest("xyzzy", ["geo-600", "viasat2"]), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const CLOSE: f64 = 0.7;
    // The distance is quadratic, so only this many characters are compared.
    let word: String = word.chars().take(64).collect::<String>().to_lowercase();
    candidates
        .into_iter()
        .map(|c| (strsim::jaro_winkler(&word, &c.to_lowercase()), c))
        .filter(|(similarity, _)| *similarity >= CLOSE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, c)| c)
}
