// SPDX-License-Identifier: Apache-2.0
//! The rules that every profile keeps, wherever it comes from.
//!
//! The message is taken to be hostile: any field may be absent, not a number or
//! out of range. All broken rules are reported, each with the path of its field
//! as the TOML form names it.

mod loss;
mod provenance;
mod queue;
#[cfg(test)]
mod tests;

use crate::limits::*;
use crate::units::{format_duration, format_overhead, shown};
use crate::{PATCHED, Rate, Violations};
use proto::linkemu::v1 as pb;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Broken rules that are reported of one list.
const FAULTS: usize = 8;

/// Checks a whole profile.
///
/// # Errors
/// All rules that it breaks.
pub fn validate(profile: &pb::Profile) -> Result<(), Violations> {
    let mut found = Violations::default();
    name(&mut found, &profile.name);
    group(&mut found, &profile.group);
    text(&mut found, "description", &profile.description);
    text(&mut found, "source", &profile.source);
    for (path, pipe) in [("forward", &profile.forward_pipe), ("return", &profile.return_pipe)] {
        match pipe {
            Some(pipe) => check_pipe(&mut found, path, pipe),
            None => found.push(path, "missing: describe both directions, forward and return"),
        }
    }
    if let Some(it) = &profile.provenance {
        provenance::check(&mut found, "provenance", it);
    }
    found.into_result()
}

/// Checks one pipe; `path` is what its fields' paths begin with.
///
/// # Errors
/// All rules that it breaks.
pub fn validate_pipe(path: &str, pipe: &pb::Pipe) -> Result<(), Violations> {
    let mut found = Violations::default();
    check_pipe(&mut found, path, pipe);
    found.into_result()
}

fn name(found: &mut Violations, name: &str) {
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
    if let Some(c) = group.chars().find(|c| c.is_control()) {
        found.push("group", format!("holds the control character {c:?}: take it out"));
    }
}

fn text(found: &mut Violations, path: &str, text: &str) {
    if text.len() > TEXT_BYTES {
        let message = format!("{} bytes are more than {TEXT_BYTES}: shorten it", text.len());
        found.push(path, message);
    }
    if let Some(c) = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        found.push(path, format!("holds the control character {c:?}: take it out"));
    }
}

fn check_pipe(found: &mut Violations, path: &str, pipe: &pb::Pipe) {
    let at = |field: &str| format!("{path}.{field}");
    if let Some(bps) = pipe.rate_bps {
        rate(found, &at("rate"), bps);
    }
    if let Some(trace) = &pipe.rate_trace {
        if let Some(bps) = pipe.rate_bps {
            let rate = Rate::from_bps(Some(bps));
            let message = format!("a rate is given as well, {rate}: leave out one of both");
            found.push(at("rate_trace"), message);
        }
        rate_trace(found, &at("rate_trace"), trace);
    }
    range(found, at("overhead"), pipe.overhead_bytes, &OVERHEAD_BYTES, format_overhead);
    if pb::LinkLayer::try_from(pipe.link_layer).is_err() {
        found.push(at("link_layer"), format!("{} is no link layer", pipe.link_layer));
    }
    loss::check(found, path, pipe);
    match &pipe.queue {
        Some(queue) => queue::check(found, &at("queue"), queue),
        None => found.push(at("queue"), "missing: give limit = \"36 MB\" or the like"),
    }
    classes(found, &at("outages"), &pipe.outages, outage);
    if let Some(it) = &pipe.fade {
        fade(found, &at("fade"), it, &pipe.outages);
    }
    match &pipe.delay {
        Some(delay) => {
            range(found, at("delay.base"), delay.base_ns, &BASE_NS, format_duration);
            range(found, at("delay.slot"), delay.slot_ns, &SLOT_NS, format_duration);
            if let Some(it) = &delay.body {
                body(found, &at("delay.body"), it);
            }
            classes(found, &at("delay.excursions"), &delay.excursions, excursion);
        }
        None => found.push(at("delay"), "missing: give base = \"0 ms\" or more"),
    }
}

fn rate_trace(found: &mut Violations, path: &str, trace: &pb::RateTrace) {
    range(found, format!("{path}.step"), trace.step_ns, &STEP_NS, format_duration);
    let (path, rates) = (format!("{path}.rates"), &trace.rates_bps);
    count(found, &path, rates.len(), &TRACE_STEPS);
    let limited = rates.iter().take(*TRACE_STEPS.end());
    items(found, &path, limited, |found, path, bps| rate(found, path, *bps));
    if !rates.is_empty() && rates.iter().all(|bps| *bps == 0) {
        let message = "every step is down: write rate = \"down\" instead, or a rate in some step";
        found.push(path, message);
    }
}

/// Zero is down.
fn rate(found: &mut Violations, path: &str, bps: u64) {
    if bps != 0 {
        let show = |bps| Rate::from_bps(Some(bps)).to_string();
        range(found, path.to_owned(), bps, &RATE_BPS, show);
    }
}

fn classes<T>(
    found: &mut Violations,
    path: &str,
    classes: &[T],
    check: impl Fn(&mut Violations, &str, &T),
) {
    if classes.len() > CLASSES {
        let message = format!("{} classes are more than {CLASSES}: merge some", classes.len());
        found.push(path, message);
    }
    for (i, class) in classes.iter().take(CLASSES).enumerate() {
        check(found, &format!("{path}[{i}]"), class);
    }
}

fn outage(found: &mut Violations, path: &str, outage: &pb::Outage) {
    range(found, format!("{path}.interval"), outage.interval_ns, &INTERVAL_NS, format_duration);
    range(found, format!("{path}.duration"), outage.duration_ns, &DURATION_NS, format_duration);
    match pb::DurationLaw::try_from(outage.law) {
        Ok(pb::DurationLaw::Exponential | pb::DurationLaw::Fixed) => {}
        Ok(pb::DurationLaw::Unspecified) => {
            found.push(format!("{path}.law"), "missing: write \"exponential\" or \"fixed\"");
        }
        Err(_) => {
            let message = format!("{} is no law: write \"exponential\" or \"fixed\"", outage.law);
            found.push(format!("{path}.law"), message);
        }
    }
}

fn fade(found: &mut Violations, path: &str, fade: &pb::Fade, outages: &[pb::Outage]) {
    let at = |field: &str| format!("{path}.{field}");
    range(found, at("interval"), fade.interval_ns, &FADE_NS, format_duration);
    range(found, at("duration"), fade.duration_ns, &FADE_NS, format_duration);
    range(found, at("factor"), fade.factor, &FADE_FACTOR, |factor| factor);
    if outages.is_empty() {
        let message = "a fade makes outages more frequent, and there are none: describe a class \
                       of outages, or leave out the fade";
        found.push(path, message);
    }
    // Intervals and factors that are out of range are reported as such.
    let shortest = outages.iter().map(|outage| outage.interval_ns).min().unwrap_or(0);
    let least = *INTERVAL_NS.start();
    if INTERVAL_NS.contains(&shortest)
        && FADE_FACTOR.contains(&fade.factor)
        && (shortest as f64) / fade.factor < least as f64
    {
        let message = format!(
            "{} makes the shortest interval between outages, {}, shorter than {}: write at most {}",
            fade.factor,
            format_duration(shortest),
            format_duration(least),
            shortest / least
        );
        found.push(at("factor"), message);
    }
}

fn body(found: &mut Violations, path: &str, body: &pb::Body) {
    let at = |field: &str| format!("{path}.{field}");
    range(found, at("correlation"), body.correlation_ns, &CORRELATION_NS, format_duration);
    let (path, quantiles) = (at("quantiles"), &body.quantiles_ns);
    count(found, &path, quantiles.len(), &QUANTILES);
    let mut before = 0;
    let limited = quantiles.iter().take(*QUANTILES.end());
    items(found, &path, limited, |found, path, ns| {
        range(found, path.to_owned(), *ns, &EXTRA_NS, format_duration);
        if *ns < before {
            let (ns, before) = (format_duration(*ns), format_duration(before));
            let message = format!("{ns} is below the one before, {before}: write them ascending");
            found.push(path, message);
        }
        before = *ns;
    });
}

fn excursion(found: &mut Violations, path: &str, excursion: &pb::Excursion) {
    let at = |field: &str| format!("{path}.{field}");
    range(found, at("interval"), excursion.interval_ns, &INTERVAL_NS, format_duration);
    range(found, at("duration"), excursion.duration_ns, &DURATION_NS, format_duration);
    range(found, at("location"), excursion.location_ns, &EXTRA_NS, format_duration);
    range(found, at("scale"), excursion.scale_ns, &EXTRA_NS, format_duration);
    let shape = excursion.shape;
    if !(SHAPE_MIN..SHAPE_BELOW).contains(&shape) {
        let message = format!(
            "{shape} is outside of {SHAPE_MIN} to below {SHAPE_BELOW}, where the mean exists: \
             tails of measured delay have 0 to 0.5"
        );
        found.push(at("shape"), message);
    }
    let max = excursion.max_ns;
    range(found, at("max"), max, &EXTRA_NS, format_duration);
    if max < excursion.location_ns {
        let message = format!(
            "{} is below the location of {}, the least extra delay: raise max or lower location",
            format_duration(max),
            format_duration(excursion.location_ns)
        );
        found.push(at("max"), message);
    }
}

/// Checks the items of a list, up to the first few that break a rule: lists can be
/// long, and wrong throughout.
fn items<'a, T: 'a>(
    found: &mut Violations,
    path: &str,
    items: impl Iterator<Item = &'a T>,
    mut check: impl FnMut(&mut Violations, &str, &T),
) {
    let enough = found.len() + FAULTS;
    for (i, item) in items.enumerate() {
        if found.len() >= enough {
            return;
        }
        check(found, &format!("{path}[{i}]"), item);
    }
}

fn count(found: &mut Violations, path: &str, count: usize, allowed: &RangeInclusive<usize>) {
    let (min, max) = (allowed.start(), allowed.end());
    if count < *min {
        found.push(path, format!("a list of {count} is too short: write {min} to {max} values"));
    } else if count > *max {
        found.push(path, format!("a list of {count} is too long: write {min} to {max} values"));
    }
}

/// Whether two probabilities are more than one together, and not by their rounding alone.
fn excess(p: f64, q: f64) -> bool {
    p + q > 1.0 + 1e-9
}

fn range<T: PartialOrd + Copy, S: Display>(
    found: &mut Violations,
    path: String,
    value: T,
    range: &RangeInclusive<T>,
    show: impl Fn(T) -> S,
) {
    // What is not a number is contained in no range.
    if range.contains(&value) {
        return;
    }
    let (min, max) = (show(*range.start()), show(*range.end()));
    let message = if value < *range.start() {
        format!("{} is below {min}: write {min} to {max}", show(value))
    } else if value > *range.end() {
        format!("{} is above {max}: write {min} to {max}", show(value))
    } else {
        format!("{} is not a number: write {min} to {max}", show(value))
    };
    found.push(path, message);
}
