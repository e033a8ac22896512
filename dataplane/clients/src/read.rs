// SPDX-License-Identifier: Apache-2.0
//! Clients from TOML: the known keys and their conversion. Reading continues after a fault, so that
//! all faults are reported at once.

use crate::fields::no_vlan;
use crate::{Clients, FILE_BYTES};
use profile::reading::{Item, Node, Reader, describe};
use profile::{Rate, Violations, parse_rate};
use proto::linkemu::v1 as pb;
use toml::de::DeValue;

pub(crate) fn clients(text: &str) -> Result<Clients, Violations> {
    let mut reader = Reader::new(text);
    let document = reader.document(FILE_BYTES, "file of clients")?;
    let node = Node { path: String::new(), span: document.span(), table: document.get_ref() };
    reader.known(&node, &["automatic", "client", "beam"]);
    let message = pb::Clients {
        clients: reader.tables(&node, "client", client),
        beams: reader.tables(&node, "beam", beam),
        automatic: reader.table(&node, "automatic").map(|node| automatic(&mut reader, &node)),
    };
    match Clients::try_from(message) {
        Err(broken) => {
            reader.merge(broken);
            Err(reader.into_found())
        }
        Ok(clients) => {
            reader.into_found().into_result()?;
            Ok(clients)
        }
    }
}

/// A match from the keys and values of a `[[client.match]]`, with commas between them.
pub(crate) fn one_match(text: &str) -> Result<pb::Match, Violations> {
    let text = format!("match = {{ {text} }}");
    let mut reader = Reader::new(&text);
    let document = reader.document(FILE_BYTES, "match")?;
    let node = Node { path: String::new(), span: document.span(), table: document.get_ref() };
    reader.known(&node, &["match"]);
    let found = reader.table(&node, "match").map(|node| rule(&mut reader, &node));
    reader.into_found().into_result()?;
    Ok(found.unwrap_or_default())
}

fn client(reader: &mut Reader<'_>, node: &Node<'_>) -> pb::Client {
    reader.known(node, &["name", "prefix", "vlan", "mac", "match", "beam", "weight"]);
    pb::Client {
        name: reader.text(node, "name"),
        prefixes: reader.list(node, "prefix", "[\"10.1.0.0/24\"]", Reader::string),
        vlans: reader.list(node, "vlan", "[100]", number),
        macs: reader.list(node, "mac", "[\"02:00:00:00:00:01\"]", Reader::string),
        matches: reader.tables(node, "match", rule),
        beam: reader.text(node, "beam"),
        weight: weight(reader, node),
    }
}

/// Keys of a match.
const MATCH: [&str; 12] = [
    "priority",
    "vlan",
    "inner_vlan",
    "mac",
    "prefix",
    "remote_prefix",
    "protocol",
    "port",
    "remote_port",
    "dscp",
    "flow_label",
    "port_pair",
];

fn rule(reader: &mut Reader<'_>, node: &Node<'_>) -> pb::Match {
    reader.known(node, &MATCH);
    pb::Match {
        priority: whole(reader, node, "priority").unwrap_or(0),
        vlan: vlan(reader, node, "vlan"),
        inner_vlan: vlan(reader, node, "inner_vlan"),
        mac: text(reader, node, "mac", Reader::string),
        prefix: text(reader, node, "prefix", Reader::string),
        remote_prefix: text(reader, node, "remote_prefix", Reader::string),
        protocol: text(reader, node, "protocol", text_or_number),
        port: text(reader, node, "port", text_or_number),
        remote_port: text(reader, node, "remote_port", text_or_number),
        dscp: whole(reader, node, "dscp"),
        flow_label: whole(reader, node, "flow_label"),
        port_pair: text(reader, node, "port_pair", Reader::string),
    }
}

fn whole(reader: &mut Reader<'_>, node: &Node<'_>, key: &str) -> Option<u32> {
    let item = reader.value(node, key)?;
    number(reader, &item)
}

/// Zero is absent in the message, so it is reported here.
fn vlan(reader: &mut Reader<'_>, node: &Node<'_>, key: &str) -> u32 {
    let Some(item) = reader.value(node, key) else { return 0 };
    let id = number(reader, &item);
    if id == Some(0) {
        reader.fail(&item.path, item.value.span(), no_vlan(0));
    }
    id.unwrap_or(0)
}

/// An optional text. An empty one is absent in the message, so it is reported here.
fn text<'t>(
    reader: &mut Reader<'t>,
    node: &Node<'_>,
    key: &str,
    read: fn(&mut Reader<'t>, &Item<'_>) -> Option<String>,
) -> String {
    let Some(item) = reader.value(node, key) else { return String::new() };
    let text = read(reader, &item);
    if text.as_deref() == Some("") {
        let message = "empty: give it a value, or leave it out".to_owned();
        reader.fail(&item.path, item.value.span(), message);
    }
    text.unwrap_or_default()
}

/// Such as `"tcp"` or `6`.
fn text_or_number(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<String> {
    match item.value.get_ref() {
        DeValue::String(text) => Some(text.clone().into_owned()),
        _ => number(reader, item).map(|number| number.to_string()),
    }
}

fn beam(reader: &mut Reader<'_>, node: &Node<'_>) -> pb::Beam {
    reader.known(node, &["name", "forward_rate", "return_rate"]);
    let mut rate = |key| reader.quantity(node, key, parse_rate, "400 Mbit/s").and_then(Rate::bps);
    let (forward_rate_bps, return_rate_bps) = (rate("forward_rate"), rate("return_rate"));
    pb::Beam { name: reader.text(node, "name"), forward_rate_bps, return_rate_bps }
}

fn automatic(reader: &mut Reader<'_>, node: &Node<'_>) -> pb::Automatic {
    reader.known(node, &["limit", "beam", "weight"]);
    let limit = reader.value(node, "limit").and_then(|item| number(reader, &item));
    pb::Automatic { limit, beam: reader.text(node, "beam"), weight: weight(reader, node) }
}

/// Weight of a share; zero if absent.
fn weight(reader: &mut Reader<'_>, node: &Node<'_>) -> u32 {
    let Some(item) = reader.value(node, "weight") else { return 0 };
    let weight = number(reader, &item);
    if weight == Some(0) {
        let message = "0 is no weight: write 1 to 1000, or leave it out for 1".to_owned();
        reader.fail(&item.path, item.value.span(), message);
    }
    weight.unwrap_or(0)
}

fn number(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<u32> {
    let number = match item.value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
        _ => None,
    };
    if number.is_none() {
        let given = describe(item.value.get_ref());
        let message = format!("{given} is not a whole number from 0 on: write it without quotes");
        reader.fail(&item.path, item.value.span(), message);
    }
    number
}
