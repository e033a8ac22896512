// SPDX-License-Identifier: Apache-2.0
//! Clients from TOML: the known keys and their conversion. Reading continues after a fault, so that
//! all faults are reported at once.

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

fn client(reader: &mut Reader<'_>, node: &Node<'_>) -> pb::Client {
    reader.known(node, &["name", "prefix", "vlan", "mac", "beam", "weight"]);
    pb::Client {
        name: reader.text(node, "name"),
        prefixes: reader.list(node, "prefix", "[\"10.1.0.0/24\"]", Reader::string),
        vlans: reader.list(node, "vlan", "[100]", number),
        macs: reader.list(node, "mac", "[\"02:00:00:00:00:01\"]", Reader::string),
        beam: reader.text(node, "beam"),
        weight: weight(reader, node),
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
