// SPDX-License-Identifier: Apache-2.0
//! Matches of clients: conversion of their texts for the core.

use crate::fields::{mac, net, no_vlan, of_no_host};
use emu::client::ClientName;
use emu::matches::{Match, Ports, Protocol};
use ipnet::IpNet;
use proto::linkemu::v1 as pb;
use std::net::IpAddr;
use units::shown;

/// Converts a match. The core checks it further.
///
/// # Errors
/// The key and the fault of the first field that cannot be parsed.
pub(crate) fn parse(of: &pb::Match) -> Result<Match, (&'static str, String)> {
    let pb::Match { priority, vlan, inner_vlan, mac: address, prefix, remote_prefix, .. } = of;
    let pb::Match { protocol, port, remote_port, dscp, flow_label, port_pair, .. } = of;
    Ok(Match {
        priority: *priority,
        vlan: number(*vlan).map_err(at("vlan"))?,
        inner_vlan: number(*inner_vlan).map_err(at("inner_vlan"))?,
        mac: given(address, mac).map_err(at("mac"))?,
        prefix: given(prefix, client).map_err(at("prefix"))?,
        remote_prefix: given(remote_prefix, remote).map_err(at("remote_prefix"))?,
        protocol: given(protocol, self::protocol).map_err(at("protocol"))?,
        port: given(port, ports).map_err(at("port"))?,
        remote_port: given(remote_port, ports).map_err(at("remote_port"))?,
        dscp: dscp.map(self::dscp).transpose().map_err(at("dscp"))?,
        flow_label: *flow_label,
        port_pair: given(port_pair, pair_name).map_err(at("port_pair"))?,
    })
}

fn at(key: &'static str) -> impl Fn(String) -> (&'static str, String) {
    move |message| (key, message)
}

/// A text that is absent if it is empty.
fn given<T>(text: &str, parse: fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
}

/// A VLAN id; zero is absent.
fn number(id: u32) -> Result<Option<u16>, String> {
    let id = u16::try_from(id).map_err(|_| no_vlan(id))?;
    Ok(Some(id).filter(|id| *id != 0))
}

fn client(text: &str) -> Result<(IpAddr, u8), String> {
    let net = net(text)?;
    match of_no_host(net) {
        Some(of) => Err(format!(
            "{net} is in {of}, whose addresses are of no one host: leave it out, or name such \
             frames by their other fields"
        )),
        None => Ok(pair(net)),
    }
}

fn remote(text: &str) -> Result<(IpAddr, u8), String> {
    net(text).map(pair)
}

fn pair(net: IpNet) -> (IpAddr, u8) {
    (net.addr(), net.prefix_len())
}

fn protocol(text: &str) -> Result<u8, String> {
    Protocol::named(text).or_else(|| digits(text)).ok_or_else(|| {
        format!(
            "{:?} is no protocol: write \"tcp\", \"udp\", \"icmp\", \"icmpv6\" or a number from 0 \
             to 255",
            shown(text)
        )
    })
}

fn ports(text: &str) -> Result<Ports, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (digits(first), digits(last)) {
        (Some(first), Some(last)) => Ok(Ports { first, last }),
        _ => Err(format!(
            "{:?} is no port: write one from 0 to 65535, as \"5001\", or a range, as \"5000-5010\"",
            shown(text)
        )),
    }
}

fn pair_name(text: &str) -> Result<ClientName, String> {
    let rule = "the names are 1 to 16 of A-Z, a-z, 0-9, '.', '_' and '-'";
    text.parse().map_err(|_| format!("{:?} is no name of a port pair: {rule}", shown(text)))
}

/// A number without a sign.
fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

fn dscp(dscp: u32) -> Result<u8, String> {
    // The core knows the limit; larger numbers do not fit its type.
    let fault =
        |_| format!("DSCP {dscp} cannot be: the values are 0 to {}", emu::matches::MAX_DSCP);
    u8::try_from(dscp).map_err(fault)
}
