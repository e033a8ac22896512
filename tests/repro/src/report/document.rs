// SPDX-License-Identifier: Apache-2.0
//! `docs/studies.md`: a section for each study. A section that is not reported again stays as it is.

use std::fmt::Write as _;

use super::{Report, cells, digits};
use crate::statistics::Estimate;
use crate::verdict::{Judged, Verdict};

/// Digits of a SHA-256 that the page shows.
const DIGITS: usize = 12;

const INTRODUCTION: &str = "\
# Published studies

Measurements of others, repeated with real hosts on the emulator. `make repro` writes this page from its
results ([testing](testing.md)): do not edit it. Each table compares the published figures with ours:

| verdict | meaning |
|---|---|
| agrees | enough flows, our value is in the accepted range, the interval is at most twice as wide |
| differs | the interval is outside of the accepted range |
| explained | it differs for a reason that was measured |
| undecided | too few flows, or the interval allows both |
| not run | this row cannot be run here |

- *Paper* is the published figure, with the accepted range in parentheses. *Ours* is our value, with its
  confidence interval at 95 %. An empty place is that of the line above.
- An order of two rows (`a < b`) has the difference in place of the value: it agrees if the interval is above 0.
- Figures with the same place, published figure and verdict share a line, except those that differ or are
  undecided with flows. The line names one of them, and has the range of all values and of all intervals.
- Figures that were not run have no line.

`make repro` also writes `report.json` and `report.html` to `build/repro/STUDY`, with each figure and the complete
SHA-256 of each profile.
";

/// Adds or replaces the section of a study in the document.
#[must_use]
pub fn replace(document: &str, report: &Report) -> String {
    let mut sections: Vec<(String, String)> = sections(document);
    sections.retain(|(name, _)| *name != report.study);
    sections.push((report.study.clone(), section(report)));
    sections.sort();
    let mut text = INTRODUCTION.to_owned();
    for (name, body) in sections {
        let _ = write!(text, "\n<!-- begin {name} -->\n{body}<!-- end {name} -->\n");
    }
    text
}

/// Name and text of each section.
fn sections(document: &str) -> Vec<(String, String)> {
    let parts = document.split("<!-- begin ").skip(1);
    parts
        .filter_map(|part| {
            let (name, rest) = part.split_once(" -->\n")?;
            let (body, _) = rest.split_once(&format!("<!-- end {name} -->"))?;
            Some((name.to_owned(), body.to_owned()))
        })
        .collect()
}

fn section(report: &Report) -> String {
    let mut text = format!("## {}: {}\n\n", report.study, report.title);
    let _ = writeln!(text, "{}.\n", report.source.trim_end_matches('.'));
    let date = report.date.as_deref().unwrap_or("no flows");
    let _ = writeln!(text, "- Date: {date}. {}.", report.total());
    let _ = writeln!(text, "- Hosts of the authors: {}.", report.published_hosts);
    for machine in &report.machines {
        let _ = writeln!(text, "- Machine: {machine}.");
    }
    let forms = report.profiles.iter();
    let forms = forms.map(|p| (&p.name, p.sha256.get(..DIGITS).unwrap_or(&p.sha256)));
    for (name, forms) in grouped(forms) {
        let _ = writeln!(text, "- Profile `{name}`, SHA-256 {}.", list(&forms));
    }
    let run = report.rows.iter().filter(|row| row.not_run.is_none());
    for (account, names) in grouped(run.map(|row| (row.account(), row.name.as_str()))) {
        let each = if names.len() > 1 { " each" } else { "" };
        let _ = writeln!(text, "- {}: {account}{each}.", list(&names));
    }
    let not_run = report.rows.iter().filter_map(|row| Some((row.not_run.as_ref()?, &*row.name)));
    for (reason, names) in grouped(not_run) {
        let _ = writeln!(text, "- {}: not run. {}.", list(&names), reason.trim_end_matches('.'));
    }
    for note in &report.notes {
        let _ = writeln!(text, "- {note}");
    }
    text.push_str(&table(report));
    text.push_str(&distribution(report));
    text
}

/// Values by key, in the order in which the keys come first.
fn grouped<K: PartialEq, V>(pairs: impl Iterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Figures that agree, are explained or have no flows share a line if they have the same place,
/// published figure and reason.
fn table(report: &Report) -> String {
    let mut text =
        "\n| place | figure | paper | ours | verdict |\n|---|---|---|---|---|\n".to_owned();
    let shown = report.figures.iter().filter(|judged| judged.verdict != Verdict::NotRun);
    let lines = grouped(shown.enumerate().map(|(n, judged)| {
        let shared = match judged.verdict {
            Verdict::Agrees | Verdict::Explained | Verdict::NotRun => true,
            Verdict::Differs => false,
            Verdict::Undecided => judged.ours.is_none(),
        };
        let Judged { place, paper, accepted, verdict, reason, .. } = judged;
        ((place, paper, accepted, verdict, reason, (!shared).then_some(n)), judged)
    }));
    let mut last = "";
    for ((place, .., verdict, reason, _), figures) in lines {
        let first = figures[0];
        let more = match figures.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let [paper, accepted, ..] = cells(first);
        let accepted = if accepted.is_empty() { accepted } else { format!(" ({accepted})") };
        // The interval shows why a figure with enough flows is undecided.
        let enough = first.ours.is_some_and(|o| o.flows >= report.needed as usize);
        let reason = match verdict {
            Verdict::Undecided if enough => String::new(),
            _ if reason.is_empty() => String::new(),
            _ => format!(": {reason}"),
        };
        let _ = writeln!(
            text,
            "| {} | {}{more} | {paper}{accepted} | {} | {}{} |",
            plain(if place == last { "" } else { place }),
            plain(&first.what),
            range(&figures),
            verdict.word(),
            plain(&reason),
        );
        last = place;
    }
    text
}

/// Our values and their intervals, from the lowest to the highest.
fn range(figures: &[&Judged]) -> String {
    let between = |low: f64, high: f64| match [low, high].map(digits) {
        [low, high] if low == high => low,
        [low, high] => format!("{low} to {high}"),
    };
    let ours = || figures.iter().filter_map(|judged| judged.ours);
    let low = |of: fn(&Estimate) -> f64| ours().map(|o| of(&o)).min_by(f64::total_cmp);
    let high = |of: fn(&Estimate) -> f64| ours().map(|o| of(&o)).max_by(f64::total_cmp);
    let parts = (low(|o| o.value), high(|o| o.value), low(|o| o.low), high(|o| o.high));
    match parts {
        (Some(least), Some(most), Some(low), Some(high)) => {
            format!("{} ({})", between(least, most), between(low, high))
        }
        _ => "–".to_owned(),
    }
}

/// Round-trip times under load: quantiles of a flow, mean over flows.
fn distribution(report: &Report) -> String {
    const QUANTILES: [&str; 7] = ["p5", "p10", "p25", "p50", "p75", "p90", "p95"];
    let mut rows = String::new();
    for row in &report.rows {
        let of = |q: &str| row.metrics.get(&format!("steady_rtt_{q}_ms")).map(|m| digits(m.0));
        let values: Option<Vec<String>> = QUANTILES.iter().map(|q| of(q)).collect();
        if let Some(values) = values {
            let _ = writeln!(rows, "| {} | {} |", row.name, values.join(" | "));
        }
    }
    if rows.is_empty() {
        return rows;
    }
    let head = QUANTILES.join(" | ");
    format!(
        "\nRound-trip times in the steady state, in ms: quantiles of each flow, mean over flows.\n\n\
         | row | {head} |\n|{}\n{rows}",
        "---|".repeat(QUANTILES.len() + 1)
    )
}

/// Text for a cell of a table.
fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(study: &str, reason: &str) -> Report {
        Report {
            study: study.to_owned(),
            title: "t".to_owned(),
            source: "s".to_owned(),
            published_hosts: "h".to_owned(),
            notes: Vec::new(),
            date: Some("2026-01-02".to_owned()),
            machines: Vec::new(),
            profiles: Vec::new(),
            needed: 20,
            figures: vec![Judged {
                id: "f".to_owned(),
                place: "Table I".to_owned(),
                what: "m".to_owned(),
                paper: Some(123.3),
                accepted: Some((117.1, 129.5)),
                ours: None,
                verdict: Verdict::Undecided,
                reason: reason.to_owned(),
            }],
            rows: Vec::new(),
        }
    }

    #[test]
    fn section_of_a_study_is_replaced_and_others_stay() {
        let one = replace("", &report("b", "1 of 20 flows"));
        let two = replace(&one, &report("a", "2 of 20 flows"));
        let again = replace(&two, &report("b", "3 of 20 flows"));
        assert!(
            !again.contains("1 of 20") && again.contains("2 of 20") && again.contains("3 of 20")
        );
        assert!(again.find("begin a") < again.find("begin b"), "{again}");
        assert_eq!(again.matches("# Published studies").count(), 1);
        assert_eq!(replace(&again, &report("b", "3 of 20 flows")), again);
    }

    #[test]
    fn figure_has_its_place_and_verdict() {
        let text = replace("", &report("a", "3 of 20 flows"));
        let row = "| Table I | m | 123.3 (117.1 to 129.5) | – | undecided: 3 of 20 flows |";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn figures_that_agree_share_a_line_and_others_do_not() {
        let mut report = report("a", "");
        let judged = |what: &str, value: f64, verdict| Judged {
            what: what.to_owned(),
            ours: Some(Estimate { value, low: value - 1.0, high: value + 1.0, flows: 20 }),
            verdict,
            ..report.figures[0].clone()
        };
        report.figures = vec![
            judged("a", 124.0, Verdict::Agrees),
            judged("b", 130.0, Verdict::Undecided),
            judged("c", 122.0, Verdict::Agrees),
            judged("d", 131.0, Verdict::Undecided),
            judged("e", 0.0, Verdict::NotRun),
        ];
        let text = replace("", &report);
        for row in [
            "| Table I | a and 1 more | 123.3 (117.1 to 129.5) | 122.0 to 124.0 (121.0 to 125.0) | agrees |",
            "|  | b | 123.3 (117.1 to 129.5) | 130.0 (129.0 to 131.0) | undecided |",
            "|  | d | 123.3 (117.1 to 129.5) | 131.0 (130.0 to 132.0) | undecided |",
        ] {
            assert!(text.contains(row), "{row}: {text}");
        }
        assert!(!text.contains("| e |"), "{text}");
    }
}
