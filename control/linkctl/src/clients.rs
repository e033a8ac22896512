// SPDX-License-Identifier: Apache-2.0
//! `linkctl clients`: the assignment of frames to clients.

use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use crate::set;
use crate::target::{Condition, Direction, Target};
use ::clients::Clients;
use clap::Subcommand;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use profile::{Rate, parse_rate};
use proto::linkemu::v1 as pb;
use std::path::PathBuf;
use view::instant;

/// Shown by `--help`.
pub const EXAMPLES: &str = "\
Examples:
  linkctl clients set clients.toml          replaces the rules for clients
  linkctl clients show > clients.toml       save it, edit it, and set it again
  linkctl clients list                      all clients with their counters
  linkctl clients clear                     each address is a client again
  linkctl clients beam b1 200Mbit/s --direction forward

A file of clients:
  [automatic]
  limit = 100                               further addresses share the default client
  [[client]]
  name = \"alice\"
  prefix = [\"10.1.0.0/24\", \"2001:db8:1::/48\"]
  vlan = [100]                              id of the outermost tag
  mac = [\"02:00:00:00:00:01\"]               MAC address of the client
  beam = \"b1\"                               and weight = 2, if not 1
  [[client.match]]                          a frame has to meet all conditions
  prefix = \"10.2.0.0/24\"                    client side; other side: remote_prefix
  protocol = \"udp\"                          tcp, udp, icmp, icmpv6 or a number
  port = \"5000-5010\"                        client side; other side: remote_port
  dscp = 46                                 also vlan, inner_vlan, mac, flow_label, priority
  port_pair = \"b\"                           the ports wan.b and client.b

  [[beam]]
  name = \"b1\"
  forward_rate = \"400 Mbit/s\"               shared by weight; return_rate likewise

Matches have precedence over other rules. Of several matches, the one with the highest priority
applies, then the one with the longest prefix, the longest remote_prefix and the most conditions. MAC
rules have precedence over VLAN rules, and those over prefix rules, the longest prefix first.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replace the rules for clients; the profile does not change
    Set {
        /// File of clients, in TOML
        file: PathBuf,
        #[command(flatten)]
        condition: Condition,
    },
    /// Show the rules for clients as a file, which can be saved and set again
    Show,
    /// List all clients with their counters
    List,
    /// Remove the rules: each address is a client
    Clear {
        #[command(flatten)]
        condition: Condition,
    },
    /// Change the rate of a beam
    Beam {
        /// Name of the beam
        name: String,
        /// Rate such as 200Mbit/s, or unlimited, or down (packets wait)
        #[arg(value_name = "RATE|unlimited|down", value_parser = parse_rate)]
        rate: Rate,
        #[command(flatten)]
        target: Target,
    },
}

pub async fn run(context: &Context, what: &Command) -> Result<(), Failure> {
    match what {
        Command::Set { file, condition } => {
            set(context, Clients::from_file(file)?, condition).await
        }
        Command::Clear { condition } => set(context, Clients::default(), condition).await,
        Command::Beam { name, rate, target } => beam(context, name, *rate, target).await,
        Command::Show => show(context).await,
        Command::List => list(context).await,
    }
}

/// Replaces the current clients unless they were changed meanwhile.
async fn beam(context: &Context, name: &str, rate: Rate, target: &Target) -> Result<(), Failure> {
    if !target.condition.request_id.is_empty() {
        return Err(Failure::usage(
            "--request-id names a request that can be sent again as it is, and this one is made of \
             what is in force: leave it out, or use `linkctl clients set`",
        ));
    }
    let connection = Connection::open(context).await?;
    let request = pb::GetClientsRequest { link: connection.link() };
    let answer = connection.call(|mut c| async move { c.get_clients(request).await }).await?;
    let mut clients = answer.clients.unwrap_or_default();
    let Some(beam) = clients.beams.iter_mut().find(|beam| beam.name == name) else {
        let message = format!("no beam is named {name:?}: see `linkctl clients show`");
        return Err(Failure::failed("not_found", message));
    };
    if target.direction != Direction::Return {
        beam.forward_rate_bps = rate.bps();
    }
    if target.direction != Direction::Forward {
        beam.return_rate_bps = rate.bps();
    }
    let mut condition = target.condition.clone();
    let in_force = answer.applied.map(|applied| applied.generation);
    condition.expect_generation = condition.expect_generation.or(in_force);
    let clients = Clients::try_from(clients)
        .map_err(|violations| Failure::invalid("the beam cannot be so", violations))?;
    set(context, clients, &condition).await
}

async fn set(context: &Context, clients: Clients, condition: &Condition) -> Result<(), Failure> {
    let change = clients.into_proto().into();
    let connection = Connection::open(context).await?;
    let answer = set::update(&connection, &[], change, condition).await?;
    set::tell(context, "clients", &answer)
}

async fn show(context: &Context) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let request = pb::GetClientsRequest { link: connection.link() };
    let answer = connection.call(|mut c| async move { c.get_clients(request).await }).await?;
    if context.output == Output::Json {
        return output::message(&answer);
    }
    let applied = answer.applied.unwrap_or_default();
    let clients = answer.clients.unwrap_or_default();
    let since = instant::applied(&applied, "since");
    let clients = Clients::try_from(clients).map_err(|violations| {
        Failure::invalid("linkd sent clients that this linkctl does not understand", violations)
    })?;
    let none = match *clients.as_proto() == pb::Clients::default() {
        true => "# Nothing is said of the clients: each address is one.\n",
        false => "",
    };
    output::text(&format!("# In force: {since}.\n{none}{}", clients.to_toml()))
}

async fn list(context: &Context) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let request = pb::ListClientsRequest { link: connection.link() };
    let mut parts = connection.call(|mut c| async move { c.list_clients(request).await }).await?;
    let mut answer = pb::ListClientsResponse::default();
    while let Some(part) = parts.message().await.map_err(|status| connection.failure(&status))? {
        answer.clients.extend(part.clients);
    }
    if context.output == Output::Json {
        return output::message(&answer);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "CLIENT",
        "KIND",
        "BEAM",
        "DIRECTION",
        "RECEIVED",
        "SENT",
        "DROPPED",
        "HELD",
    ]);
    for column in table.column_iter_mut().skip(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for state in &answer.clients {
        let pb::ClientState { client, beam, weight, forward_account, return_account, .. } = state;
        let beam = if beam.is_empty() { "-".to_owned() } else { format!("{beam}/{weight}") };
        let kind = match state.kind() {
            _ if state.removed => "removed",
            pb::ClientKind::Named => "named",
            pb::ClientKind::Automatic => "automatic",
            pb::ClientKind::Default => "default",
            pb::ClientKind::Bypass => "bypass",
            pb::ClientKind::Unspecified => "unspecified",
        };
        for (way, account) in [("forward", forward_account), ("return", return_account)] {
            let of = account.unwrap_or_default();
            let counts = [of.received(), of.sent(), of.dropped(), of.held()];
            let row = [client.clone(), kind.to_owned(), beam.clone(), way.to_owned()];
            table.add_row(row.into_iter().chain(counts.map(|count| count.packets.to_string())));
        }
    }
    output::text(&table.trim_fmt())
}
