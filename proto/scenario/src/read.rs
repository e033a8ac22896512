// SPDX-License-Identifier: Apache-2.0
//! Parses a scenario from TOML: its keys, their meaning, and the rules for all of them. Parsing
//! continues after an error, so that all errors are reported together.

use crate::Scenario;
use crate::limits::*;
use crate::parts::Parts;
use crate::ramp::{KNOBS, Knob, Law, Quantity, Ramp};
use crate::step::{Action, Extent, Links, Step, Wait, What, When, event_name, extent, links};
use profile::reading::{Node, Reader, describe};
use profile::{
    DELAY_BASE_NS, DELAY_SLOT_NS, NAME_CHARS, PIPE_RATE_BPS, Part, QUEUE_LIMIT_BYTES, Rate,
    TEXT_BYTES, UnitError, Violations, format_duration, nearest, parse_duration, parse_probability,
    parse_rate, parse_size,
};
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use toml::de::DeValue;

/// The kinds of steps.
const WHATS: [&str; 7] = ["profile", "forward", "return", "both", "ramp", "repeat", "wait"];

/// Reads and checks a scenario.
pub(crate) fn scenario(text: &str) -> Result<Scenario, Violations> {
    let mut reader = Reader::new(text);
    let document = reader.document(FILE_BYTES, "scenario")?;
    let node = Node { path: String::new(), span: document.span(), table: document.get_ref() };
    reader.known(&node, &["name", "description", "source", "step"]);
    let [name, description, source] =
        ["name", "description", "source"].map(|key| reader.text(&node, key));
    reader.present(&node, "step", "[[step]]");
    let step = reader.tables(&node, "step", read_step);
    let mut found = Violations::default();
    check_name(&mut found, &name);
    for (path, text) in [("description", &description), ("source", &source)] {
        check_text(&mut found, path, text, TEXT_BYTES);
    }
    check_steps(&mut found, "", &step, true);
    check_links(&mut found, &step);
    let extent = extent(&step);
    check_extent(&mut found, &step, extent);
    reader.merge(found);
    let found = reader.into_found();
    found.into_result()?;
    let (text, step) = (text.to_owned(), step.into());
    Ok(Scenario { name, description, source, text, step, extent })
}

/// Whether a name begins with a letter or digit, and goes on with letters, digits and `-_.`.
fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn check_name(found: &mut Violations, name: &str) {
    if name.is_empty() {
        found.push("name", "missing: give the scenario a name, such as \"my-scenario\"");
    } else if name.chars().count() > NAME_CHARS {
        found.push("name", format!("longer than {NAME_CHARS} characters: shorten it"));
    } else if !is_plain(name) {
        let message = format!(
            "{name:?} is not a name: begin with a letter or digit, go on with letters, digits and \
             -_."
        );
        found.push("name", message);
    }
}

fn check_text(found: &mut Violations, path: &str, text: &str, bytes: usize) {
    if text.len() > bytes {
        found.push(path, format!("{} bytes are more than {bytes}: shorten it", text.len()));
    }
    if let Some(c) = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        found.push(path, format!("holds the control character {c:?}: take it out"));
    }
}

/// Checks the order of steps in time, and where they may stand.
fn check_steps(found: &mut Violations, path: &str, steps: &[Step], outermost: bool) {
    let mut before = extent(&[]);
    for (i, step) in steps.iter().enumerate() {
        let path = format!("{path}step[{i}]");
        if let (When::At(at), Some(end)) = (step.when, before.length_ns)
            && at < end
        {
            let message = format!(
                "{} is before the end of the step before it, {}: write a later instant, or after",
                format_duration(at),
                format_duration(end)
            );
            found.push(format!("{path}.at"), message);
        }
        if let What::Repeat { times, step } = &step.what {
            check_steps(found, &format!("{path}."), step, false);
            if times.is_none() {
                check_endless(found, &path, step, outermost && i + 1 == steps.len());
            }
        }
        before = before.with(step);
    }
}

fn check_links(found: &mut Violations, steps: &[Step]) {
    let count = links(steps).len();
    if count > LINKS {
        found.push("step", format!("{count} other links are more than {LINKS}: change fewer"));
    }
}

fn check_endless(found: &mut Violations, path: &str, steps: &[Step], last: bool) {
    if !last {
        let message = "\"forever\" ends never, and something comes after it: write how often, or \
                       put it at the end";
        found.push(format!("{path}.repeat"), message);
    }
    if let Some(length) = extent(steps).length_ns.filter(|length| *length < PASS_NS) {
        let message = format!(
            "a pass of {} is too short to be repeated forever: make it {} or more, with a last \
             step that has only after",
            format_duration(length),
            format_duration(PASS_NS)
        );
        found.push(format!("{path}.repeat"), message);
    }
}

fn check_extent(found: &mut Violations, steps: &[Step], whole: Extent) {
    // Without an end: up to the end of the first pass.
    let once = |last: &Step, before: &[Step]| match &last.what {
        What::Repeat { times: None, step } => {
            let (before, pass) = (extent(before), extent(step));
            let add = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
            Some(Extent {
                steps: add(before.steps, pass.steps),
                length_ns: add(before.length_ns, pass.length_ns),
            })
        }
        _ => None,
    };
    let Extent { steps: count, length_ns } =
        steps.split_last().and_then(|(last, before)| once(last, before)).unwrap_or(whole);
    match count {
        Some(0) => found.push("step", "there is none: write [[step]] for each"),
        Some(n) if n > STEPS => {
            let message = format!("{n} steps, all repetitions counted, are more than {STEPS}: ");
            found.push("step", message + "repeat less often, or ramp in fewer steps");
        }
        _ => {}
    }
    if let Some(length) = length_ns.filter(|length| *length > LENGTH_NS) {
        let (length, most) = (format_duration(length), format_duration(LENGTH_NS));
        found.push("step", format!("{length} is longer than {most}: shorten it"));
    }
}

fn read_step<'a>(reader: &mut Reader<'_>, node: &Node<'a>) -> Step {
    const KEYS: [&str; 12] = [
        "at", "after", "label", "profile", "forward", "return", "both", "ramp", "repeat", "step",
        "wait", "links",
    ];
    reader.known(node, &KEYS);
    let has = |key: &str| node.table.contains_key(key);
    if has("at") && has("after") {
        fail(reader, node, "after", "at is given as well: write one of both");
    }
    let at = reader.quantity(node, "at", parse_duration, "10 s");
    let after = reader.quantity(node, "after", parse_duration, "10 s");
    let when = at.map_or(When::After(after.unwrap_or(0)), When::At);
    let label = if has("label") { reader.text(node, "label") } else { String::new() };
    let mut found = Violations::default();
    check_text(&mut found, &node.at("label"), &label, 4 * LABEL_CHARS);
    if label.chars().count() > LABEL_CHARS || label.contains(['\n', '\t']) {
        found.push(node.at("label"), format!("write one line of at most {LABEL_CHARS} characters"));
    }
    reader.merge(found);
    let given: Vec<_> = WHATS.into_iter().filter(|key| has(key)).collect();
    if has("step") && !has("repeat") {
        fail(
            reader,
            node,
            "step",
            "steps within a step are repeated: write repeat = 10 beside them",
        );
    }
    if given.is_empty() && !KEYS.iter().any(|key| has(key)) {
        let message = format!("an empty step: write some of {}", KEYS.join(", "));
        reader.fail(&node.path, node.span.clone(), message);
    }
    let what = match given[..] {
        [] => What::One(Action::Mark),
        ["profile"] | ["forward"] | ["return"] | ["both"] | ["forward", "return"] => {
            What::One(read_change(reader, node, &given))
        }
        ["ramp"] => reader
            .table(node, "ramp")
            .map_or(What::One(Action::Mark), |node| What::Ramp(Arc::new(read_ramp(reader, &node)))),
        ["wait"] => {
            let node = reader.table(node, "wait");
            What::One(node.map_or(Action::Mark, |node| Action::Wait(read_wait(reader, &node))))
        }
        ["repeat"] => {
            if !label.is_empty() {
                fail(reader, node, "label", "a repetition has no label: label the steps in it");
            }
            read_repeat(reader, node)
        }
        [first, second, ..] => {
            let message =
                format!("{first} is given as well: write a step for each, the second at once");
            fail(reader, node, second, message);
            What::One(Action::Mark)
        }
        [_] => What::One(Action::Mark),
    };
    if has("links")
        && !matches!(what, What::One(Action::Mark | Action::Profile(_) | Action::Patch(_)))
    {
        let message =
            "stands beside a profile or values only: write a step of its own for the links";
        fail(reader, node, "links", message);
    }
    let links = if has("links") { read_links(reader, node) } else { Links::default() };
    Step { when, label, what, links }
}

/// Reads a profile, or values of one or both directions.
fn read_change(reader: &mut Reader<'_>, node: &Node<'_>, given: &[&str]) -> Action {
    if given.contains(&"profile") {
        let name = reader.text(node, "profile");
        if name.is_empty() {
            fail(reader, node, "profile", "write a profile's name, such as \"viasat2\"");
        }
        return Action::Profile(name);
    }
    let part = |reader: &mut Reader<'_>, key: &str| -> Option<Part> {
        reader.table(node, key).map(|node| reader.part(&node))
    };
    let both = part(reader, "both");
    let forward = part(reader, "forward").or_else(|| both.clone());
    let back = part(reader, "return").or(both);
    Action::Patch(Arc::new(Parts { forward, back }))
}

/// Reads the changes of other links, by the name of the link.
fn read_links(reader: &mut Reader<'_>, node: &Node<'_>) -> Links {
    const CHANGES: [&str; 4] = ["profile", "forward", "return", "both"];
    let Some(links) = reader.table(node, "links") else { return Links::default() };
    let mut read = BTreeMap::new();
    for key in links.table.keys() {
        let name: &str = key.get_ref();
        if !is_plain(name) || name.len() > LINK_CHARS {
            let message = format!(
                "{name:?} is no link's name: write 1 to {LINK_CHARS} letters, digits and -_., the first a letter or digit"
            );
            reader.fail(&links.at(name), links.span.clone(), message);
            continue;
        }
        let Some(link) = reader.table(&links, name) else { continue };
        reader.known(&link, &CHANGES);
        let given: Vec<_> =
            CHANGES.into_iter().filter(|key| link.table.contains_key(*key)).collect();
        match given[..] {
            ["profile"] | ["forward"] | ["return"] | ["both"] | ["forward", "return"] => {
                read.insert(name.to_owned(), read_change(reader, &link, &given));
            }
            [first, second, ..] => {
                fail(reader, &link, second, format!("{first} is given as well: write one of both"));
            }
            _ => {
                let message =
                    "changes nothing: write a profile, or values of forward, return or both";
                reader.fail(&link.path, link.span.clone(), message.to_owned());
            }
        }
    }
    Arc::new(read)
}

fn read_repeat<'a>(reader: &mut Reader<'_>, node: &Node<'a>) -> What {
    let nothing = What::One(Action::Mark);
    let Some(item) = reader.value(node, "repeat") else { return nothing };
    let times = match item.value.get_ref() {
        DeValue::String(text) if text == "forever" => None,
        DeValue::Integer(number) if number.radix() == 10 => {
            Some(number.as_str().replace('_', "").parse::<u64>().unwrap_or(0))
        }
        _ => Some(0),
    };
    if times.is_some_and(|times| !(1..=STEPS).contains(&times)) {
        let given = describe(item.value.get_ref());
        let message = format!("{given} is no number of times: write 1 to {STEPS}, or \"forever\"");
        reader.fail(&item.path, item.value.span(), message);
        return nothing;
    }
    if node.path.matches("step[").count() > NESTING {
        let message = format!("repetitions more than {NESTING} deep: write them side by side");
        reader.fail(&item.path, item.value.span(), message);
        return nothing;
    }
    reader.present(node, "step", "[[… .step]] below");
    let step: Vec<Step> = reader.tables(node, "step", read_step);
    if step.is_empty() {
        if node.table.contains_key("step") {
            let message = "repeats no steps: write some".to_owned();
            reader.fail(&node.at("step"), node.span.clone(), message);
        }
        return nothing;
    }
    What::Repeat { times, step: step.into() }
}

/// Reports a key's value, or its table if it is not there.
fn fail(reader: &mut Reader<'_>, node: &Node<'_>, key: &str, message: impl Into<String>) {
    let span = node.table.get(key).map_or(node.span.clone(), |value| value.span());
    reader.fail(&node.at(key), span, message.into());
}

/// One of some words; the first if it is not there.
fn word<T: Copy>(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    key: &str,
    words: &[(&str, T)],
) -> Option<T> {
    let given = node.table.contains_key(key).then(|| reader.text(node, key));
    let Some(given) = given else { return words.first().map(|(_, value)| *value) };
    let found = words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value);
    if found.is_none() {
        let all: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let remedy = match nearest(&given, words.iter().map(|(word, _)| *word)) {
            Some(near) => format!("the nearest is {near:?}"),
            None => format!("write one of {}", all.join(", ")),
        };
        let given: String = given.chars().take(64).collect();
        fail(reader, node, key, format!("{given:?} is none of its words: {remedy}"));
    }
    found
}

fn within<T: PartialOrd + Copy, S: Display>(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    key: &str,
    value: T,
    range: &RangeInclusive<T>,
    show: impl Fn(T) -> S,
) {
    if !range.contains(&value) {
        let (min, max) = (show(*range.start()), show(*range.end()));
        let message = format!("{} is outside of {min} to {max}: write one within", show(value));
        fail(reader, node, key, message);
    }
}

fn read_ramp(reader: &mut Reader<'_>, node: &Node<'_>) -> Ramp {
    reader.known(node, &["value", "direction", "from", "to", "over", "steps", "every", "law"]);
    reader.present(node, "value", "\"rate\"");
    let knob = word(reader, node, "value", &KNOBS).unwrap_or(Knob::Rate);
    let ways = [("both", (true, true)), ("forward", (true, false)), ("return", (false, true))];
    let (forward, back) = word(reader, node, "direction", &ways).unwrap_or((true, true));
    let laws = [("linear", Law::Linear), ("exponential", Law::Exponential)];
    let law = word(reader, node, "law", &laws).unwrap_or(Law::Linear);
    let from = read_quantity(reader, node, "from", knob);
    reader.present(node, "to", "the value at the end");
    let to = read_quantity(reader, node, "to", knob);
    if law == Law::Exponential {
        for (key, value) in [("from", from), ("to", to)] {
            if value.is_some_and(Quantity::is_zero) {
                let message = "zero, which an exponential ramp never meets: make it linear";
                fail(reader, node, key, message);
            }
        }
    }
    let over_ns = reader.time(node, "over", "10 s");
    if node.table.contains_key("over") {
        let over = *EVERY_NS.start()..=LENGTH_NS;
        within(reader, node, "over", over_ns, &over, format_duration);
    }
    let (steps, every_ns) = read_pace(reader, node, over_ns);
    let to = to.unwrap_or(Quantity::Whole(0));
    Ramp { knob, forward, back, from, to, over_ns, steps, every_ns, law }
}

/// Into how many steps a ramp is divided, and their distance if it is given.
fn read_pace(reader: &mut Reader<'_>, node: &Node<'_>, over_ns: u64) -> (u64, Option<u64>) {
    let every = reader.quantity(node, "every", parse_duration, "100 ms");
    let has = |key: &str| node.table.contains_key(key);
    let between = match (has("steps"), has("every")) {
        (true, false) => {
            let steps = reader.count(node, "steps");
            within(reader, node, "steps", steps, &(1..=STEPS), |n| n);
            let steps = steps.clamp(1, STEPS);
            let least = *EVERY_NS.start();
            if over_ns > 0 && over_ns / steps < least {
                let (over, least) = (format_duration(over_ns), format_duration(least));
                let message =
                    format!("{steps} steps in {over} are less than {least} apart: write fewer");
                fail(reader, node, "steps", message);
            }
            return (steps, None);
        }
        (false, true) => every.unwrap_or(*EVERY_NS.end()),
        (both, _) => {
            let key = if both { "every" } else { "steps" };
            fail(reader, node, key, "write one of steps = 100 and every = \"100 ms\"");
            *EVERY_NS.end()
        }
    };
    within(reader, node, "every", between, &EVERY_NS, format_duration);
    let between = between.clamp(*EVERY_NS.start(), *EVERY_NS.end());
    (over_ns.div_ceil(between).max(1), Some(between))
}

fn read_quantity(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    key: &str,
    knob: Knob,
) -> Option<Quantity> {
    type Parse = fn(&str) -> Result<u64, UnitError>;
    let (parse, example, range): (Parse, _, &RangeInclusive<u64>) = match knob {
        Knob::Loss => {
            return reader.quantity(node, key, parse_probability, "1 %").map(Quantity::Share);
        }
        Knob::Rate => {
            let rate = reader.quantity(node, key, parse_rate, "72 Mbit/s")?;
            let Some(bps) = rate.bps() else {
                fail(reader, node, key, "\"unlimited\" is no value of a ramp: write a rate");
                return None;
            };
            if bps != 0 {
                let show = |bps| Rate::from_bps(Some(bps)).to_string();
                within(reader, node, key, bps, &PIPE_RATE_BPS, show);
            }
            return Some(Quantity::Whole(bps));
        }
        Knob::Delay => (parse_duration, "300 ms", &DELAY_BASE_NS),
        Knob::Slot => (parse_duration, "43 ms", &DELAY_SLOT_NS),
        Knob::Queue => (parse_size, "36 MB", &QUEUE_LIMIT_BYTES),
    };
    let value = reader.quantity(node, key, parse, example)?;
    within(reader, node, key, value, range, |value| knob.show(Quantity::Whole(value)));
    Some(Quantity::Whole(value))
}

/// The events that can be waited for: not the scenario's own.
fn events() -> Vec<(String, pb::EventKind)> {
    (1..64)
        .filter_map(|kind| pb::EventKind::try_from(kind).ok())
        .map(|kind| (event_name(kind), kind))
        .filter(|(name, _)| !name.starts_with("scenario_"))
        .collect()
}

fn read_wait(reader: &mut Reader<'_>, node: &Node<'_>) -> Wait {
    reader.known(node, &["event", "subject", "timeout", "on_timeout"]);
    let events = events();
    let words: Vec<_> = events.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
    reader.present(node, "event", "\"link_changed\"");
    let event = word(reader, node, "event", &words).unwrap_or_default();
    let subject = match node.table.contains_key("subject") {
        true => reader.text(node, "subject"),
        false => String::new(),
    };
    if subject.chars().count() > 4 * LABEL_CHARS {
        let message = format!("longer than {} characters: shorten it", 4 * LABEL_CHARS);
        reader.fail(&node.at("subject"), node.span.clone(), message);
    }
    let timeout_ns = reader.time(node, "timeout", "1 min");
    if node.table.contains_key("timeout") {
        within(reader, node, "timeout", timeout_ns, &TIMEOUT_NS, format_duration);
    }
    let ends = [("stop", false), ("go_on", true)];
    let go_on = word(reader, node, "on_timeout", &ends).unwrap_or(false);
    Wait { event, subject, timeout_ns, go_on }
}
