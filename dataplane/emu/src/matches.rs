// SPDX-License-Identifier: Apache-2.0
//! Matches: conditions on several fields of a frame, and the table that looks them up.
//!
//! A [`Match`] is a combination of VLANs, MAC, prefixes, protocol, ports, DSCP, flow label and port
//! pair; a field that is absent matches every frame. A [`Table`] maps matches to targets of any type, such
//! as clients.
//!
//! Of the matches that fit a frame, the one with the highest priority applies; then the one with
//! the longer client prefix, the longer remote prefix, and more fields. A tie, and a match that is
//! never reached, are [`Conflict`]s. So the order in which matches are inserted does not matter.
//!
//! - The client side is the destination of a forward frame and the source of a return frame. The
//!   remote side is the other one.
//! - A client prefix matches only addresses of one host ([`crate::classify`]); a remote prefix
//!   matches any address, so also multicast groups.
//! - A fragment other than the first has no ports. It has a protocol, except in IPv6 if the
//!   fragmented part begins with an extension header.
//! - IPv6 extension headers (hop-by-hop options, routing, fragment, destination options,
//!   authentication) are skipped, up to [`MAX_EXTENSIONS`](crate::protocol::MAX_EXTENSIONS). After
//!   more of them, and in a truncated chain, a packet has neither protocol nor ports. As in Linux
//!   (`ipv6_skip_exthdr`).
//!
//! The lookup is tuple space search (Srinivasan, Suri, Varghese 1999): a hash table for each
//! combination of masks, the highest precedence first. Port ranges are not expanded into prefixes,
//! which would cost up to 30 entries and 15 tables for one range: see [`ranges`]. The cost of a
//! frame depends on the number of tables ([`MAX_TABLES`]), not on the number of matches.
//!
//! Built on the control thread. The workers only look up, without allocation.

mod conflict;
mod extent;
pub mod fields;
pub mod ranges;
mod table;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use conflict::Conflict;
pub use extent::Extent;
pub use fields::Fields;
pub use ranges::Ports;
pub use table::{MAX_TABLES, Table};

use ranges::MAX_LAYERS;
use thiserror::Error;

use crate::classify::VLAN_IDS;
use crate::client::ClientName;
use crate::protocol::{ICMP, ICMPV6, TCP, UDP};

/// Maximum number of matches.
pub const MAX_MATCHES: usize = 16_384;
/// Most port pairs of a box.
pub const MAX_PAIRS: usize = 16;
/// Largest DSCP (RFC 2474).
pub const MAX_DSCP: u8 = 63;
/// Largest IPv6 flow label, 20 bits (RFC 8200).
pub const MAX_FLOW_LABEL: u32 = (1 << 20) - 1;

/// Protocols with names.
const NAMES: [(u8, &str); 4] = [(ICMP, "icmp"), (TCP, "tcp"), (UDP, "udp"), (ICMPV6, "icmpv6")];

/// Conditions on a frame. It has to meet all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Match {
    /// Higher goes first.
    pub priority: u32,
    /// Id of the outermost VLAN tag, 1 to 4094.
    pub vlan: Option<u16>,
    /// Id of the second VLAN tag, 1 to 4094.
    pub inner_vlan: Option<u16>,
    /// MAC address of the client side.
    pub mac: Option<[u8; 6]>,
    /// Address and prefix length of the client side.
    pub prefix: Option<(IpAddr, u8)>,
    /// Address and prefix length of the remote side.
    pub remote_prefix: Option<(IpAddr, u8)>,
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// TCP or UDP ports of the client side.
    pub port: Option<Ports>,
    /// TCP or UDP ports of the remote side.
    pub remote_port: Option<Ports>,
    /// 0 to [`MAX_DSCP`].
    pub dscp: Option<u8>,
    /// IPv6 flow label, 0 to [`MAX_FLOW_LABEL`].
    pub flow_label: Option<u32>,
    /// Name of the port pair that the frame came in by.
    pub port_pair: Option<ClientName>,
}

/// Reasons to refuse a match.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum MatchError {
    #[error("a match without fields is every frame's: give it at least one, such as prefix")]
    Empty,
    #[error("VLAN {0} cannot be: the ids are 1 to 4094")]
    Vlan(u16),
    #[error("prefix {0}/{1} is longer than its address")]
    Length(IpAddr, u8),
    #[error("prefix {0}/{1} has bits set behind the first {1}: write {2}/{1}")]
    HostBits(IpAddr, u8, IpAddr),
    #[error("prefix {0} and remote_prefix {1} are of different IP versions: no packet has both")]
    Versions(IpAddr, IpAddr),
    #[error("port range {0}-{1} is reversed: write {1}-{0}")]
    Reversed(u16, u16),
    #[error("ports are those of TCP and UDP: add protocol \"tcp\" or \"udp\", or leave them out")]
    NoProtocol,
    #[error("protocol {} has no ports: leave them out, or write \"tcp\" or \"udp\"", Protocol(*.0))]
    NoPorts(u8),
    #[error("protocol icmpv6 is not one of IPv4: write \"icmp\"")]
    Icmpv6,
    #[error("protocol icmp is not one of IPv6: write \"icmpv6\"")]
    Icmp,
    #[error(
        "protocol {0} is an extension header in IPv6, and these are skipped: write the number of \
         the protocol that follows"
    )]
    Extension(u8),
    #[error("DSCP {0} cannot be: the values are 0 to {MAX_DSCP}")]
    Dscp(u8),
    #[error("flow label {0} has more than 20 bits: the values are 0 to {MAX_FLOW_LABEL}")]
    FlowLabel(u32),
    #[error("flow label {0} with {1}: only IPv6 has flow labels, so leave one of them out")]
    FlowLabelV4(u32, IpAddr),
    #[error(
        "the matches need more than {MAX_TABLES} tables, one for each combination of fields and \
         prefix lengths: use fewer combinations"
    )]
    Tables,
    #[error(
        "port range {0} is one of more than {MAX_LAYERS} that overlap each other: use ranges that \
         overlap less"
    )]
    Layers(Ports),
    #[error("port_pair {0} is one more than the {MAX_PAIRS} pairs that a box can have")]
    Pairs(ClientName),
    #[error("more than {MAX_MATCHES} matches: merge prefixes or port ranges")]
    Full,
}

/// A match names a port pair that does not exist.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("there is no port pair `{name}`: {}", known(.pairs))]
pub struct UnknownPair {
    pub name: ClientName,
    /// Names of the pairs that exist.
    pub pairs: Vec<ClientName>,
}

fn known(pairs: &[ClientName]) -> String {
    if pairs.is_empty() {
        return "the only pair of this box has no name".to_owned();
    }
    let pairs: Vec<String> = pairs.iter().map(ToString::to_string).collect();
    format!("this box has {}", pairs.join(", "))
}

/// A protocol number in the form of a clients file.
pub struct Protocol(pub u8);

impl Protocol {
    /// The number of a name, such as `tcp`.
    #[must_use]
    pub fn named(name: &str) -> Option<u8> {
        NAMES.into_iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(n, _)| n)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.into_iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

/// A MAC address in the form of a clients file.
pub(crate) struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Match {
    /// Number of fields that it has.
    #[must_use]
    pub fn fields(&self) -> u8 {
        let Self { priority: _, vlan, inner_vlan, mac, prefix, remote_prefix, .. } = self;
        let Self { protocol, port, remote_port, dscp, flow_label, port_pair, .. } = self;
        let given = [
            vlan.is_some(),
            inner_vlan.is_some(),
            mac.is_some(),
            prefix.is_some(),
            remote_prefix.is_some(),
            protocol.is_some(),
            port.is_some(),
            remote_port.is_some(),
            dscp.is_some(),
            flow_label.is_some(),
            port_pair.is_some(),
        ];
        given.into_iter().map(u8::from).sum()
    }

    /// Precedence; the highest applies. Not above `u64::MAX >> 8`.
    pub(crate) fn rank(&self) -> u64 {
        let length = |prefix: Option<(IpAddr, u8)>| prefix.map_or(0, |(_, length)| length);
        let shape = [length(self.prefix), length(self.remote_prefix), self.fields()];
        shape.into_iter().fold(self.priority.into(), |rank, next| rank << 8 | u64::from(next))
    }

    /// Checks that each field is valid, and that no two of them exclude each other.
    ///
    /// # Errors
    /// The first fault.
    fn check(&self) -> Result<(), MatchError> {
        if self.fields() == 0 {
            return Err(MatchError::Empty);
        }
        let vlans = [self.vlan, self.inner_vlan].into_iter().flatten();
        if let Some(id) = vlans.into_iter().find(|id| !VLAN_IDS.contains(id)) {
            return Err(MatchError::Vlan(id));
        }
        for (address, length) in [self.prefix, self.remote_prefix].into_iter().flatten() {
            check_prefix(address, length)?;
        }
        self.check_version()?;
        self.check_ports()?;
        if let Some(dscp) = self.dscp.filter(|dscp| *dscp > MAX_DSCP) {
            return Err(MatchError::Dscp(dscp));
        }
        if let Some(label) = self.flow_label.filter(|label| *label > MAX_FLOW_LABEL) {
            return Err(MatchError::FlowLabel(label));
        }
        Ok(())
    }

    /// Fields that exist in one version of IP only.
    fn check_version(&self) -> Result<(), MatchError> {
        let (prefix, remote) = (self.prefix.map(|p| p.0), self.remote_prefix.map(|p| p.0));
        let address = prefix.or(remote);
        if let (Some(a), Some(b)) = (prefix, remote)
            && a.is_ipv4() != b.is_ipv4()
        {
            return Err(MatchError::Versions(a, b));
        }
        if let (Some(label), Some(address @ IpAddr::V4(_))) = (self.flow_label, address) {
            return Err(MatchError::FlowLabelV4(label, address));
        }
        let is_v6 = self.flow_label.is_some() || address.is_some_and(|a| a.is_ipv6());
        let is_v4 = address.is_some_and(|a| a.is_ipv4());
        match self.protocol {
            Some(ICMP) if is_v6 => Err(MatchError::Icmp),
            Some(ICMPV6) if is_v4 => Err(MatchError::Icmpv6),
            Some(other) if is_v6 && fields::is_extension(other) => {
                Err(MatchError::Extension(other))
            }
            _ => Ok(()),
        }
    }

    fn check_ports(&self) -> Result<(), MatchError> {
        let ports = [self.port, self.remote_port];
        for Ports { first, last } in ports.into_iter().flatten() {
            if first > last {
                return Err(MatchError::Reversed(first, last));
            }
        }
        match (ports, self.protocol) {
            ([None, None], _) | (_, Some(TCP | UDP)) => Ok(()),
            (_, None) => Err(MatchError::NoProtocol),
            (_, Some(other)) => Err(MatchError::NoPorts(other)),
        }
    }
}

/// Checks length and host bits.
///
/// # Errors
/// [`MatchError::Length`] or [`MatchError::HostBits`].
pub(crate) fn check_prefix(address: IpAddr, length: u8) -> Result<(), MatchError> {
    let too_long = MatchError::Length(address, length);
    let network: IpAddr = match address {
        IpAddr::V4(a) => {
            let mask = mask(length, 32).ok_or(too_long)? as u32;
            Ipv4Addr::from_bits(a.to_bits() & mask).into()
        }
        IpAddr::V6(a) => {
            Ipv6Addr::from_bits(a.to_bits() & mask(length, 128).ok_or(too_long)?).into()
        }
    };
    if network == address { Ok(()) } else { Err(MatchError::HostBits(address, length, network)) }
}

/// The first `length` of `bits` bits.
pub(crate) fn mask(length: u8, bits: u8) -> Option<u128> {
    let behind = u32::from(bits.checked_sub(length)?);
    let all = u128::MAX >> (128 - u32::from(bits));
    Some(all.checked_shl(behind).unwrap_or(0) & all)
}

/// As `match {vlan 7, prefix 10.0.0.0/8, priority 5}`.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = |(address, length): (IpAddr, u8)| format!("{address}/{length}");
        let fields = [
            self.vlan.map(|id| format!("vlan {id}")),
            self.inner_vlan.map(|id| format!("inner_vlan {id}")),
            self.mac.map(|mac| format!("mac {}", Mac(mac))),
            self.prefix.map(|p| format!("prefix {}", prefix(p))),
            self.remote_prefix.map(|p| format!("remote_prefix {}", prefix(p))),
            self.protocol.map(|p| format!("protocol {}", Protocol(p))),
            self.port.map(|ports| format!("port {ports}")),
            self.remote_port.map(|ports| format!("remote_port {ports}")),
            self.dscp.map(|dscp| format!("dscp {dscp}")),
            self.flow_label.map(|label| format!("flow_label {label}")),
            self.port_pair.map(|pair| format!("port_pair {pair}")),
            (self.priority > 0).then(|| format!("priority {}", self.priority)),
        ];
        let fields: Vec<String> = fields.into_iter().flatten().collect();
        write!(f, "match {{{}}}", fields.join(", "))
    }
}

#[cfg(test)]
mod tests;
