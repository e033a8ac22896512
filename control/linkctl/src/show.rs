// SPDX-License-Identifier: Apache-2.0
//! A link as linkctl shows it: TOML for people, JSON for programs.

use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use crate::set;
use crate::switch;
use clap::Args;
use profile::Profile;
use proto::linkemu::v1 as pb;
use view::instant;

pub const EXAMPLES: &str = "\
Examples:
  linkctl show > my-link.toml               save it, edit it, rename it, and
  linkctl set profile ./my-link.toml        set it
  linkctl show --provenance                 with the measurements behind a fitted profile
  linkctl -o json show | jq .applied.generation";

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Show the provenance of a fitted profile too: its log, estimates and tests
    #[arg(long)]
    pub provenance: bool,
}

pub async fn run(context: &Context, args: &ShowArgs) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let link = connection.get_link().await?;
    if context.output == Output::Json {
        return output::message(&link);
    }
    let pb::Link { profile, seed, applied, remarks, .. } = link;
    let applied = applied.unwrap_or_default();
    let stages = switch::places(&connection).await?;
    match profile {
        None => output::text("# no profile is set: set one, such as `linkctl set profile viasat2`"),
        Some(mut profile) => {
            let provenance = match profile.provenance.take_if(|_| !args.provenance) {
                Some(left_out) => format!(
                    "# Fitted to {}; not shown: linkctl show --provenance\n",
                    left_out.source
                ),
                None => String::new(),
            };
            let since = instant::applied(&applied, "since");
            let toml = toml(profile)?;
            let remarks = set::remarks(applied.lossy, &remarks);
            let remarks: String = remarks.map(|line| format!("# {line}\n")).collect();
            let places = match stages {
                Some(stages) => format!("# Where its stages run:\n{}", switch::comments(&stages)),
                None => String::new(),
            };
            output::text(&format!(
                "# In force: {since}; seed {seed}.\n{remarks}{places}{provenance}{toml}"
            ))
        }
    }
}

/// Converts a profile from linkd to TOML.
pub fn toml(profile: pb::Profile) -> Result<String, Failure> {
    let understood = Profile::try_from(profile).map_err(|violations| {
        Failure::invalid("linkd sent a profile that this linkctl does not understand", violations)
    })?;
    Ok(understood.to_toml())
}
