// SPDX-License-Identifier: Apache-2.0
//! Port pairs and the names of their ports: `wan` and `client` of the only pair, or `wan.NAME` and
//! `client.NAME` of each of several ones.

use thiserror::Error;

/// Names of the two ports of a pair: `wan` faces the servers, `client` the clients.
pub const PORT_NAMES: [&str; 2] = ["wan", "client"];
/// Most port pairs of a box.
pub const MAX_PAIRS: usize = 16;
/// Longest name of a pair, characters.
const MAX_NAME: usize = 16;

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PairsError {
    #[error(
        "there is no port `{0}`: the ports are `wan`, which faces the servers, and `client`; those \
         of several pairs are `wan.NAME` and `client.NAME`"
    )]
    Stranger(String),
    #[error(
        "port `{0}`: a pair's name has 1 to {MAX_NAME} of A-Z, a-z, 0-9, '.', '_' and '-', and \
         begins with a letter or digit"
    )]
    Name(String),
    #[error(
        "port `{unnamed}` is of a pair without a name, and `{named}` of one with a name: of several \
         pairs each one needs a name, as in `{unnamed}.NAME`"
    )]
    Mixed { unnamed: String, named: String },
    #[error(
        "{pairs} port pairs: a box has at most {MAX_PAIRS}; leave {} of them out",
        pairs - MAX_PAIRS
    )]
    TooMany { pairs: usize },
}

/// Name of a port: that of its side, and of its pair, if it has one.
#[must_use]
pub fn port_name(side: &str, pair: Option<&str>) -> String {
    pair.map_or_else(|| side.to_owned(), |pair| format!("{side}.{pair}"))
}

/// The pair in the name of a port; the inner option is none if the pair has no name.
fn pair_of(port: &str) -> Option<Option<&str>> {
    PORT_NAMES.into_iter().find_map(|side| match port.strip_prefix(side)? {
        "" => Some(None),
        pair => Some(Some(pair.strip_prefix('.')?)),
    })
}

fn is_name(pair: &str) -> bool {
    pair.len() <= MAX_NAME
        && pair.starts_with(|c: char| c.is_ascii_alphanumeric())
        && pair.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// The names of the pairs of some ports, in the order of their first ports. Whether a pair has both
/// ports is not checked.
///
/// # Errors
/// The first fault.
pub fn pairs<'a>(
    ports: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Option<&'a str>>, PairsError> {
    let mut found: Vec<(Option<&str>, &str)> = Vec::new();
    for port in ports {
        let pair = pair_of(port).ok_or_else(|| PairsError::Stranger(port.to_owned()))?;
        if pair.is_some_and(|pair| !is_name(pair)) {
            return Err(PairsError::Name(port.to_owned()));
        }
        if found.iter().all(|(other, _)| *other != pair) {
            found.push((pair, port));
        }
    }
    let with = |is_named: bool| found.iter().find(|(pair, _)| pair.is_some() == is_named);
    if let (Some((_, unnamed)), Some((_, named))) = (with(false), with(true)) {
        let (unnamed, named) = ((*unnamed).to_owned(), (*named).to_owned());
        return Err(PairsError::Mixed { unnamed, named });
    }
    if found.len() > MAX_PAIRS {
        return Err(PairsError::TooMany { pairs: found.len() });
    }
    Ok(found.into_iter().map(|(pair, _)| pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_those_of_the_ports_in_their_order() {
        assert_eq!(pairs(["client", "wan"]), Ok(vec![None]));
        let ports = ["wan.b", "client.a", "wan.a", "client.b", "client.x.1"];
        assert_eq!(pairs(ports), Ok(vec![Some("b"), Some("a"), Some("x.1")]));
        assert_eq!(pairs([]), Ok(Vec::new()));
        assert_eq!(port_name("wan", None), "wan");
        assert_eq!(port_name("client", Some("b")), "client.b");
    }

    #[test]
    fn invalid_ports_are_refused_with_the_remedy() {
        let many: Vec<String> = (0..=MAX_PAIRS).map(|n| format!("wan.p{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (ports, message) in [
            (&["lan"][..], "there is no port `lan`"),
            (&["wan1"], "there is no port `wan1`"),
            (&["a.wan"], "`wan.NAME` and `client.NAME`"),
            (&["wan."], "port `wan.`: a pair's name has 1 to 16"),
            (&["client.-a"], "begins with a letter or digit"),
            (&["client.a b"], "port `client.a b`"),
            (&["client.0123456789abcdefg"], "1 to 16"),
            (&["wan", "client", "wan.a"], "port `wan` is of a pair without a name, and `wan.a`"),
            (&many, "17 port pairs: a box has at most 16; leave 1 of them out"),
        ] {
            let error = pairs(ports.iter().copied()).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
