// SPDX-License-Identifier: Apache-2.0
//! Validation rules of profiles from all sources.
//!
//! Messages are untrusted: any field may be absent, not a number or out of range. All broken rules
//! are reported, each with the TOML path of its field. The schema has the rules of single
//! parameters; the rules here concern several.

mod access;
mod cross;
mod loss;
mod mtu;
mod path_trace;
mod provenance;
mod queue;
#[cfg(test)]
mod tests;
mod vary;

use crate::limits::*;
use crate::rate_file::opportunity_runs;
use crate::schema::{Field, Kind, Table, compare, either};
use crate::{PATCHED, Violations, format_duration};
use prost_reflect::{DynamicMessage, Value};
use proto::linkemu::v1 as pb;
use std::cmp::Ordering;
use units::{Quantity, shown};

/// Maximum number of reported faults per list.
const FAULTS: usize = 8;

/// Validates a profile.
///
/// # Errors
/// All broken rules.
pub fn validate(profile: &pb::Profile) -> Result<(), Violations> {
    let mut found = Violations::default();
    name(&mut found, &profile.name);
    group(&mut found, &profile.group);
    let table = Table::named("Profile");
    let light = pb::Profile {
        forward_pipe: profile.forward_pipe.as_ref().map(without_values),
        return_pipe: profile.return_pipe.as_ref().map(without_values),
        ..profile.clone()
    };
    check(&mut found, "", table, &table.reflect(&light));
    for (path, pipe) in [("forward", &profile.forward_pipe), ("return", &profile.return_pipe)] {
        if let Some(pipe) = pipe {
            check_pipe(&mut found, path, pipe);
        }
    }
    if let Some(it) = &profile.provenance {
        provenance::check(&mut found, "provenance", it);
    }
    found.into_result()
}

/// Validates one pipe. `path` is the prefix of its field paths.
///
/// # Errors
/// All broken rules.
pub fn validate_pipe(path: &str, pipe: &pb::Pipe) -> Result<(), Violations> {
    let mut found = Violations::default();
    let table = Table::named("Pipe");
    check(&mut found, path, table, &table.reflect(&without_values(pipe)));
    check_pipe(&mut found, path, pipe);
    found.into_result()
}

/// A copy of the pipe with its long lists shortened to their minimum. With reflection a value takes
/// several times its size, so [`values`] checks those lists without it.
fn without_values(pipe: &pb::Pipe) -> pb::Pipe {
    let mut light = pipe.clone();
    if let Some(trace) = &mut light.rate_trace {
        if let Some(opportunities) = &mut trace.opportunities {
            opportunities.runs =
                vec![*OPPORTUNITIES_RUNS.start(); *OPPORTUNITIES_RUNS_ITEMS.start()];
        }
        // Without opportunities, [`values`] reports a list that is too short.
        if trace.opportunities.is_none() || !trace.rates_bps.is_empty() {
            let least = *RATE_TRACE_RATES_BPS_ITEMS.start();
            trace.rates_bps = vec![*RATE_TRACE_RATES_BPS.start(); least];
        }
    }
    if let Some(body) = light.delay.as_mut().and_then(|delay| delay.body.as_mut()) {
        let least = *BODY_QUANTILES_NS_ITEMS.start();
        body.quantiles_ns = vec![*BODY_QUANTILES_NS.start(); least];
    }
    if let Some(trace) = &mut light.path_trace {
        (trace.delays_ns, trace.losses) = (Vec::new(), Vec::new());
    }
    light
}

/// Checks the values of a long list.
fn values(found: &mut Violations, path: &str, message: &str, field: &str, values: &[u64]) {
    let Some(field) = Table::named(message).field(field) else { return };
    length(found, path, field, values.len());
    let most = field.parameter.max_items as usize;
    let faults = values.iter().take(most).enumerate().filter_map(|(i, value)| {
        let message = fault(field, &Value::U64(*value))?;
        Some((format!("{path}[{i}]"), message))
    });
    for (path, message) in faults.take(FAULTS) {
        found.push(path, message);
    }
}

/// Checks the length of a list.
fn length(found: &mut Violations, path: &str, field: &Field, count: usize) {
    let (least, most) = (field.parameter.min_items as usize, field.parameter.max_items as usize);
    if count < least {
        let message = format!("a list of {count} is too short: write {least} to {most} values");
        found.push(path, message);
    } else if most > 0 && count > most {
        let message = match field.kind {
            Kind::Table => format!("{count} entries are more than {most}: merge some"),
            _ => format!("a list of {count} is too long: write {least} to {most} values"),
        };
        found.push(path, message);
    }
}

/// Checks each field of a table against the schema.
fn check(found: &mut Violations, path: &str, table: &Table, message: &DynamicMessage) {
    let at = |field: &Field| {
        if path.is_empty() { field.key.clone() } else { format!("{path}.{}", field.key) }
    };
    for field in &table.fields {
        let value = message.get_field(&field.descriptor);
        match (value.as_list(), field.table(), field.is_given(message)) {
            // The other member of its choice is given.
            (Some([]), ..) if table.alternatives(field).any(|it| it.is_given(message)) => {}
            (Some(items), inner, _) => list(found, &at(field), field, inner, items),
            (None, Some(inner), true) => {
                if let Some(message) = value.as_message() {
                    check(found, &at(field), inner, message);
                }
            }
            (None, Some(_), false) if field.parameter.required => {
                let message = match field.parameter.example.as_str() {
                    "" => "missing: describe both directions, forward and return".to_owned(),
                    example => format!("missing: give {example} or the like"),
                };
                found.push(at(field), message);
            }
            (None, Some(_), false) => {}
            // An absent field has no value to check.
            (None, None, false) if field.descriptor.supports_presence() => {}
            (None, None, _) => {
                if let Some(message) = fault(field, &value) {
                    found.push(at(field), message);
                }
            }
        }
    }
    choices(found, &at, table, message);
}

/// Checks that at most one member of each choice is given; the first one stays.
fn choices(
    found: &mut Violations,
    at: &dyn Fn(&Field) -> String,
    table: &Table,
    message: &DynamicMessage,
) {
    let given = || table.fields.iter().filter(|field| field.is_given(message));
    for other in given().filter(|field| !field.parameter.choice.is_empty()) {
        let mut alike = given().filter(|it| it.parameter.choice == other.parameter.choice);
        if let Some(first) = alike.next().filter(|first| first.key != other.key) {
            let message = format!("{} is given as well: leave out one of both", first.key);
            found.push(at(other), message);
        }
    }
}

/// Checks the items of a list. Only the first [`FAULTS`] are reported, because long lists may be
/// wrong throughout.
fn list(
    found: &mut Violations,
    path: &str,
    field: &Field,
    inner: Option<&'static Table>,
    items: &[Value],
) {
    let (count, most) = (items.len(), field.parameter.max_items as usize);
    length(found, path, field, count);
    let enough = found.len() + FAULTS;
    let taken = if most > 0 { most } else { count };
    for (i, item) in items.iter().take(taken).enumerate() {
        if found.len() >= enough {
            return;
        }
        if let (Some(inner), Some(message)) = (inner, item.as_message()) {
            check(found, &format!("{path}[{i}]"), inner, message);
        } else if let Some(message) = fault(field, item) {
            found.push(format!("{path}[{i}]"), message);
        }
    }
}

/// The fault of a value, if any.
fn fault(field: &Field, value: &Value) -> Option<String> {
    match field.kind {
        Kind::Text => text(value.as_str().unwrap_or_default()),
        Kind::Word if field.word(value).is_none() => {
            let number = value.as_enum_number().unwrap_or_default();
            let words = either(&field.words());
            if number != 0 {
                Some(format!("{number} is no {}: write {words}", field.title()))
            } else {
                field.parameter.required.then(|| format!("missing: write {words}"))
            }
        }
        // Zero means down.
        Kind::Quantity(Quantity::Rate) if *value == Value::U64(0) => None,
        _ => outside(field, value),
    }
}

/// The message for a value outside of its range.
fn outside(field: &Field, value: &Value) -> Option<String> {
    let (least, most) = field.range.as_ref()?;
    let order = (compare(value, least), compare(value, most));
    if let (Some(Ordering::Greater | Ordering::Equal), Some(Ordering::Less | Ordering::Equal)) =
        order
    {
        return None;
    }
    let [given, min, max] = [value, least, most].map(|value| field.format(value));
    Some(match order {
        (Some(Ordering::Less), _) => format!("{given} is below {min}: write {min} to {max}"),
        (_, Some(_)) => format!("{given} is above {max}: write {min} to {max}"),
        _ => format!("{given} is not a number: write {min} to {max}"),
    })
}

fn name(found: &mut Violations, name: &str) {
    // Reported as the fault of a text.
    if text(name).is_some() {
        return;
    }
    let plain = name.strip_suffix(PATCHED).unwrap_or(name);
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if plain.is_empty() {
        found.push("name", "missing: give the profile a name, such as \"my-link\"");
    } else if plain.chars().count() > NAME_CHARS {
        let message =
            format!("{:?} is longer than {NAME_CHARS} characters: shorten it", shown(name));
        found.push("name", message);
    } else if !plain.chars().all(allowed) || !plain.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        let message = format!(
            "{name:?} is not a name: begin with a letter or digit, go on with letters, digits and -_."
        );
        found.push("name", message);
    }
}

fn group(found: &mut Violations, group: &str) {
    if group.chars().count() > NAME_CHARS {
        let message =
            format!("{:?} is longer than {NAME_CHARS} characters: shorten it", shown(group));
        found.push("group", message);
    }
    if let Some(c) = group.chars().find(|c| matches!(c, '\n' | '\t')) {
        found.push("group", format!("holds the control character {c:?}: take it out"));
    }
}

/// The fault of a text, if any.
fn text(text: &str) -> Option<String> {
    if text.len() > TEXT_BYTES {
        return Some(format!("{} bytes are more than {TEXT_BYTES}: shorten it", text.len()));
    }
    let control = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'))?;
    Some(format!("holds the control character {control:?}: take it out"))
}

fn check_pipe(found: &mut Violations, path: &str, pipe: &pb::Pipe) {
    let at = |field: &str| format!("{path}.{field}");
    if let Some(trace) = &pipe.rate_trace {
        match &trace.opportunities {
            Some(it) => {
                opportunities(found, &at("rate_trace.opportunities.runs"), &it.runs);
                if trace.begin_ns > 0 {
                    let message = "is for rates: opportunities begin when the profile is set";
                    found.push(at("rate_trace.begin"), message);
                }
            }
            None => {
                values(found, &at("rate_trace.rates"), "RateTrace", "rates_bps", &trace.rates_bps)
            }
        }
    }
    if let Some(trace) = &pipe.rate_trace
        && !trace.rates_bps.is_empty()
        && trace.rates_bps.iter().all(|bps| *bps == 0)
        // Else it may be a part of a longer one.
        && trace.begin_ns == 0
    {
        let message = "every step is down: write rate = \"down\" instead, or a rate in some step";
        found.push(at("rate_trace.rates"), message);
    }
    loss::check(found, path, pipe);
    if let Some(it) = &pipe.mtu {
        mtu::check(found, &at("mtu"), it);
    }
    if let Some(queue) = &pipe.queue {
        queue::check(found, &at("queue"), queue);
    }
    if let Some(it) = &pipe.access {
        access::check(found, path, it, pipe);
    }
    if let Some(it) = &pipe.cross_traffic {
        cross::check(found, &at("cross_traffic"), it, pipe);
    }
    if let Some(it) = &pipe.fade {
        fade(found, &at("fade"), it, &pipe.outages);
    }
    vary::check(found, path, pipe);
    if let Some(it) = &pipe.path_trace {
        path_trace::check(found, &at("path_trace"), it);
    }
    let Some(delay) = &pipe.delay else { return };
    if let Some(it) = &delay.body {
        let path = at("delay.body.quantiles");
        values(found, &path, "Body", "quantiles_ns", &it.quantiles_ns);
        ascending(found, &path, &it.quantiles_ns);
    }
    for (i, excursion) in delay.excursions.iter().take(*DELAY_EXCURSIONS_ITEMS.end()).enumerate() {
        let path = at(&format!("delay.excursions[{i}]"));
        self::excursion(found, &path, excursion);
        if let Some(it) = &excursion.regime {
            factor(found, &format!("{path}.regime"), it, excursion.interval_ns);
        }
    }
}

fn opportunities(found: &mut Violations, path: &str, runs: &[u64]) {
    values(found, path, "Opportunities", "runs", runs);
    if !runs.is_empty() && opportunity_runs(runs).all(|(_, count)| count == 0) {
        let message = "there is never an opportunity: write rate = \"down\" instead";
        found.push(path, message);
    } else if !runs.is_empty() && opportunity_runs(runs).all(|(steps, _)| steps == 0) {
        let message = "all opportunities are at the start, and the trace has no duration: add \
                       steps, 16 for each, to an item";
        found.push(path, message);
    }
}

fn fade(found: &mut Violations, path: &str, fade: &pb::Fade, outages: &[pb::Outage]) {
    if outages.is_empty() {
        let message = "a fade makes outages more frequent, and there are none: describe a class \
                       of outages, or leave out the fade";
        found.push(path, message);
    }
    let shortest = outages.iter().map(|outage| outage.interval_ns).min().unwrap_or(0);
    factor(found, path, fade, shortest);
}

/// Checks the factor of a fade of episodes with this least interval.
fn factor(found: &mut Violations, path: &str, fade: &pb::Fade, shortest: u64) {
    // Intervals and factors out of range are reported elsewhere.
    let least = *OUTAGE_INTERVAL_NS.start();
    if OUTAGE_INTERVAL_NS.contains(&shortest)
        && FADE_FACTOR.contains(&fade.factor)
        && (shortest as f64) / fade.factor < least as f64
    {
        let message = format!(
            "{} makes the shortest interval between episodes, {}, shorter than {}: write at most {}",
            fade.factor,
            format_duration(shortest),
            format_duration(least),
            shortest / least
        );
        found.push(format!("{path}.factor"), message);
    }
}

fn ascending(found: &mut Violations, path: &str, quantiles: &[u64]) {
    let falls = |pair: &&[u64]| pair[1] < pair[0];
    let pairs = quantiles.windows(2).take(*BODY_QUANTILES_NS_ITEMS.end()).enumerate();
    for (i, pair) in pairs.filter(|(_, pair)| falls(pair)).take(FAULTS) {
        let (before, ns) = (format_duration(pair[0]), format_duration(pair[1]));
        let message = format!("{ns} is below the one before, {before}: write them ascending");
        found.push(format!("{path}[{}]", i + 1), message);
    }
}

fn excursion(found: &mut Violations, path: &str, excursion: &pb::Excursion) {
    let shape = excursion.shape;
    if !(SHAPE_MIN..SHAPE_BELOW).contains(&shape) {
        let message = format!(
            "{shape} is outside of {SHAPE_MIN} to below {SHAPE_BELOW}, where the mean exists: \
             tails of measured delay have 0 to 0.5"
        );
        found.push(format!("{path}.shape"), message);
    }
    if excursion.max_ns < excursion.location_ns {
        let message = format!(
            "{} is below the location of {}, the least extra delay: raise max or lower location",
            format_duration(excursion.max_ns),
            format_duration(excursion.location_ns)
        );
        found.push(format!("{path}.max"), message);
    }
}

/// True if two probabilities exceed one by more than rounding.
fn excess(p: f64, q: f64) -> bool {
    p + q > 1.0 + 1e-9
}
