// SPDX-License-Identifier: Apache-2.0
//! The identity of a client.
//!
//! A client is identified by its [`ClientKey`], never by the order in which it
//! was seen: its random streams derive from the key, so that its frames meet the same
//! fate on any worker and among any others.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Characters of a client's name, at most.
pub const MAX_NAME: usize = 16;
/// Names that mean something else: the fixed clients, the sum of those that have expired, and
/// the sum of those that the metrics combine.
pub const RESERVED: [&str; 4] = ["bypass", "default", "expired", "other"];

/// The name of a client that rules name: 1 to [`MAX_NAME`] of A-Z, a-z, 0-9, `.`, `_` and
/// `-`, none of [`RESERVED`] and no IP address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName([u8; MAX_NAME]);

/// Why a text is not the name of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Empty, or too long.
    Length(usize),
    Character(char),
    Reserved(&'static str),
    /// Would be taken for an automatic client.
    Address,
}

impl NameError {
    /// The message for a name of `what`, which has the form of a client's.
    #[must_use]
    pub fn about(self, what: &str) -> String {
        match self {
            Self::Length(length) => format!(
                "a {what}'s name has 1 to {MAX_NAME} characters, not {length}: choose another one"
            ),
            Self::Character(c) => {
                format!("{c:?} cannot be in a {what}'s name: use A-Z, a-z, 0-9, '.', '_' and '-'")
            }
            Self::Reserved(name) => {
                format!("{name:?} is not a {what} that rules can name: choose another name")
            }
            Self::Address => format!(
                "an IP address is the name of that address's own {what}: choose another name"
            ),
        }
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about("client"))
    }
}

impl std::error::Error for NameError {}

impl ClientName {
    #[inline]
    pub(crate) fn bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }
}

impl FromStr for ClientName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if let Some(other) = text.chars().find(|c| !allowed(*c)) {
            return Err(NameError::Character(other));
        }
        let mut padded = [0; MAX_NAME];
        match padded.get_mut(..text.len()) {
            Some(place) if !text.is_empty() => place.copy_from_slice(text.as_bytes()),
            _ => return Err(NameError::Length(text.len())),
        }
        if let Some(reserved) = RESERVED.into_iter().find(|r| r.eq_ignore_ascii_case(text)) {
            return Err(NameError::Reserved(reserved));
        }
        if text.parse::<IpAddr>().is_ok() {
            return Err(NameError::Address);
        }
        Ok(Self(padded))
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(MAX_NAME);
        // All of it is ASCII.
        f.write_str(std::str::from_utf8(&self.0[..end]).unwrap_or_default())
    }
}

impl fmt::Debug for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The identity of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClientKey {
    /// Not impaired: ARP, ND, LLDP, STP and all else that is not IP.
    Bypass,
    /// IP packets that cannot have a client: multicast, link-local, damaged
    /// headers, every address past the limit on clients, and addresses that have not been seen
    /// on the client side.
    Default,
    /// The sum of the accounts of clients that have expired. No frame belongs to it.
    Expired,
    /// A host on the satellite side that no rule names.
    Ip(IpAddr),
    /// A client that rules name ([`crate::rules`]).
    Named(ClientName),
}

impl ClientKey {
    /// A unique form of the key.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 17] {
        let mut b = [0; 17];
        match self {
            Self::Bypass => b[0] = 1,
            Self::Default => b[0] = 2,
            Self::Expired => b[0] = 3,
            Self::Ip(IpAddr::V4(a)) => {
                b[0] = 4;
                b[1..5].copy_from_slice(&a.octets());
            }
            Self::Ip(IpAddr::V6(a)) => {
                b[0] = 6;
                b[1..].copy_from_slice(&a.octets());
            }
            Self::Named(name) => {
                b[0] = 7;
                b[1..].copy_from_slice(&name.0);
            }
        }
        b
    }
}

/// As it is displayed.
impl FromStr for ClientKey {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text {
            "bypass" => Ok(Self::Bypass),
            "default" => Ok(Self::Default),
            "expired" => Ok(Self::Expired),
            _ => text.parse().map(Self::Ip).or_else(|_| text.parse().map(Self::Named)),
        }
    }
}

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bypass => f.write_str("bypass"),
            Self::Default => f.write_str("default"),
            Self::Expired => f.write_str("expired"),
            Self::Ip(a) => a.fmt(f),
            Self::Named(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_name_is_validated() {
        for good in ["a", "alice", "Site-7_b.x", "0123456789abcdef", "10.0.0", "bypass2", "-"] {
            assert_eq!(good.parse::<ClientName>().unwrap().to_string(), good);
        }
        for key in ["bypass", "default", "expired", "10.0.0.1", "2001:db8::1", "alice"] {
            assert_eq!(key.parse::<ClientKey>().unwrap().to_string(), key);
        }
        for (bad, error) in [
            ("", NameError::Length(0)),
            ("0123456789abcdefg", NameError::Length(17)),
            ("a b", NameError::Character(' ')),
            ("a\0", NameError::Character('\0')),
            ("bücher", NameError::Character('ü')),
            ("Default", NameError::Reserved("default")),
            ("bypass", NameError::Reserved("bypass")),
            ("other", NameError::Reserved("other")),
            ("10.0.0.1", NameError::Address),
        ] {
            assert_eq!(bad.parse::<ClientName>(), Err(error), "{bad}");
        }
    }

    #[test]
    fn no_two_keys_share_their_bytes() {
        let name = |n: &str| ClientKey::Named(n.parse().unwrap());
        let ip = |a: &str| ClientKey::Ip(a.parse().unwrap());
        let keys = [
            ClientKey::Bypass,
            ClientKey::Default,
            ClientKey::Expired,
            ip("97.0.0.0"),
            ip("6100::"),
            name("a"),
            name("aa"),
        ];
        let bytes: std::collections::BTreeSet<_> = keys.iter().map(|k| k.to_bytes()).collect();
        assert_eq!(bytes.len(), keys.len());
    }
}
