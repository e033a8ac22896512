// SPDX-License-Identifier: Apache-2.0
//! Validation of clients, and conversion to the core's rules.

use crate::beams::beams;
use crate::fields::{mac, net, no_vlan, of_no_host};
use crate::matches;
use emu::beam::BeamsPlan;
use emu::client::ClientName;
use emu::rules::{Rule, Rules, RulesError, VLAN_IDS};
use profile::Violations;
use proto::linkemu::v1 as pb;
use std::collections::BTreeMap;
use units::shown;

/// Maximum number of reported faults per message.
const FAULTS: usize = 100;
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
    check.conflicts(&clients.clients);
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
        if rules(client).next().is_none() {
            let message = "no frames are this client's: give it a prefix, a vlan, a mac or a [[client.match]]";
            self.found.push(path, message);
        }
        for (key, n, rule) in rules(client) {
            if self.is_full() {
                return;
            }
            let path = format!("{path}.{key}[{n}]");
            let inserted = match (rule, name) {
                (Ok(rule), Some(name)) => self.rules.insert(rule, name),
                (Ok(_), None) => Ok(()),
                (Err(Fault { key: Some(key), message }), _) => {
                    self.found.push(format!("{path}.{key}"), message);
                    continue;
                }
                (Err(Fault { key: None, message }), _) => {
                    self.found.push(path, message);
                    continue;
                }
            };
            if let Err(error) = inserted {
                self.found.push(path, error.to_string());
                if error == RulesError::Full {
                    return;
                }
            }
        }
    }

    /// Rules that contradict others. They are searched only if each one is valid.
    fn conflicts(&mut self, clients: &[pb::Client]) {
        if !self.found.is_empty() {
            return;
        }
        for error in self.rules.conflicts(FAULTS) {
            let place = clients.iter().enumerate().find_map(|(n, client)| {
                let is_its = |rule| error.rule().is_some_and(|of| Ok(of) == rule);
                let (key, i, _) = rules(client).find(|(.., rule)| is_its(rule.clone()))?;
                Some(format!("client[{n}].{key}[{i}]"))
            });
            self.found.push(place.unwrap_or_default(), error.to_string());
        }
    }
}

/// Why a rule cannot be parsed; for a match, in which field.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub key: Option<&'static str>,
    pub message: String,
}

type Parsed = Result<Rule, Fault>;

/// The rules of a client, with their keys and indices.
pub fn rules(client: &pb::Client) -> impl Iterator<Item = (&'static str, usize, Parsed)> + '_ {
    let pb::Client { prefixes, vlans, macs, matches, .. } = client;
    let simple = |rule: Result<Rule, String>| rule.map_err(|message| Fault { key: None, message });
    let prefixes =
        prefixes.iter().enumerate().map(move |(n, text)| ("prefix", n, simple(prefix(text))));
    let vlans = vlans.iter().enumerate().map(move |(n, id)| ("vlan", n, simple(vlan(*id))));
    let macs =
        macs.iter().enumerate().map(move |(n, text)| ("mac", n, simple(mac(text).map(Rule::Mac))));
    let matches = matches.iter().enumerate().map(|(n, of)| {
        let parsed = matches::parse(of).map(Rule::Match);
        ("match", n, parsed.map_err(|(key, message)| Fault { key: Some(key), message }))
    });
    prefixes.chain(vlans).chain(macs).chain(matches)
}

fn prefix(text: &str) -> Result<Rule, String> {
    let net = net(text)?;
    if let Some(of) = of_no_host(net) {
        return Err(format!(
            "{net} is in {of}, whose addresses are of no one host: name the client's frames by \
             vlan or mac"
        ));
    }
    Ok(Rule::Prefix(net.addr(), net.prefix_len()))
}

fn vlan(id: u32) -> Result<Rule, String> {
    match u16::try_from(id) {
        Ok(id) if VLAN_IDS.contains(&id) => Ok(Rule::Vlan(id)),
        _ => Err(no_vlan(id)),
    }
}
