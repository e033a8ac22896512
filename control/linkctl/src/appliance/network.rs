// SPDX-License-Identifier: Apache-2.0
//! The use of the machine's interfaces: default routes, addresses, and the session of the
//! user. `ip -j` (iproute2) lists all routing tables; an interface without data does not count as
//! free.
//!
//! A session over SSH is found by `SSH_CONNECTION` in the environment of this process and of
//! its ancestors, because sudo removes it from its child's environment.

use crate::appliance::host::{Host, words};
use procfs::FromRead;
use procfs::process::Stat;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;

/// Generations of processes that are looked at.
const DEPTH: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct Network {
    addresses: Vec<(String, IpAddr)>,
    defaults: Vec<String>,
    session: Vec<String>,
}

#[derive(Deserialize)]
struct Link {
    ifname: String,
    #[serde(default)]
    addr_info: Vec<AddrInfo>,
}

#[derive(Deserialize)]
struct AddrInfo {
    local: Option<IpAddr>,
}

#[derive(Deserialize)]
struct Route {
    dev: Option<String>,
    #[serde(default)]
    nexthops: Vec<Hop>,
}

#[derive(Deserialize)]
struct Hop {
    dev: Option<String>,
}

impl Route {
    fn devices(self) -> impl Iterator<Item = String> {
        self.dev.into_iter().chain(self.nexthops.into_iter().filter_map(|hop| hop.dev))
    }
}

fn ask<T: for<'a> Deserialize<'a>>(host: &Host, command: &str) -> Result<Vec<T>, String> {
    let text = host.run(&words(command))?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&text).map_err(|e| format!("`{command}` says what is no JSON: {e}"))
}

impl Network {
    /// Asks the kernel.
    ///
    /// # Errors
    /// If it does not tell: then nothing is known to be free.
    pub fn ask(host: &Host) -> Result<Self, String> {
        let links: Vec<Link> = ask(host, "ip -j address show")?;
        let mut network = Self::default();
        for link in links {
            let of = |info: AddrInfo| Some((link.ifname.clone(), info.local?));
            network.addresses.extend(link.addr_info.into_iter().filter_map(of));
        }
        for family in ["-4", "-6"] {
            let routes: Vec<Route> =
                ask(host, &format!("ip -j {family} route show table all default"))?;
            network.defaults.extend(routes.into_iter().flat_map(Route::devices));
        }
        for (caller, local) in sessions(host) {
            let here = network.addresses.iter().filter(|(_, address)| *address == local);
            let mut devices: Vec<String> = here.map(|(iface, _)| iface.clone()).collect();
            // The way back may be another one, and the address may be of no card.
            if let Ok(routes) = ask::<Route>(host, &format!("ip -j route get {caller}")) {
                devices.extend(routes.into_iter().flat_map(Route::devices));
            }
            network.session.extend(devices);
        }
        Ok(network)
    }

    /// The uses of an interface, by itself or by an interface above it (a bond, a bridge, a
    /// VLAN); empty if it is free.
    pub fn use_of(&self, host: &Host, iface: &str) -> Option<String> {
        let stack = stack(host, iface);
        let carries = |upper: &String, what: String| {
            if upper == iface { what } else { format!("is below {upper}, which {what}") }
        };
        let has = |list: &[String], what: &str| {
            let upper = stack.iter().find(|upper| list.contains(upper))?;
            Some(carries(upper, what.to_owned()))
        };
        let address = || {
            // Every interface that is up gives itself one of these.
            let own = |a: &IpAddr| matches!(a, IpAddr::V6(a) if a.is_unicast_link_local());
            stack.iter().find_map(|upper| {
                let mut of = self.addresses.iter().filter(|(of, a)| of == upper && !own(a));
                of.next().map(|(_, a)| carries(upper, format!("has the address {a}")))
            })
        };
        let above = || {
            stack.iter().nth(1).map(|_| {
                let names: Vec<_> = stack.iter().filter(|upper| *upper != iface).cloned().collect();
                format!("is part of {}", names.join(", "))
            })
        };
        has(&self.defaults, "carries the default route")
            .or_else(|| has(&self.session, "carries this session"))
            .or_else(address)
            .or_else(above)
    }
}

/// An interface and all that are above it.
fn stack(host: &Host, iface: &str) -> BTreeSet<String> {
    let mut stack = BTreeSet::new();
    let mut open = vec![iface.to_owned()];
    while let Some(name) = open.pop() {
        let place = format!("class/net/{name}");
        for entry in host.machine.names(&place) {
            open.extend(
                entry.strip_prefix("upper_").filter(|u| !stack.contains(*u)).map(str::to_owned),
            );
        }
        let master = host.machine.link(format!("{place}/master"));
        open.extend(master.filter(|m| !stack.contains(m)));
        stack.insert(name);
    }
    stack
}

/// Sessions over SSH that this process is in: the caller's address, and ours.
fn sessions(host: &Host) -> Vec<(IpAddr, IpAddr)> {
    let mut found = Vec::new();
    let mut process = "self".to_owned();
    for _ in 0..DEPTH {
        let place = host.machine.proc.join(&process);
        let environment = fs::read(place.join("environ")).unwrap_or_default();
        let variables = environment.split(|byte| *byte == 0);
        for variable in variables.filter_map(|v| std::str::from_utf8(v).ok()) {
            let Some(value) = variable.strip_prefix("SSH_CONNECTION=") else { continue };
            // caller, its port, ours, our port; an address may name its zone.
            let parse = |n| {
                let word = value.split_whitespace().nth(n)?;
                word.split('%').next()?.parse().ok()
            };
            if let (Some(caller), Some(local)) = (parse(0), parse(2))
                && !found.contains(&(caller, local))
            {
                found.push((caller, local));
            }
        }
        match Stat::from_file(place.join("stat")) {
            Ok(stat) if stat.ppid > 0 => process = stat.ppid.to_string(),
            _ => break,
        }
    }
    found
}
