// SPDX-License-Identifier: Apache-2.0
//! Clients to TOML. Lists with several items have one item per line, since they can be long.

use profile::Rate;
use proto::linkemu::v1 as pb;
use std::fmt::{Debug, Write};

pub(crate) fn clients(message: &pb::Clients) -> String {
    let mut out = String::new();
    if let Some(pb::Automatic { limit, beam, weight }) = &message.automatic {
        let _ = writeln!(out, "[automatic]");
        if let Some(limit) = limit {
            let _ = writeln!(out, "limit = {limit}");
        }
        share(&mut out, beam, *weight);
    }
    for client in &message.clients {
        let pb::Client { name, prefixes, vlans, macs, beam, weight, matches } = client;
        let start = if out.is_empty() { "" } else { "\n" };
        // Valid names contain no character that TOML and Rust escape differently.
        let _ = writeln!(out, "{start}[[client]]\nname = {name:?}");
        list(&mut out, "prefix", prefixes);
        list(&mut out, "vlan", vlans);
        list(&mut out, "mac", macs);
        share(&mut out, beam, *weight);
        // Tables come after the other keys.
        for of in matches {
            rule(&mut out, of);
        }
    }
    for pb::Beam { name, forward_rate_bps, return_rate_bps } in &message.beams {
        let start = if out.is_empty() { "" } else { "\n" };
        let _ = writeln!(out, "{start}[[beam]]\nname = {name:?}");
        for (key, bps) in [("forward_rate", forward_rate_bps), ("return_rate", return_rate_bps)] {
            if bps.is_some() {
                let _ = writeln!(out, "{key} = \"{}\"", Rate::from_bps(*bps));
            }
        }
    }
    out
}

fn rule(out: &mut String, of: &pb::Match) {
    let pb::Match { priority, vlan, inner_vlan, mac, prefix, remote_prefix, .. } = of;
    let pb::Match { protocol, port, remote_port, dscp, flow_label, port_pair, .. } = of;
    let above_zero = |number: u32| Some(number).filter(|number| *number > 0);
    let _ = writeln!(out, "\n[[client.match]]");
    number(out, "priority", above_zero(*priority));
    number(out, "vlan", above_zero(*vlan));
    number(out, "inner_vlan", above_zero(*inner_vlan));
    text(out, "mac", mac);
    text(out, "prefix", prefix);
    text(out, "remote_prefix", remote_prefix);
    text(out, "protocol", protocol);
    text(out, "port", port);
    text(out, "remote_port", remote_port);
    number(out, "dscp", *dscp);
    number(out, "flow_label", *flow_label);
    text(out, "port_pair", port_pair);
}

fn number(out: &mut String, key: &str, value: Option<u32>) {
    if let Some(value) = value {
        let _ = writeln!(out, "{key} = {value}");
    }
}

/// Valid texts contain no character that TOML and Rust escape differently.
fn text(out: &mut String, key: &str, value: &str) {
    if !value.is_empty() {
        let _ = writeln!(out, "{key} = {value:?}");
    }
}

fn share(out: &mut String, beam: &str, weight: u32) {
    if !beam.is_empty() {
        let _ = writeln!(out, "beam = {beam:?}");
    }
    if weight > 0 {
        let _ = writeln!(out, "weight = {weight}");
    }
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
