// SPDX-License-Identifier: Apache-2.0
//! The page of a study. It loads nothing.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Report, RowReport, cells, digits};
use crate::verdict::Judged;

const HEAD: PreEscaped<&str> = PreEscaped(
    "<meta charset=\"utf-8\"/>\
     <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
     <meta http-equiv=\"Content-Security-Policy\" \
     content=\"default-src 'none'; style-src 'unsafe-inline'\"/>",
);

const STYLE: PreEscaped<&str> = PreEscaped(
    "
:root { --ink: #1a1a1a; --soft: #595959; --line: #ccc; --paper: #fff; --agrees: #1b5e20;
  --differs: #b00020; --open: #7a4f00; }
body { margin: 0 auto; padding: 1.5rem; max-width: 70rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: left; vertical-align: baseline; font-weight: normal; }
thead th { border-bottom: 2px solid var(--ink); font-weight: bold; }
tbody tr { border-bottom: 1px solid var(--line); }
td.number { text-align: right; white-space: nowrap; } td.soft { color: var(--soft); }
.agrees { color: var(--agrees); } .differs { color: var(--differs); font-weight: bold; }
.undecided, .explained, .not-run { color: var(--open); }
svg { width: 100%; height: auto; }
",
);

/// The page, with plots as SVG.
#[must_use]
pub fn page(report: &Report, plots: &[String]) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (HEAD)
                title { (report.study) ": " (report.title) }
                style { (STYLE) }
            }
            body {
                h1 { (report.study) ": " (report.title) }
                p { (report.total()) }
                (conditions(report))
                h2 { "Figures" }
                p {
                    "An interval is a confidence interval at 95 %. A figure with fewer than "
                    (report.needed) " flows does not agree."
                }
                (figures(&report.figures))
                h2 { "Over time" }
                @for plot in plots { (PreEscaped(plot)) }
                h2 { "Rows" }
                @for row in &report.rows { (metrics(row)) }
            }
        }
    }
    .into_string()
}

fn conditions(report: &Report) -> Markup {
    html! {
        dl {
            dt { "Source" } dd { (report.source) }
            dt { "Hosts of the authors" } dd { (report.published_hosts) }
            dt { "Date" } dd { (report.date.as_deref().unwrap_or("no flows")) }
            @for machine in &report.machines { dt { "Machine" } dd { (machine) } }
            @for profile in &report.profiles {
                dt { "Profile" } dd { (profile.name) ", SHA-256 " code { (profile.sha256) } }
            }
        }
        @if !report.notes.is_empty() {
            ul { @for note in &report.notes { li { (note) } } }
        }
    }
}

fn figures(figures: &[Judged]) -> Markup {
    html! {
        div class="scroll" {
            table {
                thead {
                    tr {
                        @for name in ["Place", "Figure", "Paper", "Accepted", "Ours", "Interval",
                                      "Flows", "Verdict", "Reason"] {
                            th scope="col" { (name) }
                        }
                    }
                }
                tbody {
                    @for judged in figures {
                        tr {
                            td { (judged.place) }
                            td { (judged.what) }
                            @for cell in cells(judged) { td class="number" { (cell) } }
                            td class="number" { (judged.ours.map_or(0, |o| o.flows)) }
                            td class=(judged.verdict.word().replace(' ', "-")) {
                                (judged.verdict.word())
                            }
                            td class="soft" { (judged.reason) }
                        }
                    }
                }
            }
        }
    }
}

fn metrics(row: &RowReport) -> Markup {
    html! {
        h3 { (row.name) }
        @if let Some(reason) = &row.not_run { p { "Not run: " (reason) } }
        @else { p { (row.account()) } }
        ul { @for reason in &row.void { li { "void: " (reason) } } }
        @if !row.metrics.is_empty() {
            table {
                thead { tr { th { "Metric" } th { "Mean" } th { "SD" } } }
                tbody {
                    @for (name, (mean, sd)) in &row.metrics {
                        tr {
                            td { (name) }
                            td class="number" { (digits(*mean)) }
                            td class="number" { (sd.map_or("–".to_owned(), digits)) }
                        }
                    }
                }
            }
        }
    }
}
