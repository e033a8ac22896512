// SPDX-License-Identifier: Apache-2.0
//! The same change of several links at one instant.

use super::{Change, remarks};
use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use proto::linkemu::v1 as pb;
use proto::{link_id, link_name};
use serde::Serialize;
use view::instant;

#[derive(Serialize)]
struct View<'a> {
    effective_ns: u64,
    effective_utc: Option<String>,
    repeated: bool,
    links: Vec<LinkView<'a>>,
}

#[derive(Serialize)]
struct LinkView<'a> {
    link: &'a str,
    generation: u64,
    profile: &'a str,
    seed: u64,
    lossy: bool,
    remarks: &'a [String],
}

impl<'a> From<&'a pb::LinkChanged> for LinkView<'a> {
    fn from(changed: &'a pb::LinkChanged) -> Self {
        let change = changed.change.as_ref();
        let applied = change.and_then(|change| change.applied).unwrap_or_default();
        let profile = change.and_then(|change| change.profile.as_ref());
        Self {
            link: link_id(&changed.link),
            generation: applied.generation,
            profile: profile.map_or("", |profile| &profile.name),
            seed: change.map_or(0, |change| change.seed),
            lossy: applied.lossy,
            remarks: change.map_or(&[], |change| &change.remarks),
        }
    }
}

/// Makes a change of all links or of none, and prints when it was applied.
pub async fn run(
    context: &Context,
    links: &[&str],
    mut change: Change,
    remark: Option<String>,
) -> Result<(), Failure> {
    let request_id = match &mut change {
        Change::SetProfile(request) => std::mem::take(&mut request.request_id),
        Change::PatchLink(request) => std::mem::take(&mut request.request_id),
    };
    let change =
        |link: &&str| pb::LinkChange { link: link_name(link), change: Some(change.clone()) };
    let changes = links.iter().map(change).collect();
    let request = pb::ChangeLinksRequest { changes, request_id };
    let connection = Connection::open(context).await?;
    let answer = connection.call(|mut c| async move { c.change_links(request).await }).await?;
    let links: Vec<LinkView<'_>> = answer.changes.iter().map(LinkView::from).collect();
    let pb::ChangeLinksResponse { effective_ns, effective_utc, repeated, .. } = answer;
    let utc = instant::utc(effective_utc.as_ref());
    match context.output {
        Output::Json => output::json(&View { effective_ns, effective_utc: utc, repeated, links }),
        Output::Text => {
            let begin = if repeated { "carried out before" } else { "in force" };
            let seconds = instant::seconds(effective_ns);
            let utc = utc.map_or(String::new(), |utc| format!(" ({utc})"));
            let mut text = format!("{begin} at {seconds} of the dataplane's clock{utc}:");
            for LinkView { link, generation, profile, lossy, remarks: notes, .. } in &links {
                text.push_str(&format!("\n  {link}: {profile}, generation {generation}"));
                for line in remarks(*lossy, notes) {
                    text.push_str(&format!("\n    {line}"));
                }
            }
            if let Some(line) = remark {
                text.push_str(&format!("\nnote: {line}"));
            }
            output::text(&text)
        }
    }
}
