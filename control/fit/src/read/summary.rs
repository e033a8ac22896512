// SPDX-License-Identifier: Apache-2.0
//! Published figures of a link, in TOML. Quantities are text with their units; either
//! section may be left out:
//!
//! ```toml
//! source = "SAT20: S. Claypool et al., CCNC 2021"
//! interval = "200 ms"
//! [losses]
//! samples = 3024000
//! lost = 604
//! single = 465          # of these, with neither neighbour lost
//! runs = 44             # of two and more
//! longest = 11
//! [delay]
//! samples = 432000
//! reading_error = "1 ms"        # standard error, of reading a plot; zero if left out
//! reading_error_share = "1 %"   # and of what exceeds the median
//! exceedance = [["576 ms", "95 %"], ["597.3 ms", "50 %"]]
//! maxima = ["1245 ms", "842 ms"]  # largest round trips of spans with as many samples
//! ```

use super::error::{ReadError, duration};
use super::spacing::Interval;
use super::tap::{Bytes, Tap};
use crate::baseline::{Format, LossCounts, Source, Summary};
use profile::{UnitError, format_probability, parse_duration, parse_probability};
use serde::Deserialize;
use std::io::Read as _;

const S: u64 = 1_000_000_000;
/// Most values of `maxima`: ten years of days.
const MAXIMA: usize = 3_660;
/// Bytes of the longest file.
const FILE: u64 = 1 << 20;

/// Whether the beginning of a file is that of such figures.
pub(super) fn recognises(head: &str) -> bool {
    let key = |key: &str| {
        head.lines().any(|line| {
            let rest = line.trim_start().strip_prefix(key);
            rest.is_some_and(|rest| rest.trim_start().starts_with('='))
        })
    };
    let section = |name: &str| head.lines().any(|line| line.trim().starts_with(name));
    section("[losses]") || section("[delay]") || (key("source") && key("interval"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    source: String,
    interval: String,
    losses: Option<Losses>,
    delay: Option<Delay>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Losses {
    samples: u64,
    lost: u64,
    single: u64,
    runs: u64,
    longest: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delay {
    samples: u64,
    reading_error: Option<String>,
    reading_error_share: Option<String>,
    exceedance: Vec<(String, String)>,
    #[serde(default)]
    maxima: Vec<String>,
}

/// Reads published figures; a given interval must agree.
pub(super) fn read(bytes: Bytes<'_>, given: Option<u64>) -> Result<Summary, ReadError> {
    let malformed = |problem: String| ReadError::Malformed { format: Format::Summary, problem };
    let mut tap = Tap::bytes(bytes);
    let mut text = Vec::new();
    (&mut tap).take(FILE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE {
        return Err(malformed(format!("it is longer than {FILE} bytes")));
    }
    let text = String::from_utf8(text).map_err(|_| malformed("it is not UTF-8".into()))?;
    let text = text.trim_start_matches('\u{feff}');
    let file: File = toml::from_str(text).map_err(|error| {
        if is_profile(text) {
            return malformed("it is a profile: give what that was fitted to".into());
        }
        malformed(error.to_string().trim_end().to_owned())
    })?;

    let mut wrong = Violations::default();
    let interval_ns = wrong.quantity("interval", &file.interval, parse_duration).unwrap_or(0);
    if interval_ns == 0 || interval_ns > 86_400 * S {
        wrong.add(format!("interval = {:?} is not more than zero and at most 1 d", file.interval));
    }
    if file.source.trim().is_empty() {
        wrong.add("source is empty: name the study".into());
    }
    if file.losses.is_none() && file.delay.is_none() {
        wrong.add("there is neither [losses] nor [delay]".into());
    }
    if let Some(losses) = &file.losses {
        wrong.losses(losses);
    }
    let (mut reading_error_ns, mut reading_error_share) = (0, 0.0);
    let (mut exceedance, mut maxima_ns) = (Vec::new(), Vec::new());
    if let Some(delay) = &file.delay {
        exceedance = wrong.exceedance(delay);
        maxima_ns = wrong.maxima(delay, &exceedance);
        if let Some(text) = &delay.reading_error {
            let error = wrong.quantity("delay.reading_error", text, parse_duration);
            reading_error_ns = error.unwrap_or(0);
        }
        if let Some(text) = &delay.reading_error_share {
            let share = wrong.quantity("delay.reading_error_share", text, parse_probability);
            reading_error_share = share.unwrap_or(0.0);
        }
        if reading_error_ns > 60 * S || reading_error_share >= 1.0 {
            wrong.add("a reading error is more than 60 s or 100 %: figures cannot be read".into());
        }
    }
    wrong.check()?;
    Interval::stated(interval_ns, 0).agrees(given, "--interval")?;
    Ok(Summary {
        source: Source { name: file.source, format: Format::Summary, sha256: tap.sha256()? },
        interval_ns,
        loss_samples: file.losses.as_ref().map_or(0, |losses| losses.samples),
        losses: file.losses.map(|losses| LossCounts {
            lost: losses.lost,
            single: losses.single,
            runs: losses.runs,
            longest: losses.longest,
        }),
        delay_samples: file.delay.map_or(0, |delay| delay.samples),
        exceedance,
        maxima_ns,
        reading_error_ns,
        reading_error_share,
    })
}

/// Whether the text describes a link rather than a measurement of one.
fn is_profile(text: &str) -> bool {
    let table = text.parse::<toml::Table>();
    table.is_ok_and(|table| table.contains_key("forward") && table.contains_key("return"))
}

/// Faults of the figures.
#[derive(Default)]
struct Violations(Vec<String>);

impl Violations {
    fn add(&mut self, violation: String) {
        self.0.push(violation);
    }

    fn check(self) -> Result<(), ReadError> {
        if self.0.is_empty() { Ok(()) } else { Err(ReadError::Figures { violations: self.0 }) }
    }

    fn quantity<T>(
        &mut self,
        key: &str,
        text: &str,
        parse: impl Fn(&str) -> Result<T, UnitError>,
    ) -> Option<T> {
        parse(text).map_err(|error| self.add(format!("{key}: {error}"))).ok()
    }

    fn losses(&mut self, losses: &Losses) {
        let Losses { samples, lost, single, runs, longest } = *losses;
        if samples < 2 {
            self.add(format!("losses.samples = {samples} is less than 2"));
        }
        if lost > samples {
            self.add(format!("losses.lost = {lost} is more than samples = {samples}"));
        }
        let Some(in_runs) = lost.checked_sub(single) else {
            return self.add(format!("losses.single = {single} is more than lost = {lost}"));
        };
        // Between two losses that are apart, one probe at least came back.
        let events = single.saturating_add(runs);
        if lost.saturating_add(events.saturating_sub(1)) > samples.max(lost) {
            self.add(format!(
                "losses.samples = {samples} have no room for {lost} losses in {events} events"
            ));
        }
        if in_runs == 0 || runs == 0 {
            if in_runs > 0 {
                self.add(format!(
                    "losses.runs = 0, but lost = {lost} less single = {single} leaves {in_runs} \
                     losses in runs"
                ));
            } else if runs > 0 {
                self.add(format!(
                    "losses.runs = {runs}, but lost = {lost} less single = {single} leaves none \
                     for them"
                ));
            } else if longest != u64::from(single > 0) {
                let right = u64::from(single > 0);
                self.add(format!("losses.longest = {longest}, but without runs it is {right}"));
            }
            return;
        }
        let least = runs.saturating_mul(2);
        if in_runs < least {
            self.add(format!(
                "losses.runs = {runs} need {least} losses, but lost = {lost} less single = \
                 {single} leaves {in_runs}"
            ));
            return;
        }
        // The other runs have two losses at least; and no run is shorter than the mean.
        let (most, mean) = (in_runs - (least - 2), in_runs.div_ceil(runs));
        if longest > most {
            self.add(format!(
                "losses.longest = {longest}, but {in_runs} losses in {runs} runs leave at most \
                 {most} for one"
            ));
        }
        if longest < mean {
            self.add(format!(
                "losses.longest = {longest}, but {in_runs} losses in {runs} runs make one of at \
                 least {mean}"
            ));
        }
    }

    fn maxima(&mut self, delay: &Delay, points: &[(u64, f64)]) -> Vec<u64> {
        if delay.maxima.len() > MAXIMA {
            self.add(format!(
                "delay.maxima has {} values: give {MAXIMA} at most",
                delay.maxima.len()
            ));
            return Vec::new();
        }
        // Half of the probes are longer than the median.
        let least = points.iter().find(|(_, p)| *p <= 0.5).map_or(0, |(rtt, _)| *rtt);
        let mut maxima = Vec::with_capacity(delay.maxima.len());
        for (index, text) in delay.maxima.iter().enumerate() {
            let key = format!("delay.maxima[{index}]");
            let Some(rtt) = self.quantity(&key, text, parse_duration) else { continue };
            if rtt <= least || rtt > 3_600 * S {
                let (shown, least) = (duration(rtt), duration(least));
                self.add(format!(
                    "{key}: {shown} is no largest round trip: it is not in ({least}, 1 h], from the \
                     median on"
                ));
            }
            maxima.push(rtt);
        }
        maxima
    }

    fn exceedance(&mut self, delay: &Delay) -> Vec<(u64, f64)> {
        let mut points: Vec<(u64, f64)> = Vec::with_capacity(delay.exceedance.len());
        for (index, (rtt, probability)) in delay.exceedance.iter().enumerate() {
            let key = format!("delay.exceedance[{index}]");
            let rtt = self.quantity(&key, rtt, parse_duration);
            let probability = self.quantity(&key, probability, parse_probability);
            let (Some(rtt), Some(probability)) = (rtt, probability) else { continue };
            if rtt == 0 || rtt > 3_600 * S {
                let shown = duration(rtt);
                self.add(format!("{key}: a round trip of {shown} is not in (0, 1 h]"));
            }
            if !(0.0..=1.0).contains(&probability) {
                self.add(format!(
                    "{key}: {} is not in 0 to 100 %",
                    format_probability(probability)
                ));
            } else if probability > 0.0 && probability * (delay.samples as f64) < 0.5 {
                self.add(format!(
                    "{key}: {} is less than one of samples = {}",
                    format_probability(probability),
                    delay.samples
                ));
            }
            if points.last().is_some_and(|last| rtt <= last.0) {
                self.add(format!("{key}: the round trip is not longer than the one before"));
            }
            if points.last().is_some_and(|last| probability >= last.1) {
                self.add(format!("{key}: the probability is not lower than the one before"));
            }
            points.push((rtt, probability));
        }
        if delay.exceedance.len() < 2 {
            self.add("delay.exceedance has fewer than two points".into());
        }
        if delay.samples < 2 {
            self.add(format!("delay.samples = {} is less than 2", delay.samples));
        }
        points
    }
}
