// SPDX-License-Identifier: Apache-2.0
//! Whether this machine itself uses a kernel interface that is a port: its addresses, and the default route.

use crate::finding::Finding;
use interface::{Interface, Used};

const CHECK: &str = "port use";

/// One interface; nothing if there is none, which is another check.
pub async fn check(iface: &str) -> Option<Finding> {
    let index = Interface::find(iface)?.index();
    let used = Used::read(index).await.map_err(|error| error.to_string());
    Some(judge(iface, &used))
}

fn judge(iface: &str, used: &Result<Used, String>) -> Finding {
    let used = match used {
        Ok(used) => used,
        Err(error) => {
            return Finding::warning(
                CHECK,
                format!("{iface}: not known: {error}"),
                "the emulator forwards all packets of an interface, also those of this machine",
                format!("ip address show dev {iface}"),
            );
        }
    };
    if used.has_default {
        return Finding::warning(
            CHECK,
            format!("{iface}: it has the default route of this machine"),
            "the dataplane refuses it unless the port has `takeover`: the machine may be out of reach",
            "ip route show default",
        );
    }
    if let Some((address, length)) = used.addresses.first() {
        return Finding::warning(
            CHECK,
            format!("{iface}: it has the address {address}/{length}"),
            "this machine answers packets that the emulator also forwards",
            format!("ip address flush dev {iface}"),
        );
    }
    Finding::ok(CHECK, format!("{iface}: no address, no default route"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[test]
    fn interface_that_the_machine_uses_is_reported() {
        let addresses = vec![([192, 0, 2, 7].into(), 24)];
        let addressed = Used { addresses, ..Used::default() };
        let routed = Used { has_default: true, ..addressed.clone() };
        for (used, level, part) in [
            (Ok(Used::default()), Level::Ok, "no address"),
            (Ok(addressed), Level::Warning, "192.0.2.7/24"),
            (Ok(routed), Level::Warning, "default route"),
            (Err("no netlink".to_owned()), Level::Warning, "no netlink"),
        ] {
            let finding = judge("eth0", &used);
            assert_eq!(finding.level(), level);
            assert!(finding.found.contains(part), "{finding:?}");
        }
    }
}
