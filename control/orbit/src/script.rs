// SPDX-License-Identifier: Apache-2.0
//! A track as a scenario.
//!
//! Each interval begins with a step that names the satellite and sets the delay of both directions.
//! Ramps follow: straight lines that stay within a tolerance of the samples, few
//! and long, because a scenario is limited in bytes more than in steps. Without a satellite, and during the
//! outage of a handover, the channel loses all packets. Afterwards the loss of the profile is
//! restored.

use crate::elements::Satellite;
use crate::track::{Interval, Link, Sample, Track};
use profile::{DELAY_BASE_NS, Profile, format_duration};
use scenario::{EVERY_NS, FILE_BYTES, LABEL_CHARS, STEPS, Scenario};

/// Delays are whole multiples of this.
const GRAIN_NS: u64 = 100;
/// The loss models of a pipe. A profile has at most one.
const LOSSES: [&str; 3] = ["packet_loss", "gilbert_elliott", "four_state_loss"];

/// What a scenario needs besides a track.
#[derive(Clone, Debug)]
pub struct Script<'a> {
    pub name: &'a str,
    pub description: &'a str,
    pub source: &'a str,
    /// Its delay is replaced, everything else kept.
    pub profile: &'a Profile,
    /// More than one: labels name the gateway.
    pub gateways: usize,
    /// Largest distance of a ramp from a sample.
    pub tolerance_ns: u64,
    /// Between two values of a ramp.
    pub step_ns: u64,
    /// At each handover.
    pub outage_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    #[error(
        "the scenario has {bytes} bytes, more than {FILE_BYTES}: shorten the duration to {fits} or \
         less, raise the tolerance, or use more time between reconfigurations"
    )]
    Bytes { bytes: usize, fits: String },
    #[error(
        "the scenario has {steps} steps, more than {STEPS}: shorten the duration, or use a longer \
         step"
    )]
    Steps { steps: u64 },
    #[error("a delay of {given} is above {most}: reduce the processing time")]
    Delay { given: String, most: String },
    /// A fault of the name, the description or the source.
    #[error("the scenario is not valid: {0}")]
    Invalid(String),
}

impl Script<'_> {
    /// The scenario, in TOML.
    ///
    /// # Errors
    /// If it is more than a scenario holds.
    pub fn write(&self, track: &Track, satellites: &[Satellite]) -> Result<String, ScriptError> {
        let longest = track.samples().map(|(_, sample)| sample.delay_ns).max().unwrap_or(0);
        if longest > *DELAY_BASE_NS.end() {
            let [given, most] = [longest, *DELAY_BASE_NS.end()].map(format_duration);
            return Err(ScriptError::Delay { given, most });
        }
        let mut lines = Lines { text: String::new(), steps: 1 };
        let mut is_linked = None;
        for interval in &track.intervals {
            self.interval(&mut lines, interval, is_linked, satellites);
            is_linked = Some(interval.link.is_some());
        }
        let end_ns = track.intervals.last().map_or(0, |last| last.to_ns);
        lines.push(&format!("at = \"{}\", label = \"end\"", format_duration(end_ns)), 1);
        let text = |text: &str| toml::Value::from(text).to_string();
        let toml = format!(
            "name = {}\ndescription = {}\nsource = {}\nstep = [\n  {{ profile = {} }},\n{}]\n",
            text(self.name),
            text(self.description),
            text(self.source),
            text(self.profile.name()),
            lines.text
        );
        if toml.len() > FILE_BYTES {
            // With a reserve, because intervals differ.
            let share = 0.9 * FILE_BYTES as f64 / toml.len() as f64;
            let fits_s = (end_ns as f64 * share / 1e9).floor().max(1.0) as u64;
            let fits = format_duration(fits_s * 1_000_000_000);
            return Err(ScriptError::Bytes { bytes: toml.len(), fits });
        }
        if lines.steps > STEPS {
            return Err(ScriptError::Steps { steps: lines.steps });
        }
        let checked = Scenario::from_toml(&toml);
        checked.map(|_| toml).map_err(|found| ScriptError::Invalid(found.to_string()))
    }

    /// `is_linked`: whether the interval before had a satellite; none at the start.
    fn interval(
        &self,
        lines: &mut Lines,
        interval: &Interval,
        is_linked: Option<bool>,
        satellites: &[Satellite],
    ) {
        let at = format_duration(interval.from_ns);
        let Some(link) = &interval.link else {
            lines.push(&format!("at = \"{at}\", label = \"no satellite\", {LOST}"), 1);
            return;
        };
        let label = toml::Value::from(self.label(link, satellites)).to_string();
        let length_ns = interval.to_ns - interval.from_ns;
        let is_handover = is_linked == Some(true) && self.outage_ns > 0;
        let outage_ns = if is_handover { self.outage_ns.min(length_ns) } else { 0 };
        if is_handover {
            lines.push(&format!("at = \"{at}\", label = {label}, {LOST}"), 1);
            if outage_ns == length_ns {
                return;
            }
        }
        let start_ns = interval.from_ns + outage_ns;
        let samples = from(&link.samples, start_ns);
        let delay_ns = samples.first().map_or(0, |first| rounded(first.delay_ns));
        let delay = format!("delay.base = \"{}\"", format_duration(delay_ns));
        let begin = match is_handover {
            true => format!("after = \"{}\"", format_duration(outage_ns)),
            false => format!("at = \"{at}\", label = {label}"),
        };
        let change = match is_handover || is_linked == Some(false) {
            true => {
                let [forward, back] = ["forward", "return"].map(|way| self.loss(way));
                format!("forward = {{ {delay}, {forward} }}, return = {{ {delay}, {back} }}")
            }
            false => format!("both.{delay}"),
        };
        lines.push(&format!("{begin}, {change}"), 1);
        self.ramps(lines, &samples);
    }

    /// Satellite and gateway in one line.
    fn label(&self, link: &Link, satellites: &[Satellite]) -> String {
        let name = satellites.get(link.satellite).map_or("", |it| it.name.as_str());
        let label = match self.gateways {
            0 | 1 => name.to_owned(),
            _ => format!("{name}, gateway {}", link.gateway + 1),
        };
        label.chars().take(LABEL_CHARS).collect()
    }

    /// The loss of the profile in a direction, in a profile's words.
    fn loss(&self, way: &str) -> String {
        let table = self.profile.to_toml().parse::<toml::Table>().unwrap_or_default();
        let given = |key: &&str| table.get(way).and_then(|pipe| pipe.get(*key));
        let loss = LOSSES.iter().find_map(|key| Some((key, given(key)?)));
        loss.map_or_else(
            || "packet_loss = \"0 %\"".to_owned(),
            |(key, value)| format!("{key} = {value}"),
        )
    }

    /// Ramps from the first sample to the last, each as long as the tolerance allows.
    fn ramps(&self, lines: &mut Lines, samples: &[Sample]) {
        let mut rest = samples;
        while let [first, _, ..] = rest {
            let end = self.straight(rest);
            let Some(last) = rest.get(end) else { return };
            let over_ns = last.at_ns - first.at_ns;
            let [from, to] = [first, last].map(|sample| rounded(sample.delay_ns));
            let over = format_duration(over_ns);
            // Equal values and values that follow sooner than a step are no steps.
            let count = (over_ns / self.step_ns.max(1)).min(from.abs_diff(to) / GRAIN_NS);
            let count = count.max(u64::from(from.abs_diff(to) > 0 && over_ns >= *EVERY_NS.start()));
            match count {
                0 => lines.push(&format!("after = \"{over}\""), 1),
                n => lines.push(
                    &format!(
                        "ramp = {{ value = \"delay.base\", to = \"{}\", over = \"{over}\", \
                         steps = {n} }}",
                        format_duration(to)
                    ),
                    n,
                ),
            }
            rest = rest.get(end..).unwrap_or(&[]);
        }
    }

    /// Index of a sample so that the line from the first sample to it is near all between.
    fn straight(&self, samples: &[Sample]) -> usize {
        let is_near = |end: usize| self.is_straight(samples.get(..=end).unwrap_or(&[]));
        let most = samples.len().saturating_sub(1);
        // Twice as far each time, and then between the last two.
        let (mut near, mut far) = (1, 2);
        while far <= most && is_near(far) {
            (near, far) = (far, 2 * far);
        }
        let mut far = far.min(most + 1);
        while far - near > 1 {
            let middle = near + (far - near) / 2;
            match is_near(middle) {
                true => near = middle,
                false => far = middle,
            }
        }
        near
    }

    /// Whether the line from the first sample to the last is near all between.
    fn is_straight(&self, samples: &[Sample]) -> bool {
        let ([first, .., last], tolerance) = (samples, self.tolerance_ns as f64) else {
            return true;
        };
        let from = first.delay_ns as f64;
        let slope = (last.delay_ns as f64 - from) / (last.at_ns - first.at_ns).max(1) as f64;
        samples.iter().all(|sample| {
            let line = from + slope * (sample.at_ns - first.at_ns) as f64;
            (line - sample.delay_ns as f64).abs() <= tolerance
        })
    }
}

const LOST: &str = "both.packet_loss = \"100 %\"";

/// The steps of the file.
struct Lines {
    text: String,
    steps: u64,
}

impl Lines {
    fn push(&mut self, content: &str, steps: u64) {
        self.text += &format!("  {{ {content} }},\n");
        self.steps += steps;
    }
}

fn rounded(delay_ns: u64) -> u64 {
    (delay_ns + GRAIN_NS / 2) / GRAIN_NS * GRAIN_NS
}

/// The samples from an instant on, the first of them interpolated.
fn from(samples: &[Sample], at_ns: u64) -> Vec<Sample> {
    let next = samples.partition_point(|sample| sample.at_ns < at_ns);
    let (before, after) = samples.split_at(next);
    let mut kept = Vec::new();
    if let (Some(a), true) = (before.last(), after.first().is_none_or(|b| b.at_ns > at_ns)) {
        let b = after.first().unwrap_or(a);
        let part = (at_ns - a.at_ns) as f64 / (b.at_ns - a.at_ns).max(1) as f64;
        let delay = a.delay_ns as f64 + part * (b.delay_ns as f64 - a.delay_ns as f64);
        kept.push(Sample { at_ns, delay_ns: delay.round() as u64, ..*a });
    }
    kept.extend_from_slice(after);
    kept
}
