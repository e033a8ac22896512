// SPDX-License-Identifier: Apache-2.0
//! Consistency checks of a box file, without looking at the machine.

use std::collections::HashMap;

use crate::find::{Device, FindError, named};
use crate::pci::Address;
use crate::port::{Driver, Port, PortTable};
use crate::problem::Problem;
use crate::schema::{BoxFile, BoxFileError, Huge};
use crate::switch::Switch;

/// Longest frame that the packet store accepts, bytes without FCS.
pub const MAX_FRAME: u32 = 10_224;
/// Smallest `max_frame`: the frame for an MTU of 576, which every host supports.
pub const MIN_MAX_FRAME: u32 = 590;
/// Maximum number of clients per worker.
pub const MOST_CLIENTS: u32 = 100_000;
pub const MOST_WORKERS: u16 = 64;
/// Hugepage memory that DPDK needs besides `memory.buffers`, bytes.
pub const DPDK_BYTES: u64 = 176 << 20;
/// What each further port pair needs for each worker, with frames of 1518 bytes.
const PAIR_BYTES: u64 = 26 << 20;
/// Upper bound of NUMA node numbers.
const MOST_NODES: u32 = 1024;
/// Largest id of a VLAN (IEEE 802.1Q).
const MOST_VLANS: u64 = 4094;
/// Size of an interface name in the kernel, including the terminating zero.
const IFNAMSIZ: usize = 16;

impl BoxFile {
    /// Returns the first of [`BoxFile::problems`] as an error.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), BoxFileError> {
        match self.problems().into_iter().next() {
            Some(problem) => Err(problem.into()),
            None => Ok(()),
        }
    }

    /// All inconsistencies. The result does not depend on the machine.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        self.ranges(&mut found);
        self.workers(&mut found);
        let ports = self.ports.named();
        let names: Vec<&str> = ports.iter().map(|(name, _)| name.as_str()).collect();
        let pairs = match crate::pairs(names) {
            Ok(pairs) => pairs.len(),
            Err(error) => {
                found.push(error.into());
                1
            }
        };
        for (name, port) in &ports {
            match port {
                Port::Spec(text) if named(text).is_none() => {
                    found.push(FindError::Spec { text: text.clone() }.into());
                }
                Port::Spec(_) => {}
                Port::Table(table) => self.port(name, table, &mut found),
            }
        }
        let mut devices = HashMap::new();
        for (second, port) in &ports {
            let Some(device) = key(port) else { continue };
            let Some((first, other)) = devices.insert(device.clone(), (second, *port)) else {
                continue;
            };
            if !is_hairpin([(first, other), (second, port)]) {
                let (first, second) = (first.clone(), second.clone());
                found.push(Problem::Same { first, second, device });
            }
        }
        self.hugepages(&mut found);
        if let Some(ptp) = &self.clock.ptp {
            let number = ptp.to_str().and_then(|path| path.strip_prefix("/dev/ptp"));
            if number.is_none_or(|n| n.is_empty() || !n.bytes().all(|b| b.is_ascii_digit())) {
                found.push(Problem::Ptp(ptp.clone()));
            }
        }
        if let Some(switch) = &self.switch {
            found.extend(Switch::new(switch).err().map(Problem::from));
            let workers = self.workers.number();
            if workers > 1 {
                found.push(Problem::Behind(workers));
            }
            if pairs > 1 {
                found.push(Problem::PairsBehind(pairs));
            }
        }
        found
    }

    fn ranges(&self, found: &mut Vec<Problem>) {
        let (workers, memory) = (&self.workers, &self.memory);
        let most_workers = u64::from(MOST_WORKERS);
        let queues = self.ports.named().into_iter().filter_map(|(name, port)| match port {
            Port::Table(table) => {
                Some((format!("ports.{name}.queues"), table.queues?.into(), 1, most_workers))
            }
            Port::Spec(_) => None,
        });
        let vlans = self.ports.named().into_iter().filter_map(|(name, port)| match port {
            Port::Table(table) => {
                Some((format!("ports.{name}.vlan"), table.vlan?.into(), 1, MOST_VLANS))
            }
            Port::Spec(_) => None,
        });
        let of = |key: &str, value: Option<u64>, low: u64, high: u64| {
            Some((key.to_owned(), value?, low, high))
        };
        let most = u64::from(u32::MAX);
        let frame = (u64::from(MIN_MAX_FRAME), u64::from(MAX_FRAME));
        let nodes = u64::from(MOST_NODES - 1);
        let hugepages = self.hugepages.as_ref().map(|pages| pages.count);
        let values = [
            of("memory.max_frame", memory.max_frame, frame.0, frame.1),
            of("memory.copy_break", memory.copy_break, 0, most),
            of("memory.max_clients", memory.max_clients.map(u64::from), 1, MOST_CLIENTS.into()),
            of("workers.count", workers.count.map(u64::from), 1, most_workers),
            of("workers.numa_node", workers.numa_node.map(u64::from), 0, nodes),
            of("hugepages.count", hugepages, 1, 1 << 32),
        ];
        let wrong = |(key, value, low, high): (String, u64, u64, u64)| {
            let good = (low..=high).contains(&value);
            (!good).then_some(Problem::Range { key, value, low, high })
        };
        found.extend(values.into_iter().flatten().chain(queues).chain(vlans).filter_map(wrong));
    }

    fn workers(&self, found: &mut Vec<Problem>) {
        let Some(cores) = &self.workers.cores else { return };
        let workers = self.workers.count.map_or(cores.len(), usize::from);
        if workers != cores.len() || !(1..=usize::from(MOST_WORKERS)).contains(&workers) {
            found.push(Problem::Count { workers, cores: cores.clone() });
        }
        for (n, core) in cores.iter().enumerate() {
            if cores[..n].contains(core) {
                found.push(Problem::Shared(*core));
            }
        }
    }

    fn port(&self, name: &str, table: &PortTable, found: &mut Vec<Problem>) {
        let name = || name.to_owned();
        let ways = [
            ("pci", table.pci.is_some()),
            ("select", table.select.is_some()),
            ("kernel", table.kernel.is_some()),
        ];
        found.extend(one_of(&name(), &ways));
        if let Some(select) = &table.select {
            let ways = [("select.id", select.id.is_some()), ("select.mac", select.mac.is_some())];
            found.extend(one_of(&name(), &ways));
            if select.nth.is_some() && select.id.is_none() {
                found.push(Problem::Nth { name: name() });
            }
            if select.nth == Some(0) {
                let key = format!("ports.{}.select.nth", name());
                found.push(Problem::Range { key, value: 0, low: 1, high: u16::MAX.into() });
            }
            if let (Some(id), Some(driver)) = (&select.id, table.driver) {
                let (name, id_text) = (name(), id.as_str().to_owned());
                match (driver, id.beside_kernel()) {
                    (Driver::Kernel, false) => {
                        found.push(Problem::NeedsVfio { name, id: id_text });
                    }
                    (Driver::Vfio, true) => {
                        found.push(Problem::NeedsKernel { name, id: id_text });
                    }
                    _ => {}
                }
            }
        }
        if let Some(iface) = &table.kernel {
            if !is_interface(iface) {
                found.push(Problem::Interface { name: name(), iface: iface.clone() });
            }
            if table.driver == Some(Driver::Vfio) {
                found.push(Problem::Socket { name: name(), iface: iface.clone() });
            }
        }
        if let Some(text) = &table.arguments {
            let good = |part: &str| !part.is_empty() && !part.starts_with('=');
            if !text.bytes().all(|b| b.is_ascii_graphic()) || !text.split(',').all(good) {
                found.push(Problem::Arguments { name: name(), text: text.clone() });
            }
        }
        let workers = self.workers.number();
        if let Some(queues) = table.queues.filter(|queues| usize::from(*queues) < workers) {
            found.push(Problem::Queues { name: name(), queues, workers });
        }
    }

    fn hugepages(&self, found: &mut Vec<Problem>) {
        let Some(pages) = &self.hugepages else { return };
        if self.memory.huge == Some(Huge::Off) {
            found.push(Problem::Unused(pages.bytes()));
            return;
        }
        let bytes = self.huge_bytes();
        if pages.bytes() < bytes {
            let needed = bytes.div_ceil(pages.size.bytes());
            found.push(Problem::TooFew { pages: pages.clone(), bytes, needed });
        }
    }

    /// Hugepage memory for DPDK and the buffers, bytes.
    #[must_use]
    pub fn huge_bytes(&self) -> u64 {
        let ports = self.ports.named();
        let pairs = crate::pairs(ports.iter().map(|(name, _)| name.as_str()));
        let further = pairs.map_or(0, |pairs| pairs.len().saturating_sub(1) as u64);
        let rings = further * self.workers.number() as u64 * PAIR_BYTES;
        self.memory.buffers.unwrap_or(0).saturating_add(DPDK_BYTES + rings)
    }
}

fn one_of(name: &str, ways: &[(&'static str, bool)]) -> Option<Problem> {
    let has: Vec<_> = ways.iter().filter(|(_, there)| *there).map(|(way, _)| *way).collect();
    let of = ways.iter().map(|(way, _)| *way).collect();
    (has.len() != 1).then(|| Problem::Ways { name: name.to_owned(), has, of })
}

/// True if Linux accepts the interface name (`dev_valid_name`) and DPDK accepts it as an argument.
fn is_interface(name: &str) -> bool {
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':' | ',');
    (1..IFNAMSIZ).contains(&name.len()) && !matches!(name, "." | "..") && !name.contains(odd)
}

/// Whether two ports on one device are a hairpin pair.
fn is_hairpin([(a, first), (b, second)]: [(&String, &Port); 2]) -> bool {
    let pair = |name: &String| Some(name.split_once('.')?.1.to_owned());
    pair(a) == pair(b) && vlan(first).zip(vlan(second)).is_some_and(|(a, b)| a != b)
}

/// The VLAN of a port on its device.
fn vlan(port: &Port) -> Option<String> {
    match port {
        Port::Spec(text) => {
            text.split(',').find_map(|part| part.strip_prefix("vlan=")).map(str::to_owned)
        }
        Port::Table(table) => table.vlan.map(|id| id.to_string()),
    }
}

/// Key that two ports must not share; `None` for virtual devices.
fn key(port: &Port) -> Option<String> {
    let of_pci = |address: &Address| format!("PCI device {address}");
    match port {
        Port::Spec(text) => match named(text)? {
            Device::Pci(address) => Some(of_pci(&address)),
            Device::Kernel(iface) => Some(format!("interface {iface}")),
            Device::Virtual => None,
        },
        Port::Table(table) => {
            let pci = table.pci.as_ref().map(of_pci);
            let kernel = || table.kernel.as_ref().map(|iface| format!("interface {iface}"));
            pci.or_else(kernel).or_else(|| Some(table.select.as_ref()?.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn problems(text: &str) -> Vec<String> {
        let file = BoxFile::parse(text, Path::new("x")).unwrap_or_else(|e| panic!("{text}: {e}"));
        file.problems().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn consistent_file_has_no_problems() {
        for text in [
            "",
            "[ports]\nwan = \"net_null\"\nclient = \"net_null\"",
            "[ports]\nwan = \"01:00.0\"\nclient.pci = \"01:00.1\"",
            "[ports]\nwan.select = { id = \"8086:1572\", nth = 1 }\nclient.select = { id = \
             \"8086:1572\", nth = 2 }\n[workers]\ncores = [2, 3]\ncount = 2\nnuma_node = 0\n\
             [memory]\nbuffers = \"1 GiB\"\nhuge = \"on\"\n[hugepages]\nsize = \"2 MiB\"\n\
             count = 600\n[clock]\nptp = \"/dev/ptp0\"",
            "[ports.wan]\nselect.id = \"15b3:101d\"\ndriver = \"kernel\"\nqueues = 2\n\
             arguments = \"a=1,b\"\n[workers]\ncount = 2",
            "[ports.wan]\nkernel = \"wan0\"\ndriver = \"kernel\"",
            "[ports]\nwan.a = \"01:00.0\"\nclient.a = \"01:00.1\"\nwan.b = \"01:00.2\"\n\
             client.b.pci = \"01:00.3\"",
            "[ports]\nwan = { pci = \"01:00.0\", vlan = 7 }\nclient = \"01:00.0,vlan=8\"",
            "[ports]\nwan.h = { kernel = \"a\", vlan = 7 }\nclient.h = { kernel = \"a\", vlan = 8 }",
        ] {
            assert!(problems(text).is_empty(), "{text}: {:?}", problems(text));
        }
    }

    #[test]
    fn problems_name_the_value_and_the_remedy() {
        let switch = "[switch]\ntarget = \"bmv2\"\nbox_wan = 0\nbox_client = 1\nwan = [2]\n\
                      client = [3]";
        let behind = format!("{switch}\n[workers]\ncores = [1, 2]");
        let elected = format!("{switch}\nelection = 0");
        let pairs = format!("[ports]\nwan.a = \"net_null\"\nwan.b = \"net_null\"\n{switch}");
        let many: String = (0..17).map(|n| format!("p{n} = \"net_null\"\n")).collect();
        let many = format!("[ports.wan]\n{many}");
        for (text, words) in [
            ("[memory]\nmax_frame = \"60 B\"", "memory.max_frame in the box's file is 60: it has"),
            ("[memory]\nmax_clients = 0", "it has to be 1 to 100000"),
            ("[memory]\ncopy_break = \"8 GiB\"", "memory.copy_break in the box's file is 858993"),
            ("[workers]\ncount = 0", "workers.count in the box's file is 0: it has to be 1 to 64"),
            ("[workers]\nnuma_node = 4096", "workers.numa_node in the box's file is 4096"),
            ("[workers]\ncores = []", "0 workers on 0 cores"),
            ("[workers]\ncores = [1]\ncount = 3", "3 workers on 1 cores [1]: give each"),
            ("[workers]\ncores = [1, 1]", "core 1 is given to two workers"),
            ("[ports]\nwan = \"eth0\"", "port `eth0` is not one: it has to start with"),
            (
                "[ports.wan]",
                "ports.wan in the box's file has none of them: give one of pci, select",
            ),
            (
                "[ports.wan]\npci = \"1:0.0\"\nkernel = \"x\"",
                "has pci, kernel: give one of pci, select, kernel",
            ),
            ("[ports.wan.select]", "has none of them: give one of select.id, select.mac"),
            ("[ports.wan.select]\nmac = \"00:00:00:00:00:01\"\nnth = 2", "has `nth` without `id`"),
            ("[ports.wan.select]\nid = \"8086:1572\"\nnth = 0", "ports.wan.select.nth in the"),
            ("[ports.wan]\nkernel = \"a/b\"", "ports.wan.kernel in the box's file is `a/b`: an"),
            ("[ports.wan]\nkernel = \"abcdefghijklmnop\"", "1 to 15 characters"),
            ("[ports.wan]\nkernel = \"a,b\"", "none of them a blank"),
            ("[ports.wan]\nkernel = \"x\"\ndriver = \"vfio-pci\"", "name the device by pci or"),
            (
                "[ports.wan]\nselect.id = \"8086:1572\"\ndriver = \"kernel\"",
                "is a 8086:1572 with the driver \"kernel\": DPDK's driver for it has it to itself",
            ),
            (
                "[ports.wan]\nselect.id = \"15b3:101d\"\ndriver = \"vfio-pci\"",
                "write driver = \"kernel\"",
            ),
            ("[ports.wan]\npci = \"1:0.0\"\narguments = \"a b\"", "without blanks"),
            ("[ports.wan]\npci = \"1:0.0\"\narguments = \"a,,b\"", "it has to be key=value"),
            ("[ports.wan]\npci = \"1:0.0\"\nqueues = 0", "ports.wan.queues in the box's file is 0"),
            (
                "[ports.wan]\npci = \"1:0.0\"\nqueues = 1\n[workers]\ncores = [1, 2]",
                "has 1 queues for 2 workers",
            ),
            (
                "[ports]\nwan = \"01:00.0\"\nclient.pci = \"0000:01:00.0\"",
                "ports.wan and ports.client in the box's file are both PCI device 0000:01:00.0",
            ),
            (
                "[ports]\nwan = \"net_af_packet,iface=a\"\nclient.kernel = \"a\"",
                "are both interface a",
            ),
            (
                "[ports]\nwan.select.id = \"8086:1572\"\nclient.select = { id = \"8086:1572\", \
                 nth = 1 }",
                "are both id = \"8086:1572\", nth = 1",
            ),
            (
                "[memory]\nhuge = \"off\"\n[hugepages]\nsize = \"2 MiB\"\ncount = 600",
                "reserves 1200 MiB, and memory.huge = \"off\" uses none",
            ),
            (
                "[memory]\nhuge = \"on\"\nbuffers = \"1 GiB\"\n[hugepages]\nsize = \"2 MiB\"\n\
                 count = 512",
                "are 512 of 2 MiB, 1 GiB: memory.buffers and DPDK's own needs are 1200 MiB; write \
                 count = 600",
            ),
            (
                "[ports]\nwan.a = \"net_null\"\nwan.b = \"net_null\"\n[workers]\ncount = 2\n\
                 [memory]\nhuge = \"on\"\n[hugepages]\nsize = \"2 MiB\"\ncount = 113",
                "DPDK's own needs are 228 MiB; write count = 114",
            ),
            ("[hugepages]\nsize = \"1 GiB\"\ncount = 0", "hugepages.count in the box's file is 0"),
            ("[clock]\nptp = \"/dev/rtc0\"", "clock.ptp in the box's file is `/dev/rtc0`: a PTP"),
            ("[clock]\nptp = \"/dev/ptp\"", "such as /dev/ptp0"),
            ("[clock]\nptp = \"/dev/ptp../mem\"", "such as /dev/ptp0"),
            (
                "[ports]\nwan = { pci = \"01:00.0\", vlan = 4095 }",
                "ports.wan.vlan in the box's file is 4095: it has to be 1 to 4094",
            ),
            (
                "[ports]\nwan.a = \"01:00.0,vlan=7\"\nclient.b = \"01:00.0,vlan=8\"",
                "ports.wan.a and ports.client.b in the box's file are both PCI device",
            ),
            (
                "[ports]\nwan = \"01:00.0,vlan=7\"\nclient = \"01:00.0,vlan=7\"",
                "are both PCI device 0000:01:00.0: give each its own device, or as a hairpin pair its",
            ),
            (&behind, "2 workers behind a switch"),
            (&pairs, "2 port pairs behind a switch: it is connected to one pair; leave [switch]"),
            (&many, "[ports] in the box's file: 17 port pairs: a box has at most 16; leave 1 of"),
            (
                "[ports]\nwan = \"net_null\"\nclient.a = \"net_null\"",
                "port `wan` is of a pair without a name, and `client.a` of one with a name",
            ),
            ("[ports]\nwan.\"a b\" = \"net_null\"", "port `wan.a b`: a pair's name has 1 to 16"),
            (
                "[ports]\nwan.a = \"01:00.0\"\nwan.b.pci = \"0000:01:00.0\"",
                "ports.wan.a and ports.wan.b in the box's file are both PCI device 0000:01:00.0",
            ),
            (&elected, "switch.election"),
        ] {
            let found = problems(text);
            assert!(found.iter().any(|problem| problem.contains(words)), "{text}: {found:?}");
            let file = BoxFile::parse(text, Path::new("x")).unwrap();
            assert_eq!(file.check().unwrap_err().to_string(), found[0]);
        }
    }
}
