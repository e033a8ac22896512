// SPDX-License-Identifier: Apache-2.0
//! The P4 switch before a box, as text.

use crate::table::time;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use proto::linkemu::v1 as pb;
use std::fmt::Write as _;
use units::counted;

/// Length of the longest bar of a histogram, in characters.
const BAR: u64 = 40;

/// "forward", "return" or "both".
#[must_use]
pub fn direction(direction: pb::Direction) -> &'static str {
    match direction {
        pb::Direction::Forward => "forward",
        pb::Direction::Return => "return",
        pb::Direction::Unspecified => "both",
    }
}

fn packets(count: Option<pb::Count>) -> u64 {
    count.unwrap_or_default().packets
}

/// State and counters of the switch.
#[must_use]
pub fn switch(state: &pb::SwitchState) -> String {
    let phase = match state.phase() {
        pb::SwitchPhase::Lost => "lost",
        pb::SwitchPhase::Taken => "taken",
        pb::SwitchPhase::Restoring => "restoring",
        pb::SwitchPhase::Ready => "ready",
        pb::SwitchPhase::Unspecified => "unspecified",
    };
    let mut text = format!("{} ({}): {phase}", state.address, state.target);
    if !state.message.is_empty() {
        let _ = write!(text, ", {}", state.message);
    }
    let restored = match state.restored_ns {
        0 => "not restored yet".to_owned(),
        ns => format!("restored in {}", time(ns)),
    };
    let _ = writeln!(
        text,
        "\n{}, {}, {restored}",
        counted(state.entries, "entry", "entries"),
        counted(state.clients, "client", "clients")
    );
    if !state.program.is_empty() {
        let _ = writeln!(text, "program {}", state.program);
    }
    for gate in &state.gates {
        let of = if gate.client.is_empty() { "all clients" } else { &gate.client };
        let _ = writeln!(text, "closed gate: {of}, {}", direction(gate.direction()));
    }
    text.extend(state.mirror.iter().map(mirror));
    let mut counts = numbers(["FRAMES", "FORWARD", "RETURN"], 1);
    for pb::SwitchCount { fate, forward_count, return_count } in &state.counts {
        let [forward, back] = [*forward_count, *return_count].map(|it| packets(it).to_string());
        counts.add_row([fate, &forward, &back]);
    }
    let _ = writeln!(text, "\n{}", counts.trim_fmt());
    if !state.ports.is_empty() {
        let mut ports = numbers(["PORT", "TO", "GIVEN", "SENT", "NOT SENT"], 2);
        for pb::SwitchPort { port, to_hosts, given, sent } in &state.ports {
            let [given, sent] = [*given, *sent].map(packets);
            let leads_to = if *to_hosts { "hosts" } else { "box" };
            let counts = [given, sent, given.saturating_sub(sent)].map(|n| n.to_string());
            ports.add_row([port.to_string(), leads_to.to_owned()].into_iter().chain(counts));
        }
        let _ = writeln!(text, "\n{}", ports.trim_fmt());
    }
    for (title, times) in [
        ("forward, from a host to its way back from the box", &state.forward_transit),
        ("return, from a host to its way back from the box", &state.return_transit),
        ("forward, more than the emulator meant to keep it", &state.forward_excess),
        ("return, more than the emulator meant to keep it", &state.return_excess),
    ] {
        if let Some(bars) = times.as_ref().and_then(bars) {
            let _ = write!(text, "\n{title}:\n{bars}");
        }
    }
    let _ = writeln!(text, "\nsooner than meant: {}", counted(state.early, "frame", "frames"));
    if !state.wires.is_empty() {
        let _ = writeln!(text, "\nwires:");
    }
    for pb::SwitchWire { to_box, port, left, arrived, missing } in &state.wires {
        let (from, to) = if *to_box { ("switch", "box") } else { ("box", "switch") };
        let _ = writeln!(
            text,
            "  {from} to {to}, port {port}: {left} left, {arrived} arrived, {missing} missing"
        );
    }
    text
}

/// The setting of the mirror and the counts of copied frames, one per line.
fn mirror(state: &pb::SwitchMirror) -> String {
    let asked = state.mirror.clone().unwrap_or_default();
    let of = match &*asked.clients {
        _ if asked.all => "all clients".to_owned(),
        [] => "no clients".to_owned(),
        names => names.join(", "),
    };
    let mut text = format!("mirror: {of}");
    if asked.all || !asked.clients.is_empty() {
        let at = match asked.at() {
            pb::MirrorPoint::Unspecified => "both",
            pb::MirrorPoint::Box => "box",
            pb::MirrorPoint::Hosts => "hosts",
        };
        let _ = write!(text, ", {}, at {at}", direction(asked.direction()));
    }
    let _ = writeln!(text, ", to port {}", state.port);
    let mut made = 0_u64;
    for (place, forward, back) in [
        ("box", state.forward_at_box, state.return_at_box),
        ("hosts", state.forward_at_hosts, state.return_at_hosts),
    ] {
        let [forward, back] = [forward, back].map(packets);
        if forward > 0 || back > 0 {
            let _ = writeln!(text, "  copied at {place}: {forward} forward, {back} return");
        }
        made = made.saturating_add(forward).saturating_add(back);
    }
    let sent = packets(state.sent);
    let not_sent = made.saturating_sub(sent);
    if sent > 0 || not_sent > 0 {
        let _ = writeln!(text, "  copies sent: {sent}, not sent: {not_sent}");
    }
    text
}

/// A bar for each bucket from the first that has any to the last; none if none has.
fn bars(times: &pb::TimeHistogram) -> Option<String> {
    let pb::TimeHistogram { bounds_ns, counts } = times;
    let first = counts.iter().position(|count| *count > 0)?;
    let last = counts.iter().rposition(|count| *count > 0)?;
    let most = counts.iter().copied().max()?.max(1);
    let mut text = String::new();
    for (n, count) in counts.iter().enumerate().take(last + 1).skip(first) {
        let label = match (bounds_ns.get(n), bounds_ns.last()) {
            (Some(bound), _) => format!("<= {}", time(*bound)),
            (None, Some(bound)) => format!(" > {}", time(*bound)),
            (None, None) => "all".to_owned(),
        };
        let product = u128::from(*count) * u128::from(BAR);
        // A nonzero count has a visible bar.
        let length = product.div_ceil(u128::from(most)).min(u128::from(BAR));
        let bar = "#".repeat(usize::try_from(length).unwrap_or_default());
        let line = format!("  {label:<12} {count:>12} {bar}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    Some(text)
}

/// A table with numbers in the columns from `first` on.
fn numbers<const N: usize>(header: [&str; N], first: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Where each stage runs, for people: a line each.
#[must_use]
pub fn stages(stages: &[pb::Stage]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for stage in stages {
        let place = match stage.place() {
            pb::StagePlace::Switch => "switch",
            pb::StagePlace::Dataplane => "dataplane",
            pb::StagePlace::Unspecified => "unspecified",
        };
        table.add_row([&*stage.name, direction(stage.direction()), place, &stage.reason]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bounds: &[u64], counts: &[u64]) -> Option<String> {
        bars(&pb::TimeHistogram { bounds_ns: bounds.into(), counts: counts.into() })
    }

    #[test]
    fn bars_are_proportional_and_nonzero_counts_visible() {
        let bars = of(&[1_000, 2_000, 4_000], &[0, 1, 1_000_000, 0]).unwrap();
        let lines: Vec<_> = bars.lines().collect();
        assert_eq!(lines.len(), 2, "{bars}");
        assert_eq!(lines[0].matches('#').count(), 1);
        assert_eq!(lines[1].matches('#').count(), 40);
        assert!(lines[0].starts_with("  <= 2.0 µs "), "{bars}");
    }

    #[test]
    fn the_last_bucket_has_no_bound_and_hostile_histograms_are_shown() {
        let bars = of(&[1_000], &[0, 7]).unwrap();
        assert!(bars.starts_with("  > 1.0 µs") || bars.starts_with("   > 1.0 µs"), "{bars}");
        assert_eq!(of(&[], &[]), None);
        assert_eq!(of(&[1], &[0, 0]), None);
        assert!(of(&[], &[u64::MAX, u64::MAX]).is_some());
    }

    #[test]
    fn frames_that_a_port_did_not_send_are_shown() {
        let count = |packets| Some(pb::Count { packets, bytes: 0 });
        let port = |port, given, sent| {
            let (given, sent) = (count(given), count(sent));
            pb::SwitchPort { port, to_hosts: port > 1, given, sent }
        };
        let ports = vec![port(1, 40, 40), port(3, 100, 70)];
        let text = switch(&pb::SwitchState { ports, ..Default::default() });
        let rows: Vec<Vec<_>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        for row in [["1", "box", "40", "40", "0"], ["3", "hosts", "100", "70", "30"]] {
            assert!(rows.contains(&row.to_vec()), "{text}");
        }
    }

    #[test]
    fn copies_are_shown_and_those_that_were_not_sent() {
        let count = |packets| Some(pb::Count { packets, bytes: 0 });
        let asked = pb::Mirror {
            clients: vec!["alice".into(), "10.0.0.2".into()],
            direction: 1,
            at: pb::MirrorPoint::Hosts.into(),
            ..Default::default()
        };
        let mirror = pb::SwitchMirror {
            port: 6,
            mirror: Some(asked),
            forward_at_hosts: count(9),
            return_at_hosts: count(3),
            sent: count(10),
            ..Default::default()
        };
        let state = pb::SwitchState { mirror: Some(mirror), ..Default::default() };
        let text = switch(&state);
        let lines = "mirror: alice, 10.0.0.2, forward, at hosts, to port 6\n  copied at hosts: 9 \
                     forward, 3 return\n  copies sent: 10, not sent: 2\n";
        assert!(text.contains(lines), "{text}");
        let idle = pb::SwitchMirror { port: 6, ..Default::default() };
        let idle = pb::SwitchState { mirror: Some(idle), ..Default::default() };
        let text = switch(&idle);
        assert!(text.contains("mirror: no clients, to port 6\n"), "{text}");
    }

    #[test]
    fn unknown_values_have_a_name() {
        let stage = pb::Stage { name: "loss".into(), direction: 1, place: 2, reason: "r".into() };
        let state = pb::SwitchState { phase: 99, stages: vec![stage], ..Default::default() };
        assert!(switch(&state).contains(": unspecified\n"));
        let words = stages(&state.stages);
        assert_eq!(
            words.split_whitespace().collect::<Vec<_>>(),
            ["loss", "forward", "switch", "r"]
        );
    }
}
