// SPDX-License-Identifier: Apache-2.0
//! Validation of clients, and conversion to the core's rules.

use crate::beams::beams;
use emu::beam::BeamsPlan;
use emu::client::ClientName;
use emu::rules::{Rule, Rules, RulesError, VLAN_IDS};
use ipnet::IpNet;
use mac_address::MacAddress;
use profile::Violations;
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use std::net::IpAddr;
use units::shown;

/// Maximum number of reported faults per message.
const FAULTS: usize = 100;
/// Addresses that belong to no single host: the classifier gives them to the default client.
const OF_NO_HOST: [&str; 5] =
    ["224.0.0.0/4", "127.0.0.0/8", "169.254.0.0/16", "ff00::/8", "fe80::/10"];

/// The rules and the beams of a message. The number of names is the number of reserved client
/// slots.
///
/// # Errors
/// All faults of the message.
pub fn check(clients: &pb::Clients) -> Result<(Rules, BeamsPlan), Violations> {
    let mut check = Check::default();
    let mut names: BTreeMap<ClientName, usize> = BTreeMap::new();
    for (n, client) in clients.clients.iter().enumerate() {
        if check.is_full() {
            break;
        }
        let path = format!("client[{n}]");
        // Faults of its rules are reported even so.
        let name = check.name(&path, &client.name);
        if let Some(name) = name
            && let Some(other) = names.insert(name, n)
        {
            let message = format!(
                "{name} is the name of client[{other}] as well: put the rules of both into one, \
                 or give them names of their own"
            );
            check.found.push(format!("{path}.name"), message);
        }
        check.client(&path, name, client);
    }
    let Check { mut found, mut rules } = check;
    let beams = beams(clients, &mut found);
    found.into_result()?;
    rules.automatic = clients.automatic.as_ref().and_then(|automatic| automatic.limit);
    rules.reserved = u32::try_from(names.len()).unwrap_or(u32::MAX);
    Ok((rules, beams))
}

#[derive(Default)]
struct Check {
    found: Violations,
    rules: Rules,
}

impl Check {
    fn is_full(&self) -> bool {
        self.found.len() >= FAULTS
    }

    fn name(&mut self, path: &str, name: &str) -> Option<ClientName> {
        let path = format!("{path}.name");
        if name.is_empty() {
            self.found.push(path, "missing: give the client a name, such as \"alice\"");
            return None;
        }
        match name.parse() {
            Ok(name) => Some(name),
            Err(error) => {
                self.found.push(path, format!("{:?}: {error}", shown(name)));
                None
            }
        }
    }

    fn client(&mut self, path: &str, name: Option<ClientName>, client: &pb::Client) {
        let pb::Client { prefixes, vlans, macs, .. } = client;
        if prefixes.is_empty() && vlans.is_empty() && macs.is_empty() {
            let message = "no frames are this client's: give it a prefix, a vlan or a mac";
            self.found.push(path, message);
        }
        let each = prefixes.iter().enumerate().map(|(n, text)| ("prefix", n, prefix(text)));
        let each = each.chain(vlans.iter().enumerate().map(|(n, id)| ("vlan", n, vlan(*id))));
        let each = each.chain(macs.iter().enumerate().map(|(n, text)| ("mac", n, mac(text))));
        for (key, n, rule) in each {
            if self.is_full() {
                return;
            }
            let inserted = match (rule, name) {
                (Ok(rule), Some(name)) => {
                    self.rules.insert(rule, name).map_err(|error| (error.to_string(), error))
                }
                (Ok(_), None) => Ok(()),
                (Err(message), _) => {
                    self.found.push(format!("{path}.{key}[{n}]"), message);
                    continue;
                }
            };
            if let Err((message, error)) = inserted {
                self.found.push(format!("{path}.{key}[{n}]"), message);
                if error == RulesError::Full {
                    return;
                }
            }
        }
    }
}

fn prefix(text: &str) -> Result<Rule, String> {
    let no_prefix = || match text.parse::<IpAddr>() {
        Ok(address) => format!("{address} has no length: write {}", IpNet::from(address)),
        Err(_) => {
            format!("{:?} is no prefix: write it as 10.1.0.0/24 or 2001:db8:1::/48", shown(text))
        }
    };
    let net: IpNet = text.parse().map_err(|_| no_prefix())?;
    let reserved =
        OF_NO_HOST.into_iter().find(|of| of.parse::<IpNet>().is_ok_and(|of| of.contains(&net)));
    if let Some(of) = reserved {
        return Err(format!(
            "{net} is in {of}, whose addresses are of no one host: name the client's frames by \
             vlan or mac"
        ));
    }
    // The core rejects bits after the prefix.
    Ok(Rule::Prefix(net.addr(), net.prefix_len()))
}

fn vlan(id: u32) -> Result<Rule, String> {
    match u16::try_from(id) {
        Ok(id) if VLAN_IDS.contains(&id) => Ok(Rule::Vlan(id)),
        _ => Err(format!("VLAN {id} cannot be: the ids are 1 to 4094")),
    }
}

fn mac(text: &str) -> Result<Rule, String> {
    let mac = text.parse::<MacAddress>().ok();
    // The parser also accepts less regular forms.
    let mac = mac.filter(|mac| mac.to_string().eq_ignore_ascii_case(&text.replace('-', ":")));
    let Some(mac) = mac else {
        return Err(format!("{:?} is no MAC address: write it as 02:00:00:00:00:01", shown(text)));
    };
    Ok(Rule::Mac(mac.bytes()))
}
