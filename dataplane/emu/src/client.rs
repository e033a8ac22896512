// SPDX-License-Identifier: Apache-2.0
//! Who a frame belongs to.
//!
//! A client is identified by its [`ClientKey`], never by the order in which it
//! was seen: its random streams hang on the key, so that its frames meet the same
//! fate on any worker and among any others.

use std::fmt;
use std::net::IpAddr;

/// The identity of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKey {
    /// Not impaired: ARP, ND, LLDP, STP and all else that is not IP.
    Bypass,
    /// IP that no client could be made for: multicast, link-local, damaged
    /// headers, and every address past the limit on clients.
    Default,
    /// A host on the satellite side.
    Ip(IpAddr),
}

impl ClientKey {
    /// A form that no two keys share.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 17] {
        let mut b = [0; 17];
        match self {
            Self::Bypass => b[0] = 1,
            Self::Default => b[0] = 2,
            Self::Ip(IpAddr::V4(a)) => {
                b[0] = 4;
                b[1..5].copy_from_slice(&a.octets());
            }
            Self::Ip(IpAddr::V6(a)) => {
                b[0] = 6;
                b[1..].copy_from_slice(&a.octets());
            }
        }
        b
    }
}

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bypass => f.write_str("bypass"),
            Self::Default => f.write_str("default"),
            Self::Ip(a) => a.fmt(f),
        }
    }
}
