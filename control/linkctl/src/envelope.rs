// SPDX-License-Identifier: Apache-2.0
//! `linkctl envelope`: the load that is possible without loss, with the same figures by which the
//! dataplane accepts and refuses plans ([`emu::envelope`]).
//!
//! Memory, ports and clients are those of the running dataplane, or those that are
//! given. If all three are given nothing is asked of linkd, and profiles are the built-in
//! ones.

use crate::complete;
use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use ::envelope::{Instead, message};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use emu::envelope::MAX_CLIENTS;
use emu::plan::{Plan, Room};
use profile::{Catalog, Profile, parse_rate, parse_size};
use proto::linkemu::v1 as pb;
use std::path::Path;

pub const EXAMPLES: &str = "\
Examples:
  linkctl envelope                          of the running dataplane
  linkctl envelope --profile viasat2        does it fit, and with which values?
  linkctl envelope --profile viasat2 --clients 1000
  linkctl envelope --memory 4GiB --port-rate 10Gbit/s --clients 100
                                            of a planned box: needs no linkd
  linkctl envelope --profile ./mine.toml -o json | jq .profile.delay_ns

A link holds rate × delay, and its queues. The table shows the longest delay, the sum of forward
and return, that fits into the memory if both directions carry the rate. `set` refuses links by the
same rules, for frames of any length.

Exit code 4 if the profile does not fit.";

/// Room, clients and profile of the envelope.
#[derive(Debug, Args)]
pub struct EnvelopeArgs {
    /// Show whether this profile fits, and the limit of each parameter: a name, or a file
    /// (with a '/', or ending in .toml)
    #[arg(long, value_name = "NAME|FILE", add = ArgValueCompleter::new(complete::profile))]
    profile: Option<String>,
    /// Number of clients; default: --max-clients of the dataplane
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CLIENTS)))]
    clients: Option<u32>,
    /// Memory for packets; default: --memory of the dataplane
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Workers that share the memory; default: those of the dataplane, or 1 without linkd
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// Rate of a port; default: that of the dataplane's ports
    #[arg(long, value_name = "RATE", value_parser = port_rate)]
    port_rate: Option<u64>,
    /// Longest frame without FCS; default: that of the dataplane's ports, or 1514 B without
    /// linkd
    #[arg(long, value_name = "SIZE", value_parser = frame)]
    max_frame: Option<u32>,
}

fn port_rate(text: &str) -> Result<u64, String> {
    match parse_rate(text).map_err(|error| error.to_string())?.bps() {
        Some(bps) if bps > 0 => Ok(bps),
        _ => Err(format!("{text:?} is no rate of a port: write one such as \"10 Gbit/s\"")),
    }
}

fn frame(text: &str) -> Result<u32, String> {
    let most = emu::store::MAX_FRAME;
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    u32::try_from(bytes).ok().filter(|bytes| (14..=most).contains(bytes)).ok_or_else(|| {
        format!("{text:?} is not within 14 B, an Ethernet header, and {most} B, what is held")
    })
}

pub async fn run(context: &Context, args: &EnvelopeArgs) -> Result<(), Failure> {
    // Faults of a file are reported before linkd is asked.
    let file = args.profile.as_deref().filter(|p| p.contains('/') || p.ends_with(".toml"));
    let file = file.map(|path| Profile::from_file(Path::new(path))).transpose()?;
    let (room, profile) = match args.instead().alone() {
        Some(room) => {
            let named = args.profile.as_deref().filter(|_| file.is_none());
            (room, named.map(built_in).transpose()?.or(file))
        }
        None => online(context, args, file).await?,
    };
    let plan = profile.map(|profile| compile(&profile).map(|plan| (profile, plan))).transpose()?;
    let profile = plan.as_ref().map(|(profile, plan)| (profile.name(), plan));
    let answer = message(room, profile);
    match context.output {
        Output::Text => output::text(&answer.text)?,
        Output::Json => output::message(&answer)?,
    }
    match answer.profile {
        Some(of) if !of.fits => {
            Err(Failure::check(format!("{} does not fit: {}", of.name, of.excesses.join("; "))))
        }
        _ => Ok(()),
    }
}

impl EnvelopeArgs {
    fn instead(&self) -> Instead {
        Instead {
            clients: self.clients,
            memory: self.memory,
            workers: self.workers,
            port_bps: self.port_rate,
            frame: self.max_frame,
        }
    }
}

async fn online(
    context: &Context,
    args: &EnvelopeArgs,
    file: Option<Profile>,
) -> Result<(Room, Option<Profile>), Failure> {
    let without = "without linkd: give --memory, --port-rate and --clients";
    let asking = async {
        let connection = Connection::open(context).await?;
        let request = pb::GetRoomRequest { link: connection.link() };
        let room = connection.call(|mut c| async move { c.get_room(request).await }).await?;
        Ok((connection, room))
    };
    let (connection, room) = asking.await.map_err(|failure: Failure| failure.hint(without))?;
    let room = args.instead().of(&room);
    let Some(name) = args.profile.clone().filter(|_| file.is_none()) else {
        return Ok((room, file));
    };
    let request = pb::GetProfileRequest { name };
    let profile = connection.call(|mut c| async move { c.get_profile(request).await }).await?;
    let profile = Profile::try_from(profile).map_err(|violations| {
        Failure::invalid("linkd sent a profile that this linkctl does not understand", violations)
    })?;
    Ok((room, Some(profile)))
}

fn built_in(name: &str) -> Result<Profile, Failure> {
    let catalog = Catalog::built_in();
    catalog.get(name).cloned().ok_or_else(|| {
        let near = catalog.nearest(name).unwrap_or("viasat2");
        let message = format!("no built-in profile is named {name:?}: the nearest is {near:?}");
        Failure::failed("not_found", message).hint("of a profile of your own, give the file")
    })
}

/// The plan of a profile.
pub fn compile(profile: &Profile) -> Result<Plan, Failure> {
    ::envelope::compile(profile)
        .map_err(|violations| Failure::invalid("the profile is not valid", violations))
}
