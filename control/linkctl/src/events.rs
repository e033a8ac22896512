// SPDX-License-Identifier: Apache-2.0
//! `linkctl events`: past and current events.

use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use proto::linkemu::v1 as pb;
use proto::{MAIN_LINK, link_id};
use serde::Serialize;
use view::instant;

pub const EXAMPLES: &str = "\
Examples:
  linkctl events                            the events that linkd stores
  linkctl events --follow                   and all further ones
  linkctl events --after 17                 those after number 17
  linkctl --link lab1 events                those of one link
  linkctl -o json events --follow | jq -c 'select(.kind == \"LINK_CHANGED\")'

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

#[derive(Serialize)]
struct View<'a> {
    sequence: u64,
    utc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ns: Option<u64>,
    kind: &'a str,
    who: &'a str,
    subject: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    /// Absent: main, or the box.
    #[serde(skip_serializing_if = "str::is_empty")]
    link: &'a str,
}

impl<'a> From<&'a pb::Event> for View<'a> {
    fn from(event: &'a pb::Event) -> Self {
        let kind = event.kind().as_str_name();
        Self {
            sequence: event.sequence,
            utc: instant::utc(event.utc.as_ref()),
            time_ns: event.time_ns,
            kind: kind.strip_prefix("EVENT_KIND_").unwrap_or(kind),
            who: &event.who,
            subject: &event.subject,
            message: &event.message,
            generation: event.generation,
            link: link_id(&event.link),
        }
    }
}

pub async fn run(context: &Context, args: &EventsArgs) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let request = pb::WatchEventsRequest { after: Some(args.after), once: !args.follow };
    let mut events = connection.answer(connection.events().watch_events(request)).await?;
    while let Some(event) = events.message().await.map_err(|status| connection.failure(&status))? {
        let view = View::from(&event);
        let about = if view.link.is_empty() { MAIN_LINK } else { view.link };
        if context.linkd.link().is_some_and(|link| link != about) {
            continue;
        }
        match context.output {
            Output::Json => output::json(&view)?,
            Output::Text => output::text(&line(&view))?,
        }
    }
    Ok(())
}

/// An event as text has it.
pub fn told(event: &pb::Event) -> String {
    line(&View::from(event))
}

fn line(event: &View<'_>) -> String {
    let View { sequence, kind, who, subject, message, link, .. } = event;
    let utc = event.utc.as_deref().unwrap_or("-");
    let who = if who.is_empty() { "linkd" } else { who };
    let of = if subject.is_empty() { String::new() } else { format!(" {subject}") };
    let on = if link.is_empty() { String::new() } else { format!(" on {link}") };
    format!("{sequence:>5}  {utc}  {kind}{of}{on} by {who}: {message}")
}
