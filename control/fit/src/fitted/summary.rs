// SPDX-License-Identifier: Apache-2.0
//! A fit in about ten lines: what was read, the link in words, what is least certain, what was
//! assumed, and what to do next.

use super::Fitted;
use super::text::CHANCE;
use crate::digits::four_digits;
use profile::{counted, format_duration, parse_duration};
use proto::linkemu::v1 as pb;
use std::path::Path;

/// The estimate of a day's largest round trip.
const LARGEST: &str = "largest round trip of a day";
/// The beginning of such estimates, which are predictions and no parameters.
const PREDICTED: &str = "largest round trip";
/// Uncertain figures that are named.
const NAMED: usize = 3;

/// The lines: subject and text. `baseline` and `written` are the files of the log and of the profile.
#[must_use]
pub fn lines(
    fitted: &Fitted,
    baseline: &Path,
    written: Option<&Path>,
) -> Vec<(&'static str, String)> {
    let profile = fitted.profile.as_proto();
    let none = pb::Provenance::default();
    let p = profile.provenance.as_ref().unwrap_or(&none);
    let mut lines = vec![("read", read(p, baseline)), ("losses", losses(fitted, p))];
    let pipes = [("forward", &profile.forward_pipe), ("return", &profile.return_pipe)];
    let pipes = pipes.into_iter().filter_map(|(name, pipe)| Some((name, pipe.as_ref()?)));
    lines.extend(pipes.map(|(name, pipe)| (name, direction(pipe))));
    lines.extend(largest(p).map(|text| ("largest", text)));
    lines.extend(uncertain(p).map(|text| ("uncertain", text)));
    lines.extend(assumed(p).map(|text| ("assumed", text)));
    let differs = p.goodness.iter().filter(|g| g.p_value < CHANCE).count();
    if differs > 0 {
        let tests = if differs == 1 { "1 test" } else { "tests" };
        lines.push((
            "model",
            format!(
                "{tests} of the model against the log shows a difference; verify shows its size"
            ),
        ));
    }
    let name = match written {
        Some(path) => path.display().to_string(),
        None => "FILE, after -w FILE,".into(),
    };
    lines.push(("next", format!("linkctl verify {name} --baseline {}", baseline.display())));
    lines
}

fn read(p: &pb::Provenance, baseline: &Path) -> String {
    let name = baseline.display();
    if p.format == "summary" {
        return format!("{name}: published figures of {} probes, {} lost", p.samples, p.lost);
    }
    let share = p.lost as f64 / p.samples.max(1) as f64 * 100.0;
    format!(
        "{name}: {} log, {} probes, one every {}, {} lost ({share:.4} %)",
        p.format,
        p.samples,
        time(p.interval_ns),
        p.lost
    )
}

/// The law of the losses, and how many the estimate is from.
fn losses(fitted: &Fitted, p: &pb::Provenance) -> String {
    let Some(losses) = &fitted.losses else { return "none published, none in the profile".into() };
    match (losses.lost, losses.events) {
        (0, _) => losses.name.into(),
        (lost, events) if lost == p.lost => {
            format!("{}; from all {}", losses.name, in_events(lost, events))
        }
        (lost, events) => format!("{}; from {}", losses.name, in_events(lost, events)),
    }
}

fn in_events(lost: u64, events: u64) -> String {
    let lost = counted(lost, "lost probe", "lost probes");
    format!("{lost}, in {}", counted(events, "event", "events"))
}

/// One direction in words.
fn direction(pipe: &pb::Pipe) -> String {
    let mut parts = Vec::new();
    let none = pb::Delay::default();
    let delay = pipe.delay.as_ref().unwrap_or(&none);
    parts.push(format!("delay {}", time(delay.base_ns)));
    if delay.slot_ns > 0 {
        parts.push(format!("a slot every {}", time(delay.slot_ns)));
    }
    if let Some(access) = &pipe.access {
        parts.push(format!("capacity on demand each {}", time(access.superframe_ns)));
    }
    if let Some(body) = &delay.body {
        let most = body.quantiles_ns.last().copied().unwrap_or(0);
        parts.push(format!("up to {} more, held {}", time(most), time(body.correlation_ns)));
    }
    for e in &delay.excursions {
        let regime = e.regime.as_ref().map(|r| {
            let (duration, interval) = (time(r.duration_ns), time(r.interval_ns));
            format!(", {} times as often for {duration} every {interval}", r.factor)
        });
        parts.push(format!(
            "excursions of about {} more, for {} every {}{}",
            time(e.location_ns.saturating_add(e.scale_ns)),
            time(e.duration_ns),
            time(e.interval_ns),
            regime.unwrap_or_default()
        ));
    }
    for outage in &pipe.outages {
        let law = match outage.law() {
            pb::DurationLaw::Fixed => "",
            _ => "on average ",
        };
        let (duration, interval) = (time(outage.duration_ns), time(outage.interval_ns));
        parts.push(format!("outages of {law}{duration} every {interval}"));
    }
    if let Some(fade) = &pipe.fade {
        parts.push(format!(
            "fades of {} every {}, with outages {} times as often",
            time(fade.duration_ns),
            time(fade.interval_ns),
            fade.factor
        ));
    }
    if let Some(it) = &pipe.reconfiguration {
        let mut text = format!("reconfigured every {}", time(it.period_ns));
        if it.clock() == pb::PeriodClock::Utc {
            text += &format!(" from {} of each minute of UTC", time(it.phase_ns));
        }
        if let Some(most) = it.delays_ns.iter().max() {
            text += &format!(", with up to {} more", time(*most));
        }
        if it.outage_probability > 0.0 {
            let percent = 100.0 * it.outage_probability;
            text += &format!(", and an outage of {} at {percent:.0} %", time(it.outage_ns));
        }
        parts.push(text);
    }
    parts.join("; ")
}

fn time(ns: u64) -> String {
    format_duration(four_digits(ns))
}

/// The largest round trip that a day is predicted to have.
fn largest(p: &pb::Provenance) -> Option<String> {
    let e = p.estimates.iter().find(|e| e.parameter == LARGEST)?;
    Some(format!("round trip of a day: {}, with 95 % from {} to {}", e.value, e.low, e.high))
}

/// The estimates with the widest intervals.
fn uncertain(p: &pb::Provenance) -> Option<String> {
    let number = |text: &str| {
        let time = parse_duration(text).ok().map(|ns| ns as f64);
        text.parse::<f64>().ok().or(time).filter(|x| *x >= 0.0)
    };
    let width = |e: &pb::Estimate| match (number(&e.low), number(&e.high)) {
        (Some(low), Some(high)) if high > low => Some(high / low.max(1e-9)),
        (_, None) => Some(f64::INFINITY),
        _ => None,
    };
    let parameters = p.estimates.iter().filter(|e| !e.parameter.starts_with(PREDICTED));
    let mut widest: Vec<(f64, &pb::Estimate)> =
        parameters.filter_map(|e| Some((width(e)?, e))).collect();
    widest.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named = widest.iter().take(NAMED).map(|(_, e)| {
        let name = e.parameter.replacen(": ", " ", 1);
        format!("{name} {} ({} to {})", e.value, e.low, e.high)
    });
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| named.join("; "))
}

/// Subjects that the baseline does not determine.
fn assumed(p: &pb::Provenance) -> Option<String> {
    let mut subjects: Vec<&str> = Vec::new();
    for text in &p.unidentified {
        let subject = text.split_once(':').map_or(text.as_str(), |(subject, _)| subject);
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    (!subjects.is_empty()).then(|| format!("{} (--verbose says what and why)", subjects.join("; ")))
}
