// SPDX-License-Identifier: Apache-2.0
//! The use that this machine itself makes of an interface: its addresses, and default routes by it.
//!
//! Reference: rtnetlink(7). The network namespace is that of the calling thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{Handle, RouteMessageBuilder};
use tokio_stream::StreamExt;

/// The use that this machine makes of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// With the lengths of their prefixes. Those of the link-local scope are left out: the kernel makes them
    /// by itself.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Whether it has a default route, in any table.
    pub has_default: bool,
    /// The gateways of these.
    pub gateways: Vec<IpAddr>,
}

impl Used {
    /// Of the interface with this index.
    ///
    /// # Errors
    /// If the kernel does not answer.
    pub async fn read(index: u32) -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let used = asked(&handle, index).await;
        connection.abort();
        used.map_err(io::Error::other)
    }

    fn address(&mut self, message: &AddressMessage) {
        let is_local = message.header.scope == AddressScope::Link;
        let address = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        if let Some(address) = address.filter(|_| !is_local) {
            self.addresses.push((address, message.header.prefix_len));
        }
    }

    /// A route, if it is a default route by the interface with this index.
    fn route(&mut self, message: &RouteMessage, index: u32) {
        let by = |attribute: &RouteAttribute| match attribute {
            RouteAttribute::Oif(by) => *by == index,
            RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == index),
            _ => false,
        };
        let header = &message.header;
        let is_default = header.destination_prefix_length == 0 && header.kind == RouteType::Unicast;
        if !is_default || !message.attributes.iter().any(by) {
            return;
        }
        self.has_default = true;
        self.gateways.extend(message.attributes.iter().filter_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => gateway(address),
            _ => None,
        }));
    }
}

fn gateway(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

async fn asked(handle: &Handle, index: u32) -> Result<Used, rtnetlink::Error> {
    let mut used = Used::default();
    let mut addresses = Box::pin(handle.address().get().set_link_index_filter(index).execute());
    while let Some(message) = addresses.next().await {
        used.address(&message?);
    }
    let v4 = RouteMessageBuilder::<Ipv4Addr>::new().build();
    let v6 = RouteMessageBuilder::<Ipv6Addr>::new().build();
    for family in [v4, v6] {
        let mut routes = Box::pin(handle.route().get(family).execute());
        while let Some(message) = routes.next().await {
            used.route(&message?, index);
        }
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_counts_if_it_is_a_default_route_by_the_interface() {
        let by = |index| RouteMessageBuilder::<Ipv4Addr>::new().output_interface(index);
        let of = |message: RouteMessage| {
            let mut used = Used::default();
            used.route(&message, 7);
            (used.has_default, used.gateways)
        };
        let router = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(of(by(7).gateway(router).build()), (true, vec![router.into()]));
        assert_eq!(of(by(8).gateway(router).build()), (false, vec![]));
        assert_eq!(of(by(7).destination_prefix(router, 32).build()), (false, vec![]));
    }
}
