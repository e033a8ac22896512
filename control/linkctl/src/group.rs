// SPDX-License-Identifier: Apache-2.0
//! `linkctl group`: several boxes behind one P4 switch.

use crate::complete;
use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use profile::{counted, format_duration};
use proto::linkemu::v1 as pb;

pub const EXAMPLES: &str = "\
Examples:
  linkctl group show                        the boxes: clients, load, clocks
  linkctl group move alice 10.0.0.7 --to b2
  linkctl group move --from b1              drain a box: each client moves to the box with the fewest
  linkctl group move --from b1 --to b3      works for a box that is down: its packets are lost
  linkctl -o json group show | jq '.boxes[] | select(.up | not) | .name'

All other commands apply to the group as one emulator: a change takes effect at one instant on all
boxes, and statistics and certificate cover all of them. After a move, packets wait at the new box
until the former one has sent those that it holds: no packet is lost or reordered.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the boxes, their clients, load and clocks
    Show,
    /// Move clients to another box, without loss
    Move {
        /// Names or addresses of clients, as in `linkctl clients list`
        #[arg(value_name = "CLIENT", required_unless_present = "from", conflicts_with = "from",
              add = ArgValueCompleter::new(complete::client))]
        clients: Vec<String>,
        /// Move all clients of this box
        #[arg(long, value_name = "BOX")]
        from: Option<String>,
        /// New box; default: for each client the box with the fewest clients
        #[arg(long, value_name = "BOX", required_unless_present = "from")]
        to: Option<String>,
    },
}

pub async fn run(context: &Context, what: &Command) -> Result<(), Failure> {
    match what {
        Command::Show => show(context).await,
        Command::Move { clients, from, to } => {
            let request = pb::MoveClientsRequest {
                clients: clients.clone(),
                from: from.clone().unwrap_or_default(),
                to: to.clone().unwrap_or_default(),
            };
            let connection = Connection::open(context).await?;
            let mut client = connection.boxes();
            moved(context, connection.answer(client.move_clients(request)).await?)
        }
    }
}

async fn show(context: &Context) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let mut client = connection.boxes();
    let listed = connection.answer(client.list_boxes(pb::ListBoxesRequest {})).await?;
    if context.output == Output::Json {
        return output::message(&listed);
    }
    output::text(&table(&listed.boxes))
}

fn table(boxes: &[pb::EmulatorBox]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["box", "state", "workers", "clients", "packet/s", "clock", "address"]);
    for column in [2, 3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut notes = String::new();
    for it in boxes {
        let state = match (it.up, it.current) {
            (false, _) => "down",
            (true, false) => "behind",
            (true, true) => "up",
        };
        let sign = if it.clock_offset_ns < 0 { '-' } else { '+' };
        let offset = format_duration(it.clock_offset_ns.unsigned_abs());
        let clock = format!("{sign}{offset} ± {}", format_duration(it.clock_error_ns));
        table.add_row([
            it.name.clone(),
            state.to_owned(),
            it.workers.to_string(),
            it.clients.to_string(),
            format!("{:.0}", it.packets_per_second),
            clock,
            it.address.clone(),
        ]);
        if !it.message.is_empty() {
            notes.push_str(&format!("{}: {}\n", it.name, it.message));
        }
    }
    format!("{}\n{notes}", table.trim_fmt())
}

fn moved(context: &Context, answer: pb::MoveClientsResponse) -> Result<(), Failure> {
    if context.output == Output::Json {
        return output::message(&answer);
    }
    let pb::MoveClientsResponse { moved, held_ns, abandoned } = answer;
    let held = format_duration(held_ns);
    let moved = counted(moved, "client", "clients");
    let mut text = format!("{moved} moved; packets waited for {held} at most\n");
    if abandoned > 0 {
        text.push_str(&format!(
            "{abandoned} of them were at a box that is down: what it held of them is lost\n"
        ));
    }
    output::text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_tells_boxes_that_are_down_or_behind() {
        let of = |name: &str, up, current, message: &str| pb::EmulatorBox {
            name: name.into(),
            up,
            current,
            message: message.into(),
            clock_offset_ns: -1_500,
            clock_error_ns: 20_000,
            ..Default::default()
        };
        let boxes = [
            of("b1", true, true, ""),
            of("b2", true, false, ""),
            of("b3", false, true, "it does not answer"),
        ];
        let text = table(&boxes);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].contains("b1   up "), "{text}");
        assert!(lines[1].contains("-1.5 µs ± 20 µs"), "{text}");
        assert!(lines[2].contains(" behind ") && lines[3].contains(" down "), "{text}");
        assert_eq!(lines[4], "b3: it does not answer");
    }
}
