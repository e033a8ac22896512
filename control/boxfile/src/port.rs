// SPDX-License-Identifier: Apache-2.0
//! A port of the box's file: a text as `--port` takes it, or a table that says which device it
//! is and who drives it.

use std::fmt;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};

use crate::pci::Address;

/// Vendors whose DPDK driver works beside the kernel's.
const MELLANOX: &str = "15b3";
/// Kernel drivers that DPDK's driver works beside.
const BESIDE: [&str; 4] = ["mlx4_core", "mlx5_core", "mana", "gve"];

/// Whether DPDK works beside this driver of the kernel.
#[must_use]
pub fn beside_kernel(driver: &str) -> bool {
    BESIDE.contains(&driver)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// What `--port` takes after the name.
    Spec(String),
    /// A device, by where or what it is.
    Table(PortTable),
}

/// `[ports.wan]`, `[ports.client]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PortTable {
    #[serde(deserialize_with = "address")]
    pub pci: Option<Address>,
    /// Which device it is, wherever it is.
    pub select: Option<Select>,
    /// A kernel interface, whose packets a socket takes.
    pub kernel: Option<String>,
    /// Who drives it; without it, who the device's DPDK driver needs.
    pub driver: Option<Driver>,
    /// Pairs of queues that it has for workers, if it does not tell or has fewer than it tells.
    pub queues: Option<u16>,
    /// DPDK's own arguments for the device, as `key=value,…`.
    pub arguments: Option<String>,
}

/// Keys of [`PortTable`] and [`Select`].
pub(crate) const KEYS: &[&str] = &["pci", "select", "kernel", "driver", "queues", "arguments"];
pub(crate) const SELECT_KEYS: &[&str] = &["id", "nth", "mac"];

/// A device by what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Select {
    pub id: Option<NicId>,
    /// Which of those by their addresses, from 1; the first one without it.
    pub nth: Option<u16>,
    /// The MAC address that the kernel gives its interface.
    #[serde(deserialize_with = "mac")]
    pub mac: Option<String>,
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.id, &self.mac) {
            (_, Some(mac)) => write!(f, "mac = \"{mac}\""),
            (Some(id), None) => {
                write!(f, "id = \"{}\", nth = {}", id.as_str(), self.nth.unwrap_or(1))
            }
            (None, None) => f.write_str("nothing"),
        }
    }
}

/// Vendor and device, as `8086:1572`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicId(String);

impl NicId {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether its DPDK driver works beside the kernel's.
    #[must_use]
    pub fn beside_kernel(&self) -> bool {
        self.0.starts_with(MELLANOX)
    }
}

impl FromStr for NicId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let hex = |part: &str| part.len() == 4 && part.bytes().all(|b| b.is_ascii_hexdigit());
        match text.split_once(':') {
            Some((vendor, device)) if hex(vendor) && hex(device) => {
                Ok(Self(text.to_ascii_lowercase()))
            }
            _ => Err(()),
        }
    }
}

impl<'de> Deserialize<'de> for NicId {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let text = String::deserialize(value)?;
        text.parse().map_err(|()| {
            de::Error::custom(format!(
                "`{text}` is not a device's number: write vendor and device as `lspci -n` does, \
                 such as \"8086:1572\""
            ))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Driver {
    /// vfio-pci: the kernel hands the device over.
    #[serde(rename = "vfio-pci")]
    Vfio,
    /// The kernel's own driver, beside which DPDK works.
    #[serde(rename = "kernel")]
    Kernel,
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Port;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string as --port takes it, or a table with pci, select or kernel")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Port, E> {
                Ok(Port::Spec(text.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Port, A::Error> {
                PortTable::deserialize(MapAccessDeserializer::new(map)).map(Port::Table)
            }
        }
        value.deserialize_any(Visitor)
    }
}

fn address<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Address>, D::Error> {
    let text = String::deserialize(value)?;
    let wrong = |()| {
        de::Error::custom(format!(
            "`{text}` is not a PCI address: write it as `lspci -D` does, such as \"0000:01:00.0\""
        ))
    };
    text.parse().map(Some).map_err(wrong)
}

fn mac<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(value)?;
    let byte = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    if text.split(':').count() == 6 && text.split(':').all(byte) {
        return Ok(Some(text.to_ascii_lowercase()));
    }
    Err(de::Error::custom(format!(
        "`{text}` is not a MAC address: write it as `ip link` does, such as \"3c:fd:fe:00:00:01\""
    )))
}
