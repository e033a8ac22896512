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
use view::stages;

pub const EXAMPLES: &str = "\
Examples:
  linkctl switch show                       state, counters, transit times
  linkctl -o json switch show | jq .forward_excess
  linkctl switch gate close --client 10.0.0.2 --direction forward
  linkctl switch gate open --client 10.0.0.2
  linkctl switch mirror alice               copies of the frames of alice, for tcpdump
  linkctl show                              place of each stage of the link, with the reason

A switch is declared in the box file ([switch]); linkd loads its program and writes its tables. The
switch classifies packets, loses and marks them where the result is exactly that of the dataplane, and
measures from outside how long the emulator held them.

The frames are counted by fate: received from hosts, returned by the box, and of the latter delivered
to hosts, lost, or gated (by a closed gate). `linkctl stats` counts lost and gated frames as drops, with
the reasons loss and outage.";

/// Shown by `--help` of the gates.
pub const GATE_EXAMPLES: &str = "\
Examples:
  linkctl switch gate close                 no frame leaves the switch, in either direction
  linkctl switch gate close --client alice --direction return
  linkctl switch gate open                  opens the gate of all; gates of clients stay closed

A closed gate is an outage until it is opened; ARP and neighbour discovery pass. Gates are not part of
a profile, and all are open when linkd starts. A frame passes if neither the gate of its client nor the
gate of all is closed.";

/// Shown by `--help` of the copies.
pub const MIRROR_EXAMPLES: &str = "\
Examples:
  linkctl switch mirror alice               frames of alice that the switch sends to hosts
  linkctl switch mirror alice 10.0.0.2 --direction forward --at both
  linkctl switch mirror --all --at box      all frames of hosts, on their way to the box
  linkctl switch mirror --off
  tcpdump -ni eth6                          at the far end of the port `mirror` of the box file

The switch sends a copy of each of these frames to its port `mirror` ([switch] in the box file). The
frames, their fates and all other counters do not change, so the copies are an independent record:
before the emulator (box) or after it (hosts). Copies of frames on their way to the box begin with a
shim of 32 bytes with EtherType 0x88b5. A frame for all hosts of a side is copied once. `linkctl switch
show` counts the copies, and those that the port did not send.

A new mirror replaces the previous one. It follows clients to another number or box, and ends with
--off or with linkd.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the state of the switch, its counters and transit times
    Show,
    /// Close or open the gate of a client: an outage
    #[command(after_help = GATE_EXAMPLES, arg_required_else_help = true)]
    Gate {
        #[command(subcommand)]
        what: Gate,
    },
    /// Copy frames of clients to the mirror port of the switch
    #[command(after_help = MIRROR_EXAMPLES, arg_required_else_help = true)]
    Mirror(Mirror),
}

#[derive(Debug, Args)]
#[group(id = "whose", required = true, multiple = false)]
pub struct Whose {
    /// Names or addresses of clients, as in `linkctl clients list`
    #[arg(value_name = "CLIENT", add = ArgValueCompleter::new(complete::client))]
    clients: Vec<String>,
    /// Copy the frames of all clients, and frames without a client
    #[arg(long)]
    all: bool,
    /// Stop copying
    #[arg(long, conflicts_with_all = ["direction", "at"])]
    off: bool,
}

#[derive(Debug, Args)]
pub struct Mirror {
    #[command(flatten)]
    whose: Whose,
    /// Direction of the frames: towards the client, from it, or both
    #[arg(short, long, value_enum, default_value = "both")]
    direction: Direction,
    /// Place: frames on their way to the box, to the hosts, or both
    #[arg(long, value_enum, default_value = "hosts")]
    at: At,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum At {
    /// On their way to the box, as hosts sent them
    Box,
    /// On their way to the hosts
    Hosts,
    /// Both places
    Both,
}

#[derive(Debug, Subcommand)]
pub enum Gate {
    /// Close the gate: no frame passes
    Close(Of),
    /// Open the gate again
    Open(Of),
}

#[derive(Clone, Debug, Args)]
pub struct Of {
    /// Name or address of a client, as in `linkctl clients list`; default: the gate of all
    #[arg(long, value_name = "CLIENT", default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::client))]
    client: String,
    /// Direction of the frames: towards the client, from it, or both
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
    let request = pb::GetStatsRequest { mark: false, link: connection.link() };
    connection.call(|mut c| async move { c.get_stats(request).await }).await?;
    let state = connection.answer(client.get_switch(pb::GetSwitchRequest {})).await?;
    match context.output {
        Output::Json => output::message(&state),
        Output::Text => output::text(&view::switch(&state)),
    }
}

async fn gate(context: &Context, of: &Of, closed: bool) -> Result<(), Failure> {
    let direction = pb::Direction::from(of.direction).into();
    let gate = pb::Gate { client: of.client.clone(), direction };
    let connection = Connection::open(context).await?;
    let request = pb::SetGateRequest { gate: Some(gate), closed };
    let answer = connection.answer(connection.switch().set_gate(request)).await?;
    if context.output == Output::Json {
        return output::message(&answer);
    }
    let client = if of.client.is_empty() { "all clients" } else { &of.client };
    let (state, direction) = (if closed { "closed" } else { "open" }, way(of.direction));
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
        let direction = pb::Direction::from(of.direction).into();
        pb::Mirror { clients: clients.clone(), all: *all, direction, at: at as i32 }
    };
    let connection = Connection::open(context).await?;
    let request = pb::SetMirrorRequest { mirror: Some(mirror) };
    let answer = connection.answer(connection.switch().set_mirror(request)).await?;
    if context.output == Output::Json {
        return output::message(&answer);
    }
    let (direction, at) = (way(of.direction), place(of.at));
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

fn way(direction: Direction) -> &'static str {
    view::direction(direction.into())
}

/// Where each stage runs; none without a switch.
pub async fn places(connection: &Connection) -> Result<Option<Vec<pb::Stage>>, Failure> {
    let mut client = connection.switch();
    let state = connection.optional(client.get_switch(pb::GetSwitchRequest {})).await?;
    Ok(state.map(|state| state.stages))
}

/// Where each stage runs, as comments of a profile.
pub fn comments(places: &[pb::Stage]) -> String {
    stages(places).lines().map(|line| format!("# {}\n", line.trim())).collect()
}
