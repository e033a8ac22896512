// SPDX-License-Identifier: Apache-2.0
//! `linkctl link`: several links on one box.

use crate::connection::Connection;
use crate::context::{Context, Output};
use crate::failure::Failure;
use crate::output;
use clap::{Args, Subcommand, ValueEnum};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use profile::{counted, parse_size};
use proto::linkemu::v1 as pb;
use proto::{link_id, link_name};
use view::size;

pub const EXAMPLES: &str = "\
Examples:
  linkctl link add lab1 --memory 1.1GB --clients 8 --prefix 10.1.0.0/24
  linkctl --link lab1 set profile viasat2      for any command: --link or LINKEMU_LINK
  linkctl --link lab1 stats
  linkctl link assign lab1 --prefix 10.1.0.0/24 --vlan 100
  linkctl link add backbone --scheduler drr    a shared link, which other links pass:
  linkctl link add lab2 --via backbone --weight 2 --prefix 10.2.0.0/24
  linkctl link list
  linkctl link rules
  linkctl link remove lab1

Traffic without a rule belongs to the link main. Matches have precedence over MAC rules, those over
VLAN rules, and those over prefix rules, the longest prefix first. A rule for a class of flows:
    linkctl link assign lab1 --match 'protocol = \"udp\", port = \"5001\"'
Memory and clients are reserved for the link.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add a link; it is transparent until a profile is set
    Add {
        /// Name: 1 to 16 letters, digits, '.', '_' and '-'; begins with a letter or digit
        name: String,
        /// Memory for its packets, taken from main; default: an eighth of the memory of the box
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        memory: Option<u64>,
        /// Maximum number of clients; default: 16
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        clients: Option<u32>,
        /// Make it a shared link, which other links pass, with this scheduler
        #[arg(long, value_name = "SCHEDULER", conflicts_with = "via")]
        scheduler: Option<Scheduler>,
        /// Shared link that its packets pass too
        #[arg(long, value_name = "LINK")]
        via: Option<String>,
        /// Weight on a shared link with drr, 1 to 1000; default: 1
        #[arg(long, value_name = "N", requires = "via",
              value_parser = clap::value_parser!(u32).range(1..=1000))]
        weight: Option<u32>,
        #[command(flatten)]
        rules: Matches,
    },
    /// Remove a link and its rules
    Remove { name: String },
    /// Show all links
    List,
    /// Replace the rules of a link; without rules it gets no traffic
    Assign {
        name: String,
        #[command(flatten)]
        rules: Matches,
    },
    /// Show the rules of all links
    Rules,
}

/// How a link serves those that pass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scheduler {
    /// First in, first out: one queue for all links
    Fifo,
    /// Deficit round robin by weight: one queue for each link
    Drr,
}

impl From<Scheduler> for pb::Scheduler {
    fn from(scheduler: Scheduler) -> Self {
        match scheduler {
            Scheduler::Fifo => Self::Fifo,
            Scheduler::Drr => Self::Drr,
        }
    }
}

/// What traffic belongs to a link.
#[derive(Clone, Debug, Default, Args)]
pub struct Matches {
    /// Address on the client side, such as 10.1.0.0/24 or 2001:db8:1::/48; repeatable
    #[arg(long = "prefix", value_name = "PREFIX")]
    prefixes: Vec<String>,
    /// Id of the outermost VLAN tag, 1 to 4094; repeatable
    #[arg(long = "vlan", value_name = "ID")]
    vlans: Vec<u32>,
    /// MAC address of a client, such as 02:00:00:00:00:01; repeatable
    #[arg(long = "mac", value_name = "MAC")]
    macs: Vec<String>,
    /// Keys of a match, as in a file of clients; repeatable
    #[arg(long = "match", value_name = "KEYS", value_parser = parse_match)]
    matches: Vec<pb::Match>,
}

fn parse_match(text: &str) -> Result<pb::Match, String> {
    ::clients::parse_match(text).map_err(|violations| violations.to_string())
}

impl Matches {
    /// One rule, or none.
    fn rules(&self) -> Vec<pb::LinkRule> {
        let Self { prefixes, vlans, macs, matches } = self.clone();
        let rule = pb::LinkRule { link: String::new(), prefixes, vlans, macs, matches };
        if rule == pb::LinkRule::default() { Vec::new() } else { vec![rule] }
    }
}

pub async fn run(context: &Context, what: &Command) -> Result<(), Failure> {
    match what {
        Command::Add { name, memory, clients, scheduler, via, weight, rules } => {
            let wanted = pb::NamedLink {
                memory_bytes: memory.unwrap_or(0),
                clients: clients.unwrap_or(0),
                scheduler: scheduler.map_or(pb::Scheduler::Unspecified, Into::into).into(),
                via: via.as_deref().map(link_name).unwrap_or_default(),
                weight: weight.unwrap_or(0),
                ..Default::default()
            };
            add(context, name, wanted, rules).await
        }
        Command::Remove { name } => {
            let connection = Connection::open(context).await?;
            let answer = delete(&connection, name).await?;
            match context.output {
                Output::Json => output::message(&answer),
                Output::Text => output::text(&format!("link {name} removed")),
            }
        }
        Command::List => list(context).await,
        Command::Assign { name, rules } => {
            let rules = assign(context, name, rules.rules()).await?;
            tell_rules(context, &rules)
        }
        Command::Rules => {
            let connection = Connection::open(context).await?;
            let request = pb::GetLinkRulesRequest {};
            let rules = connection.answer(connection.links().get_link_rules(request)).await?;
            tell_rules(context, &rules)
        }
    }
}

async fn add(
    context: &Context,
    name: &str,
    wanted: pb::NamedLink,
    rules: &Matches,
) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let request = pb::CreateLinkRequest { link_id: name.to_owned(), link: Some(wanted) };
    let mut link = connection.answer(connection.links().create_link(request)).await?;
    let rules = rules.rules();
    if !rules.is_empty() {
        link.rules = 1;
        if let Err(failure) = assign(context, name, rules).await {
            // Nothing is half-done.
            delete(&connection, name).await?;
            return Err(failure);
        }
    }
    match context.output {
        Output::Json => output::message(&link),
        Output::Text => output::text(&format!(
            "link {name} added: {} for packets, up to {}\nlinkctl --link {name} set profile …",
            size(link.memory_bytes),
            counted(link.clients, "client", "clients")
        )),
    }
}

async fn delete(connection: &Connection, name: &str) -> Result<pb::DeleteLinkResponse, Failure> {
    let request = pb::DeleteLinkRequest { name: link_name(name) };
    connection.answer(connection.links().delete_link(request)).await
}

async fn assign(
    context: &Context,
    name: &str,
    rules: Vec<pb::LinkRule>,
) -> Result<pb::LinkRules, Failure> {
    let connection = Connection::open(context).await?;
    let request = pb::SetLinkRulesRequest { rules, link: link_name(name), ..Default::default() };
    connection.answer(connection.links().set_link_rules(request)).await
}

async fn list(context: &Context) -> Result<(), Failure> {
    let connection = Connection::open(context).await?;
    let request = pb::ListLinksRequest {};
    let answer = connection.answer(connection.links().list_links(request)).await?;
    if context.output == Output::Json {
        return output::message(&answer);
    }
    let mut table =
        table(&["LINK", "PROFILE", "GENERATION", "MEMORY", "CLIENTS", "RULES", "PASSES", "LEASE"]);
    for column in table.column_iter_mut().skip(2).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for link in &answer.links {
        let passes = match (link_id(&link.via), link.scheduler()) {
            ("", pb::Scheduler::Unspecified) => "-".to_owned(),
            ("", pb::Scheduler::Fifo) => "(fifo)".to_owned(),
            ("", pb::Scheduler::Drr) => "(drr)".to_owned(),
            (via, _) => format!("{via}, weight {}", link.weight),
        };
        let holder = if link.holder.is_empty() { "-" } else { &link.holder };
        table.add_row([
            link_id(&link.name),
            &link.profile,
            &link.generation.to_string(),
            &size(link.memory_bytes),
            &link.clients.to_string(),
            &link.rules.to_string(),
            &passes,
            holder,
        ]);
    }
    output::text(&table.trim_fmt())
}

fn tell_rules(context: &Context, rules: &pb::LinkRules) -> Result<(), Failure> {
    if context.output == Output::Json {
        return output::message(rules);
    }
    if rules.rules.is_empty() {
        return output::text("no rules: all traffic belongs to main");
    }
    let mut table = table(&["LINK", "MATCHES"]);
    for rule in &rules.rules {
        let pb::LinkRule { link, prefixes, vlans, macs, matches } = rule.clone();
        let link = link_id(&link).to_owned();
        let client = pb::Client { prefixes, vlans, macs, matches, ..Default::default() };
        for (.., matched) in ::clients::rules(&client) {
            let matched = matched.map_or_else(|fault| fault.message, |rule| rule.to_string());
            table.add_row([link.clone(), matched]);
        }
    }
    output::text(&table.trim_fmt())
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().copied());
    table
}
