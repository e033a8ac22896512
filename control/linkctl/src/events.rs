// SPDX-License-Identifier: Apache-2.0
//! `linkctl events`: past and current events.

use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use proto::linkemu::v1 as pb;
use proto::{MAIN_LINK, link_id};
use view::instant;

pub const EXAMPLES: &str = "\
Examples:
  linkctl events                            the events that linkd stores
  linkctl events --follow                   and all further ones
  linkctl events --after 17                 those after number 17
  linkctl --link lab1 events                those of one link
  linkctl -o json events --follow | jq -c 'select(.kind == \"EVENT_KIND_LINK_CHANGED\")'

Each event has a UTC timestamp and, for a change, one of the dataplane's clock, which captures have
too. Numbers restart with linkd.";

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Show only events after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Show further events until interrupted
    #[arg(short, long)]
    follow: bool,
}

pub async fn run(context: &Context, args: &EventsArgs) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let request = pb::WatchEventsRequest { after: Some(args.after), once: !args.follow };
    let mut events = connection.answer(connection.events().watch_events(request)).await?;
    while let Some(event) = events.message().await.map_err(|status| connection.failure(&status))? {
        let about = if event.link.is_empty() { MAIN_LINK } else { link_id(&event.link) };
        if context.linkd.link().is_some_and(|link| link != about) {
            continue;
        }
        match context.output {
            Output::Json => output::message(&event)?,
            Output::Text => output::text(&line(&event))?,
        }
    }
    Ok(())
}

/// An event as text has it.
pub fn line(event: &pb::Event) -> String {
    let pb::Event { sequence, who, subject, message, .. } = event;
    let (kind, link) = (event.kind().as_str_name(), link_id(&event.link));
    let kind = kind.strip_prefix("EVENT_KIND_").unwrap_or(kind);
    let utc = instant::utc(event.utc.as_ref()).unwrap_or_else(|| "-".to_owned());
    let who = if who.is_empty() { "linkd" } else { who };
    let of = if subject.is_empty() { String::new() } else { format!(" {subject}") };
    let on = if link.is_empty() { String::new() } else { format!(" on {link}") };
    format!("{sequence:>5}  {utc}  {kind}{of}{on} by {who}: {message}")
}
