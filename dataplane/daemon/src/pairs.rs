// SPDX-License-Identifier: Apache-2.0
//! The port pairs: from the command line, else the box's file.

use boxfile::{BoxFile, FindError, PORT_NAMES, PairsError, Port, Roots, port_name};
use dpdk::NamedPort;
use emu::client::{ClientName, NameError};
use thiserror::Error;

// The names of a box file's pairs are numbered by the core.
const _: () = assert!(boxfile::MAX_PAIRS == emu::matches::MAX_PAIRS);

/// Why options and file do not make port pairs.
#[derive(Debug, Error)]
pub enum PortsError {
    /// A port's specification in the file.
    #[error("{0}")]
    Port(#[from] dpdk::Error),
    /// A port is missing.
    #[error("no port `{0}`: give --port {0}=SPEC, or `{0}` under [ports] of the box's file")]
    NoPort(String),
    /// A port is given twice.
    #[error("port `{0}` is given twice: name the other one `{1}`")]
    Twice(String, String),
    /// Names of ports, or their number.
    #[error("{0}")]
    Pairs(#[from] PairsError),
    /// Both sides of a hairpin pair have one VLAN.
    #[error("ports `{}` and `{}` have the same vlan={vlan}: give each its own", ports[0], ports[1])]
    SameVlan { ports: [String; 2], vlan: u16 },
    /// One port of a pair is a VLAN, or both of different devices.
    #[error(
        "ports `{}` and `{}` are no hairpin pair: with vlan=, both ports are the same device with the \
         same arguments, and each has its own vlan=N", .0[0], .0[1]
    )]
    NoHairpin([String; 2]),
    /// A name that matches cannot use.
    #[error("port pair `{0}`: {1}")]
    Pair(String, String),
    /// A port of the file is no device of this machine.
    #[error("{0}")]
    Device(#[from] FindError),
}

impl PortsError {
    fn pair(name: &str, error: NameError) -> Self {
        Self::Pair(name.to_owned(), error.about("pair"))
    }

    fn twice(port: String) -> Self {
        let [wan, client] = PORT_NAMES;
        let other = match port.strip_prefix(wan) {
            Some(pair) => format!("{client}{pair}"),
            None => port.replacen(client, wan, 1),
        };
        Self::Twice(port, other)
    }
}

/// A frame that comes in at one of the two ports leaves at the other. In a hairpin pair both are VLANs
/// of one device.
#[derive(Clone, Debug)]
pub struct PortPair {
    /// None for the only pair of `wan` and `client`.
    pub name: Option<ClientName>,
    /// `wan` and `client`.
    pub ports: [NamedPort; 2],
}

impl PortPair {
    /// The VLANs of `wan` and `client` on their common device, if it is a hairpin pair.
    #[must_use]
    pub fn vlans(&self) -> Option<[u16; 2]> {
        let [wan, client] = &self.ports;
        Some([wan.spec.vlan()?, client.spec.vlan()?])
    }

    /// The ports that have a device each: one of a hairpin pair.
    #[must_use]
    pub fn devices(&self) -> &[NamedPort] {
        if self.vlans().is_some() { &self.ports[..1] } else { &self.ports }
    }

    /// Checks that either no port has a VLAN, or both have different ones on the same device.
    fn check_vlans(&self) -> Result<(), PortsError> {
        let [wan, client] = &self.ports;
        let names = || [wan.name.clone(), client.name.clone()];
        match (wan.spec.vlan(), client.spec.vlan()) {
            (None, None) => Ok(()),
            (Some(vlan), Some(other)) if vlan == other => {
                Err(PortsError::SameVlan { ports: names(), vlan })
            }
            (Some(_), Some(_)) if wan.spec.shares_device(&client.spec) => Ok(()),
            _ => Err(PortsError::NoHairpin(names())),
        }
    }
}

/// The pairs of some options `--port` and a file; an option goes before the file.
///
/// # Errors
/// A wrong name, a port that is missing or given twice, or too many pairs.
pub(crate) fn pairs(
    options: &[NamedPort],
    file: &BoxFile,
    roots: &Roots,
) -> Result<Vec<PortPair>, PortsError> {
    let in_file = file.ports.named();
    let names = options.iter().map(|port| port.name.as_str());
    let names = names.chain(in_file.iter().map(|(name, _)| name.as_str()));
    let pairs = boxfile::pairs(names)?;
    // First: the other port of its pair may be missing.
    for (n, port) in options.iter().enumerate() {
        if options[..n].iter().any(|other| other.name == port.name) {
            return Err(PortsError::twice(port.name.clone()));
        }
    }
    // Without any, both ports of the only pair are missing.
    let pairs = if pairs.is_empty() { vec![None] } else { pairs };
    let port = |name: String| {
        let in_file = in_file.iter().find(|(other, _)| *other == name).map(|(_, port)| *port);
        port(options, name, in_file, roots)
    };
    let pair = |pair: Option<&str>| {
        let [wan, client] = PORT_NAMES.map(|side| port(port_name(side, pair)));
        let name = pair.map(|pair| pair.parse().map_err(|e| PortsError::pair(pair, e)));
        let pair = PortPair { name: name.transpose()?, ports: [wan?, client?] };
        pair.check_vlans().map(|()| pair)
    };
    pairs.into_iter().map(pair).collect()
}

fn port(
    options: &[NamedPort],
    name: String,
    in_file: Option<&Port>,
    roots: &Roots,
) -> Result<NamedPort, PortsError> {
    match (options.iter().find(|port| port.name == name), in_file) {
        (Some(port), _) => Ok(port.clone()),
        (None, Some(port)) => {
            let spec = port.find(&name, roots)?.spec;
            Ok(NamedPort { name, spec: spec.parse()? })
        }
        (None, None) => Err(PortsError::NoPort(name)),
    }
}

/// The ports of all pairs that have a device each.
pub fn devices(pairs: &[PortPair]) -> impl Iterator<Item = &NamedPort> {
    pairs.iter().flat_map(PortPair::devices)
}

/// The ports of all pairs.
pub fn ports(pairs: &[PortPair]) -> impl Iterator<Item = &NamedPort> {
    pairs.iter().flat_map(|pair| &pair.ports)
}

/// The names of the pairs, by number; none if the only one has no name.
#[must_use]
pub fn names(pairs: &[PortPair]) -> Vec<ClientName> {
    pairs.iter().filter_map(|pair| pair.name).collect()
}
