// SPDX-License-Identifier: Apache-2.0
//! Conversion of texts that simple rules and matches have in common.

use ipnet::IpNet;
use mac_address::MacAddress;
use std::net::IpAddr;
use units::shown;

/// Addresses that belong to no single host: the classifier gives them to the default client.
const OF_NO_HOST: [&str; 5] =
    ["224.0.0.0/4", "127.0.0.0/8", "169.254.0.0/16", "ff00::/8", "fe80::/10"];

/// A prefix. The core rejects bits after it.
pub(crate) fn net(text: &str) -> Result<IpNet, String> {
    let no_prefix = || match text.parse::<IpAddr>() {
        Ok(address) => format!("{address} has no length: write {}", IpNet::from(address)),
        Err(_) => {
            format!("{:?} is no prefix: write it as 10.1.0.0/24 or 2001:db8:1::/48", shown(text))
        }
    };
    text.parse().map_err(|_| no_prefix())
}

/// The range of addresses of no single host that a prefix is in.
pub(crate) fn of_no_host(net: IpNet) -> Option<&'static str> {
    OF_NO_HOST.into_iter().find(|of| of.parse::<IpNet>().is_ok_and(|of| of.contains(&net)))
}

pub(crate) fn no_vlan(id: u32) -> String {
    format!("VLAN {id} cannot be: the ids are 1 to 4094")
}

pub(crate) fn mac(text: &str) -> Result<[u8; 6], String> {
    let mac = text.parse::<MacAddress>().ok();
    // The parser also accepts less regular forms.
    let mac = mac.filter(|mac| mac.to_string().eq_ignore_ascii_case(&text.replace('-', ":")));
    let Some(mac) = mac else {
        return Err(format!("{:?} is no MAC address: write it as 02:00:00:00:00:01", shown(text)));
    };
    Ok(mac.bytes())
}
