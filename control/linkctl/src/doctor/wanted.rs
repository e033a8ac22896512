// SPDX-License-Identifier: Apache-2.0
//! What the machine is wanted for: the ports, cores and memory of a box's file, and the
//! interfaces of `--iface`.
//!
//! Of the file only what is asked of the machine is read; whether its keys are right is for
//! `linkd-dataplane --box` to say.

use crate::failure::Failure;
use serde::Deserialize;
use std::path::Path;

/// What `linkd-dataplane` takes for packets if nothing else is said.
const PACKETS: u64 = 3 << 30;

/// What the machine is wanted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// A box's file names it, so what is missing is bad.
    pub named: bool,
    /// PCI addresses of ports.
    pub pci: Vec<String>,
    /// Kernel interfaces that are ports.
    pub ports: Vec<String>,
    /// Kernel interfaces to look at besides.
    pub ifaces: Vec<String>,
    /// Of the workers.
    pub cores: Vec<usize>,
    /// For packets, bytes.
    pub packets: u64,
    /// For buffers, bytes.
    pub buffers: u64,
    /// Hugepages are demanded.
    pub huge: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            named: false,
            pci: Vec::new(),
            ports: Vec::new(),
            ifaces: Vec::new(),
            cores: Vec::new(),
            packets: PACKETS,
            buffers: 0,
            huge: false,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    ports: Ports,
    workers: Workers,
    memory: Memory,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ports {
    wan: Option<String>,
    client: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Workers {
    cores: Vec<usize>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Memory {
    packets: Option<String>,
    buffers: Option<String>,
    huge: Option<String>,
}

impl Wanted {
    /// Reads a box's file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| {
            Failure::failed("io", format!("cannot read the box's file {shown}: {e}"))
        })?;
        Self::parse(&text).map_err(|e| {
            Failure::failed("invalid_argument", format!("the box's file {shown}: {e}"))
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        let size = |text: Option<String>, other| match text {
            Some(text) => profile::parse_size(&text).map_err(|e| e.to_string()),
            None => Ok(other),
        };
        let mut wanted = Self {
            named: true,
            cores: file.workers.cores,
            packets: size(file.memory.packets, PACKETS)?,
            buffers: size(file.memory.buffers, 0)?,
            huge: file.memory.huge.as_deref() == Some("on"),
            ..Self::default()
        };
        for spec in [file.ports.wan, file.ports.client].into_iter().flatten() {
            let (device, arguments) = spec.split_once(',').unwrap_or((&spec, ""));
            if let Some(iface) = arguments.split(',').find_map(|a| a.strip_prefix("iface=")) {
                wanted.ports.push(iface.to_owned());
            } else if !device.starts_with("net_") {
                wanted.pci.push(full(device));
            }
        }
        Ok(wanted)
    }
}

/// A PCI address with its domain, as `/sys` names it.
fn full(address: &str) -> String {
    let domain = address.matches(':').count() < 2;
    if domain { format!("0000:{address}") } else { address.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_name_their_devices_cores_and_memory() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hw-configs/two-10g/box.toml");
        let wanted = Wanted::read(Path::new(folder)).unwrap();
        assert_eq!(wanted.pci, ["0000:01:00.0", "0000:01:00.1"]);
        assert_eq!(wanted.cores, [2, 3]);
        assert_eq!((wanted.packets, wanted.buffers, wanted.huge), (8 << 30, 1 << 30, true));
    }

    #[test]
    fn interfaces_and_short_addresses_are_known() {
        let text = "[ports]\nwan = \"net_af_packet,framecnt=64,iface=veth0\"\nclient = \"01:00.1\"";
        let wanted = Wanted::parse(text).unwrap();
        assert_eq!((wanted.ports, wanted.pci), (vec!["veth0".into()], vec!["0000:01:00.1".into()]));
        assert_eq!(wanted.packets, PACKETS);
        let wanted = Wanted::parse("[ports]\nwan = \"net_null\"").unwrap();
        assert!(wanted.pci.is_empty() && wanted.ports.is_empty());
    }

    #[test]
    fn what_is_no_file_of_a_box_is_refused() {
        for (text, words) in [
            ("[memory]\npackets = \"2\"", "unit"),
            ("[memory]\npackets = 2", "expected a string"),
            ("[workers]\ncores = [-1]", "invalid value"),
            ("[ports", "unclosed"),
        ] {
            let error = Wanted::parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(Wanted::read(Path::new("/nonexistent")).is_err());
        assert!(Wanted::read(Path::new("/")).is_err());
    }
}
