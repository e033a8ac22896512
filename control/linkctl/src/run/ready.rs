// SPDX-License-Identifier: Apache-2.0
//! Whether the server of a run serves: by the sockets in the network namespace of this process, which
//! has no others.

use procfs::net::{TcpState, UdpState, tcp, tcp6, udp, udp6};
use serde::{Deserialize, Serialize};
use std::fmt;

/// When the server of `--serve` is ready for the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ready {
    /// With its first TCP socket that listens, or UDP socket that is bound.
    Any,
    Tcp(u16),
    Udp(u16),
    /// At once.
    None,
}

impl Ready {
    /// # Errors
    /// If it is none of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let port = |text: &str| match text.parse() {
            Ok(0) | Err(_) => Err(format!("{text:?} is no port from 1 to 65535")),
            Ok(port) => Ok(port),
        };
        match text.split_once(':') {
            None if text == "any" => Ok(Self::Any),
            None if text == "none" => Ok(Self::None),
            Some(("tcp", text)) => port(text).map(Self::Tcp),
            Some(("udp", text)) => port(text).map(Self::Udp),
            _ => Err("it is tcp:PORT, udp:PORT, any or none".into()),
        }
    }

    /// Whether there is such a socket. Without a file of `/proc/net`, as without IPv6, there is none.
    pub fn holds(self) -> bool {
        let mut tcp = [tcp(), tcp6()].into_iter().flatten().flatten();
        let mut udp = [udp(), udp6()].into_iter().flatten().flatten();
        // Of UDP, "closed" is a bound socket without a peer.
        let mut listens = |port: Option<u16>| {
            tcp.any(|it| it.state == TcpState::Listen && is(port, it.local_address.port()))
        };
        let mut is_bound = |port: Option<u16>| {
            udp.any(|it| it.state == UdpState::Close && is(port, it.local_address.port()))
        };
        match self {
            Self::Any => listens(None) || is_bound(None),
            Self::Tcp(port) => listens(Some(port)),
            Self::Udp(port) => is_bound(Some(port)),
            Self::None => true,
        }
    }
}

fn is(wanted: Option<u16>, port: u16) -> bool {
    wanted.is_none_or(|wanted| wanted == port)
}

/// "a socket that listens", "TCP port 5201".
impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any TCP or UDP port"),
            Self::Tcp(port) => write!(f, "TCP port {port}"),
            Self::Udp(port) => write!(f, "UDP port {port}"),
            Self::None => f.write_str("no port"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn condition_is_port_of_a_protocol_any_or_none() {
        assert_eq!(Ready::parse("tcp:5201"), Ok(Ready::Tcp(5201)));
        assert_eq!(Ready::parse("udp:53"), Ok(Ready::Udp(53)));
        assert_eq!(Ready::parse("any"), Ok(Ready::Any));
        assert_eq!(Ready::parse("none"), Ok(Ready::None));
        for text in ["", "5201", "tcp", "tcp:", "tcp:0", "udp:65536", "sctp:1", "tcp:5201:1"] {
            assert!(Ready::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn listening_and_bound_ports_are_ready_and_connected_ones_are_not() {
        let server = TcpListener::bind("[::1]:0").or_else(|_| TcpListener::bind("127.0.0.1:0"));
        let server = server.unwrap();
        let address = server.local_addr().unwrap();
        assert!(Ready::Tcp(address.port()).holds());
        assert!(!Ready::Udp(address.port()).holds() && Ready::Any.holds());
        let client = TcpStream::connect(address).unwrap();
        assert!(!Ready::Tcp(client.local_addr().unwrap().port()).holds());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(Ready::Udp(port).holds() && !Ready::Tcp(port).holds());
        socket.connect("127.0.0.1:9").unwrap();
        assert!(!Ready::Udp(port).holds());
    }
}
