// SPDX-License-Identifier: Apache-2.0
//! `linkctl set`: changes of the link, or of several.

use crate::argument;
use crate::complete;
use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use crate::target::{Condition, Direction, Target};
use clap::{ArgGroup, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use profile::{
    Part, Profile, Rate, UnitError, format_duration, parse_duration, parse_probability, parse_rate,
    parse_size,
};
use proto::linkemu::v1 as pb;
use proto::{link_id, link_name};
use std::io::Read;
use std::path::{Path, PathBuf};
use view::instant;

pub const EXAMPLES: &str = "\
Examples:
  linkctl set profile viasat2 --seed 7
  linkctl set profile ./my-link.toml
  linkctl set rate down                     both directions are down: packets wait
  linkctl set rate --trace lte.mahimahi -d forward
  linkctl set path measured.csv -d forward
  linkctl set delay 300ms --slot none --direction return
  linkctl set queue 10MB --threshold 5MB --drop-at-limit 10%
  linkctl set loss --every 3h --for 320ms
  linkctl set part 'reorder = \"none\"'
  linkctl set profile ./huge.toml --lossy    a link that does not fit (linkctl envelope)
  linkctl --link lab1,lab2 set rate 20Mbit/s    both links at one instant, or none

Units are written out: Mbit/s, MB (10^6 bytes), MiB (2^20 bytes), ms, %.";

pub const PART_EXAMPLES: &str = "\
Examples:
  linkctl set part 'duplicate = \"0.1 %\"' 'corrupt = \"0.01 %\"' -d forward
  linkctl set part 'reorder = { probability = \"1 %\", by = \"5 ms\" }'
  linkctl set part 'duplicate = \"0 %\"' 'corrupt = \"0 %\"' 'reorder = \"none\"'
  linkctl set part 'mtu = { limit = \"1280 B\", exceeded = \"drop\" }' -d forward
  linkctl set part 'drop_run = { pass = 999, drop = 1, once = true }'   set again, it starts again
  linkctl set part 'cross_traffic = { rate = \"30 Mbit/s\", poisson = true }' -d forward
  linkctl set part 'access = \"none\"' -d return     the whole rate at any time, without requests
  linkctl set part 'queue = { codel = { interval = \"600 ms\" }, ecn = true }'

The keys are those of [forward] and [return] in a profile. \"none\" is a value of
gilbert_elliott, four_state_loss, drop_run, reorder, cross_traffic, fade, access, capacity,
reconfiguration, queue.random_drop, queue.red, queue.codel, queue.pie, delay.body, link_layer and mtu.
[] removes a list, and \"0 %\" a probability.";

/// How a random duration is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Law {
    /// Exponential, with this mean.
    Exponential,
    /// Constant.
    Fixed,
}

#[derive(Debug, Subcommand)]
pub enum Set {
    /// Set a profile: replace the whole link, and restart its random processes
    Profile {
        /// Name of a profile, or a file (with a '/', or ending in .toml), or - for standard input
        #[arg(value_name = "NAME|FILE|-", add = ArgValueCompleter::new(complete::profile))]
        profile: String,
        /// Seed of all random processes; default: the current seed
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
        #[command(flatten)]
        condition: Condition,
    },
    #[command(flatten)]
    Patch(Patch),
}

/// Which part of the link to change.
#[derive(Clone, Debug, Subcommand)]
pub enum Patch {
    /// Change the rate
    ///
    /// A rate that varies (capacity, or shares of a reconfiguration) continues to vary, with the
    /// new rate as its peak; `set part 'capacity = "none"'` makes it constant. A trace
    /// or "unlimited" removes the variation.
    Rate {
        /// Rate such as 72Mbit/s, or unlimited, or down (packets wait in the queue)
        #[arg(value_name = "RATE|unlimited|down", value_parser = parse_rate, required_unless_present = "trace")]
        rate: Option<Rate>,
        /// Trace of rates: mahimahi, or CSV or Parquet with columns such as time_s and rate_mbps. It
        /// begins with the change and is repeated
        #[arg(long, value_name = "FILE", conflicts_with = "rate")]
        trace: Option<PathBuf>,
        /// Average the trace over steps of this length; default: the single opportunities of
        /// mahimahi, or the rows of CSV and Parquet
        #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "trace", conflicts_with = "rate")]
        trace_step: Option<u64>,
        #[command(flatten)]
        target: Target,
    },
    /// Add delay and loss from a trace
    ///
    /// A value applies for one step. `set part 'path_trace = "none"'` removes it.
    Path {
        /// Trace: CSV or Parquet with columns such as time_s, delay_ms and loss
        #[arg(value_name = "FILE")]
        trace: PathBuf,
        /// Average the trace over steps of this length; default: its rows
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        trace_step: Option<u64>,
        #[command(flatten)]
        target: Target,
    },
    /// Change the constant delay; excursions do not change
    ///
    /// The delay is one-way: `set delay 300ms` delays each direction by 300 ms, and adds 600 ms to a round
    /// trip. `set delay --rtt 600ms` is the same.
    Delay {
        /// One-way delay such as 300ms
        #[arg(value_name = "TIME", value_parser = parse_duration, required_unless_present = "rtt")]
        base: Option<u64>,
        /// Delay that both directions add to a round trip, half in each
        #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with_all = ["base", "direction"])]
        rtt: Option<u64>,
        /// Period of transmission slots, or none; default: unchanged
        #[arg(long, value_name = "TIME|none", value_parser = parse_slot)]
        slot: Option<u64>,
        #[command(flatten)]
        target: Target,
    },
    /// Change the limit of the queue, which each client has per direction, and its drops
    Queue {
        /// Limit of the queue, such as 36MB
        #[arg(value_name = "SIZE", value_parser = parse_size)]
        limit: u64,
        /// Drop arriving packets at random above this queue length; default: unchanged
        #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "drop_at_limit")]
        threshold: Option<u64>,
        /// Drop probability at the threshold
        #[arg(long, value_name = "PERCENT", value_parser = parse_probability, requires = "threshold", default_value = "0%")]
        drop_at_threshold: f64,
        /// Drop probability at the limit; it is linear in between
        #[arg(long, value_name = "PERCENT", value_parser = parse_probability, requires = "threshold")]
        drop_at_limit: Option<f64>,
        /// Drop packets at the limit only
        #[arg(long, conflicts_with_all = ["threshold", "drop_at_limit"])]
        tail_drop: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Replace all losses of the channel by a loss per packet, by outages, or by none
    ///
    /// Duplicates, bit errors and reordering do not change: `set part` changes them.
    #[command(group(ArgGroup::new("outages").required(true).args(["share", "every"])))]
    Loss {
        /// Loss probability of each packet, such as 1%; or none
        #[arg(value_name = "PERCENT|none", value_parser = parse_loss, conflicts_with = "duration")]
        share: Option<f64>,
        /// Outages: mean time from the end of one to the start of the next
        #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "duration")]
        every: Option<u64>,
        /// Outages: mean duration
        #[arg(long = "for", id = "duration", value_name = "TIME", value_parser = parse_duration, requires = "every")]
        duration: Option<u64>,
        /// Distribution of the duration
        #[arg(long, value_enum, default_value = "exponential")]
        law: Law,
        #[command(flatten)]
        target: Target,
    },
    /// Change any keys of a profile's [forward] and [return]; the others do not change
    #[command(after_help = PART_EXAMPLES)]
    Part {
        /// Keys with their values in TOML, such as 'duplicate = "0.1 %"'; "none" removes a table
        #[arg(required = true, value_name = "KEY = VALUE")]
        part: Vec<String>,
        #[command(flatten)]
        target: Target,
    },
}

/// All that loses packets on the channel.
const LOSSES: [&str; 6] =
    ["outages", "fade", "packet_loss", "gilbert_elliott", "four_state_loss", "drop_run"];

/// Makes a change of all links of the command or of none, and prints when it was applied.
pub async fn run(context: &Context, what: &Set) -> Result<(), Failure> {
    let (change, condition, remark): (pb::LinkUpdate, _, _) = match what {
        Set::Profile { profile, seed, condition } => {
            let profile = Some(requested(profile)?);
            (pb::ProfileUpdate { profile, seed: *seed }.into(), condition, None)
        }
        Set::Patch(what) => (pipe(what)?.into(), &what.target().condition, of_round_trip(what)),
    };
    let connection = Connection::open(context).await?;
    let mut answer = update(&connection, &context.linkd.links(), change, condition)
        .await
        .map_err(|failure| beside_file(failure, what))?;
    answer.links.iter_mut().for_each(|link| link.remarks.extend(remark.clone()));
    let profile = answer.links.first().and_then(|link| link.profile.as_ref());
    let profile = profile.map_or(String::new(), |profile| profile.name.clone());
    tell(context, &profile, &answer)
}

/// Makes a change of all of these links or of none; without a name, of the link of the connection.
pub async fn update(
    connection: &Connection,
    links: &[&str],
    update: pb::LinkUpdate,
    condition: &Condition,
) -> Result<pb::UpdateLinksResponse, Failure> {
    let update = pb::LinkUpdate {
        expected_generation: condition.expect_generation,
        lossy: condition.lossy,
        ..update
    };
    let updates = match links {
        [] => vec![pb::LinkUpdate { link: connection.link(), ..update }],
        links => {
            let named = |link: &&str| pb::LinkUpdate { link: link_name(link), ..update.clone() };
            links.iter().map(named).collect()
        }
    };
    let request = pb::UpdateLinksRequest { updates, request_id: condition.request_id.clone() };
    connection.call(|mut c| async move { c.update_links(request).await }).await
}

/// Names the file that the user may have meant by the name of a profile.
fn beside_file(failure: Failure, what: &Set) -> Failure {
    match what {
        Set::Profile { profile, .. }
            if failure.is_not_found() && Path::new(&format!("{profile}.toml")).is_file() =>
        {
            failure.hint(format!("{profile}.toml is a file: linkctl set profile ./{profile}.toml"))
        }
        _ => failure,
    }
}

/// Prints when a change was applied, of one link to `what` or of several.
pub fn tell(
    context: &Context,
    what: &str,
    answer: &pb::UpdateLinksResponse,
) -> Result<(), Failure> {
    if context.output == Output::Json {
        return output::message(answer);
    }
    let applied = answer.links.iter().filter_map(|link| link.applied);
    let last = applied.max_by_key(|applied| applied.effective_ns).unwrap_or_default();
    let at = instant::applied(&last, "at");
    let begin = if answer.repeated { "carried out before" } else { "in force" };
    let mut text = match &answer.links[..] {
        [_] if answer.repeated => format!("{begin}: {at}"),
        [_] => format!("{what} {begin}: {at}"),
        _ => {
            let seconds = instant::seconds(last.effective_ns);
            let utc = instant::utc(last.effective_utc.as_ref());
            let utc = utc.map_or(String::new(), |utc| format!(" ({utc})"));
            format!("{begin} at {seconds} of the dataplane's clock{utc}:")
        }
    };
    let is_one = answer.links.len() == 1;
    for pb::Link { name, profile, applied, remarks: notes, .. } in &answer.links {
        let applied = applied.unwrap_or_default();
        if !is_one {
            let profile = profile.as_ref().map_or("", |profile| &profile.name);
            let (link, generation) = (link_id(name), applied.generation);
            text.push_str(&format!("\n  {link}: {profile}, generation {generation}"));
        }
        for line in remarks(applied.lossy, notes) {
            text.push_str(if is_one { "\n" } else { "\n    " });
            text.push_str(&line);
        }
    }
    output::text(&text)
}

/// Remarks on a link that may surprise its owner, one per line.
pub fn remarks(lossy: bool, remarks: &[String]) -> impl Iterator<Item = String> {
    let warning = lossy.then(|| {
        "lossy: packets may be lost or late through the emulator's own fault (emulator drops in \
         `linkctl stats`)"
            .to_owned()
    });
    warning.into_iter().chain(remarks.iter().map(|remark| format!("note: {remark}")))
}

/// Hint for users who meant the round trip: the sum of a delay of both directions.
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
pub fn requested(profile: &str) -> Result<pb::profile_update::Profile, Failure> {
    use pb::profile_update::Profile::{Inline, Name};
    if profile == "-" {
        let text = std::io::read_to_string(std::io::stdin().take(profile::FILE_BYTES as u64))
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

impl Patch {
    pub fn target(&self) -> &Target {
        match self {
            Self::Rate { target, .. }
            | Self::Path { target, .. }
            | Self::Delay { target, .. }
            | Self::Queue { target, .. }
            | Self::Loss { target, .. }
            | Self::Part { target, .. } => target,
        }
    }
}

/// The values of a command, and their mask.
pub fn pipe(what: &Patch) -> Result<pb::PipeUpdate, Failure> {
    let mut pipe = pb::Pipe::default();
    let given: Vec<&str>;
    let paths: &[&str] = match what {
        Patch::Rate { trace: Some(path), trace_step, .. } => {
            pipe.rate_trace = Some(argument::trace(path, *trace_step)?);
            &["rate_trace"]
        }
        Patch::Path { trace, trace_step, .. } => {
            pipe.path_trace = Some(argument::path_trace(trace, *trace_step)?);
            &["path_trace"]
        }
        Patch::Rate { rate, .. } => {
            pipe.rate_bps = rate.and_then(Rate::bps);
            &["rate_bps"]
        }
        Patch::Delay { base, rtt, slot, .. } => {
            let slot_ns = slot.unwrap_or(0);
            let base_ns = base.or(rtt.map(|rtt| rtt / 2)).unwrap_or(0);
            pipe.delay = Some(pb::Delay { base_ns, slot_ns, ..Default::default() });
            match slot {
                Some(_) => &["delay.base_ns", "delay.slot_ns"],
                None => &["delay.base_ns"],
            }
        }
        Patch::Queue { limit, threshold, drop_at_threshold, drop_at_limit, tail_drop, .. } => {
            let random_drop = threshold.map(|threshold_bytes| pb::RandomDrop {
                threshold_bytes,
                probability_at_threshold: *drop_at_threshold,
                probability_at_limit: drop_at_limit.unwrap_or(*drop_at_threshold),
                ..Default::default()
            });
            pipe.queue = Some(pb::Queue { limit_bytes: *limit, random_drop, ..Default::default() });
            match random_drop {
                Some(_) => &["queue.limit_bytes", "queue.random_drop"],
                None if *tail_drop => &["queue"],
                None => &["queue.limit_bytes"],
            }
        }
        Patch::Loss { share, every, duration, law, .. } => {
            pipe.packet_loss = share.unwrap_or(0.0);
            let law = match law {
                Law::Exponential => pb::DurationLaw::Exponential,
                Law::Fixed => pb::DurationLaw::Fixed,
            };
            // Neither is given with a share.
            if let (Some(interval_ns), Some(duration_ns)) = (*every, *duration) {
                pipe.outages.push(pb::Outage { interval_ns, duration_ns, law: law as i32 });
            }
            // Includes all losses of the channel: the class alone would not give the target.
            &LOSSES
        }
        Patch::Part { part, .. } => {
            // One entry per line, so that the place of an error identifies it.
            let part = Part::from_toml(&part.join("\n"))
                .map_err(|violations| Failure::invalid("this is no part of a link", violations))?;
            (pipe, given) = (part.pipe, part.paths);
            &given
        }
    };
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    Ok(pb::PipeUpdate {
        direction: pb::Direction::from(what.target().direction) as i32,
        pipe: Some(pipe),
        mask: Some(prost_types::FieldMask { paths }),
        ..Default::default()
    })
}

/// A share of packets, or none.
fn parse_loss(text: &str) -> Result<f64, UnitError> {
    if text == "none" { Ok(0.0) } else { parse_probability(text) }
}

fn parse_slot(text: &str) -> Result<u64, UnitError> {
    if text == "none" { Ok(0) } else { parse_duration(text) }
}
