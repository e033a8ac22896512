// SPDX-License-Identifier: Apache-2.0
//! The page.
//!
//! HTML that is well-formed XML too: void elements are closed, and the style has no markup.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::Figure;
use super::table::{Numbers, groups};
use super::{clean, needed, verdict};
use crate::verify::{Comparison, Row, Verdict};

/// Names must not load or run anything.
const HEAD: PreEscaped<&str> = PreEscaped(
    "<meta charset=\"utf-8\"/>\
     <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
     <meta http-equiv=\"Content-Security-Policy\" \
     content=\"default-src 'none'; style-src 'unsafe-inline'\"/>",
);

/// The plots are drawn in black and two colours, which the dark form lightens.
const STYLE: PreEscaped<&str> = PreEscaped(
    "
:root { --ink: #1a1a1a; --soft: #595959; --line: #ccc; --paper: #fff; --fail: #b00020;
  --wash: #fdecee; --pass: #1b5e20; --open: #7a4f00; --haze: #fff4dc; color-scheme: light dark; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --soft: #a8a8a8; --line: #444; --paper: #17191c; --fail: #ff8a95;
    --wash: #3a1c20; --pass: #8fd694; --open: #f2c063; --haze: #33290f; }
  svg [stroke='#0072B2'] { stroke: #56b4e9; } svg [fill='#0072B2'] { fill: #56b4e9; }
  svg [stroke='#D55E00'] { stroke: #ff9d4d; } svg [fill='#D55E00'] { fill: #ff9d4d; }
}
body { margin: 0 auto; padding: 1.5rem; max-width: 66rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.verdict { font-size: 1.25rem; font-weight: bold; margin: .25rem 0 1rem; padding: .3rem .7rem;
  border-left: .4rem solid currentColor; }
.verdict.pass { color: var(--pass); } .verdict.fail { color: var(--fail); }
.verdict.undecided { color: var(--open); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: left; vertical-align: baseline; }
thead th { border-bottom: 2px solid var(--ink); white-space: nowrap; }
tbody th { font-weight: normal; overflow-wrap: anywhere; min-width: 13rem; }
tbody tr { border-bottom: 1px solid var(--line); }
tbody tr.group th { font-weight: bold; padding-top: 1.1rem; border-bottom: 1px solid var(--ink); }
th.number, td.number { text-align: right; white-space: nowrap; }
td.because { font-size: .78rem; color: var(--soft); overflow-wrap: anywhere; min-width: 14rem; }
.unit { color: var(--soft); white-space: nowrap; }
tr.fail { background: var(--wash); box-shadow: inset .3rem 0 var(--fail); font-weight: bold; }
tr.fail th { font-weight: bold; } tr.fail td.because { font-weight: normal; color: var(--ink); }
tr.undecided { background: var(--haze); box-shadow: inset .3rem 0 var(--open); }
tr.undecided td.mark { color: var(--open); font-weight: bold; }
tr.fail td.mark { color: var(--fail); } td.mark { white-space: nowrap; }
.plots { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem 2rem; }
figure { margin: 0; grid-column: span 2; break-inside: avoid; } figure.half { grid-column: auto; }
figcaption { margin-bottom: .3rem; } figcaption span { display: block; color: var(--soft);
  font-size: .85rem; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--ink); } svg [stroke='#000000'] { stroke: var(--ink); }
@media screen and (max-width: 45rem) {
  figure { min-width: 0; overflow-x: auto; } figure.half { grid-column: span 2; }
  figure.wide svg { min-width: 42rem; }
}
@media print {
  html { font-size: 9pt; } body { max-width: none; padding: 0; }
  tr { break-inside: avoid; } thead { display: table-header-group; }
  .scroll { overflow: visible; } th, td { padding: .15rem .35rem; }
  tr.fail { outline: 2px solid var(--fail); outline-offset: -2px; }
}
",
);

/// The page with its plots.
pub fn page(comparison: &Comparison, figures: &[Figure]) -> String {
    let (judged, verdict) = verdict(comparison);
    let profile = clean(&comparison.profile);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (HEAD)
                title { (verdict) " – " (profile) }
                style { (STYLE) }
            }
            body {
                h1 { "Verification of " (profile) }
                p class={ "verdict " (class(judged)) } { (verdict) }
                dl {
                    dt { "Baseline" } dd { (clean(&comparison.baseline)) }
                    dt { "SHA-256" } dd { code { (clean(&comparison.sha256)) } }
                    dt { "Profile" } dd { (profile) }
                    dt { "Link" } dd { (clean(&comparison.played)) }
                }
                @if !comparison.remarks.is_empty() {
                    h2 { "Remarks" }
                    ul {
                        @for remark in &comparison.remarks { li { (clean(remark)) } }
                    }
                }
                @if !comparison.rows.is_empty() { (table(comparison)) }
                h2 { "Plots" }
                div class="plots" {
                    @for figure in figures { (plot(figure)) }
                }
            }
        }
    }
    .into_string()
}

fn table(comparison: &Comparison) -> Markup {
    html! {
        h2 { "Figures" }
        div class="scroll" {
            table {
                thead {
                    tr {
                        th scope="col" { "Figure" }
                        @for name in ["Baseline", "Link", "Difference", "Error", "Tolerance"] {
                            th scope="col" class="number" { (name) }
                        }
                        th scope="col" { "Verdict" }
                        th scope="col" { "What the tolerance is made of" }
                    }
                }
                @for (group, rows) in groups(comparison) {
                    tbody {
                        tr class="group" { th scope="rowgroup" colspan="8" { (group.title()) } }
                        @for row in rows { (figure(row)) }
                    }
                }
            }
        }
    }
}

fn figure(row: &Row) -> Markup {
    let numbers = Numbers::of(row);
    let mark = match row.verdict {
        Verdict::Pass => "✓ pass",
        Verdict::Fail => "✗ FAIL",
        Verdict::Undecided => "? undecided",
    };
    html! {
        tr class=(class(row.verdict)) {
            th scope="row" {
                (clean(&row.figure))
                @if !row.unit.is_empty() { span class="unit" { ", " (clean(row.unit)) } }
            }
            td class="number" { (numbers.baseline) }
            td class="number" { (numbers.link) }
            td class="number" { (numbers.difference) }
            td class="number" { "± " (numbers.error) }
            td class="number" { "± " (numbers.tolerance) }
            td class="mark" { (mark) }
            td class="because" {
                (clean(&row.because))
                @if row.verdict == Verdict::Undecided { "; " (needed(row.needed_s)) }
            }
        }
    }
}

const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Undecided => "undecided",
    }
}

fn plot(figure: &Figure) -> Markup {
    html! {
        figure class=(if figure.wide { "wide" } else { "half" }) {
            figcaption { b { (figure.title) } span { (figure.caption) } }
            (PreEscaped(&figure.svg))
        }
    }
}
