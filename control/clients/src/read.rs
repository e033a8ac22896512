// SPDX-License-Identifier: Apache-2.0
//! Clients from TOML: which keys there are, and what they become. Reading goes on after an
//! error, so that one look gives all.

use crate::{Clients, FILE_BYTES};
use profile::Violations;
use profile::reading::{Item, Node, Reader, describe};
use proto::linkemu::v1 as pb;
use toml::de::DeValue;

/// Reads and checks clients.
pub(crate) fn clients(text: &str) -> Result<Clients, Violations> {
    let mut reader = Reader::new(text);
    let document = reader.document(FILE_BYTES, "file of clients")?;
    let node = Node { path: String::new(), span: document.span(), table: document.get_ref() };
    reader.known(&node, &["automatic", "client"]);
    let message = pb::Clients {
        clients: reader.tables(&node, "client", client),
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
    reader.known(node, &["name", "prefix", "vlan", "mac"]);
    pb::Client {
        name: reader.text(node, "name"),
        prefixes: reader.list(node, "prefix", "[\"10.1.0.0/24\"]", Reader::string),
        vlans: reader.list(node, "vlan", "[100]", number),
        macs: reader.list(node, "mac", "[\"02:00:00:00:00:01\"]", Reader::string),
    }
}

fn automatic(reader: &mut Reader<'_>, node: &Node<'_>) -> pb::Automatic {
    reader.known(node, &["limit"]);
    let limit = reader.value(node, "limit").and_then(|item| number(reader, &item));
    pb::Automatic { limit }
}

/// A whole number.
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
