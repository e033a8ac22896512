// SPDX-License-Identifier: Apache-2.0
//! Whether DPDK can drive the ports: the drivers that hand a PCI device to a program, and the
//! devices that a box's file names.
//!
//! Reference: Linux, `Documentation/driver-api/vfio.rst`; DPDK, "Linux Drivers".

use crate::finding::Finding;
use crate::machine::{Machine, at_boot};
use crate::wanted::Wanted;
use boxfile::beside_kernel;

/// Drivers of a device that a program drives.
pub const HANDED_OVER: [&str; 3] = ["vfio-pci", "igb_uio", "uio_pci_generic"];

pub fn check(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    let mut found = vec![drivers(machine, wanted)];
    found.extend(wanted.pci.iter().map(|address| device(machine, address)));
    found.extend(wanted.lost.iter().map(|error| lost("port", error)));
    found.extend(wanted.ports.iter().map(|iface| interface(machine, iface)));
    found
}

/// A port without a device.
pub fn lost(check: impl Into<String>, error: &str) -> Finding {
    let why = "the box's file names it as a port";
    Finding::warning(check, error, why, "lspci -D -nn -d ::0200").bad_if(true)
}

fn drivers(machine: &Machine, wanted: &Wanted) -> Finding {
    iommu(machine, !wanted.pci.is_empty(), false)
}

/// Whether a device can be handed over: bad if it is `needed`. If apply `loads` vfio-pci, only the
/// IOMMU is required.
pub fn iommu(machine: &Machine, needed: bool, loads: bool) -> Finding {
    const CHECK: &str = "DPDK drivers";
    let module = |name: &str| machine.has(format!("module/{name}"));
    let vfio = module("vfio_pci");
    let uio = module("igb_uio") || module("uio_pci_generic");
    let groups = machine.names("kernel/iommu_groups").len();
    let unsafe_mode = machine
        .sys("module/vfio/parameters/enable_unsafe_noiommu_mode")
        .is_some_and(|on| on == "Y");
    let found = format!(
        "vfio-pci {}, {groups} IOMMU groups, uio {}",
        if vfio { "loaded" } else { "not loaded" },
        if uio { "loaded" } else { "not loaded" },
    );
    let vfio = vfio || loads;
    if (uio && !loads) || (vfio && (groups > 0 || unsafe_mode)) {
        return Finding::ok(CHECK, found);
    }
    if vfio {
        return Finding::warning(
            CHECK,
            found,
            "without an IOMMU vfio-pci takes no device; kernel interfaces work",
            at_boot("intel_iommu=on iommu=pt"),
        )
        .bad_if(needed);
    }
    Finding::warning(
        CHECK,
        found,
        "no PCI device can be handed to DPDK; kernel interfaces work",
        "modprobe vfio-pci",
    )
    .bad_if(needed)
}

fn device(machine: &Machine, address: &str) -> Finding {
    const CHECK: &str = "port";
    let place = format!("bus/pci/devices/{address}");
    if !machine.has(&place) {
        return Finding::warning(
            CHECK,
            format!("{address}: there is no such PCI device"),
            "the box's file names it as a port",
            "dpdk-devbind.py --status-dev net",
        )
        .bad_if(true);
    }
    match machine.link(format!("{place}/driver")).as_deref() {
        Some(name) if HANDED_OVER.contains(&name) || beside_kernel(name) => {
            Finding::ok(CHECK, format!("{address}: {name}"))
        }
        other => Finding::warning(
            CHECK,
            format!("{address}: {}", other.unwrap_or("no driver")),
            "DPDK finds a device only with a driver that hands it over",
            format!("dpdk-devbind.py -b vfio-pci {address}"),
        )
        .bad_if(true),
    }
}

fn interface(machine: &Machine, iface: &str) -> Finding {
    const CHECK: &str = "port";
    let place = format!("class/net/{iface}");
    if iface.contains('/') || !machine.has(&place) {
        return Finding::warning(
            CHECK,
            format!("{iface}: there is no such interface"),
            "the box's file names it as a port",
            "ip -br link",
        )
        .bad_if(true);
    }
    let flags = machine.sys(format!("{place}/flags")).unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(1);
    if flags & 1 == 0 {
        return Finding::warning(
            CHECK,
            format!("{iface}: down"),
            "no frame passes an interface that is down",
            format!("ip link set {iface} up"),
        )
        .bad_if(true);
    }
    Finding::ok(CHECK, format!("{iface}: up"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level::{Bad, Ok as Good, Warning};
    use crate::finding::tests::is;
    use crate::machine::tests::Tree;
    use std::fs;

    #[test]
    fn box_with_devices_needs_a_driver_to_hand_them_over() {
        let tree = Tree::new(&[]);
        let none = Wanted::default();
        let pci = Wanted { pci: vec!["0000:01:00.0".into()], ..Wanted::default() };
        is(&drivers(&tree.machine(), &none), Warning, "modprobe vfio-pci");
        is(&drivers(&tree.machine(), &pci), Bad, "modprobe vfio-pci");
        tree.write("sys/module/vfio_pci/refcnt", "0");
        is(&drivers(&tree.machine(), &none), Warning, "without an IOMMU");
        is(&drivers(&tree.machine(), &pci), Bad, "intel_iommu=on");
        tree.write("sys/kernel/iommu_groups/0/type", "DMA");
        is(&drivers(&tree.machine(), &pci), Good, "1 IOMMU groups");
        let tree = Tree::new(&[("sys/module/uio_pci_generic/refcnt", "0")]);
        is(&drivers(&tree.machine(), &pci), Good, "uio loaded");
    }

    #[test]
    fn device_of_the_box_must_exist_and_be_handed_over() {
        let tree = Tree::new(&[("sys/bus/pci/devices/0000:01:00.0/vendor", "0x8086")]);
        let look = || device(&tree.machine(), "0000:01:00.0");
        is(&device(&tree.machine(), "0000:02:00.0"), Bad, "no such PCI device");
        is(&look(), Bad, "no driver");
        for (driver, level) in [("ixgbe", Bad), ("vfio-pci", Good), ("mlx5_core", Good)] {
            let path = "sys/bus/pci/devices/0000:01:00.0/driver";
            let _ = fs::remove_file(tree.at(path));
            tree.link(path, &format!("../../../bus/pci/drivers/{driver}"));
            is(&look(), level, driver);
        }
    }

    #[test]
    fn interface_of_the_box_must_exist_and_be_up() {
        let tree = Tree::new(&[("sys/class/net/veth0/flags", "0x1003\n")]);
        is(&interface(&tree.machine(), "veth0"), Good, "up");
        is(&interface(&tree.machine(), "veth1"), Bad, "no such interface");
        is(&interface(&tree.machine(), "../net/veth0"), Bad, "no such interface");
        tree.write("sys/class/net/veth0/flags", "0x1002\n");
        is(&interface(&tree.machine(), "veth0"), Bad, "ip link set veth0 up");
    }
}
