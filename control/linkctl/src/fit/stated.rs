// SPDX-License-Identifier: Apache-2.0
//! What the user states beside the baseline, because no round trip tells it.

use super::{DelayIn, FitArgs, LossesIn, profile_of, warn};
use crate::failure::Failure;
use ::fit::fitted::{self, Options};
use ::fit::read::Input;
use ::trace::RateError;
use profile::{
    OUTAGE_DURATION_NS, OUTAGE_INTERVAL_NS, Profile, Rate, TraceError, format_duration,
    format_size, read_trace,
};
use proto::linkemu::v1 as pb;
use std::path::{Path, PathBuf};

impl FitArgs {
    /// All of it.
    pub(super) fn options(&self) -> Result<Options, Failure> {
        let like = self.like.as_deref().map(profile_of).transpose()?;
        let like = like.as_ref().map(Profile::as_proto);
        let capacity = |of: fn(&pb::Profile) -> Option<&pb::Pipe>,
                        rate: Option<Rate>,
                        trace: Option<&PathBuf>| {
            let mut c = like.and_then(of).map_or_else(fitted::unlimited, fitted::capacity);
            if let Some(rate) = rate {
                (c.rate_bps, c.rate_trace) = (rate.bps(), None);
            }
            if let Some(path) = trace {
                (c.rate_bps, c.rate_trace) = (None, Some(trace_of(path, self.trace_step)?));
            }
            if let Some(limit_bytes) = self.queue {
                // What it drops at random below that stays as it is.
                c.queue.get_or_insert_default().limit_bytes = limit_bytes;
            }
            Ok::<_, Failure>(c)
        };
        let forward =
            capacity(|p| p.forward_pipe.as_ref(), self.forward_rate, self.forward_trace.as_ref())?;
        let back =
            capacity(|p| p.return_pipe.as_ref(), self.return_rate, self.return_trace.as_ref())?;
        let seconds = |ns: u64| ns as f64 / 1e9;
        Ok(Options {
            name: self
                .name
                .clone()
                .unwrap_or_else(|| plain(self.write.as_deref().unwrap_or(&self.baseline))),
            description: self.description.clone(),
            forward,
            back,
            losses_in: match self.losses_in {
                LossesIn::Forward => fitted::Direction::Forward,
                LossesIn::Return => fitted::Direction::Return,
                LossesIn::Both => fitted::Direction::Both,
            },
            delay_in: match self.delay_in {
                DelayIn::Forward => fitted::Direction::Forward,
                DelayIn::Return => fitted::Direction::Return,
            },
            forward_ns: self.forward_delay,
            isolated_s: self.isolated_duration.map(seconds),
            routine_s: self.routine_duration.map(seconds),
            rare_s: self.rare_duration.map(seconds),
        })
    }

    /// What is stated must be what a profile can say: that is told before the baseline is
    /// read, and of the options.
    pub(super) fn check(&self, options: &Options) -> Result<(), Failure> {
        if let (Some(step), None, None) = (self.trace_step, &self.forward_trace, &self.return_trace)
        {
            return Err(Failure::usage(format!(
                "--trace-step {} steps no trace: give --forward-trace or --return-trace too",
                format_duration(step)
            )));
        }
        let often = *OUTAGE_INTERVAL_NS.end();
        let (mut forward, back) = (options.forward.clone(), options.back.clone());
        let law = pb::DurationLaw::Fixed as i32;
        let isolated = self.isolated_duration.iter();
        forward.outages =
            isolated.map(|ns| pb::Outage { interval_ns: often, duration_ns: *ns, law }).collect();
        let least = *OUTAGE_DURATION_NS.start();
        let excursions = [self.routine_duration, self.rare_duration].map(|ns| pb::Excursion {
            interval_ns: often,
            duration_ns: ns.unwrap_or(least),
            ..pb::Excursion::default()
        });
        let base_ns = self.forward_delay.unwrap_or(0);
        let excursions = excursions.to_vec();
        forward.delay = Some(pb::Delay { base_ns, excursions, ..pb::Delay::default() });
        let stated = pb::Profile {
            name: options.name.clone(),
            description: options.description.clone(),
            forward_pipe: Some(forward),
            return_pipe: Some(back),
            ..pb::Profile::default()
        };
        let Err(violations) = Profile::try_from(stated) else { return Ok(()) };
        if let Some(queue) = self.queue
            && violations.iter().any(|v| v.path.ends_with(".random_drop.threshold"))
        {
            return Err(Failure::usage(format!(
                "--queue {}: what --like names drops at random above more than that; give more, or \
                 edit that profile",
                format_size(queue)
            )));
        }
        let told = violations.iter().find_map(|v| Some((option(&v.path)?, &v.message)));
        match told {
            Some((option, message)) => Err(Failure::usage(format!("{option}: {message}"))),
            None => {
                Err(Failure::invalid("the rate trace is not what a profile can say", violations)
                    .hint(
                        "--trace-step sets the length of the steps, over which rates are averaged",
                    ))
            }
        }
    }

    /// What is stated must be of use.
    pub(super) fn fits(&self, input: &Input) -> Result<(), Failure> {
        let given = [
            ("--routine-duration", self.routine_duration),
            ("--rare-duration", self.rare_duration),
        ];
        match (input, given.into_iter().find(|(_, ns)| ns.is_some())) {
            (Input::Log(_), Some((option, _))) => Err(Failure::usage(format!(
                "{option} is for published figures: of a log, the duration is estimated; leave it \
                 out"
            ))),
            _ => Ok(()),
        }
    }
}

/// The option that stated a field of a profile.
fn option(path: &str) -> Option<&'static str> {
    Some(match path {
        "name" => "--name",
        "description" => "--description",
        "forward.rate" => "--forward-rate",
        "return.rate" => "--return-rate",
        "forward.delay.base" => "--forward-delay",
        "forward.outages[0].duration" => "--isolated-duration",
        "forward.delay.excursions[0].duration" => "--routine-duration",
        "forward.delay.excursions[1].duration" => "--rare-duration",
        queue if queue.starts_with("forward.queue.") || queue.starts_with("return.queue.") => {
            "--queue"
        }
        _ => return None,
    })
}

/// A rate that changes.
pub fn trace_of(path: &Path, step_ns: Option<u64>) -> Result<pb::RateTrace, Failure> {
    let read = read_trace(path, step_ns).map_err(|error| {
        let path = path.display();
        let message = match &error {
            TraceError::Steps { enough_ns, .. } => format!(
                "{path}: {error}: --trace-step {} or longer",
                format_duration(*enough_ns).replace(' ', "")
            ),
            TraceError::Rate(
                RateError::Io { .. } | RateError::NoFile { .. } | RateError::Bytes { .. },
            ) => error.to_string(),
            _ => format!("{path}: {error}"),
        };
        Failure::failed("trace", message)
    })?;
    warn(&read.remarks);
    Ok(read.trace)
}

/// A file's name without its ending, as a profile's name may be.
pub fn plain(path: &Path) -> String {
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let plain = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let name: String = plain.take(profile::NAME_CHARS).collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() { "fitted".into() } else { name }
}
