// SPDX-License-Identifier: Apache-2.0
//! Whether a port that the box's file names exists, is suitable and is free. Its driver may still
//! be a different one, because apply changes it.

use crate::appliance::host::Host;
use crate::appliance::network::Network;
use crate::appliance::step::VFIO;
use ::doctor::devices::HANDED_OVER;
use ::doctor::finding::Finding;
use boxfile::{Device, Driver, Found, Nic, NicId, beside_kernel, nics};
use std::fs;

/// The kernel's name of our program, which it cuts at 15 characters.
const OURS: &str = "linkd-dataplane";
/// Drivers that a device of the same IOMMU group may have beside one that is handed over.
const NEUTRAL: [&str; 3] = [VFIO, "pci-stub", "pcieport"];

/// A port on the machine.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Such as `wan` or `wan.a`.
    pub name: String,
    pub found: Found,
    /// Its card, if it is one that is there.
    pub nic: Option<Nic>,
    /// Its node, if the kernel tells.
    pub node: Option<u32>,
}

impl Seen {
    pub fn new(host: &Host, name: String, found: Found) -> Self {
        let sys = &host.roots.sys;
        let (nic, place) = match &found.device {
            Device::Pci(address) => (
                nics(sys).into_iter().find(|nic| nic.address == *address),
                Some(format!("bus/pci/devices/{address}")),
            ),
            Device::Kernel(iface) => (None, Some(format!("class/net/{iface}/device"))),
            Device::Virtual => (None, None),
        };
        let node = place.and_then(|place| host.machine.sys(format!("{place}/numa_node")));
        // -1 is a machine that does not tell.
        let node = node.and_then(|node| node.parse().ok());
        Self { name, found, nic, node }
    }

    /// Whether to bind it to vfio-pci.
    pub fn is_for_vfio(&self) -> bool {
        self.nic.as_ref().is_some_and(|nic| self.found.driver_for(nic) == Driver::Vfio)
    }

    pub fn check(&self) -> String {
        check_of(&self.name)
    }

    fn bad(&self, found: String, why: &str, remedy: impl Into<String>) -> Finding {
        Finding::warning(self.check(), found, why, remedy).bad_if(true)
    }

    pub fn judge(&self, host: &Host, network: &Network, others: &[Self]) -> Finding {
        match &self.found.device {
            Device::Virtual => Finding::ok(self.check(), self.found.spec.clone()),
            Device::Kernel(iface) => self.interface(host, network, iface),
            Device::Pci(address) => match &self.nic {
                Some(nic) => self.card(host, network, nic, others),
                None => self.nowhere(host, address.as_str()),
            },
        }
    }

    fn nowhere(&self, host: &Host, address: &str) -> Finding {
        let there: Vec<String> = nics(&host.roots.sys).iter().map(ToString::to_string).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        let what = if host.machine.has(format!("bus/pci/devices/{address}")) {
            format!("{address}: this PCI device is no Ethernet card")
        } else {
            format!("{address}: there is no such PCI device")
        };
        let found = format!("{what}; Ethernet cards: {there}");
        self.bad(found, "the box's file names it as a port", "lspci -D -nn -d ::0200")
    }

    fn interface(&self, host: &Host, network: &Network, iface: &str) -> Finding {
        if iface.contains('/') || !host.machine.has(format!("class/net/{iface}")) {
            let found = format!("{iface}: there is no such interface");
            return self.bad(found, "the box's file names it as a port", "ip -br link");
        }
        self.free(host, network, iface)
            .unwrap_or_else(|| Finding::ok(self.check(), format!("{iface}: free")))
    }

    fn free(&self, host: &Host, network: &Network, iface: &str) -> Option<Finding> {
        let found = format!("{iface} {}", network.use_of(host, iface)?);
        let why = "what goes through it would end in the emulator, or this machine off the network";
        Some(self.bad(
            found,
            why,
            format!("ip address show {iface}   # take another port, or free it"),
        ))
    }

    fn card(&self, host: &Host, network: &Network, nic: &Nic, others: &[Self]) -> Finding {
        let address = nic.address.as_str();
        let place = format!("bus/pci/devices/{address}");
        if let Some(finding) = self.driver(nic) {
            return finding;
        }
        let vfio = self.is_for_vfio();
        let driver = nic.driver.as_deref();
        let used = nic.interfaces.iter().find_map(|(iface, _)| self.free(host, network, iface));
        if let Some(finding) = used {
            return finding;
        }
        let kernels = driver.is_some_and(|name| !HANDED_OVER.contains(&name));
        if kernels && nic.interfaces.is_empty() && vfio {
            let driver = driver.unwrap_or_default();
            let found = format!("{address} has {driver}, and no interface here");
            let why = "its interface may be in another network namespace, and in use there";
            return self.bad(found, why, "ip -all netns exec ip -br link");
        }
        let functions = host.machine.sys(format!("{place}/sriov_numvfs"));
        if let Some(n) = functions.filter(|n| n != "0" && vfio && kernels) {
            let found = format!("{address} has {n} virtual functions");
            let why = "they end when its driver lets it go, and may be in use";
            return self.bad(found, why, format!("echo 0 > /sys/{place}/sriov_numvfs"));
        }
        if let Some(holder) = holder(host, &place) {
            if holder.1 != OURS {
                let found = format!("{address} is in use by {} (process {})", holder.1, holder.0);
                let why = "a device has one program at a time";
                return self.bad(found, why, format!("kill {}", holder.0));
            }
            return Finding::ok(self.check(), format!("{address}: in use by {OURS}"));
        }
        if vfio && let Some(finding) = self.group(host, &place, others) {
            return finding;
        }
        Finding::ok(self.check(), format!("{nic}"))
    }

    /// Whether DPDK's driver for it and the driver of the file go together.
    fn driver(&self, nic: &Nic) -> Option<Finding> {
        let beside = nic.id.parse::<NicId>().is_ok_and(|id| id.beside_kernel())
            || nic.driver.as_deref().is_some_and(beside_kernel);
        let name = &self.name;
        match (self.found.driver_for(nic), beside) {
            (Driver::Kernel, false) => Some(self.bad(
                format!("{nic} is to stay with its kernel driver"),
                "DPDK's driver for it has the device to itself",
                format!("write driver = \"vfio-pci\" under [ports.{name}]"),
            )),
            (Driver::Vfio, true) => Some(self.bad(
                format!("{nic} is to go to {VFIO}"),
                "DPDK's driver for it works through the kernel's",
                format!("write driver = \"kernel\" under [ports.{name}]"),
            )),
            (Driver::Kernel, true) if !nic.driver.as_deref().is_some_and(beside_kernel) => {
                let driver = nic.driver.as_deref().unwrap_or("no driver");
                Some(self.bad(
                    format!("{} has {driver}", nic.address),
                    "DPDK's driver for it works through the kernel's",
                    format!("driverctl unset-override {}", nic.address),
                ))
            }
            _ => None,
        }
    }

    /// All devices of an IOMMU group go to one program, or have no driver.
    fn group(&self, host: &Host, place: &str, others: &[Self]) -> Option<Finding> {
        let is_port = |name: &str| {
            others.iter().any(|o| o.nic.as_ref().is_some_and(|n| n.address.as_str() == name))
        };
        let members = host.machine.names(format!("{place}/iommu_group/devices"));
        let in_the_way = members.into_iter().filter(|name| !is_port(name)).find_map(|name| {
            let driver = crate::appliance::step::driver(host, &name)?;
            (!NEUTRAL.contains(&driver.as_str())).then_some((name, driver))
        });
        let (name, driver) = in_the_way?;
        let found =
            format!("{} shares its IOMMU group with {name}, which has {driver}", self.found.spec);
        let why = "vfio-pci gives a group to one program as a whole";
        Some(self.bad(
            found,
            why,
            format!("driverctl set-override {name} none   # or another slot"),
        ))
    }
}

/// The name of a port's check.
pub fn check_of(port: &str) -> String {
    format!("port {port}")
}

/// The process that has a device by vfio, and its name.
pub fn holder(host: &Host, place: &str) -> Option<(u32, String)> {
    let machine = &host.machine;
    let group = machine.link(format!("{place}/iommu_group"));
    let mut files: Vec<String> = group.map(|g| format!("/dev/vfio/{g}")).into_iter().collect();
    files.extend(
        machine.names(format!("{place}/vfio-dev")).iter().map(|d| format!("/dev/vfio/devices/{d}")),
    );
    machine.processes().find_map(|(pid, name, process)| {
        let mut open = fs::read_dir(process.join("fd")).ok()?.flatten();
        let has = |file: fs::DirEntry| {
            fs::read_link(file.path())
                .is_ok_and(|to| files.iter().any(|f| to.as_os_str() == f.as_str()))
        };
        open.any(has).then_some((pid, name))
    })
}

/// A process of this name.
pub fn running(host: &Host, name: &str) -> Option<(u32, String)> {
    // The kernel keeps 15 bytes of a name.
    let kept = &name[..name.len().min(15)];
    host.machine.processes().find(|(_, comm, _)| comm == kept).map(|(pid, comm, _)| (pid, comm))
}
