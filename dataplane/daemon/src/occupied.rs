// SPDX-License-Identifier: Apache-2.0
//! Whether this machine itself uses a kernel interface that a port takes.
//!
//! The emulator forwards all that comes to the interface to the other port, and the machine's own network
//! stack sees it too. An interface with the default route is refused unless the port has `takeover`: the
//! machine may be reached by it. One with an address is only reported: there are test beds with one.
//! `linkctl doctor` reports both.
//!
//! Control thread, before the ports are opened.

use std::net::IpAddr;

use dpdk::{Interface, NamedPort, Used};
use thiserror::Error;

use crate::pairs::{self, PortPair};

/// A port would take the interface by which this machine reaches its network.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "port `{port}`: the interface {iface} has this machine's default route{}, and the machine may be out of \
     reach once the emulator forwards its packets: give another interface, remove the route, or add \
     `takeover` to the port (--port {port}={spec},takeover)", via(.gateways)
)]
pub struct Occupied {
    port: String,
    iface: String,
    spec: String,
    gateways: Vec<IpAddr>,
}

fn via(gateways: &[IpAddr]) -> String {
    let listed: Vec<_> = gateways.iter().map(ToString::to_string).collect();
    if listed.is_empty() { String::new() } else { format!(" (via {})", listed.join(", ")) }
}

/// Refuses a port that would take a default route. Returns a warning if the interface has an address.
fn judge(port: &NamedPort, iface: &str, used: &Used) -> Result<Option<String>, Occupied> {
    let takes_over = port.spec.takes_over();
    if used.has_default && !takes_over {
        let (port, spec) = (port.name.clone(), port.spec.to_string());
        let (iface, gateways) = (iface.to_owned(), used.gateways.clone());
        return Err(Occupied { port, iface, spec, gateways });
    }
    if used.addresses.is_empty() || takes_over {
        return Ok(None);
    }
    let listed: Vec<_> = used.addresses.iter().map(|(a, length)| format!("{a}/{length}")).collect();
    Ok(Some(format!(
        "the interface {iface} has the address {}: this machine answers packets that the emulator also \
         forwards; remove it (`ip address flush dev {iface}`), or give another interface",
        listed.join(", ")
    )))
}

/// Checks the kernel interfaces of all ports. Warnings are logged.
///
/// # Errors
/// [`Occupied`].
pub fn check(pairs: &[PortPair]) -> Result<(), Occupied> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::warn!(%error, "not known whether this machine uses the interfaces of the ports");
            return Ok(());
        }
    };
    for port in pairs::devices(pairs) {
        let Some(iface) = port.spec.iface() else { continue };
        let Some(index) = Interface::find(iface).map(|interface| interface.index()) else {
            continue;
        };
        match runtime.block_on(Used::read(index)) {
            Ok(used) => {
                if let Some(warning) = judge(port, iface, &used)? {
                    tracing::warn!(port = port.name, "{warning}");
                }
            }
            Err(error) => {
                tracing::warn!(iface, %error, "not known whether this machine uses the interface");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(spec: &str) -> NamedPort {
        NamedPort { name: "wan".into(), spec: spec.parse().unwrap() }
    }

    #[test]
    fn interface_with_the_default_route_is_refused_without_takeover() {
        let gateways = vec![IpAddr::from([192, 0, 2, 1])];
        let address = (IpAddr::from([192, 0, 2, 7]), 24);
        let used = Used { addresses: vec![address], has_default: true, gateways };
        let plain = port("net_af_packet,iface=eth0");
        let refused = judge(&plain, "eth0", &used).unwrap_err().to_string();
        for part in
            ["`wan`", "eth0", "via 192.0.2.1", "--port wan=net_af_packet,iface=eth0,takeover"]
        {
            assert!(refused.contains(part), "{refused}");
        }
        assert_eq!(judge(&port("net_af_packet,iface=eth0,takeover"), "eth0", &used), Ok(None));
        let addressed = Used { has_default: false, ..used };
        let warning = judge(&plain, "eth0", &addressed).unwrap().unwrap();
        assert!(
            warning.contains("192.0.2.7/24") && warning.contains("flush dev eth0"),
            "{warning}"
        );
        assert_eq!(judge(&plain, "eth0", &Used::default()), Ok(None));
    }
}
