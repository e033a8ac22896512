// SPDX-License-Identifier: Apache-2.0
//! Requirements for the machine: the ports, cores and memory of a box's file, and the
//! interfaces of `--iface`.
//!
//! The file is read as `linkd-dataplane --box` and `linkctl box` read it.

use boxfile::{BoxFile, BoxFileError, Device, Huge, Memory, Roots};
use std::path::Path;

/// Requirements for the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// A box's file names the requirements, so a missing resource is bad.
    pub named: bool,
    pub pci: Vec<String>,
    /// Kernel interfaces that are ports.
    pub ports: Vec<String>,
    /// Ports of which there is no such device, in words.
    pub lost: Vec<String>,
    /// Kernel interfaces to look at besides.
    pub ifaces: Vec<String>,
    /// Cores of the workers, by number.
    pub cores: Vec<usize>,
    /// For packets, bytes.
    pub packets: u64,
    /// For buffers, bytes.
    pub buffers: u64,
    pub huge: Huge,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            named: false,
            pci: Vec::new(),
            ports: Vec::new(),
            lost: Vec::new(),
            ifaces: Vec::new(),
            cores: Vec::new(),
            packets: Memory::PACKETS,
            buffers: 0,
            huge: Huge::default(),
        }
    }
}

impl Wanted {
    /// # Errors
    /// If the file cannot be read, or is not valid.
    pub fn read(path: &Path) -> Result<Self, BoxFileError> {
        let file = BoxFile::read(path)?;
        file.check()?;
        Ok(Self::of(&file, &Roots::default()))
    }

    /// Requirements of a box's file for the machine below `roots`.
    pub fn of(file: &BoxFile, roots: &Roots) -> Self {
        let mut wanted = Self {
            named: true,
            cores: file.workers.cores.clone().unwrap_or_default(),
            packets: file.memory.packets.unwrap_or(Memory::PACKETS),
            buffers: file.memory.buffers.unwrap_or(0),
            huge: file.memory.huge.unwrap_or_default(),
            ..Self::default()
        };
        for (name, port) in file.ports.named() {
            match port.find(&name, roots).map(|found| found.device) {
                // Both ports of a hairpin pair are one device.
                Ok(Device::Pci(address)) if wanted.pci.contains(&address.to_string()) => {}
                Ok(Device::Kernel(iface)) if wanted.ports.contains(&iface) => {}
                Ok(Device::Pci(address)) => wanted.pci.push(address.to_string()),
                Ok(Device::Kernel(iface)) => wanted.ports.push(iface),
                Ok(Device::Virtual) => {}
                Err(error) => wanted.lost.push(error.to_string()),
            }
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Wanted {
        Wanted::of(&BoxFile::parse(text, Path::new("x")).unwrap(), &Roots::default())
    }

    #[test]
    fn the_examples_name_their_devices_cores_and_memory() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hw-configs/lab-10gbe-x710/box.toml");
        let wanted = Wanted::read(Path::new(file)).unwrap();
        assert_eq!(wanted.pci, ["0000:01:00.0", "0000:01:00.1"]);
        assert_eq!(wanted.cores, [2, 3]);
        assert_eq!((wanted.packets, wanted.buffers, wanted.huge), (8 << 30, 1 << 30, Huge::On));
    }

    #[test]
    fn interfaces_and_short_addresses_are_known() {
        let text = "[ports]\nwan = \"net_af_packet,framecnt=64,iface=veth0\"\nclient = \"01:00.1\"";
        let wanted = parse(text);
        assert_eq!((wanted.ports, wanted.pci), (vec!["veth0".into()], vec!["0000:01:00.1".into()]));
        assert_eq!(wanted.packets, Memory::PACKETS);
        let wanted = parse("[ports]\nwan = \"net_null\"");
        assert!(wanted.pci.is_empty() && wanted.ports.is_empty());
        let text = "[ports]\nwan.a = \"01:00.1\"\nclient.a = \"01:00.0\"\nwan.h = { kernel = \"e\", vlan = 1 }\n\
                    client.h = { kernel = \"e\", vlan = 2 }";
        let wanted = parse(text);
        assert_eq!((wanted.pci.len(), wanted.ports), (2, vec!["e".into()]));
        let wanted = parse("[ports.wan.select]\nid = \"ffff:ffff\"");
        assert!(wanted.lost[0].contains("ffff:ffff"), "{wanted:?}");
    }

    #[test]
    fn invalid_box_file_is_refused() {
        assert!(Wanted::read(Path::new("/nonexistent")).is_err());
        assert!(Wanted::read(Path::new("/")).is_err());
    }
}
