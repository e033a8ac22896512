// SPDX-License-Identifier: Apache-2.0
//! The file against the machine: whether apply can be done, and the dataplane be started then.

use crate::appliance::host::Host;
use crate::appliance::network::Network;
use crate::appliance::port::{Seen, check_of};
use crate::appliance::step::{driver, pages};
use crate::appliance::switch;
use ::doctor::finding::Finding;
use ::doctor::machine::{at_boot, list, read};
use ::doctor::wanted::Wanted;
use ::doctor::{cores, devices, memory};
use boxfile::{BoxFile, Device, Hugepages, of_interface};
use procfs::{FromRead, Meminfo};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub struct Checked {
    /// The ports, as far as they are there.
    pub ports: Vec<Seen>,
    pub findings: Vec<Finding>,
}

pub fn check(host: &Host, file: &BoxFile) -> Checked {
    let mut checked = Checked::default();
    let mut findings = Vec::new();
    for (name, port) in file.ports.named() {
        match port.find(&name, &host.roots) {
            Ok(found) => checked.ports.push(Seen::new(host, name, found)),
            Err(error) => findings.push(devices::lost(check_of(&name), &error.to_string())),
        }
    }
    let ports = &checked.ports;
    match Network::ask(host) {
        Ok(network) => {
            findings.extend(ports.iter().map(|port| port.judge(host, &network, ports)));
        }
        Err(error) => {
            let why = "without it, no port is known to be free";
            findings.push(
                Finding::warning("network", error, why, "apt-get install iproute2").bad_if(true),
            );
        }
    }
    findings.extend(same(host, ports));
    findings.extend(tools(host, ports));
    let wanted = Wanted::of(file, &host.roots);
    if ports.iter().any(Seen::is_for_vfio) {
        findings.push(devices::iommu(&host.machine, true, true));
    }
    findings.push(match &file.hugepages {
        Some(wanted) => hugepages(host, file, wanted),
        None => memory::hugepages(&host.machine, &wanted),
    });
    // Hugepages that apply will reserve reduce the free memory.
    let packets = wanted.packets.saturating_add(missing(host, file));
    findings.push(memory::available(&host.machine, &Wanted { packets, ..wanted.clone() }));
    findings.extend(cores::check(&host.machine, &wanted));
    findings.extend(nodes(host, file, ports));
    findings.extend(clock(host, file, ports));
    findings.extend(switch::check(host, file));
    checked.findings = findings;
    checked
}

/// Two ways to name one device.
fn same(host: &Host, ports: &[Seen]) -> Option<Finding> {
    let mut devices = HashMap::new();
    let (first, second, device) = ports.iter().find_map(|port| {
        let device = binding(host, port)?.address;
        let first = devices.insert(device.clone(), port)?;
        let is_vlan =
            |port: &Seen| port.found.spec.split(',').any(|part| part.starts_with("vlan="));
        // A hairpin pair has two VLANs on one device.
        (!is_vlan(first) || !is_vlan(port)).then_some((&first.name, &port.name, device))
    })?;
    let found = format!("{first} and {second} are both {device}");
    let why = "a packet comes in at one port of a pair and leaves at the other";
    let remedy = "lspci -D -nn -d ::0200";
    Some(Finding::warning("ports", found, why, remedy).bad_if(true))
}

fn tools(host: &Host, ports: &[Seen]) -> Option<Finding> {
    let unbound = |port: &&Seen| {
        let nic = port.nic.as_ref();
        port.is_for_vfio() && nic.is_some_and(|n| n.driver.as_deref() != Some("vfio-pci"))
    };
    ports.iter().find(unbound)?;
    let there = ["driverctl", "dpdk-devbind.py"].into_iter().find(|name| host.tool(name).is_some());
    Some(match there {
        Some(name) => Finding::ok("tools", format!("{name} binds devices")),
        None => Finding::warning(
            "tools",
            "neither driverctl nor dpdk-devbind.py is installed",
            "one of them binds devices to vfio-pci",
            "apt-get install driverctl",
        )
        .bad_if(true),
    })
}

/// Hugepages that are reserved where the file wants them; `None` if the kernel has none of the
/// size.
fn reserved(host: &Host, file: &BoxFile, wanted: &Hugepages) -> Option<u64> {
    let path = pages(node_of(host, file), wanted.size.bytes() >> 10);
    read(&host.at(&path))?.parse().ok()
}

/// Bytes of hugepages that are yet to be reserved.
fn missing(host: &Host, file: &BoxFile) -> u64 {
    let Some(wanted) = &file.hugepages else { return 0 };
    let there = reserved(host, file, wanted).unwrap_or(0);
    wanted.count.saturating_sub(there).saturating_mul(wanted.size.bytes())
}

/// Hugepages that are reserved or can be reserved.
fn hugepages(host: &Host, file: &BoxFile, wanted: &Hugepages) -> Finding {
    const CHECK: &str = "hugepages";
    let size = wanted.size.name();
    let on = node_of(host, file).map_or_else(String::new, |node| format!(" on NUMA node {node}"));
    let Some(there) = reserved(host, file, wanted) else {
        let found = format!("the kernel has no hugepages of {size}{on}");
        let remedy = "ls /sys/kernel/mm/hugepages   # and write one of these as hugepages.size";
        return Finding::warning(CHECK, found, "the box's file reserves some", remedy).bad_if(true);
    };
    let found = format!("{there} of {} of {size} are reserved{on}", wanted.count);
    let missing = missing(host, file);
    if missing == 0 {
        return Finding::ok(CHECK, found);
    }
    let meminfo = Meminfo::from_file(host.machine.proc.join("meminfo")).ok();
    let available = meminfo.map_or(0, |info| info.mem_available.unwrap_or(info.mem_free));
    if missing > available {
        let why = format!(
            "{} more are needed, and {} is available",
            profile::format_size(missing),
            profile::format_size(available)
        );
        let words = format!("hugepagesz={}M hugepages={}", wanted.size.bytes() >> 20, wanted.count);
        return Finding::warning(CHECK, found, why, at_boot(&words)).bad_if(true);
    }
    Finding::ok(CHECK, format!("{found}; apply reserves the rest"))
}

/// NUMA node for the hugepages: from the file, otherwise the common node of all its cores.
pub fn node_of(host: &Host, file: &BoxFile) -> Option<u32> {
    if file.workers.numa_node.is_some() {
        return file.workers.numa_node;
    }
    let cores = file.workers.cores.as_deref().unwrap_or_default();
    let mut nodes = cores.iter().map(|core| node_of_core(host, *core));
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

fn node_of_core(host: &Host, core: usize) -> Option<u32> {
    let names = host.machine.names(format!("devices/system/cpu/cpu{core}"));
    names.iter().find_map(|name| name.strip_prefix("node")?.parse().ok())
}

/// Whether cores and ports are on the node of the file, or at least on one.
fn nodes(host: &Host, file: &BoxFile, ports: &[Seen]) -> Option<Finding> {
    const CHECK: &str = "NUMA node";
    let why = "each packet then crosses from one processor's memory to the other's";
    let cores = file.workers.cores.clone().unwrap_or_default();
    let Some(node) = file.workers.numa_node else {
        let node = node_of(host, file)?;
        let far = ports.iter().find(|port| port.node.is_some_and(|of| of != node));
        let far = far.and_then(|port| Some((&port.name, port.node?)));
        return Some(match far {
            None => Finding::ok(CHECK, format!("cores and ports on {node}")),
            Some((name, of)) => Finding::warning(
                CHECK,
                format!("the port {name} is on NUMA node {of}, cores {} on {node}", list(&cores)),
                why,
                format!("cat /sys/devices/system/node/node{of}/cpulist   # take cores of these"),
            ),
        });
    };
    if !host.machine.has(format!("devices/system/node/node{node}")) {
        let there = host.machine.sys("devices/system/node/online").unwrap_or_default();
        let found = format!("there is no NUMA node {node}: the machine has {there}");
        let remedy = "lscpu | grep NUMA   # and write one of these as workers.numa_node";
        return Some(Finding::warning(CHECK, found, why, remedy).bad_if(true));
    }
    let cpulist = format!("cat /sys/devices/system/node/node{node}/cpulist");
    let far = cores.iter().find_map(|core| {
        let of = node_of_core(host, *core).filter(|of| *of != node)?;
        Some((format!("core {core} is on NUMA node {of}"), cpulist.clone()))
    });
    let far = far.or_else(|| {
        let port = ports.iter().find(|port| port.node.is_some_and(|of| of != node))?;
        let of = port.node?;
        let remedy = format!("write numa_node = {of} under [workers], and cores of that node");
        Some((format!("the port {} is on NUMA node {of}", port.name), remedy))
    });
    Some(match far {
        None => Finding::ok(CHECK, format!("{node}")),
        Some((what, remedy)) => {
            let found = format!("{what}, the box's file says {node}");
            Finding::warning(CHECK, found, why, remedy).bad_if(true)
        }
    })
}

/// The PTP clock of the file.
fn clock(host: &Host, file: &BoxFile, ports: &[Seen]) -> Option<Finding> {
    const CHECK: &str = "PTP clock";
    let path = file.clock.ptp.as_ref()?;
    let name = path.file_name()?.to_string_lossy().into_owned();
    let shown = path.display();
    if !host.at(path).exists() {
        let clocks = host.machine.names("class/ptp").join(", ");
        let clocks = if clocks.is_empty() { "none".to_owned() } else { clocks };
        let found = format!("there is no {shown}; clocks: {clocks}");
        let why = "the box's file names it as the clock of this machine";
        let remedy = "for i in /sys/class/ptp/*; do echo $i $(cat $i/clock_name); done";
        return Some(Finding::warning(CHECK, found, why, remedy).bad_if(true));
    }
    let device =
        std::fs::canonicalize(host.machine.sys.join("class/ptp").join(&name).join("device"));
    let of = device.ok().and_then(|d| Some(d.file_name()?.to_string_lossy().into_owned()));
    let owner = ports.iter().find(|port| {
        port.is_for_vfio()
            && port.nic.as_ref().is_some_and(|n| Some(n.address.as_str()) == of.as_deref())
    });
    if let Some(port) = owner {
        let found = format!("{shown} is the clock of the port {}, which vfio-pci takes", port.name);
        let why = "the clock goes with the kernel's driver";
        let remedy = "ls -l /sys/class/ptp/*/device   # take the clock of another card";
        return Some(Finding::warning(CHECK, found, why, remedy).bad_if(true));
    }
    let clock = host.machine.sys(format!("class/ptp/{name}/clock_name")).unwrap_or_default();
    Some(Finding::ok(CHECK, format!("{shown} {clock}").trim_end().to_owned()))
}

/// MAC address of a port that is there, and its place, for the record.
pub fn binding(host: &Host, port: &Seen) -> Option<boxfile::Binding> {
    let (address, mac) = match (&port.found.device, &port.nic) {
        (Device::Pci(address), Some(nic)) => {
            (address.clone(), nic.interfaces.first().map(|(_, mac)| mac.clone()))
        }
        (Device::Kernel(iface), _) => {
            let mac = host.machine.sys(format!("class/net/{iface}/address"));
            (of_interface(&host.roots.sys, iface)?, mac)
        }
        _ => return None,
    };
    Some(boxfile::Binding { name: port.name.clone(), address: address.to_string(), mac })
}

/// `driver_override` of a device, if it has one.
pub fn forced(host: &Host, address: &str) -> Option<String> {
    driver(host, address)?;
    let forced = host.machine.sys(format!("bus/pci/devices/{address}/driver_override"))?;
    Some(forced).filter(|name| !name.is_empty() && name != "(null)")
}
