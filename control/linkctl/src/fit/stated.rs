// SPDX-License-Identifier: Apache-2.0
//! Arguments that state what a baseline does not determine.

use super::FitArgs;
use crate::argument;
use crate::failure::Failure;
use ::fit::fitted::{Capacity, Options, plain_name};
use profile::{Profile, Rate, format_duration, format_size};
use proto::linkemu::v1 as pb;
use std::path::PathBuf;

impl FitArgs {
    /// Reads the profile and the traces that are named.
    pub(super) fn options(&self) -> Result<Options, Failure> {
        let like = self.like.as_deref().map(argument::profile).transpose()?;
        let like = like.as_ref().map(Profile::as_proto);
        let capacity = |like: Option<&pb::Pipe>, rate: Option<Rate>, trace: Option<&PathBuf>| {
            let trace = trace.map(|path| argument::trace(path, self.trace_step)).transpose()?;
            Ok::<_, Failure>(Capacity { like, rate, trace, queue_bytes: self.queue }.pipe())
        };
        let forward = like.and_then(|profile| profile.forward_pipe.as_ref());
        let back = like.and_then(|profile| profile.return_pipe.as_ref());
        let name = || plain_name(self.write.as_deref().unwrap_or(&self.baseline));
        Ok(Options {
            name: self.name.clone().unwrap_or_else(name),
            description: self.description.clone(),
            forward: capacity(forward, self.forward_rate, self.forward_trace.as_ref())?,
            back: capacity(back, self.return_rate, self.return_trace.as_ref())?,
            losses_in: self.losses_in.into(),
            delay_in: self.delay_in.into(),
            forward_ns: self.forward_delay,
            isolated_ns: self.isolated_duration,
            routine_ns: self.routine_duration,
            rare_ns: self.rare_duration,
        })
    }

    /// Checks the values before the baseline is read; a failure names the option.
    pub(super) fn check(&self, options: &Options) -> Result<(), Failure> {
        if let (Some(step), None, None) = (self.trace_step, &self.forward_trace, &self.return_trace)
        {
            return Err(Failure::usage(format!(
                "--trace-step {} steps no trace: give --forward-trace or --return-trace too",
                format_duration(step)
            )));
        }
        let Err(violations) = options.check() else { return Ok(()) };
        if let Some(queue) = self.queue
            && violations.iter().any(|v| v.path.ends_with(".random_drop.threshold"))
        {
            return Err(Failure::usage(format!(
                "--queue {}: what --like names drops at random above more than that; give more, or \
                 edit that profile",
                format_size(queue)
            )));
        }
        match violations.iter().find_map(|v| Some((option(&v.path)?, &v.message))) {
            Some((option, message)) => Err(Failure::usage(format!("{option}: {message}"))),
            None => {
                Err(Failure::invalid("the rate trace is not what a profile can say", violations)
                    .hint(
                        "--trace-step sets the length of the steps, over which rates are averaged",
                    ))
            }
        }
    }
}

/// Returns the option that states a field of the profile in [`Options::check`].
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
