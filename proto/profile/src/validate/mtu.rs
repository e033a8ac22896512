// SPDX-License-Identifier: Apache-2.0
//! Rules of an MTU.

use crate::Violations;
use proto::linkemu::v1 as pb;
use std::net::{Ipv4Addr, Ipv6Addr};
use units::shown;

pub(super) fn check(found: &mut Violations, path: &str, mtu: &pb::Mtu) {
    if !mtu.address.is_empty() && !mtu.address.parse().is_ok_and(is_host_v4) {
        let message = format!(
            "{:?} is not the IPv4 address of a host: write one such as \"192.0.2.1\"",
            shown(&mtu.address)
        );
        found.push(format!("{path}.address"), message);
    }
    if !mtu.address_v6.is_empty() && !mtu.address_v6.parse().is_ok_and(is_host_v6) {
        let message = format!(
            "{:?} is not the IPv6 address of a host: write one such as \"2001:db8::1\"",
            shown(&mtu.address_v6)
        );
        found.push(format!("{path}.address_v6"), message);
    }
}

/// Not in 0.0.0.0/8, loopback, multicast, class E or broadcast.
fn is_host_v4(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    first != 0 && first < 224 && !address.is_loopback()
}

fn is_host_v6(address: Ipv6Addr) -> bool {
    let is_mapped = address.to_ipv4_mapped().is_some();
    !(address.is_multicast() || address.is_unspecified() || address.is_loopback() || is_mapped)
}
