// SPDX-License-Identifier: Apache-2.0
//! Host and port of a reflector, as users write them and as an address.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// UDP port of a reflector if none is given.
pub const PORT: u16 = 8620;

/// Error of parsing a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no target: {why}; write HOST, HOST:PORT or [IPv6]:PORT")]
pub struct TargetError {
    text: String,
    why: &'static str,
}

/// Error of resolving the name of a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot resolve {host}: {why}; give a name that `getent hosts` knows, or an address")]
pub struct ResolveError {
    host: String,
    why: String,
}

/// Host and UDP port of a reflector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
}

impl Target {
    /// Returns the first address of the host that has the family of `source`.
    ///
    /// # Errors
    /// If the name does not resolve, or has no address of that family.
    pub fn resolve(&self, source: Option<IpAddr>) -> Result<SocketAddr, ResolveError> {
        let failed = |why: String| ResolveError { host: self.host.clone(), why };
        let addresses = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| failed(error.to_string()))?;
        let fits = |address: &SocketAddr| source.is_none_or(|s| s.is_ipv4() == address.is_ipv4());
        addresses.into_iter().find(fits).ok_or_else(|| match source {
            Some(source) => failed(format!("it has no address of the family of --bind {source}")),
            None => failed("it has no address".into()),
        })
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let wrong = |why| TargetError { text: text.into(), why };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, port)) => match port.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None => return Err(wrong("after ']' comes a port")),
                },
                None => return Err(wrong("']' is missing")),
            },
            // More than one colon: an IPv6 address without brackets.
            None => match text.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (text, None),
            },
        };
        let port = match port.map(str::parse) {
            None => PORT,
            Some(Ok(0) | Err(_)) => return Err(wrong("a port is a number from 1 to 65535")),
            Some(Ok(port)) => port,
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(wrong("a host has a name or an address"));
        }
        Ok(Self { host: host.into(), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_target_is_a_host_and_perhaps_a_port() {
        for (text, shown) in [
            ("host", "host:8620"),
            ("host:9", "host:9"),
            ("192.0.2.1", "192.0.2.1:8620"),
            ("::1", "[::1]:8620"),
            ("[::1]", "[::1]:8620"),
            ("[fe80::1%eth0]:7", "[fe80::1%eth0]:7"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), shown);
        }
        for text in ["", ":9", "host:", "host:0", "host:65536", "host:-1", "[::1", "[::1]9", "a b"]
        {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("write HOST"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_target_is_shown_as_it_is_read(text in "\\PC{0,40}") {
            if let Ok(target) = text.parse::<Target>() {
                // A bracket inside a name does not resolve, and the shown form is not parsed again.
                prop_assume!(!text.contains(['[', ']']));
                prop_assert_eq!(target.to_string().parse(), Ok(target));
            }
        }
    }

    #[test]
    fn an_address_of_the_wrong_family_is_no_answer() {
        let target: Target = "127.0.0.1:9".parse().unwrap();
        assert_eq!(target.resolve(None).unwrap(), "127.0.0.1:9".parse().unwrap());
        let error = target.resolve(Some("::1".parse().unwrap())).unwrap_err().to_string();
        assert!(error.contains("--bind ::1"), "{error}");
    }
}
