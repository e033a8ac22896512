// SPDX-License-Identifier: Apache-2.0
//! `linkctl switch`: the P4 switch between the hosts and the box.

use crate::complete;
use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use crate::target::Direction;
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use proto::linkemu::v1 as pb;
use view::{Stage, Switch, stages};

pub const EXAMPLES: &str = "\
Examples:
  linkctl switch show                       is it ready, what it counted, how long frames took
  linkctl -o json switch show | jq .forward_excess_ns
  linkctl switch gate close --client 10.0.0.2 --direction forward
  linkctl switch gate open --client 10.0.0.2
  linkctl switch mirror alice               copies of alice's frames, for tcpdump at that port
  linkctl show                              where each stage of the link runs, and why there

A switch is declared in the box's file ([switch]); linkd then gives it its program and its
tables. It tells packets' clients, loses and marks packets where it does so exactly as the
dataplane would, and measures from outside how long the emulator kept them.

Frames by what it did: received from hosts, returned by the box, and of these delivered to
hosts, lost, or gated (behind a closed gate). What it lost and gated is in `linkctl stats`
among the drops, as loss and outage.";

/// Shown by `--help` of the gates.
pub const GATE_EXAMPLES: &str = "\
Examples:
  linkctl switch gate close                 nobody's frames leave the switch, in either direction
  linkctl switch gate close --client alice --direction return
  linkctl switch gate open                  the gate of all; a client's own stays closed

A closed gate is an outage from now on until it is opened; ARP and neighbour discovery pass. It
is no part of a profile, and all are open when linkd starts. Frames pass where neither their
client's gate nor that of all is closed.";

/// Shown by `--help` of the copies.
pub const MIRROR_EXAMPLES: &str = "\
Examples:
  linkctl switch mirror alice               each frame of alice that the switch gives to a host
  linkctl switch mirror alice 10.0.0.2 --direction forward --at both
  linkctl switch mirror --all --at box      all frames of hosts, as they go to the box
  linkctl switch mirror --off
  tcpdump -ni eth6                          at the far end of the port `mirror` of the box's file

The switch sends a copy of each of these frames to its port `mirror` ([switch] in the box's file).
The frames, their fates and all other counts are as without it, so what tcpdump sees there is a
witness of its own: at the box before the emulator, at the hosts after it. Frames on their way to
the box have a shim before them, 32 bytes with EtherType 0x88b5. A frame for all hosts of a side is
copied once. `linkctl switch show` counts the copies, and those that the port did not send.

A new order replaces the one before. It follows clients that get another number or box, and ends
with --off, or with linkd.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show whether it is ready, what it counted, and how long frames were away
    Show,
    /// Let no frame of a client out, or let them out again
    #[command(after_help = GATE_EXAMPLES, arg_required_else_help = true)]
    Gate {
        #[command(subcommand)]
        what: Gate,
    },
    /// Copy the frames of clients to the switch's port for copies
    #[command(after_help = MIRROR_EXAMPLES, arg_required_else_help = true)]
    Mirror(Mirror),
}

#[derive(Debug, Args)]
#[group(id = "whose", required = true, multiple = false)]
pub struct Whose {
    /// Names or addresses of clients, as in `linkctl clients list`
    #[arg(value_name = "CLIENT", add = ArgValueCompleter::new(complete::client))]
    clients: Vec<String>,
    /// Of all clients, and frames that belong to none
    #[arg(long)]
    all: bool,
    /// Copy no frames
    #[arg(long, conflicts_with_all = ["direction", "at"])]
    off: bool,
}

#[derive(Debug, Args)]
pub struct Mirror {
    #[command(flatten)]
    whose: Whose,
    /// Towards the client, from it, or both
    #[arg(short, long, value_enum, default_value = "both")]
    direction: Direction,
    /// Which frames: those that go to the box, those that go to hosts, or both
    #[arg(long, value_enum, default_value = "hosts")]
    at: At,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum At {
    /// As hosts sent them, on their way to the box
    Box,
    /// As hosts get them
    Hosts,
    /// At both
    Both,
}

#[derive(Debug, Subcommand)]
pub enum Gate {
    /// Let no frame out: an outage
    Close(Of),
    /// Let frames out again
    Open(Of),
}

#[derive(Clone, Debug, Args)]
pub struct Of {
    /// A client's name or address, as in `linkctl clients list`; without it, that of all
    #[arg(long, value_name = "CLIENT", default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::client))]
    client: String,
    /// Towards the client, from it, or both
    #[arg(short, long, value_enum, default_value = "both")]
    direction: Direction,
}

pub async fn run(context: &Context, what: &Command) -> Result<(), Failure> {
    match what {
        Command::Show => show(context).await,
        Command::Gate { what: Gate::Close(of) } => gate(context, of, true).await,
        Command::Gate { what: Gate::Open(of) } => gate(context, of, false).await,
        Command::Mirror(of) => mirror(context, of).await,
    }
}

async fn show(context: &Context) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let mut client = connection.switch();
    // The wires are those of the last snapshot.
    let request = pb::GetStatsRequest { mark: false };
    connection.call(|mut c| async move { c.get_stats(request).await }).await?;
    let switch = Switch::from(connection.answer(client.get_switch(pb::GetSwitchRequest {})).await?);
    match context.output {
        Output::Json => output::json(&switch),
        _ => output::text(&switch.table()),
    }
}

async fn gate(context: &Context, of: &Of, closed: bool) -> Result<(), Failure> {
    let direction = asked(of.direction) as i32;
    let gate = pb::Gate { client: of.client.clone(), direction };
    let connection = Connection::open(context).await?;
    let request = pb::SetGateRequest { gate: Some(gate), closed };
    connection.answer(connection.switch().set_gate(request)).await?;
    let client = if of.client.is_empty() { "all clients" } else { &of.client };
    let (state, direction) = (if closed { "closed" } else { "open" }, way(of.direction));
    if context.output == Output::Json {
        let (client, all) = (&of.client, of.client.is_empty());
        return output::json(&serde_json::json!({
            "client": client, "all": all, "direction": direction, "closed": closed,
        }));
    }
    output::text(&format!("the gate of {client}, {direction}, is {state}"))
}

async fn mirror(context: &Context, of: &Mirror) -> Result<(), Failure> {
    let Whose { clients, all, off } = &of.whose;
    let at = match of.at {
        At::Box => pb::MirrorPoint::Box,
        At::Hosts => pb::MirrorPoint::Hosts,
        At::Both => pb::MirrorPoint::Unspecified,
    };
    let mirror = if *off {
        pb::Mirror::default()
    } else {
        let direction = asked(of.direction) as i32;
        pb::Mirror { clients: clients.clone(), all: *all, direction, at: at as i32 }
    };
    let connection = Connection::open(context).await?;
    let request = pb::SetMirrorRequest { mirror: Some(mirror) };
    connection.answer(connection.switch().set_mirror(request)).await?;
    let (direction, at) = (way(of.direction), place(of.at));
    if context.output == Output::Json {
        return output::json(&serde_json::json!({
            "clients": clients, "all": all, "direction": direction, "at": at, "off": off,
        }));
    }
    let whose = if *all { "all clients".to_owned() } else { clients.join(", ") };
    output::text(&match off {
        true => "no frames are copied".to_owned(),
        false => format!("frames of {whose}, {direction}, are copied at {at}"),
    })
}

fn place(at: At) -> &'static str {
    match at {
        At::Box => "box",
        At::Hosts => "hosts",
        At::Both => "both",
    }
}

fn asked(direction: Direction) -> pb::Direction {
    match direction {
        Direction::Forward => pb::Direction::Forward,
        Direction::Return => pb::Direction::Return,
        Direction::Both => pb::Direction::Unspecified,
    }
}

fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Return => "return",
        Direction::Both => "both",
    }
}

/// Where each stage runs; none without a switch.
pub async fn places(connection: &Connection) -> Result<Option<Vec<Stage>>, Failure> {
    let mut client = connection.switch();
    let state = connection.optional(client.get_switch(pb::GetSwitchRequest {})).await?;
    Ok(state.map(|state| Switch::from(state).stages))
}

/// Where each stage runs, as comments of a profile.
pub fn comments(places: &[Stage]) -> String {
    stages(places).lines().map(|line| format!("# {}\n", line.trim())).collect()
}
