// SPDX-License-Identifier: Apache-2.0
//! `linkctl set`: changes of the link.

use crate::cli::{Cli, Direction, Law, Output, Patch, Set, Target};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::fit::trace_of;
use crate::output;
use profile::{Part, Profile, Rate, format_duration};
use proto::linkemu::v1 as pb;
use serde::Serialize;
use std::io::Read;
use std::path::Path;
use view::instant;

/// All that loses packets on the channel.
const LOSSES: [&str; 6] =
    ["outages", "fade", "packet_loss", "gilbert_elliott", "four_state_loss", "drop_run"];

#[derive(Serialize)]
struct View<'a> {
    generation: u64,
    effective_ns: u64,
    effective_utc: Option<String>,
    profile: &'a str,
    seed: u64,
    lossy: bool,
    repeated: bool,
    remarks: &'a [String],
}

/// Makes a change and tells since when it is in force.
pub async fn run(cli: &Cli, what: &Set) -> Result<(), Failure> {
    let change = match what {
        Set::Profile { profile, seed, condition } => {
            let request = pb::SetProfileRequest {
                profile: Some(requested(profile)?),
                seed: *seed,
                expected_generation: condition.expect_generation,
                lossy: condition.lossy,
                request_id: condition.request_id.clone(),
            };
            let connection = Connection::open(cli).await?;
            connection.call(|mut c| async move { c.set_profile(request).await }).await?
        }
        Set::Patch(what) => {
            let request = request(what)?;
            let connection = Connection::open(cli).await?;
            let mut change =
                connection.call(|mut c| async move { c.patch_link(request).await }).await?;
            change.remarks.extend(of_round_trip(what));
            change
        }
    };
    let profile = change.profile.as_ref().map_or("", |profile| &profile.name);
    tell(cli, profile, &change)
}

/// Tells since when something is in force.
pub fn tell(cli: &Cli, what: &str, change: &pb::ChangeResponse) -> Result<(), Failure> {
    let applied = change.applied.unwrap_or_default();
    match cli.output {
        Output::Text => {
            let since = instant::applied(&applied, "at");
            let mut lines = match change.repeated {
                true => format!("carried out before: {since}"),
                false => format!("{what} in force: {since}"),
            };
            for line in remarks(applied.lossy, &change.remarks) {
                lines.push('\n');
                lines.push_str(&line);
            }
            output::text(&lines)
        }
        Output::Json => output::json(&View {
            generation: applied.generation,
            effective_ns: applied.effective_ns,
            effective_utc: instant::utc(applied.effective_utc.as_ref()),
            profile: change.profile.as_ref().map_or("", |profile| &profile.name),
            seed: change.seed,
            lossy: applied.lossy,
            repeated: change.repeated,
            remarks: &change.remarks,
        }),
    }
}

/// What of a link will not be as its owner may expect, a line each.
pub fn remarks(lossy: bool, remarks: &[String]) -> impl Iterator<Item = String> {
    let warning = lossy.then(|| {
        "lossy: packets may be lost or late through the emulator's own fault (emulator drops in \
         `linkctl stats`)"
            .to_owned()
    });
    warning.into_iter().chain(remarks.iter().map(|remark| format!("note: {remark}")))
}

/// What a delay of both directions comes to, for who meant the round trip.
fn of_round_trip(what: &Patch) -> Option<String> {
    let Patch::Delay { base: Some(base), target, .. } = what else { return None };
    let both = target.direction == Direction::Both && *base > 0;
    both.then(|| {
        let (each, both) = (format_duration(*base), format_duration(base.saturating_mul(2)));
        format!(
            "each direction is delayed by {each}, a round trip by {both}: `set delay --rtt {}` \
             makes it the round trip's",
            each.replace(' ', "")
        )
    })
}

/// A name for linkd to know, or the profile of a file or of standard input.
fn requested(profile: &str) -> Result<pb::set_profile_request::Profile, Failure> {
    use pb::set_profile_request::Profile::{Inline, Name};
    if profile == "-" {
        let text = std::io::read_to_string(std::io::stdin().take(profile::MESSAGE_BYTES as u64))
            .map_err(|error| {
                Failure::failed("io", format!("cannot read standard input: {error}"))
            })?;
        let profile = Profile::from_toml(&text)
            .map_err(|violations| Failure::invalid("standard input", violations))?;
        return Ok(Inline(profile.into_proto()));
    }
    if !profile.contains('/') && !profile.ends_with(".toml") {
        return Ok(Name(profile.to_owned()));
    }
    Ok(Inline(Profile::from_file(Path::new(profile))?.into_proto()))
}

/// The patch that a command stands for.
fn request(what: &Patch) -> Result<pb::PatchLinkRequest, Failure> {
    let mut pipe = pb::Pipe::default();
    let given: Vec<&str>;
    let (paths, target): (&[&str], &Target) = match what {
        Patch::Rate { trace: Some(path), trace_step, target, .. } => {
            pipe.rate_trace = Some(trace_of(path, *trace_step)?);
            (&["rate_trace"], target)
        }
        Patch::Rate { rate, target, .. } => {
            pipe.rate_bps = rate.and_then(Rate::bps);
            (&["rate_bps"], target)
        }
        Patch::Delay { base, rtt, slot, target } => {
            let slot_ns = slot.unwrap_or(0);
            let base_ns = base.or(rtt.map(|rtt| rtt / 2)).unwrap_or(0);
            pipe.delay = Some(pb::Delay { base_ns, slot_ns, ..Default::default() });
            match slot {
                Some(_) => (&["delay.base_ns", "delay.slot_ns"], target),
                None => (&["delay.base_ns"], target),
            }
        }
        Patch::Queue { limit, threshold, drop_at_threshold, drop_at_limit, tail_drop, target } => {
            let random_drop = threshold.map(|threshold_bytes| pb::RandomDrop {
                threshold_bytes,
                probability_at_threshold: *drop_at_threshold,
                probability_at_limit: drop_at_limit.unwrap_or(*drop_at_threshold),
            });
            pipe.queue = Some(pb::Queue { limit_bytes: *limit, random_drop, ..Default::default() });
            match random_drop {
                Some(_) => (&["queue.limit_bytes", "queue.random_drop"], target),
                None if *tail_drop => (&["queue"], target),
                None => (&["queue.limit_bytes"], target),
            }
        }
        Patch::Loss { share, every, duration, law, target } => {
            pipe.packet_loss = share.unwrap_or(0.0);
            let law = match law {
                Law::Exponential => pb::DurationLaw::Exponential,
                Law::Fixed => pb::DurationLaw::Fixed,
            };
            // Neither is given with a share.
            if let (Some(interval_ns), Some(duration_ns)) = (*every, *duration) {
                pipe.outages.push(pb::Outage { interval_ns, duration_ns, law: law as i32 });
            }
            // All that the channel loses, or the class alone would not be what is lost.
            (&LOSSES, target)
        }
        Patch::Part { part, target } => {
            // One a line, so that the place of an error tells which.
            let part = Part::from_toml(&part.join("\n"))
                .map_err(|violations| Failure::invalid("this is no part of a link", violations))?;
            (pipe, given) = (part.pipe, part.paths);
            (&given, target)
        }
    };
    let direction = match target.direction {
        Direction::Forward => pb::Direction::Forward,
        Direction::Return => pb::Direction::Return,
        Direction::Both => pb::Direction::Unspecified,
    };
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    Ok(pb::PatchLinkRequest {
        direction: direction as i32,
        pipe: Some(pipe),
        mask: Some(prost_types::FieldMask { paths }),
        expected_generation: target.condition.expect_generation,
        lossy: target.condition.lossy,
        request_id: target.condition.request_id.clone(),
        ..Default::default()
    })
}
