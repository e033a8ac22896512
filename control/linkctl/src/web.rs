// SPDX-License-Identifier: Apache-2.0
//! `linkctl web`: a link that logs a browser in to linkd's web page, once.

use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use profile::format_duration;
use proto::linkemu::v1 as pb;
use view::instant;

pub const EXAMPLES: &str = "\
Examples:
  linkctl web                               a login URL; open it in a browser
  linkctl web --role viewer                 for a screen on the wall
  linkctl -o json web | jq -r .url
  ssh -L 8480:127.0.0.1:8480 box linkctl web         on a box without a browser

The URL is valid once, for two minutes. Anyone with the URL has the rights of its role.";

#[derive(Debug, Args)]
pub struct WebArgs {
    /// Role of the browser session, at most your own; default: your own
    #[arg(long, value_name = "ROLE", value_parser = ["viewer", "operator", "admin"])]
    role: Option<String>,
}

pub async fn run(context: &Context, args: &WebArgs) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let request = pb::CreateWebLoginRequest { role: args.role.clone().unwrap_or_default() };
    let answer = connection.answer(connection.web().create_web_login(request)).await?;
    let pb::CreateWebLoginResponse { url, expires, session_ns, role, .. } = &answer;
    let expires = instant::utc(expires.as_ref());
    match context.output {
        Output::Json => output::message(&answer),
        Output::Text => output::text(&format!(
            "{url}\nonce, until {}; then you are {role} for {}",
            expires.as_deref().unwrap_or("an unknown time"),
            format_duration(*session_ns)
        )),
    }
}
