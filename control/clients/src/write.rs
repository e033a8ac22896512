// SPDX-License-Identifier: Apache-2.0
//! Clients as TOML. Lists can be long: an item a line where there are several.

use proto::linkemu::v1 as pb;
use std::fmt::{Debug, Write};

/// The file.
pub(crate) fn clients(message: &pb::Clients) -> String {
    let mut out = String::new();
    if let Some(limit) = message.automatic.and_then(|automatic| automatic.limit) {
        let _ = writeln!(out, "[automatic]\nlimit = {limit}");
    }
    for client in &message.clients {
        let pb::Client { name, prefixes, vlans, macs } = client;
        let start = if out.is_empty() { "" } else { "\n" };
        // What is valid has no character that TOML writes in another way than Rust.
        let _ = writeln!(out, "{start}[[client]]\nname = {name:?}");
        list(&mut out, "prefix", prefixes);
        list(&mut out, "vlan", vlans);
        list(&mut out, "mac", macs);
    }
    out
}

fn list(out: &mut String, key: &str, items: &[impl Debug]) {
    let _ = match items {
        [] => Ok(()),
        [one] => writeln!(out, "{key} = [{one:?}]"),
        several => {
            let lines: String = several.iter().map(|item| format!("    {item:?},\n")).collect();
            writeln!(out, "{key} = [\n{lines}]")
        }
    };
}
