// SPDX-License-Identifier: Apache-2.0
//! The offloads of kernel interfaces, which break a packet path over virtual ones.
//!
//! A sender with checksum or segmentation offload hands over packets with unfinished checksums
//! and segments of up to 64 KB; a receiver with GRO or LRO merges packets. A real device does
//! that work on the wire; a veth pair leaves it undone. Names are those of the kernel's
//! ethtool netlink (`ETHTOOL_MSG_FEATURES_GET`), in the network namespace of this process.

use crate::finding::Finding;
use crate::machine::Machine;
use ethtool::{EthtoolAttr, EthtoolFeatureAttr};
use std::time::Duration;
use tokio_stream::StreamExt;

const CHECK: &str = "offloads";
/// The kernel answers at once.
const DEADLINE: Duration = Duration::from_secs(5);

/// A kind by the letters of `ethtool -K`.
fn kind(feature: &str) -> Option<&'static str> {
    Some(match feature {
        "tx-checksum-ip-generic" | "tx-checksum-ipv4" | "tx-checksum-ipv6" => "tx",
        "tx-tcp-segmentation"
        | "tx-tcp6-segmentation"
        | "tx-tcp-ecn-segmentation"
        | "tx-tcp-mangleid-segmentation" => "tso",
        "tx-generic-segmentation" => "gso",
        "rx-gro" | "rx-gro-hw" | "rx-gro-list" => "gro",
        "rx-lro" => "lro",
        _ => return None,
    })
}

/// One interface; `Err` says why nothing is known of it.
pub async fn check(machine: &Machine, iface: &str) -> Finding {
    judge(machine, iface, &active(iface).await)
}

/// The features of an interface that are on.
async fn active(iface: &str) -> Result<Vec<String>, String> {
    let (connection, mut handle, _) = ethtool::new_connection().map_err(|e| e.to_string())?;
    let connection = tokio::spawn(connection);
    let asked = async {
        let mut answers = handle.feature().get(Some(iface)).execute().await;
        let answers = answers.as_mut().map_err(|e| e.to_string())?;
        let mut features = Vec::new();
        while let Some(answer) = answers.next().await {
            let answer = answer.map_err(|e| e.to_string())?;
            for attribute in answer.payload.nlas {
                if let EthtoolAttr::Feature(EthtoolFeatureAttr::Active(bits)) = attribute {
                    features.extend(bits.into_iter().filter(|bit| bit.value).map(|bit| bit.name));
                }
            }
        }
        Ok(features)
    };
    let features = tokio::time::timeout(DEADLINE, asked).await;
    connection.abort();
    features.unwrap_or_else(|_| Err("the kernel did not answer".into()))
}

fn judge(machine: &Machine, iface: &str, features: &Result<Vec<String>, String>) -> Finding {
    let features = match features {
        Ok(features) => features,
        Err(error) => {
            return Finding::warning(
                CHECK,
                format!("{iface}: not known: {error}"),
                "checksum and segmentation offload on a virtual interface stop TCP",
                format!("ethtool -k {iface}"),
            );
        }
    };
    let mut on: Vec<&str> = features.iter().filter_map(|feature| kind(feature)).collect();
    on.sort_unstable();
    on.dedup();
    if on.is_empty() {
        return Finding::ok(CHECK, format!("{iface}: off"));
    }
    let found = format!("{iface}: {} on", on.join(", "));
    let remedy: String = on.iter().map(|kind| format!(" {kind} off")).collect();
    let remedy = format!("ethtool -K {iface}{remedy}");
    // A device behind it finishes what the kernel leaves undone.
    let real = machine.has(format!("class/net/{iface}/device"));
    let why = if real {
        "if the dataplane uses it as net_af_packet, frames arrive merged; it turns them off itself"
    } else {
        "packets leave with unfinished checksums and as long segments: ping works, TCP hangs"
    };
    Finding::warning(CHECK, found, why, remedy).bad_if(!real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;
    use crate::machine::tests::Tree;

    fn on(features: &[&str]) -> Result<Vec<String>, String> {
        Ok(features.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn offloads_are_bad_on_a_virtual_interface() {
        let tree = Tree::new(&[("sys/class/net/veth0/mtu", "1500")]);
        let judge = |features| judge(&tree.machine(), "veth0", &features);
        assert_eq!(judge(on(&["tx-nocache-copy", "highdma"])).level(), Level::Ok);
        assert_eq!(judge(on(&[])).level(), Level::Ok);
        let all = [
            "tx-checksum-ip-generic",
            "tx-tcp-segmentation",
            "tx-tcp6-segmentation",
            "tx-generic-segmentation",
            "rx-gro",
        ];
        let found = judge(on(&all));
        assert_eq!(found.level(), Level::Bad);
        assert_eq!(found.remedy, "ethtool -K veth0 gro off gso off tso off tx off");
    }

    #[test]
    fn offloads_on_a_real_device_are_reported() {
        let tree = Tree::new(&[("sys/class/net/eth0/device/vendor", "0x8086")]);
        let found = judge(&tree.machine(), "eth0", &on(&["rx-lro"]));
        assert_eq!(
            (found.level(), found.remedy.as_str()),
            (Level::Warning, "ethtool -K eth0 lro off")
        );
    }

    #[test]
    fn offloads_unknown_to_the_kernel_give_a_command() {
        let found = judge(&Tree::new(&[]).machine(), "eth0", &Err("no such device".into()));
        assert_eq!((found.level(), found.remedy.as_str()), (Level::Warning, "ethtool -k eth0"));
    }

    #[tokio::test]
    async fn the_kernel_is_asked() {
        match active("lo").await {
            Ok(features) => assert!(features.iter().any(|name| kind(name) == Some("tx"))),
            Err(error) => eprintln!("SKIPPED: {error}"),
        }
        assert!(active("nosuch0").await.is_err());
    }
}
