// SPDX-License-Identifier: Apache-2.0
//! `docs/studies.md`: a section for each study. A section that is not reported again stays as it is.

use std::fmt::Write as _;

use super::{Report, cells, digits};

const INTRODUCTION: &str = "\
# Published studies

Measurements of others, repeated with real hosts on the emulator. `make repro` writes this page from its
results ([testing](testing.md)): do not edit it. Each table has the published figure, the accepted range,
our value with its confidence interval at 95 %, and the verdict:

| verdict | meaning |
|---|---|
| agrees | enough flows, our value is in the accepted range, the interval is at most twice as wide |
| differs | the interval is outside of the accepted range |
| explained | it differs for a reason that was measured |
| undecided | too few flows, or the interval allows both |
| not run | this row cannot be run here |

An order of two rows has the difference in place of the value: it agrees if the interval is above 0.
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
    for profile in &report.profiles {
        let _ = writeln!(text, "- Profile: `{}`, SHA-256 `{}`.", profile.name, &profile.sha256);
    }
    for row in &report.rows {
        let _ = match &row.not_run {
            Some(reason) => writeln!(text, "- `{}` was not run: {reason}", row.name),
            None => writeln!(text, "- `{}`: {}.", row.name, row.account()),
        };
    }
    for note in &report.notes {
        let _ = writeln!(text, "- {note}");
    }
    text.push_str("\n| place | figure | paper | accepted | ours | interval | flows | verdict |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    for judged in &report.figures {
        let [paper, accepted, ours, interval] = cells(judged);
        let flows = judged.ours.map_or(0, |o| o.flows);
        let reason =
            if judged.reason.is_empty() { String::new() } else { format!(": {}", judged.reason) };
        let _ = writeln!(
            text,
            "| {} | {} | {paper} | {accepted} | {ours} | {interval} | {flows} | {}{} |",
            plain(&judged.place),
            plain(&judged.what),
            judged.verdict.word(),
            plain(&reason),
        );
    }
    text.push_str(&distribution(report));
    text
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
    use crate::verdict::{Judged, Verdict};

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
        let one = replace("", &report("b", "first"));
        let two = replace(&one, &report("a", "other"));
        let again = replace(&two, &report("b", "second"));
        assert!(!again.contains("first") && again.contains("second") && again.contains("other"));
        assert!(again.find("begin a") < again.find("begin b"), "{again}");
        assert_eq!(again.matches("# Published studies").count(), 1);
        assert_eq!(replace(&again, &report("b", "second")), again);
    }

    #[test]
    fn figure_has_its_place_and_verdict() {
        let text = replace("", &report("a", "3 of 20 flows"));
        let row = "| Table I | m | 123.3 | 117.1 to 129.5 | – |  | 0 | undecided: 3 of 20 flows |";
        assert!(text.contains(row), "{text}");
    }
}
