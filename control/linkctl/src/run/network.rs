// SPDX-License-Identifier: Apache-2.0
//! The interfaces, addresses and routes of a run's namespaces.
//!
//! ```text
//!   command ── eth0 ═ client ── emulator ── wan ═ eth0 ── far host ── up ═ subN ── outer command
//!     (near)                                                (only with a link around it)
//! ```
//!
//! All functions work in the network namespace of the calling thread.

use super::address::{LINK_V4, LINK_V6, Place};
use super::buffers::Sizes;
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkMessage};
use rtnetlink::packet_route::route::{RouteMessage, RouteType};
use rtnetlink::{
    Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder, new_connection,
};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// MAC address of the near host, by which all of its packets are one client.
pub const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Link-local addresses between a far host and the link around it.
const UP: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const DOWN: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const MULTICAST_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 0);
const EEXIST: i32 = -nix::libc::EEXIST;

type Result<T> = std::result::Result<T, String>;

struct Network(Handle);

impl Network {
    fn new() -> Result<Self> {
        let (connection, handle, _) =
            new_connection().map_err(|e| format!("cannot ask the kernel for interfaces: {e}"))?;
        tokio::spawn(connection);
        Ok(Self(handle))
    }

    async fn up(&self, name: &str) -> Result<u32> {
        let index = if_nametoindex(name).map_err(|e| format!("interface {name}: {e}"))?;
        let link = LinkUnspec::new_with_index(index).up().build();
        self.0.link().set(link).execute().await.map_err(said(&format!("start {name}")))?;
        Ok(index)
    }

    async fn address(&self, index: u32, address: impl Into<IpAddr>, length: u8) -> Result<()> {
        let address = address.into();
        let what = format!("assign {address}/{length}");
        self.0.address().add(index, address, length).execute().await.map_err(said(&what))
    }

    async fn route(&self, route: RouteMessage, what: &str) -> Result<()> {
        self.0.route().add(route).execute().await.map_err(said(&format!("add a route {what}")))
    }
}

fn said(what: &str) -> impl Fn(rtnetlink::Error) -> String {
    move |error| format!("cannot {what}: {error}")
}

/// The veth pairs between the hosts and the emulator. The caller is in the namespace of the emulator.
pub async fn pairs(far: BorrowedFd<'_>, near: BorrowedFd<'_>) -> Result<()> {
    // This namespace sends nothing by itself.
    sysctl("ipv6/conf/default/disable_ipv6", "1")?;
    let network = Network::new()?;
    network.up("lo").await?;
    for (port, host, mac) in [("wan", far, FAR_MAC), ("client", near, NEAR_MAC)] {
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name("eth0")
            .address(mac.to_vec())
            .setns_by_fd(host.as_raw_fd())
            .build();
        network.0.link().add(veth(port, peer)).execute().await.map_err(|error| match error {
            rtnetlink::Error::NetlinkError(e) if e.raw_code() == -nix::libc::EOPNOTSUPP => {
                "the kernel has no veth interfaces (CONFIG_VETH): load the module as root, \
                 `modprobe veth`"
                    .to_owned()
            }
            error => format!("cannot make the interfaces {port} and eth0: {error}"),
        })?;
        network.up(port).await?;
    }
    Ok(())
}

fn veth(name: &str, peer: LinkMessage) -> LinkMessage {
    LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
        .name(name)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .build()
}

/// Whether there is IPv6.
fn has_ipv6() -> bool {
    fs::exists("/proc/sys/net/ipv6").unwrap_or(false)
}

fn sysctl(key: &str, value: &str) -> Result<()> {
    if key.starts_with("ipv6/") && !has_ipv6() {
        return Ok(());
    }
    fs::write(format!("/proc/sys/net/{key}"), value)
        .map_err(|e| format!("cannot set net/{key} to {value}: {e}"))
}

/// Settings of a host, before it has interfaces.
pub fn prepare_host(gid: u32) -> Result<()> {
    sysctl("ipv4/ip_forward", "1")?;
    sysctl("ipv6/conf/all/forwarding", "1")?;
    for scope in ["all", "default"] {
        // Duplicates are impossible, and their detection would delay the first packet.
        sysctl(&format!("ipv6/conf/{scope}/accept_dad"), "0")?;
    }
    // `ping` without privileges; in a user namespace, only groups in it can be named.
    sysctl("ipv4/ping_group_range", "0 2147483647")
        .or_else(|_| sysctl("ipv4/ping_group_range", &format!("{gid} {gid}")))
}

/// Sets the largest TCP buffers of a host.
pub fn set_buffers(sizes: Sizes) -> Result<()> {
    for (key, most) in [("tcp_rmem", sizes.receive), ("tcp_wmem", sizes.send)] {
        let key = format!("ipv4/{key}");
        let text = fs::read_to_string(format!("/proc/sys/net/{key}"))
            .map_err(|e| format!("cannot read net/{key}: {e}"))?;
        let mut words: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
        let Some(largest) = words.get_mut(2) else {
            return Err(format!("net/{key} has no three numbers: {text:?}"));
        };
        *largest = most;
        // The least and the first size are no larger.
        let words: Vec<_> = words.iter().map(|size| size.min(&most).to_string()).collect();
        sysctl(&key, &words.join(" "))?;
    }
    Ok(())
}

/// Sets up the far host. With a link around this one, its interface `up` is there.
pub async fn far(place: &Place) -> Result<()> {
    let network = host(place.far()).await?;
    let eth0 = network.up("eth0").await?;
    // It has no default route by which multicast would find the link. For IPv6 the kernel makes one.
    let route = v4_route(MULTICAST_V4, 4, eth0).build();
    network.route(route, "for multicast").await?;
    let ((v4, short), (v6, long)) = place.all();
    let (near4, near6) = place.near();
    if short < LINK_V4 {
        let route = v4_route(v4, short, eth0).gateway(near4).build();
        network.route(route, &format!("to {v4}/{short}")).await?;
    }
    if long < LINK_V6 && has_ipv6() {
        let route = v6_route(v6, long, eth0).gateway(near6).build();
        network.route(route, &format!("to {v6}/{long}")).await?;
    }
    let Some(around) = place.outside() else { return Ok(()) };
    let up = network.up("up").await?;
    let default = v4_route(Ipv4Addr::UNSPECIFIED, 0, up).gateway(around.near().0).onlink();
    network.route(default.build(), "to the link around").await?;
    if has_ipv6() {
        network.address(up, UP, LINK_V6).await?;
        let default = v6_route(Ipv6Addr::UNSPECIFIED, 0, up).gateway(DOWN).build();
        network.route(default, "to the link around").await?;
    }
    Ok(())
}

/// Sets up the near host.
pub async fn near(place: &Place) -> Result<()> {
    let network = host(place.near()).await?;
    let eth0 = network.up("eth0").await?;
    let (far4, far6) = place.far();
    let ((v4, short), (v6, long)) = place.all();
    let default = v4_route(Ipv4Addr::UNSPECIFIED, 0, eth0).gateway(far4).build();
    network.route(default, "to the far host").await?;
    // Without it, packets to links that do not exist would go to and fro.
    if short < LINK_V4 {
        let none = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(v4, short);
        network.route(none.kind(RouteType::Unreachable).build(), "for no link").await?;
    }
    if has_ipv6() {
        let default = v6_route(Ipv6Addr::UNSPECIFIED, 0, eth0).gateway(far6).build();
        network.route(default, "to the far host").await?;
        if long < LINK_V6 {
            let none = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(v6, long);
            network.route(none.kind(RouteType::Unreachable).build(), "for no link").await?;
        }
    }
    Ok(())
}

/// Connects a run inside the near host of another one. The caller is in the namespace of that host, and
/// `pid` is a process in the namespace of the far host of the inner run. Returns the place of the inner link.
pub async fn nest(around: &Place, pid: u32) -> Result<Place> {
    let network = Network::new()?;
    for place in around.inside() {
        let name = format!("sub{}", place.number());
        let peer = LinkMessageBuilder::<LinkUnspec>::new().name("up").setns_by_pid(pid).build();
        match network.0.link().add(veth(&name, peer)).execute().await {
            Ok(()) => {}
            Err(rtnetlink::Error::NetlinkError(e)) if e.raw_code() == EEXIST => continue,
            Err(error) => return Err(format!("cannot make the interface {name}: {error}")),
        }
        let sub = network.up(&name).await?;
        let ((v4, short), (v6, long)) = place.all();
        let route = v4_route(v4, short, sub).gateway(place.far().0).onlink().build();
        network.route(route, &format!("to {v4}/{short}")).await?;
        if has_ipv6() {
            network.address(sub, DOWN, LINK_V6).await?;
            let route = v6_route(v6, long, sub).gateway(UP).build();
            network.route(route, &format!("to {v6}/{long}")).await?;
        }
        return Ok(place);
    }
    Err(format!("there is no room for another link inside link {around}: see docs/run.md"))
}

/// Addresses of a host; its eth0 stays down.
async fn host((v4, v6): (Ipv4Addr, Ipv6Addr)) -> Result<Network> {
    interface::disable_offloads("eth0").map_err(|e| e.to_string())?;
    let on = interface::offloads("eth0").map_err(|e| e.to_string())?;
    if on.contains(&interface::Offload::TxChecksum) {
        return Err("eth0: the kernel leaves transmit checksums on".into());
    }
    let network = Network::new()?;
    network.up("lo").await?;
    let eth0 = if_nametoindex("eth0").map_err(|e| e.to_string())?;
    network.address(eth0, v4, LINK_V4).await?;
    if has_ipv6() {
        network.address(eth0, v6, LINK_V6).await?;
    }
    Ok(network)
}

fn v4_route(to: Ipv4Addr, length: u8, interface: u32) -> RouteMessageBuilder<Ipv4Addr> {
    RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(to, length)
        .output_interface(interface)
}

fn v6_route(to: Ipv6Addr, length: u8, interface: u32) -> RouteMessageBuilder<Ipv6Addr> {
    RouteMessageBuilder::<Ipv6Addr>::new()
        .destination_prefix(to, length)
        .output_interface(interface)
}
