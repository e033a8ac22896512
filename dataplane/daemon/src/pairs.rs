// SPDX-License-Identifier: Apache-2.0
//! The port pairs: from the command line, else the box's file.

use boxfile::{BoxFile, PORT_NAMES, Port, Roots, port_name};
use dpdk::NamedPort;
use emu::client::ClientName;

use crate::choices::ChoiceError;

// The names of a box file's pairs are numbered by the core.
const _: () = assert!(boxfile::MAX_PAIRS == emu::matches::MAX_PAIRS);

/// A frame that comes in at one of the two ports leaves at the other.
#[derive(Clone, Debug)]
pub struct PortPair {
    /// None for the only pair of `wan` and `client`.
    pub name: Option<ClientName>,
    /// `wan` and `client`.
    pub ports: [NamedPort; 2],
}

/// The pairs of some options `--port` and a file; an option goes before the file.
///
/// # Errors
/// A wrong name, a port that is missing or given twice, or too many pairs.
pub(crate) fn pairs(
    options: &[NamedPort],
    file: &BoxFile,
    roots: &Roots,
) -> Result<Vec<PortPair>, ChoiceError> {
    let in_file = file.ports.named();
    let names = options.iter().map(|port| port.name.as_str());
    let names = names.chain(in_file.iter().map(|(name, _)| name.as_str()));
    let pairs = boxfile::pairs(names)?;
    // First: the other port of its pair may be missing.
    for (n, port) in options.iter().enumerate() {
        if options[..n].iter().any(|other| other.name == port.name) {
            return Err(ChoiceError::twice(port.name.clone()));
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
        let name = pair.map(|pair| pair.parse().map_err(|e| ChoiceError::pair(pair, e)));
        Ok(PortPair { name: name.transpose()?, ports: [wan?, client?] })
    };
    pairs.into_iter().map(pair).collect()
}

fn port(
    options: &[NamedPort],
    name: String,
    in_file: Option<&Port>,
    roots: &Roots,
) -> Result<NamedPort, ChoiceError> {
    match (options.iter().find(|port| port.name == name), in_file) {
        (Some(port), _) => Ok(port.clone()),
        (None, Some(port)) => {
            let spec = port.find(&name, roots)?.spec;
            Ok(NamedPort { name, spec: spec.parse()? })
        }
        (None, None) => Err(ChoiceError::NoPort(name)),
    }
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
