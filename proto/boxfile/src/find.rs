// SPDX-License-Identifier: Apache-2.0
//! Finds the device of a port on this machine.
//!
//! A device is found by its PCI address (`pci`), by vendor and device id (`select.id`), or by the
//! MAC address of its kernel interface (`select.mac`). A device bound to vfio-pci shows no MAC
//! address; then the record of `linkctl box apply` is used.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::pci::{Address, Nic, nics};
use crate::port::{Driver, Port, PortTable, Select, beside_kernel};

/// Record of `linkctl box apply`, below `/run`.
pub const RECORD: &str = "linkemu-box/state.json";
/// Maximum size of the record, bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Directories that describe a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub sys: PathBuf,
    pub run: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), run: "/run".into() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    Pci(Address),
    /// A kernel interface, used through a packet socket.
    Kernel(String),
    /// A virtual DPDK device that needs no hardware.
    Virtual,
}

/// A device that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub device: Device,
    /// The specification for `--port NAME=`.
    pub spec: String,
    /// Required driver. `None` if it is not a PCI device, or if only the device knows.
    pub driver: Option<Driver>,
}

/// A port bound by `linkctl box apply`, from its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    pub name: String,
    pub address: String,
    /// MAC address that its interface had before.
    pub mac: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Record {
    ports: Vec<Binding>,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum FindError {
    /// The text is neither a driver nor an address.
    #[error(
        "port `{text}` is not one: it has to start with a driver (`net_af_packet,iface=eth1`) or a \
         PCI address (`0000:01:00.0`); for a kernel interface write {{ kernel = \"{text}\" }}"
    )]
    Spec { text: String },
    /// The table selects no device.
    #[error("ports.{name} in the box's file names no device: give one of pci, select and kernel")]
    Nothing { name: String },
    #[error(
        "ports.{name} in the box's file selects {select}: there is no such network card on this \
         machine; there are {}", list(.there)
    )]
    None { name: String, select: String, there: Vec<String> },
}

fn list(there: &[String]) -> String {
    if there.is_empty() { "none".to_owned() } else { there.join(", ") }
}

/// The device of a `--port` specification; `None` if it is invalid.
#[must_use]
pub fn named(text: &str) -> Option<Device> {
    let (device, arguments) = text.split_once(',').unwrap_or((text, ""));
    if let Ok(address) = device.parse() {
        return Some(Device::Pci(address));
    }
    let driver = device.strip_prefix("net_").or_else(|| device.strip_prefix("eth_"));
    driver.filter(|rest| !rest.is_empty())?;
    let iface = arguments.split(',').find_map(|a| a.strip_prefix("iface="));
    Some(iface.map_or(Device::Virtual, |iface| Device::Kernel(iface.to_owned())))
}

impl Port {
    /// The device on the machine described by `roots`. Does not check whether DPDK can use it.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn find(&self, name: &str, roots: &Roots) -> Result<Found, FindError> {
        let table = match self {
            Self::Spec(text) => {
                let device = named(text).ok_or_else(|| FindError::Spec { text: text.clone() })?;
                return Ok(Found { device, spec: text.clone(), driver: None });
            }
            Self::Table(table) => table,
        };
        if let Some(iface) = &table.kernel {
            let spec = table.with_arguments(&format!("net_af_packet,iface={iface}"));
            let device = Device::Kernel(iface.clone());
            return Ok(Found { device, spec, driver: Some(Driver::Kernel) });
        }
        let address = match (&table.pci, &table.select) {
            (Some(address), _) => address.clone(),
            (None, Some(select)) => select.find(name, roots)?,
            (None, None) => return Err(FindError::Nothing { name: name.to_owned() }),
        };
        let spec = table.with_arguments(address.as_str());
        Ok(Found { device: Device::Pci(address), spec, driver: table.driver })
    }
}

impl PortTable {
    fn with_arguments(&self, device: &str) -> String {
        let arguments = self.arguments.iter().map(|arguments| format!(",{arguments}"));
        let vlan = self.vlan.iter().map(|vlan| format!(",vlan={vlan}"));
        std::iter::once(device.to_owned()).chain(arguments).chain(vlan).collect()
    }
}

impl Found {
    /// Driver for a PCI device: as configured, otherwise as its DPDK driver requires.
    #[must_use]
    pub fn driver_for(&self, nic: &Nic) -> Driver {
        let beside = nic.id.parse::<crate::NicId>().is_ok_and(|id| id.beside_kernel())
            || nic.driver.as_deref().is_some_and(beside_kernel);
        self.driver.unwrap_or(if beside { Driver::Kernel } else { Driver::Vfio })
    }
}

impl Select {
    fn find(&self, name: &str, roots: &Roots) -> Result<Address, FindError> {
        let nics = nics(&roots.sys);
        let found = match (&self.mac, &self.id) {
            (Some(mac), _) => {
                let has = |nic: &&Nic| nic.interfaces.iter().any(|(_, of)| of == mac);
                nics.iter().find(has).map(|nic| nic.address.clone()).or_else(|| taken(roots, mac))
            }
            (None, Some(id)) => {
                let nth = usize::from(self.nth.unwrap_or(1)).checked_sub(1);
                let mut like = nics.iter().filter(|nic| nic.id == id.as_str());
                nth.and_then(|nth| like.nth(nth)).map(|nic| nic.address.clone())
            }
            (None, None) => None,
        };
        found.ok_or_else(|| FindError::None {
            name: name.to_owned(),
            select: self.to_string(),
            there: nics.iter().map(ToString::to_string).collect(),
        })
    }
}

/// The bound device that had this MAC address before.
fn taken(roots: &Roots, mac: &str) -> Option<Address> {
    let mut text = String::new();
    let file = fs::File::open(roots.run.join(RECORD)).ok()?;
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    let record: Record = serde_json::from_str(&text).ok()?;
    let port = record.ports.into_iter().find(|port| port.mac.as_deref() == Some(mac))?;
    port.address.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// Two ports of one kind and one of another; the second port has no interface.
    fn machine() -> (TempDir, Roots) {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path().join("sys");
        let nic = |address: &str, id: (&str, &str), class: &str, iface: Option<(&str, &str)>| {
            let real = sys.join("devices/pci0000:00/0000:00:01.0").join(address);
            fs::create_dir_all(&real).unwrap();
            for (file, text) in [("vendor", id.0), ("device", id.1), ("class", class)] {
                fs::write(real.join(file), format!("0x{text}\n")).unwrap();
            }
            let devices = sys.join("bus/pci/devices");
            fs::create_dir_all(&devices).unwrap();
            symlink(&real, devices.join(address)).unwrap();
            if let Some((name, mac)) = iface {
                let place = real.join("net").join(name);
                fs::create_dir_all(&place).unwrap();
                fs::write(place.join("address"), format!("{mac}\n")).unwrap();
                symlink(&real, place.join("device")).unwrap();
                fs::create_dir_all(sys.join("class/net")).unwrap();
                symlink(&place, sys.join("class/net").join(name)).unwrap();
            }
        };
        nic("0000:01:00.1", ("8086", "1572"), "020000", None);
        nic("0000:01:00.0", ("8086", "1572"), "020000", Some(("eth0", "3c:fd:fe:00:00:01")));
        nic("0000:02:00.0", ("15b3", "101d"), "020000", Some(("eth1", "3c:fd:fe:00:00:02")));
        nic("0000:03:00.0", ("8086", "1572"), "010000", None);
        let roots = Roots { sys, run: root.path().join("run") };
        (root, roots)
    }

    fn find(text: &str, roots: &Roots) -> Result<Found, String> {
        let file = crate::BoxFile::parse(text, std::path::Path::new("x")).unwrap();
        let (name, port) = file.ports.named().remove(0);
        port.find(&name, roots).map_err(|e| e.to_string())
    }

    #[test]
    fn device_is_found_by_address_id_and_mac() {
        let (_root, roots) = machine();
        for (text, spec) in [
            ("ports.wan = \"01:00.1\"", "01:00.1"),
            ("ports.wan.pci = \"9:0.0\"", "0000:09:00.0"),
            ("ports.wan = { pci = \"01:00.1\", arguments = \"a=1\" }", "0000:01:00.1,a=1"),
            (
                "ports.wan = { pci = \"01:00.1\", arguments = \"a=1\", vlan = 7 }",
                "0000:01:00.1,a=1,vlan=7",
            ),
            ("ports.wan.select.id = \"8086:1572\"", "0000:01:00.0"),
            ("ports.wan.select = { id = \"8086:1572\", nth = 2 }", "0000:01:00.1"),
            ("ports.wan.select.mac = \"3C:FD:FE:00:00:02\"", "0000:02:00.0"),
            ("ports.wan.kernel = \"eth1\"", "net_af_packet,iface=eth1"),
        ] {
            assert_eq!(find(text, &roots).unwrap().spec, spec, "{text}");
        }
        let nics = nics(&roots.sys);
        let by_id = find("ports.wan.select.id = \"15b3:101d\"", &roots).unwrap();
        assert_eq!(by_id.driver_for(&nics[2]), Driver::Kernel);
        assert_eq!(by_id.driver_for(&nics[0]), Driver::Vfio);
        assert_eq!(of("eth1", &roots).as_deref(), Some("0000:02:00.0"));
        assert_eq!(of("lo", &roots), None);
    }

    fn of(iface: &str, roots: &Roots) -> Option<String> {
        crate::of_interface(&roots.sys, iface).map(|a| a.to_string())
    }

    #[test]
    fn missing_device_error_lists_existing_ones() {
        let (_root, roots) = machine();
        let error = find("ports.wan.select = { id = \"8086:1572\", nth = 3 }", &roots);
        let error = error.unwrap_err();
        for words in [
            "ports.wan in the box's file selects id = \"8086:1572\", nth = 3: there is no such",
            "0000:01:00.0 (8086:1572, no driver, eth0 3c:fd:fe:00:00:01)",
            "0000:02:00.0 (15b3:101d",
        ] {
            assert!(error.contains(words), "{error}");
        }
        assert!(!error.contains("0000:03:00.0"), "{error}");
        for text in
            ["ports.wan.select.nth = 1", "ports.wan.select = { id = \"8086:1572\", nth = 0 }"]
        {
            assert!(find(text, &roots).is_err(), "{text}");
        }
        let error = find("ports.wan = \"eth0\"", &roots).unwrap_err();
        assert!(error.contains("port `eth0` is not one") && error.contains("kernel = \"eth0\""));
        assert!(find("[ports.wan]", &roots).unwrap_err().contains("names no device"));
    }

    #[test]
    fn bound_device_is_found_by_the_record() {
        let (_root, roots) = machine();
        let text = "ports.wan.select.mac = \"3c:fd:fe:00:00:09\"";
        assert!(find(text, &roots).is_err());
        let record = roots.run.join(RECORD);
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        for (text_of, found) in [
            ("odd", None),
            (
                "{\"ports\":[{\"name\":\"wan\",\"address\":\"x\",\"mac\":\"3c:fd:fe:00:00:09\"}]}",
                None,
            ),
            (
                "{\"ports\":[{\"name\":\"wan\",\"address\":\"0000:01:00.1\",\
                  \"mac\":\"3c:fd:fe:00:00:09\"}],\"more\":1}",
                Some("0000:01:00.1"),
            ),
        ] {
            fs::write(&record, text_of).unwrap();
            assert_eq!(find(text, &roots).ok().map(|f| f.spec).as_deref(), found);
        }
    }

    #[test]
    fn port_specifications_are_classified() {
        assert_eq!(
            named("net_af_packet,framecnt=64,iface=veth0"),
            Some(Device::Kernel("veth0".into()))
        );
        assert_eq!(named("net_null"), Some(Device::Virtual));
        assert_eq!(named("1:0.0,x=y"), "01:00.0".parse().ok().map(Device::Pci));
        for odd in ["", "eth0", "net_", ",iface=x"] {
            assert_eq!(named(odd), None, "{odd}");
        }
    }
}
