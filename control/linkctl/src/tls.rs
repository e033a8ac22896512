// SPDX-License-Identifier: Apache-2.0
//! TLS towards linkd, and its place.

use crate::failure::Failure;
use ::tls::client::{Fault, Names, Watched};
use rustls::pki_types::ServerName;
use std::io;
use std::path::Path;
use std::str::FromStr;
use tokio_rustls::TlsConnector;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// A name or an address, which its certificate must have.
    pub name: ServerName<'static>,
    pub port: u16,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write HOST:PORT, such as linkemu.lab:8443 or [fd00::1]:8443".to_owned();
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let name = ServerName::try_from(inner.unwrap_or(host).to_owned()).map_err(|_| wrong())?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        match (&name, inner) {
            (ServerName::IpAddress(address), inner)
                if std::net::IpAddr::from(*address).is_ipv6() == inner.is_some() =>
            {
                Ok(Self { name, port })
            }
            (ServerName::DnsName(_), None) => Ok(Self { name, port }),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, port } = self;
        let name = name.to_str();
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

/// For one connection.
pub fn fault() -> Fault {
    Fault::new(Names {
        ca: "--ca".into(),
        server: "--server".into(),
        own: "--cert and --key".into(),
        plain: "is that the port of linkd --listen?".into(),
    })
}

/// Shows a certificate to who has one of an authority.
///
/// # Errors
/// If a file is no good, which needs no server to be seen.
pub fn connector(ca: &Path, cert: &Path, key: &Path) -> Result<TlsConnector, Failure> {
    let connector = ::tls::client::connector(ca, Some((cert, key)));
    connector.map_err(|error| Failure::failed("certificate", error.to_string()))
}

/// Connects.
///
/// # Errors
/// What the system or TLS says; the fault has it in words.
pub async fn connect(connector: TlsConnector, server: Server, fault: Fault) -> io::Result<Watched> {
    let Server { name, port } = server;
    ::tls::client::connect(connector, (&*name.to_str(), port), name.clone(), fault).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port() {
        for text in ["linkemu.lab:8443", "10.0.0.1:1", "[fd00::1]:65535", "localhost:8443"] {
            assert_eq!(text.parse::<Server>().map(|server| server.to_string()), Ok(text.into()));
        }
        for text in [
            "",
            ":",
            "host",
            "host:",
            "host:0",
            ":8443",
            "host:65536",
            "fd00::1:8443",
            "[host]:1",
            "[10.0.0.1]:1",
            "a b:1",
            "https://host:1",
            "host:+1x",
        ] {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
    }
}
