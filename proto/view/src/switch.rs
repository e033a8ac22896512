// SPDX-License-Identifier: Apache-2.0
//! The P4 switch before a box, as JSON and as text. The keys are a contract: they do not change.

use crate::pipe::Count;
use crate::table::time;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use proto::linkemu::v1 as pb;
use serde::Serialize;
use std::fmt::Write as _;
use units::counted;

/// Length of the longest bar of a histogram, in characters.
const BAR: u64 = 40;

/// State and counters of the switch.
#[derive(Clone, Debug, Serialize)]
pub struct Switch {
    pub phase: &'static str,
    pub message: String,
    pub address: String,
    pub target: String,
    pub stages: Vec<Stage>,
    pub clients: u32,
    pub entries: u32,
    pub restored_ns: u64,
    pub counts: Vec<SwitchCount>,
    /// `None` (null in JSON) if absent.
    pub forward_transit_ns: Option<Times>,
    pub return_transit_ns: Option<Times>,
    pub forward_excess_ns: Option<Times>,
    pub return_excess_ns: Option<Times>,
    pub early: u64,
    pub gates: Vec<Gate>,
    pub ports: Vec<SwitchPort>,
    /// `None` (null in JSON) without a port for copies.
    pub mirror: Option<Mirror>,
    /// Name, version and architecture of the P4 program.
    pub program: String,
    pub wires: Vec<Wire>,
}

/// Frames that left at one end of a wire, and those that came in at the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wire {
    pub from: &'static str,
    pub to: &'static str,
    /// Of the box.
    pub port: String,
    pub left: u64,
    pub arrived: u64,
    /// Lost on the wire.
    pub missing: u64,
}

/// Where a stage of the link runs, and why there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stage {
    pub name: String,
    pub direction: &'static str,
    pub place: &'static str,
    pub reason: String,
}

/// Frames by the action of the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchCount {
    pub fate: String,
    pub forward: Count,
    pub r#return: Count,
}

/// Frames that leave at a port of the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchPort {
    pub port: u32,
    /// `hosts` or `box`.
    pub leads_to: &'static str,
    pub given: Count,
    pub sent: Count,
}

/// Times in buckets with ascending upper bounds; the last one has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Times {
    pub bounds: Vec<u64>,
    pub counts: Vec<u64>,
}

/// A closed gate: of all clients if it names none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gate {
    pub client: String,
    pub direction: &'static str,
}

/// Copies of frames at the switch's port for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mirror {
    pub port: u32,
    /// Of whose frames there are copies.
    pub clients: Vec<String>,
    /// Of all frames.
    pub all: bool,
    pub direction: &'static str,
    /// `box`, `hosts` or `both`: where the frames go.
    pub at: &'static str,
    pub to_box: Copies,
    pub to_hosts: Copies,
    /// Copies that left at the port.
    pub sent: Count,
    /// Copies that did not, or not yet.
    pub not_sent: u64,
}

/// Frames that were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Copies {
    pub forward: Count,
    pub r#return: Count,
}

impl From<pb::SwitchMirror> for Mirror {
    fn from(state: pb::SwitchMirror) -> Self {
        let copies = |forward: Option<pb::Count>, back: Option<pb::Count>| Copies {
            forward: forward.into(),
            r#return: back.into(),
        };
        let to_box = copies(state.forward_at_box, state.return_at_box);
        let to_hosts = copies(state.forward_at_hosts, state.return_at_hosts);
        let made = [to_box, to_hosts].into_iter().flat_map(|of| [of.forward, of.r#return]);
        let made = made.fold(0u64, |sum, count| sum.saturating_add(count.packets));
        let sent = Count::from(state.sent);
        let asked = state.mirror.unwrap_or_default();
        let at = match asked.at() {
            pb::MirrorPoint::Unspecified => "both",
            pb::MirrorPoint::Box => "box",
            pb::MirrorPoint::Hosts => "hosts",
        };
        Self {
            port: state.port,
            direction: direction(asked.direction()),
            all: asked.all,
            clients: asked.clients,
            at,
            to_box,
            to_hosts,
            sent,
            not_sent: made.saturating_sub(sent.packets),
        }
    }
}

impl Mirror {
    /// What is copied, and what was, as lines.
    fn lines(&self) -> String {
        let of = match &*self.clients {
            _ if self.all => "all clients".to_owned(),
            [] => "no clients".to_owned(),
            names => names.join(", "),
        };
        let Self { port, at, direction, sent, not_sent, .. } = self;
        let mut text = format!("mirror: {of}");
        if self.all || !self.clients.is_empty() {
            let _ = write!(text, ", {direction}, at {at}");
        }
        let _ = writeln!(text, ", to port {port}");
        for (place, copies) in [("box", self.to_box), ("hosts", self.to_hosts)] {
            let Copies { forward, r#return } = copies;
            if forward.packets > 0 || r#return.packets > 0 {
                let (forward, back) = (forward.packets, r#return.packets);
                let _ = writeln!(text, "  copied at {place}: {forward} forward, {back} return");
            }
        }
        if sent.packets > 0 || *not_sent > 0 {
            let _ = writeln!(text, "  copies sent: {}, not sent: {not_sent}", sent.packets);
        }
        text
    }
}

fn direction(direction: pb::Direction) -> &'static str {
    match direction {
        pb::Direction::Forward => "forward",
        pb::Direction::Return => "return",
        pb::Direction::Unspecified => "both",
    }
}

impl From<pb::SwitchState> for Switch {
    fn from(state: pb::SwitchState) -> Self {
        let phase = match state.phase() {
            pb::SwitchPhase::Lost => "lost",
            pb::SwitchPhase::Taken => "taken",
            pb::SwitchPhase::Restoring => "restoring",
            pb::SwitchPhase::Ready => "ready",
            pb::SwitchPhase::Unspecified => "unspecified",
        };
        let count = |c: pb::SwitchCount| SwitchCount {
            fate: c.fate,
            forward: c.forward_count.into(),
            r#return: c.return_count.into(),
        };
        let gate =
            |gate: pb::Gate| Gate { direction: direction(gate.direction()), client: gate.client };
        let port = |port: pb::SwitchPort| SwitchPort {
            port: port.port,
            leads_to: if port.to_hosts { "hosts" } else { "box" },
            given: port.given.into(),
            sent: port.sent.into(),
        };
        let times = |times: Option<pb::TimeHistogram>| {
            times.map(|t| Times { bounds: t.bounds_ns, counts: t.counts })
        };
        Self {
            phase,
            message: state.message,
            address: state.address,
            target: state.target,
            stages: state.stages.into_iter().map(Stage::from).collect(),
            clients: state.clients,
            entries: state.entries,
            restored_ns: state.restored_ns,
            counts: state.counts.into_iter().map(count).collect(),
            forward_transit_ns: times(state.forward_transit),
            return_transit_ns: times(state.return_transit),
            forward_excess_ns: times(state.forward_excess),
            return_excess_ns: times(state.return_excess),
            early: state.early,
            gates: state.gates.into_iter().map(gate).collect(),
            ports: state.ports.into_iter().map(port).collect(),
            mirror: state.mirror.map(Mirror::from),
            program: state.program,
            wires: state.wires.into_iter().map(Wire::from).collect(),
        }
    }
}

impl From<pb::SwitchWire> for Wire {
    fn from(wire: pb::SwitchWire) -> Self {
        let (from, to) = if wire.to_box { ("switch", "box") } else { ("box", "switch") };
        let pb::SwitchWire { port, left, arrived, missing, .. } = wire;
        Self { from, to, port, left, arrived, missing }
    }
}

impl From<pb::Stage> for Stage {
    fn from(stage: pb::Stage) -> Self {
        let place = match stage.place() {
            pb::StagePlace::Switch => "switch",
            pb::StagePlace::Dataplane => "dataplane",
            pb::StagePlace::Unspecified => "unspecified",
        };
        let direction = direction(stage.direction());
        Self { name: stage.name, direction, place, reason: stage.reason }
    }
}

impl Switch {
    /// Frames of a fate, forward and return.
    #[must_use]
    pub fn count(&self, fate: &str) -> (Count, Count) {
        let found = self.counts.iter().find(|count| count.fate == fate);
        found.map_or_else(Default::default, |count| (count.forward, count.r#return))
    }

    /// All of it, for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{} ({}): {}", self.address, self.target, self.phase);
        if !self.message.is_empty() {
            let _ = write!(text, ", {}", self.message);
        }
        let restored = match self.restored_ns {
            0 => "not restored yet".to_owned(),
            ns => format!("restored in {}", time(ns)),
        };
        let _ = writeln!(
            text,
            "\n{}, {}, {restored}",
            counted(self.entries, "entry", "entries"),
            counted(self.clients, "client", "clients")
        );
        if !self.program.is_empty() {
            let _ = writeln!(text, "program {}", self.program);
        }
        for gate in &self.gates {
            let of = if gate.client.is_empty() { "all clients" } else { &gate.client };
            let _ = writeln!(text, "closed gate: {of}, {}", gate.direction);
        }
        text.extend(self.mirror.iter().map(Mirror::lines));
        let mut counts = numbers(["FRAMES", "FORWARD", "RETURN"], 1);
        for SwitchCount { fate, forward, r#return } in &self.counts {
            counts.add_row([
                fate.clone(),
                forward.packets.to_string(),
                r#return.packets.to_string(),
            ]);
        }
        let _ = writeln!(text, "\n{}", counts.trim_fmt());
        if !self.ports.is_empty() {
            let mut ports = numbers(["PORT", "TO", "GIVEN", "SENT", "NOT SENT"], 2);
            for SwitchPort { port, leads_to, given, sent } in &self.ports {
                let missing = given.packets.saturating_sub(sent.packets);
                let counts = [given.packets, sent.packets, missing].map(|n| n.to_string());
                let cells = [port.to_string(), (*leads_to).to_owned()];
                ports.add_row(cells.into_iter().chain(counts));
            }
            let _ = writeln!(text, "\n{}", ports.trim_fmt());
        }
        for (title, times) in [
            ("forward, from a host to its way back from the box", &self.forward_transit_ns),
            ("return, from a host to its way back from the box", &self.return_transit_ns),
            ("forward, more than the emulator meant to keep it", &self.forward_excess_ns),
            ("return, more than the emulator meant to keep it", &self.return_excess_ns),
        ] {
            if let Some(bars) = times.as_ref().and_then(Times::bars) {
                let _ = write!(text, "\n{title}:\n{bars}");
            }
        }
        let _ = writeln!(text, "\nsooner than meant: {}", counted(self.early, "frame", "frames"));
        if !self.wires.is_empty() {
            let _ = writeln!(text, "\nwires:");
        }
        for Wire { from, to, port, left, arrived, missing } in &self.wires {
            let _ = writeln!(
                text,
                "  {from} to {to}, port {port}: {left} left, {arrived} arrived, {missing} missing"
            );
        }
        text
    }
}

impl Times {
    /// A bar for each bucket from the first that has any to the last; none if none has.
    #[must_use]
    pub fn bars(&self) -> Option<String> {
        let first = self.counts.iter().position(|count| *count > 0)?;
        let last = self.counts.iter().rposition(|count| *count > 0)?;
        let most = self.counts.iter().copied().max()?.max(1);
        let mut text = String::new();
        for (n, count) in self.counts.iter().enumerate().take(last + 1).skip(first) {
            let label = match (self.bounds.get(n), self.bounds.last()) {
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
pub fn stages(stages: &[Stage]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for Stage { name, direction, place, reason } in stages {
        table.add_row([name, *direction, *place, reason]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(bounds: &[u64], counts: &[u64]) -> Times {
        Times { bounds: bounds.into(), counts: counts.into() }
    }

    #[test]
    fn bars_are_proportional_and_nonzero_counts_visible() {
        let bars = times(&[1_000, 2_000, 4_000], &[0, 1, 1_000_000, 0]).bars().unwrap();
        let lines: Vec<_> = bars.lines().collect();
        assert_eq!(lines.len(), 2, "{bars}");
        assert_eq!(lines[0].matches('#').count(), 1);
        assert_eq!(lines[1].matches('#').count(), 40);
        assert!(lines[0].starts_with("  <= 2.0 µs "), "{bars}");
    }

    #[test]
    fn the_last_bucket_has_no_bound_and_hostile_histograms_are_shown() {
        let bars = times(&[1_000], &[0, 7]).bars().unwrap();
        assert!(bars.starts_with("  > 1.0 µs") || bars.starts_with("   > 1.0 µs"), "{bars}");
        assert_eq!(times(&[], &[]).bars(), None);
        assert_eq!(times(&[1], &[0, 0]).bars(), None);
        assert!(times(&[], &[u64::MAX, u64::MAX]).bars().is_some());
    }

    #[test]
    fn frames_that_a_port_did_not_send_are_shown() {
        let count = |packets| Some(pb::Count { packets, bytes: 0 });
        let port = |port, given, sent| {
            let (given, sent) = (count(given), count(sent));
            pb::SwitchPort { port, to_hosts: port > 1, given, sent }
        };
        let ports = vec![port(1, 40, 40), port(3, 100, 70)];
        let text = Switch::from(pb::SwitchState { ports, ..Default::default() }).table();
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
        let switch = Switch::from(state);
        let text = switch.table();
        let lines = "mirror: alice, 10.0.0.2, forward, at hosts, to port 6\n  copied at hosts: 9 \
                     forward, 3 return\n  copies sent: 10, not sent: 2\n";
        assert!(text.contains(lines), "{text}");
        let json = serde_json::to_value(&switch).unwrap();
        assert_eq!(json["mirror"]["not_sent"], 2);
        assert_eq!(json["mirror"]["to_hosts"]["return"]["packets"], 3);
        let idle = pb::SwitchMirror { port: 6, ..Default::default() };
        let idle = pb::SwitchState { mirror: Some(idle), ..Default::default() };
        let text = Switch::from(idle).table();
        assert!(text.contains("mirror: no clients, to port 6\n"), "{text}");
    }

    #[test]
    fn keys_are_in_snake_case_and_unknown_values_have_a_name() {
        let stage = pb::Stage { name: "loss".into(), direction: 1, place: 2, reason: "r".into() };
        let state = pb::SwitchState { phase: 99, stages: vec![stage], ..Default::default() };
        let json = serde_json::to_value(Switch::from(state)).unwrap();
        assert_eq!(json["phase"], "unspecified");
        assert_eq!(json["forward_transit_ns"], serde_json::Value::Null);
        assert_eq!(
            json["stages"][0],
            serde_json::json!({
                "name": "loss", "direction": "forward", "place": "switch", "reason": "r",
            })
        );
    }
}
