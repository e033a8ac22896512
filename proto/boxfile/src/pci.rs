// SPDX-License-Identifier: Apache-2.0
//! PCI addresses and the network cards of a machine, from `/sys/bus/pci/devices` (kernel:
//! `Documentation/ABI/testing/sysfs-bus-pci`).

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

/// Maximum size of a kernel file, bytes.
const MAX_BYTES: u64 = 4096;
/// Class of Ethernet controllers, as in the file `class`.
const ETHERNET: &str = "0x0200";

/// A full PCI address, as `0000:01:00.0`: domain, bus, device, function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(String);

impl Address {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Address {
    type Err = ();

    /// Parses an address with or without domain.
    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split(':').collect();
        let (domain, bus, rest) = match parts.as_slice() {
            [domain, bus, rest] => (*domain, *bus, *rest),
            [bus, rest] => ("0000", *bus, *rest),
            _ => return Err(()),
        };
        let (device, function) = rest.split_once('.').ok_or(())?;
        let hex = |text: &str, digits: std::ops::RangeInclusive<usize>, most: u32| {
            let good = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
            let number = u32::from_str_radix(text, 16).ok().filter(|n| good && *n <= most);
            number.ok_or(())
        };
        let domain = hex(domain, 1..=8, u32::MAX)?;
        let bus = hex(bus, 1..=2, 0xff)?;
        let (device, function) = (hex(device, 1..=2, 0x1f)?, hex(function, 1..=1, 7)?);
        Ok(Self(format!("{domain:04x}:{bus:02x}:{device:02x}.{function}")))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    pub address: Address,
    /// Vendor and device id, as `8086:1572`.
    pub id: String,
    pub driver: Option<String>,
    /// Interfaces and their MAC addresses, if the kernel has them in this namespace.
    pub interfaces: Vec<(String, String)>,
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.driver.as_deref().unwrap_or("no driver");
        write!(f, "{} ({}, {driver}", self.address, self.id)?;
        for (name, mac) in &self.interfaces {
            write!(f, ", {name} {mac}")?;
        }
        f.write_str(")")
    }
}

/// Network cards of the machine, by address; empty if `/sys` has none.
#[must_use]
pub fn nics(sys: &Path) -> Vec<Nic> {
    let interfaces = interfaces(sys);
    let devices = sys.join("bus/pci/devices");
    let mut found: Vec<Nic> = names(&devices)
        .iter()
        .filter_map(|name| {
            let address: Address = name.parse().ok()?;
            let place = devices.join(name);
            if !text(&place.join("class"))?.starts_with(ETHERNET) {
                return None;
            }
            let number = |file| Some(text(&place.join(file))?.trim_start_matches("0x").to_owned());
            let driver = fs::read_link(place.join("driver")).ok();
            let of_this = interfaces.iter().filter(|(_, _, of)| *of == address);
            Some(Nic {
                id: format!("{}:{}", number("vendor")?, number("device")?),
                driver: driver.and_then(|d| Some(d.file_name()?.to_string_lossy().into_owned())),
                interfaces: of_this.map(|(name, mac, _)| (name.clone(), mac.clone())).collect(),
                address,
            })
        })
        .collect();
    found.sort_by(|a, b| a.address.cmp(&b.address));
    found
}

/// PCI device of a kernel interface, if any.
#[must_use]
pub fn of_interface(sys: &Path, iface: &str) -> Option<Address> {
    let place = fs::canonicalize(sys.join("class/net").join(iface).join("device")).ok()?;
    // A virtio device is below its PCI device, which is below its bridges.
    place.ancestors().find_map(|part| part.file_name()?.to_str()?.parse().ok())
}

/// Interfaces of PCI devices with their MAC addresses.
fn interfaces(sys: &Path) -> Vec<(String, String, Address)> {
    let class = sys.join("class/net");
    let of = |name: String| {
        let address = of_interface(sys, &name)?;
        let mac = text(&class.join(&name).join("address")).unwrap_or_default();
        Some((name, mac, address))
    };
    names(&class).into_iter().filter_map(of).collect()
}

/// Names in a directory, sorted; empty if it does not exist.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed() {
        for (text, full) in [
            ("0000:01:00.0", "0000:01:00.0"),
            ("01:00.1", "0000:01:00.1"),
            ("1:0.1", "0000:01:00.1"),
            ("0000:AF:1F.7", "0000:af:1f.7"),
            ("10000:e1:00.0", "10000:e1:00.0"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().as_str(), full);
        }
        for odd in ["", "eth0", "01:00", "01:20.0", "01:00.8", "0:0:0:0.0", "+1:00.0", "001:00.0"] {
            assert!(odd.parse::<Address>().is_err(), "{odd}");
        }
    }
}
