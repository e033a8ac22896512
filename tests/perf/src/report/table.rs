// SPDX-License-Identifier: Apache-2.0
//! The tables of a run. Spreads are written as median [least, largest].

use comfy_table::presets::{ASCII_MARKDOWN, UTF8_FULL_CONDENSED};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use crate::cost::Cost;
use crate::lateness::Quantiles;
use crate::results::Goal;
use crate::results::Results;
use crate::spread::Spread;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With lines, as wide as the terminal.
    Terminal,
    /// As Markdown, for docs/performance.md.
    Markdown,
}

#[must_use]
pub fn text(results: &Results, style: Style) -> String {
    let parts = [
        results.machine.to_string(),
        costs(results, style),
        rest(results, style),
        goals(&results.goals, style),
        notes(results),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|p| !p.is_empty()).collect();
    parts.join("\n\n")
}

/// An empty table with a header.
pub fn table<const N: usize>(style: Style, header: [&str; N]) -> Table {
    let mut table = Table::new();
    match style {
        Style::Terminal => table
            .load_preset(UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Dynamic),
        Style::Markdown => table.load_preset(ASCII_MARKDOWN),
    };
    table.set_header(header);
    table
}

/// Adds a row of values with a name.
pub fn row(table: &mut Table, name: &str, values: impl IntoIterator<Item = String>) {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    table.add_row(std::iter::once(Cell::new(name)).chain(values.into_iter().map(right)));
}

fn costs(results: &Results, style: Style) -> String {
    if results.costs.is_empty() {
        return String::new();
    }
    let mut table = table(
        style,
        [
            "ns of CPU a packet",
            "bare loop",
            "ours",
            "over it",
            "Mpps",
            "held",
            "bytes a byte",
            "instructions",
        ],
    );
    for c in &results.costs {
        let values = [
            c.ceiling_ns.to_string(),
            c.ours_ns.to_string(),
            c.over_ns.to_string(),
            format!("{:.1}", c.mpps),
            c.held.to_string(),
            held(c),
            c.instructions
                .map_or_else(String::new, |[bare, ours]| format!("{bare:.0} + {:.0}", ours - bare)),
        ];
        row(&mut table, &c.case, values);
    }
    let faults = results.costs.iter().flat_map(|c| {
        c.faults.iter().map(|f| format!("\n{} did not measure what it says: {f}", c.case))
    });
    format!("{table}{}", faults.collect::<String>())
}

/// Without a delay too little is held for a ratio.
fn held(cost: &Cost) -> String {
    if cost.delay_ms > 0.0 { format!("{:.2}", cost.bytes_per_byte) } else { String::new() }
}

fn rest(results: &Results, style: Style) -> String {
    let mut table = table(style, ["", "measured"]);
    for l in &results.lookups {
        let kind = if l.rules == 0 { "" } else { l.kind.name() };
        let name = format!("client of a frame, {} rules: ns of CPU", l.rules);
        row(&mut table, &name, [format!("{} {kind}", l.ns).trim_end().to_owned()]);
    }
    for t in &results.testpmd {
        let name = format!("dpdk-testpmd io, {} B, ns of CPU a packet", t.size);
        row(&mut table, &name, [t.testpmd_ns.to_string()]);
    }
    for m in &results.memory {
        let name = format!("{}: memory a byte held", m.case);
        let value = format!(
            "{:.2} resident, {:.2} accounted ({} frames in buffers; {:.1} MB when empty)",
            m.resident,
            m.accounted,
            m.kept,
            m.fixed_bytes as f64 / 1e6
        );
        row(&mut table, &name, [value]);
    }
    for i in &results.instructions {
        let name = format!("{}: instructions a packet (callgrind)", i.case);
        row(&mut table, &name, [format!("{:.0} + {:.0}", i.ceiling, i.ours - i.ceiling)]);
    }
    for p in &results.changes {
        let value = format!(
            "{:.1} µs ({} turns after it), without a change {:.1}; noise included {}, {}; {} frames lost",
            p.worst_us, p.worst_after, p.quiet_us, p.with_noise_us, p.quiet_with_noise_us, p.lost
        );
        row(&mut table, &format!("{}: worst turn of {} changes", p.case, p.changes), [value]);
        let value = format!("{} turns, {} µs of CPU", p.settled_turns, p.settled_us);
        row(&mut table, &format!("{}: until all clients have a change", p.case), [value]);
    }
    for (workers, cost) in results.scaling.iter().flat_map(|s| &s.cost_ns) {
        row(&mut table, &format!("{workers} workers, ns of CPU a packet"), [cost.to_string()]);
    }
    if let Some(s) = &results.scaling {
        row(
            &mut table,
            "4 workers: throughput of one's",
            [format!(
                "{:.2} [{:.2}, {:.2}]",
                s.four_to_one.median, s.four_to_one.min, s.four_to_one.max
            )],
        );
    }
    for k in &results.keeping {
        let [copied, kept] = k.bytes_per_byte;
        let Spread { median, min, max } = k.ratio;
        let faults: String =
            k.faults.iter().map(|f| format!("; did not measure it: {f}")).collect();
        let value = format!(
            "{} copied, {} kept: {median:.2} [{min:.2}, {max:.2}]; {copied:.2} and {kept:.2} bytes a \
             byte{faults}",
            k.copied_ns, k.kept_ns
        );
        row(&mut table, &format!("{} B: ns over the bare loop", k.size), [value]);
    }
    if let Some(h) = &results.handover {
        row(&mut table, "hand-over of a frame, one thread, ns of CPU", [h.alone_ns.to_string()]);
        let value = h.apart.as_ref().map_or_else(
            || "one processor only".to_owned(),
            |[from, to]| format!("{from} at the receiver, {to} at the owner"),
        );
        row(&mut table, "hand-over of a frame between two cores, ns", [value]);
    }
    if let Some(l) = &results.lateness {
        let core = l.core.map_or_else(String::new, |c| format!(", core {c}"));
        row(&mut table, &format!("lateness, bare loop{core}"), [quantiles(&l.bare)]);
        row(&mut table, &format!("lateness, ours{core}"), [quantiles(&l.ours)]);
    }
    for c in results.against.iter().flat_map(|a| &a.cases) {
        let base = results.against.as_ref().map_or("", |a| a.base.as_str());
        let value = format!("{} against {} ({base})", c.here_ns, c.base_ns);
        row(&mut table, &format!("{}: ns over the ceiling", c.case), [value]);
    }
    if table.is_empty() { String::new() } else { table.to_string() }
}

/// Medians over the groups, and their range.
fn quantiles(groups: &[Quantiles]) -> String {
    if groups.is_empty() {
        return "the machine was too busy".to_owned();
    }
    let of = |name: &str, of: fn(&Quantiles) -> u64| {
        let values: Vec<f64> = groups.iter().map(|q| of(q) as f64).collect();
        let s = Spread::of(&values);
        format!("{name} {} [{}, {}]", s.median, s.min, s.max)
    };
    let texts = [of("p50", |q| q.p50), of("p99", |q| q.p99), of("p99.9", |q| q.p999)];
    format!("{} ns", texts.join(", "))
}

fn goals(goals: &[Goal], style: Style) -> String {
    if goals.iter().all(|g| g.holds.is_none()) {
        return String::new();
    }
    let mut table = table(style, ["goal", "measured", "bound", "holds"]);
    for goal in goals {
        let holds = match goal.holds {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "not measured",
        };
        row(&mut table, &goal.name, [goal.measured.clone(), goal.bound.clone(), holds.to_owned()]);
    }
    table.to_string()
}

fn notes(results: &Results) -> String {
    let notes: Vec<String> = results.notes.iter().map(|n| format!("NOTE: {n}")).collect();
    notes.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::judge;

    #[test]
    fn fault_is_printed_below_table() {
        let mut results = Results::default();
        let faults = vec!["7 frames dropped: overload".to_owned()];
        results.costs.push(Cost { case: "64B-full-300ms-1".to_owned(), faults, ..Cost::default() });
        let text = text(&results, Style::Terminal);
        assert!(text.contains("64B-full-300ms-1 did not measure what it says: 7 frames"), "{text}");
    }

    #[test]
    fn markdown_has_a_row_a_line() {
        let mut results = Results::default();
        results.costs.push(Cost { case: "64B-full-300ms-1".to_owned(), ..Cost::default() });
        let text = text(&results, Style::Markdown);
        let rows = text.lines().filter(|l| l.starts_with('|') && l.ends_with('|'));
        assert_eq!(rows.count(), 3, "{text}");
    }

    #[test]
    fn missed_goal_is_reported() {
        let mut results = Results::default();
        results.costs.push(Cost {
            case: crate::suite::smallest().to_string(),
            over_ns: Spread::of(&[56.0]),
            ..Cost::default()
        });
        results.goals = judge(&results);
        let text = text(&results, Style::Terminal);
        assert!(text.contains("NO") && text.contains("not measured"), "{text}");
    }
}
