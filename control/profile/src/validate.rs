// SPDX-License-Identifier: Apache-2.0
//! The rules that every profile keeps, wherever it comes from.
//!
//! The message is taken to be hostile: any field may be absent, not a number or
//! out of range. All broken rules are reported, each with the path of its field
//! as the TOML form names it.

use crate::limits::*;
use crate::units::{format_duration, format_overhead, format_probability, format_size, shown};
use crate::{PATCHED, Rate, Violations};
use proto::linkemu::v1 as pb;
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Checks a whole profile.
///
/// # Errors
/// All rules that it breaks.
pub fn validate(profile: &pb::Profile) -> Result<(), Violations> {
    let mut found = Violations::default();
    name(&mut found, &profile.name);
    text(&mut found, "description", &profile.description);
    text(&mut found, "source", &profile.source);
    for (path, pipe) in [("forward", &profile.forward_pipe), ("return", &profile.return_pipe)] {
        match pipe {
            Some(pipe) => check_pipe(&mut found, path, pipe),
            None => found.push(path, "missing: describe both directions, forward and return"),
        }
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
    if let Some(bps) = pipe.rate_bps.filter(|bps| *bps != 0) {
        let show = |bps| Rate::from_bps(Some(bps)).to_string();
        range(found, at("rate"), bps, &RATE_BPS, show);
    }
    range(found, at("overhead"), pipe.overhead_bytes, &OVERHEAD_BYTES, format_overhead);
    match &pipe.queue {
        Some(queue) => check_queue(found, &at("queue"), queue),
        None => found.push(at("queue"), "missing: give limit = \"36 MB\" or the like"),
    }
    classes(found, &at("outages"), &pipe.outages, outage);
    match &pipe.delay {
        Some(delay) => {
            range(found, at("delay.base"), delay.base_ns, &BASE_NS, format_duration);
            range(found, at("delay.slot"), delay.slot_ns, &SLOT_NS, format_duration);
            classes(found, &at("delay.excursions"), &delay.excursions, excursion);
        }
        None => found.push(at("delay"), "missing: give base = \"0 ms\" or more"),
    }
}

fn check_queue(found: &mut Violations, path: &str, queue: &pb::Queue) {
    let limit = queue.limit_bytes;
    if limit < FRAME_BYTES {
        let message = format!(
            "{} is less than one full frame: write at least \"{FRAME_BYTES} B\"",
            format_size(limit)
        );
        found.push(format!("{path}.limit"), message);
    } else {
        range(found, format!("{path}.limit"), limit, &QUEUE_BYTES, format_size);
    }
    let Some(drop) = &queue.random_drop else { return };
    let path = format!("{path}.random_drop");
    if drop.threshold_bytes > limit {
        let message = format!(
            "{} is above the queue's limit of {}: lower the threshold or raise the limit",
            format_size(drop.threshold_bytes),
            format_size(limit)
        );
        found.push(format!("{path}.threshold"), message);
    }
    for (field, p) in [
        ("probability_at_threshold", drop.probability_at_threshold),
        ("probability_at_limit", drop.probability_at_limit),
    ] {
        range(found, format!("{path}.{field}"), p, &(0.0..=1.0), format_probability);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(change: impl FnOnce(&mut pb::Profile)) -> Vec<(String, String)> {
        let mut profile = crate::Catalog::built_in().get("viasat2").unwrap().as_proto().clone();
        change(&mut profile);
        let found = validate(&profile).err().unwrap_or_default();
        found.into_iter().map(|v| (v.path, v.message)).collect()
    }

    fn forward(profile: &mut pb::Profile) -> &mut pb::Pipe {
        profile.forward_pipe.as_mut().unwrap()
    }

    #[test]
    fn an_empty_message_breaks_rules_and_nothing_else() {
        let paths: Vec<_> =
            validate(&pb::Profile::default()).unwrap_err().into_iter().map(|v| v.path).collect();
        assert_eq!(paths, ["name", "forward", "return"]);
        let found = validate_pipe("forward", &pb::Pipe::default()).unwrap_err();
        let paths: Vec<_> = found.iter().map(|v| v.path.as_str()).collect();
        assert_eq!(paths, ["forward.queue", "forward.delay"]);
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for hostile in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9, 1.0 + 1e-9] {
            let found = broken(|p| {
                let queue = forward(p).queue.as_mut().unwrap();
                queue.random_drop.as_mut().unwrap().probability_at_limit = hostile;
            });
            assert_eq!(found.len(), 1, "{hostile}");
            assert_eq!(found[0].0, "forward.queue.random_drop.probability_at_limit");
            let found = broken(|p| {
                let delay = p.return_pipe.as_mut().unwrap().delay.as_mut().unwrap();
                delay.excursions[0].shape = if hostile == -1e-9 { -1.1 } else { hostile };
            });
            assert_eq!(found.len(), 1, "{hostile}");
            assert_eq!(found[0].0, "return.delay.excursions[0].shape");
        }
    }

    #[test]
    fn messages_name_the_value_the_limit_and_the_remedy() {
        let found = broken(|p| forward(p).rate_bps = Some(999));
        assert_eq!(found[0].1, "999 bit/s is below 1 kbit/s: write 1 kbit/s to 400 Gbit/s");
        let found = broken(|p| forward(p).queue.as_mut().unwrap().limit_bytes = 1_000);
        assert_eq!(found[0].1, "1 kB is less than one full frame: write at least \"1518 B\"");
        assert_eq!(
            found[1].1,
            "18 MB is above the queue's limit of 1 kB: lower the threshold or raise the limit"
        );
        let found = broken(|p| forward(p).delay.as_mut().unwrap().base_ns = u64::MAX);
        assert!(found[0].1.contains("is above 1 min: write 0 ms to 1 min"), "{}", found[0].1);
    }

    #[test]
    fn every_limit_is_checked() {
        let one = |change: fn(&mut pb::Pipe), path: &str| {
            let found = broken(|p| change(forward(p)));
            assert_eq!(found.len(), 1, "{path}: {found:?}");
            assert_eq!(found[0].0, path);
        };
        one(|p| p.rate_bps = Some(400_000_000_001), "forward.rate");
        one(|p| p.overhead_bytes = -65, "forward.overhead");
        one(|p| p.overhead_bytes = 257, "forward.overhead");
        one(|p| p.queue.as_mut().unwrap().limit_bytes = (64 << 30) + 1, "forward.queue.limit");
        one(|p| p.delay.as_mut().unwrap().slot_ns = 1_000_000_001, "forward.delay.slot");
        one(|p| p.outages[0].interval_ns = 9_999_999, "forward.outages[0].interval");
        one(|p| p.outages[0].duration_ns = 999, "forward.outages[0].duration");
        one(|p| p.outages[1].law = 0, "forward.outages[1].law");
        one(|p| p.outages[1].law = 77, "forward.outages[1].law");
        one(|p| p.outages = vec![p.outages[0]; 9], "forward.outages");
        assert!(broken(|p| forward(p).rate_bps = Some(0)).is_empty());
        assert!(broken(|p| forward(p).rate_bps = None).is_empty());
    }

    #[test]
    fn names_are_plain_with_one_mark_at_most() {
        for good in ["a", "viasat2*", "geo-600", "A.b_c"] {
            assert!(broken(|p| p.name = good.into()).is_empty(), "{good}");
        }
        for bad in ["", "*", "a**", "-a", "a b", "../etc", "ü", "a\u{1b}[2J"] {
            assert_eq!(broken(|p| p.name = bad.into())[0].0, "name", "{bad}");
        }
        assert_eq!(broken(|p| p.name = "a".repeat(65)).len(), 1);
        assert_eq!(broken(|p| p.description = "\u{1b}[2J".into())[0].0, "description");
    }
}
